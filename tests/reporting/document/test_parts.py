"""The report's parts about passes, answers and runtimes: whole, plain, and what the verbs found."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.reporting.document.test_searches import branches

from fusewise import api
from fusewise.benchmarking.verification import Case, Verification
from fusewise.reporting.document.bench import bench_part
from fusewise.reporting.document.passes import experiment_part, passes_part
from fusewise.reporting.document.verification import verification_part
from fusewise.select.pipeline import EXPERIMENTS
from fusewise.selecting import OrderSearch, experiment, selection, with_figures, with_search
from fusewise.trace import Event


def test_runs_lead_from_the_first_graph_to_the_last() -> None:
    graph = api.load("zoo:squeezenet1_1")
    found = selection(graph)
    told = passes_part(found, graph)
    assert json.loads(json.dumps(told)) == told
    nodes = len(graph.nodes)
    for run in told["runs"]:
        assert run["nodes_before"] == nodes and (run["changed"] or run["nodes_after"] == nodes)
        nodes = run["nodes_after"]
    assert nodes == told["nodes"]["after"] == len(found.outcome.graph.nodes)
    assert [run["pass"] for run in told["runs"] if run["changed"]] == told["order"]
    assert told["metrics"] == [] and told["search"] is None and told["orders"] == []


def test_what_a_pass_did_is_named() -> None:
    graph = api.load("zoo:tinybert")
    runs = passes_part(selection(graph), graph)["runs"]
    assert any(run["did"] for run in runs) and not any(run["did"] for run in runs if not run["changed"])


def test_a_search_for_an_order_tells_all_that_it_tried() -> None:
    graph = branches()
    found = with_search(selection(graph), graph, OrderSearch("estimate", seconds=20.0, budget=6, threads=1))
    told = passes_part(with_figures(found, threads=1), graph)
    assert len(told["orders"]) == told["search"]["tried"] > 1
    assert told["orders"][0]["cost"] == told["search"]["cost_default"]
    assert min(one["cost"] for one in told["orders"]) == told["search"]["cost_best"]
    latency = next(metric for metric in told["metrics"] if metric["name"] == "Latency")
    assert latency["unit"] == "ms" and latency["value"] > 0


def test_an_experiment_has_its_lists() -> None:
    rows = experiment(branches(), EXPERIMENTS["levels"][:2], budget=None)
    told = experiment_part("levels", rows)["experiment"]
    assert [row["pipeline"] for row in told["rows"]] == [one.name for one in EXPERIMENTS["levels"][:2]]
    assert all(row["latency"] is None and row["metrics"] == [] for row in told["rows"])


def test_answers_case_by_case() -> None:
    found = api.verify(branches(), inputs="hostile", cache=False)
    told = verification_part(found)
    assert json.dumps(told) and told["agrees"] and told["blamed"] is None
    assert [case["inputs"] for case in told["cases"]] == [case.inputs for case in found.cases]
    for case, one in zip(told["cases"], found.cases, strict=True):
        assert {row["output"]: row["error"] for row in case["outputs"]} == dict(one.errors)


def test_an_error_that_json_has_no_number_for() -> None:
    case = Case("NaN", False, {"y": float("inf")}, {"y": 1e-5})
    found = Verification(False, "onnxruntime", case.errors, case.tolerances, 3, cases=(case,))
    told = verification_part(found)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["max_rel_error"] is None and told["cases"][0]["outputs"] == [
        {"output": "y", "error": None, "tolerance": 1e-5}
    ]


@pytest.mark.parametrize("where, option", [(("a",), "--disable wrong@a"), ((), "--disable wrong")])
def test_the_decision_to_blame_comes_with_what_refuses_it(where: tuple[str, ...], option: str) -> None:
    found = replace(
        api.verify(branches(), cache=False), agrees=False, blamed=Event(3, "rewrite", "wrong", where, "why"), blame="it"
    )
    assert verification_part(found)["blamed"]["option"] == option


def test_runtimes_are_in_order_and_sizes_are_rows() -> None:
    rows = {"slow": {"p50_ms": 3.0}, "none": {"error": "cannot"}, "fusewise": {"p50_ms": 1.0}}
    one = {"runtimes": rows, "best_peer": "slow", "ratio": 3.0, "max_rel_error": 0.0}
    told = bench_part({"threads": 2, "precision": "float32", **one})
    assert [row["runtime"] for row in told["sizes"][0]["runtimes"]] == ["fusewise", "slow", "none"]
    several = bench_part({"threads": 2, "precision": "float32", "sizes": [{"symbols": {"n": 4}, **one}] * 2})
    assert [row["symbols"] for row in several["sizes"]] == [{"n": 4}, {"n": 4}]
