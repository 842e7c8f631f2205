"""The transforms of Winograd's convolutions, along rows and columns of a plane.

A tile of outputs is A^T [(G g G^T) * (B^T d B)] A with d the inputs that it spans and g the filter, and `*` element by
element: for F(4x4, 3x3), 36 multiplications do the work of 144. Summed over input channels, each position of a tile is a matrix
product of tiles and channels. Every transform works on a vector of channels at once, along columns and then rows; the matrices
of the two may differ, and where the filter has one tap there is none.

A scheme multiplies polynomials by their values at some points (Toom and Cook): 0, infinity and pairs of opposite numbers, so that
each pair shares the even and the odd half of every sum. F(2, 3) takes 1 and -1. F(4, 3) and F(2, 5) take the square roots of 1/2
and 2, where the usual 1 and 2 lose four times the precision. The longer ones take numbers and their reciprocals too, which keeps
products and squares near one; which, is what erred least on random data. F(3, 3) and F(5, 3) have one point more, without
its opposite; those of F(5, 3) need no product of one.

Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016 (arXiv:1509.09308), section 4. Choice of points:
Barabasz, Anderson, Soodhalter and Gregg, Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural
Networks, ACM TOMS 2020 (arXiv:1803.10986).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.target import InstructionSet
from fusewise.records import record

__all__ = ["LONG_FORM", "Arithmetic", "PlaneForm", "WinogradScheme", "emit_filter", "emit_sides", "forms_of"]


@record(frozen=True)
class Arithmetic:
    """Sums of vectors with constant factors; fused where the machine can."""

    f: Function
    instructions: InstructionSet

    def plus(self, a: Value, b: Value) -> Value:
        return self.f.fadd(a, b)

    def minus(self, a: Value, b: Value) -> Value:
        return self.f.fsub(a, b)

    def times(self, factor: float, a: Value) -> Value:
        return self.f.fmul(self.f.constant(factor, a.type), a)

    def add(self, a: Value, factor: float, b: Value) -> Value:
        """a + factor * b, by sums alone where the factor is 1 or 2."""
        if _is_sum(factor):
            step = self.plus if factor > 0 else self.minus
            return step(a, b) if abs(factor) == 1 else step(step(a, b), b)
        constant = self.f.constant(factor, a.type)
        return self.f.fma(constant, b, a) if self.instructions.fma else self.f.fadd(a, self.f.fmul(constant, b))


@record(frozen=True)
class WinogradScheme:
    """F(tile, taps) along an axis: `tile` outputs at once, from values at 0, infinity, `points` and their opposites, and
    `alone` where their number has to be odd.

    F(1, 1) has no points and transforms nothing.
    """

    tile: int
    taps: int
    points: tuple[float, ...]
    alone: float | None = None

    @property
    def span(self) -> int:
        """Inputs of a tile along the axis, and values."""
        return self.tile + self.taps - 1

    @property
    def last_finite(self) -> int:
        """The place of the value at the last finite point: what a shorter scheme lacks."""
        return self.span - 2

    @property
    def shorter(self) -> WinogradScheme | None:
        """The scheme of one output less, of the same filter's values but the last finite one; None where there is none."""
        if self.alone is not None:
            return replace(self, tile=self.tile - 1, alone=None)
        if len(self.points) < 2:
            return None
        return replace(self, tile=self.tile - 1, points=self.points[:-1], alone=self.points[-1])

    @property
    def _with_others(self) -> list[tuple[float, list[float]]]:
        """Each point p, and the product of x^2 - q^2 over the other points q: its coefficients of x^0, x^2, ..."""
        return [(p, _product(q for q in self.points if q != p)) for p in self.points]

    def inputs(self, a: Arithmetic, d: Sequence[Value]) -> list[Value]:
        """B^T d: divided by x - p, the product over all finite points, for each finite point p; and itself."""
        if self.span == 1:
            return list(d)
        whole = _product(self.points)
        if self.alone is not None:
            # a factor x - alone of the product is taken out first: what is left are the values without that point
            rest = [a.add(later, -self.alone, one) for one, later in pairwise(d)]
            *found, last = replace(self, tile=self.tile - 1, alone=None).inputs(a, rest)
            return [*found, _weighted(a, whole, d[1:-1:2]), last]
        found = [_weighted(a, whole if whole[0] > 0 else [-c for c in whole], d[0::2])]
        for point, others in self._with_others:
            even, odd = _weighted(a, others, d[2::2]), _weighted(a, others, d[1:-1:2])
            found += [a.add(even, point, odd), a.add(even, -point, odd)]
        return [*found, _weighted(a, whole, d[1::2])]

    @property
    def _odd_factors(self) -> list[float]:
        """For each point what odd taps count in `filter_values`, even ones counting powers of its square."""
        return [_plain(self._scale(point) * point) for point in self.points]

    def _scale(self, point: float) -> float:
        """What a filter's value at a point is multiplied by: nothing from one on, below that over the highest even power."""
        return max(1.0, point ** (-2 * (self.taps // 2)))

    @property
    def packed_factors(self) -> tuple[float, ...]:
        """What taps are multiplied by before they are transformed: the odd ones by what they count at all points, if it is one."""
        factors = set(self._odd_factors)
        common = factors.pop() if len(factors) == 1 else 1.0
        return tuple(common if tap % 2 else 1.0 for tap in range(self.taps))

    def filter_values(self, a: Arithmetic, g: Sequence[Value]) -> Iterator[tuple[int, Value]]:
        """G g: the filter's values as a polynomial, each with its place, one at a time so that few are alive at once.

        `g` are taps by `packed_factors`; the last one may be left out, and with it the value at infinity, when both are zero. Below
        one the polynomial is read backwards, which divides its values by the point's highest even power: points and their
        reciprocals then have products in common. Where their squares are powers of two all is sums, which a processor that adds
        beside its multiply-adds has for nothing.
        """
        yield 0, g[0]
        if self.span == 1:
            return
        if len(g) == self.taps:
            yield self.span - 1, g[-1] if self.taps % 2 else a.times(1 / max(self.packed_factors), g[-1])
        for number, (evens, odds, factor) in enumerate(self._filter_terms):
            even = _weighted(a, evens[: (len(g) + 1) // 2], g[0::2])
            if len(g) == 1:
                yield from ((2 * number + 1, even), (2 * number + 2, even))
                continue
            odd = _weighted(a, odds[: len(g) // 2], g[1::2])
            yield 2 * number + 1, a.add(even, factor, odd)
            yield 2 * number + 2, a.add(even, -factor, odd)
        if self.alone is not None:
            powers = [self.alone**k for k in range(len(g))]
            factors = [power / given for power, given in zip(powers, self.packed_factors, strict=False)]
            yield self.span - 2, _weighted(a, factors, g)

    def tap_at(self, place: int, taps: int) -> int | None:
        """Which of the first `taps` taps a filter's value at a place is, untransformed; None if it is none of them."""
        if place == 0:
            return 0
        return taps - 1 if place == self.span - 1 and taps == self.taps and taps % 2 else None

    @property
    def _filter_terms(self) -> list[tuple[list[float], list[float], float]]:
        """For each point the factors of even taps and of odd ones, and what the sum of the latter is multiplied by."""
        common, found = max(self.packed_factors), []
        for point, factor in zip(self.points, self._odd_factors, strict=True):
            scale = self._scale(point)
            evens = [_plain(scale * point**k) for k in range(0, self.taps, 2)]
            odds = [_plain(point**k) for k in range(0, self.taps - 1, 2)]
            found.append((evens, odds, _plain(factor / common)))
        return found

    @property
    def filter_steps(self) -> tuple[int, int]:
        """Multiplications (or multiply-adds) and sums of `filter_values`, about."""
        multiplies, sums = 0, 0
        for evens, odds, factor in self._filter_terms:
            for c in (*evens, *odds, factor, factor):
                multiplies, sums = (multiplies, sums + round(c)) if _is_sum(c) else (multiplies + 1, sums)
            sums -= (1.0 in evens) + (1.0 in odds)  # where each begins
        return multiplies + (self.taps - 1) * (self.alone is not None), sums

    def filters(self, a: Arithmetic, g: Sequence[Value]) -> list[Value]:
        """G g as a whole, the value at infinity left out with the last tap."""
        found = dict(self.filter_values(a, g))
        return [found[place] for place in range(len(found))]

    def outputs(self, a: Arithmetic, m: Sequence[Value]) -> list[Value]:
        """A^T m: powers of the points, over the product of each one's distances to the others, and undoes `filter_values`."""
        if self.span == 1:
            return list(m)
        *near, last = m
        if self.alone is not None:
            *near, other = near
            finite = (0.0, *(sign * point for point in self.points for sign in (1, -1)))
            distances = [point - self.alone for point in finite]
            distances[0] *= abs(_product(self.points)[0])
            near = [a.times(1 / _plain(distance), value) for distance, value in zip(distances, near, strict=True)]
        elif _plain(abs(_product(self.points)[0])) != 1:
            near[0] = a.times(1 / abs(_product(self.points)[0]), near[0])
        pairs = list(zip(near[1::2], near[2::2], strict=True))
        sums, differences = [a.plus(x, y) for x, y in pairs], [a.minus(x, y) for x, y in pairs]
        weights = [
            0.5 / self._scale(p) / sum(c * p ** (2 * k + 2) for k, c in enumerate(q)) for p, q in self._with_others
        ]
        found = []
        for power in range(self.tile):
            factors = [weight * point**power for weight, point in zip(weights, self.points, strict=True)]
            halves = differences if power % 2 else sums
            found.append(_weighted(a, factors, halves, near[0] if power == 0 else None))
        if self.alone is not None:
            weight = 1 / sum(c * self.alone ** (2 * k + 1) for k, c in enumerate(_product(self.points)))
            found = [a.add(value, _plain(weight * self.alone**power), other) for power, value in enumerate(found)]
        return [*found[:-1], a.plus(found[-1], last)]


def _product(points: Iterable[float]) -> list[float]:
    """The coefficients of x^0, x^2, ... of the product of x^2 - p^2."""
    found = [1.0]
    for p in points:
        found = [low - p * p * high for low, high in zip([0.0, *found], [*found, 0.0], strict=True)]
    return found


def _weighted(a: Arithmetic, factors: Sequence[float], values: Sequence[Value], start: Value | None = None) -> Value:
    """start + the sum of factors * values, the last first, or one whose factor is 1."""
    terms = [(_plain(factor), value) for factor, value in zip(factors, values, strict=True)]
    total = start
    if total is None:
        first = next((k for k in reversed(range(len(terms))) if terms[k][0] == 1), len(terms) - 1)
        factor, value = terms.pop(first)
        total = value if factor == 1 else a.times(factor, value)
    for factor, value in reversed(terms):
        total = a.add(total, factor, value)
    return total


def _is_sum(factor: float) -> bool:
    """Is it added once or twice?"""
    return abs(factor) in (1, 2)


def _plain(factor: float) -> float:
    """A factor without the rounding of roots: half and two are exact."""
    return round(factor, 14)


NEAR = math.sqrt(0.5)
"""A point of the schemes with two pairs; the other is one over it."""

SCHEMES = (
    WinogradScheme(1, 1, ()),
    WinogradScheme(3, 2, (1.0,)),
    WinogradScheme(4, 2, (1.0,), -0.5),
    WinogradScheme(5, 2, (NEAR, 1 / NEAR)),
    WinogradScheme(2, 3, (1.0,)),
    WinogradScheme(3, 3, (1.0,), -0.5),
    WinogradScheme(4, 3, (NEAR, 1 / NEAR)),
    WinogradScheme(5, 3, (0.55, 1.0), -2.5),
    WinogradScheme(6, 3, (0.55, 1.0, 1 / 0.55)),
    WinogradScheme(3, 4, (NEAR, 1 / NEAR)),
    WinogradScheme(5, 4, (0.55, 1.0, 1 / 0.55)),
    WinogradScheme(2, 5, (NEAR, 1 / NEAR)),
    WinogradScheme(4, 5, (0.55, 1.0, 1 / 0.55)),
    WinogradScheme(2, 7, (0.55, 1.0, 1 / 0.55)),
    WinogradScheme(4, 7, (0.4, 0.75, 1 / 0.75, 2.5)),
    WinogradScheme(6, 7, (0.45, 0.75, 1.0, 1 / 0.75, 1 / 0.45)),
)
"""What there is: for filters of odd length, and of 2 and 4 taps, which are those of 3 and 7 at stride 2. F(3, 3) is for the short
lattices of strong dilations."""


LONG_FORM = 5
"""Outputs along an axis from which on a form of 3x3 taps errs more than others: mostly by its sums over channels, which are cut
into blocks even where one would do: of 64 channels 4e-6 in place of 7e-6."""


class PlaneForm(NamedTuple):
    """The schemes of a plane's rows and columns."""

    rows: WinogradScheme
    columns: WinogradScheme

    @property
    def packed_factors(self) -> tuple[float, ...]:
        """What the taps of a filter are multiplied by before they are transformed, row by row."""
        return tuple(row * column for row in self.rows.packed_factors for column in self.columns.packed_factors)

    @property
    def tile(self) -> int:
        """Outputs along an axis that is transformed."""
        return max(self.rows.tile, self.columns.tile)

    @property
    def is_long(self) -> bool:
        """Is it of 3x3 taps, and less exact than the others?"""
        return self.rows.taps == self.columns.taps == 3 and self.tile >= LONG_FORM

    @property
    def is_odd(self) -> bool:
        """Has an axis an odd number of points?"""
        return self.rows.alone is not None or self.columns.alone is not None

    @property
    def positions(self) -> int:
        """Products of a tile."""
        return self.rows.span * self.columns.span


def forms_of(rows: int, columns: int) -> tuple[PlaneForm, ...]:
    """The forms for filters of so many rows and columns: tiles are as long on both axes, unless one has a single tap."""
    found = (PlaneForm(r, c) for r in SCHEMES if r.taps == rows for c in SCHEMES if c.taps == columns)
    return tuple(form for form in found if form.rows.tile == form.columns.tile or 1 in (rows, columns))


Line = Callable[[Arithmetic, Sequence[Value]], list[Value]]
"""A transform along one axis."""


def emit_sides(
    a: Arithmetic,
    lines: tuple[Line, Line],
    kind: str,
    extents: tuple[int, int, int],
    between: Value,
    read: Callable[[int, Int], Value],
    write: Callable[[Int, Sequence[Value]], None],
) -> None:
    """matrix @ grid @ other^T of a grid with `extents[0]` rows and `extents[1]` columns, for a matrix with `extents[2]` rows.

    `lines` apply the two matrices, `read(i, j)` gives an element of the grid, `write(i, values)` takes a row of the result.
    Both sides are loops, which take no longer than one piece of code, whose values would not fit the registers either.
    `between` is memory for extents[2] * extents[1] vectors.
    """
    f, (inner, across, outer) = a.f, extents
    if inner == outer == 1:
        write(0, lines[1](a, [read(0, j) for j in range(across)]))
        return

    def column(j: Value, _: Sequence[Value]) -> None:
        there = f.at(between, j, kind)
        for i, value in enumerate(lines[0](a, [read(i, j) for i in range(inner)])):
            f.store(value, f.at(there, i * across, kind))

    def row(i: Value, _: Sequence[Value]) -> None:
        start = f.at(between, f.mul(i, across), kind)
        write(i, lines[1](a, [f.load(kind, f.at(start, j, kind)) for j in range(across)]))

    f.loop(0, across, 1, column, rolled=True)
    f.loop(0, outer, 1, row, rolled=True)


def emit_filter(
    a: Arithmetic,
    form: PlaneForm,
    taps: tuple[int, int],
    kind: str,
    between: Value,
    given: tuple[Value, int],
    made: tuple[Value, int],
) -> None:
    """G g G^T of the filters of one vector of output channels, of so many `taps` along rows and columns: all of the form's, or
    without the last ones. `given` is where taps begin, `made` where positions go, and how many elements apart each are.

    Taps are multiplied by the form's `packed_factors` before.
    """
    f, (rows, columns), (high, wide) = a.f, form, taps
    (source, width), (target, pitch) = given, made

    def read(i: int, j: Int) -> Value:
        return f.load(kind, f.at(source, f.mul(f.add(j, i * wide), width)))

    def write(i: Int, values: Sequence[Value]) -> None:
        first = f.at(target, f.mul(i, columns.span * pitch))
        for j, value in enumerate(values):
            f.store(value, f.at(first, j * pitch))

    down = rows.span - rows.taps + high
    if down * wide <= a.instructions.registers - 8:  # all values between the sides fit the registers
        lines = [rows.filters(a, [read(i, j) for i in range(high)]) for j in range(wide)]
        for i, values in enumerate(zip(*lines, strict=True)):
            write(i, columns.filters(a, values))
        return
    emit_sides(a, (rows.filters, columns.filters), kind, (high, wide, down), between, read, write)
