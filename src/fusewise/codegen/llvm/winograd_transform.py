"""The transforms of Winograd's convolutions F(2x2, 3x3) and F(4x4, 3x3) with 3x3 filters.

A tile of outputs is A^T [(G g G^T) * (B^T d B)] A with d the inputs that it spans and g the filter, and `*` element by
element: 16 multiplications do the work of 36, or 36 that of 144. Summed over input channels, each position of a tile is a
matrix product of tiles and channels. Every transform works on a vector of channels at once, along columns and then rows.

A scheme is a polynomial's values at some points (Toom and Cook). F(2x2) takes 0, 1, -1 and infinity, and needs additions
only. F(4x4) takes 0, infinity and two pairs of opposite numbers; the usual 1 and 2 lose four times the precision of the
square roots of 1/2 and 2, whose products and squares stay near one.

Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016 (arXiv:1509.09308), section 4. Choice of points:
Barabasz, Anderson, Soodhalter and Gregg, Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural
Networks, ACM TOMS 2020 (arXiv:1803.10986).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fusewise.codegen.llvm.emit import Function, Value

__all__ = ["F2", "F4", "SCHEMES", "Arithmetic", "Scheme", "emit_filter", "emit_sides"]

Line = Callable[["Arithmetic", Sequence[Value]], list[Value]]
"""A transform along one axis."""

Grid = list[list[Value]]


@dataclass(frozen=True)
class Arithmetic:
    """Sums of vectors with constant factors; fused where the machine can."""

    f: Function
    fused: bool

    def plus(self, a: Value, b: Value) -> Value:
        return self.f.fadd(a, b)

    def minus(self, a: Value, b: Value) -> Value:
        return self.f.fsub(a, b)

    def times(self, factor: float, a: Value) -> Value:
        return self.f.fmul(self.f.constant(factor, a.type), a)

    def add(self, a: Value, factor: float, b: Value) -> Value:
        """a + factor * b."""
        constant = self.f.constant(factor, a.type)
        return self.f.fma(constant, b, a) if self.fused else self.f.fadd(a, self.f.fmul(constant, b))


@dataclass(frozen=True)
class Scheme:
    """`tile` outputs along an axis; `inputs` is B^T, `filters` G and `outputs` A^T, each along one axis."""

    tile: int
    inputs: Line
    filters: Line
    outputs: Line

    @property
    def span(self) -> int:
        """Inputs of a tile along an axis."""
        return self.tile + 2

    @property
    def positions(self) -> int:
        """Products of a tile."""
        return self.span * self.span


def _inputs2(a: Arithmetic, d: Sequence[Value]) -> list[Value]:
    return [a.minus(d[0], d[2]), a.plus(d[1], d[2]), a.minus(d[2], d[1]), a.minus(d[1], d[3])]


def _filters2(a: Arithmetic, g: Sequence[Value]) -> list[Value]:
    outside = a.plus(g[0], g[2])
    return [g[0], a.times(0.5, a.plus(outside, g[1])), a.times(0.5, a.minus(outside, g[1])), g[2]]


def _outputs2(a: Arithmetic, m: Sequence[Value]) -> list[Value]:
    return [a.plus(a.plus(m[0], m[1]), m[2]), a.minus(a.minus(m[1], m[2]), m[3])]


NEAR, FAR = math.sqrt(0.5), math.sqrt(2.0)
"""The points of F(4x4) besides 0 and infinity, each with both signs."""

NEAR_WEIGHT, FAR_WEIGHT = -2.0 / 3.0, 1.0 / 6.0
"""One over the product of a point's distances to the other finite points; applied to the products, where it costs nothing."""


def _inputs4(a: Arithmetic, d: Sequence[Value]) -> list[Value]:
    near, near_odd = a.add(d[4], -2.0, d[2]), a.add(d[3], -2.0, d[1])
    far, far_odd = a.add(d[4], -0.5, d[2]), a.add(d[3], -0.5, d[1])
    return [
        a.add(a.plus(d[0], d[4]), -2.5, d[2]),
        a.add(near, NEAR, near_odd),
        a.add(near, -NEAR, near_odd),
        a.add(far, FAR, far_odd),
        a.add(far, -FAR, far_odd),
        a.add(a.plus(d[1], d[5]), -2.5, d[3]),
    ]


def _filters4(a: Arithmetic, g: Sequence[Value]) -> list[Value]:
    near, far = a.add(g[0], 0.5, g[2]), a.add(g[0], 2.0, g[2])
    return [
        g[0],
        a.add(near, NEAR, g[1]),
        a.add(near, -NEAR, g[1]),
        a.add(far, FAR, g[1]),
        a.add(far, -FAR, g[1]),
        g[2],
    ]


def _outputs4(a: Arithmetic, m: Sequence[Value]) -> list[Value]:
    near, near_odd = a.plus(m[1], m[2]), a.minus(m[1], m[2])
    far, far_odd = a.plus(m[3], m[4]), a.minus(m[3], m[4])

    def both(power: int, x: Value, y: Value) -> Value:
        return a.add(a.times(NEAR_WEIGHT * NEAR**power, x), FAR_WEIGHT * FAR**power, y)

    return [
        a.add(a.add(m[0], NEAR_WEIGHT, near), FAR_WEIGHT, far),
        both(1, near_odd, far_odd),
        both(2, near, far),
        a.plus(both(3, near_odd, far_odd), m[5]),
    ]


F2 = Scheme(2, _inputs2, _filters2, _outputs2)

F4 = Scheme(4, _inputs4, _filters4, _outputs4)

SCHEMES = (F4, F2)


def emit_sides(
    a: Arithmetic,
    line: Line,
    kind: str,
    extents: tuple[int, int],
    between: Value,
    read: Callable[[int, Value], Value],
    write: Callable[[Value, Sequence[Value]], None],
) -> None:
    """matrix @ grid @ matrix^T of a grid with `extents[0]` rows and columns, for a matrix with `extents[1]` rows.

    `read(i, j)` gives an element of the grid, `write(i, values)` takes a row of the result. Both sides are loops, which take
    no longer than one piece of code, whose values would not fit the registers either. `between` is memory for
    extents[0] * extents[1] vectors.
    """
    f, (inner, outer) = a.f, extents

    def column(j: Value, _: Sequence[Value]) -> None:
        there = f.at(between, j, kind)
        for i, value in enumerate(line(a, [read(i, j) for i in range(inner)])):
            f.store(value, f.at(there, i * inner, kind))

    def row(i: Value, _: Sequence[Value]) -> None:
        start = f.at(between, f.mul(i, inner), kind)
        write(i, line(a, [f.load(kind, f.at(start, j, kind)) for j in range(inner)]))

    f.loop(0, inner, 1, column, rolled=True)
    f.loop(0, outer, 1, row, rolled=True)


def emit_filter(
    a: Arithmetic, scheme: Scheme, kind: str, between: Value, source: Value, width: int, target: Value, pitch: int
) -> None:
    """G g G^T of the filters of one vector of output channels: taps lie `width` elements apart, positions go `pitch` apart."""
    f, span = a.f, scheme.span

    def read(i: int, j: Value) -> Value:
        return f.load(kind, f.at(source, f.mul(f.add(j, 3 * i), width)))

    def write(i: Value, values: Sequence[Value]) -> None:
        first = f.at(target, f.mul(i, span * pitch))
        for j, value in enumerate(values):
            f.store(value, f.at(first, j * pitch))

    emit_sides(a, scheme.filters, kind, (3, span), between, read, write)
