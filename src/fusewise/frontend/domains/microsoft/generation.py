"""Generating text: a decoder that the node holds, run as the body of a Loop.

Its cache has no element at first, and grows by what each round reads: the prompt, then one token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from fusewise.errors import InvalidModel, UnsupportedModel
from fusewise.frontend.domains.row import MICROSOFT, DomainRow, graph, integer
from fusewise.frontend.order import node_label

__all__ = ["GENERATION"]

_LOWEST = np.finfo(np.float32).min
_CACHE = 3
"""The first of a decoder's inputs that is a cache; before it are tokens, positions and the mask."""


class Protos:
    """Nodes of a model that is being read, written one after the other; every value has a fresh name."""

    def __init__(self, label: str, fresh: Callable[[str], str]) -> None:
        self.label = label
        self.fresh = fresh
        self.nodes: list[onnx.NodeProto] = []

    def __getattr__(self, op: str) -> Callable[..., str]:
        if op.startswith("_"):
            raise AttributeError(op)
        return lambda *operands, **attributes: self.several(op, 1, *operands, **attributes)[0]

    def several(self, op: str, outputs: int, *operands: Any, domain: str = "", **attributes: Any) -> list[str]:
        """The results of an operator; operands are names, or arrays for constants."""
        names = [one if isinstance(one, str) else self.constant(one) for one in operands]
        made = [self.fresh(f"{self.label}_{op.lower()}") for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, names, made, made[0], domain=domain, **attributes))
        return made

    def constant(self, array: np.ndarray | np.generic) -> str:
        """A constant."""
        return self.several("Constant", 1, value=onnx.numpy_helper.from_array(np.asarray(array)))[0]

    def length(self, x: str) -> str:
        """The second dimension, without dimensions of its own."""
        return self.Gather(self.Shape(x), np.int64(1))

    def number(self, x: str, kind: int = onnx.TensorProto.INT64) -> str:
        """One element in a type, without dimensions."""
        return self.Reshape(self.Cast(x, to=kind), np.zeros(0, np.int64))


def _greedy_search(node: onnx.NodeProto, fresh: Callable[[str], str]) -> list[onnx.NodeProto]:
    """The likeliest token after each prompt, again and again, until every row has met its end or is as long as it may be."""
    label = node_label(node)
    given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    for name in ("eos_token_id", "pad_token_id"):
        if not -1 <= given[name] < 2**31:
            raise InvalidModel(
                f"node {label!r} (GreedySearch): its attribute {name} is {given[name]}, which is no token"
            )
    decoder, pad = given["decoder"], np.int32(given["pad_token_id"])
    if given.get("model_type", 0) != 0 or "encoder" in given or "init_decoder" in given:
        raise UnsupportedModel(
            f"node {label!r} (GreedySearch): only one decoder like GPT-2's (model_type 0) is supported"
        )
    operands = dict(zip(_OPERANDS, [*node.input, *[""] * len(_OPERANDS)], strict=False))
    g = Protos(label, fresh)
    ids, most = operands["input_ids"], g.number(operands["max_length"])
    mask = operands["attention_mask"] or _mask(g, ids, pad)
    counted = g.Mul(g.Sub(g.CumSum(mask, np.int64(1)), np.int32(1)), mask)
    unfinished = g.Greater(g.Gather(ids, np.zeros(1, np.int64), axis=1), np.int32(np.iinfo(np.int32).max))
    caches = [_empty(g, label, port, ids) for port in decoder.input[_CACHE:]]
    body = _round(g, node, given, operands)
    states = [ids, unfinished, ids, counted, mask, *caches]
    rounds = g.Sub(most, g.length(ids))
    sequences = g.several("Loop", len(states), rounds, np.bool_(True), *states, body=body)[0]
    missing = g.Reshape(g.Sub(most, g.length(sequences)), np.ones(1, np.int64))
    g.nodes.append(
        helper.make_node(
            "Pad",
            [sequences, g.Concat(np.zeros(3, np.int64), missing, axis=0), g.constant(pad)],
            [node.output[0]],
            label,
        )
    )
    return g.nodes


def _mask(g: Protos, ids: str, pad: np.int32) -> str:
    """1 from the first token on that does not pad."""
    kept = g.Cast(g.Not(g.Equal(ids, pad)), to=onnx.TensorProto.INT32)
    return g.Cast(g.Greater(g.CumSum(kept, np.int64(1)), np.int32(0)), to=onnx.TensorProto.INT32)


def _empty(g: Protos, label: str, port: onnx.ValueInfoProto, ids: str) -> str:
    """A cache [2, batch, heads, 0, size] of the type that the decoder says."""
    dims = port.type.tensor_type.shape.dim
    if len(dims) != 5 or not all(dims[k].dim_value > 0 for k in (2, 4)):
        raise InvalidModel(
            f"node {label!r} (GreedySearch): the input {port.name!r} of its decoder must be [2, batch, heads, past, size] with "
            "numbers for heads and size"
        )
    heads, size = dims[2].dim_value, dims[4].dim_value
    batch = g.Gather(g.Shape(ids), np.zeros(1, np.int64))
    shape = g.Concat(np.array([2]), batch, np.array([heads, 0, size]), axis=0)
    zero = onnx.numpy_helper.from_array(np.zeros(1, helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)))
    return g.ConstantOfShape(shape, value=zero)


def _round(g: Protos, node: onnx.NodeProto, given: Mapping[str, Any], operands: Mapping[str, str]) -> onnx.GraphProto:
    """The body: the decoder, then the next tokens, and what the decoder is given in the next round."""
    decoder = given["decoder"]
    if len(decoder.input) != len(decoder.output) + 2 or len(decoder.input) <= _CACHE:
        raise UnsupportedModel(
            f"node {g.label!r} (GreedySearch): its decoder has {len(decoder.input)} inputs and {len(decoder.output)} outputs; "
            "supported are tokens, positions, a mask and caches, and logits and caches"
        )
    body = onnx.GraphProto()
    body.CopyFrom(decoder)
    del body.input[:], body.output[:]
    counter, going, before, finished = (
        g.fresh(f"{g.label}_{name}") for name in ("round", "going", "sequences", "finished")
    )
    inner = Protos(g.label, g.fresh)
    mask, logits = decoder.input[2].name, decoder.output[0].name
    scores = _scores(inner, given, operands, (logits, before, counter))
    best = inner.Cast(inner.ArgMax(scores, axis=1, keepdims=1), to=onnx.TensorProto.INT32)
    over = inner.Or(finished, inner.Equal(best, np.int32(given["eos_token_id"])))
    token = inner.Where(over, np.int32(given["pad_token_id"]), best)
    flags = inner.Cast(over, to=onnx.TensorProto.INT32)
    goes_on = inner.Equal(inner.ReduceMin(flags, keepdims=0), np.int32(0))
    place = inner.Reshape(inner.ReduceSum(mask, np.array([1]), keepdims=1), np.array([-1, 1]))
    one = inner.Add(inner.Mul(token, np.int32(0)), np.int32(1))
    states = [inner.Concat(before, token, axis=1), over, token, place, inner.Concat(mask, one, axis=1)]
    kinds = onnx.TensorProto
    body.input.extend(
        [
            helper.make_tensor_value_info(counter, kinds.INT64, []),
            helper.make_tensor_value_info(going, kinds.BOOL, []),
            helper.make_tensor_value_info(before, kinds.INT32, [None, None]),
            helper.make_tensor_value_info(finished, kinds.BOOL, [None, 1]),
            *decoder.input,
        ]
    )
    body.node.extend(inner.nodes)
    body.output.append(helper.make_tensor_value_info(goes_on, kinds.BOOL, []))
    for name, kind in zip(states, (kinds.INT32, kinds.BOOL, *[kinds.INT32] * 3), strict=True):
        body.output.append(helper.make_tensor_value_info(name, kind, [None, None]))
    body.output.extend(decoder.output[1:])
    return body


def _scores(g: Protos, given: Mapping[str, Any], operands: Mapping[str, str], names: tuple[str, str, str]) -> str:
    """Logits of the last token, changed by penalties and masks in ONNX Runtime's order."""
    logits, sequences, counter = names
    scores = g.Cast(g.Gather(logits, np.int64(-1), axis=1), to=onnx.TensorProto.FLOAT)
    before = g.Cast(sequences, to=onnx.TensorProto.INT64)
    if operands["repetition_penalty"]:
        penalty = g.number(operands["repetition_penalty"], onnx.TensorProto.FLOAT)
        old = g.GatherElements(scores, before, axis=1)
        new = g.Where(g.Less(old, np.float32(0)), g.Mul(old, penalty), g.Div(old, penalty))
        scores = g.ScatterElements(scores, before, new, axis=1)
    size = given.get("no_repeat_ngram_size", 0)
    if size:
        scores = g.NGramRepeatBlock(before, scores, domain=MICROSOFT, ngram_size=size)
    if operands["vocab_mask"]:
        scores = g.Where(g.Equal(operands["vocab_mask"], np.int32(0)), _LOWEST, scores)
    if operands["prefix_vocab_mask"]:
        masked = g.Equal(operands["prefix_vocab_mask"], np.int32(0))
        scores = g.Where(g.And(masked, g.Equal(counter, np.int64(0))), _LOWEST, scores)
    if operands["min_length"]:
        is_short = g.Less(g.length(sequences), g.number(operands["min_length"]))
        is_end = g.Equal(g.Range(np.int64(0), g.length(scores), np.int64(1)), np.int64(given["eos_token_id"]))
        scores = g.Where(g.And(is_short, is_end), _LOWEST, scores)
    return scores


_OPERANDS = (
    *("input_ids", "max_length", "min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask"),
    "attention_mask",
)

GENERATION: tuple[DomainRow, ...] = (
    DomainRow(
        "GreedySearch",
        None,
        tuple(f"{name}?" if k > 1 else name for k, name in enumerate(_OPERANDS)),
        (
            *(integer("decoder_start_token_id", -1), integer("eos_token_id"), integer("model_type", 0)),
            *(integer("no_repeat_ngram_size", 0), integer("pad_token_id"), integer("vocab_size", -1)),
            *(graph("decoder"), graph("encoder", None), graph("init_decoder", None)),
        ),
        ("sequences",),
        expand=_greedy_search,
    ),
)
