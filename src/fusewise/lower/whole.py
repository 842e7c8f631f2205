"""Nodes that are one task each, with all their results: a row for every family of them.

They have no element definition, since an element depends on how others came to be, or a better way than it. The task is made by
the family's own module and run by the family's kernels (`codegen.candidates`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.lower.compose import BoundTask, BufferView
from fusewise.lower.forest import forest_reason, forest_task, interpret_forest
from fusewise.lower.linear import interpret_linear, linear_reason, linear_task
from fusewise.lower.recurrence import interpret_recurrence, recurrent_reason, recurrent_task
from fusewise.lower.roi_pool import interpret_roi_pool, roi_pool_reason, roi_pool_task
from fusewise.lower.scan import interpret_scan, scan_reason, scan_task
from fusewise.lower.scatter import interpret_scatter, scatter_base, scatter_reason, scatter_task
from fusewise.lower.task import Task
from fusewise.lower.top_k import interpret_top_k, top_k_reason, top_k_task
from fusewise.ops.spec import WHOLE_FAMILIES
from fusewise.ops.table import spec_of
from fusewise.records import record

__all__ = ["FAMILIES", "WholeFamily", "whole_family"]


@record(frozen=True)
class WholeFamily:
    """How nodes of a family become tasks.

    - `reason(graph, node)`: why a node cannot run natively; empty when it can.
    - `task(graph, node, views, exact)`: the task of one that can; `views` has all that it reads, and what it is to write.
    - `base(node)`: the value whose contents its result, the first, is to begin with; empty for zeros. None where the task writes
    every element.
    - `interpret(task, views)`: performs the stores of such a task, whose operands are `views`, with NumPy.
    - `of_sizes`: do its kernels run tasks whose extents are sizes in terms of symbols?
    """

    reason: Callable[[Graph, Node], str]
    task: Callable[[Graph, Node, Mapping[str, BufferView], bool], BoundTask]
    interpret: Callable[[Task, Mapping[str, np.ndarray]], None]
    base: Callable[[Node], str] | None = None
    of_sizes: bool = False


FAMILIES: Mapping[str, WholeFamily] = MappingProxyType(
    {
        "forest": WholeFamily(forest_reason, forest_task, interpret_forest, of_sizes=True),
        "linear_attention": WholeFamily(linear_reason, linear_task, interpret_linear),
        "recurrence": WholeFamily(recurrent_reason, recurrent_task, interpret_recurrence, of_sizes=True),
        "roi_pool": WholeFamily(roi_pool_reason, roi_pool_task, interpret_roi_pool),
        "scan": WholeFamily(scan_reason, scan_task, interpret_scan, of_sizes=True),
        "scatter": WholeFamily(scatter_reason, scatter_task, interpret_scatter, scatter_base, of_sizes=True),
        "top_k": WholeFamily(top_k_reason, top_k_task, interpret_top_k, of_sizes=True),
    }
)
"""One for each of `WHOLE_FAMILIES`."""


def whole_family(node: Node) -> str:
    """The family of a node that is a task by itself; empty for other nodes."""
    spec = spec_of(node.op, node.domain)
    return spec.family if spec is not None and spec.family in WHOLE_FAMILIES else ""
