"""Layers that hand a state on from one call to the next: linear attention, and causal convolutions."""

from __future__ import annotations

from fusewise.frontend.domains.row import DomainCall, DomainRow, Written, integer, real, text
from fusewise.frontend.domains.writer import DomainWriter
from fusewise.ops.validity.rules import at_least, flag, one_of

__all__ = ["RECURRENT"]


def _linear_attention(g: DomainWriter, call: DomainCall) -> Written:
    if call.attribute("state_window"):
        raise call.unsupported("state_window is not supported; hand on the last state alone")
    names = ("query", "key", "value", "past_state", "decay", "beta")
    given = {name: call.attribute(name) for name in ("q_num_heads", "kv_num_heads", "scale", "update_rule")}
    return g.several("LinearAttention", 2, *(call.get(name) for name in names), **given)


def _causal_convolution(g: DomainWriter, call: DomainCall) -> Written:
    """A convolution of each channel over what was handed on and what is new, of which the last rows are handed on again."""
    if call.attribute("state_window") or call.attribute("ndim") != 1:
        raise call.unsupported("only ndim = 1 without state_window is supported")
    x, weight, past = call["input"], call["weight"], call.get("past_state")
    channels, taps, dilation = weight.extent(0), weight.extent(2), call.attribute("dilation")
    if channels is None or taps is None or x.rank != 3:
        raise call.unsupported("the shape of its weight must be known, and its input have 3 dimensions")
    turn = (0, 2, 1) if call.attribute("channels_last") else (0, 1, 2)
    x, reach = g.permute(x, turn), (taps - 1) * dilation
    before = g.Pad(x, [0, 0, reach, 0, 0, 0]) if past is None else g.Concat(g.permute(past, turn), x, axis=2)
    y = g.Conv(before, weight, call.get("bias"), group=channels, dilations=[dilation], kernel_shape=[taps])
    y = y if call.attribute("activation") == "none" else y * g.Sigmoid(y)
    length = g.scalar(g.dim(before, 2))
    ends = g.Unsqueeze(length - reach, [0]), g.Unsqueeze(length, [0])
    return g.permute(y, turn), g.permute(g.Slice(before, *ends, [2]), turn)


RECURRENT: tuple[DomainRow, ...] = (
    DomainRow(
        "LinearAttention",
        _linear_attention,
        operands=("query", "key", "value", "past_state?", "decay?", "beta?"),
        attributes=(
            integer("q_num_heads"),
            integer("kv_num_heads"),
            real("scale", 0.0),
            text("update_rule", "gated_delta"),
            integer("chunk_size", 64),
            integer("state_window", 0),
        ),
        outputs=("output", "present_state"),
        shapes="B T ., B T ., B T ., B kv_num_heads K V, B T ., B T .",
        rules=(at_least(1, "q_num_heads", "kv_num_heads"),),
        opset=27,
    ),
    DomainRow(
        "CausalConvWithState",
        _causal_convolution,
        operands=("input", "weight", "bias?", "past_state?"),
        attributes=(
            text("activation", "none"),
            integer("ndim", 1),
            integer("dilation", 1),
            integer("channels_last", 0),
            integer("state_window", 0),
        ),
        outputs=("output", "present_state"),
        shapes="B ..., C 1 ..., C, B ...",
        rules=(at_least(1, "ndim", "dilation"), flag("channels_last"), one_of("activation", "none", "silu", "swish")),
    ),
)
