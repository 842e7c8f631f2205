"""An anchored task without its anchor: the operator's own definition put in place of `acc`.

For anchors whose work is a row or a window of reductions the generic nest then does well, since it computes each reduction once
where it can.
"""

from __future__ import annotations

from dataclasses import replace

from fusewise.codegen.llvm.loops import reduction_ranges
from fusewise.ir.graph import Node
from fusewise.lower.index import Simplifier
from fusewise.lower.task import ACC, Anchor, Store, Task
from fusewise.ops.definition import definition
from fusewise.ops.expr import Expr, const, index, substitute, substitute_indices
from fusewise.ops.spec import Call, NotDefined
from fusewise.ops.table import spec_of

__all__ = ["anchor_call", "element_of_anchor", "over_operands", "plain_task", "read_operand", "zero_point"]


def anchor_call(anchor: Anchor) -> Call:
    """The anchor as operator rows see it; its operands' contents are not known."""
    names = tuple("" if kind is None else f"x{k}" for k, kind in enumerate(anchor.inputs))
    node = Node(anchor.op, names, ("y",), anchor.attributes)
    return Call(node, anchor.inputs, (anchor.output,), tuple(None for _ in names))


def read_operand(anchor: Anchor, position: int, at: tuple[Expr, ...]) -> Expr:
    """The element of one of the anchor's operands at `at`."""
    return substitute_indices(anchor.element(position), {f"p{k}": place for k, place in enumerate(at)})


def over_operands(anchor: Anchor, root: Expr) -> Expr:
    """An expression of the anchor's definition over loads of the task's operands."""

    def bound(node: Expr) -> Expr | None:
        if node.op != "load" or not str(node.value).startswith("#"):
            return None
        return read_operand(anchor, int(node.value[1:]), node.args)

    return substitute(root, bound)


def zero_point(anchor: Anchor) -> Expr | None:
    """The zero point of the first operand, of which there is one, of a product or convolution of integers; None without."""
    kind = anchor.inputs[2] if len(anchor.inputs) > 2 else None
    return None if kind is None else read_operand(anchor, 2, (const(0),) * kind.rank)


def element_of_anchor(anchor: Anchor, at: tuple[Expr, ...]) -> Expr | None:
    """The anchor's result at `at`, over loads of the task's operands; None when the definition does not cover it."""
    spec = spec_of(anchor.op)
    if spec is None:
        return None
    try:
        return over_operands(anchor, definition(spec, anchor_call(anchor), 0, at))
    except NotDefined:
        return None


def plain_task(task: Task) -> Task | None:
    """The task with every `acc` replaced by the anchor's definition; None when there is none."""
    at = tuple(index(f"i{k}") for k in range(len(task.extents)))
    element = element_of_anchor(task.anchored, at)
    if element is None:
        return None
    element = Simplifier(task.ranges | reduction_ranges(element)).simplify(element)

    def whole(node: Expr) -> Expr | None:
        return element if node.op == "load" and node.value == ACC else None

    stores = tuple(Store(s.operand, s.index, substitute(s.value, whole)) for s in task.stores)
    return replace(task, stores=stores, anchor=None)
