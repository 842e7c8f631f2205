"""Accelerators as data: a TOML file each, shipped presets or the user's own.

A file gives the buffer, the width of an element, and what is needed to turn traffic and work into time and energy; a table named
after a scheme sets that scheme's options. Every key is checked, and an error names it.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from fusewise.accel.schemes.catalogue import SCHEMES, scheme_named
from fusewise.accel.schemes.scheme import Scheme
from fusewise.errors import UsageError
from fusewise.words import nearest

__all__ = ["DEFAULT", "Hardware", "hardware_from", "hardware_named", "preset_names"]

DEFAULT = "edge-256k"
"""The preset that is used when none is named."""


@dataclass(frozen=True)
class Hardware:
    """One accelerator.

    `buffer_bytes`: on-chip memory for activations and weights; `bits`: width of an element; `macs_per_cycle` and `clock_mhz`:
    peak work; `dram_bytes_per_second`: bandwidth; `dram_pj_per_byte`, `buffer_pj_per_byte`: energy of a byte moved off and on
    the chip, in picojoules; `schemes`: options by scheme name.
    """

    name: str
    buffer_bytes: int
    bits: int
    macs_per_cycle: float
    clock_mhz: float
    dram_bytes_per_second: float
    dram_pj_per_byte: float
    buffer_pj_per_byte: float
    schemes: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = ()
    summary: str = ""

    def with_buffer(self, buffer_bytes: int) -> Hardware:
        """The same accelerator with another buffer."""
        if buffer_bytes < 1:
            raise UsageError(f"a buffer of {buffer_bytes} bytes holds nothing; give at least 1 byte.")
        return replace(self, buffer_bytes=buffer_bytes)

    def scheme(self, name: str, options: Mapping[str, object] | None = None) -> Scheme:
        """The scheme called `name` with this accelerator's element width and options, and then `options`."""
        own = dict(dict(self.schemes).get(name, ()))
        return scheme_named(name, {"bits": self.bits, **own, **(options or {})})


_COUNTS, _NUMBERS = (
    ("buffer_bytes", "bits"),
    (
        "macs_per_cycle",
        "clock_mhz",
        "dram_bytes_per_second",
        "dram_pj_per_byte",
        "buffer_pj_per_byte",
    ),
)
_WORDS = ("name", "summary")


def preset_names() -> tuple[str, ...]:
    """The accelerators that ship with the package, smallest buffer first."""
    folder = files("fusewise.accel") / "presets"
    names = [entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")]
    return tuple(sorted(names, key=lambda name: hardware_named(name).buffer_bytes))


def hardware_named(name: str) -> Hardware:
    """A preset by name, or the accelerator that a `.toml` file describes; `UsageError` when there is none or it is wrong."""
    if name.endswith(".toml"):
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"the hardware file {name!r} cannot be read: {error}") from error
        return hardware_from(text, Path(name).stem, name)
    folder = files("fusewise.accel") / "presets"
    known = {entry.name.removesuffix(".toml"): entry for entry in folder.iterdir() if entry.name.endswith(".toml")}
    if name not in known:
        raise UsageError(
            f"there is no hardware preset called {name!r}; {nearest(name, known)} A file of your own ends in .toml."
        )
    return hardware_from(known[name].read_text(encoding="utf-8"), name, f"preset {name}")


def hardware_from(text: str, name: str, where: str) -> Hardware:
    """The accelerator that a TOML text describes; `where` is how errors call the text.

    `UsageError` names the key that is missing, unknown (with the nearest known one), or has a value that cannot be.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"hardware file {where} is not TOML: {error}") from error
    known = (*_WORDS, *_COUNTS, *_NUMBERS, *SCHEMES)
    for key in data:
        if key not in known:
            raise UsageError(f"hardware file {where}: unknown key {key!r}; {nearest(key, known)}")
    for key in (*_COUNTS, *_NUMBERS):
        if key not in data:
            raise UsageError(f"hardware file {where}: key {key!r} is missing.")
        _check_number(where, key, data[key], whole=key in _COUNTS)
    for key in _WORDS:
        if not isinstance(data.get(key, ""), str):
            raise UsageError(f"hardware file {where}: {key!r} must be a text, not {data[key]!r}.")
    tables = []
    for scheme in SCHEMES:
        options = data.get(scheme, {})
        if not isinstance(options, dict):
            raise UsageError(f"hardware file {where}: {scheme!r} must be a table of options, not {options!r}.")
        try:
            scheme_named(scheme, {"bits": data["bits"], **options})
        except UsageError as error:
            raise UsageError(f"hardware file {where}: {error}") from error
        tables.append((scheme, tuple(sorted(options.items()))))
    numbers = {key: data[key] for key in _COUNTS} | {key: float(data[key]) for key in _NUMBERS}
    return Hardware(data.get("name", name), **numbers, schemes=tuple(tables), summary=data.get("summary", ""))


def _check_number(where: str, key: str, value: object, *, whole: bool) -> None:
    kind = "a whole number" if whole else "a number"
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        raise UsageError(f"hardware file {where}: {key!r} must be {kind}, not {value!r}.")
    if not math.isfinite(value) or value <= 0:
        raise UsageError(f"hardware file {where}: {key!r} must be above zero, not {value!r}.")
