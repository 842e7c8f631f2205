"""Generating text with a decoder that a node holds, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.frontend.domains.one_node import expected, model_of
from tests.frontend.domains.searching import Search, agree_to_the_end

import fusewise
from fusewise.errors import UnsupportedModel
from fusewise.frontend.onnx_import import load

VOCABULARY, HEADS, SIZE, LAYERS = 17, 2, 4, 2
WIDTH = HEADS * SIZE
FLOAT, INT = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32
node = helper.make_node


def decoder(scale: float = 1.0) -> onnx.GraphProto:
    """Embeddings of tokens and places, attention with a cache in each layer, and logits. `scale` of weights: how sure it is."""
    rng = np.random.default_rng(3)
    weights = {
        "tokens": (VOCABULARY, WIDTH),
        "places": (32, WIDTH),
        "head": (WIDTH, VOCABULARY),
        **{f"w{k}": (WIDTH, 3 * WIDTH) for k in range(LAYERS)},
        **{f"b{k}": (3 * WIDTH,) for k in range(LAYERS)},
    }
    nodes = [
        node("Gather", ["tokens", "input_ids"], ["e"]),
        node("Gather", ["places", "position_ids"], ["p"]),
        node("Add", ["e", "p"], ["h0"]),
    ]
    for k in range(LAYERS):
        operands = [f"h{k}", f"w{k}", f"b{k}", "attention_mask", f"past_{k}"]
        given = {"num_heads": HEADS, "unidirectional": 1, "domain": "com.microsoft"}
        nodes.append(node("Attention", operands, [f"a{k}", f"present_{k}"], **given))
        nodes.append(node("Add", [f"h{k}", f"a{k}"], [f"h{k + 1}"]))
    nodes.append(node("MatMul", [f"h{LAYERS}", "head"], ["logits"]))
    ports = [("input_ids", ["b", "s"]), ("position_ids", ["b", "s"]), ("attention_mask", ["b", "t"])]
    cache = [2, "b", HEADS, "past", SIZE]
    return helper.make_graph(
        nodes,
        "decoder",
        [
            *(helper.make_tensor_value_info(name, INT, dims) for name, dims in ports),
            *(helper.make_tensor_value_info(f"past_{k}", FLOAT, cache) for k in range(LAYERS)),
        ],
        [
            helper.make_tensor_value_info("logits", FLOAT, ["b", "s", VOCABULARY]),
            *(helper.make_tensor_value_info(f"present_{k}", FLOAT, [2, "b", HEADS, "t", SIZE]) for k in range(LAYERS)),
        ],
        [numpy_helper.from_array((rng.standard_normal(s) * scale).astype(np.float32), n) for n, s in weights.items()],
    )


def model(constants: dict[str, Any], **attributes: Any) -> onnx.ModelProto:
    names = ["max_length", "min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask"]
    operands = ["input_ids", *(name if name in constants else "" for name in names)]
    while not operands[-1]:
        operands.pop()
    given = {"decoder": decoder(), "eos_token_id": 16, "pad_token_id": 0, "model_type": 0, **attributes}
    search = node("GreedySearch", operands, ["sequences"], name="here", domain="com.microsoft", **given)
    ids = helper.make_tensor_value_info("input_ids", INT, ["batch", "length"])
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    ends = [helper.make_tensor_value_info("sequences", INT, ["batch", "most"])]
    return model_of(helper.make_graph([search], "g", [ids], ends, stored), 17)


PROMPTS = np.array([[0, 0, 5, 3], [2, 7, 1, 9], [0, 4, 4, 8]], np.int32)
ONE = {"max_length": np.array([12], np.int32)}


def alike(found: np.ndarray, wanted: np.ndarray) -> bool:
    """Are tokens equal up to where every row has ended? ONNX Runtime leaves open what comes then; here it is what pads."""
    end = 1 + int(np.flatnonzero(found.any(0)).max())
    return found.shape == wanted.shape and np.array_equal(found[:, :end], wanted[:, :end])


@pytest.mark.parametrize(
    "constants, attributes",
    [
        ({}, {}),
        ({"repetition_penalty": np.array([1.5], np.float32)}, {}),
        ({}, {"no_repeat_ngram_size": 2}),
        ({"vocab_mask": (np.arange(VOCABULARY) % 2).astype(np.int32)}, {}),
        ({"min_length": np.array([9], np.int32)}, {"eos_token_id": 6}),
    ],
)
def test_greedy_search(constants: dict[str, Any], attributes: dict[str, Any]) -> None:
    made = model({**ONE, **constants}, **attributes)
    compiled = fusewise.compile(made, cache=False)
    for prompts in (PROMPTS, PROMPTS[1:2, 1:]):
        feeds = {"input_ids": prompts}
        found = compiled.run(["sequences"], feeds)[0]
        assert alike(found, expected(made, feeds)[0])


def test_ends() -> None:
    """A token that ends is one that the decoder gives: rows are padded from there on."""
    feeds = {"input_ids": PROMPTS}
    plain = expected(model(ONE), feeds)[0]
    made = model(ONE, eos_token_id=int(plain[1, 7]))
    found = fusewise.compile(made, cache=False).run(["sequences"], feeds)[0]
    assert alike(found, expected(made, feeds)[0])
    assert not np.array_equal(found, plain)


def test_masks_and_a_decoder_of_its_own_for_prompts() -> None:
    """Tokens that pad are left out wherever they stand; a mask that is given says what is looked at, not where it is."""
    names = (
        "input_ids",
        "max_length",
        "min_length",
        "repetition_penalty",
        "vocab_mask",
        "prefix_vocab_mask",
        "attention_mask",
    )
    rng = np.random.default_rng(0)
    for given in (("max_length",), ("max_length", "prefix_vocab_mask", "attention_mask")):
        first = decoder(0.3)
        search = Search(
            "GreedySearch",
            names,
            given,
            decoder=first,
            init_decoder=first,
            eos_token_id=16,
            pad_token_id=4,
            model_type=0,
        )
        feeds = {
            "input_ids": np.array([[4, 5, 3, 4], [2, 4, 1, 9], [0, 7, 4, 8]], np.int32),
            "max_length": np.array([11], np.int32),
            "prefix_vocab_mask": (rng.random((3, VOCABULARY)) < 0.5).astype(np.int32),
            "attention_mask": np.array([[1, 0, 1, 1], [0, 1, 1, 0], [1, 1, 1, 1]], np.int32),
        }
        found, wanted = search.both(feeds)
        agree_to_the_end(found[0], wanted[0], 4, 4)


def test_other_models_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="'here' .*only one decoder like GPT-2's"):
        load(model(ONE, model_type=1))
