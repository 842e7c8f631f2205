"""Operators that carry a state from one call to the next, and rotary embeddings by places in time, height and width: what decoders
with linear attention have."""

from __future__ import annotations

import numpy as np

from fusewise.frontend.domains.row import DomainCall, DomainRow, Written, integer, integers, real, text
from fusewise.frontend.domains.writer import DomainValue, DomainWriter
from fusewise.ops.validity.rules import at_least, between, flag, one_of

__all__ = ["STATES"]


def _linear_attention(g: DomainWriter, call: DomainCall) -> Written:
    """ONNX's operator of this name, which has no window of states."""
    if call.attribute("state_window"):
        raise call.unsupported("its attribute state_window is supported only as 0")
    names = ("query", "key", "value", "past_state", "decay", "beta")
    given = {name: call.attribute(name) for name in ("kv_num_heads", "q_num_heads", "scale", "update_rule")}
    return g.several("LinearAttention", 2, *map(call.get, names), **given)


def _causal_conv(g: DomainWriter, call: DomainCall) -> Written:
    """A convolution of each channel with itself, of what was before and what comes; what it read last is the state."""
    if call.attribute("ndim") != 1 or call.attribute("state_window"):
        raise call.unsupported("it is supported for one dimension and without a window of states")
    x, past, weight = call["input"], call.get("past_state"), call["weight"]
    channels, taps = weight.extent(0), weight.extent(2)
    if channels is None or taps is None:
        raise call.unsupported("the shape of its input 'weight' must be known")
    sizes, state = g.sizes(x), (taps - 1) * call.attribute("dilation")
    if call.attribute("channels_last"):
        x = _sequence_last(g, x, channels)
        past = None if past is None else _sequence_last(g, past, channels)
    whole = g.Pad(x, [0, 0, state, 0, 0, 0]) if past is None else g.Concat(past, x, axis=2)
    y = g.Conv(whole, weight, call.get("bias"), group=channels, dilations=[call.attribute("dilation")])
    y = y if call.attribute("activation") == "none" else y * g.Sigmoid(y)
    present = g.slice(whole, 2, -state, np.iinfo(np.int64).max) if state else g.slice(whole, 2, 0, 0)
    if not call.attribute("channels_last"):
        return y, present
    rest = sizes[2:]
    y, present = (g.permute(one, [0, 2, 1]) for one in (y, present))
    return g.reshape(y, [*sizes[:2], *rest]), g.reshape(present, [sizes[0], state, *rest])


def _sequence_last(g: DomainWriter, x: DomainValue, channels: int) -> DomainValue:
    """[batch, sequence, ...] as [batch, channels, sequence]."""
    flat = x if x.rank == 3 else g.reshape(x, [*g.sizes(x)[:2], channels])
    return g.permute(flat, [0, 2, 1])


def _mrotary_embedding(g: DomainWriter, call: DomainCall) -> DomainValue:
    """Every column of the tables is read at the place of one of three streams."""
    x, places, interleaved = call["input"], call["position_ids"], call.attribute("interleaved")
    half, section = call["cos_cache"].extent(1), call.attribute("mrope_section")
    if half is None or len(section) != 3 or sum(section) != half:
        raise call.invalid(f"its attribute mrope_section must be three numbers whose sum is {half}")
    streams = _streams(half, section, bool(call.attribute("mrope_layout")))
    tables = [_mixed(g, call[name], places, streams, call.attribute("scale")) for name in ("cos_cache", "sin_cache")]
    heads = call.attribute("num_heads")
    if x.rank == 3 and not heads:
        raise call.invalid("it needs the attribute num_heads where its input has three dimensions")
    given = {"interleaved": interleaved or None, "rotary_embedding_dim": call.attribute("rotary_embedding_dim") or None}
    return g.RotaryEmbedding(x, *tables, num_heads=heads if x.rank == 3 else None, **given)


def _streams(half: int, section: tuple[int, ...], interleaved: bool) -> np.ndarray:
    """Which of time, height and width each column belongs to."""
    if not interleaved:
        return np.repeat(np.arange(3), section)
    found = np.zeros(half, np.int64)
    for stream in (1, 2):
        found[stream : section[stream] * 3 : 3] = stream
    return found


def _mixed(
    g: DomainWriter, table: DomainValue, places: DomainValue, streams: np.ndarray, scale: float | None
) -> DomainValue:
    """[batch, sequence, half of what is turned]"""
    found: DomainValue | None = None
    for stream in range(3):
        rows = g.Gather(table, g.Gather(places, g.constant(np.array(stream, np.int64)), axis=0))
        found = rows if found is None else g.Where(g.constant(streams == stream), rows, found)
    assert found is not None
    return found if scale in (None, 1) else found * scale


STATES: tuple[DomainRow, ...] = (
    DomainRow(
        "LinearAttention",
        _linear_attention,
        ("query", "key", "value", "past_state?", "decay?", "beta?"),
        (
            *(integer("chunk_size", 64), integer("kv_num_heads"), integer("q_num_heads"), real("scale", 0.0)),
            *(integer("state_window", 0), text("update_rule", "gated_delta")),
        ),
        ("output", "present_state"),
        shapes="B T .",
        rules=(between("kv_num_heads", 1), between("q_num_heads", 1)),
        opset=27,
    ),
    DomainRow(
        "CausalConvWithState",
        _causal_conv,
        ("input", "weight", "bias?", "past_state?"),
        (
            *(text("activation", "none"), integer("channels_last", 0), integer("dilation", 1), integer("ndim", 1)),
            integer("state_window", 0),
        ),
        ("output", "present_state"),
        shapes="..., C 1 ..., C",
        rules=(one_of("activation", "none", "silu", "swish"), flag("channels_last"), between("dilation", 1)),
    ),
    DomainRow(
        "MRotaryEmbedding",
        _mrotary_embedding,
        ("input", "position_ids", "cos_cache", "sin_cache"),
        (
            *(integers("mrope_section"), integer("num_heads", None), integer("rotary_embedding_dim", None)),
            *(integer("interleaved", None), integer("mrope_layout", None), integer("is_packed_batching", None)),
            real("scale", None),
        ),
        shapes="B S . | B N S ., 3 B S, P R, P R",
        rules=(
            at_least(0, "mrope_section", "num_heads", "rotary_embedding_dim"),
            flag("interleaved", "mrope_layout", "is_packed_batching"),
        ),
    ),
)
