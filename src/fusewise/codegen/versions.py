"""Versions of a step whose sizes are not all known: kernels that are right where their conditions hold, tried in order.

A kernel of such a task is built at once, for one hint after another: usual sizes, many, few, one; for those that no version before
is for. Comparisons that ranges do not answer are answered at the hint, and are the conditions of that version; schedules are made
for the hint. It is by the first kernel that accepts it, for the last hint by each. The first version without conditions is the
last. Versions read weights packed alike, if the kernel knows a schedule for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import islice
from typing import Any

from fusewise.codegen.candidates import candidates
from fusewise.codegen.kernel import Argument, Implementation, Kernel
from fusewise.codegen.llvm.checked import checked
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.steps.draft import SizedCode, TaskDraft
from fusewise.codegen.target import Target
from fusewise.errors import UnsupportedModel
from fusewise.ir.deciding import at_hint, deciding, hint, mapped
from fusewise.ir.size import Size, SizeNeeded, Symbol, Undecided, size_of, substitute, symbols_of
from fusewise.lower.program import Packing
from fusewise.lower.task import RefusalReason, Task
from fusewise.lower.work import TaskWork
from fusewise.records import record
from fusewise.trace import Trace

__all__ = ["Versions", "hints_for"]

MANY = 8
"""A size that versions are made for of what is planned for one, such as a batch."""

PART = 4
"""Of what is planned for, sizes that are so much smaller have versions, too."""

FEW = 2
"""A small size that versions are made for, beside one."""

MOST_SCHEDULES = 60
"""Schedules looked at for one that reads weights as other versions do."""

_Manner = frozenset[str] | int
"""Which schedule to take: the favourite that packs constants as is known here, or one of all by its number."""

Hints = tuple[Mapping[str, int], ...]

_BY_TRACE = RefusalReason("refused")
"""Why a kernel is not taken that the trace refused."""


def hints_for(symbols: Sequence[Symbol]) -> Hints:
    """Values of symbols to make versions for: those to plan for, many of what is one there, a quarter, few, and one."""
    usual = {one.name: hint(size_of(one)) for one in symbols}
    many = {one.name: min(MANY, one.high) if usual[one.name] == 1 else usual[one.name] for one in symbols}

    part = {one.name: max(one.low, 1, usual[one.name] // PART) for one in symbols}

    def near(count: int) -> dict[str, int]:
        return {one.name: min(max(one.low, count), one.high) for one in symbols}

    return tuple({str(each): each for each in (usual, many, part, near(FEW), near(1))}.values())


@record(frozen=True)
class _Version:
    """One way to run a task and its code."""

    way: Implementation
    arguments: tuple[Argument, ...]
    code: SizedCode

    @property
    def packings(self) -> frozenset[str]:
        return _packings(self.arguments)


def _packings(arguments: Sequence[Argument]) -> frozenset[str]:
    """How constants are packed."""
    return frozenset(f"{a.name} {a.packing.recipe}" for a in arguments if isinstance(a.packing, Packing))


@record
class Versions:
    """The versions of tasks. Each is built once for all tasks alike, and asked for by each of them."""

    target: Target
    trace: Trace
    hints: Hints
    _tasks: dict[str, Task] = field(default_factory=dict)
    _built: dict[object, _Version | RefusalReason | None] = field(default_factory=dict)

    def of(self, work: TaskWork) -> TaskDraft:
        """A step and its versions; those of its definition without an anchor where no kernel for that does for all sizes."""
        drafts, refused = self._drafts(work)
        if refused and work.plain is not None:
            more, refused = self._drafts(work.plain())
            drafts += more
        if refused:
            raise UnsupportedModel(f"group {work.label}: no kernel accepts it for all sizes ({refused})")
        return replace(drafts[0], others=tuple(drafts[1:]))

    def _drafts(self, work: TaskWork) -> tuple[list[TaskDraft], str]:
        """The versions of a task, and why there are not enough of them, if so."""
        key = work.bound.task.key
        if key not in self._tasks:
            self._tasks[key] = _nonempty(work.bound.task)
        task = self._tasks[key]
        versions, refused = self._found(task, work)
        same = replace(work, bound=replace(work.bound, task=task))
        return [TaskDraft(same, one.way, one.arguments, code=one.code) for one in versions], refused

    def _found(self, task: Task, work: TaskWork) -> tuple[tuple[_Version, ...], str]:
        made: list[_Version] = []
        refused: list[tuple[str, RefusalReason]] = []
        for hints in self.hints:
            if any(all(condition.holds(hints) for condition in one.code.conditions) for one in made):
                continue  # it would not be taken there
            for version in self._versions(task, work, hints, made, refused):
                if not any(set(one.code.conditions) <= set(version.code.conditions) for one in made):
                    made.append(version)
                if not version.code.conditions:
                    return tuple(made), ""
                if hints is not self.hints[-1]:
                    break
        off = () if work.plain is None else {name for name, reason in refused if reason == _BY_TRACE}
        for version in self._general(task, off):
            return (*made, version), ""
        told = [f"{name}: {reason}" for name, reason in refused]
        if made:
            told.append(f"only where {' and '.join(map(str, made[-1].code.conditions))}")
        return tuple(made), "; ".join(dict.fromkeys(told)) or "there is none"

    def _versions(
        self,
        task: Task,
        work: TaskWork,
        hints: Mapping[str, int],
        made: Sequence[_Version],
        refused: list[tuple[str, RefusalReason]],
    ) -> Iterator[_Version]:
        """By each kernel that accepts the task at these hints; one that reads weights as the versions before, if there is."""
        known = frozenset[str]().union(*(one.packings for one in made))
        kernels = candidates(task)
        for kernel in kernels:
            found = self._known(kernel, task, hints, known) or RefusalReason("it has no schedule")
            last = work.plain is None and kernel is kernels[-1]
            if isinstance(found, _Version):
                if self.trace.allows("kernel", kernel.name, work.nodes, "for sizes", titles=(work.label,)) or last:
                    yield found
                    continue
                found = _BY_TRACE
            refused.append((kernel.name, found))

    def _general(self, task: Task, off: Collection[str]) -> Iterator[_Version]:
        """Versions without conditions, by whatever schedule that takes, of kernels that are not `off`."""
        for kernel in (one for one in candidates(task) if one.name not in off):
            for number in range(MOST_SCHEDULES):
                found = self._known(kernel, task, self.hints[-1], number)
                if found is None:
                    break
                if isinstance(found, _Version) and not found.code.conditions:
                    yield found

    def _known(
        self, kernel: Kernel[Any, Any], task: Task, hints: Mapping[str, int], manner: _Manner
    ) -> _Version | RefusalReason | None:
        """By a kernel, or why not; None where there are not so many schedules."""
        key = kernel.name, task.key, str(hints), manner
        if key not in self._built:
            try:
                self._built[key] = self._by(kernel, task, hints, manner)
            except (SizeNeeded, Undecided) as reason:
                self._built[key] = RefusalReason(str(reason))
            except StopIteration:
                self._built[key] = None
        return self._built[key]

    def _by(
        self, kernel: Kernel[Any, Any], task: Task, hints: Mapping[str, int], manner: _Manner
    ) -> _Version | RefusalReason:
        instructions = self.target.instructions
        with deciding(hints) as conditions:
            understood = kernel.understand(task, instructions)
            if isinstance(understood, RefusalReason):
                return understood
            declined = kernel.declines(at_hint(understood), at_hint(task), self.target)
            if declined is not None:
                return declined
            schedule = self._schedule(kernel, at_hint(understood), at_hint(task), manner)
            arguments = kernel.arguments(understood, task, schedule)
            way = Implementation(kernel, task, understood, schedule)
            key = f"{way.key}|{_ranges(task)}|{sorted(hints.items())}"
            module = way.build(instructions, "kernel")
            text = llvm_text(module, instructions)
            text = checked(text, "kernel") if self.target.sanitize else text
        return _Version(way, arguments, SizedCode(text, key, tuple(module.sizes), tuple(conditions), hints))

    def _schedule(self, kernel: Kernel[Any, Any], understood: Any, task: Task, manner: _Manner) -> Any:
        """One of all schedules, or the favourite that packs as is known, else the favourite."""
        if isinstance(manner, int):
            return next(islice(kernel.every(understood, task, self.target), manner, None))
        first = next(iter(kernel.schedules(understood, task, self.target)))
        if not manner or _packings(kernel.arguments(understood, task, first)) <= manner:
            return first
        every = islice(kernel.every(understood, task, self.target), MOST_SCHEDULES)
        return next((one for one in every if _packings(kernel.arguments(understood, task, one)) <= manner), first)


def _ranges(task: Task) -> str:
    """What is known of a task's symbols."""
    found = {symbol for extent in _sizes_of(task) for symbol in symbols_of(extent)}
    return ",".join(f"{one.name}:{one.low}:{one.high}" for one in sorted(found, key=lambda one: one.name))


def _sizes_of(task: Task) -> list[int]:
    found: list[int] = []

    def seen(size: Size) -> int:
        found.append(size)
        return size

    mapped(task, seen)
    return found


def _nonempty(task: Task) -> Task:
    """The task, whose index space is known to have elements: steps without any are not run."""
    symbols: dict[str, int] = {}
    for extent in task.extents:
        if not isinstance(extent, Size) or extent.constant or len(extent.terms) != 1:
            continue
        for atom, _ in extent.terms[0][0]:
            if isinstance(atom, Symbol):
                symbols[atom.name] = size_of(replace(atom, low=max(1, atom.low)))
    return mapped(task, lambda size: substitute(size, symbols)) if symbols else task
