"""Operators that carry a state from one call to the next, as what they do with it and what they hand on."""

from __future__ import annotations

from fusewise.ir.dtypes import FLOAT32
from fusewise.ops.spec import Call
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["STATEFUL"]


def _causal_convolution(
    g: Notation,
    call: Call,
    x: TensorValue,
    w: TensorValue,
    bias: TensorValue | None = None,
    past: TensorValue | None = None,
) -> tuple[TensorValue, TensorValue]:
    """A convolution of every channel by itself that sees its own and earlier places; before the first are those of the last call.
    The new state is the last places, one less than the filter is long."""
    before, length = w.dims[2] - 1, x.dims[2]
    whole = g.pad(x, 2, before, 0) if past is None else g.Concat(past, x, axis=2)
    if past is None:
        y = g.Conv(x, w, bias, group=x.dims[1], pads=[before, 0])
    else:
        y = g.Conv(whole, w, bias, group=x.dims[1])
    if call.attribute("activation", "none") in ("silu", "swish", b"silu", b"swish"):
        wide = g.cast(y, FLOAT32)
        y = g.cast(wide * g.Sigmoid(wide), y.dtype)
    last = x if past is None and before <= length else whole
    return y, g.slice(last, 2, last.dims[2] - before, last.dims[2])


STATEFUL: tuple[Decomposition, ...] = (row("CausalConvWithState", _causal_convolution),)
