"""Where the time goes: every group once, its work counted by hand, shares of what the machine can do, events for Perfetto."""

from __future__ import annotations

import numpy as np
import pytest

from fusewise import api
from fusewise.benchmarking.limits import MachineLimits, machine_limits, meeting_ns
from fusewise.benchmarking.roofline import alike, profile, roofline, trace_events
from fusewise.ir.dtypes import INT64
from fusewise.lower.account import accounts
from fusewise.lower.program import Account
from fusewise.ops.build import GraphBuilder
from fusewise.runtime.executable import StepTiming

LIMITS = MachineLimits(gflops=100.0, copy_gbs=10.0)


@pytest.fixture(scope="module")
def model() -> api.Model:
    """relu(x @ w), rows of it picked, sorted on the host."""
    b = GraphBuilder("net")
    product = b.op("MatMul", b.input("x", (32, 64)), b.constant(np.ones((64, 48), np.float32)))
    picked = b.op("Gather", b.op("Relu", product), b.input("rows", (3,), INT64))
    best = b.op("Unique", picked)
    return api.compile(b.finish(picked, best), threads=2, cache=False)


def test_work_of_groups_counted_by_hand(model: api.Model) -> None:
    product, picked, sorted_ = model.executable.contents.program.accounts
    assert product == Account(
        "MatMul+Relu", product.nodes, 2 * 32 * 64 * 48 + 32 * 48, 4 * (32 * 64 + 64 * 48 + 32 * 48)
    )
    assert len(product.nodes) == 2
    assert picked.operators == "Gather"
    assert picked.nbytes == 4 * (3 * 48) + 8 * 3 + 4 * (3 * 48), "only the rows that are picked are read"
    assert (sorted_.operators, sorted_.flops >= 0) == ("Unique", True)


def test_accounts_stay_with_a_compiled_file(model: api.Model, tmp_path) -> None:
    model.save(tmp_path / "m.fw")
    opened = api.open_compiled(tmp_path / "m.fw").executable.contents.program
    assert opened.accounts == model.executable.contents.program.accounts
    assert [getattr(step, "way", "host") for step in opened.steps] == [
        getattr(step, "way", "host") for step in model.executable.contents.program.steps
    ]


def test_what_has_no_known_size_counts_nothing() -> None:
    b = GraphBuilder()
    from fusewise.ir.partition import singletons

    graph = b.finish(b.op("Relu", b.input("x", ("n", 3))))
    assert [(a.flops, a.nbytes) for a in accounts(graph, singletons(graph).groups)] == [(0, 0)]


def test_shares_of_the_machine(model: api.Model) -> None:
    """Two runs with made-up times: 2 us and 4 us for the product, 1 us for each of the others."""
    program = model.executable.contents.program

    def run(first: int) -> list[StepTiming]:
        ends = [first, first + 1000, first + 2000]
        starts = [0, *ends[:-1]]
        return [
            StepTiming(k, "", step.group, k < 2, s, e, ((s, e),))
            for k, (step, s, e) in enumerate(zip(program.steps, starts, ends, strict=True))
        ]

    found = roofline(program, [run(2000), run(4000)], LIMITS, 2)
    assert found["machine"] == {"gflops": 100.0, "copy_gbs": 10.0, "threads": 2}
    assert found["ms"] == pytest.approx(0.005)
    first, *others = found["groups"]
    product = program.accounts[0]
    assert (first["operators"], first["ms"], first["bound"]) == ("MatMul+Relu", 0.003, "memory")
    assert first["gflops"] == pytest.approx(product.flops / 3000)
    assert first["gbs"] == pytest.approx(product.nbytes / 3000)
    assert first["peak"] == pytest.approx(max(product.flops / 3000 / 100, product.nbytes / 3000 / 10))
    assert first["share"] == pytest.approx(0.6)
    assert {row["operators"] for row in others} == {"Gather", "Unique"}
    assert [row["kernels"] for row in others if row["operators"] == "Unique"] == [["host"]]


def test_equal_groups_stand_together() -> None:
    row = {"operators": "MatMul", "flops": 4000, "bytes": 100, "kernels": ["product rows=2"]}
    times = [("a", 0.001, 0.25), ("b", 0.003, 0.75)]
    rows = [row | {"group": k, "ms": ms, "share": s, "nodes": [name]} for k, (name, ms, s) in enumerate(times)]
    rows.append(rows[0] | {"group": 2, "kernels": ["product rows=4"], "ms": 0.005, "share": 0.0})
    other, both = alike({"machine": {"gflops": 8.0, "copy_gbs": 1.0, "threads": 2}, "groups": rows})
    assert (other["count"], other["ms"], other["nodes"]) == (1, 0.005, ["a"])
    assert (both["count"], both["ms"], both["share"], both["nodes"]) == (2, pytest.approx(0.004), 1.0, ["a", "b"])
    assert (both["gflops"], both["gbs"], both["bound"]) == (pytest.approx(2.0), pytest.approx(0.05), "compute")
    assert both["peak"] == pytest.approx(0.25)
    assert [r["nodes"] for r in rows] == [["a"], ["b"], ["a"]], "what is given stays"


def test_events_have_a_lane_for_each_worker(model: api.Model) -> None:
    feeds = model.random_inputs()
    found, events = profile(model.executable, feeds, LIMITS, 3)
    assert {row["group"] for row in found["groups"]} == {0, 1, 2}
    lanes = [event for event in events if event["ph"] == "M"]
    assert [event["args"]["name"] for event in lanes] == ["worker 0", "worker 1"]
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == 2 + 2 + 1, "two workers on each kernel, one on the host"
    assert {event["cat"] for event in spans} == {"kernel", "host"}
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in spans)
    assert min(event["ts"] for event in spans) == 0
    assert spans[0]["args"]["kernel"].startswith("product")
    assert trace_events(model.executable.contents.program, []) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_the_machine_has_limits(workers: int) -> None:
    found = machine_limits(workers)
    assert found.gflops > 0.1
    assert found.copy_gbs > 0.01


def test_meeting_takes_longer_than_being_alone() -> None:
    assert 0 < meeting_ns(1) < meeting_ns(2)
