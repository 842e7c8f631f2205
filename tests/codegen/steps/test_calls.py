"""Steps whose kernel is called several times."""

from __future__ import annotations

from dataclasses import replace

from tests.codegen.steps.drafts import MACHINE, chain, draft_before, native

from fusewise.codegen.kernel import Argument
from fusewise.codegen.steps.calls import CALL_BYTES, call_numbers, repeat_calls
from fusewise.codegen.steps.draft import Visit
from fusewise.trace import Trace


def test_a_step_is_run_for_each_number_that_its_kernel_is_given() -> None:
    draft = draft_before(repeat_calls, chain(3))
    first, often, last = native(draft)
    often = replace(often, arguments=(Argument("call", nbytes=3 * CALL_BYTES),))
    by_sample = tuple(Visit(number, sample) for sample in range(2) for number in range(3))
    given = replace(draft, steps=(first, often, last), visits=by_sample)
    found = repeat_calls(given, MACHINE, Trace()).visits
    for sample in range(2):
        calls = [Visit(1, sample, call) for call in range(3)]
        assert list(found[5 * sample :][:5]) == [Visit(0, sample), *calls, Visit(2, sample)]
    assert len(found) == 10 and given.visits == by_sample


def test_where_none_is_told_the_order_stays() -> None:
    draft = draft_before(repeat_calls, chain(2))
    assert repeat_calls(draft, MACHINE, Trace()) is draft


def test_numbers_count_up() -> None:
    assert call_numbers(3 * CALL_BYTES).tolist() == [0, 1, 2]
