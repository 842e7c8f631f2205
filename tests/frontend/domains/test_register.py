"""Operators that a user registers: written in ONNX's, or computed by NumPy, wherever a model goes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import fusewise
from fusewise import DomainOperator, register_domain
from fusewise.errors import InvalidData, UnsupportedModel, UsageError
from fusewise.ir.dtypes import INT64
from fusewise.ir.types import TensorType
from fusewise.ops.registered import REGISTERED

OWN = "org.example"


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    REGISTERED.remove(OWN)


def model(op: str, outputs: int = 1, **attributes: Any) -> onnx.ModelProto:
    """Relu, the operator, and a sum with what it was given."""
    names = [f"y{k}" for k in range(outputs)]
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node(op, ["r"], names, name="here", domain=OWN, **attributes),
        helper.make_node("Add", ["y0", "y0"], ["z"]),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows", 5])
    graph = helper.make_graph(nodes, "g", [x], [onnx.ValueInfoProto(name=name) for name in ("z", *names[1:])])
    versions = [helper.make_opsetid("", 21), helper.make_opsetid(OWN, 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


X = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
RELU = np.maximum(X, 0)


def median() -> DomainOperator:
    return DomainOperator(
        "Median",
        ("x",),
        attributes={"axis": -1},
        compute=lambda x, axis: np.median(x, axis).astype(x.dtype),
        types=lambda x, axis: TensorType(x.dtype, x.shape[:axis]),
    )


def test_written_in_onnx_operators() -> None:
    twice = DomainOperator(
        "Times", ("x",), attributes={"k": float}, write=lambda g, call: call["x"] * call.attribute("k")
    )
    register_domain(OWN, twice)
    compiled = fusewise.compile(model("Times", k=3.0), cache=False, strict=True)
    np.testing.assert_allclose(compiled.run(["z"], {"x": X})[0], 6 * RELU, rtol=1e-6)
    with pytest.raises(fusewise.FusewiseError, match="lacks the attribute 'k'"):
        fusewise.load(model("Times"))


@pytest.mark.parametrize("free", [False, True])
def test_computed_by_numpy(free: bool) -> None:
    register_domain(OWN, median())
    shapes = {} if free else {"x": (3, 5)}
    compiled = fusewise.compile(model("Median"), shapes=shapes, cache=False)
    for x in (X, np.concatenate([X, -X])) if free else (X,):
        answer = compiled.run(["z"], {"x": x})[0]
        np.testing.assert_allclose(answer, 2 * np.median(np.maximum(x, 0), -1), rtol=1e-6)
    assert str(fusewise.load(model("Median"), shapes={"x": (3, 5)}).types["y0"]) == "float32[3]"


def test_shapes_that_nobody_knows() -> None:
    positive = DomainOperator(
        "Positive",
        ("x",),
        outputs=("values", "count"),
        compute=lambda x: (x[x > 0], np.array(np.count_nonzero(x), np.int64)),
        types=lambda x: (TensorType(x.dtype, (None,)), TensorType(INT64, ())),
    )
    register_domain(OWN, positive)
    compiled = fusewise.compile(model("Positive", 2), cache=False)
    for x in (X, -X):
        values, count = compiled.run(["z", "y1"], {"x": x})
        np.testing.assert_allclose(values, 2 * x[x > 0], rtol=1e-6)
        assert count == np.count_nonzero(x > 0)


def test_a_function_that_fails_is_told_of() -> None:
    def fails(x: np.ndarray) -> np.ndarray:
        raise ValueError("no luck")

    register_domain(OWN, DomainOperator("Fails", ("x",), compute=fails, types=lambda x: x))
    compiled = fusewise.compile(model("Fails"), shapes={"x": (3, 5)}, cache=False)
    with pytest.raises(InvalidData, match=r"'here.*org\.example\.Fails failed: ValueError: no luck"):
        compiled.run(["z"], {"x": X})
    register_domain(OWN, DomainOperator("Fails", ("x",), compute=fails, types=lambda x: x.missing))
    with pytest.raises(UsageError, match="types of the operator .* cannot be told"):
        fusewise.load(model("Fails"))


@pytest.mark.parametrize(
    "domain, made, words",
    [
        ("", median(), "own domain"),
        ("com.microsoft", DomainOperator("Gelu", ("x",), write=lambda g, call: call["x"]), "known already"),
        (OWN, DomainOperator("A", ("x",)), "either `write` or `compute`"),
        (OWN, DomainOperator("A", ("x",), compute=np.abs), "needs `types`"),
        (OWN, DomainOperator("A", ("x",), attributes={"k": None}, write=lambda g, call: call["x"]), "attribute k"),
    ],
)
def test_operators_that_contradict_themselves(domain: str, made: DomainOperator, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        register_domain(domain, made)


def test_neither_kept_nor_run_where_it_is_not_registered(tmp_path: Path) -> None:
    """Two definitions of one name give two answers; a compiled file says what it lacks."""
    path, cache = tmp_path / "model.onnx", tmp_path / "cache"
    onnx.save(model("Times"), path)
    for factor in (2.0, 5.0):
        row = DomainOperator("Times", ("x",), write=lambda g, call, factor=factor: call["x"] * factor)
        register_domain(OWN, row)
        answer = fusewise.compile(path, cache=cache).run(["z"], {"x": X})[0]
        np.testing.assert_allclose(answer, 2 * factor * RELU, rtol=1e-6)
    register_domain(OWN, median())
    fusewise.compile(model("Median"), shapes={"x": (3, 5)}, cache=False).save(tmp_path / "median.fw")
    np.testing.assert_allclose(
        fusewise.open_compiled(tmp_path / "median.fw").run(["z"], {"x": X})[0], 2 * np.median(RELU, -1), rtol=1e-6
    )
    REGISTERED.remove(OWN)
    with pytest.raises(UnsupportedModel, match=r"org\.example\.Median is none of this program's.*register_domain"):
        fusewise.open_compiled(tmp_path / "median.fw").run(["z"], {"x": X})


def test_the_registry_loads_nothing() -> None:
    code = "import fusewise.ops.registered, sys; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
