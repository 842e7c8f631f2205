"""Which kernel runs each task, by which schedule: of the candidates the first that accepts, or what was measured to be sooner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice, zip_longest
from typing import Any

from fusewise.codegen.candidates import candidates
from fusewise.codegen.kernel import Implementation, Kernel
from fusewise.codegen.steps.draft import HostDraft, ProgramDraft, TaskDraft
from fusewise.codegen.target import Target
from fusewise.codegen.versions import Versions, hints_for
from fusewise.errors import UnsupportedModel
from fusewise.lower.task import RefusalReason, Task
from fusewise.lower.work import HostWork, TaskWork
from fusewise.records import record
from fusewise.trace import Trace

__all__ = ["alternatives", "choose_kernels"]


def choose_kernels(draft: ProgramDraft, target: Target, trace: Trace) -> ProgramDraft:
    """The pass that makes steps of work."""
    choice = _Choice(target, trace, _first_ways(target))
    versions = Versions(target, trace, hints_for(draft.symbols))

    def chosen(one: TaskWork) -> TaskDraft:
        if not one.bound.task.is_fixed:
            return versions.of(one)
        return _measured(one, draft, choice) or choice.of(one)

    steps = [one if isinstance(one, HostWork) else chosen(one) for one in draft.work]
    return replace(draft, steps=tuple(HostDraft(one) if isinstance(one, HostWork) else one for one in steps))


def alternatives(task: Task, target: Target) -> Iterator[Implementation]:
    """Every way to run a task, the analytic favourite first: of each kernel that accepts it the first schedule, then of each the
    second."""
    found = (kernel.implementations(task, target) for kernel in candidates(task))
    for row in zip_longest(*(ways for ways in found if not isinstance(ways, RefusalReason))):
        yield from (way for way in row if way is not None)


_Judge = Callable[[Kernel[Any, Any], Task], Implementation | RefusalReason]


@record(frozen=True)
class _Choice:
    target: Target
    trace: Trace
    judge: _Judge

    def of(self, work: TaskWork) -> TaskDraft:
        """By the first candidate that accepts; without an anchored one, the same outputs from their definitions."""
        refused: list[str] = []
        task = work.bound.task
        for kernel in candidates(task):
            found = self.judge(kernel, task)
            note = f"after {'; '.join(refused)}" if refused else "first candidate"
            last = work.plain is None and kernel is candidates(task)[-1]
            if not isinstance(found, RefusalReason):
                if self.trace.allows("kernel", kernel.name, work.nodes, note, titles=(work.label,)) or last:
                    return TaskDraft(work, found, found.arguments)
                found = RefusalReason("refused")
            refused.append(f"{kernel.name}: {found}")
        if work.plain is None:
            raise UnsupportedModel(f"group {work.label}: no kernel accepts it ({'; '.join(refused)})")
        return self.of(work.plain())


def _measured(work: TaskWork, draft: ProgramDraft, choice: _Choice) -> TaskDraft | None:
    """The way that is asked for instead of the first, if there is such a one."""
    task = work.bound.task
    number = draft.ways.get(task.digest, 0) if draft.ways else 0
    found = next(islice(alternatives(task, choice.target), number, None), None) if number else None
    if found is None:
        return None
    if not choice.trace.allows("kernel", found.kernel.name, work.nodes, "measured", titles=(work.label,)):
        return None
    return TaskDraft(work, found, found.arguments)


def _first_ways(target: Target) -> _Judge:
    """A kernel's first schedule for a task, or why it does not accept it; found out once for all tasks alike."""
    known: dict[tuple[str, str], Implementation | RefusalReason] = {}

    def judge(kernel: Kernel[Any, Any], task: Task) -> Implementation | RefusalReason:
        found = known.get((kernel.name, task.key))
        if found is None:
            ways = kernel.implementations(task, target)
            found = known[kernel.name, task.key] = ways if isinstance(ways, RefusalReason) else next(iter(ways))
        return found

    return judge
