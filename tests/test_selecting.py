"""Selection as a user asks for it: orders that are measured, searched for, and used by the compiler."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fusewise import api
from fusewise.benchmarking.inputs import random_feeds
from fusewise.benchmarking.power import NOT_HERE
from fusewise.benchmarking.timing import TimingBudget
from fusewise.codegen.target import TARGETS
from fusewise.errors import UsageError
from fusewise.ir.graph import Graph
from fusewise.measuring import figures_of
from fusewise.ops.build import GraphBuilder
from fusewise.outcomes import auto, outcome_of
from fusewise.runtime.measure import machine_name
from fusewise.runtime.profile import ProfileDatabase
from fusewise.select.pipeline import BL, DEFAULT, NONE, Pipeline
from fusewise.select.pipeline_file import write_pipeline
from fusewise.select.sequence import run_pipeline
from fusewise.selecting import OrderSearch, experiment, searched, selection, with_search
from fusewise.zoo.scaled import Scale, scaled
from fusewise.zoo.styles import styled

AVX2 = next(target for target in TARGETS if target.name == "avx2")
QUICK = TimingBudget(runs=3, seconds=0.01, limit_seconds=1.0, warmup=1)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return styled(scaled("resnet", Scale(size=16, width=4)), "tensorflow")


@pytest.fixture(scope="module")
def expected(graph: Graph) -> list[np.ndarray]:
    return api.compile(graph, threads=1, cache=False, passes=False).run(None, random_feeds(graph))


@pytest.fixture(scope="module")
def small() -> Graph:
    """One kernel, quick to compile."""
    b = GraphBuilder()
    x = b.input("x", (4, 8))
    w = b.constant(np.ones((8, 8), np.float32), "w")
    return b.finish(b.op("Relu", b.op("Identity", b.op("MatMul", x, w))))


def test_the_machine_says_which_convolutions_are_of_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Winograd's algorithm suits this one, except where one instruction adds four products of bytes up."""
    b = GraphBuilder()
    x = b.input("x", (1, 32, 12, 12))
    scale, zero = b.constant(np.array(0.05, np.float32), "scale"), b.constant(np.array(117, np.uint8), "zero")
    weights = b.constant(np.random.default_rng(0).integers(-127, 128, (32, 32, 3, 3)).astype(np.int8), "weights")
    read = b.op("DequantizeLinear", b.op("QuantizeLinear", x, scale, zero), scale, zero)
    graph = b.finish(b.op("Conv", read, b.op("DequantizeLinear", weights, scale), pads=(1, 1, 1, 1)))
    found = {}
    for features in ("+avx2", "+avx2,+avxvnni"):
        monkeypatch.setattr("fusewise.outcomes.host_target", lambda: replace(AVX2, features=features))  # noqa: B023
        found[features] = {node.op for passes in ("auto", "default") for node in outcome_of(passes, graph).graph.nodes}
    assert "ConvInteger" not in found["+avx2"]
    assert "Conv" not in found["+avx2,+avxvnni"]


def test_every_way_to_name_passes_compiles_to_the_same_answers(
    graph: Graph, expected: list[np.ndarray], tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    write_pipeline(path, selection(graph).pipeline)
    groups = {}
    for passes in ("auto", "default", "BL", "RN", str(path)):
        model = api.compile(graph, threads=1, cache=False, passes=passes)
        (found,) = model.run(None, random_feeds(graph))
        assert np.max(np.abs(found - expected[0])) <= 1e-5 * np.max(np.abs(expected[0]))
        groups[passes] = model.summary["groups"]
    assert groups["auto"] == groups["default"] == groups[str(path)] < groups["RN"] < groups["BL"]


def test_a_file_is_replayed_and_others_are_refused(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    found = selection(graph)
    write_pipeline(path, found.pipeline)
    assert outcome_of(str(path), graph).key == found.outcome.key == auto(graph).key
    path.write_text(path.read_text().replace("format = 1", "format = 9"))
    with pytest.raises(UsageError, match=r"mine.toml, line 2: the file is of format 9"):
        api.compile(graph, passes=str(path))
    with pytest.raises(UsageError, match="cannot read the pipeline file"):
        api.compile(graph, passes=str(tmp_path / "absent.toml"))
    with pytest.raises(UsageError, match="no pipeline called 'nothing'"):
        api.compile(graph, passes="nothing")


def test_an_order_that_fuses_too_early_runs_and_says_so(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "early.toml"
    write_pipeline(path, Pipeline("early", ("FuseOps", "SimplifyInference")))
    said: list[str] = []
    api.compile(graph, threads=1, cache=False, passes=str(path), warn=said.append)
    assert len(said) == 1
    assert "inside fused blocks were left as they are by SimplifyInference (" in said[0]


def test_exact_leaves_out_what_rounds(graph: Graph) -> None:
    assert "fold_batch_norm" in auto(graph).effective.passes
    assert "fold_batch_norm" not in auto(graph, exact=True).effective.passes


def test_figures(small: Graph) -> None:
    found = figures_of(run_pipeline(DEFAULT, small), threads=1, budget=QUICK)
    assert 0 < found.p50_ms <= found.p90_ms <= found.p99_ms
    assert found.items == 4
    assert found.throughput == pytest.approx(4000 / found.p50_ms)
    assert found.arena_bytes >= 0 < found.compile_ms
    assert found.peak_rss_mb is None or found.peak_rss_mb > 10
    plain = json.loads(json.dumps(found.plain))
    told = ("power_w", "gpu_power_w", "energy_mj", "temperature_c", "gpu_temperature_c")
    assert all(plain[key] == NOT_HERE or plain[key] > 0 for key in told)
    assert found.costs["throughput"] == pytest.approx(found.p50_ms / 4)
    assert ("energy" in found.costs) == (found.energy_mj is not None)


def test_the_record_of_a_selection(graph: Graph) -> None:
    told = json.loads(json.dumps(selection(graph).summary))
    assert {"family", "confidence", "nearest", "relevant", "order", "unchanged", "pass_ms", "metrics"} <= set(told)
    assert told["family"] == "ResNet"
    assert told["agreement"]["set"] == "RN"
    assert "ConvertLayout" in told["relevant"]
    assert set(told["order"]) <= set(told["relevant"])
    assert {row["pass"] for row in told["pass_ms"]} >= set(told["order"])


def test_an_experiment_says_what_is_the_same(graph: Graph) -> None:
    rows = {row["pipeline"]: row for row in experiment(graph, budget=None)}
    assert rows["none"]["nodes"] == len(graph.nodes)
    assert rows["PO-3"]["same_as"] == "PO-0", "what they do not share has nothing to do here"
    assert rows["AS-0"]["held"]
    assert not rows["AS-1"]["held"]
    looked = {row["pipeline"]: row for row in experiment(graph, budget=None, look_inside=True)}
    assert looked["AS-0"]["same_as"] or looked["AS-0"]["nodes"] < rows["AS-0"]["nodes"]
    assert not looked["AS-0"]["held"]


def test_an_experiment_measures_equal_graphs_once(small: Graph) -> None:
    rows = experiment(small, (NONE, BL, Pipeline("again", ())), threads=1, budget=QUICK)
    assert [row["same_as"] for row in rows] == ["", "", "none"], rows
    assert rows[0]["metrics"]["latency_p50_ms"] > 0
    assert rows[2]["metrics"] == rows[0]["metrics"]


def test_a_search_by_estimate_goes_on_from_its_state(graph: Graph, tmp_path: Path) -> None:
    found, state = selection(graph), tmp_path / "state.json"
    told: list[float] = []
    how = OrderSearch("estimate", 1e6, 9, state=state)
    outcome, record = searched(graph, found, how, progress=lambda what, share: told.append(share))
    assert record["tried"] == 9
    assert record["cost_best"] <= record["cost_default"]
    assert told
    again = with_search(found, graph, replace(how, budget=14))
    assert again.search["tried"] == 14
    assert len(json.loads(state.read_text())["tried"]) == 14
    assert outcome.key == run_pipeline(DEFAULT, graph).key or record["chosen"] == "searched"
    state.write_text("{}")
    with pytest.raises(UsageError, match="is not the state of a search"):
        searched(graph, found, how)


def test_a_search_teaches_the_next(graph: Graph, tmp_path: Path) -> None:
    found = selection(graph)
    how = OrderSearch("estimate", 1e6, 6, cache=tmp_path)
    _, record = searched(graph, found, how)
    database = ProfileDatabase(tmp_path, machine_name())
    learned = database.moves("estimate")
    assert len(learned) == record["learned"] > 0
    state = tmp_path / "state.json"
    searched(graph, found, replace(how, state=state))
    assert json.loads(state.read_text())["moves"] == [list(row) for row in learned], "what it began with"
    assert sum(row[3] for row in database.moves("estimate")) > sum(row[3] for row in learned)
    now = database.moves("estimate")
    searched(graph, found, replace(how, state=state))
    assert database.moves("estimate") == now, "going on from what was found before teaches nothing twice"


def test_a_measured_search_keeps_the_default_unless_another_is_better(
    small: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusewise.selecting._FINAL", QUICK)
    outcome, record = searched(small, selection(small), OrderSearch(budget=5, threads=1))
    if record["chosen"] == "default":
        assert outcome.key == run_pipeline(DEFAULT, small).key
    else:
        assert record["speedup"] >= record["at_least"] > 1


def test_an_order_with_approximations_says_how_far_its_answers_are() -> None:
    b = GraphBuilder()
    x, rng = b.input("x", (1, 512)), np.random.default_rng(0)
    for step in range(4):  # reading the weights is all the work, and half of it in bfloat16
        x = b.op("MatMul", x, b.constant(rng.normal(size=(512, 512)).astype(np.float32), f"w{step}"))
    graph = b.finish(x)
    how = OrderSearch("estimate", 1e6, 12, threads=1)
    outcome, record = searched(graph, selection(graph), replace(how, approximate=True))
    assert "ToMixedPrecision" in outcome.effective.passes, record
    feeds = random_feeds(graph)
    kept = api.compile(graph, threads=1, cache=False).run(None, feeds)[0]
    found = api.compile(outcome.graph, threads=1, cache=False).run(None, feeds)[0]
    apart = np.abs(found - kept).max() / np.abs(kept).max()
    assert 1e-5 < apart < 0.02
    np.testing.assert_allclose(record["difference"], apart, rtol=1e-3)
    _, exact = searched(graph, selection(graph), how)
    assert exact["chosen"] == "default"
    assert "difference" not in exact
