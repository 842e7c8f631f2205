"""Simplifies index expressions, knowing the range of every loop variable.

An integer expression is kept as a linear form: a constant plus integer multiples of atoms, where an atom is a loop
variable or something non-linear (a quotient, a remainder, a load). Reshape leaves quotients and remainders behind; most
vanish by

    (c*q + r) // c = q + r // c        r // c = 0 and r % c = r where 0 <= r < c
    (g*q + r) // (g*d) = q // d        (g*q + r) % (g*d) = g*(q % d) + r        where 0 <= r < g
    c*(x % m) + c*m*(x // m) = c*x
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field

from fusewise.ir.dtypes import BOOL, INT64
from fusewise.ops.expr import Expr, binary, const, rebuild, walk
from fusewise.records import record

__all__ = ["Linear", "Ranges", "Simplifier"]

Ranges = Mapping[str, int]
"""Loop variable to its extent; it runs over 0 .. extent - 1."""

_UNBOUNDED = (-(2**62), 2**62)


@record(frozen=True)
class Linear:
    """constant + sum of coefficient * atom; atoms in a fixed order of first appearance, no zero coefficients."""

    constant: int
    terms: tuple[tuple[Expr, int], ...] = ()

    def plus(self, other: Linear, times: int = 1) -> Linear:
        merged = dict(self.terms)
        for atom, coefficient in other.terms:
            merged[atom] = merged.get(atom, 0) + coefficient * times
        return Linear(self.constant + other.constant * times, tuple((a, c) for a, c in merged.items() if c))

    def scaled(self, times: int) -> Linear:
        return Linear(self.constant * times, tuple((a, c * times) for a, c in self.terms) if times else ())

    def contains(self, part: Linear, times: int) -> bool:
        """Do all terms of `times * part` stand in this form with exactly those coefficients?"""
        mine = dict(self.terms)
        return bool(part.terms) and all(mine.get(a) == c * times for a, c in part.terms)


@record
class Simplifier:
    """Rewrites expressions over one index space. Results are remembered, so shared sub-trees cost once."""

    ranges: Ranges
    _linear: dict[Expr, Linear] = field(default_factory=dict)
    _bounds: dict[Expr, tuple[int, int]] = field(default_factory=dict)
    _done: dict[Expr, Expr] = field(default_factory=dict)

    def simplify(self, root: Expr) -> Expr:
        """An equal expression with its int64 parts in linear form and decided conditions resolved."""
        if root in self._done:
            return self._done[root]
        for node in walk(root, self._done):
            if node.op == "reduce":
                for axis, extent in node.value[1]:
                    assert self.ranges.get(axis, extent) == extent, "a reduction axis reuses a name"
                self.ranges = {**self.ranges, **dict(node.value[1])}
            fresh = rebuild(node, tuple(self._done[a] for a in node.args))
            if fresh.dtype == INT64 and fresh.op not in ("load", "reduce"):
                fresh = self.expression(self.linear(fresh))
            elif fresh.dtype == BOOL:
                fresh = self._decide(fresh)
            if fresh.op == "select" and fresh.args[0].op == "const":
                fresh = fresh.args[1] if fresh.args[0].value else fresh.args[2]
            self._done[node] = fresh
        return self._done[root]

    def linear(self, node: Expr) -> Linear:
        """The linear form of an int64 expression."""
        known = self._linear.get(node)
        if known is None:
            known = self._recombine(self._form(node))
            self._linear[node] = known
        return known

    def _form(self, node: Expr) -> Linear:
        if node.op == "const":
            return Linear(node.value)
        if node.op == "neg":
            return self.linear(node.args[0]).scaled(-1)
        if node.op in ("add", "sub"):
            return self.linear(node.args[0]).plus(self.linear(node.args[1]), 1 if node.op == "add" else -1)
        if node.op == "mul":
            left, right = (self.linear(a) for a in node.args)
            if not right.terms:
                return left.scaled(right.constant)
            if not left.terms:
                return right.scaled(left.constant)
        if node.op in ("floordiv", "floormod"):
            divisor = self.linear(node.args[1])
            if not divisor.terms and divisor.constant > 0:
                whole = self.linear(node.args[0])
                split = self._quotient if node.op == "floordiv" else self._remainder
                return split(whole, divisor.constant)
        if node.op in ("min", "max"):
            return self._extremum(node)
        if node.op == "bounded":
            low, high = self.range_of(self.linear(node.args[0]))
            if node.value[0] <= low and high <= node.value[1]:
                return self.linear(node.args[0])
        if node.op == "index" and self.ranges.get(node.value) == 1:
            return Linear(0)
        return Linear(0, ((node, 1),))

    def _extremum(self, node: Expr) -> Linear:
        left, right = node.args if node.op == "min" else node.args[::-1]
        # min keeps the one that is never above the other; max the other
        low, high = self.range_of(self.linear(left).plus(self.linear(right), -1))
        if high <= 0:
            return self.linear(node.args[0])
        if low >= 0:
            return self.linear(node.args[1])
        return Linear(0, ((node, 1),))

    def _quotient(self, whole: Linear, by: int) -> Linear:
        inside = Linear(whole.constant // by, tuple((a, c // by) for a, c in whole.terms if c % by == 0))
        rest = Linear(whole.constant % by, tuple((a, c) for a, c in whole.terms if c % by))
        low, high = self.range_of(rest)
        if low // by == high // by:
            return inside.plus(Linear(low // by))
        divided = self._by_common_factor(rest, by)
        if divided is not None:
            quotient, _, factor = divided
            return inside.plus(self._quotient(quotient, by // factor) if factor > 1 else Linear(0))
        if not rest.constant and len(rest.terms) == 1 and rest.terms[0][1] == 1:
            atom = rest.terms[0][0]
            if atom.op == "floordiv" and atom.args[1].op == "const" and atom.args[1].value > 0:
                return inside.plus(self._quotient(self.linear(atom.args[0]), by * atom.args[1].value))
            if atom.op == "floormod" and atom.args[1].op == "const" and atom.args[1].value % by == 0:
                outer = self._quotient(self.linear(atom.args[0]), by)
                return inside.plus(self._remainder(outer, atom.args[1].value // by))
        atom = binary("floordiv", self.expression(rest), const(by))
        return inside.plus(Linear(0, ((atom, 1),)))

    def _remainder(self, whole: Linear, by: int) -> Linear:
        rest = Linear(whole.constant % by, tuple((a, c % by if c > 0 else c) for a, c in whole.terms if c % by))
        low, high = self.range_of(rest)
        if low // by == high // by:
            return rest.plus(Linear(-(low // by) * by))
        divided = self._by_common_factor(rest, by)
        if divided is not None:
            quotient, remainder, factor = divided
            return self._remainder(quotient, by // factor).scaled(factor).plus(remainder)
        if not rest.constant and len(rest.terms) == 1 and rest.terms[0][1] == 1:
            atom = rest.terms[0][0]
            if atom.op == "floormod" and atom.args[1].op == "const" and atom.args[1].value % by == 0:
                return self._remainder(self.linear(atom.args[0]), by)
        atom = binary("floormod", self.expression(rest), const(by))
        return Linear(0, ((atom, 1),))

    def _by_common_factor(self, whole: Linear, by: int) -> tuple[Linear, Linear, int] | None:
        """Write `whole` as factor*q + r with 0 <= r < factor, factor > 1 a divisor of `by`; None when impossible."""
        candidates = sorted({math.gcd(c, by) for _, c in whole.terms}, reverse=True)
        for factor in candidates:
            if factor <= 1:
                continue
            remainder = Linear(whole.constant % factor, tuple((a, c) for a, c in whole.terms if c % factor))
            low, high = self.range_of(remainder)
            if low >= 0 and high < factor:
                quotient = Linear(
                    whole.constant // factor, tuple((a, c // factor) for a, c in whole.terms if c % factor == 0)
                )
                return quotient, remainder, factor
        return None

    def _recombine(self, form: Linear) -> Linear:
        """Apply c*(x % m) + c*m*(x // m) = c*x until it no longer matches."""
        changed = True
        while changed:
            changed = False
            for atom, coefficient in form.terms:
                if atom.op != "floormod" or atom.args[1].op != "const" or atom.args[1].value <= 0:
                    continue
                modulus = atom.args[1].value
                whole = self.linear(atom.args[0])
                partner = self._quotient(whole, modulus)
                moving = Linear(0, partner.terms)
                if form.contains(moving, coefficient * modulus):
                    form = form.plus(moving, -coefficient * modulus).plus(Linear(0, ((atom, 1),)), -coefficient)
                    form = form.plus(whole, coefficient).plus(Linear(partner.constant), -coefficient * modulus)
                    changed = True
                    break
        return form

    def expression(self, form: Linear) -> Expr:
        """A linear form as an expression again."""
        total: Expr | None = None
        for atom, coefficient in form.terms:
            term = binary("mul", atom, const(coefficient))
            total = term if total is None else binary("add", total, term)
        if total is None:
            return const(form.constant)
        return binary("add", total, const(form.constant))

    def range_of(self, form: Linear) -> tuple[int, int]:
        """Smallest and largest value a form can take."""
        low = high = form.constant
        for atom, coefficient in form.terms:
            first, last = self.bounds(atom)
            low += min(first * coefficient, last * coefficient)
            high += max(first * coefficient, last * coefficient)
        return low, high

    def bounds(self, node: Expr) -> tuple[int, int]:
        """Smallest and largest value of an int64 expression."""
        known = self._bounds.get(node)
        if known is None:
            known = self._find_bounds(node)
            self._bounds[node] = known
        return known

    def _find_bounds(self, node: Expr) -> tuple[int, int]:
        if node.op == "const":
            return node.value, node.value
        if node.op == "index":
            extent = self.ranges.get(node.value)
            return _UNBOUNDED if extent is None else (0, max(0, extent - 1))
        if node.op in ("floordiv", "floormod") and node.args[1].op == "const" and node.args[1].value > 0:
            low, high = self.bounds(node.args[0])
            by = node.args[1].value
            if node.op == "floordiv":
                return low // by, high // by
            return (low % by, high % by) if low // by == high // by else (0, by - 1)
        if node.op in ("min", "max"):
            (a, b), (c, d) = (self.bounds(x) for x in node.args)
            low, high = self.range_of(self.linear(node.args[0]).plus(self.linear(node.args[1])))
            if node.op == "min":  # at most half of both together
                return min(a, c), min(b, d, high // 2)
            return max(a, c, -(-low // 2)), max(b, d)
        if node.op == "bounded":
            low, high, _ = node.value
            return low, max(low, high)
        if node.op == "select":
            (a, b), (c, d) = (self.bounds(x) for x in node.args[1:])
            return min(a, c), max(b, d)
        if node.op in ("add", "sub", "mul", "neg"):
            form = self._linear.get(node) or self._recombine(self._form(node))
            if form.terms != ((node, 1),):
                return self.range_of(form)
        return _UNBOUNDED

    def _decide(self, node: Expr) -> Expr:
        """Resolve a comparison of index expressions whose ranges do not overlap, and and/or/not of decided conditions."""
        if node.op in ("lt", "le", "gt", "ge", "eq", "ne") and node.args[0].dtype == INT64:
            low, high = self.range_of(self.linear(node.args[0]).plus(self.linear(node.args[1]), -1))
            verdict = _COMPARE[node.op](low, high)
            return node if verdict is None else const(verdict, BOOL)
        if node.op in ("and", "or") and any(a.op == "const" for a in node.args):
            first, second = node.args if node.args[0].op == "const" else node.args[::-1]
            absorbing = node.op == "or"
            return first if bool(first.value) == absorbing else second
        if node.op == "not" and node.args[0].op == "const":
            return const(not node.args[0].value, BOOL)
        return node


def _verdict(true: bool, false: bool) -> bool | None:
    return True if true else False if false else None


_COMPARE = {  # decided from the range of left - right
    "lt": lambda low, high: _verdict(high < 0, low >= 0),
    "le": lambda low, high: _verdict(high <= 0, low > 0),
    "gt": lambda low, high: _verdict(low > 0, high <= 0),
    "ge": lambda low, high: _verdict(low >= 0, high < 0),
    "eq": lambda low, high: _verdict(low == high == 0, low > 0 or high < 0),
    "ne": lambda low, high: _verdict(low > 0 or high < 0, low == high == 0),
}
