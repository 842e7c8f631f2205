"""Remove arithmetic that changes nothing, merge bounds. The same value comes out of every input: numeric class exact.

`x + 0.0` is not here: it turns -0.0 into 0.0, see `drop_zeros`. Where only the sign of a zero is open in ONNX itself
(`Max(-0.0, 0.0)`, `Relu(-0.0)`), either counts as the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Any

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.passes.edit import Change, Edit, LocalRule, looking_for, rebuilt, sweep
from fusewise.rewrite.match import Occurrence
from fusewise.trace import Trace

__all__ = ["RULES", "simplify_arithmetic"]


def simplify_arithmetic(graph: Graph, trace: Trace) -> Graph:
    """Neutral elements go, what is done twice is done once, and bounds in a row become one Clip.

    b = Mul(x, 1.0)                             ->   b = x
    b = Min(Max(x, 0.0), 6.0)                   ->   b = Clip(x, 0.0, 6.0)
    b = Clip(Relu(x), -1.0, 6.0)                ->   b = Clip(x, 0.0, 6.0)
    """
    return sweep(graph, trace, RULES)


_NEUTRAL: dict[str, tuple[float, bool]] = {
    "Add": (0, True),
    "Sub": (0, False),
    "Mul": (1, True),
    "Div": (1, False),
    "Pow": (1, False),
    "And": (1, True),
    "Or": (0, True),
    "Xor": (0, True),
    "BitShift": (0, False),
    "BitwiseOr": (0, True),
    "BitwiseXor": (0, True),
}
"""The element that changes nothing, and whether it may stand on the left too."""


def _neutral(edit: Edit, node: Node) -> Change | None:
    element, both_sides = _NEUTRAL[node.op]
    for i in (1, 0) if both_sides else (1,):
        array, other = edit.array(node.inputs[i]), node.inputs[1 - i]
        if array is None or array.dtype == object or array.size == 0 or not edit.same_type(other, node.outputs[0]):
            continue
        if not np.all(array == element):
            continue
        # float x + y is x for every x, -0.0 too, only if y is -0.0; x - y only if y is 0.0
        signed = node.op in ("Add", "Sub") and array.dtype.kind not in "iu"
        if signed and not np.all(np.signbit(array) == (node.op == "Add")):
            continue
        return Change((node,), f"{element} is neutral", same={node.outputs[0]: other})
    return None


def _twice(*operators: str) -> Callable[..., Any]:
    """One of these operators after itself."""

    def before(g: Any, x: Any) -> Any:
        return reduce(or_, (getattr(g, op)(getattr(g, op)(x, shared=True)) for op in operators))

    return before


def _undone(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    """Not(Not(x)), Neg(Neg(x)) and BitwiseNot(BitwiseNot(x))."""
    return Change(edit.covered(found, node), "the second undoes the first", same={node.outputs[0]: found.value("x")})


def _repeated(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    """An operator that changes nothing the second time."""
    return Change(edit.covered(found, node), "the second changes nothing", same={node.outputs[0]: node.inputs[0]})


def _single_operand(edit: Edit, node: Node) -> Change | None:
    if len(node.inputs) != 1:
        return None
    return Change((node,), "one operand", same={node.outputs[0]: node.inputs[0]})


def _sum_of_two(edit: Edit, node: Node) -> Change | None:
    return Change((node,), "two operands", (rebuilt(node, "Add", node.inputs),)) if len(node.inputs) == 2 else None


def _bound_of(edit: Edit, node: Node) -> tuple[str, float] | None:
    """The value and the constant scalar of a Max or Min of two, when the scalar does not widen the shape."""
    if len(node.inputs) != 2:
        return None
    for value, other in (node.inputs, node.inputs[::-1]):
        bound = edit.scalar(other)
        if (
            bound is not None
            and not np.isnan(bound)
            and edit.same_type(value, node.outputs[0])
            and value not in edit.constants
        ):
            return value, bound
    return None


def _float(edit: Edit, node: Node) -> bool:
    kind = edit.static(node.outputs[0])
    return kind is not None and kind.dtype.is_float


def _max_to_clip(edit: Edit, node: Node) -> Change | None:
    """Max with a constant is a lower bound, Min an upper one."""
    found = _bound_of(edit, node)
    if found is None or not _float(edit, node):
        return None
    value, bound = found
    if node.op == "Max" and bound == 0:
        return Change((node,), "a lower bound of zero", (rebuilt(node, "Relu", (value,)),))
    low, high = (bound, None) if node.op == "Max" else (None, bound)
    return Change((node,), "a constant bound", (_clip(edit, node, value, low, high),))


def _bounds(edit: Edit, node: Node) -> tuple[float | None, float | None] | None:
    """The constant bounds of a Relu or Clip; None when they are not constant."""
    if node.op == "Relu":
        return 0.0, None
    found: list[float | None] = []
    for i in (1, 2):
        present = i < len(node.inputs) and node.inputs[i]
        value = edit.scalar(node.inputs[i]) if present else None
        if present and (value is None or np.isnan(value)):
            return None
        found.append(value)
    return found[0], found[1]


def _clip(edit: Edit, node: Node, value: str, low: float | None, high: float | None) -> Node:
    kind = edit.static(node.outputs[0])
    assert kind is not None
    names = [
        "" if bound is None else edit.constant(np.array(bound, dtype=kind.dtype.numpy), f"{node.label}_{stem}")
        for bound, stem in ((low, "low"), (high, "high"))
    ]
    return rebuilt(node, "Clip", (value, *names) if names[1] else (value, names[0]))


def _bounded_twice(g: Any) -> Any:
    bounds = ("Relu", "Clip")
    return g.one_of(bounds, g.one_of(bounds, ..., like="inner"), ..., like="outer")


def _bounds_twice(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    """Clip or Relu after Clip or Relu.

    min(max(min(max(x, a), b), c), d) is min(max(x, max(a, c)), min(b, d)) whenever c <= b.
    """
    before = found.like["inner"]
    if not _float(edit, node):
        return None
    inner, outer = _bounds(edit, before), _bounds(edit, node)
    if inner is None or outer is None:
        return None
    (a, b), (c, d) = inner, outer
    if b is not None and c is not None and c > b:
        return None
    low = max((bound for bound in (a, c) if bound is not None), default=None)
    high = min((bound for bound in (b, d) if bound is not None), default=None)
    if low == 0 and high is None:
        merged = rebuilt(node, "Relu", before.inputs[:1])
    else:
        merged = _clip(edit, node, before.inputs[0], low, high)
    return Change((before, node), "bounds of bounds", (merged,))


def _clip_as_relu(edit: Edit, node: Node) -> Change | None:
    """Clip from zero up is Relu; Clip without bounds is nothing."""
    bounds = _bounds(edit, node)
    if bounds == (None, None) and edit.same_type(node.inputs[0], node.outputs[0]):
        return Change((node,), "no bounds", same={node.outputs[0]: node.inputs[0]})
    if bounds is None or bounds[0] != 0 or not (bounds[1] is None or bounds[1] == np.inf) or not _float(edit, node):
        return None
    return Change((node,), "a lower bound of zero", (rebuilt(node, "Relu", node.inputs[:1]),))


RULES: tuple[LocalRule, ...] = (
    LocalRule("drop-neutral", tuple(_NEUTRAL), _neutral),
    looking_for("drop-double-negation", _twice("Not", "Neg", "BitwiseNot"), _undone),
    looking_for("drop-repeated", _twice("Relu", "Abs", "Floor", "Ceil", "Round", "Sign"), _repeated),
    LocalRule("drop-single-operand", ("Max", "Min", "Sum", "Mean"), _single_operand),
    LocalRule("sum-to-add", ("Sum",), _sum_of_two),
    LocalRule("clip-to-relu", ("Clip",), _clip_as_relu),
    LocalRule("bound-to-clip", ("Max", "Min"), _max_to_clip),
    looking_for("merge-bounds", _bounded_twice, _bounds_twice),
)
