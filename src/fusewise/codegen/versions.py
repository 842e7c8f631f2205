"""Versions of a step whose sizes are not all known: kernels that are right where their conditions hold, tried in order.

A kernel of such a task is built at once, for one hint after another: usual sizes, many, few, one; for those that no version before
is for. Comparisons that ranges do not answer are answered at the hint, and are the conditions of that version; schedules are made
for the hint. It is by the first kernel that accepts it, for the last hint by each. The first version without conditions is the
last. Versions read weights packed alike, if the kernel knows a schedule for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
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

_Choose = Callable[[Kernel[Any, Any], Any, Task], Any]
"""`choose(kernel, understood, task)`: the schedule to take, of a task at the hint."""

Hints = tuple[Mapping[str, int], ...]


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
    """The versions of tasks, found once for all tasks alike."""

    target: Target
    trace: Trace
    hints: Hints
    _known: dict[str, tuple[Task, tuple[_Version, ...], str]]

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
        if key not in self._known:
            task = _nonempty(work.bound.task)
            self._known[key] = task, *self._found(task, work)
        task, versions, refused = self._known[key]
        same = replace(work, bound=replace(work.bound, task=task))
        return [TaskDraft(same, one.way, one.arguments, code=one.code) for one in versions], refused

    def _found(self, task: Task, work: TaskWork) -> tuple[tuple[_Version, ...], str]:
        made: list[_Version] = []
        refused: list[str] = []
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
        for version in self._general(task):
            return (*made, version), ""
        if made:
            refused.append(f"only where {' and '.join(map(str, made[-1].code.conditions))}")
        return tuple(made), "; ".join(dict.fromkeys(refused)) or "there is none"

    def _versions(
        self, task: Task, work: TaskWork, hints: Mapping[str, int], made: Sequence[_Version], refused: list[str]
    ) -> Iterator[_Version]:
        """By each kernel that accepts the task at these hints; one that reads weights as the versions before, if there is."""
        known = frozenset[str]().union(*(one.packings for one in made))
        kernels = candidates(task)
        for kernel in kernels:
            try:
                found = self._by(kernel, task, hints, partial(self._packing_as, known))
            except (SizeNeeded, Undecided) as reason:
                found = RefusalReason(str(reason))
            last = work.plain is None and kernel is kernels[-1]
            if isinstance(found, _Version):
                if self.trace.allows("kernel", kernel.name, (work.label,), "for sizes") or last:
                    yield found
                    continue
                found = RefusalReason("refused")
            refused.append(f"{kernel.name}: {found}")

    def _general(self, task: Task) -> Iterator[_Version]:
        """Versions without conditions, by whatever schedule that takes."""
        for kernel in candidates(task):
            for number in range(MOST_SCHEDULES):
                try:
                    found = self._by(kernel, task, self.hints[-1], partial(self._numbered, number))
                except (SizeNeeded, Undecided):
                    continue
                except StopIteration:
                    break
                if isinstance(found, _Version) and not found.code.conditions:
                    yield found

    def _by(
        self, kernel: Kernel[Any, Any], task: Task, hints: Mapping[str, int], choose: _Choose
    ) -> _Version | RefusalReason:
        instructions = self.target.instructions
        with deciding(hints) as conditions:
            understood = kernel.understand(task, instructions)
            if isinstance(understood, RefusalReason):
                return understood
            declined = kernel.declines(at_hint(understood), at_hint(task), self.target)
            if declined is not None:
                return declined
            schedule = choose(kernel, at_hint(understood), at_hint(task))
            arguments = kernel.arguments(understood, task, schedule)
            way = Implementation(kernel, task, understood, schedule)
            key = f"{way.key}|{_ranges(task)}|{sorted(hints.items())}"
            module = way.build(instructions, "kernel")
            text = llvm_text(module, instructions)
            text = checked(text, "kernel") if self.target.sanitize else text
        return _Version(way, arguments, SizedCode(text, key, tuple(module.sizes), tuple(conditions), hints))

    def _packing_as(self, known: frozenset[str], kernel: Kernel[Any, Any], understood: Any, task: Task) -> Any:
        """The favourite that packs as is known, else the favourite."""
        first = next(iter(kernel.schedules(understood, task, self.target)))
        if not known or _packings(kernel.arguments(understood, task, first)) <= known:
            return first
        every = islice(kernel.every(understood, task, self.target), MOST_SCHEDULES)
        return next((one for one in every if _packings(kernel.arguments(understood, task, one)) <= known), first)

    def _numbered(self, number: int, kernel: Kernel[Any, Any], understood: Any, task: Task) -> Any:
        """One of all schedules."""
        return next(islice(kernel.every(understood, task, self.target), number, None))


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
