"""The runner of passes: what is recorded of a pass that may not run, and that nothing is run twice on the same graph."""

from __future__ import annotations

from typing import Any

from fusewise.ir.graph import Graph
from fusewise.passes.runner import PassStep, Runner
from fusewise.trace import BY_NAME, Trace


def runner(trace: Trace, refusal: str = "") -> Runner:
    return Runner(trace, lambda: 0.0, {"idle": refusal})


def counting(asked: list[str]) -> PassStep:
    def idle(graph: Graph, trace: Trace) -> Graph:
        asked.append(graph.name)
        return graph

    return PassStep("idle", idle, "", "exact")


def test_what_is_disabled_by_name_leaves_an_event(parse: Any) -> None:
    asked: list[str] = []
    trace = Trace(disabled=frozenset({"idle"}))
    used = runner(trace)
    used.in_turn(parse("input x: float32[2]\nreturn x"), [counting(asked)])
    assert not asked
    assert [run.why for run in used.runs] == [BY_NAME]
    assert not trace.idle({"idle"})


def test_what_is_refused_says_why_and_leaves_none(parse: Any) -> None:
    asked: list[str] = []
    trace = Trace()
    used = runner(trace, "not wanted")
    used.settled(parse("input x: float32[2]\nreturn x"), [counting(asked)])
    assert not asked
    assert [run.why for run in used.runs] == ["not wanted"]
    assert not trace.events


def test_nothing_is_run_twice_on_the_same_graph(parse: Any) -> None:
    asked: list[str] = []
    used, step, graph = runner(Trace()), counting(asked), parse("input x: float32[2]\nreturn x")
    used.in_turn(graph, [step, step])
    assert [run.why for run in used.runs] == ["", "nothing changed since it last ran"]
    used.settled(graph, [step])
    assert len(asked) == 1
