"""Matrix products as read off a task: operands and axes of a MatMul or a Gemm, with every broadcast, transpose and layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fusewise.codegen.families.product.lanes import ComputedOperands
from fusewise.codegen.families.product.plan import Product, RowAxis
from fusewise.codegen.llvm.stores import joined_axis, reads
from fusewise.codegen.nest.instruction import Instruction, fused_of
from fusewise.codegen.target import InstructionSet
from fusewise.codegen.view import OperandView, view_of
from fusewise.ir.deciding import known_one
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, DType
from fusewise.lower.task import RefusalReason, Task
from fusewise.records import record

__all__ = ["MatrixProduct", "in_lanes", "matmul_of", "product_of", "understand"]

FLOATS = (FLOAT32, FLOAT64, FLOAT16, BFLOAT16)


@record(frozen=True)
class MatrixProduct:
    """MatMul and Gemm alike: out[outer, rows, column] = alpha * sum_k left * right + beta * addend.

    `right_outer` are the right operand's strides along the outer axes, `addend` strides are per index variable. With `computed` the
    rows of the left operand lie as they are copied, one behind the other; the right operand is a constant, or copied, too.
    """

    product: Product
    left: OperandView
    left_outer: tuple[int, ...]
    depth_stride: int
    right: OperandView
    right_outer: tuple[int, ...]
    right_depth: int
    right_column: int
    bias: OperandView | None = None
    addend: tuple[OperandView, Mapping[str, int]] | None = None
    alpha: float = 1.0
    beta: float = 1.0
    computed: ComputedOperands | None = None

    @property
    def dtype(self) -> DType:
        return self.product.dtype

    @property
    def depth(self) -> int:
        """Rows of the right operand, as many for every step as the instruction has terms, but for the last where it is computed."""
        return self.product.depth * self.product.instruction.terms if self.computed is None else self.computed.depth

    @property
    def matrices(self) -> OperandView:
        """The right operand as [outer..., depth, columns]."""
        extents = tuple(extent for _, extent in self.product.outer)
        return OperandView(
            self.right.operand,
            (*extents, self.depth, self.product.columns),
            (*self.right_outer, self.right_depth, self.right_column),
            self.right.offset,
        )


def understand(task: Task, instructions: InstructionSet) -> MatrixProduct | RefusalReason:
    """The task as a matrix product, or why it is none."""
    anchor = task.anchor
    if anchor is None or anchor.op not in ("MatMul", "Gemm"):
        return RefusalReason("no matrix product at the anchor")
    left, right = view_of(task, 0), view_of(task, 1)
    if isinstance(left, RefusalReason):
        return left
    if isinstance(right, RefusalReason):
        return right
    if left.operand.dtype not in FLOATS or right.operand.dtype != left.operand.dtype:
        return RefusalReason("element type has no matrix product kernel", left.operand.dtype.name)
    if right.operand.constant and (reads(task, right.operand.name) or left.operand.name == right.operand.name):
        return RefusalReason("the packed operand is also read otherwise", right.operand.name)
    return product_of(task, left, right)


def product_of(task: Task, left: OperandView, right: OperandView) -> MatrixProduct | RefusalReason:
    """The product of these operands at a MatMul or Gemm, or why it is none."""
    return matmul_of(task, left, right) if task.anchored.op == "MatMul" else _gemm(task, left, right)


def matmul_of(task: Task, left: OperandView, right: OperandView) -> MatrixProduct:
    """NumPy's rules: one-dimensional operands lose their axis, leading axes are broadcast."""
    assert task.anchor is not None
    shape = task.anchor.output.dims
    has_rows, has_columns = len(left.shape) > 1, len(right.shape) > 1
    lead = len(shape) - has_rows - has_columns
    left_strides = _leading(left, 2 if has_rows else 1, lead)
    right_strides = _leading(right, 2 if has_columns else 1, lead)
    shared = [k for k in range(lead) if right_strides[k] == 0 or known_one(shape[k])]
    apart = [k for k in range(lead) if k not in shared]
    rows = [RowAxis(f"i{k}", shape[k], left_strides[k]) for k in shared]
    if has_rows:
        rows.append(RowAxis(f"i{lead}", left.shape[-2], left.strides[-2]))
    if not rows:
        rows.append(RowAxis("row", 1, 0))
    product = Product(
        outer=tuple((f"i{k}", shape[k]) for k in apart),
        rows=tuple(rows),
        column=f"i{len(shape) - 1}" if has_columns else "column",
        columns=right.shape[-1] if has_columns else 1,
        depth=left.shape[-1],
        joined=joined_axis(task, [(axis.name, axis.extent) for axis in rows]),
        dtype=left.operand.dtype,
        instruction=fused_of(left.operand.dtype),
    )
    return MatrixProduct(
        product,
        left,
        tuple(left_strides[k] for k in apart),
        left.strides[-1],
        right,
        tuple(right_strides[k] for k in apart),
        right.strides[-2] if has_columns else right.strides[-1],
        right.strides[-1] if has_columns else 1,
    )


def _leading(view: OperandView, own: int, lead: int) -> list[int]:
    """Strides along the broadcast leading axes; 0 where the operand is broadcast."""
    strides = [
        0 if known_one(extent) else stride for extent, stride in zip(view.shape[:-own], view.strides, strict=False)
    ]
    return [0] * (lead - len(strides)) + strides


def _gemm(task: Task, left: OperandView, right: OperandView) -> MatrixProduct | RefusalReason:
    anchor = task.anchor
    assert anchor is not None
    row, depth = (1, 0) if anchor.attribute("transA", 0) else (0, 1)
    deep, column = (1, 0) if anchor.attribute("transB", 0) else (0, 1)
    alpha, beta = float(anchor.attribute("alpha", 1.0)), float(anchor.attribute("beta", 1.0))
    bias, addend = None, None
    if len(anchor.inputs) > 2 and anchor.inputs[2] is not None:
        third = view_of(task, 2)
        if isinstance(third, RefusalReason):
            return third
        by_row = len(third.shape) > 1 and not known_one(third.shape[-2])
        if not by_row and beta == 1.0 and (alpha == 1.0 or right.operand.constant):
            bias = third
        else:
            names = ("i0", "i1")[2 - len(third.shape) :]
            strides = {
                name: 0 if known_one(extent) else stride
                for name, extent, stride in zip(names, third.shape, third.strides, strict=True)
            }
            addend = (third, strides)
    product = Product(
        outer=(),
        rows=(RowAxis("i0", left.shape[row], left.strides[row]),),
        column="i1",
        columns=right.shape[column],
        depth=left.shape[depth],
        dtype=left.operand.dtype,
        instruction=fused_of(left.operand.dtype),
    )
    return MatrixProduct(
        product,
        left,
        (),
        left.strides[depth],
        right,
        (),
        right.strides[deep],
        right.strides[column],
        bias,
        addend,
        alpha,
        beta,
    )


def in_lanes(m: MatrixProduct, instruction: Instruction) -> MatrixProduct | RefusalReason:
    """A product whose left operand is read in place as lanes of an instruction, or why it is not: several terms take a constant."""
    terms = instruction.terms
    if terms == 1 and m.dtype == instruction.left:
        return replace(m, product=replace(m.product, instruction=instruction))
    if not m.right.operand.constant or m.alpha != 1.0 or m.left.operand.dtype != instruction.left:
        return RefusalReason(f"not a product of {instruction.left.name} with a constant matrix")
    steps = (m.left.offset, *m.left_outer, *(axis.stride for axis in m.product.rows))
    if m.product.depth % terms or m.depth_stride != 1 or any(step % terms for step in steps):
        return RefusalReason(f"neighbours of the reduction do not lie in {instruction.layout}", m.left.operand.name)
    rows = tuple(replace(axis, stride=axis.stride // terms) for axis in m.product.rows)
    depth = m.product.depth // terms
    return replace(
        m,
        product=replace(m.product, rows=rows, depth=depth, dtype=instruction.lane, instruction=instruction),
        left=replace(m.left, offset=m.left.offset // terms),
        left_outer=tuple(step // terms for step in m.left_outer),
    )
