"""Dataclasses that are made sooner, for rooms that are entered while a user waits.

`dataclasses` compiles up to six methods for a class, about a millisecond; the first compilation in a process makes 170 classes.
Here only `__init__` is compiled, and comparing, hashing and showing are closures over the names of the fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["record"]

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(plain=None, /, *, frozen=False, eq=True, slots=False):
        """What `dataclasses.dataclass` makes with these options, also to `replace`, `fields` and `asdict`.

        That nobody assigns to the fields of a frozen one is left to the type checker; it is hashed by its contents.
        """

        def made(plain):
            return _with_methods(dataclasses.dataclass(eq=False, repr=False, slots=slots)(plain), plain, frozen, eq)

        return made if plain is None else made(plain)


def _with_methods(made: Any, plain: type, frozen: bool, eq: bool) -> type:
    """`made` from `plain`, with the methods that neither has."""
    contents = _contents([one.name for one in dataclasses.fields(made) if one.compare])

    def equal(self: object, other: object) -> Any:
        return contents(self) == contents(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: object) -> int:
        return hash(contents(self))

    methods: dict[str, Any] = {"__repr__": _shown}
    if eq:
        methods |= {"__eq__": equal, "__hash__": hashed if frozen else None}
    for name, method in methods.items():
        if plain.__dict__.get(name) is None:
            setattr(made, name, method)
    found: type = made
    return found


def _contents(names: list[str]) -> Callable[[object], tuple[Any, ...]]:
    """Reads these fields."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda owner: tuple(getattr(owner, name) for name in names)


@recursive_repr()
def _shown(self: Any) -> str:
    listed = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr)
    return f"{type(self).__qualname__}({listed})"
