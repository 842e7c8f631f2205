"""Products with quantised weights as read off a task: the right operand is (w - z) * s, of constants.

How they are packed for kernels that dequantise in registers: weights side by side in words of 32 bits, four steps of the
reduction in the lowest bits of its bytes, the next four in those above, and words in panels of `group` vectors, whatever the tile
is; scales s and zero points z in the same panels, a row for each block of the depth. Unsigned weights with zero points are packed
as signed ones, both less half their range. Weights of four bits may be places in a table of numbers, which is packed as floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from fusewise.codegen.families.product.plan import Product
from fusewise.codegen.families.product.shape import MatrixProduct, product_of
from fusewise.codegen.families.product.tiles import lanes_for
from fusewise.codegen.llvm.loops import free_axes
from fusewise.codegen.llvm.stores import reads
from fusewise.codegen.packing import column_starts
from fusewise.codegen.target import InstructionSet
from fusewise.codegen.view import OperandView, view_of
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT8, UINT8, DType, dtype_named
from fusewise.lower.program import Packing
from fusewise.lower.task import Operand, RefusalReason, Task
from fusewise.ops.expr import Expr
from fusewise.ops.interpret import evaluate_expression
from fusewise.passes.packed_weights import BLOCK_STEPS, PACKED_TYPES, TABLE_SIZE, UINT4
from fusewise.records import record

__all__ = ["ConstantSpread", "QuantizedProduct", "packings", "quantized_by", "understand_quantized"]

_FLOATS = (FLOAT32, FLOAT16, BFLOAT16)
_MOST_VECTORS = 4
"""Vectors of a panel: a row reads a panel forwards, with as many sums as its multiply-adds are under way."""

_PACKED_COLUMNS = 512
"""Columns that are packed at a time, so that it takes little memory."""


@record(frozen=True)
class ConstantSpread:
    """A constant over depth and columns: where the element of a step and a column lies, as indices in these variables, of which
    each has one at most."""

    operand: Operand
    at: tuple[Expr, ...]

    def offsets(self, variable: str, extent: int) -> np.ndarray:
        """int64[extent]: what the variable adds to the place of an element."""
        total = np.zeros(extent, np.int64)
        for one, stride in zip(self.at, self.operand.strides, strict=True):
            if free_axes(one) == {variable}:
                total += stride * evaluate_expression(one, {variable: extent}, {})[0].astype(np.int64)
        return total

    @property
    def first(self) -> int:
        """Where the element of step and column 0 lies, but for what the variables add."""
        pairs = zip(self.at, self.operand.strides, strict=True)
        return self.operand.offset + sum(int(one.value) * stride for one, stride in pairs if one.op == "const")


@record(frozen=True)
class QuantizedProduct:
    """A product whose right operand is (weights - zeros) * scales. `depth` and `column` are the variables of the three; a row of
    scales and zeros is for `block` steps. `lanes` is how many columns a vector has.

    With `rows` the left operand is bytes, times what `rows` has as its left operand: a number for each block. Weights are packed
    as unsigned bytes of their bits then. With `table` a weight is a place in that operand, and there are no zeros.
    """

    m: MatrixProduct
    weights: ConstantSpread
    scales: ConstantSpread
    zeros: ConstantSpread | None
    depth: str
    column: str
    block: int
    lanes: int
    rows: MatrixProduct | None = None
    table: Operand | None = None

    @property
    def product(self) -> Product:
        return self.m.product

    @property
    def bits(self) -> int:
        """Of a weight."""
        return self.weights.operand.dtype.bits

    @property
    def is_moved(self) -> bool:
        """Are weights packed with half their range taken or added? Zero points are so, too, and the differences the same."""
        is_unsigned = self.weights.operand.dtype.kind == "uint"
        return not is_unsigned if self.rows is not None else self.zeros is not None and is_unsigned

    @property
    def packed(self) -> DType:
        """The type that weights are packed as."""
        dtype = self.weights.operand.dtype
        if not self.is_moved:
            return dtype
        return dtype_named(dtype.name.removeprefix("u") if self.rows is None else f"u{dtype.name}")

    @property
    def zero_dtype(self) -> DType:
        """The type that zero points are packed as."""
        return INT8 if self.packed.kind == "int" else UINT8

    @property
    def moved(self) -> int:
        """What is added to weights and zero points."""
        return 0 if not self.is_moved else self.half if self.rows is not None else -self.half

    @property
    def half(self) -> int:
        """Half the range of a weight, which its highest bit stands for."""
        return 1 << (self.bits - 1)

    @property
    def per_word(self) -> int:
        """Weights of a word."""
        return 32 // self.bits

    @property
    def words(self) -> int:
        """Words of a column."""
        return -(-self.product.depth // self.per_word)

    @property
    def blocks(self) -> int:
        """Rows of scales."""
        return -(-self.product.depth // self.block)

    @property
    def group(self) -> int:
        """Vectors of a panel."""
        vectors = -(-self.product.columns // self.lanes)
        return next(n for n in (_MOST_VECTORS, 2, 1) if n <= vectors or n == 1)


def understand_quantized(task: Task, instructions: InstructionSet) -> QuantizedProduct | RefusalReason:
    """The task as a product with quantised weights, or why it is none."""
    anchor = task.anchor
    if anchor is None or anchor.op not in ("MatMul", "Gemm"):
        return RefusalReason("no matrix product at the anchor")
    left = view_of(task, 0)
    if isinstance(left, RefusalReason):
        return left
    if left.operand.dtype not in _FLOATS:
        return RefusalReason("element type has no quantised product", left.operand.dtype.name)
    return quantized_by(task, left, instructions)


def quantized_by(task: Task, left: OperandView, instructions: InstructionSet) -> QuantizedProduct | RefusalReason:
    """The product of a left operand with quantised weights, or why it is none."""
    anchor = task.anchored
    kind, element = anchor.inputs[1], anchor.prologue[1]
    if kind is None or element is None or kind.rank != 2:
        return RefusalReason("no quantised matrix")
    found = _parts(task, element)
    if isinstance(found, RefusalReason):
        return found
    weights, table, zeros, scales = found
    is_turned = anchor.op == "Gemm" and bool(anchor.attribute("transB", 0))
    depth, column = ("p1", "p0") if is_turned else ("p0", "p1")
    rows, columns = kind.dims
    steps = columns if is_turned else rows
    right = OperandView(weights.operand, (rows, columns), (columns, 1), 0)
    m = product_of(task, left, right)
    if isinstance(m, RefusalReason):
        return m
    block = _block([one.offsets(depth, steps) for one in (scales, zeros) if one is not None], steps)
    if block % BLOCK_STEPS and block < steps:
        return RefusalReason("a scale is not for a multiple of steps", f"{block} of {BLOCK_STEPS}")
    lanes = lanes_for(instructions, m.product.columns)
    return QuantizedProduct(m, weights, scales, zeros, depth, column, block, lanes, table=table)


_Parts = tuple[ConstantSpread, Operand | None, ConstantSpread | None, ConstantSpread]


def _parts(task: Task, element: Expr) -> _Parts | RefusalReason:
    """Weights, a table and zero points if there are any, and scales of a dequantised element."""
    refused = RefusalReason("the right operand is not (w - z) * s of constants")
    product = element
    while product.op == "cast" and product.dtype in _FLOATS:
        product = product.args[0]
    if product.op != "mul":
        return refused
    number, scale = product.args
    zero = None
    if number.op == "sub":
        number, zero = number.args
    number, table = _looked_up(task, number) if zero is None else (number, None)
    parts = [None if part is None else _spread(task, part) for part in (number, zero, scale)]
    weights, zeros, scales = parts
    if weights is None or scales is None or (zero is not None and zeros is None):
        return refused
    types = [part.operand.dtype for part in (weights, zeros) if part is not None]
    if types[0] not in PACKED_TYPES or types[-1] != types[0] or scales.operand.dtype not in _FLOATS:
        return refused
    if table is not None and types[0] != UINT4:
        return refused
    names = [*(part.operand.name for part in parts if part is not None), *([] if table is None else [table.name])]
    if len(set(names)) < len(names) or any(reads(task, name) for name in names):
        return RefusalReason("the packed operand is also read otherwise", names[0])
    return weights, table, zeros, scales


def _looked_up(task: Task, number: Expr) -> tuple[Expr, Operand | None]:
    """The place that a number of a constant table is read at, and the table; the number itself where it is none."""
    read = number.args[0] if number.op == "cast" and number.dtype == FLOAT32 else number
    if read.op != "load" or len(read.args) != 1:
        return number, None
    table, place = task.operand(read.value), read.args[0]
    while place.op == "cast" and place.dtype.is_integer:
        place = place.args[0]
    if place.op != "load" or not table.constant or table.shape != (TABLE_SIZE,):
        return number, None
    return place, table


def _spread(task: Task, part: Expr) -> ConstantSpread | None:
    """A number that is read from a constant, at places that step and column add to."""
    read = part.args[0] if part.op == "cast" and part.dtype == FLOAT32 else part
    if read.op != "load":
        return None
    operand = task.operand(read.value)
    is_apart = all(len(free_axes(one)) == 1 or one.op == "const" for one in read.args)
    return ConstantSpread(operand, read.args) if operand.constant and is_apart else None


def _block(offsets: list[np.ndarray], steps: int) -> int:
    """The largest number of steps that share a scale and a zero point everywhere; all of them, if nothing changes."""
    block = 0
    for places in offsets:
        for change in (np.flatnonzero(np.diff(places)) + 1).tolist():
            block = math.gcd(block, change)
    return block or steps


def packings(q: QuantizedProduct) -> Iterator[tuple[str, Packing]]:
    """How each operand of the right side is packed, by name."""
    yield q.weights.operand.name, _packing(q, q.weights, "words", lambda array: _words(q, array))
    yield q.scales.operand.name, _packing(q, q.scales, "rows", lambda array: _rows(q, q.scales, array))
    if q.table is not None:
        yield q.table.name, _table_packing(q.table)
    if q.zeros is not None:
        zeros, byte = q.zeros, q.zero_dtype.numpy
        yield (
            zeros.operand.name,
            _packing(q, zeros, "rows", lambda array: (_rows(q, zeros, array).astype(np.int16) + q.moved).astype(byte)),
        )


def _packing(q: QuantizedProduct, part: ConstantSpread, what: str, pack: Callable[[np.ndarray], np.ndarray]) -> Packing:
    shape = f"{q.product.depth}x{q.product.columns} in panels of {q.group}x{q.lanes}, blocks of {q.block}"
    lies = f"{part.at} by {part.operand.strides} from {part.operand.offset}, depth {q.depth}"
    return Packing(f"quantised {what} as {q.packed.name} of {part.operand.dtype.name} {shape}: {lies}", pack)


def _table_packing(table: Operand) -> Packing:
    (stride,), first = table.strides, table.offset
    last = first + stride * TABLE_SIZE

    def pack(array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array).reshape(-1)[first:last:stride].astype(np.float32)

    return Packing(f"table of {table.dtype.name} as floats, each {stride} from {first}", pack)


def _columns(q: QuantizedProduct) -> Iterator[tuple[slice, np.ndarray]]:
    """Panels, some at a time, and their columns, as many for each."""
    starts = column_starts(q.product.columns, q.lanes, q.group)
    every = np.add.outer(np.array(starts, np.int64), np.arange(q.lanes)).reshape(-1, q.group * q.lanes)
    some = max(1, _PACKED_COLUMNS // (q.group * q.lanes))
    for first in range(0, len(every), some):
        yield slice(first, first + some), every[first : first + some]


def _taken(
    q: QuantizedProduct, part: ConstantSpread, flat: np.ndarray, steps: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """[panels, steps, columns of a panel]: elements at these steps and columns; of columns that are not there, zeros."""
    along, across = part.offsets(q.depth, q.product.depth), part.offsets(q.column, q.product.columns)
    inside = columns < q.product.columns
    places = across[np.where(inside, columns, 0)]
    found = flat[part.first + along[steps][None, :, None] + places[:, None, :]]
    return found if inside.all() else np.where(inside[:, None, :], found, np.zeros((), flat.dtype))


def _rows(q: QuantizedProduct, part: ConstantSpread, array: np.ndarray) -> np.ndarray:
    """[panels, blocks, columns of a panel]."""
    flat, steps = np.ascontiguousarray(array).reshape(-1), np.arange(0, q.product.depth, q.block)
    return np.concatenate([_taken(q, part, flat, steps, columns) for _, columns in _columns(q)])


def _words(q: QuantizedProduct, array: np.ndarray) -> np.ndarray:
    """uint32[panels, words, columns of a panel]; missing steps are zeros."""
    flat, steps = np.ascontiguousarray(array).view(np.uint8).reshape(-1), np.arange(q.product.depth)
    panels = -(-q.product.columns // (q.group * q.lanes))
    result = np.empty((panels, q.words, q.group * q.lanes, 4), np.uint8)
    in_byte = 8 // q.bits
    for where, columns in _columns(q):
        codes = _taken(q, q.weights, flat, steps, columns) & ((1 << q.bits) - 1)
        codes = codes ^ q.half if q.is_moved else codes
        missing = q.words * q.per_word - len(steps)
        codes = np.pad(codes, ((0, 0), (0, missing), (0, 0))) if missing else codes
        parts = codes.reshape(len(columns), q.words, in_byte, 4, -1)
        joined = parts[:, :, 0]
        for k in range(1, in_byte):
            joined = joined | parts[:, :, k] << (q.bits * k)
        result[where] = joined.swapaxes(2, 3)
    return result.view(np.uint32)[..., 0]
