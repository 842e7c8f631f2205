"""One network in three styles: the same answers, other operators."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from fusewise.errors import UsageError
from fusewise.ir.graph import Graph
from fusewise.ir.verify import verify
from fusewise.zoo.catalogue import build
from fusewise.zoo.scaled import Scale, scaled
from fusewise.zoo.styles import STYLES, styled

KINDS = ("resnet_bottleneck", "mobilenet", "ssd", "bert", "inception", "unet", "efficientnet")


def feeds_for(graph: Graph, plain: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The plain feeds, images with channels last where the graph wants them so."""
    return {
        name: array if array.shape == graph.tensor(name).dims else np.ascontiguousarray(array.transpose(0, 2, 3, 1))
        for name, array in plain.items()
    }


def check(plain: Graph, style: str, run_reference: Any) -> Counter[str]:
    rng = np.random.default_rng(1)
    feeds = {
        name: rng.standard_normal(plain.tensor(name).dims, dtype=np.float32)
        if plain.tensor(name).dtype.is_float
        else rng.integers(0, 2, plain.tensor(name).dims)
        for name in plain.inputs
    }
    graph = styled(plain, style)
    verify(graph)
    assert (graph.inputs, graph.outputs) == (plain.inputs, plain.outputs)
    (expected,), (found,) = run_reference(plain, feeds), run_reference(graph, feeds_for(graph, feeds))
    for a, b in zip(expected, found, strict=True):
        assert a.shape == b.shape
        assert np.max(np.abs(a - b)) <= 1e-4 * np.max(np.abs(a))
    return Counter(node.op for node in graph.nodes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("style", ["tensorflow", "mxnet"])
def test_the_same_answers(kind: str, style: str, run_reference: Any) -> None:
    check(scaled(kind, Scale(size=40)), style, run_reference)


def test_what_each_style_is_made_of(run_reference: Any) -> None:
    plain = scaled("resnet_bottleneck")
    last = check(plain, "tensorflow", run_reference)
    convolutions = sum(node.op == "Conv" for node in plain.nodes)
    assert last["Transpose"] >= 4 * convolutions
    assert last["Pad"] > 0 < last["ReduceMean"]
    assert last["Gemm"] == 0 < last["MatMul"]
    first = check(plain, "mxnet", run_reference)
    assert first["Pad"] == first["Dropout"] == 1
    norms = check(scaled("bert"), "tensorflow", run_reference)
    assert norms["LayerNormalization"] == 0 < norms["Reciprocal"]
    assert norms["Gelu"] == 0 < norms["Erf"]


def test_the_catalogue_takes_a_style() -> None:
    graph = build("squeezenet1_1@tensorflow")
    assert graph.tensor("x").dims == (1, 224, 224, 3)
    assert len(build("squeezenet1_1@pytorch").nodes) == len(build("squeezenet1_1").nodes)
    assert set(STYLES) == {"pytorch", "tensorflow", "mxnet"}
    with pytest.raises(UsageError, match="no framework style is called 'tensorflo'; did you mean 'tensorflow'?"):
        build("squeezenet1_1@tensorflo")
    with pytest.raises(UsageError, match="no model called 'squeeze'"):
        build("squeeze@mxnet")
