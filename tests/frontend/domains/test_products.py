"""Products of Microsoft's domain, against ONNX Runtime, and by their definition where it has none for this processor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontend.domains.one_node import Case, agree, agree_with

from fusewise.frontend.onnx_import import load

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("batch_a", [0, 1])
@pytest.mark.parametrize("trans_b, batch_b", [(0, 0), (1, 1)])
def test_fused_matmul(trans_a: int, batch_a: int, trans_b: int, batch_b: int) -> None:
    """Operands as they are before they are turned: [2, 3, m, k] and [2, 3, k, n]."""

    def stored(dims: list[int], trans: int, batch: int) -> np.ndarray:
        if trans:
            dims[-2:] = dims[:-3:-1]
        if batch:
            dims = [dims[-2], *dims[:-2], dims[-1]]
        return floats(*dims)

    def case(m: int) -> Case:
        a, b = stored([2, 3, m, 5], trans_a, batch_a), stored([2, 3, 5, 4], trans_b, batch_b)
        attributes = {"transA": trans_a, "transBatchA": batch_a, "transB": trans_b, "transBatchB": batch_b}
        return Case("FusedMatMul", (a, b), {"alpha": 0.5, **attributes})

    first = case(6)
    assert first.operands[0] is not None
    agree(first, case(9), free={0: {first.operands[0].shape.index(6): "rows"}})


def test_of_vectors() -> None:
    agree(Case("FusedMatMul", (floats(5), floats(3, 4, 5)), {"transA": 1, "transB": 1}))
    agree(Case("TransposeMatMul", (floats(5, 3), floats(5, 4)), {"transA": 1, "alpha": 2.0}))


@pytest.mark.parametrize(
    "name, attributes",
    [
        *(
            ("", {}),
            ("Relu", {}),
            ("LeakyRelu", {"activation_alpha": 0.2}),
            ("Tanh", {}),
            ("Elu", {"activation_alpha": 0.5}),
        ),
        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
    ],
)
def test_fused_gemm(name: str, attributes: dict[str, Any]) -> None:
    operands = (floats(5, 3), floats(4, 5), floats(4))
    given = {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0, **attributes}
    agree(Case("FusedGemm", operands, {**given, "activation": name or "Relu"}))


def test_by_definition() -> None:
    x, w, b = floats(2, 3, 5), floats(5, 4), floats(4)
    y = x @ w + b
    agree_with(
        Case("GemmFastGelu", (x, w, b)),
        0.5 * y * (1 + np.tanh(np.float32(0.7978845608) * (y + np.float32(0.044715) * y**3))),
    )
    agree_with(Case("FusedMatMulActivation", (x, w), {"activation": "Relu", "alpha": 2.0}), np.maximum(2 * x @ w, 0))
    powers = np.exp(x @ w)
    case = Case("FusedMatMulActivation", (x, w), {"activation": "Softmax", "activation_axis": 2})
    agree_with(case, powers / powers.sum(-1, keepdims=True))


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_cdist(metric: str) -> None:
    agree(Case("CDist", (floats(4, 6), floats(5, 6)), {"metric": metric}))


def test_hyper_connections() -> None:
    streams, block = floats(2, 3, 4, 8), floats(2, 3, 8)
    agree(Case("HyperConnectionPreMix", (streams, floats(2, 3, 4)), {"reduction_scale": 0.5}))
    agree(Case("HyperConnectionPreMix", (streams.reshape(2, 3, 32), floats(2, 3, 4, 8)), {"num_branches": 4}))
    agree(Case("HyperConnectionPostMix", (streams, block, floats(2, 3, 4), floats(2, 3, 4, 4))))
    agree(Case("HyperConnectionPostMix", (streams.reshape(2, 3, 32), block, floats(2, 3, 4, 1)), {"num_branches": 4}))


def mixture(kind: str, tokens: int, experts: int = 4, constant: tuple[int, ...] = ()) -> Case:
    hidden, inner = 8, 6
    first = 2 * inner if kind == "swiglu" else inner
    operands = (
        *(floats(tokens, hidden), floats(tokens, experts)),
        *(floats(experts, first, hidden), floats(experts, first), floats(experts, hidden, inner)),
        floats(experts, hidden),
    )
    swiglu = {"swiglu_fusion": 1, "swiglu_limit": 2.0, "activation_alpha": 1.7, "activation_beta": 1.0}
    attributes = {"k": 2, "activation_type": kind, "normalize_routing_weights": int(kind != "relu")}
    return Case("MoE", operands, {**attributes, **(swiglu if kind == "swiglu" else {})}, constant)


@pytest.mark.parametrize("kind", ["relu", "gelu", "silu", "identity", "swiglu"])
def test_mixture_of_experts(kind: str) -> None:
    agree(mixture(kind, 5), mixture(kind, 1), free={0: {0: "tokens"}, 1: {0: "tokens"}})


@pytest.mark.parametrize("kind, constant", [("relu", (2, 3, 4, 5)), ("swiglu", (2, 4))])
def test_one_token_of_many_experts(kind: str, constant: tuple[int, ...]) -> None:
    """Its experts are picked from the weights."""
    case = mixture(kind, 1, 9, constant)
    agree(case)
    graph = load(case.model())
    picked = [node for node in graph.nodes if node.op == "Gather"]
    assert {graph.types[node.outputs[0]].shape[0] for node in picked} == {2} and len(picked) == 4
