"""Simplifies index expressions, knowing the range of every loop variable.

An integer expression is kept as a linear form: a constant plus integer multiples of atoms, where an atom is a loop
variable or something non-linear (a quotient, a remainder, a load). Reshape leaves quotients and remainders behind; most
vanish by

    (c*q + r) // c = q + r // c        r // c = 0 and r % c = r where 0 <= r < c
    (g*q + r) // (g*d) = q // d        (g*q + r) % (g*d) = g*(q % d) + r        where 0 <= r < g
    c*(x % m) + c*m*(x // m) = c*x

Numbers may be sizes that are not known yet. What an index is divided by is then made of extents, and an index space is entered only
where it has elements: every extent is taken for 1 at least. What is not proved of sizes stays as it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from fusewise.ir.dtypes import BOOL, INT64
from fusewise.ir.size import greatest, least
from fusewise.lower.extents import Positive, common_factors, exact, same, split
from fusewise.ops.expr import Expr, binary, const, rebuild, walk
from fusewise.records import record

__all__ = ["Linear", "Ranges", "Simplifier", "is_divisor"]

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
        kept = tuple((a, c) for a, c in merged.items() if type(c) is not int or c)
        return Linear(self.constant + other.constant * times, kept)

    def scaled(self, times: int) -> Linear:
        none = type(times) is int and not times
        return Linear(self.constant * times, () if none else tuple((a, c * times) for a, c in self.terms))

    def contains(self, part: Linear, times: int) -> bool:
        """Do all terms of `times * part` stand in this form with exactly those coefficients?"""
        mine = dict(self.terms)
        return bool(part.terms) and all(a in mine and same(mine[a], c * times) for a, c in part.terms)


@record
class Simplifier:
    """Rewrites expressions over one index space. Results are remembered, so shared sub-trees cost once.

    `space` are extents that are 1 at least: those of the index space, where the ranges are of other variables, too.
    """

    ranges: Ranges
    space: tuple[int, ...] | None = None
    _linear: dict[Expr, Linear] = field(default_factory=dict)
    _bounds: dict[Expr, tuple[int, int]] = field(default_factory=dict)
    _done: dict[Expr, Expr] = field(default_factory=dict)
    _positive: Positive | None = None

    def __post_init__(self) -> None:
        if self.space is None:
            self.space = tuple(self.ranges.values())

    def simplify(self, root: Expr) -> Expr:
        """An equal expression with its int64 parts in linear form and decided conditions resolved."""
        if root in self._done:
            return self._done[root]
        for node in walk(root, self._done):
            if node.op == "reduce":
                for axis, extent in node.value[1]:
                    assert same(self.ranges.get(axis, extent), extent), "a reduction axis reuses a name"
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
            if not divisor.terms and (type(divisor.constant) is not int or divisor.constant > 0):
                whole = self.linear(node.args[0])
                split = self._quotient if node.op == "floordiv" else self._remainder
                return split(whole, divisor.constant)
        if node.op in ("min", "max"):
            return self._extremum(node)
        if node.op == "bounded":
            low, high = self.range_of(self.linear(node.args[0]))
            if self.at_most(node.value[0], low) and self.at_most(high, node.value[1]):
                return self.linear(node.args[0])
        if node.op == "index" and same(self.ranges.get(node.value, 0), 1):
            return Linear(0)
        return Linear(0, ((node, 1),))

    def _extremum(self, node: Expr) -> Linear:
        left, right = node.args if node.op == "min" else node.args[::-1]
        # min keeps the one that is never above the other; max the other
        low, high = self.range_of(self.linear(left).plus(self.linear(right), -1))
        if self.at_most(high, 0):
            return self.linear(node.args[0])
        if self.at_most(0, low):
            return self.linear(node.args[1])
        return Linear(0, ((node, 1),))

    def _parts(self, whole: Linear, by: int) -> tuple[Linear, Linear]:
        """whole = by * first + second, with as much in the first as is known to be divided."""
        quotient, rest = split(whole.constant, by)
        shares = [(a, c, exact(c, by)) for a, c in whole.terms]
        return (
            Linear(quotient, tuple((a, share) for a, _, share in shares if share is not None)),
            Linear(rest, tuple((a, c) for a, c, share in shares if share is None)),
        )

    def _level(self, form: Linear, by: int) -> int | None:
        """What a form is, divided by a number, if that is one for all its values."""
        low, high = self.range_of(form)
        if type(low) is type(high) is type(by) is int:
            return low // by if low // by == high // by else None
        if self.at_most(0, low) and self.at_most(high, by - 1):
            return 0
        return -1 if self.at_most(-by, low) and self.at_most(high, -1) else None

    def _quotient(self, whole: Linear, by: int) -> Linear:
        inside, rest = self._parts(whole, by)
        level = self._level(rest, by)
        if level is not None:
            return inside.plus(Linear(level))
        divided = self._by_common_factor(rest, by)
        if divided is not None:
            quotient, _, factor = divided
            return inside.plus(self._quotient(quotient, by // factor))
        if _is_atom(rest):
            atom = rest.terms[0][0]
            if atom.op == "floordiv" and is_divisor(atom.args[1]):
                return inside.plus(self._quotient(self.linear(atom.args[0]), by * atom.args[1].value))
            if atom.op == "floormod" and is_divisor(atom.args[1]):
                share = exact(atom.args[1].value, by)
                if share is not None:
                    outer = self._quotient(self.linear(atom.args[0]), by)
                    return inside.plus(self._remainder(outer, share))
        atom = binary("floordiv", self.expression(rest), const(by))
        return inside.plus(Linear(0, ((atom, 1),)))

    def _remainder(self, whole: Linear, by: int) -> Linear:
        rest = self._parts(whole, by)[1]
        if type(by) is int:
            rest = Linear(rest.constant, tuple((a, c % by if type(c) is int and c > 0 else c) for a, c in rest.terms))
        level = self._level(rest, by)
        if level is not None:
            return rest.plus(Linear(-level * by))
        divided = self._by_common_factor(rest, by)
        if divided is not None:
            quotient, remainder, factor = divided
            return self._remainder(quotient, by // factor).scaled(factor).plus(remainder)
        if _is_atom(rest):
            atom = rest.terms[0][0]
            if atom.op == "floormod" and is_divisor(atom.args[1]) and exact(atom.args[1].value, by) is not None:
                return self._remainder(self.linear(atom.args[0]), by)
        atom = binary("floormod", self.expression(rest), const(by))
        return Linear(0, ((atom, 1),))

    def _by_common_factor(self, whole: Linear, by: int) -> tuple[Linear, Linear, int] | None:
        """Write `whole` as factor*q + r with 0 <= r < factor, factor > 1 a divisor of `by`; None when impossible."""
        for factor in common_factors((c for _, c in whole.terms), by):
            quotient, remainder = self._parts(whole, factor)
            if self._level(remainder, factor) == 0:
                return quotient, remainder, factor
        return None

    def _recombine(self, form: Linear) -> Linear:
        """Apply c*(x % m) + c*m*(x // m) = c*x until it no longer matches."""
        changed = True
        while changed:
            changed = False
            for atom, coefficient in form.terms:
                if atom.op != "floormod" or not is_divisor(atom.args[1]):
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
            if type(coefficient) is type(first) is type(last) is int:
                low += min(first * coefficient, last * coefficient)
                high += max(first * coefficient, last * coefficient)
            elif self.at_most(0, coefficient):
                low, high = low + first * coefficient, high + last * coefficient
            elif self.at_most(coefficient, 0):
                low, high = low + last * coefficient, high + first * coefficient
            else:
                return _UNBOUNDED
        return low, high

    def at_most(self, a: int, b: int) -> bool:
        """Is the one never above the other, wherever there are elements? Of sizes what is not proved is no."""
        if type(a) is type(b) is int:
            return a <= b
        if self._positive is None:
            self._positive = Positive(self.space or ())
        return self._positive.at_most(a, b)

    def least(self, *numbers: int) -> int:
        """The smallest of several."""
        return min(numbers) if all(type(one) is int for one in numbers) else least(*numbers)

    def greatest(self, *numbers: int) -> int:
        """The largest of several."""
        return max(numbers) if all(type(one) is int for one in numbers) else greatest(*numbers)

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
            return _UNBOUNDED if extent is None else (0, max(0, extent - 1) if type(extent) is int else extent - 1)
        if node.op in ("floordiv", "floormod") and is_divisor(node.args[1]):
            low, high = self.bounds(node.args[0])
            by = node.args[1].value
            if type(low) is type(high) is type(by) is int:
                if node.op == "floordiv":
                    return low // by, high // by
                return (low % by, high % by) if low // by == high // by else (0, by - 1)
            return (0, by - 1) if node.op == "floormod" else (low // by, high // by)
        if node.op in ("min", "max"):
            (a, b), (c, d) = (self.bounds(x) for x in node.args)
            low, high = self.range_of(self.linear(node.args[0]).plus(self.linear(node.args[1])))
            if node.op == "min":  # at most half of both together
                return self.least(a, c), self.least(b, d, high // 2)
            return self.greatest(a, c, -(-low // 2)), self.greatest(b, d)
        if node.op == "bounded":
            low, high, _ = node.value
            return low, self.greatest(low, high)
        if node.op == "select":
            (a, b), (c, d) = (self.bounds(x) for x in node.args[1:])
            return self.least(a, c), self.greatest(b, d)
        if node.op in ("add", "sub", "mul", "neg"):
            form = self._linear.get(node) or self._recombine(self._form(node))
            if form.terms != ((node, 1),):
                return self.range_of(form)
        return _of_narrow(node)

    def _decide(self, node: Expr) -> Expr:
        """Resolve a comparison of index expressions whose ranges do not overlap, and and/or/not of decided conditions."""
        if node.op in ("lt", "le", "gt", "ge", "eq", "ne") and node.args[0].dtype == INT64:
            low, high = self.range_of(self.linear(node.args[0]).plus(self.linear(node.args[1]), -1))
            verdict = _COMPARE[node.op](low, high, self.at_most)
            return node if verdict is None else const(verdict, BOOL)
        if node.op in ("and", "or") and any(a.op == "const" for a in node.args):
            first, second = node.args if node.args[0].op == "const" else node.args[::-1]
            absorbing = node.op == "or"
            return first if bool(first.value) == absorbing else second
        if node.op == "not" and node.args[0].op == "const":
            return const(not node.args[0].value, BOOL)
        return node


def _of_narrow(e: Expr) -> tuple[int, int]:
    """What an integer of less than 32 bits can be that is loaded and widened."""
    while e.op == "cast" and e.dtype.is_integer and e.args[0].dtype.is_integer and e.args[0].dtype.bits < e.dtype.bits:
        if e.dtype.kind == "uint" and e.args[0].dtype.kind == "int":
            return _UNBOUNDED
        e = e.args[0]
    if e.op != "load" or not e.dtype.is_integer or e.dtype.bits >= 32:
        return _UNBOUNDED
    half = 1 << (e.dtype.bits - 1)
    return (-half, half - 1) if e.dtype.kind == "int" else (0, 2 * half - 1)


def is_divisor(e: Expr) -> bool:
    """Is it a constant that is more than 0? An index is divided by no size that is not."""
    return e.op == "const" and (type(e.value) is not int or e.value > 0)


def _is_atom(form: Linear) -> bool:
    """Is a form one atom, once?"""
    return type(form.constant) is int and not form.constant and len(form.terms) == 1 and same(form.terms[0][1], 1)


AtMost = Callable[[int, int], bool]


def _verdict(true: bool, false: bool) -> bool | None:
    return True if true else False if false else None


_COMPARE: Mapping[str, Callable[[int, int, AtMost], bool | None]] = {  # decided from the range of left - right
    "lt": lambda low, high, at_most: _verdict(at_most(high, -1), at_most(0, low)),
    "le": lambda low, high, at_most: _verdict(at_most(high, 0), at_most(1, low)),
    "gt": lambda low, high, at_most: _verdict(at_most(1, low), at_most(high, 0)),
    "ge": lambda low, high, at_most: _verdict(at_most(0, low), at_most(high, -1)),
    "eq": lambda low, high, at_most: _verdict(
        at_most(0, low) and at_most(high, 0), at_most(1, low) or at_most(high, -1)
    ),
    "ne": lambda low, high, at_most: _verdict(
        at_most(1, low) or at_most(high, -1), at_most(0, low) and at_most(high, 0)
    ),
}
