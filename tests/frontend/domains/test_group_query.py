"""Attention of heads that share keys against ONNX Runtime: how the cache is kept, and every option."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from tests.frontend.domains.one_node import Case, Free, expected

import fusewise
from fusewise.errors import FusewiseError, InvalidModel, UnsupportedModel
from fusewise.frontend.onnx_import import load

RNG = np.random.default_rng(0)
HEADS, SHARED, SIZE = 4, 2, 16
TABLES = tuple(
    np.stack([f(np.outer(np.arange(40), 0.7 ** np.arange(SIZE // 2))) for f in (np.cos, np.sin)]).astype(np.float32)
)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def case(
    batch: int,
    tokens: int,
    past: int | None,
    lengths: list[int],
    *,
    places: Any = None,
    bias: Any = None,
    sink: Any = None,
    outputs: int = 3,
    **attributes: Any,
) -> Case:
    """`lengths`: how many keys each sample has; `past`: rows of the cache that is given."""
    new = (
        floats(batch, tokens, HEADS * SIZE),
        floats(batch, tokens, SHARED * SIZE),
        floats(batch, tokens, SHARED * SIZE),
    )
    cache = (None, None) if past is None else (floats(batch, SHARED, past, SIZE), floats(batch, SHARED, past, SIZE))
    counts = np.array(lengths, np.int32) - 1, np.array(max(lengths), np.int32)
    tables = TABLES if attributes.get("do_rotary") else (None, None)
    operands = (*new, *cache, *counts, *tables, places, bias, sink)
    given = {"num_heads": HEADS, "kv_num_heads": SHARED, **attributes}
    return Case("GroupQueryAttention", operands, given, constant=(7, 8, 11), outputs=outputs)


TOKENS, CACHE = {0: "batch", 1: "sequence"}, {0: "batch", 2: "past"}
FREE = {0: TOKENS, 1: TOKENS, 2: TOKENS, 3: CACHE, 4: CACHE, 5: {0: "batch"}}


def kept(count: int, room: int, window: int) -> int:
    """How many keys a cache of a window holds."""
    step = room - window + 1
    return count - step * -(-max(0, count - room) // step)


def agree(*cases: Case, free: Free = MappingProxyType({}), is_one_buffer: bool = False) -> None:
    """As `one_node.agree`, but rows of the cache behind a sample's keys may be anything."""
    models = [(cases[0].model(), cases[:1]), *([(cases[0].model(free), cases)] if free else [])]
    for model, runs in models:
        if is_one_buffer:
            for output, given in zip(model.graph.output[1:3], model.graph.input[3:5], strict=True):
                output.type.CopyFrom(given.type)
        compiled = fusewise.compile(model, strict=True, cache=False)
        for run in runs:
            found, wanted = compiled.run(None, run.feeds), expected(run.model(), run.feeds)
            counts = run.feeds["x5"] + 1
            if run.attributes.get("sliding_window_cache"):
                counts = [
                    kept(count, run.feeds["x3"].shape[2], run.attributes["local_window_size"]) for count in counts
                ]
            for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
                assert a.shape == b.shape
                for sample, count in enumerate(counts):
                    one, other = (x[sample, :, :count] if k in (1, 2) else x[sample] for x in (a, b))
                    np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-6)


def test_a_cache_that_grows() -> None:
    """A first prompt, one token of samples of several lengths, and a further prompt, by one program."""
    agree(
        case(2, 5, 0, [5, 5], do_rotary=1),
        case(2, 1, 5, [6, 4], do_rotary=1),
        case(1, 3, 4, [7], do_rotary=1),
        case(3, 1, 0, [1, 1, 1], do_rotary=1),
        free=FREE,
    )
    agree(case(2, 1, 5, [6, 4], do_rotary=1, rotary_interleaved=1))
    agree(case(2, 5, 0, [5, 3]))


def test_a_cache_that_is_bound_grows_in_place() -> None:
    compiled = fusewise.compile(case(1, 1, 3, [4], do_rotary=1).model(FREE), cache=False)
    bound = compiled.bind_cache(capacity=16)
    past: list[np.ndarray] = [np.zeros((1, SHARED, 0, SIZE), np.float32)] * 2
    for tokens in (5, 1, 1, 3):
        length = past[0].shape[2] + tokens
        given = case(1, tokens, 0, [length], do_rotary=1)
        given = replace(given, operands=(*given.operands[:3], *past, *given.operands[5:]))
        wanted, *past = expected(given.model(), given.feeds)
        feeds = {name: x for name, x in given.feeds.items() if name not in ("x3", "x4")}
        np.testing.assert_allclose(bound.run(feeds, ["y0"])[0], wanted, rtol=1e-5, atol=2e-6)


def test_one_buffer() -> None:
    agree(
        case(2, 5, 9, [5, 4], do_rotary=1),
        case(2, 1, 9, [9, 4], do_rotary=1),
        case(1, 3, 8, [7], do_rotary=1),
        free=FREE,
        is_one_buffer=True,
    )


def test_a_cache_that_holds_a_window() -> None:
    """Prompts that fit, that are longer than the cache, and steps before and after rows are dropped, of several lengths."""
    options = {"do_rotary": 1, "local_window_size": 4, "sliding_window_cache": 1}
    agree(
        case(1, 3, 6, [3], **options),
        case(1, 9, 6, [9], **options),
        case(2, 1, 6, [9, 5], **options),
        case(1, 4, 5, [11], **options),
        case(1, 1, 4, [12], **options),
        free=FREE,
    )


def test_a_cache_without_room_for_the_window() -> None:
    given = case(1, 1, 3, [3], local_window_size=4, sliding_window_cache=1)
    with pytest.raises(InvalidModel, match="room for 3 rows; it must have room for the window, which is 4"):
        load(given.model())
    compiled = fusewise.compile(given.model(FREE), cache=False)
    with pytest.raises(FusewiseError, match="and must be at least 4"):
        compiled.run(None, given.feeds)


def test_without_past_and_packed() -> None:
    agree(case(2, 5, None, [5, 5], do_rotary=1))
    given = case(1, 5, 4, [9], do_rotary=1)
    packed = np.concatenate(given.operands[:3], axis=2)
    agree(replace(given, operands=(packed, None, None, *given.operands[3:])))


@pytest.mark.parametrize(
    "attributes",
    [
        {"local_window_size": 3, "scale": 0.3},
        {"softcap": 1.5, "local_window_size": 1},
        {"smooth_softmax": 1},
        {"sink": floats(HEADS), "softcap": 2.0, "local_window_size": 4},
        {"bias": floats(1, HEADS, 3, 7)},
        {"bias": floats(1, 1, 3, 7), "sink": floats(HEADS)},
        {"causal": 0},
        {"qk_output": 1, "outputs": 4},
        {"qk_output": 2, "outputs": 4, "sink": floats(HEADS), "local_window_size": 2},
        {"places": np.array([[9, 3, 30]]), "do_rotary": 1},
    ],
)
def test_options(attributes: dict[str, Any]) -> None:
    agree(case(1, 3, 4, [7], **attributes))


def test_places_of_a_first_prompt_count_from_the_first() -> None:
    agree(case(2, 4, 0, [4, 4], places=RNG.integers(0, 30, (2, 4)), do_rotary=1))
    agree(case(2, 1, 0, [1, 1], places=np.array([[5], [9]]), do_rotary=1))
    agree(case(2, 1, 4, [5, 5], places=RNG.integers(0, 30, (2, 1)), do_rotary=1))


def test_a_past_that_is_longer_than_the_buffer_is_one_sentence() -> None:
    given = case(2, 1, 9, [9, 4])
    model = given.model()
    for output, past in zip(model.graph.output[1:3], model.graph.input[3:5], strict=True):
        output.type.CopyFrom(past.type)
    compiled = fusewise.compile(model, cache=False)
    with pytest.raises(FusewiseError):
        compiled.run(None, {**given.feeds, "x5": np.array([9, 3], np.int32)})


@pytest.mark.parametrize(
    "given, words",
    [
        (case(1, 1, 4, [5], sliding_window_cache=1), "sliding_window_cache needs local_window_size"),
        (case(1, 1, None, [1], kv_num_heads=3), "it must be a multiple of kv_num_heads, which is 3"),
        (
            replace(
                case(1, 1, 4, [5]), operands=(*case(1, 1, 4, [5]).operands[:4], None, *case(1, 1, 4, [5]).operands[5:])
            ),
            "both or neither",
        ),
        (case(1, 3, 4, [7], bias=floats(2, 1, 3, 7)), r"attention_bias\) has the shape"),
    ],
)
def test_what_does_not_fit_is_refused(given: Case, words: str) -> None:
    with pytest.raises((InvalidModel, UnsupportedModel), match=f"'here'.*{words}"):
        load(given.model())
