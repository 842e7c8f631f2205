"""Where the time goes: every group once, its work counted by hand, shares of what the machine can do, events for Perfetto."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusewise import api
from fusewise.benchmarking import limits as limits_module
from fusewise.benchmarking.bandwidth import LevelLimit, least_ns, measured_levels
from fusewise.benchmarking.caches import CacheLevel
from fusewise.benchmarking.limits import MachineLimits, ceilings, machine_limits, meeting_ns
from fusewise.benchmarking.roofline import alike, multiplications, profile, roofline, trace_events
from fusewise.codegen.families.winograd.kernel import WINOGRAD
from fusewise.ir.dtypes import INT64
from fusewise.lower.account import accounts
from fusewise.lower.program import Account
from fusewise.ops.build import GraphBuilder
from fusewise.runtime.executable import StepTiming

LIMITS = MachineLimits(gflops=100.0, copy_gbs=10.0)
LEVELS = (LevelLimit("L1", 1000, 100.0), LevelLimit("L2", 10_000, 50.0), LevelLimit("memory", None, 10.0))


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
    machine = {"gflops": 100.0, "copy_gbs": 10.0, "threads": 2, "levels": [], "disturbed": ""}
    assert found["machine"] == machine
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
    row = {"operators": "MatMul", "flops": 4000, "bytes": 100, "kernels": ["product rows=2"], "level": "L1"}
    row |= {"ceiling_gflops": 8.0, "ceiling_gbs": 1.0}
    times = [("a", 0.001, 0.25), ("b", 0.003, 0.75)]
    rows = [row | {"group": k, "ms": ms, "share": s, "nodes": [name]} for k, (name, ms, s) in enumerate(times)]
    rows.append(rows[0] | {"group": 2, "kernels": ["product rows=4"], "ms": 0.005, "share": 0.0})
    other, both = alike({"groups": rows})
    assert (other["count"], other["ms"], other["nodes"]) == (1, 0.005, ["a"])
    assert (both["count"], both["ms"], both["share"], both["nodes"]) == (2, pytest.approx(0.004), 1.0, ["a", "b"])
    assert (both["gflops"], both["gbs"], both["bound"]) == (pytest.approx(2.0), pytest.approx(0.05), "compute")
    assert both["peak"] == pytest.approx(0.25)
    assert [r["nodes"] for r in rows] == [["a"], ["b"], ["a"]], "what is given stays"


def test_events_have_a_lane_for_each_worker(model: api.Model) -> None:
    feeds = model.random_inputs()
    found, events = profile(model.executable, feeds, lambda low: LIMITS, 3)
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


# --- ceilings -------------------------------------------------------------------------------------------------------


def test_bytes_lie_in_the_nearest_caches_that_hold_them() -> None:
    assert least_ns(LEVELS, 500) == (5.0, "L1")
    assert least_ns(LEVELS, 1000) == (10.0, "L1")
    assert least_ns(LEVELS, 6000) == (10.0 + 100.0, "L2")
    assert least_ns(LEVELS, 21_000) == (10.0 + 200.0 + 1000.0, "memory")
    assert least_ns(LEVELS, 0) == (0.0, "L1")


@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=2))
def test_more_bytes_take_no_less_time(sizes: list[int]) -> None:
    less, more = (least_ns(LEVELS, nbytes)[0] for nbytes in sorted(sizes))
    assert less <= more <= max(sizes) / LEVELS[-1].gbs


def test_ceilings_of_groups(model: api.Model) -> None:
    program = model.executable.contents.program
    run = [StepTiming(k, "", step.group, k < 2, 0, 1000, ((0, 1000),)) for k, step in enumerate(program.steps)]
    rows = {row["operators"]: row for row in roofline(program, [run], MachineLimits(100.0, 10.0, LEVELS), 2)["groups"]}
    product, picked = rows["MatMul+Relu"], rows["Gather"]
    nbytes = program.accounts[0].nbytes
    assert product["level"] == "memory" and product["ceiling_gbs"] == pytest.approx(
        nbytes / least_ns(LEVELS, nbytes)[0]
    )
    assert picked["level"] == "L2" and picked["bound"] == "memory"
    assert picked["peak"] == pytest.approx(least_ns(LEVELS, picked["bytes"])[0] / 1000)


@pytest.mark.parametrize(
    "way, expected",
    [
        ("host", 1.0),
        ("product rows=2 vectors=4", 1.0),
        ("winograd-convolution outputs=4 saves=4", 4.0),
        ("byte-product rows=2 instruction=vpdpbusd right=packed", 4.0),
        ("bfloat16-product instruction=dpbf16 saves=1.143", 2.286),
        ("something instruction=unheard-of", 1.0),
    ],
)
def test_what_one_multiplication_stands_for(way: str, expected: float) -> None:
    assert multiplications(way) == pytest.approx(expected)


@pytest.mark.parametrize(
    "outputs, taps, stride, times",
    [
        *((4, (3, 3), 1, 4.0), (5, (3, 3), 1, 4.6), (6, (3, 3), 1, 5.1), (4, (5, 5), 1, 6.25)),
        *((4, (1, 7), 1, 2.8), (6, (1, 7), 1, 3.5), (5, (3, 3), 2, 1.9), (4, (3, 3), 2, 1.8), (3, (3, 3), 2, 1.65)),
    ],
)
def test_what_winograd_saves(outputs: int, taps: tuple[int, int], stride: int, times: float) -> None:
    """As `families.winograd.kernel` has it at its top."""
    rows, columns = (SimpleNamespace(kernel=count, stride=stride) for count in taps)
    found = WINOGRAD.saves(SimpleNamespace(rows=rows, columns=columns), SimpleNamespace(outputs=outputs))
    assert found == pytest.approx(times, rel=0.025)


def test_a_program_says_what_its_kernels_save() -> None:
    b = GraphBuilder()
    weight = b.constant(np.random.default_rng(0).standard_normal((64, 3, 7, 7)).astype(np.float32))
    graph = b.finish(b.op("Conv", b.input("x", (1, 3, 224, 224)), weight, pads=[3] * 4, strides=[2, 2]))
    steps = api.compile(graph, cache=False, threads=1).executable.contents.program.steps
    ways = [step.way for step in steps if "winograd" in getattr(step, "way", "")]
    if not ways:
        pytest.skip("another kernel is faster on this machine")
    assert all(multiplications(way) > 1 for way in ways)


def test_levels_of_this_machine_get_slower_outwards() -> None:
    caches = (CacheLevel("L1", 32 << 10, 8), CacheLevel("L2", 40 << 10, 8), CacheLevel("L3", 4 << 20, 16, shared=True))
    found = measured_levels(1, caches)
    assert [(level.name, level.nbytes) for level in found] == [("L1", 72 << 10), ("L3", 4 << 20), ("memory", None)]
    assert found[0].gbs >= found[1].gbs >= found[2].gbs > 0.01
    assert all(0 <= level.spread < 1 for level in found)


def test_limits_are_kept_for_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And measured again where code was faster, where the file says nothing, and while other programs are in the way."""
    made: list[float] = []

    def levels(workers: int) -> tuple[LevelLimit, ...]:
        made.append(workers)
        return tuple(
            replace(level, gbs=level.gbs * len(made), spread=0.5 if len(made) == 1 else 0.01) for level in LEVELS
        )

    monkeypatch.setattr(limits_module, "machine_limits", lambda workers: LIMITS)
    monkeypatch.setattr(limits_module, "measured_levels", levels)
    folder = tmp_path / "kept"
    first = ceilings(2, folder)
    assert "L1 by 50%" in first.disturbed and not any(folder.iterdir())
    second = ceilings(2, folder)
    assert not second.disturbed and ceilings(2, folder) == second and made == [2, 2]
    assert ceilings(1, folder).levels != second.levels
    third = ceilings(2, folder, second)
    assert third.levels[0].gbs > second.levels[0].gbs and ceilings(2, folder) == third
    monkeypatch.setattr(limits_module, "machine_name", lambda: "another")
    assert ceilings(2, folder).levels != third.levels
    path = folder / "limits-2.json"
    for text in ("", "[]", "{}", path.read_text().replace("100.0", "-1.0"), path.read_text().replace("null", "3")):
        path.write_text(text)
        before = len(made)
        ceilings(2, folder)
        assert len(made) == before + 1


def test_a_group_faster_than_its_ceiling_has_the_machine_measured_again(model: api.Model) -> None:
    slow, asked = MachineLimits(1e-6, 1e-6, LEVELS), []

    def limits(low: MachineLimits | None) -> MachineLimits:
        asked.append(low)
        return slow if low is None else MachineLimits(1e6, 1e6, tuple(replace(one, gbs=1e6) for one in LEVELS))

    found, _ = profile(model.executable, model.random_inputs(), limits, 1)
    assert asked == [None, slow]
    assert all(row["peak"] < 1.05 for row in found["groups"])
