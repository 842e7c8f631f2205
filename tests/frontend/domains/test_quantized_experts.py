"""Mixtures of experts with packed weights of Microsoft's domain against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontend.domains.one_node import Case, agree
from tests.frontend.domains.test_quantized import RNG

from fusewise.errors import InvalidModel
from fusewise.frontend.onnx_import import load

EXPERTS, HIDDEN, INNER = 4, 32, 64


def layer(bits: int, block: int, zeros: bool, rows: int, columns: int) -> tuple[np.ndarray | None, ...]:
    """Weights, scales, bias and zero points."""
    blocks = columns // block if block else 1
    packed = RNG.integers(0, 256, (EXPERTS, rows, columns * bits // 8)).astype(np.uint8)
    scales = RNG.uniform(0.01, 0.02, (EXPERTS, rows, blocks) if block else (EXPERTS, rows)).astype(np.float32)
    shape = (EXPERTS, rows, -(-blocks * bits // 8)) if block else (EXPERTS, rows * bits // 8)
    points = RNG.integers(0, 256, shape).astype(np.uint8) if zeros else None
    return packed, scales, RNG.normal(0, 1, (EXPERTS, rows)).astype(np.float32), points


def mixture(bits: int, block: int, zeros: bool, activation: str, weighted: bool = False, best: int = 2) -> Any:
    fused = activation == "swiglu"
    first = layer(bits, block, zeros, INNER * (1 + fused), HIDDEN)
    second = layer(bits, block, zeros, HIDDEN, INNER)
    attributes = {"k": best, "activation_type": activation, "expert_weight_bits": bits}
    attributes |= {"swiglu_fusion": 1, "activation_alpha": 1.702, "swiglu_limit": 7.0} if fused else {}
    attributes |= {"block_size": block} if block else {}
    attributes |= {"normalize_routing_weights": 1} if weighted else {}

    def case(tokens: int) -> Case:
        x, logits = (RNG.standard_normal((tokens, n)).astype(np.float32) for n in (HIDDEN, EXPERTS))
        shares = RNG.uniform(0.1, 1, (tokens, EXPERTS)).astype(np.float32) if weighted else None
        operands = (x, logits, *first[:3], *second[:3], None, None, None, first[3], second[3], None, shares)
        return Case("QMoE", operands, attributes, constant=tuple(range(2, 14)))

    return case


@pytest.mark.parametrize(
    "bits, block, zeros, activation, weighted",
    [
        (4, 0, False, "silu", False),
        (4, 16, True, "swiglu", False),
        (2, 16, False, "relu", False),
        (8, 0, True, "gelu", True),
        (8, 32, False, "swiglu", True),
    ],
)
def test_mixtures(bits: int, block: int, zeros: bool, activation: str, weighted: bool) -> None:
    case = mixture(bits, block, zeros, activation, weighted)
    free = {0: {0: "tokens"}, 1: {0: "tokens"}} | ({14: {0: "tokens"}} if weighted else {})
    rounded = bits == 8 and block  # ONNX Runtime makes bytes of the tokens, too, for such weights
    agree(case(3), case(6), free=free, tolerance=2e-2 if rounded else 2e-5)


@pytest.mark.parametrize(
    "bits, block, zeros, activation, weighted",
    [
        (4, 0, False, "silu", False),
        (4, 16, True, "swiglu", True),
        (2, 16, False, "relu", False),
        (8, 0, True, "gelu", True),
        (8, 0, False, "swiglu", False),
    ],
)
def test_one_token_picks_its_experts(bits: int, block: int, zeros: bool, activation: str, weighted: bool) -> None:
    case = mixture(bits, block, zeros, activation, weighted, best=1)(1)
    agree(case, tolerance=2e-5)
    graph = load(case.model())
    assert (
        max(kind.dims[0] for node in graph.nodes if node.op == "MatMul" for kind in map(graph.tensor, node.inputs)) == 1
    )
    several = load(mixture(bits, block, zeros, activation, weighted, best=2)(1).model())
    assert not any(node.op == "Gather" for node in several.nodes)


def test_what_does_not_fit() -> None:
    case = mixture(4, 16, False, "silu")(3)
    operands = list(case.operands)
    operands[3] = operands[3][:, :, :1]
    wrong = Case("QMoE", tuple(operands), case.attributes, case.constant)
    with pytest.raises(InvalidModel, match="'fc1_scales' has the shape"):
        load(wrong.model())
