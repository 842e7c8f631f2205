"""What operators ask of the sizes of a graph, solved: symbols that must be equal become one, ranges become as narrow as they must
be, and what neither can express is a check.

    past_key: [batch, 8, s54, 64]   past_value: [batch, 8, s84, 64]      ->  s84 = s54
    mask: [batch, total],  scores: [batch, 12, sequence, past + sequence]  ->  total = past + sequence
    positions[0:sequence] of 512, added to [batch, sequence, 768]        ->  sequence <= 512
    map of 2*(height//2) rows joined with one of height                  ->  check that both are equal
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fusewise.errors import InvalidModel
from fusewise.ir.deciding import Condition, known_below, known_equal
from fusewise.ir.graph import Check
from fusewise.ir.size import Compound, Size, Symbol, greatest, least, size_of, symbols_of
from fusewise.ops.shapes.operands import is_unknown

__all__ = ["Equations", "Unasked"]

_COMPOUNDS: Mapping[str, Any] = MappingProxyType(
    {"floordiv": operator.floordiv, "mod": operator.mod, "min": least, "max": greatest}
)


class Unasked:
    """What a body asks that need not run: nothing is taken to hold, and what is not known to be equal is not known."""

    def equal(self, a: int, b: int, why: str) -> int:
        """A size that nothing is known of."""
        return size_of(Symbol("?"))

    def at_least(self, a: int, b: int, why: str) -> None:
        """Nothing follows."""

    def known(self, size: int) -> int:
        """As it is."""
        return size


class Equations:
    """The symbols of a graph with what is known of them; told more while types are inferred (`ops.shapes.operands.Relations`).

    `is_new`: something was learned that types inferred before do not know of.
    """

    def __init__(self, symbols: Sequence[Symbol], checks: Sequence[Check] = ()) -> None:
        self.order = {symbol.name: k for k, symbol in enumerate(symbols)}
        self.symbols = {symbol.name: symbol for symbol in symbols}
        self.free = tuple(symbol for symbol in symbols if symbol.low < symbol.high)
        self.values: dict[str, int] = {}
        self.checks: dict[tuple[str, str], Check] = {}
        for check in checks:
            self._check(check)
        self.is_new = False

    @property
    def pinned(self) -> int:
        """How many symbols can only be one number, of those that could be more."""
        return sum(not isinstance(self.known(size_of(symbol)), Size) for symbol in self.free)

    def known(self, size: int) -> int:
        """A size in terms of what is known by now."""
        if not isinstance(size, Size):
            return size
        total: int = size.constant
        for monomial, coefficient in size.terms:
            term: int = coefficient
            for atom, power in monomial:
                term = term * self._atom(atom) ** power
            total = total + term
        return total

    def _atom(self, atom: Symbol | Compound) -> int:
        if isinstance(atom, Symbol):
            value = self.values.get(atom.name)
            return size_of(self.symbols.get(atom.name, atom)) if value is None else value
        args = tuple(map(self.known, atom.args))
        if self.checks and atom.op in ("min", "max"):
            args = self._decisive(args, 1 if atom.op == "min" else -1)
        found: int = _COMPOUNDS[atom.op](*args)
        return found

    def _decisive(self, args: tuple[int, ...], sign: int) -> tuple[int, ...]:
        """The arguments of a minimum (a maximum with the sign -1) that no check says to be beyond others."""
        kept = list(args)
        for one in args:
            if any(other is not one and ("nonnegative", str((one - other) * sign)) in self.checks for other in kept):
                kept.remove(one)
        return tuple(kept)

    def equal(self, a: int, b: int, why: str) -> int:
        """Have two sizes be equal, by a value for a symbol if there is one; gives the one to go on with."""
        a, b = self.known(a), self.known(b)
        if known_equal(a, b):
            return a
        if is_unknown(a) or is_unknown(b):
            return b if is_unknown(a) else a
        if known_below(a, b) or known_below(b, a):
            raise InvalidModel(f"{why}, and are {a} and {b}")
        self._vanish(a - b, Check(Condition("zero", a - b), f"{why}: {a} and {b}"))
        return self._simpler(self.known(a), self.known(b))

    def at_least(self, a: int, b: int, why: str) -> None:
        """Have the first be no smaller than the second, by a range if there is one."""
        a, b = self.known(a), self.known(b)
        if not is_unknown(a) and not is_unknown(b):
            self._require(a - b, f"{why} must be at least {b}, and is {a}")

    def _require(self, size: int, sentence: str) -> None:
        """Have a size not be negative."""
        if known_below(-1, size):
            return
        if known_below(size, 0):
            raise InvalidModel(sentence)
        self._check(Check(Condition("nonnegative", size), sentence))
        self._bound(size)

    def settled_checks(self) -> tuple[Check, ...]:
        """The checks in terms of what is known, without those that the ranges of symbols say."""
        found = {}
        for check in self.checks.values():
            relation, size = check.condition.relation, self.known(check.condition.size)
            condition = Condition(relation, size)
            if not isinstance(size, Size) and not condition.holds({}):
                raise InvalidModel(check.sentence)
            if isinstance(size, Size) and not (relation == "nonnegative" and known_below(-1, size)):
                found[relation, str(size)] = Check(condition, check.sentence)
        return tuple(found.values())

    # --- equality ---------------------------------------------------------------------------------------------------

    def _vanish(self, size: int, check: Check) -> None:
        """Have a size be 0."""
        assert isinstance(size, Size)
        reduced = _primitive(size)
        if not known_below(reduced, 0) and not known_below(0, reduced):  # else a factor of all terms has to be 0
            size = reduced
        found = self._solved(size)
        if found is not None:
            self._give(*found, check)
            return
        extremum = _as_extremum(size)
        if extremum is None:
            self._check(check)
            return
        op, value, others = extremum
        for other in others:
            self._require(other - value if op == "min" else value - other, check.sentence)
        self.is_new = True

    def _solved(self, size: Size) -> tuple[Symbol, int] | None:
        """A symbol and what it must be for `size` to be 0: the last one, and rather such that nothing is subtracted."""
        found = []
        for monomial, coefficient in size.terms:
            atom = monomial[0][0]
            if len(monomial) != 1 or monomial[0][1] != 1 or abs(coefficient) != 1 or not isinstance(atom, Symbol):
                continue
            value = size_of(atom) - size * coefficient
            if atom in symbols_of(value) or atom.name not in self.symbols:
                continue
            plain = not isinstance(value, Size) or (value.constant >= 0 and all(c > 0 for _, c in value.terms))
            found.append((plain, self.order[atom.name], atom, value))
        if not found:
            return None
        _, _, symbol, value = max(found, key=lambda one: one[:2])
        return symbol, value

    def _give(self, symbol: Symbol, value: int, check: Check) -> None:
        """Put `value` in the place of a symbol everywhere."""
        self._require(value - symbol.low, check.sentence)
        self._require(symbol.high - value, check.sentence)
        value = self.known(value)
        self.values[symbol.name] = value
        for name, other in self.values.items():
            self.values[name] = self.known(other)
        self.is_new = True

    def _simpler(self, a: int, b: int) -> int:
        if not isinstance(a, Size) or not isinstance(b, Size):
            return b if isinstance(a, Size) else a
        return a if len(a.terms) <= len(b.terms) else b

    def _check(self, check: Check) -> None:
        self.checks.setdefault((check.condition.relation, str(check.condition.size)), check)

    # --- ranges -----------------------------------------------------------------------------------------------------

    def _bound(self, size: int) -> None:
        """Narrow ranges by `size` not being negative, as far as that is one symbol's matter."""
        if not isinstance(size, Size):
            return
        if len(size.terms) == 1:
            (monomial, coefficient), constant = size.terms[0], size.constant
            if len(monomial) == 1 and monomial[0][1] == 1:
                if coefficient > 0:
                    self._raise(monomial[0][0], -(constant // coefficient))
                else:
                    self._lower(monomial[0][0], constant // -coefficient)
            return
        for monomial, coefficient in size.terms:  # of a sum that is at most a number no term can be more
            atom = monomial[0][0]
            if coefficient < 0 and len(monomial) == 1 and monomial[0][1] == 1 and isinstance(atom, Symbol):
                most = (size - coefficient * size_of(atom)) if atom.low != atom.high else 0
                high = most.bounds[1] if isinstance(most, Size) else most
                if 0 <= high < -coefficient * atom.high:
                    self._lower(atom, high // -coefficient)

    def _raise(self, atom: Symbol | Compound, low: int) -> None:
        """Have an atom be `low` or more."""
        if isinstance(atom, Symbol):
            self._range(atom.name, low, LAST)
        elif atom.op == "floordiv" and not isinstance(atom.args[1], Size):
            self._bound(atom.args[0] - low * atom.args[1])
        elif atom.op == "min":
            for one in atom.args:
                self._bound(one - low)

    def _lower(self, atom: Symbol | Compound, high: int) -> None:
        """Have an atom be `high` or less."""
        if isinstance(atom, Symbol):
            self._range(atom.name, 0, high)
        elif atom.op == "floordiv" and not isinstance(atom.args[1], Size):
            self._bound((high + 1) * atom.args[1] - 1 - atom.args[0])
        elif atom.op == "max":
            for one in atom.args:
                self._bound(high - one)

    def _range(self, name: str, low: int, high: int) -> None:
        before = self.symbols.get(name)
        if before is None:
            return
        low, high = max(low, before.low), min(high, before.high)
        if low > high:
            raise InvalidModel(f"dimension {name!r} would have to be at least {low} and at most {high}")
        if (low, high) != (before.low, before.high):
            hint = min(max(before.hint, low), high) if before.hint else 0
            self.symbols[name] = Symbol(name, low, high, hint)
            self.is_new = True


LAST = 2**62
"""More than any size."""


def _primitive(size: Size) -> Size:
    """What must be 0 for `size` to be: without factors that all terms have."""
    factor = math.gcd(size.constant, *(coefficient for _, coefficient in size.terms))
    reduced = size // factor
    if not isinstance(reduced, Size) or reduced.constant:
        return size if not isinstance(reduced, Size) else reduced
    for atom, _ in reduced.terms[0][0]:
        one = Size(0, ((((atom, 1),), 1),))
        while isinstance(reduced, Size) and all(any(a == atom for a, _ in monomial) for monomial, _ in reduced.terms):
            smaller = reduced // one
            if not isinstance(smaller, Size):
                return reduced
            reduced = smaller
    return reduced


def _as_extremum(size: Size) -> tuple[str, int, tuple[int, ...]] | None:
    """`min` or `max`, the one of its arguments that it must be for `size` to be 0, and the others; None where there is no such."""
    for monomial, coefficient in size.terms:
        atom = monomial[0][0]
        if len(monomial) != 1 or monomial[0][1] != 1 or abs(coefficient) != 1 or not isinstance(atom, Compound):
            continue
        if atom.op not in ("min", "max"):
            continue
        value = Size(0, ((monomial, 1),)) - size * coefficient
        others = tuple(one for one in atom.args if not known_equal(one, value))
        if len(others) < len(atom.args):
            return atom.op, value, others
    return None
