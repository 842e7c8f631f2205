"""The transforms of Winograd's convolution F(2x2, 3x3): 3x3 filters, 2x2 outputs and 4x4 inputs at a time.

A tile of outputs is A^T [(G g G^T) * (B^T d B)] A with d the 4x4 inputs and g the filter, and `*` element by element, so
that 16 multiplications do the work of 36. Summed over input channels, each of the 16 positions is a matrix product of tiles
and channels. Both transforms here work on a vector of channels at once, and need additions only.

Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016 (arXiv:1509.09308).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusewise.codegen.llvm.conv_shape import Convolution
from fusewise.codegen.llvm.emit import Function, Int, Value, vector
from fusewise.codegen.llvm.gemm_product import unravel

__all__ = [
    "POSITIONS",
    "TILE",
    "emit_filter_tile",
    "emit_input_tile",
    "output_tile",
    "tile_counts",
    "transformed_weights",
]

TILE = 2
"""Outputs of a tile along an axis."""

SPAN = 4
"""Inputs of a tile along an axis."""

POSITIONS = SPAN * SPAN
"""Products of a tile."""

INPUT = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
"""B^T."""

FILTER = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))
"""G."""

OUTPUT = ((1, 1, 1, 0), (0, 1, -1, -1))
"""A^T."""

Grid = list[list[Value]]


def tile_counts(shape: Convolution) -> tuple[int, int, int]:
    """Tiles along batch, rows and columns."""
    rows, columns = (-(-axis.out // TILE) for axis in shape.spatial)
    return shape.batch, rows, columns


def transformed_weights(weight: np.ndarray) -> np.ndarray:
    """G g G^T of float32 weights [outputs, inputs, 3, 3] as float32 [16, inputs, outputs]; rounded once."""
    matrix = np.array(FILTER)
    outputs, inputs = weight.shape[:2]
    filters = weight.astype(np.float64).reshape(-1, 3, 3)
    found = (matrix @ filters @ matrix.T).reshape(outputs, inputs, POSITIONS)
    return np.ascontiguousarray(found.transpose(2, 1, 0).astype(np.float32))


def emit_filter_tile(f: Function, taps: Grid) -> list[Value]:
    """The 16 elements of G g G^T, of float32 vectors of 3x3 taps; formed in float64 and rounded once."""
    half = f.constant(0.5, vector("double", taps[0][0].lanes))

    def along(a: Value, b: Value, c: Value) -> list[Value]:
        outside = f.fadd(a, c)
        return [a, f.fmul(f.fadd(outside, b), half), f.fmul(f.fsub(outside, b), half), c]

    wide = [[f.convert("fpext", tap, "double") for tap in row] for row in taps]
    columns = [along(*column) for column in zip(*wide, strict=True)]
    rows = [along(*row) for row in zip(*columns, strict=True)]
    return [f.convert("fptrunc", value, "float") for row in rows for value in row]


def _combined(f: Function, coefficients: Sequence[int], values: Sequence[Value]) -> Value:
    """The sum of values with coefficients 1, 0 or -1, the first of which that is not negative comes first."""
    terms = [(c, value) for c, value in zip(coefficients, values, strict=True) if c]
    terms.sort(key=lambda term: term[0] < 0)
    total = terms[0][1]
    for c, value in terms[1:]:
        total = f.fadd(total, value) if c > 0 else f.fsub(total, value)
    return total


def _both_sides(f: Function, matrix: Sequence[Sequence[int]], grid: Grid) -> Grid:
    """matrix @ grid @ matrix^T."""
    columns = list(zip(*grid, strict=True))
    half = [[_combined(f, row, column) for column in columns] for row in matrix]
    return [[_combined(f, row, line) for row in matrix] for line in half]


def output_tile(f: Function, products: Sequence[Value]) -> Grid:
    """A^T m A: the 2x2 outputs of the 16 products."""
    return _both_sides(f, OUTPUT, [list(products[k : k + SPAN]) for k in range(0, POSITIONS, SPAN)])


def emit_input_tile(
    f: Function, shape: Convolution, source: Value, zeros: Value, tile: Int, lanes: int, target: Value, pitch: int
) -> None:
    """B^T d B of one tile (its number counts over batch, rows and columns), for all channels.

    `source` is the data operand, `zeros` memory with a zero for every channel, which stands for the inputs outside. Position
    e of channel c goes to element e * `pitch` + c of `target`.
    """
    n, *at = unravel(f, tile, tile_counts(shape))
    _, _, *strides = shape.data.strides
    top, left = (f.sub(f.mul(k, TILE), axis.before) for k, axis in zip(at, shape.spatial, strict=True))
    offset = f.add(shape.data.offset, f.mul(n, shape.data.strides[0]))
    offset = f.add(offset, f.add(f.mul(top, strides[0]), f.mul(left, strides[1])))
    kind = vector("float", lanes)

    def present(first: Int, k: int, extent: int) -> Value:
        return f.compare("icmp ult", f.add(first, k), extent)

    def transform(pointers: Sequence[Sequence[Value]]) -> None:
        def channels(c: Value, _: Sequence[Value]) -> None:
            # the last vector is moved back to end at the last channel
            here: Int = c if shape.inputs % lanes == 0 else f.minimum(c, shape.inputs - lanes)
            inputs = [[f.load(kind, f.at(pointer, here)) for pointer in row] for row in pointers]
            start = f.at(target, here)
            for i, row in enumerate(_both_sides(f, INPUT, inputs)):
                for j, value in enumerate(row):
                    f.store(value, f.at(start, (i * SPAN + j) * pitch))

        f.loop(0, shape.inputs, lanes, channels, rolled=True)

    def place(i: int, j: int) -> Value:
        return f.at(source, f.add(offset, i * strides[0] + j * strides[1]))

    def inside() -> None:
        first = f.at(source, offset)
        transform([[f.at(first, i * strides[0] + j * strides[1]) for j in range(SPAN)] for i in range(SPAN)])

    def border() -> None:
        rows = [present(top, k, shape.spatial[0].extent) for k in range(SPAN)]
        columns = [present(left, k, shape.spatial[1].extent) for k in range(SPAN)]
        transform(
            [
                [f.select(f.binary("and", rows[i], columns[j]), place(i, j), zeros) for j in range(SPAN)]
                for i in range(SPAN)
            ]
        )

    whole = [
        f.compare("icmp ult", f.add(first, 0), axis.extent - SPAN + 1)
        for first, axis in zip((top, left), shape.spatial, strict=True)
        if axis.extent >= SPAN
    ]
    if len(whole) < 2:
        border()
    else:
        f.when(f.binary("and", *whole), inside, border)
