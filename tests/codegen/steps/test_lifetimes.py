"""From which step to which memory is used."""

from __future__ import annotations

from dataclasses import replace

from tests.codegen.steps.drafts import MACHINE, chain, draft_before, native

from fusewise.codegen.steps.draft import ProgramDraft, SampleRange
from fusewise.codegen.steps.lifetimes import find_lifetimes
from fusewise.trace import Trace


def planned(draft: ProgramDraft) -> list[tuple[int, int]]:
    """The first and the last step of what lies in the arena, in the order in which steps name it."""
    found = find_lifetimes(draft, MACHINE, Trace()).lifetimes
    return [(used.first, used.last) for area, used in found.items() if area.buffer.kind == "arena"]


def test_from_the_step_that_writes_to_the_last_that_reads() -> None:
    draft = draft_before(find_lifetimes, chain(4))
    assert planned(draft) == [(0, 1), (1, 2), (2, 3)]
    lifetimes = find_lifetimes(draft, MACHINE, Trace()).lifetimes
    assert all(used.nbytes == area.buffer.nbytes for area, used in lifetimes.items())
    assert draft.lifetimes == {}


def test_steps_in_strips_are_one_moment() -> None:
    draft = draft_before(find_lifetimes, chain(4))
    steps = native(draft)
    steps[1] = replace(steps[1], strips=4)
    assert planned(replace(draft, steps=tuple(steps))) == [(0, 2), (1, 2), (1, 3)]


def test_what_holds_all_samples_is_used_during_all_of_a_stretch() -> None:
    draft = draft_before(find_lifetimes, chain(4))
    roots = [step.work.places["out0"][0] for step in native(draft)]
    for single, wanted in ((set(roots[1:2]), [(0, 2), (1, 2), (0, 3)]), (set(roots), [(0, 1), (1, 2), (2, 3)])):
        stretch = SampleRange(0, 3, 2, (), frozenset(single))
        assert planned(replace(draft, stretches=(stretch,))) == wanted
