"""Between what a size lies, by the ranges of its symbols and by what quotients and extrema are between."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from fusewise.ir.monomial import Atom, Compound, Monomial, Symbol, key_of, over, times

__all__ = ["Written", "bounds_of"]

BEYOND = 2**200
"""More than any bound: nothing is known."""

STEPS = 6
"""How often a bound is looked for behind a quotient or an extremum."""

WAYS = 256
"""In how many ways about, so that sums of many are looked behind less often."""

Terms = tuple[tuple[Monomial, int], ...]
Maker = Callable[[int, list[tuple[Monomial, int]]], Any]
"""`make(constant, terms)`: a size of its terms."""


class Written:
    """A size by how it is written, as a key: sizes themselves compare by what they are."""

    __slots__ = ("size",)

    def __init__(self, size: Any) -> None:
        self.size = size

    def __hash__(self) -> int:
        return hash(self.size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Written) and hash(self) == hash(other) and str(self.size) == str(other.size)


@lru_cache(maxsize=1 << 14)
def bounds_of(written: Written, make: Maker) -> tuple[int, int]:
    """The least and the greatest that a size can be, as far as is known; equal ones are made over and over."""
    size = written.size
    negative = make(-size.constant, [(monomial, -coefficient) for monomial, coefficient in size.terms])
    return lowest(size, make), -lowest(negative, make)


def lowest(size: Any, make: Maker, steps: int = STEPS) -> int:
    """A number that a size is never below."""
    if isinstance(size, int):
        return size
    best: int = max(_by_interval(size), _by_shift(size))
    if best < 0 and steps:
        atoms = dict.fromkeys(a for m, _ in size.terms for a, _ in m if isinstance(a, Compound))
        steps = min(steps, int(math.log(WAYS, max(2, len(atoms)))))
        for atom in atoms if steps else ():
            best = max(best, _behind(size, atom, make, steps - 1))
            if best >= 0:
                break
    return best


def _range(atom: Atom) -> tuple[int, int]:
    """The least and the greatest value of an atom."""
    if isinstance(atom, Symbol):
        return atom.low, atom.high
    found = [(a, a) if isinstance(a, int) else a.bounds for a in atom.args]
    (low, high), (least_by, most_by) = found[0], found[-1]
    if atom.op in ("min", "max"):
        take = min if atom.op == "min" else max
        return take(a for a, _ in found), take(b for _, b in found)
    if atom.op == "mod":
        return 0, max(0, min(high, most_by - 1) if low >= 0 else most_by - 1)
    by = max(1, least_by), max(1, most_by)
    return min(low // by[0], low // by[1]), max(high // by[0], high // by[1])


def _by_interval(size: Any) -> int:
    total: int = size.constant
    for monomial, coefficient in size.terms:
        low = high = coefficient
        for atom, power in monomial:
            for bounds in [_range(atom)] * power:
                ends = [a * b for a in (low, high) for b in bounds]
                low, high = min(ends), max(ends)
        total += low
    return max(total, -BEYOND)


def _by_shift(size: Any) -> int:
    """With every atom written as its least value and what is beyond: terms then cancel, and only negative ones that are left are
    bounded by themselves."""
    terms = [*size.terms, ((), size.constant)]
    moved: dict[tuple[tuple[str, int], ...], tuple[Monomial, int]] = {}
    for monomial, coefficient in terms:
        parts: list[tuple[Monomial, int]] = [((), coefficient)]
        for atom, power in monomial:
            low = _range(atom)[0]
            for _ in range(power):
                more = [(m, c * low) for m, c in parts] if low else []
                parts = [(times(m, ((atom, 1),)), c) for m, c in parts] + more
        for m, c in parts:
            key = key_of(m)
            before = moved.get(key)
            moved[key] = m, c + (0 if before is None else before[1])
    total = 0
    for m, c in moved.values():
        if not m:
            total += c
        elif c < 0:
            total += c * math.prod((_range(atom)[1] - _range(atom)[0]) ** power for atom, power in m)
    return max(total, -BEYOND)


def _behind(size: Any, atom: Compound, make: Maker, steps: int) -> int:
    """The lowest value with an atom replaced by what it is never below, or above where that is what makes the size small."""
    found = [(m, c) for m, c in size.terms if any(a.key == atom.key for a, _ in m)]
    rest = size - make(0, found)
    shares = [(over(m, ((atom, 1),)), c) for m, c in found]
    signs = {c > 0 for _, c in found}
    if len(signs) != 1 or any(m is None or any(_range(a)[0] < 0 for a, _ in m) for m, _ in shares):
        return -BEYOND
    factor = _summed(make, [(m, c) for m, c in shares if m is not None])
    grows = signs.pop()
    if atom.op in ("min", "max"):
        if (atom.op == "max") != grows:  # every argument is above the minimum, and the size falls as that grows
            return -BEYOND
        return max(lowest(rest + factor * a, make, steps) for a in atom.args)
    whole, by = atom.args
    if atom.op == "mod":  # from 0 to the divisor, without that
        return lowest(rest if grows else rest + factor * (by - 1), make, steps)
    if not isinstance(by, int):
        return -BEYOND
    bound = whole - by + 1 if grows else whole
    return -(-lowest(rest * by + factor * bound, make, steps) // by)


def _summed(make: Maker, terms: list[tuple[Monomial, int]]) -> Any:
    return make(sum(c for m, c in terms if not m), [term for term in terms if term[0]])
