"""Tasks of nodes that are one each, whose operands lie anywhere; and what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx

import fusewise
from fusewise.fusion.plan import partition
from fusewise.lower.task import Operand, Task
from fusewise.lower.work import TaskWork, lower_partition
from fusewise.trace import Trace

__all__ = ["contents_of", "lying", "task_of"]


def task_of(model: onnx.ModelProto) -> Task:
    """The task of a model of one node."""
    (work,) = lower_partition(partition(fusewise.load(model), Trace()), Trace()).work
    assert isinstance(work, TaskWork)
    return work.bound.task


def lying(task: Task, rng: np.random.Generator) -> Task:
    """The task with operands that have gaps, begin somewhere, and have their axes in any order and direction."""
    return replace(task, operands=tuple(_lying(operand, rng) for operand in task.operands))


def _lying(operand: Operand, rng: np.random.Generator) -> Operand:
    if operand.constant:
        return operand
    strides, step = [0] * len(operand.shape), int(rng.integers(1, 3))
    for axis in rng.permutation(len(operand.shape)):
        strides[axis] = step
        step *= operand.shape[axis] + int(rng.integers(0, 2))
    strides = [stride * (-1 if rng.random() < 0.2 else 1) for stride in strides]
    low = sum(min(0, stride * (extent - 1)) for stride, extent in zip(strides, operand.shape, strict=True))
    offset = int(rng.integers(0, 4)) - low
    return replace(operand, strides=tuple(strides), offset=offset, alignment=operand.dtype.itemsize)


def contents_of(task: Task, operands: Sequence[np.ndarray | None]) -> dict[str, np.ndarray]:
    """The operands of a node, by what its task calls them."""
    given = {int(one.name[-1]): one.name for one in task.operands if not one.name.startswith("out")}
    return {given[place]: x for place, x in enumerate(operands) if x is not None}
