"""Steps whose kernel is called several times, one time after the other, so that workers meet in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fusewise.codegen.steps.draft import ProgramDraft, TaskDraft, Visit
from fusewise.codegen.target import Target
from fusewise.trace import Trace

__all__ = ["CALL_BYTES", "call_numbers", "calls_of", "repeat_calls"]

CALL_BYTES = 8
"""Of the number of a call, an int64."""


def call_numbers(nbytes: int) -> np.ndarray:
    """The numbers of so many bytes of calls."""
    return np.arange(nbytes // CALL_BYTES, dtype=np.int64)


def repeat_calls(draft: ProgramDraft, target: Target, trace: Trace) -> ProgramDraft:
    """The pass that runs a step once for each call of its kernel."""
    counts = [calls_of(step) if isinstance(step, TaskDraft) else 1 for step in draft.steps]

    def called() -> Iterator[Visit]:
        for visit in draft.visits:
            yield from (replace(visit, call=call) for call in range(counts[visit.step]))

    return draft if all(count == 1 for count in counts) else replace(draft, visits=tuple(called()))


def calls_of(step: TaskDraft) -> int:
    """How often a step's kernel is called: as often as it is given a number."""
    return next((argument.nbytes // CALL_BYTES for argument in step.arguments if argument.name == "call"), 1)
