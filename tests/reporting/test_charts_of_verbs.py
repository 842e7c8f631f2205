"""Charts of what single verbs find: their figures are those of the part, whatever the part leaves out."""

from __future__ import annotations

from typing import Any

from tests.reporting.test_charts import values

from fusewise.reporting.charts import charts_of, with_charts
from fusewise.reporting.document.bench import bench_part


def test_a_search() -> None:
    points = [{"cost": 3.0, "ceiling": 3.15, "rule": None}, {"cost": 2.0, "ceiling": 2.1, "rule": "merge"}]
    (chart,) = charts_of({"search": {"cost": "time", "unit": "ms", "points": points}})
    assert chart["rows"][1:] == [[0, "input", 3.0], [1, "merge", 2.0]]
    assert [row["ceiling"] for row in values(chart) if "ceiling" in row][:2] == [3.15, 2.1]


def test_orders_of_passes_the_best_first() -> None:
    orders = [{"passes": ["A", "B"], "cost": 2.0}, {"passes": [], "cost": 1.0}, {"passes": ["B"], "cost": None}]
    (chart,) = charts_of({"passes": {"orders": orders, "search": {"unit": "ms"}}})
    assert chart["rows"] == [["", "median, ms"], ["no passes", 1.0], ["A, B", 2.0]]
    latency = {"latency_p50_ms": 1.0, "latency_p90_ms": 1.5, "latency_p99_ms": 2.0}
    rows = [{"pipeline": "paper", "latency": latency}, {"pipeline": "other", "latency": None}]
    (chart,) = charts_of({"passes": {"experiment": {"name": "x", "rows": rows}}})
    assert [row[0] for row in chart["rows"][1:]] == ["paper"]


def test_orders_that_were_timed_in_turn_have_their_spread() -> None:
    default = {"passes": [], "fusion": "dnnfusion", "p50_ms": 1.0, "min_ms": 0.9, "p90_ms": 1.5}
    raced = [default, {**default, "passes": ["A"], "p50_ms": 0.8}]
    (chart,) = charts_of({"passes": {"search": {"unit": "ms", "raced": raced}}})
    assert chart["rows"][1:] == [["no passes (dnnfusion)", 1.0, 0.9, 1.5], ["A (dnnfusion)", 0.8, 0.9, 1.5]]


def test_a_plan_that_was_found_at_once_has_no_course() -> None:
    part = {"course": [[0.1, 1, 5e6], [0.2, 1, 5e6]], "unit": "bytes", "objective": "dram", "bound": 5e6}
    assert charts_of({"plan": part}) == []


def test_the_course_of_a_plan() -> None:
    mib = 2**20
    steps = [(0.0, 1, 5), (0.5, 1, 4), (0.5, 20, 4), (2.0, 90, 3), (4.0, 100, 3)]
    course = [[seconds, plans, cost * mib] for seconds, plans, cost in steps]
    part = {"course": course, "unit": "bytes", "objective": "dram", "bound": 3 * mib, "summary": {"optimal": True}}
    plans, seconds = charts_of({"plan": part})
    assert plans["rows"][1:] == [[1.0, 4.0], [90.0, 3.0]]
    assert seconds["rows"][1:] == [[0.0, 5.0], [0.5, 4.0], [2.0, 3.0]]
    assert charts_of({"plan": part | {"course": [[0.1, 1, 3e6], [0.2, 1, 3e6]]}}) == []
    assert "optimum" in plans["about"] and max(row.get("x", 0) for row in values(plans)) == 100


def test_runtimes() -> None:
    runtimes: dict[str, Any] = {
        "onnxruntime": {"p50_ms": 2.0, "p90_ms": 3.0, "min_ms": 1.5},
        "fusewise": {"p50_ms": 1.0, "p90_ms": 1.2, "min_ms": 0.9},
        "torch": {"error": "no"},
    }
    found = {
        "threads": 2,
        "precision": "float32",
        "best_peer": "x",
        "ratio": 2.0,
        "max_rel_error": 0.0,
        "runtimes": runtimes,
    }
    (chart,) = charts_of({"bench": bench_part(found)})
    assert chart["rows"][1:] == [["fusewise", 1.0, 0.9, 1.2], ["onnxruntime", 2.0, 1.5, 3.0]]


def test_two_reports() -> None:
    sides = [{"title": "m", "at": "monday"}, {"title": "m", "at": "tuesday"}]
    groups = [{"title": "Conv", "first": 1.0, "second": None}, {"title": "Relu", "first": None, "second": None}]
    (chart,) = charts_of({"comparison": {"sides": sides, "groups": groups, "stages": []}})
    assert chart["rows"] == [["", "m, monday, ms", "m, tuesday, ms"], ["Conv", 1.0, ""]]


def test_a_document_keeps_the_charts_that_it_has() -> None:
    assert with_charts({"charts": [], "compile": {"ms": 1.0, "stages": [{"name": "a", "ms": 1.0}]}})["charts"] == []
    assert [
        one["id"] for one in with_charts({"compile": {"ms": 1.0, "stages": [{"name": "a", "ms": 1.0}]}})["charts"]
    ] == ["compile-stages"]
