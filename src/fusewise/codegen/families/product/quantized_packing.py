"""How quantised weights are packed for kernels that dequantise in registers.

Weights lie side by side in words of 32 bits, four steps of the reduction in the lowest bits of its bytes, the next four in those
above, and words in panels of `group` vectors, whatever the tile is; scales and zero points in the same panels, a row for each block
of the depth. Unsigned weights with zero points are packed as signed ones, both less half their range. A table is packed as floats.

A matrix is read some rows at a time, in memory for those alone: panel by panel where its rows are columns of the product, else word
by word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from fusewise.codegen.families.product.quantized import ConstantSpread, QuantizedProduct
from fusewise.codegen.packing import column_starts
from fusewise.lower.program import PackedInParts, Packing, RowsOf
from fusewise.lower.task import Operand
from fusewise.ops.expr import index
from fusewise.passes.packed_weights import TABLE_SIZE

__all__ = ["packings"]

_AT_ONCE = 1 << 19
"""Elements that are packed at a time."""


def packings(q: QuantizedProduct) -> Iterator[tuple[str, Packing]]:
    """How each operand of the right side is packed, by name."""
    yield q.weights.operand.name, _packing(q, q.weights, "words", np.dtype(np.uint32), _fill_words)
    yield q.scales.operand.name, _packing(q, q.scales, "rows", q.scales.operand.dtype.numpy, _fill_scales)
    if q.table is not None:
        yield q.table.name, _table_packing(q.table)
    if q.zeros is not None:
        yield q.zeros.operand.name, _packing(q, q.zeros, "rows", q.zero_dtype.numpy, _fill_zeros)


_Fill = Callable[[QuantizedProduct, RowsOf, np.ndarray], None]


def _packing(q: QuantizedProduct, part: ConstantSpread, what: str, kind: np.dtype, fill: _Fill) -> Packing:
    """`fill` gets what is `kind`[panels, words or blocks, columns of a panel]."""
    shape = f"{q.product.depth}x{q.product.columns} in panels of {q.group}x{q.lanes}, blocks of {q.block}"
    lies = f"{part.at} by {part.operand.strides} from {part.operand.offset}, depth {q.depth}"
    width, rows = q.group * q.lanes, q.words if what == "words" else q.blocks
    dims = -(-q.product.columns // width), rows, width

    def filled(rows_of: RowsOf, target: np.ndarray) -> None:
        fill(q, rows_of, target.view(kind).reshape(dims))

    def pack(array: np.ndarray) -> np.ndarray:
        result = np.empty(dims, kind)
        fill(q, lambda first, last: array[first:last], result)
        return result

    recipe = f"quantised {what} as {q.packed.name} of {part.operand.dtype.name} {shape}: {lies}"
    return Packing(recipe, pack, parts=PackedInParts(math.prod(dims) * kind.itemsize, filled))


def _table_packing(table: Operand) -> Packing:
    (stride,), first = table.strides, table.offset
    last = first + stride * TABLE_SIZE

    def pack(array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array).reshape(-1)[first:last:stride].astype(np.float32)

    return Packing(f"table of {table.dtype.name} as floats, each {stride} from {first}", pack)


# --- scales and zero points -------------------------------------------------------------------------------------------


def _fill_scales(q: QuantizedProduct, rows_of: RowsOf, target: np.ndarray) -> None:
    _fill_rows(q, q.scales, rows_of, target)


def _fill_zeros(q: QuantizedProduct, rows_of: RowsOf, target: np.ndarray) -> None:
    assert q.zeros is not None
    _fill_rows(q, q.zeros, rows_of, target, q.moved)


def _fill_rows(q: QuantizedProduct, part: ConstantSpread, rows_of: RowsOf, target: np.ndarray, moved: int = 0) -> None:
    """[panels, blocks, columns of a panel]: what belongs to blocks, and `moved` added to integers."""
    steps = np.arange(0, q.product.depth, q.block)
    by_columns = _is_dense(part.operand) and part.at[0] == index(q.column)
    flat = None if by_columns else _flat(part, rows_of)
    for where, columns in _columns(q, len(steps)):
        if flat is None:
            first, last = _rows_of_columns(q, columns)
            found = _taken(q, part, rows_of(first, last).reshape(-1), steps, columns, first)
        else:
            found = _taken(q, part, flat, steps, columns)
        target[where] = (found.astype(np.int16) + moved).astype(target.dtype) if part is q.zeros else found


# --- weights ----------------------------------------------------------------------------------------------------------


def _fill_words(q: QuantizedProduct, rows_of: RowsOf, target: np.ndarray) -> None:
    """uint32[panels, words, columns of a panel]; missing steps and columns are zeros."""
    axes, is_dense = q.weights.at, _is_dense(q.weights.operand)
    if is_dense and axes == (index(q.depth), index(q.column)):
        _fill_by_steps(q, rows_of, target)
    elif is_dense and axes == (index(q.column), index(q.depth)):
        for where, columns in _columns(q, q.product.depth):
            inside = columns < q.product.columns
            first, last = _rows_of_columns(q, columns)
            codes = _codes(q, rows_of(first, last))[np.where(inside, columns - first, 0)]
            target[where] = np.where(inside[..., None], _joined(q, codes), 0).swapaxes(1, 2)
    else:
        flat, steps = _flat(q.weights, rows_of).view(np.uint8), np.arange(q.product.depth)
        for where, columns in _columns(q, q.product.depth):
            codes = _codes(q, _taken(q, q.weights, flat, steps, columns))
            inside = (columns < q.product.columns)[..., None]
            target[where] = np.where(inside, _joined(q, codes.swapaxes(1, 2)), 0).swapaxes(1, 2)


def _fill_by_steps(q: QuantizedProduct, rows_of: RowsOf, target: np.ndarray) -> None:
    """Rows of the matrix are steps of the depth: some words of all columns at a time."""
    depth = q.product.depth
    columns = np.concatenate([one for _, one in _columns(q, depth)])
    inside = columns < q.product.columns
    places = np.where(inside, columns, 0)
    words = max(1, _AT_ONCE // (q.product.columns * q.per_word))
    for first in range(0, q.words, words):
        last = min(first + words, q.words)
        codes = _codes(q, rows_of(first * q.per_word, min(last * q.per_word, depth)))
        found = _joined(q, codes.T)[places]  # [panels, columns of a panel, words]
        target[:, first:last] = np.where(inside[..., None], found, 0).swapaxes(1, 2)


def _codes(q: QuantizedProduct, array: np.ndarray) -> np.ndarray:
    """Weights as the bits that are packed, one to a byte."""
    found = np.bitwise_and(array.view(np.uint8), np.uint8((1 << q.bits) - 1))
    if q.is_moved:
        found ^= np.uint8(q.half)
    return found


def _joined(q: QuantizedProduct, codes: np.ndarray) -> np.ndarray:
    """uint32[..., words] of codes [..., steps]; missing steps are zeros."""
    *lead, steps = codes.shape
    words, in_byte = -(-steps // q.per_word), 8 // q.bits
    found = np.zeros((*lead, words, 4), np.uint8)
    for k in range(in_byte):
        for byte in range(4):
            some = codes[..., 4 * k + byte :: q.per_word]
            found[..., : some.shape[-1], byte] |= some << np.uint8(q.bits * k)
    return found.view(np.uint32)[..., 0]


# --- both -------------------------------------------------------------------------------------------------------------


def _is_dense(operand: Operand) -> bool:
    """Is it a matrix, whose rows lie one behind the other?"""
    return len(operand.shape) == 2 and operand.strides == (operand.shape[1], 1) and operand.offset == 0


def _rows_of_columns(q: QuantizedProduct, columns: np.ndarray) -> tuple[int, int]:
    """The first of these columns, and the one behind the last that is there."""
    return int(columns.min()), min(int(columns.max()) + 1, q.product.columns)


def _flat(part: ConstantSpread, rows_of: RowsOf) -> np.ndarray:
    """All elements of a constant, as they lie."""
    shape = part.operand.shape
    return np.ascontiguousarray(rows_of(0, shape[0] if shape else 1)).reshape(-1)


def _columns(q: QuantizedProduct, each: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Panels, some at a time, and their columns, as many for each; of a column so many elements are packed."""
    starts = column_starts(q.product.columns, q.lanes, q.group)
    every = np.add.outer(np.array(starts, np.int64), np.arange(q.lanes)).reshape(-1, q.group * q.lanes)
    some = max(1, _AT_ONCE // (q.group * q.lanes * each))
    for first in range(0, len(every), some):
        yield slice(first, first + some), every[first : first + some]


def _taken(
    q: QuantizedProduct,
    part: ConstantSpread,
    flat: np.ndarray,
    steps: np.ndarray,
    columns: np.ndarray,
    begun: int = 0,
) -> np.ndarray:
    """[panels, steps, columns of a panel]: elements at these steps and columns; of columns that are not there, zeros. `flat` has
    the operand's elements from the column `begun` on."""
    along, across = part.offsets(q.depth, q.product.depth), part.offsets(q.column, q.product.columns)
    inside = columns < q.product.columns
    places = across[np.where(inside, columns, 0)] - (across[begun] - across[0])
    found = flat[part.first + along[steps][None, :, None] + places[:, None, :]]
    return found if inside.all() else np.where(inside[:, None, :], found, np.zeros((), flat.dtype))
