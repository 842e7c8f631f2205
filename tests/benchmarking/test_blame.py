"""Bisection over decisions, on a made-up compiler whose decisions and faults are known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusewise.benchmarking.blame import first_bad
from fusewise.trace import Trace


def compiler(decisions: int, faulty: set[int]):
    """Takes `decisions` numbered decisions, with remarks in between; right unless a faulty one was taken."""

    def agrees(trace: Trace) -> bool:
        good = True
        for k in range(decisions):
            trace.add("layout", "remark", (f"node{k}",))
            taken = trace.allows("rewrite", "rule", (f"node{k}",))
            good = good and not (taken and k in faulty)
        trace.add("layout", "done")
        return good

    return agrees


@given(st.data())
def test_the_first_faulty_decision_is_found_in_few_builds(data):
    decisions = data.draw(st.integers(1, 200))
    faulty = data.draw(st.sets(st.integers(0, decisions - 1), min_size=1, max_size=3))
    blame = first_bad(compiler(decisions, faulty))
    assert blame.event is not None
    assert blame.event.where == (f"node{min(faulty)}",) and blame.event.applied
    assert blame.confirmed == (len(faulty) == 1)
    assert blame.builds <= math.ceil(math.log2(decisions + 1)) + 3
    assert f"decision {min(faulty)}" in str(blame)


def test_a_fault_in_what_is_always_done_is_said_to_be_that():
    blame = first_bad(lambda trace: False)
    assert blame.event is None and "no single decision" in str(blame)


def test_a_decision_without_a_place_is_disabled_by_its_name():
    def agrees(trace: Trace) -> bool:
        return not trace.allows("pass", "fold")

    blame = first_bad(agrees)
    assert blame.confirmed and "the whole graph" in str(blame)


def test_the_search_needs_answers_that_differ():
    assert first_bad(lambda trace: True).event is None


@pytest.mark.parametrize("limit, taken", [(0, 0), (3, 3), (None, 5)])
def test_a_limit_refuses_later_decisions(limit, taken):
    trace = Trace(limit=limit)
    compiler(5, set())(trace)
    assert sum(event.applied for event in trace if event.kind == "rewrite") == taken
