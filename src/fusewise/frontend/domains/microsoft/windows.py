"""Convolutions and pooling, with the activation after them, and with channels last."""

from __future__ import annotations

from typing import Any

from fusewise.frontend.domains.microsoft.activations import activated
from fusewise.frontend.domains.microsoft.norms import channels_first
from fusewise.frontend.domains.row import DomainCall, DomainRow, integer, integers, reals, text
from fusewise.frontend.domains.writer import DomainValue, DomainWriter

__all__ = ["WINDOWS"]

_PLACES = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def _given(call: DomainCall, *names: str) -> dict[str, Any]:
    found = {name: call.attribute(name) for name in names}
    if found.get("auto_pad") not in (None, "NOTSET"):
        found["pads"] = None
    return found


def _conv(g: DomainWriter, call: DomainCall, x: DomainValue) -> DomainValue:
    return g.Conv(x, call["W"], call.get("B"), **_given(call, *_PLACES))


def _finished(g: DomainWriter, call: DomainCall, y: DomainValue) -> DomainValue:
    """What is added to a convolution, and its activation."""
    parameters = call.attribute("activation_params") or ()
    return activated(g, call, g.total(y, call.get("Z")), call.attribute("activation"), parameters)


def _fused_conv(g: DomainWriter, call: DomainCall) -> DomainValue:
    return _finished(g, call, _conv(g, call, call["X"]))


def _nhwc_conv(g: DomainWriter, call: DomainCall) -> DomainValue:
    return channels_first(g, call["X"], lambda x: _conv(g, call, x))


def _nhwc_fused_conv(g: DomainWriter, call: DomainCall) -> DomainValue:
    return _finished(g, call, _nhwc_conv(g, call))


def _nhwc_max_pool(g: DomainWriter, call: DomainCall) -> DomainValue:
    given = _given(call, "auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
    return channels_first(g, call["x"], lambda x: g.MaxPool(x, **given))


def _conv_transpose(g: DomainWriter, call: DomainCall) -> DomainValue:
    pads = g.known(call.get("Pads"))
    if pads is None and "Pads" in call:
        raise call.unsupported("its input 'Pads' must be a constant")
    given = _given(call, "auto_pad", "dilations", "group", "kernel_shape", "output_padding", "strides")
    given["pads"] = None if pads is None else pads.reshape(-1).tolist()
    return g.ConvTranspose(call["X"], call["W"], call.get("B"), **given)


_WINDOW = (text("auto_pad", "NOTSET"), integers("dilations", None), integers("strides", None))
_CONV = (*_WINDOW, integers("kernel_shape", None), integer("group", 1))
_ACTIVATION = (text("activation", None), reals("activation_params", None))

WINDOWS: tuple[DomainRow, ...] = (
    DomainRow("FusedConv", _fused_conv, ("X", "W", "B?", "Z?"), (*_CONV, integers("pads", None), *_ACTIVATION), ("Y",)),
    DomainRow("NhwcConv", _nhwc_conv, ("X", "W", "B?"), (*_CONV, integers("pads", None)), ("Y",)),
    DomainRow(
        "NhwcFusedConv",
        _nhwc_fused_conv,
        ("X", "W", "B?", "Z?"),
        (*_CONV, integers("pads", None), *_ACTIVATION),
        ("Y",),
    ),
    DomainRow(
        "NhwcMaxPool",
        _nhwc_max_pool,
        ("x",),
        (*_WINDOW, integers("kernel_shape"), integers("pads", None), integer("ceil_mode", 0)),
        ("y",),
    ),
    DomainRow(
        "ConvTransposeWithDynamicPads",
        _conv_transpose,
        ("X", "W", "Pads?", "B?"),
        (*_CONV, integers("output_padding", None)),
        ("Y",),
    ),
)
