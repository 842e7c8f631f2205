"""What a model takes: a run by worker without overlaps, and compiling by stage, measured where it happens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fusewise
from fusewise.benchmarking.trace_format import Bar, TraceTrack, events_of, named
from fusewise.compiled import Model
from fusewise.compiling import StageClock
from fusewise.reporting.document.times import compile_stages_of, timeline_of, times_of, waits_of
from fusewise.trace import Trace


def model(rows: int | str) -> onnx.ModelProto:
    """Two products with a Relu between, of so many rows."""
    weights = [np.random.default_rng(k).normal(size=(64, 64)).astype(np.float32) for k in range(2)]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["b"], "between"),
        helper.make_node("MatMul", ["b", "w1"], ["y"], "second"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 64]) for name in "xy"]
    constants = [numpy_helper.from_array(array, f"w{k}") for k, array in enumerate(weights)]
    return helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:], constants), opset_imports=[helper.make_opsetid("", 21)]
    )


def compiled(rows: int | str = 32, folder: Path | None = None) -> Model:
    return fusewise.compile(model(rows), trace=Trace(), threads=2, cache=folder or False)


@pytest.mark.parametrize("rows", [32, "batch"])
def test_times(rows: int | str, tmp_path: Path) -> None:
    made = compiled(rows, tmp_path)
    found = times_of(made, runs=3, folder=tmp_path)
    assert found["runs"] == 3 and found["ms"] > 0 and found["limits"]["gflops"] > 0 and found["limits"]["levels"]
    steps = made.executable.contents.program.steps
    assert {bar["step"] for bar in found["timeline"]} == set(range(len(steps)))
    assert {bar["worker"] for bar in found["timeline"]} == {row["worker"] for row in found["workers"]}
    assert {row["group"] for row in found["groups"]} == {step.group for step in steps}
    assert all(row["flops"] > 0 and row["kernels"] != ["host"] for row in found["groups"])
    assert sum(row["share"] for row in found["groups"]) == pytest.approx(1.0)
    assert all(type(row[key]) is int for row in found["groups"] for key in ("flops", "bytes"))


def bar(step: int, worker: int, start: float, us: float) -> Bar:
    return Bar("", "", TraceTrack(1, 1 + worker), round(start * 1e3), round(us * 1e3), {"step": step})


def test_bars_of_a_worker_do_not_overlap() -> None:
    names = [named("thread_name", TraceTrack(1, 1), "worker 0")]
    events = events_of([bar(1, 0, 1.0, 4.0), bar(0, 0, 0.0, 5.0), bar(0, 1, 0.0, 2.0), bar(2, 1, 9.5, 0.5)])
    timeline = timeline_of([*names, *events])
    assert [(one["step"], one["worker"], one["start_us"], one["us"]) for one in timeline] == [
        (0, 0, 0.0, 5.0),
        (0, 1, 0.0, 2.0),
        (1, 0, 5.0, 4.0),
        (2, 1, 9.5, 0.5),
    ]
    assert waits_of(timeline) == [
        {"worker": 0, "busy_us": 9.0, "wait_us": 1.0},
        {"worker": 1, "busy_us": 2.5, "wait_us": 7.5},
    ]
    assert waits_of([]) == []


def test_stages_of_compiling() -> None:
    told: list[str] = []
    made = fusewise.compile(model(32), trace=Trace(), cache=False, progress=lambda what, share: told.append(what))
    stages = compile_stages_of(made.summary)
    names = [row["name"] for row in stages["stages"]]
    assert [name for name in names if name != "other"] == [*dict.fromkeys(told)]
    assert {"loading", "rewriting", "fusing", "generating code", "compiling", "linking", "packing"} <= set(names)
    assert stages["ms"] == made.summary["compile_ms"]
    assert sum(row["ms"] for row in stages["stages"]) == pytest.approx(stages["ms"], abs=0.1)


def test_an_opened_model_was_not_compiled(tmp_path: Path) -> None:
    compiled().save(tmp_path / "m.fw")
    stages = compile_stages_of(fusewise.open_compiled(tmp_path / "m.fw").summary)
    assert [row["name"] for row in stages["stages"]] == ["opening"]


def test_a_stage_that_comes_again_is_one() -> None:
    clock = StageClock()
    for stage in ("loading", "compiling: a kernel", "compiling: another", "loading"):
        clock(stage, 0.0)
    assert [row["name"] for row in clock.stages] == ["loading", "compiling"]
    assert StageClock().stages == []
