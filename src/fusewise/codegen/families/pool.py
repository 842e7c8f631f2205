"""Pooling: the operator's definition in the generic nest, with the borders cut off.

Where every tap of the window lies inside the input no condition is left, so the output is cut into an interior box and the
boxes around it; in each the index ranges decide as many conditions as they can. Channels last, the lane axis is the channels.

    +----------------+
    |      top       |
    +--+----------+--+
    |  | interior |  |
    +--+----------+--+
    |     bottom     |
    +----------------+
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from fusewise.codegen.families.generic.any_nest import NestSchedule, defined_in, emit_nest, nest_schedules
from fusewise.codegen.kernel import Kernel
from fusewise.codegen.llvm.entry import OpenFunction, operands_alone, written
from fusewise.codegen.llvm.loops import loop_ranges
from fusewise.codegen.llvm.plain import anchor_call
from fusewise.lower.index import Simplifier
from fusewise.lower.task import Task
from fusewise.ops.expr import Expr, index, substitute_indices
from fusewise.ops.pool import pool_window
from fusewise.ops.window import Window

__all__ = ["POOL"]

_FAMILIES = frozenset("max_pool average_pool lp_pool global_pool".split())

Box = tuple[tuple[int, int], ...]


def _write(o: OpenFunction, plain: Task, schedule: NestSchedule) -> None:
    for box in boxes(o.task.extents, pool_window(anchor_call(o.task.anchored))):
        emit_nest(o, within(plain, box), schedule)


def boxes(extents: tuple[int, ...], window: Window) -> list[Box]:
    """The output cut into an interior, where no tap leaves the input, and what surrounds it; empty boxes are left out.
    Where the interior is the smaller part, all is one box.

    Each box is (first, past the last) per axis of `extents`. Axes are peeled from the front, so outer borders are whole.
    """
    ranges: list[tuple[int, int]] = [(0, extent) for extent in extents]
    found: list[Box] = []
    for d in range(window.rank):
        extent, k = extents[2 + d], 2 + d
        stride, begin = window.strides[d], window.begins[d]
        reach = (window.kernel[d] - 1) * window.dilations[d]
        low = min(extent, -(-begin // stride))
        high = max(low, min(extent, (window.extents[d] - 1 - reach + begin) // stride + 1))
        for part in ((0, low), (high, extent)):
            found.append((*ranges[:k], part, *ranges[k + 1 :]))
        ranges[k] = (low, high)
    if 2 * math.prod(b - a for a, b in ranges) < math.prod(extents):  # mostly border: one nest with its conditions
        return [tuple((0, extent) for extent in extents)] if math.prod(extents) else []
    found.insert(0, tuple(ranges))
    return [box for box in found if all(a < b for a, b in box)]


def within(task: Task, box: Box) -> Task:
    """The task on a part of its index space, its conditions simplified for it."""
    moved: Mapping[str, Expr] = {f"i{k}": index(f"i{k}") + low for k, (low, _) in enumerate(box)}
    extents = tuple(high - low for low, high in box)
    ranges = loop_ranges(task) | {f"i{k}": extent for k, extent in enumerate(extents)}
    simplifier = Simplifier(ranges)

    def one(root: Expr) -> Expr:
        return simplifier.simplify(substitute_indices(root, moved))

    return replace(task.mapped(one), extents=extents)


POOL = Kernel(
    "pool",
    defined_in(_FAMILIES, "the anchor is not a pooling"),
    nest_schedules,
    operands_alone,
    written(operands_alone, _write),
)
