"""Tasks with a product or a convolution at their anchor, in any layout, with something before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tests.codegen.gpu.interpreting import check
from tests.codegen.gpu.test_nests import DEVICE, at, contents_of

from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.codegen.gpu.products import product
from fusewise.codegen.llvm.plain import plain_task
from fusewise.ir.dtypes import FLOAT32, DType
from fusewise.ir.types import TensorType
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.ops.expr import Expr, load

Shape = tuple[int, ...]


def lying(name: str, dtype: DType, shape: Shape, order: Sequence[int] | None = None, **more: Any) -> Operand:
    """An operand whose axes lie in this order, the slowest first; of the others it has all."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(range(len(shape)) if order is None else order):
        strides[axis], step = step, step * max(1, shape[axis])
    return Operand(name, dtype, shape, tuple(strides), **more)


def last(rank: int) -> tuple[int, ...]:
    """Channels last."""
    return (0, *range(2, rank), 1)


def anchored(
    op: str,
    operands: Sequence[Operand],
    out: Operand,
    attributes: Mapping[str, Any] | None = None,
    prologue: Mapping[int, Expr] | None = None,
    value: Expr | None = None,
    more: Sequence[Operand] = (),
    shapes: Mapping[int, Shape] | None = None,
) -> Task:
    """`operands` are the anchor's, in their order; `prologue` has other elements than theirs in p0, p1, ...; `value` is what is
    stored instead of `acc`, and may read `more`. `shapes` are those of operands of the anchor that no memory has."""
    elements = [load(o.name, o.dtype, at(*(f"p{k}" for k in range(len(o.shape))))) for o in operands]
    for position, element in (prologue or {}).items():
        elements[position] = element
    given = {k: o.shape for k, o in enumerate(operands)} | dict(shapes or {})
    kinds = tuple(TensorType(e.dtype, given[k]) for k, e in enumerate(elements))
    family = {"MatMul": "matmul", "Gemm": "gemm", "Conv": "conv", "ConvTranspose": "conv_transpose"}.get(op, op)
    kind = TensorType(kinds[0].dtype, out.shape)
    anchor = Anchor(op, family, tuple((attributes or {}).items()), kinds, tuple(elements), kind)
    places = at(*(f"i{k}" for k in range(len(out.shape))))
    stored = load(ACC, kind.dtype, places) if value is None else value
    return Task(out.shape, (*operands, *more, out), (Store(out.name, places, stored),), anchor)


def acc(rank: int, dtype: DType = FLOAT32) -> Expr:
    return load(ACC, dtype, at(*(f"i{k}" for k in range(rank))))


def contents(task: Task, special: bool = False) -> dict[str, np.ndarray]:
    """Drawn elements; where `special`, some are NaN or infinite, but none of weights, which padding is multiplied by."""
    outputs = {store.operand for store in task.stores}
    kept = {o.name: special and not o.name.startswith("const") for o in task.operands if o.name not in outputs}
    return {o.name: contents_of(o, k, kept[o.name]) for k, o in enumerate(task.operands) if o.name in kept}


def run(task: Task, special: bool = False, times: float = 8, kernel: GpuKernel | None = None) -> GpuKernel:
    """The product's kernel computes what the definition says, and touches nothing else; gives it."""
    kernel = product(task, DEVICE) if kernel is None else kernel
    plain = plain_task(task) if task.anchor is not None else task
    assert plain is not None
    check(kernel, plain, contents(task, special), times)
    return kernel
