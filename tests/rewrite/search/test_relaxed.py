"""The search: what it finds with and without going up, that its prices and graphs are right, how it ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rewrite.search.modules import GPU, agree, branches, cost_on, interrupting, residual_module

from fusewise.errors import UsageError
from fusewise.ir.key import structural_key
from fusewise.ir.verify import verify
from fusewise.rewrite.cost import machine_named
from fusewise.rewrite.engine import drafts_of
from fusewise.rewrite.rules.table import SUBSTITUTIONS
from fusewise.rewrite.search.found import SearchLimits
from fusewise.rewrite.search.options import PricedGraph, option_of
from fusewise.rewrite.search.promise import Promise, Promises, deferred, kept
from fusewise.rewrite.search.relaxed import search
from fusewise.rewrite.substitute import carried_out, folded


def test_a_module_needs_a_step_up() -> None:
    graph, cost = residual_module(), cost_on(GPU)
    found = search(graph, SUBSTITUTIONS, cost, alpha=1.6)
    assert [node.op for node in found.graph.nodes] == ["Conv", "Relu", "Conv", "Relu"]
    first, *others = found.steps
    assert first.rule == "enlarge-kernel"
    assert first.cost_after > first.cost_before, "a 3x3 kernel alone costs more than a 1x1"
    assert found.cost < found.cost_before
    assert [step.cost_before for step in others] == [step.cost_after for step in found.steps[:-1]]
    agree(graph, found.graph)
    greedy = search(graph, SUBSTITUTIONS, cost, alpha=1.0)
    assert greedy.cost > found.cost
    assert "enlarge-kernel" not in [step.rule for step in greedy.steps]


def test_branches_of_two_sizes_become_one_convolution() -> None:
    graph = branches((16, 16), (1, 3), channels=16, size=14)
    found = search(graph, SUBSTITUTIONS, cost_on(GPU), alpha=1.6)
    assert [node.op for node in found.graph.nodes] == ["Conv", "Relu", "Identity"]
    agree(graph, found.graph)
    verify(found.graph)
    assert not any(isinstance(constant, Promise) for constant in found.graph.constants.values())


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.sampled_from([4, 8]), min_size=1, max_size=3),
    st.lists(st.sampled_from([1, 3]), min_size=3, max_size=3),
    st.sampled_from(["cpu", "gpu"]),
)
def test_prices_of_substitutions_are_those_of_the_graphs(widths: list[int], kernels: list[int], machine: str) -> None:
    graph = branches(tuple(widths), tuple(kernels[: len(widths)]))
    cost = cost_on(machine_named(machine))
    for _ in range(3):
        before, following = cost(graph), graph
        for draft in drafts_of(graph, SUBSTITUTIONS, weigh=Promises()):
            ready = deferred(draft)
            after = carried_out(graph, [ready])
            assert cost(after) - before == pytest.approx(option_of(PricedGraph(graph, cost), ready).change, abs=1e-9)
            following = after
        graph = following


def test_promises_are_kept_as_if_computed_at_once() -> None:
    graph = branches((32, 32), (1, 1), channels=16)
    promised = {d.rule.name: d for d in drafts_of(graph, SUBSTITUTIONS, weigh=Promises())}
    at_once = {d.rule.name: d for d in drafts_of(graph, SUBSTITUTIONS)}
    assert promised.keys() == at_once.keys() >= {"enlarge-kernel", "merge-parallel-convolutions"}
    for name, draft in promised.items():
        later = carried_out(graph, [deferred(draft)])
        promises = [name for name, constant in later.constants.items() if isinstance(constant, Promise)]
        assert promises or name not in ("enlarge-kernel", "merge-parallel-convolutions")
        assert structural_key(kept(later)) == structural_key(carried_out(graph, [folded(at_once[name])]))


def test_the_search_is_deterministic_and_meets_graphs_again() -> None:
    graph = branches((16, 16, 16), (1, 1, 3), channels=16, size=14)
    runs = [search(graph, SUBSTITUTIONS, cost_on(GPU), alpha=1.6, limits=SearchLimits(40)) for _ in range(2)]
    assert runs[0].steps == runs[1].steps
    assert (runs[0].explored, runs[0].duplicates) == (runs[1].explored, runs[1].duplicates)
    assert runs[0].duplicates > 0


def test_the_best_graph_is_never_worse_than_the_input() -> None:
    graph = branches((8,), (3,))
    found = search(graph, SUBSTITUTIONS, cost_on(machine_named("cpu")), alpha=1.6, limits=SearchLimits(5))
    assert found.graph is graph
    assert (found.cost, found.steps) == (found.cost_before, ())


@pytest.mark.parametrize("graphs, ended", [(1, "graphs"), (2, "graphs"), (10_000, "searched")])
def test_budget_in_graphs(graphs: int, ended: str) -> None:
    found = search(residual_module(), SUBSTITUTIONS, cost_on(GPU), alpha=1.6, limits=SearchLimits(graphs))
    assert found.ended == ended
    assert found.explored <= graphs


def test_budget_in_seconds() -> None:
    ticks = iter(range(1000))
    limits = SearchLimits(10_000, seconds=3, clock=lambda: float(next(ticks)))
    found = search(residual_module(), SUBSTITUTIONS, cost_on(GPU), alpha=1.5, limits=limits)
    assert (found.ended, found.explored) == ("seconds", 3)


def test_an_interruption_gives_the_best_so_far() -> None:
    graph, cost = residual_module(), cost_on(GPU)
    whole = search(graph, SUBSTITUTIONS, cost, alpha=1.6)
    assert search(graph, SUBSTITUTIONS, cost, alpha=1.6, progress=interrupting(0)).graph is graph
    found = search(graph, SUBSTITUTIONS, cost, alpha=1.6, progress=interrupting(whole.explored - 1))
    assert (found.ended, found.steps) == ("interrupted", whole.steps)


def test_few_graphs_wait_when_memory_is_short() -> None:
    found = search(
        branches((16, 16, 16), (1, 1, 3), channels=16, size=14),
        SUBSTITUTIONS,
        cost_on(GPU),
        alpha=1.6,
        limits=SearchLimits(40, waiting=4),
    )
    assert found.cost < found.cost_before


def test_wrong_limits_are_named() -> None:
    with pytest.raises(UsageError, match="alpha is 0.9"):
        search(residual_module(), SUBSTITUTIONS, cost_on(GPU), alpha=0.9)
    with pytest.raises(UsageError, match="0 graphs"):
        SearchLimits(0)
    with pytest.raises(UsageError, match="0 seconds"):
        SearchLimits(1, seconds=0)


def test_a_wide_machine_is_needed_for_merging_to_pay() -> None:
    """Where small results fill the machine, the zeros around a kernel cost what they cost."""
    graph = branches((16, 16), (1, 3), channels=16, size=14)
    found = search(graph, SUBSTITUTIONS, cost_on(replace(GPU, width=1, start_us=0.0)), alpha=1.6)
    assert "enlarge-kernel" not in [step.rule for step in found.steps]
