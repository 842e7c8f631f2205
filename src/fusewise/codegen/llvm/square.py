"""Rows and columns exchanged: of a square of vectors in registers, and so of a matrix in memory."""

from __future__ import annotations

from collections.abc import Sequence

from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tails import each_part
from fusewise.codegen.nest.tree import Int, Value, vector

__all__ = ["transposed", "turn"]


def turn(
    f: Function,
    source: Value,
    source_stride: int,
    there: Value,
    there_stride: int,
    shape: tuple[int, int],
    lanes: int,
) -> None:
    """there[c * there_stride + r] = source[r * source_stride + c], float32, for r, c below `shape`.

    Squares are as large as `lanes` and the shape allow; those at the end are moved back to fit.
    """
    rows, columns = shape
    side = min(lanes, 1 << (min(rows, columns).bit_length() - 1))
    kind = vector("float", side)

    def across(column: Int) -> None:
        here, line = f.at(source, column), f.at(there, f.mul(column, there_stride))

        def down(row: Int) -> None:
            first, to = f.at(here, f.mul(row, source_stride)), f.at(line, row)
            loaded = [f.load(kind, f.at(first, k * source_stride)) for k in range(side)]
            for k, one in enumerate(transposed(f, loaded) if side > 1 else loaded):
                f.store(one, f.at(to, k * there_stride))

        each_part(f, rows, side, down)

    each_part(f, columns, side, across)


def transposed(f: Function, rows: Sequence[Value]) -> list[Value]:
    """A square of vectors with rows and columns exchanged, for a power of two, by halves of ever larger blocks."""
    lanes = len(rows)
    current = list(rows)
    half = 1
    while half < lanes:
        following = list(current)
        for k in range(lanes):
            if k & half:
                continue
            a, b = current[k], current[k + half]
            low = [lane if not lane & half else lanes + lane - half for lane in range(lanes)]
            high = [lane + half if not lane & half else lanes + lane for lane in range(lanes)]
            following[k], following[k + half] = f.shuffle(a, b, low), f.shuffle(a, b, high)
        current = following
        half *= 2
    return current
