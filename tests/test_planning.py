"""Planning as a user asks for it: figures, files that hold together, reasons that are true, clear refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fusewise
from fusewise import api
from fusewise.accel.account import account
from fusewise.accel.bits import mask_of
from fusewise.benchmarking.inputs import random_feeds
from fusewise.errors import InvalidModel, NoFeasiblePlan, UnsupportedModel, UsageError
from fusewise.planning import Planning

MODEL = "zoo:squeezenet1_1"


@pytest.fixture(scope="module")
def planning() -> Planning:
    return fusewise.plan(MODEL, search="local", plans=200, buffer="128KiB", explainer="smallest")


def test_figures(planning: Planning) -> None:
    found = planning.summary
    assert found["buffer_bytes"] == 128 * 1024 > found["max_buffer_bytes"] > 0
    assert found["groups"] == len(planning.plan.groups) and found["excluded"] == 5
    assert found["dram_bytes_full"] > found["dram_bytes"] > 0
    assert found["plans_evaluated"] == 200 and 0 <= found["rectify_rate"] <= 1
    assert found["latency_ms"] > 0 and found["energy_mj"] > 0
    alone = fusewise.plan(MODEL, search="random", plans=3, buffer="128KiB").summary
    assert alone["rectify_rate"] is None and alone["invalid"] >= alone["rectified"]


def test_the_same_seed_gives_the_same_plan(planning: Planning) -> None:
    again = fusewise.plan(MODEL, search="local", plans=200, buffer=128 * 1024, explainer="smallest")
    assert again.result.groups == planning.result.groups


def test_reasons_are_true(planning: Planning) -> None:
    costs, groups = planning.costs, planning.result.groups
    problem = costs.problem
    seen = set()
    for boundary in planning.boundaries:
        seen.add(boundary.reason)
        if boundary.before is None or boundary.after is None:
            assert boundary.reason == "excluded"
            continue
        union = groups[boundary.before] | groups[boundary.after]
        if boundary.reason == "too large":
            assert boundary.over_bytes == costs.buffer_bytes(union) - problem.capacity + 1 > 0
        else:
            assert costs.fits(union)
            rest = [g for k, g in enumerate(groups) if k not in (boundary.before, boundary.after)]
            legal = problem.network.is_convex(union) and problem.ordered([*rest, union]) is not None
            assert legal == (boundary.reason != "cycle")
    assert {"excluded", "too large"} <= seen


def test_the_account_adds_up(planning: Planning) -> None:
    for group in planning.result.groups:
        entries = account(planning.costs.problem, group)
        assert sum(entry.nbytes for entry in entries) == planning.costs.buffer_bytes(group)


def test_the_json_file(planning: Planning, tmp_path: Path) -> None:
    planning.save(tmp_path / "plan.json")
    found = json.loads((tmp_path / "plan.json").read_text())
    assert found["schema"] == "fusewise-plan/1" and found["model"] == MODEL
    assert found["summary"] == json.loads(json.dumps(planning.summary))
    names = [operator.name for operator in planning.plan.network.operators]
    listed = [name for group in found["groups"] for name in group["nodes"]] + [one["node"] for one in found["excluded"]]
    assert sorted(listed) == sorted(names)
    assert all(group["reasons"] for group in found["groups"][:-1])


def test_the_onnx_file_computes_the_same(planning: Planning, tmp_path: Path) -> None:
    import onnxruntime

    planning.save(tmp_path / "plan.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "plan.onnx"), full_check=True)
    model = onnx.load(tmp_path / "plan.onnx")
    assert len(model.functions) == len(planning.plan.groups)
    feeds = random_feeds(planning.graph)
    plain = onnxruntime.InferenceSession(fusewise.to_onnx(planning.graph).SerializeToString())
    grouped = onnxruntime.InferenceSession(tmp_path / "plan.onnx")
    for a, b in zip(grouped.run(None, feeds), plain.run(None, feeds), strict=True):
        np.testing.assert_array_equal(a, b)


def test_explain_a_saved_plan(planning: Planning, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    planning.save(path)
    large = next(b for b in planning.boundaries if b.reason == "too large" and b.before is not None)
    found = api.explain(path, large.before or 0, neighbour=large.after)
    assert found["buffer_bytes"] == sum(entry["nbytes"] for entry in found["holds"]) < found["capacity_bytes"]
    assert found["union"]["buffer_bytes"] >= found["capacity_bytes"]
    assert found["union"]["splits"] and found["union"]["splits"][-1]["verdict"] in ("both fit", "one fits")
    with pytest.raises(UsageError, match="no neighbour"):
        api.explain(path, 0, neighbour=0)
    with pytest.raises(UsageError, match="none numbered 999"):
        api.explain(path, 999)
    for settings, sentence in (
        ({}, "say which group"),
        ({"group": 0, "node": "relu"}, "say which group"),
        ({"group": 0, "fusion": "none"}, "keyword of explain for a plan 'fusion'"),
        ({"group": 0, "explainer": "smalest"}, "did you mean 'smallest'"),
    ):
        with pytest.raises(UsageError, match=sentence):
            fusewise.explain(path, **settings)


def test_a_plan_file_that_is_none(planning: Planning, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with pytest.raises(UsageError, match="No such file"):
        api.explain(path, 0)
    for text, sentence in (("{", "not a plan"), ('{"schema": "x"}', "schema is 'x'"), ("[]", "schema")):
        path.write_text(text)
        with pytest.raises(InvalidModel, match=sentence):
            api.explain(path, 0)
    whole = planning.to_json()
    path.write_text(json.dumps({**whole, "groups": [{"nodes": ["nobody"]}]}))
    with pytest.raises(InvalidModel, match="nobody"):
        api.explain(path, 0)
    path.write_text(json.dumps({k: v for k, v in whole.items() if k != "hardware"}))
    with pytest.raises(InvalidModel, match="not a whole plan"):
        api.explain(path, 0)


@pytest.mark.parametrize(
    "settings, sentence",
    [
        ({"scheme": "lbdv"}, "did you mean 'lbdf'"),
        ({"search": "exakt"}, "did you mean 'exact'"),
        ({"hardware": "edge-256"}, "did you mean 'edge-256k'"),
        ({"objective": "dran"}, "did you mean 'dram'"),
        ({"explainer": "smalest"}, "did you mean 'smallest'"),
        ({"buffer": "much"}, "is not a size"),
        ({"scheme_options": {"granularity": "line"}}, "pixel, row"),
        ({"colour": "red"}, "the options of a plan are"),
    ],
)
def test_wrong_words(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        fusewise.plan(MODEL, **settings)


def test_nothing_fits() -> None:
    with pytest.raises(NoFeasiblePlan, match=r"smallest buffer that would do is \d+ bytes"):
        fusewise.plan("zoo:vgg16", buffer=20)


def test_free_sizes_are_asked_for() -> None:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [value("x", TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [value("y", TensorProto.FLOAT, ["n", 3, "h", "w"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
    with pytest.raises(UnsupportedModel, match="--shape x="):
        fusewise.plan(model, search="random", plans=1)
    found = fusewise.plan(model, search="random", plans=1, symbols={"h": 8, "w": 8})
    assert found.plan.groups[0].operators == (0,)
    assert mask_of(found.plan.groups[0].operators) == 1


def test_what_was_split_is_told(planning: Planning) -> None:
    assert planning.splittings
    found = planning.to_json()["splittings"]
    standing = {tuple(group["nodes"]) for group in planning.to_json()["groups"]}
    standing |= {(one["node"],) for one in planning.to_json()["excluded"]}
    for splitting in found:
        assert splitting["candidates"]
        root, *below = splitting["parts"]
        leaves = [part for part in below if not part["split"]]
        assert all(tuple(part["nodes"]) in standing for part in leaves)
        assert sorted(name for part in leaves for name in part["nodes"]) == sorted(root["nodes"])
