"""What an anchor reads, as a strided view: the case where nothing was fused in front of an operand.

Takes a task and the position of an operand of its anchor; gives base operand, shape, strides and offset in the anchor's own
dimensions, so that layouts, transposes and slices that lowering folded into the index are only strides to the kernels.
"""

from __future__ import annotations

from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32
from fusewise.ir.types import TensorType
from fusewise.lower.task import Operand, RefusalReason, Task
from fusewise.ops.expr import Expr
from fusewise.records import record

__all__ = ["OperandView", "short_view_of", "strides_along", "view_of"]


@record(frozen=True)
class OperandView:
    """Element (p0, p1, ...) lies `offset + sum(p * stride)` elements after the pointer of `operand`."""

    operand: Operand
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, each counted once."""
        size = self.operand.dtype.itemsize
        for extent in self.shape:
            size *= extent
        return size


def strides_along(operand: Operand, indices: tuple[Expr, ...]) -> tuple[dict[str, int], int] | None:
    """Strides per loop variable, and the offset, of reading `operand` at `indices`; None when an index is computed."""
    strides: dict[str, int] = {}
    offset = operand.offset
    for at, stride in zip(indices, operand.strides, strict=True):
        if at.op == "const":
            offset += at.value * stride
        elif at.op == "index":
            strides[at.value] = strides.get(at.value, 0) + stride
        else:
            return None
    return strides, offset


def view_of(task: Task, position: int) -> OperandView | RefusalReason:
    """Operand `position` of the anchor when it is read directly, or why it is not."""
    return _view(task, position, task.anchored.prologue[position])


def short_view_of(task: Task, position: int) -> OperandView | RefusalReason:
    """The same of an operand of 16 bits that is widened to float32 on the way in, and of nothing else."""
    element = task.anchored.prologue[position]
    if element is None or element.op != "cast" or element.dtype != FLOAT32:
        return RefusalReason("operand is not widened on the way in", str(position))
    found = _view(task, position, element.args[0])
    if isinstance(found, OperandView) and found.operand.dtype not in (FLOAT16, BFLOAT16):
        return RefusalReason("operand is not of 16 bits", found.operand.dtype.name)
    return found


def _view(task: Task, position: int, element: Expr | None) -> OperandView | RefusalReason:
    kind = task.anchored.inputs[position]
    if not isinstance(kind, TensorType) or element is None:
        return RefusalReason("operand is absent", str(position))
    if element.op != "load":
        return RefusalReason("operand is computed on the way in", str(position))
    operand = task.operand(element.value)
    found = strides_along(operand, element.args)
    if found is None:
        return RefusalReason("operand is read through a computed index", str(position))
    strides, offset = found
    return OperandView(operand, kind.dims, tuple(strides.get(f"p{k}", 0) for k in range(kind.rank)), offset)
