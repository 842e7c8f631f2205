"""Attention with its projection, and of queries, keys and values, against ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import pytest
from tests.frontend.domains.one_node import Case, Free, agree

import fusewise
from fusewise.errors import InvalidModel, UnsupportedModel
from fusewise.frontend.onnx_import import load

RNG = np.random.default_rng(0)
HEADS, SIZE = 2, 8
WIDTH = HEADS * SIZE
TOKENS = {0: "batch", 1: "sequence"}


@dataclass(frozen=True)
class WithScores(Case):
    """A case whose outputs have a type; ONNX Runtime does not infer that of scores."""

    def model(self, free: Free = MappingProxyType({})) -> onnx.ModelProto:
        found = super().model(free)
        for output in found.graph.output:
            output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        return found


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(items: Any) -> np.ndarray:
    return np.array(items, np.int32)


W, B = floats(WIDTH, 3 * WIDTH), floats(3 * WIDTH)


def attention(batch: int, tokens: int, mask: Any = None, **attributes: Any) -> Case:
    mask = mask and mask(batch, tokens)
    operands = (floats(batch, tokens, WIDTH), W, B, mask)
    return Case("Attention", operands, {"num_heads": HEADS, **attributes}, constant=(1, 2))


def ends(batch: int, tokens: int) -> np.ndarray:
    return ints([max(1, tokens - i) for i in range(batch)])


def columns(batch: int, tokens: int) -> np.ndarray:
    return ints(np.arange(tokens) < ends(batch, tokens)[:, None])


def both_ends(batch: int, tokens: int) -> np.ndarray:
    return np.concatenate([ends(batch, tokens), ints([i % 2 for i in range(batch)])])


def packed_ends(batch: int, tokens: int) -> np.ndarray:
    return np.concatenate([ends(batch, tokens), np.zeros(2 * batch + 2, np.int32)])


def squares(batch: int, tokens: int) -> np.ndarray:
    return ints(np.tri(tokens) * columns(batch, tokens)[:, None])


@pytest.mark.parametrize(
    "mask, free, unidirectional",
    [
        (None, {}, 1),
        (ends, {3: {0: "batch"}}, 0),
        (columns, {3: TOKENS}, 1),
        (squares, {3: {0: "batch", 1: "sequence", 2: "sequence"}}, 0),
        (lambda batch, tokens: np.zeros((batch, 1), np.int32), {3: {0: "batch"}}, 0),
    ],
)
def test_masks(mask: Any, free: Any, unidirectional: int) -> None:
    def case(batch: int, tokens: int) -> Case:
        return attention(batch, tokens, mask, unidirectional=unidirectional, scale=0.3)

    agree(case(2, 5), case(1, 7), case(3, 1), free={0: TOKENS, **free})


@pytest.mark.parametrize("mask", [both_ends, packed_ends])
def test_masks_of_known_length(mask: Any) -> None:
    agree(attention(2, 5, mask, mask_filter_value=-500.0))


def test_values_of_another_size() -> None:
    w, b = floats(WIDTH, 2 * WIDTH + 6), floats(2 * WIDTH + 6)
    attributes = {"num_heads": HEADS, "qkv_hidden_sizes": [WIDTH, WIDTH, 6]}
    agree(Case("Attention", (floats(2, 3, WIDTH), w, b), attributes, constant=(1, 2)))


@pytest.mark.parametrize("unidirectional", [0, 1])
def test_past_and_present_grow(unidirectional: int) -> None:
    def case(batch: int, tokens: int, past: int) -> Case:
        mask = columns(batch, tokens + past)
        before = floats(2, batch, HEADS, past, SIZE)
        operands = (floats(batch, tokens, WIDTH), W, B, mask, before)
        attributes = {"num_heads": HEADS, "unidirectional": unidirectional}
        return Case("Attention", operands, attributes, constant=(1, 2), outputs=2)

    free = {0: TOKENS, 3: {0: "batch", 1: "all"}, 4: {1: "batch", 3: "past"}}
    agree(case(2, 3, 4), case(1, 1, 9), case(2, 5, 0), free=free)


def test_a_bias_is_broadcast() -> None:
    operands = (floats(2, 3, WIDTH), W, B, None, None, floats(1, HEADS, 3, 3))
    agree(Case("Attention", operands, {"num_heads": HEADS}, constant=(1, 2)))


ONE, ZERO = np.float32(0.02).reshape(()), np.uint8(120).reshape(())


def codes(kind: type, *shape: int) -> np.ndarray:
    return RNG.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape).astype(kind)


@pytest.mark.parametrize("by_column", [False, True])
def test_quantised(by_column: bool) -> None:
    scale = (np.abs(floats(3 * WIDTH)) / 50 + 0.001).astype(np.float32) if by_column else ONE
    zero = codes(np.int8, 3 * WIDTH) if by_column else np.int8(3).reshape(())
    weights = codes(np.int8, WIDTH, 3 * WIDTH)
    operands = (codes(np.uint8, 2, 3, WIDTH), weights, B, ONE, scale, ints([3, 2]), ZERO, zero)
    agree(Case("QAttention", operands, {"num_heads": HEADS}, constant=(1, 2, 3, 4, 6, 7)), tolerance=1e-4)


def test_quantised_with_a_past() -> None:
    weights = codes(np.int8, WIDTH, 3 * WIDTH)

    def case(batch: int, tokens: int, past: int) -> Case:
        x, before = codes(np.uint8, batch, tokens, WIDTH), floats(2, batch, HEADS, past, SIZE)
        operands = (x, weights, B, ONE, ONE, columns(batch, tokens + past), ZERO, None, before)
        attributes = {"num_heads": HEADS, "unidirectional": 1}
        return Case("QAttention", operands, attributes, constant=(1, 2, 3, 4, 6), outputs=2)

    free = {0: TOKENS, 5: {0: "batch", 1: "all"}, 8: {1: "batch", 3: "past"}}
    agree(case(2, 3, 4), case(1, 1, 6), free=free, tolerance=1e-4)


# -- queries, keys and values -----------------------------------------------------------------------------------------------

KEYS = {0: "batch", 1: "keys"}
BUFFER = {0: "batch", 2: "past"}


def test_queries_and_keys_of_their_own_lengths() -> None:
    def case(batch: int, queries: int, keys: int) -> Case:
        operands = (floats(batch, queries, WIDTH), floats(batch, keys, WIDTH), floats(batch, keys, WIDTH), B)
        return Case("MultiHeadAttention", (*operands, columns(batch, keys)), {"num_heads": HEADS}, constant=(3,))

    agree(case(2, 3, 5), case(1, 7, 2), free={0: TOKENS, 1: KEYS, 2: KEYS, 4: KEYS})


@pytest.mark.parametrize("mask", [ends, packed_ends, squares])
def test_masks_of_keys(mask: Any) -> None:
    x = floats(2, 4, WIDTH)
    agree(Case("MultiHeadAttention", (x, x, x, None, mask(2, 4)), {"num_heads": HEADS}))


def test_keys_of_an_encoder_come_by_heads() -> None:
    def case(batch: int, queries: int, keys: int) -> Case:
        operands = (floats(batch, queries, WIDTH), floats(batch, HEADS, keys, SIZE), floats(batch, HEADS, keys, SIZE))
        return Case("MultiHeadAttention", operands, {"num_heads": HEADS})

    keys = {0: "batch", 2: "keys"}
    agree(case(2, 3, 5), case(1, 1, 8), free={0: TOKENS, 1: keys, 2: keys})


@pytest.mark.parametrize("unidirectional, outputs", [(0, 4), (1, 3)])
def test_keys_behind_those_of_the_past(unidirectional: int, outputs: int) -> None:
    def case(batch: int, tokens: int, past: int) -> Case:
        x = [floats(batch, tokens, WIDTH) for _ in range(3)]
        before = [floats(batch, HEADS, past, SIZE) for _ in range(2)]
        bias = floats(1, 1, tokens, tokens + past)
        attributes = {"num_heads": HEADS, "unidirectional": unidirectional}
        return WithScores("MultiHeadAttention", (*x, None, None, bias, *before), attributes, outputs=outputs)

    free = {**dict.fromkeys(range(3), TOKENS), 5: {2: "sequence", 3: "all"}, 6: BUFFER, 7: BUFFER}
    agree(case(2, 3, 4), case(1, 1, 9), free=free)


def test_packed_queries_keys_and_values() -> None:
    """ONNX Runtime has these on other machines than a CPU: they are what the same numbers are apart."""
    q, k, v = (floats(2, 4, HEADS, SIZE) for _ in range(3))
    flat = [x.reshape(2, 4, WIDTH) for x in (q, k, v)]
    packed = [(np.stack([q, k, v], 3), None), (flat[0], np.stack([k, v], 3))]
    plain = Case("MultiHeadAttention", tuple(flat), {"num_heads": HEADS})
    wanted = fusewise.compile(plain.model(), cache=False).run(None, plain.feeds)[0]
    for operands in packed:
        case = Case("MultiHeadAttention", operands, {"num_heads": HEADS})
        np.testing.assert_allclose(
            fusewise.compile(case.model(), cache=False).run(None, case.feeds)[0], wanted, rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("mask", [False, True])
def test_one_buffer_for_past_and_present(mask: bool) -> None:
    def case(batch: int, room: int, past: int) -> Case:
        x = [floats(batch, 1, WIDTH) for _ in range(3)]
        before = [floats(batch, HEADS, room, SIZE) for _ in range(2)]
        operands = (*x, columns(batch, past + 1) if mask else None, None, *before, ints([past]))
        attributes = {"num_heads": HEADS, "past_present_share_buffer": 1}
        return Case("DecoderMaskedMultiHeadAttention", operands, attributes, outputs=3)

    free = {
        **{operand: {0: "batch"} for operand in range(3)},
        5: BUFFER,
        6: BUFFER,
        **({3: {0: "batch", 1: "all"}} if mask else {}),
    }
    agree(case(2, 9, 4), case(1, 6, 0), case(1, 6, 5), free=free)


def test_scores_of_an_encoders_keys() -> None:
    operands = (floats(2, 1, WIDTH), floats(2, HEADS, 4, SIZE), floats(2, HEADS, 4, SIZE), columns(2, 4))
    attributes = {"num_heads": HEADS, "output_qk": 1}
    agree(WithScores("DecoderMaskedMultiHeadAttention", operands, attributes, outputs=4, absent=(1, 2)))


X = floats(2, 3, WIDTH)


@pytest.mark.parametrize(
    "case, words",
    [
        (Case("Attention", (X, W, B), {"num_heads": 3}), "16 elements are not shared out evenly among 3 heads"),
        (Case("Attention", (X, W, B), {"num_heads": HEADS, "do_rotary": 1}), "do_rotary is not supported"),
        (Case("Attention", (X, W, B), {"num_heads": HEADS, "qkv_hidden_sizes": [16, 8, 24]}), "qkv_hidden_sizes is"),
        (Case("Attention", (X, W, B, ints([1, 2, 3])), {"num_heads": HEADS}), "3 elements; 2 samples need 2 or 4"),
        (Case("Attention", (X, W, B, np.ones((2, 1, 4, 4), np.int32)), {"num_heads": HEADS}), "a mask of 4 dimensions"),
        (Case("MultiHeadAttention", (X, X), {"num_heads": HEADS}), "it has keys, but no values"),
        (Case("MultiHeadAttention", (X, X[:, :, :8], X), {"num_heads": HEADS}), r"input 1 \(key\) has the shape"),
    ],
)
def test_what_does_not_fit_is_refused(case: Case, words: str) -> None:
    with pytest.raises((InvalidModel, UnsupportedModel), match=f"'here'.*{words}"):
        load(case.model())
