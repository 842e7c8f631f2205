"""Which kernel runs a task: the first that accepts and is allowed, another where it is asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.codegen.steps.drafts import MACHINE, chain, draft_before, native

from fusewise.codegen.choose import alternatives, choose_kernels
from fusewise.trace import Trace


def test_the_first_that_accepts_and_is_told_of() -> None:
    draft, trace = draft_before(choose_kernels, chain(2)), Trace()
    found = native(choose_kernels(draft, MACHINE, trace))
    assert [step.work for step in found] == list(draft.work)
    for step in found:
        first = next(alternatives(step.work.bound.task, MACHINE))
        assert step.way.key == first.key
    assert [(event.what, event.where) for event in trace.events] == [
        (step.way.kernel.name, step.work.nodes) for step in found
    ]


def test_where_all_are_refused_definitions_are_taken() -> None:
    draft = draft_before(choose_kernels, chain(1))
    (usual,) = native(choose_kernels(draft, MACHINE, Trace()))
    trace = Trace(disabled=frozenset((usual.way.kernel.name,)))
    (other,) = native(choose_kernels(draft, MACHINE, trace))
    assert other.way.kernel.name != usual.way.kernel.name
    assert usual.work.bound.task.anchor is not None and other.work.bound.task.anchor is None
    assert [event.applied for event in trace.events] == [False, True]


def test_a_kernel_is_refused_at_one_node_and_equal_tasks_share_theirs() -> None:
    draft = draft_before(choose_kernels, chain(6))
    names = [node.label for node in draft.graph.nodes]
    usual = native(choose_kernels(draft, MACHINE, Trace()))
    kernel = usual[2].way.kernel.name
    trace = Trace(disabled=frozenset((f"{kernel}@{names[2]}",)))
    found = native(choose_kernels(draft, MACHINE, trace))
    assert [step.work.nodes for step in found] == [(name,) for name in names]
    others = [k for k in range(6) if k != 2]
    assert [found[k].way.key for k in others] == [usual[k].way.key for k in others]
    assert found[2].way.kernel.name != kernel
    assert len({step.way.key for step in usual[1:-1]}) == 1
    assert {event.where for event in trace if not event.applied} == {(names[2],)}
    titled = Trace(disabled=frozenset((f"{kernel}@MatMul",)))
    assert kernel not in {step.way.kernel.name for step in native(choose_kernels(draft, MACHINE, titled))}
    assert not trace.idle(trace.disabled) and not titled.idle(titled.disabled)


@pytest.mark.parametrize("number", [1, 2])
def test_a_way_that_is_asked_for(number: int) -> None:
    draft = draft_before(choose_kernels, chain(1))
    task = native(choose_kernels(draft, MACHINE, Trace()))[0].work.bound.task
    trace = Trace()
    asked = replace(draft, ways={task.digest: number})
    (step,) = native(choose_kernels(asked, MACHINE, trace))
    assert step.way.key == list(alternatives(task, MACHINE))[number].key
    assert [event.reason for event in trace.events] == ["measured"]
