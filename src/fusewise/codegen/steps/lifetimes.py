"""From which step to which memory is used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fusewise.codegen.steps.draft import Area, HostDraft, Pointer, ProgramDraft, TaskDraft
from fusewise.codegen.steps.pointers import STEP_SIZES
from fusewise.codegen.target import Target
from fusewise.lower.memory import Lifetime
from fusewise.trace import Trace

__all__ = ["find_lifetimes"]


def find_lifetimes(draft: ProgramDraft, target: Target, trace: Trace) -> ProgramDraft:
    """The pass that looks at which steps name an area. Two that run strip by strip are one moment; what holds all samples is used
    during all of the stretch."""
    found: dict[Area, Lifetime] = {}
    for number, step in enumerate(draft.steps):
        strips, stretch = _strips(draft, number), draft.stretch_of(number)
        pointers = step.pointers if isinstance(step, HostDraft) else _pointers(step)
        for pointer in pointers:
            if pointer.area == STEP_SIZES:
                continue
            area, (first, last) = pointer.area, strips
            if stretch is not None and area.root and area.root not in stretch.single:
                first, last = stretch.first, stretch.end - 1
            before = found.get(area)
            if before is not None:
                first, last = min(first, before.first), max(last, before.last)
            found[area] = Lifetime(area.buffer.nbytes, first, last)
    return replace(draft, lifetimes=found)


def _pointers(step: TaskDraft) -> Iterator[Pointer]:
    """Those of all versions."""
    return (pointer for one in step.versions for pointer in one.pointers)


def _strips(draft: ProgramDraft, number: int) -> tuple[int, int]:
    """The first and the last of the steps that run together with this one."""
    pair = draft.steps[max(0, number - 1) : number + 1]
    begins = [at for at, step in enumerate(pair, max(0, number - 1)) if isinstance(step, TaskDraft) and step.strips]
    return (begins[0], begins[0] + 1) if begins else (number, number)
