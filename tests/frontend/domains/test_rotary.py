"""Rotary embeddings of Microsoft's domain against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from tests.frontend.domains.one_node import Case, agree

import fusewise
from fusewise.errors import InvalidModel
from fusewise.frontend.onnx_import import load

RNG = np.random.default_rng(0)
TOKENS = {0: "batch", 1: "sequence"}


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("part", [0, 8])
def test_places_of_their_own(interleaved: int, part: int) -> None:
    tables = floats(12, (part or 16) // 2), floats(12, (part or 16) // 2)
    attributes = {"interleaved": interleaved, **({"num_heads": 4, "rotary_embedding_dim": part} if part else {})}

    def case(batch: int, tokens: int) -> Case:
        operands = (floats(batch, tokens, 64), RNG.integers(0, 12, (batch, tokens)), *tables)
        return Case("RotaryEmbedding", operands, attributes, constant=(2, 3))

    agree(case(2, 3), case(1, 7), free={0: TOKENS, 1: TOKENS})


def test_places_from_a_first_one_and_by_heads() -> None:
    tables = floats(12, 8), floats(12, 8)

    def case(batch: int, tokens: int) -> Case:
        return Case("RotaryEmbedding", (floats(batch, 4, tokens, 16), np.array([4]), *tables), constant=(2, 3))

    agree(case(2, 3), case(1, 7), free={0: {0: "batch", 2: "sequence"}})


def test_gemma() -> None:
    emb, (q, q_rot, k, k_rot) = floats(2, 3, 4), (floats(2, 5, 3, 4).astype(np.float16) for _ in range(4))
    case = Case("GemmaRotaryEmbedding", (emb, q, q_rot, k, k_rot), outputs=2)
    found = fusewise.compile(case.model(), cache=False).run(None, case.feeds)
    cosine, sine = np.cos(emb)[:, None], np.sin(emb)[:, None]
    np.testing.assert_allclose(found[0], q * cosine + q_rot * sine, rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(found[1], k * cosine + k_rot * sine, rtol=1e-2, atol=1e-2)


def test_tables_that_are_wider_than_a_head() -> None:
    case = Case("RotaryEmbedding", (floats(1, 2, 3, 8), np.array([0]), floats(4, 8), floats(4, 8)))
    with pytest.raises(InvalidModel, match="'x2' turns 16 elements of a head, which has 8"):
        load(case.model())
