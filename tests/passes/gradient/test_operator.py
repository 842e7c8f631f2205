"""The operator Gradient: what it asks for is written out, as often as it asks."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fusewise
from fusewise import api
from fusewise.errors import UnsupportedModel

DOMAIN = "ai.onnx.preview.training"


def gradient(reads: list[str], writes: list[str], **attributes: object) -> onnx.NodeProto:
    return helper.make_node("Gradient", reads, writes, domain=DOMAIN, **attributes)


def model(nodes: list[onnx.NodeProto], outputs: list[str]) -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("a", "b")]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "slopes", ports, results)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)], ir_version=10
    )


FEEDS = {"a": np.array([1, 2, 3], np.float32), "b": np.array([4, -5, 6], np.float32)}
CUBE = [helper.make_node("Mul", ["a", "a"], ["s"]), helper.make_node("Mul", ["s", "a"], ["c"])]


def run(nodes: list[onnx.NodeProto], outputs: list[str]) -> list[np.ndarray]:
    return list(fusewise.compile(model(nodes, outputs), threads=1, strict=True, cache=False).run(None, FEEDS))


def test_slopes_of_a_value_that_nobody_else_reads() -> None:
    nodes = [helper.make_node("Mul", ["a", "b"], ["c"]), gradient(["a", "b"], ["p", "q"], xs=["a", "b"], y="c")]
    p, q = run(nodes, ["p", "q"])
    np.testing.assert_array_equal(p, FEEDS["b"])
    np.testing.assert_array_equal(q, FEEDS["a"])


def test_what_is_not_asked_for_and_what_does_not_matter() -> None:
    nodes = [*CUBE, gradient(["a", "b"], ["", "q"], xs=["a", "b"], y="c")]
    (q,) = run(nodes, ["q"])
    np.testing.assert_array_equal(q, np.zeros(3))


def test_by_a_value_in_between_with_others_held() -> None:
    nodes = [*CUBE, gradient(["s", "a"], ["p"], xs=["s"], zs=["a"], y="c")]
    (p,) = run(nodes, ["p"])
    np.testing.assert_array_equal(p, FEEDS["a"])


def test_slopes_of_slopes() -> None:
    nodes = [*CUBE, gradient(["a"], ["p"], xs=["a"], y="c"), gradient(["a"], ["q"], xs=["a"], y="p")]
    p, q = run(nodes, ["p", "q"])
    np.testing.assert_allclose(p, 3 * FEEDS["a"] ** 2, rtol=1e-6)
    np.testing.assert_allclose(q, 6 * FEEDS["a"], rtol=1e-6)


@pytest.mark.parametrize(
    "node",
    [gradient(["b"], ["p"], xs=["a"], y="c"), gradient(["a"], ["p"], xs=["a"], y="none")],
    ids=["another value", "no value"],
)
def test_refused(node: onnx.NodeProto) -> None:
    with pytest.raises(UnsupportedModel, match="Gradient"):
        api.compile(model([*CUBE, node], ["p"]), cache=False).run(None, FEEDS)
