"""Products with quantised weights as read off a task: the right operand is (w - z) * s, of constants.

Weights of four bits may be places in a table of numbers.
"""

from __future__ import annotations

import math

import numpy as np

from fusewise.codegen.families.product.plan import Product
from fusewise.codegen.families.product.shape import MatrixProduct, product_of
from fusewise.codegen.families.product.tiles import lanes_for
from fusewise.codegen.llvm.loops import free_axes
from fusewise.codegen.llvm.stores import reads
from fusewise.codegen.target import InstructionSet
from fusewise.codegen.view import OperandView, view_of
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT8, UINT8, DType, dtype_named
from fusewise.lower.task import Operand, RefusalReason, Task
from fusewise.ops.expr import Expr
from fusewise.ops.interpret import evaluate_expression
from fusewise.passes.packed_weights import BLOCK_STEPS, PACKED_TYPES, TABLE_SIZE, UINT4
from fusewise.records import record

__all__ = ["ConstantSpread", "QuantizedProduct", "quantized_by", "understand_quantized"]

_FLOATS = (FLOAT32, FLOAT16, BFLOAT16)
_MOST_VECTORS = 4
"""Vectors of a panel: a row reads a panel forwards, with as many sums as its multiply-adds are under way."""


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
