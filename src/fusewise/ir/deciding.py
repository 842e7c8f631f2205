"""Comparisons of sizes: what follows from ranges is answered; the rest at a hint, and what was answered is a condition.

    with deciding({"sequence": 128}) as conditions:
        if sequence >= 6: ...                  # yes, and `conditions` now has sequence - 6 >= 0

Whatever is made meanwhile is right for all sizes that meet the conditions. Where nobody decides, sizes that are not known to be
equal are taken to be different, and which one is larger cannot be asked. The decider is a context variable, since comparisons
take no argument for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import Any, TypeVar

from fusewise.ir.size import DECIDER, Size, evaluate, symbols_of
from fusewise.ir.types import TensorType, ValueType
from fusewise.records import record

__all__ = [
    "Condition",
    "Conditions",
    "at_hint",
    "deciding",
    "hint",
    "hinted_bytes",
    "known_below",
    "known_equal",
    "known_one",
    "known_zero",
    "mapped",
]

T = TypeVar("T")

DEFAULT_HINT = 64
"""A size that nobody said anything about."""


@record(frozen=True)
class Condition:
    """What must hold of a size: it is `zero`, `nonzero` or `nonnegative`."""

    relation: str
    size: int

    def holds(self, values: Mapping[str, int]) -> bool:
        """Does it, for these values of symbols?"""
        return _MEANING[self.relation](evaluate(self.size, values))

    def __str__(self) -> str:
        return f"{self.size} {_SIGNS[self.relation]}"


_MEANING: Mapping[str, Callable[[int], bool]] = {
    "zero": lambda n: n == 0,
    "nonzero": lambda n: n != 0,
    "nonnegative": lambda n: n >= 0,
}
_SIGNS = {"zero": "== 0", "nonzero": "!= 0", "nonnegative": ">= 0"}


@record
class Conditions:
    """Conditions as they are found, each once; comparisons are answered at `hints`."""

    hints: Mapping[str, int]
    found: dict[tuple[str, str], Condition] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Condition]:
        return iter(self.found.values())

    def add(self, condition: Condition) -> None:
        """Note a condition, unless it is there."""
        self.found.setdefault((condition.relation, str(condition.size)), condition)

    def is_zero(self, size: int) -> bool:
        """Is it 0 at the hints?"""
        answer = hint(size) == 0
        self.add(Condition("zero" if answer else "nonzero", _positive(size)))
        return answer

    def is_nonnegative(self, size: int) -> bool:
        """Is it 0 or more at the hints?"""
        answer = hint(size) >= 0
        self.add(Condition("nonnegative", size if answer else -size - 1))
        return answer


@contextmanager
def deciding(hints: Mapping[str, int]) -> Iterator[Conditions]:
    """Have comparisons answered at these values of symbols, by name; others are at their own hints."""
    conditions = Conditions(hints)
    token = DECIDER.set(conditions)
    try:
        yield conditions
    finally:
        DECIDER.reset(token)


def hinted_bytes(kind: ValueType | None) -> int:
    """Bytes to plan for; 0 of what is no tensor, and of a tensor whose rank is not known."""
    return hint(kind.nbytes) if isinstance(kind, TensorType) and kind.is_static else 0


def hint(size: int) -> int:
    """The number to plan for: of a size what it is at the hints. For what is faster, never for what is right."""
    if not isinstance(size, Size):
        return size
    decider = DECIDER.get()
    given = decider.hints if isinstance(decider, Conditions) else {}
    return evaluate(size, {s.name: given.get(s.name, s.hint or _usual(s.low, s.high)) for s in symbols_of(size)})


def _usual(low: int, high: int) -> int:
    return min(max(low, DEFAULT_HINT), high)


def at_hint(found: T) -> T:
    """The same data with numbers for sizes: tuples, mappings and records of sizes, at any depth."""
    return mapped(found, hint)


def mapped(found: T, one: Callable[[Size], int]) -> T:
    """The same data with what `one` gives for every size in it: tuples, mappings and records, at any depth."""
    changed: T = _mapped(found, one)
    return changed


def _mapped(found: Any, one: Callable[[Size], int]) -> Any:
    if isinstance(found, Size):
        return one(found)
    if isinstance(found, tuple) and found:
        parts = [_mapped(part, one) for part in found]
        if all(a is b for a, b in zip(parts, found, strict=True)):
            return found
        return type(found)(*parts) if hasattr(found, "_fields") else tuple(parts)
    if isinstance(found, Mapping) and found:
        values = {key: _mapped(value, one) for key, value in found.items()}
        return values if any(values[key] is not found[key] for key in values) else found
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        fields = [(f.name, getattr(found, f.name)) for f in dataclasses.fields(found) if f.init]
        values = {name: _mapped(value, one) for name, value in fields}
        changes = {name: values[name] for name, value in fields if values[name] is not value}
        return dataclasses.replace(found, **changes) if changes else found
    has_own = getattr(found, "with_sizes", None)  # an expression, whose parts are shared
    return found if has_own is None else has_own(one)


def known_equal(a: int, b: int) -> bool:
    """Are both equal, whatever symbols are? What is not known is no."""
    return not isinstance(a - b, Size) and a - b == 0


def known_zero(size: int) -> bool:
    """Is it 0, whatever symbols are? What is not known is no."""
    return not isinstance(size, Size) and size == 0


def known_one(size: int) -> bool:
    """Is it 1, whatever symbols are?"""
    return not isinstance(size, Size) and size == 1


def known_below(a: int, b: int) -> bool:
    """Is the first smaller, whatever symbols are?"""
    difference = b - a - 1
    return difference.bounds[0] >= 0 if isinstance(difference, Size) else difference >= 0


def _positive(size: int) -> int:
    """The size or its negative, whichever begins without a minus: both are 0 at once."""
    return -size if isinstance(size, Size) and size.terms[0][1] < 0 else size
