"""Sizes as index arithmetic meets them: what divides what, and what holds wherever an index space has elements."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import field

from fusewise.ir.deciding import hint, known_below
from fusewise.ir.monomial import Compound, Monomial, Symbol
from fusewise.ir.size import Size, size_of, substitute, symbols_of
from fusewise.records import record

__all__ = ["Positive", "common_factors", "exact", "same", "split"]

Terms = list[tuple[Monomial, int]]

_STEPS = 8
"""Numbers for a symbol that are tried one after another."""


def same(a: int, b: int) -> bool:
    """Are both the same number, whatever symbols are? What is not known is no."""
    if type(a) is type(b) is int:
        return a == b
    difference = a - b
    return type(difference) is int and difference == 0


def exact(whole: int, by: int) -> int | None:
    """whole // by where it is known to be divided without a rest."""
    rest = whole % by
    return whole // by if type(rest) is int and rest == 0 else None


def split(whole: int, by: int) -> tuple[int, int]:
    """q and r of whole = q*by + r; of sizes, where r is no number, nothing is divided."""
    rest = whole % by
    return (whole // by, rest) if type(rest) is int else (0, whole)


def common_factors(coefficients: Iterable[int], by: int) -> list[int]:
    """What divides `by` and, each, one of the coefficients, the largest first; 1 is left out."""
    numbers = list(coefficients)
    if type(by) is int and all(type(c) is int for c in numbers):
        found = {math.gcd(c, by) for c in numbers}
        return sorted((factor for factor in found if factor > 1), reverse=True)
    factors: dict[str, int] = {}
    for c in numbers:
        whole = c if isinstance(c, Size) and exact(by, c) is not None else _shared(c, by)
        if not (type(whole) is int and whole == 1):
            factors[str(whole)] = whole
    return sorted(factors.values(), key=hint, reverse=True)


def _shared(a: int, b: int) -> int:
    """The largest single term that divides every term of both."""
    terms = [*_terms(a), *_terms(b)]
    powers = [dict(monomial) for monomial, _ in terms]
    product = math.gcd(*(coefficient for _, coefficient in terms))
    for atom, power in terms[0][0]:
        shared = min(one.get(atom, 0) for one in powers)
        product = product * Size(0, ((((atom, 1),), 1),)) ** shared if shared and power else product
    return product


def _terms(size: int) -> Terms:
    if not isinstance(size, Size):
        return [((), size)]
    return [*size.terms, ((), size.constant)] if size.constant else list(size.terms)


@record
class Positive:
    """What is known of sizes where each of the `extents` is 1 at least, as it is wherever an index space has elements."""

    extents: tuple[int, ...]
    _raised: dict[str, int] = field(default_factory=dict)
    _lowest: dict[str, int] = field(default_factory=dict)
    _same: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = [extent for extent in self.extents if isinstance(extent, Size)]
        for extent in sizes:
            self._require(extent, 1)
        for symbol in frozenset[Symbol]().union(*map(symbols_of, sizes)):
            low = min(self._lowest.get(symbol.name, symbol.low), symbol.high)
            low = self._past(symbol, low, [extent for extent in sizes if symbol in symbols_of(extent)])
            if low > symbol.low:
                self._raised[symbol.name] = size_of(Symbol(symbol.name, low, symbol.high, symbol.hint))

    def _past(self, symbol: Symbol, low: int, sizes: list[int]) -> int:
        """The least number for a symbol that leaves none of the sizes without elements, after a few steps."""
        while low < min(symbol.high, symbol.low + _STEPS):
            if not any(known_below(substitute(size, {symbol.name: low}), 1) for size in sizes):
                break
            low += 1
        return low

    def at_most(self, a: int, b: int) -> bool:
        """Is the one never above the other? What is not proved is no."""
        if known_below(a, b + 1):
            return True
        if not self._raised and not self._same:
            return False
        return known_below(self._here(a), self._here(b) + 1)

    def _here(self, size: int) -> int:
        """A size in terms of symbols that are no less than they must be, and of what maxima must be."""
        if not isinstance(size, Size):
            return size
        if self._same:
            total: int = size.constant
            for monomial, coefficient in size.terms:
                term: int = coefficient
                for atom, power in monomial:
                    found = self._same.get(str(atom)) if isinstance(atom, Compound) else None
                    term = term * (Size(0, ((((atom, 1),), 1),)) if found is None else found) ** power
                total = total + term
            size = total
        return substitute(size, self._raised)

    def _require(self, size: int, least: int) -> None:
        """Find what symbols are at least, since a size is."""
        if not isinstance(size, Size) or len(size.terms) != 1 or size.terms[0][1] < 0:
            return
        monomial, coefficient = size.terms[0]
        least = -((size.constant - least) // coefficient)
        if len(monomial) > 1 or monomial[0][1] > 1:
            least = min(least, 1)  # every factor is that, since none is negative
            if not all(known_below(-1, Size(0, ((((atom, 1),), 1),))) for atom, _ in monomial):
                return
        for atom, _ in monomial:
            if isinstance(atom, Symbol):
                self._lowest[atom.name] = max(least, self._lowest.get(atom.name, atom.low))
            else:
                self._behind(atom, least)

    def _behind(self, atom: Compound, least: int) -> None:
        if atom.op == "min":
            for one in atom.args:
                self._require(one, least)
        elif atom.op == "max":
            large = [one for one in atom.args if not known_below(one, least)]
            if len(large) == 1:
                self._same[str(atom)] = large[0]
                self._require(large[0], least)
        elif atom.op == "floordiv" and type(atom.args[1]) is int:
            self._require(atom.args[0], least * atom.args[1])
