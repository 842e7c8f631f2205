"""Models with free dimensions that have sizes which come back compiled for these alone: answers, weights, files, errors."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fusewise
from fusewise.compiled import Model
from fusewise.errors import UsageError
from fusewise.runtime.specialist import HOT_RUNS

DEPTH, WIDTH = 48, 64


def network(seed: int = 0) -> onnx.ModelProto:
    """y = softmax((x w + b) v, axis 1), and which rows of x are positive in their sum, for x float32[batch, sequence, 48]."""
    rng = np.random.default_rng(seed)
    weights = {"w": (DEPTH, WIDTH), "b": (WIDTH,), "v": (WIDTH, WIDTH)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["q"]),
        helper.make_node("MatMul", ["q", "v"], ["r"]),
        helper.make_node("Softmax", ["r"], ["y"], axis=1),
        helper.make_node("ReduceSum", ["x", "axis"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["g"]),
        helper.make_node("NonZero", ["g"], ["rows"]),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "sequence", DEPTH])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "sequence", WIDTH]),
            helper.make_tensor_value_info("rows", TensorProto.INT64, [2, None]),
        ],
        [
            *(
                numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
                for name, shape in weights.items()
            ),
            numpy_helper.from_array(np.array([2]), "axis"),
            numpy_helper.from_array(np.array(0, np.float32), "zero"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "network.onnx"
    made.write_bytes(network().SerializeToString())
    return made


def fed(batch: int, sequence: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(batch * 1000 + sequence)
    return {"x": rng.standard_normal((batch, sequence, DEPTH)).astype(np.float32)}


def check(model: Model, general: Model, batch: int, sequence: int) -> None:
    given = fed(batch, sequence)
    found, wanted = model.run(None, given), general.run(None, given)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(found[1], wanted[1])


def heat(model: Model, batch: int, sequence: int) -> None:
    """Run until there is a program for these sizes or there cannot be one."""
    specialist = model.specialist
    assert specialist is not None
    before = specialist.made + specialist.failed
    for _ in range(10_000):
        model.run(None, fed(batch, sequence))
        if specialist.made + specialist.failed > before:
            return
        if specialist._thread is not None:
            specialist._thread.join()
    raise AssertionError("these sizes never get hot")


@pytest.mark.parametrize("settings", [{}, {"threads": 1}, {"sanitize": True}, {"precision": "bfloat16"}])
def test_answers_are_those_of_the_model(path: Path, settings: dict[str, object]) -> None:
    general = fusewise.compile(path, cache=False, **settings)
    model = fusewise.compile(path, cache=False, specialize=2, **settings)
    for batch, sequence in ((1, 7), (2, 16), (3, 5)):
        heat(model, batch, sequence)
        check(model, general, batch, sequence)
        check(model, general, batch + 1, sequence)
    assert model.specialized is not None
    assert model.specialized["sizes"] == [{"batch": 2, "sequence": 16}, {"batch": 3, "sequence": 5}]
    assert (model.specialized["made"], model.specialized["failed"]) == (3, 0)
    assert model.specialized["shared_bytes"] > 0
    assert model.summary["specialized"] == model.specialized
    assert "specialized" not in model.notes["summary"]
    with pytest.raises(UsageError):
        model.run(None, {"x": np.zeros((2, 16, DEPTH + 1), np.float32)})
    assert model.specialist is not None
    model.specialist.close()
    check(model, general, 2, 16)


def test_a_program_is_that_of_the_model_for_its_size(path: Path) -> None:
    """To the bit: what is made in the background is what `compile` makes for the same shape."""
    model = fusewise.compile(path, cache=False, specialize=1)
    alone = fusewise.compile(path, cache=False, symbols={"batch": 2, "sequence": 9})
    heat(model, 2, 9)
    for found, wanted in zip(model.run(None, fed(2, 9)), alone.run(None, fed(2, 9)), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_model_from_the_cache(path: Path, tmp_path: Path) -> None:
    general = fusewise.compile(path, cache=tmp_path / "cache")
    model = fusewise.compile(path, cache=tmp_path / "cache", specialize=1)
    heat(model, 2, 9)
    check(model, general, 2, 9)
    assert model.specialized is not None
    assert model.specialized["sizes"] == [{"batch": 2, "sequence": 9}]


def test_a_file_that_has_changed_since_gives_no_program(path: Path, tmp_path: Path) -> None:
    """Its weights are others, of the same names."""
    said: list[str] = []
    general = fusewise.compile(path, cache=tmp_path / "cache")
    model = fusewise.compile(path, cache=tmp_path / "cache", specialize=1, warn=said.append)
    path.write_bytes(network(seed=1).SerializeToString())
    heat(model, 2, 9)
    check(model, general, 2, 9)
    assert model.specialized is not None
    assert (model.specialized["made"], model.specialized["failed"]) == (0, 1)
    assert "has changed" in " ".join(said)


def test_what_cannot_be_asked_for(path: Path) -> None:
    with pytest.raises(UsageError, match="order of additions"):
        fusewise.compile(path, specialize=1, exact=True)
    with pytest.raises(UsageError, match="0 or more"):
        fusewise.compile(path, specialize=-1)


def test_a_model_of_one_size_needs_none(path: Path) -> None:
    model = fusewise.compile(path, specialize=3, symbols={"batch": 2, "sequence": 9})
    for _ in range(2 * HOT_RUNS):
        model.run(None, fed(2, 9))
    assert model.specialized is None
    model.close()


def test_nothing_keeps_a_model_that_nobody_has(path: Path) -> None:
    model = fusewise.compile(path, cache=False, specialize=1)
    heat(model, 2, 9)
    known = weakref.ref(model.executable)
    del model
    gc.collect()
    assert known() is None


def test_a_process_ends_while_a_program_is_made(path: Path) -> None:
    script = f"""
import numpy as np, fusewise
model = fusewise.compile({str(path)!r}, cache=False, specialize=1)
while not model.specialist.is_busy:
    model.run(None, {{"x": np.zeros((2, 9, {DEPTH}), np.float32)}})
print("ended")
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, "ended\n", "")
