"""What a kernel may touch of each of its arguments, for a checked build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fusewise.codegen.kernel import Argument
from fusewise.codegen.steps.calls import CALL_BYTES
from fusewise.codegen.steps.draft import ProgramDraft, TaskDraft
from fusewise.codegen.steps.pointers import SITE_BYTES
from fusewise.codegen.target import Target
from fusewise.ir.deciding import known_zero
from fusewise.lower.program import Extent
from fusewise.lower.task import Operand, Task
from fusewise.trace import Trace

__all__ = ["extents_of", "state_extents"]


def state_extents(draft: ProgramDraft, target: Target, trace: Trace) -> ProgramDraft:
    """The pass of a checked build."""
    if not target.sanitize:
        return draft

    def told(number: int, step: TaskDraft) -> TaskDraft:
        bound = step.work.bound

        def one(version: TaskDraft) -> TaskDraft:
            return replace(version, extents=extents_of(bound.task, bound.values, version.arguments, target.workers))

        return replace(one(step), others=tuple(map(one, step.others)))

    return draft.with_tasks(told)


def extents_of(
    task: Task, values: Mapping[str, str], arguments: Sequence[Argument], workers: int
) -> tuple[Extent, ...]:
    """One for each argument; `values` names what the task's operands are."""
    written = {store.operand for store in task.stores}

    def one(argument: Argument) -> Extent:
        name = argument.name
        if name == "scratch":
            return Extent(name, "", 0, argument.nbytes * (workers if argument.per_worker else 1), True)
        if name == "fault":
            return Extent(name, "", 0, SITE_BYTES * task.sites, True)
        if name == "sizes":
            return Extent(name, "", 0, -1, False)
        if name == "call":
            return Extent(name, "", 0, CALL_BYTES, False)
        if name in ("later", "next"):  # which is fetched only
            return Extent(name, "", 0, 0, False)
        low, high = (0, -1) if argument.packing is not None else _span(task.operand(name))
        return Extent(name, values[name], low, high, name in written)

    return tuple(one(argument) for argument in arguments)


def _span(operand: Operand) -> tuple[int, int]:
    """The first byte of an operand, and the first behind it."""
    if any(map(known_zero, operand.shape)):
        return 0, 0
    low, high = operand.span
    return low * operand.dtype.itemsize, (high + 1) * operand.dtype.itemsize
