"""Running sums and products: each element adds up the row before it by itself.

That is the square of a row's work, and still nothing beside a launch for the lengths of sequences, whose positions exporters count
so. Longer rows are the host's.
"""

from __future__ import annotations

from dataclasses import replace

from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.kernel import GpuKernel, NoKernel
from fusewise.codegen.gpu.nests import nest
from fusewise.lower.task import ACC, Anchor, Store, Task
from fusewise.ops.expr import Expr, compare, const, index, reduce, select, substitute, substitute_indices

__all__ = ["LONGEST_SCAN", "scan"]

LONGEST_SCAN = 4096
"""Elements of a row, at most."""


def scan(task: Task, device: Device, precision: str) -> GpuKernel:
    """A kernel for CumSum or CumProd along an axis that is known; `NoKernel` for others."""
    anchor = task.anchor
    if anchor is None or anchor.family != "scan":
        raise NoKernel("no running sum")
    if not task.is_fixed:
        raise NoKernel("a kernel for a GPU is written for known sizes")
    element = _so_far(task, anchor)

    def whole(node: Expr) -> Expr | None:
        return element if node.op == "load" and node.value == ACC else None

    stores = tuple(Store(one.operand, one.index, substitute(one.value, whole)) for one in task.stores)
    return nest(replace(task, stores=stores, anchor=None), device)


def _so_far(task: Task, anchor: Anchor) -> Expr:
    """What has come together at an element (i0, i1, ...), in the type that is added up in."""
    along = anchor.element(1)
    if along.op != "const":
        raise NoKernel(f"{anchor.op} along an axis that is not known")
    axis = int(along.value)
    length = task.extents[axis]
    if length > LONGEST_SCAN:
        raise NoKernel(f"{anchor.op} over more than {LONGEST_SCAN} elements")
    here, there = index(f"i{axis}"), index("r0")
    first, last = (here, there) if anchor.attribute("reverse", 0) else (there, here)
    reached = compare("lt" if anchor.attribute("exclusive", 0) else "le", first, last)
    element = substitute_indices(anchor.element(0), {f"i{axis}": there})
    product = anchor.op == "CumProd"
    neutral = const(int(product), element.dtype)
    return reduce("prod" if product else "sum", (("r0", length),), select(reached, element, neutral))
