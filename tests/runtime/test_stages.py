"""What follows a size that data decide: one stage, compiled when it comes back, the same answers before and after."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fusewise
from fusewise.errors import InvalidData
from fusewise.hosting import LATER
from fusewise.ir.dtypes import BOOL, FLOAT32, INT64
from fusewise.ir.graph import Constant, Graph
from fusewise.ops.build import GraphBuilder
from fusewise.runtime import nested
from fusewise.runtime.hoststep import HostCall
from fusewise.runtime.stages import HostStage


def chosen() -> Graph:
    """The rows chosen of x, through a product, a softmax and a second choice; and how many there were."""
    b = GraphBuilder()
    x, keep = b.input("x", (8, 4), FLOAT32), b.input("keep", (8,), BOOL)
    rng = np.random.default_rng(0)
    rows = b.op("Compress", x, keep, axis=0)
    scores = b.op("Softmax", b.op("MatMul", rows, b.constant(rng.random((4, 5), np.float32))), axis=-1)
    places = b.op("NonZero", b.op("Greater", scores, b.constant(np.array(0.2, np.float32))))
    picked = b.op("GatherND", scores, b.op("Transpose", places, perm=(1, 0)))
    return b.finish(b.op("Mul", scores, b.constant(np.array(2, np.float32))), b.op("Exp", picked), b.op("Shape", rows))


def answers(x: np.ndarray, keep: np.ndarray) -> list[np.ndarray]:
    weights = np.random.default_rng(0).random((4, 5), np.float32)
    powers = np.exp(x[keep] @ weights)
    scores = powers / powers.sum(-1, keepdims=True)
    return [2 * scores, np.exp(scores[scores > 0.2]), np.array([keep.sum(), 4])]


@pytest.mark.parametrize("worth", [0.0, 1e9])
@pytest.mark.parametrize("saved", [False, True])
def test_stages(worth: float, saved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested, "_WORTH_SECONDS", worth)
    model = fusewise.compile(chosen(), cache=False, threads=2)
    if saved:
        model.save(tmp_path / "m.fw")
        model = fusewise.open_compiled(tmp_path / "m.fw")
    stages = [part[1] for part in model.executable._lane.plan.parts if isinstance(part, tuple)]
    assert sum(isinstance(one, HostStage) for one in stages) >= 2
    rng = np.random.default_rng(1)
    for count in (3, 3, 5, 0, 3, 5, 0, 8):
        x, keep = rng.random((8, 4), np.float32), np.arange(8) < count
        found = model.run(None, {"x": x, "keep": keep})
        for one, right in zip(found, answers(x, keep), strict=True):
            np.testing.assert_allclose(one, right, rtol=2e-6, atol=1e-6)
    built = [one.nested.builds for one in stages if isinstance(one, HostStage)]
    assert max(built) > 0 if worth == 0 else max(built) == 0


def test_timings_have_an_entry_for_each_stage() -> None:
    model = fusewise.compile(chosen(), cache=False, threads=1)
    feeds = {"x": np.ones((8, 4), np.float32), "keep": np.ones(8, bool)}
    found, timings = model.executable.run_with_timings(None, feeds)
    assert len(found) == 3
    assert len(timings) == len([part for part in model.executable._lane.plan.parts if isinstance(part, tuple)])


def test_stages_are_compiled_as_the_model_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `exact` and `disable`, and checked where the model is."""
    monkeypatch.setattr(nested, "_WORTH_SECONDS", 0.0)
    model = fusewise.compile(chosen(), cache=False, threads=1, exact=True, disable=["fold_constants"], sanitize=True)
    feeds = {"x": np.ones((8, 4), np.float32), "keep": np.arange(8) < 3}
    for _ in range(3):
        found = model.run(None, feeds)
    for one, right in zip(found, answers(feeds["x"], feeds["keep"]), strict=True):
        np.testing.assert_allclose(one, right, rtol=2e-6, atol=1e-6)
    stages = [part[1] for part in model.executable._lane.plan.parts if isinstance(part, tuple)]
    built = [code for one in stages if isinstance(one, HostStage) for code in one.nested.codes]
    programs = [code.executable.contents.program for code in built]
    assert programs
    for program in programs:
        assert (program.exact, program.disabled, program.is_checked) == (True, ("fold_constants",), True)


def test_what_reads_memory_as_it_lies_is_no_part_of_a_stage() -> None:
    b = GraphBuilder()
    image, boxes, keep = (
        b.input("image", (1, 8, 12, 12), FLOAT32),
        b.input("boxes", (6, 4), FLOAT32),
        b.input("keep", (6,), BOOL),
    )
    rows = b.op("Compress", boxes, keep, axis=0)
    images = b.op("ConstantOfShape", b.op("Shape", rows, start=0, end=1), value=Constant(np.zeros(1, np.int64)))
    pooled = b.op("RoiAlign", image, b.op("Mul", rows, b.constant(np.array(0.5, np.float32))), images, sampling_ratio=2)
    model = fusewise.compile(b.finish(b.op("Exp", pooled)), cache=False, threads=1)
    parts = [part[1] for part in model.executable._lane.plan.parts if isinstance(part, tuple)]
    nodes = [one.nested._graph.nodes for one in parts if isinstance(one, HostStage)]
    assert nodes and not any(node.op == "RoiAlign" for graph in nodes for node in graph)
    assert any(isinstance(one, HostCall) and one.stands_alone for one in parts)


def test_words_are_picked_without_a_stage_and_only_at_places_that_there_are() -> None:
    b = GraphBuilder()
    words = np.array(["red", "green", "blue"], object)
    picked = b.op("Gather", b.constant(words), b.input("at", (4,), INT64))
    model = fusewise.compile(b.finish(picked), cache=False, threads=1)
    assert not model.summary["host"][0]["way"].endswith(LATER)
    (part,) = model.executable._lane.plan.parts
    assert isinstance(part, tuple) and isinstance(part[1], HostCall)
    for at in ([0, 2, 1, 1], [-1, -3, 0, 2]):
        assert model.run(None, {"at": np.array(at)})[0].tolist() == words[at].tolist()
    for at in (3, -4, 2**62):
        with pytest.raises(InvalidData, match=f"finds {at} in its operand 'at', where only -3 to 2 are allowed"):
            model.run(None, {"at": np.array([0, at, 0, 0])})
