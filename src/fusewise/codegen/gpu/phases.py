"""Transposed convolutions by phases: of the taps that a stride leaves out for a result, none is tried.

Result q * stride + f adds up the taps that are (f + begin) % stride, and every stride-th from there on. So a phase f is a product
of its own, over whole taps; where a window is as wide as its stride, all phases are columns of one.

    strides 2, taps 4:   sum(c, t < 4: select((i + 1 - t) % 2 == 0, x[c, (i + 1 - t) // 2] * w[c, t], 0))
    i = 2 q + f:         sum(c, t < 2: x[c, q - t + ...] * w[c, (f + 1) % 2 + 2 t])
"""

from __future__ import annotations

from fusewise.codegen.llvm.loops import cut_axis, loop_ranges
from fusewise.codegen.llvm.plain import anchor_call, plain_task
from fusewise.lower.index import Simplifier
from fusewise.lower.task import Task
from fusewise.ops.expr import Expr, binary, compare, const, index, reduce, select, substitute, substitute_indices
from fusewise.ops.window import transposed_window_of

__all__ = ["in_phases"]


def in_phases(task: Task) -> Task:
    """A strided transposed convolution without its anchor, its results apart by phase along axes that strides divide; other tasks
    as they are."""
    if task.anchor is None or task.anchor.op != "ConvTranspose" or not task.is_fixed:
        return task
    found = plain_task(task)
    if found is None:
        return task
    window = transposed_window_of(anchor_call(task.anchor), task.anchor.operand_type(1).dims[2:])
    axis = 2
    for tap, stride in enumerate(window.strides):
        if stride > 1 and window.dilations[tap] == 1 and found.extents[axis] % stride == 0:
            found = cut_axis(found, axis, stride)
            axis += 1
            first = (index(f"i{axis}") + window.begins[tap]) % stride
            found = _with_taps(found, f"k{tap}", first, stride, window.kernel[tap])
        axis += 1
    return found.mapped(Simplifier(loop_ranges(found)).simplify)


def _with_taps(task: Task, name: str, first: Expr, stride: int, taps: int) -> Task:
    """With sums over every `stride`-th tap from the first on. Where there is none, another's weight is not used."""
    tap = first + index(name) * stride
    within = binary("min", tap, taps - 1) if taps % stride else tap

    def of_tap(body: Expr) -> Expr:
        if body.op == "select":  # conditions, then the product
            condition, product, zero = body.args
            return select(substitute_indices(condition, {name: tap}), of_tap(product), zero)
        data, weight = body.args
        return substitute_indices(data, {name: tap}) * substitute_indices(weight, {name: within})

    def one(node: Expr) -> Expr | None:
        if node.op != "reduce" or name not in dict(node.value[1]):
            return None
        axes = tuple((n, -(-extent // stride) if n == name else extent) for n, extent in node.value[1])
        body = of_tap(node.args[0])
        return reduce(
            "sum", axes, select(compare("lt", tap, taps), body, const(0, body.dtype)) if taps % stride else body
        )

    return task.mapped(lambda root: substitute(root, one))
