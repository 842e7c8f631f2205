"""The table of schemes, and how to make one by name with options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.schemes.scheme import Scheme
from fusewise.errors import UsageError
from fusewise.words import nearest

__all__ = ["SCHEMES", "options_of", "scheme_named"]

SCHEMES: dict[str, type[LBDF] | type[BRR]] = {"lbdf": LBDF, "brr": BRR}
"""Every scheme by the name users give."""

_ALLOWED: dict[str, tuple[object, ...]] = {
    "granularity": ("pixel", "row"),
    "waiting": ("exact", "ceiling"),
    "accounting": ("published", "executed"),
    "bits": (4, 8, 16, 32, 64),
}
"""Values of the options that are a choice."""


def options_of(name: str) -> tuple[str, ...]:
    """The options of a scheme, by name."""
    return tuple(field.name for field in fields(_class(name)))


def scheme_named(name: str, options: Mapping[str, object] | None = None) -> Scheme:
    """The scheme called `name` with some options set.

    `UsageError` for an unknown name or option (with the nearest one), or a value of the wrong kind.
    """
    made = _class(name)
    known = {field.name: field.default for field in fields(made)}
    for key, value in (options or {}).items():
        if key not in known:
            raise UsageError(f"scheme {name!r} has no option {key!r}; {nearest(key, known)}")
        if key in _ALLOWED and value not in _ALLOWED[key]:
            raise UsageError(f"{name}.{key} is one of {', '.join(map(str, _ALLOWED[key]))}, not {value!r}")
        if type(value) is not type(known[key]) or (
            isinstance(value, int) and not isinstance(value, bool) and value < 1
        ):
            wanted = {bool: "true or false", int: "a whole number of at least 1"}.get(type(known[key]), "a word")
            raise UsageError(f"{name}.{key} must be {wanted}, not {value!r}")
    return made(**dict(options or {}))  # type: ignore[arg-type]


def _class(name: str) -> type[LBDF] | type[BRR]:
    if name not in SCHEMES:
        raise UsageError(f"there is no scheme called {name!r}; {nearest(name, SCHEMES)}")
    return SCHEMES[name]
