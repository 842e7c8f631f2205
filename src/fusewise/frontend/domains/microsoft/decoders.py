"""Decoders that a node holds, and the loop that runs one: which inputs are tokens and caches, and what each is given next.

A decoder reads the prompt, or a start token, in the first round, and one token in each further one. Its caches have no element at
first, or what an encoder or another decoder made of the prompt, and grow by what each round reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from fusewise.errors import InvalidModel, UnsupportedModel
from fusewise.frontend.domains.microsoft.next_scores import token_of
from fusewise.frontend.domains.microsoft.protos import Protos, owned
from fusewise.records import record

__all__ = [
    "Chosen",
    "Decoder",
    "Feeds",
    "Prompt",
    "State",
    "begun",
    "decoder_like_gpt",
    "decoder_of_encoder",
    "empty_caches",
    "fed",
    "looped",
    "prompted_gpt",
]

_KINDS = onnx.TensorProto
State = tuple[str, int, int]
"""A value that goes from round to round: its name before the first one, its element type, its rank."""


@record(frozen=True)
class Decoder:
    """A decoder: the names of its inputs by what they are, `caches` and `presents` in one order, whose `axis` are rows.

    `whole`: it is given all tokens so far in each round. `fixed`: inputs that are the same in every round.
    """

    graph: onnx.GraphProto
    tokens: str
    positions: str
    mask: str
    caches: tuple[str, ...]
    fixed: tuple[str, ...]
    axis: int
    whole: bool = False


@record(frozen=True)
class Feeds:
    """What a decoder is given: first, as `fed` lists it, and always, by the names of its inputs.

    `places` [rows, 1]: the positions of the tokens of the second round; empty where a decoder has no positions.
    """

    first: tuple[str, ...]
    fixed: Mapping[str, str]
    places: str = ""


@record(frozen=True)
class Chosen:
    """What a search makes of a round: the next token of each row [rows, 1], all tokens so far [rows, length], its states after it,
    is there another round, what is gathered over all rounds, and the row that each row goes on from; empty: its own."""

    token: str
    sequences: str
    states: tuple[str, ...]
    goes_on: str
    gathered: tuple[str, ...] = ()
    origin: str = ""


def decoder_like_gpt(g: Protos, graph: onnx.GraphProto) -> Decoder:
    """One like GPT-2's: tokens, positions, a mask and a cache for each layer; logits and the caches."""
    if len(graph.input) != len(graph.output) + 2 or len(graph.input) < 4:
        raise UnsupportedModel(
            f"{g.where}: its decoder has {len(graph.input)} inputs and {len(graph.output)} outputs; "
            "supported are tokens, positions, a mask and caches, and logits and caches"
        )
    names = [port.name for port in graph.input]
    for port in graph.input[3:]:
        dims = port.type.tensor_type.shape.dim
        if len(dims) != 5 or not all(dims[k].dim_value > 0 for k in (2, 4)):
            raise InvalidModel(
                f"{g.where}: the input {port.name!r} of its decoder must be [2, batch, heads, past, size] with "
                "numbers for heads and size"
            )
    return Decoder(graph, names[0], names[1], names[2], tuple(names[3:]), (), 1)


def decoder_of_encoder(g: Protos, graph: onnx.GraphProto, leading: Sequence[str]) -> Decoder:
    """One that reads what an encoder made: tokens, those of `leading` that it has, in order, then keys and values [rows, heads,
    length, size] of its own attention, a pair for each layer, then those of the encoder; logits and the former."""
    names = [port.name for port in graph.input]
    found = [name for name in names[1:] if name in leading]
    pairs = len(graph.output) - 1
    if pairs < 2 or pairs % 2 or names[1 : 1 + len(found)] != found or len(names) != 1 + len(found) + 2 * pairs:
        raise UnsupportedModel(
            f"{g.where}: its decoder has {len(names)} inputs and {len(graph.output)} outputs; supported are "
            f"tokens, {', '.join(leading)} (each may be absent) and four caches a layer, and logits and two caches a layer"
        )
    dims = graph.input[0].type.tensor_type.shape.dim
    whole = len(dims) < 2 or dims[1].dim_value != 1
    first = 1 + len(found)
    caches, fixed = names[first : first + pairs], (*found, *names[first + pairs :])
    return Decoder(graph, names[0], "", "", tuple(caches), fixed, 0, whole)


def empty_caches(g: Protos, decoder: Decoder, rows: str) -> list[str]:
    """Caches [2, rows, heads, 0, size] of the type that a decoder like GPT-2's says; `rows` has no dimensions."""
    made = []
    for port in decoder.graph.input[3:]:
        dims = port.type.tensor_type.shape.dim
        kind = helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)
        zero = onnx.numpy_helper.from_array(np.zeros(1, kind))
        made.append(g.ConstantOfShape(g.shape(2, rows, dims[2].dim_value, 0, dims[4].dim_value), value=zero))
    return made


@record(frozen=True)
class Prompt:
    """What a search begins with: the tokens that lead each sequence [rows, length], the decoder, what it is given.

    `logits` [samples, length, vocabulary] are of a first round that an encoder or another decoder has run; `mask` [rows, length] is
    what that read, `presents` are the caches that it made, with a row for each sample. Empty where the decoder runs it.
    """

    sequences: str
    decoder: Decoder
    feeds: Feeds
    logits: str = ""
    mask: str = ""
    presents: tuple[str, ...] = ()


def prompted_gpt(g: Protos, given: Mapping[str, Any], operands: Mapping[str, str], rows: str) -> Prompt:
    """Each row reads its sample's prompt; `init_decoder`, where there is one, reads each once. `rows` is empty for samples."""
    decoder = decoder_like_gpt(g, given["decoder"])
    ids = operands["input_ids"]
    kept = g.Cast(g.Not(g.Equal(ids, token_of(g, given, "pad_token_id"))), to=_KINDS.INT32)
    mask = operands.get("attention_mask") or kept
    positions = g.Mul(g.Sub(g.CumSum(kept, np.int64(1)), np.int32(1)), kept)
    lengths = g.total(kept)
    ids_, positions_, mask_, lengths_ = (
        g.Gather(one, rows, axis=0) if rows else one for one in (ids, positions, mask, lengths)
    )
    if "init_decoder" in given:
        initial = decoder_like_gpt(g, given["init_decoder"])
        logits, *presents = g.run(initial.graph, ids, positions, mask, *empty_caches(g, initial, g.length(ids, 0)))
        return Prompt(ids_, decoder, Feeds((), {}, lengths_), logits, mask_, tuple(presents))
    caches = empty_caches(g, decoder, g.length(ids_, 0))
    return Prompt(ids_, decoder, Feeds((ids_, positions_, mask_, *caches), {}, lengths_))


def begun(g: Protos, prompt: Prompt, chosen: Chosen, rows: str) -> Feeds:
    """What the decoder is given in its first round, where another has run the first one of all."""
    presents = [g.Gather(one, rows, axis=prompt.decoder.axis) if rows else one for one in prompt.presents]
    first = fed(g, prompt.decoder, replace(chosen, origin=""), prompt.feeds.places, prompt.mask, presents)
    places = g.Add(prompt.feeds.places, np.int32(1)) if prompt.feeds.places else ""
    return Feeds(tuple(first), prompt.feeds.fixed, places)


def fed(g: Protos, decoder: Decoder, chosen: Chosen, place: str, mask: str, presents: Sequence[str]) -> list[str]:
    """What the decoder is given next: tokens, their positions `place`, a mask after `mask`, caches after `presents`."""
    feeds = [chosen.sequences if decoder.whole else chosen.token]
    if place:
        one = g.Add(g.Mul(chosen.token, np.int32(0)), np.int32(1))
        feeds += [place, g.Concat(mask, one, axis=1)]
    return feeds + [g.Gather(one, chosen.origin, axis=decoder.axis) if chosen.origin else one for one in presents]


def looped(
    g: Protos,
    decoder: Decoder,
    rounds: str,
    states: Sequence[State],
    feeds: Feeds,
    choose: Callable[[Protos, str, Sequence[str], str], Chosen],
) -> list[str]:
    """Runs a decoder for at most `rounds`; gives the states of the search after them, and what it gathered [rounds, ...].

    `choose` says, in the body, from the logits, its states and the number of the round what is next.
    """
    body = owned(decoder.graph, g.label, g.fresh, feeds.fixed)
    ports = {old.name: new for old, new in zip(decoder.graph.input, body.input, strict=True)}
    varying = [ports[name] for name in (decoder.tokens, decoder.positions, decoder.mask, *decoder.caches) if name]
    logits, *presents = [port.name for port in body.output]
    inner = g.inner()
    counter, going = g.fresh(f"{g.label}_round"), g.fresh(f"{g.label}_going")
    before = [g.fresh(f"{g.label}_before") for _ in states]
    chosen = choose(inner, logits, before, counter)
    mask = ports[decoder.mask].name if decoder.mask else ""
    place = inner.Add(feeds.places, inner.Cast(counter, to=_KINDS.INT32)) if feeds.places else ""
    following = fed(inner, decoder, chosen, place, mask, presents)
    del body.input[:], body.output[:]
    body.input.extend(
        [
            helper.make_tensor_value_info(counter, _KINDS.INT64, []),
            helper.make_tensor_value_info(going, _KINDS.BOOL, []),
            *(_port(name, kind, rank) for name, (_, kind, rank) in zip(before, states, strict=True)),
            *varying,
        ]
    )
    body.node.extend(inner.nodes)
    body.output.append(helper.make_tensor_value_info(chosen.goes_on, _KINDS.BOOL, []))
    body.output.extend(_port(name, kind, rank) for name, (_, kind, rank) in zip(chosen.states, states, strict=True))
    for name, port in zip(following, varying, strict=True):
        kind = port.type.tensor_type
        body.output.append(_port(name, kind.elem_type, len(kind.shape.dim)))
    body.output.extend(_port(name, _KINDS.FLOAT, 2) for name in chosen.gathered)
    kept = len(states) + len(feeds.first)
    made = g.several(
        "Loop",
        kept + len(chosen.gathered),
        rounds,
        np.bool_(True),
        *(name for name, _, _ in states),
        *feeds.first,
        body=body,
    )
    return made[: len(states)] + made[kept:]


def _port(name: str, kind: int, rank: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [None] * rank)
