"""Programs in the making, as far as a pass gets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fusewise.codegen.assemble import PASSES
from fusewise.codegen.steps.draft import DraftPass, ProgramDraft, TaskDraft, first_draft
from fusewise.codegen.target import TARGETS, Target
from fusewise.fusion.plan import partition
from fusewise.ir.graph import Graph
from fusewise.lower.work import lower_partition
from fusewise.ops.build import GraphBuilder
from fusewise.trace import Trace

__all__ = ["MACHINE", "chain", "draft_before", "native"]

MACHINE: Target = replace(TARGETS[0], workers=2)


def chain(products: int) -> Graph:
    """Products with equal weights, a step each."""
    b = GraphBuilder("chain")
    value, weight = b.input("x", (4, 8)), b.constant(np.eye(8, dtype=np.float32))
    for _ in range(products):
        value = b.op("MatMul", value, weight)
    return b.finish(value)


def draft_before(last: DraftPass, graph: Graph, target: Target = MACHINE, trace: Trace | None = None) -> ProgramDraft:
    """What a pass is given."""
    trace = trace or Trace()
    draft = first_draft(lower_partition(partition(graph, trace), trace), {})
    for one in PASSES[: PASSES.index(last)]:
        draft = one(draft, target, trace)
    return draft


def native(draft: ProgramDraft) -> list[TaskDraft]:
    """The steps of a program that has no others."""
    steps = [step for step in draft.steps if isinstance(step, TaskDraft)]
    assert len(steps) == len(draft.steps)
    return steps
