"""Operators that ONNX had as experiments until opset 9, which converters from other formats wrote."""

from __future__ import annotations

import numpy as np

from fusewise.frontend.domains.row import DomainCall, DomainRow, integers, real, reals
from fusewise.frontend.domains.writer import DomainValue, DomainWriter

__all__ = ["OLD"]


def _affine(g: DomainWriter, call: DomainCall) -> DomainValue:
    return call["X"] * _given(call, "alpha") + _given(call, "beta")


def _scale(g: DomainWriter, call: DomainCall) -> DomainValue:
    return call["input"] * _given(call, "scale")


def _image_scaler(g: DomainWriter, call: DomainCall) -> DomainValue:
    """A factor for all, and a number for each channel."""
    bias = np.array(call.attribute("bias") or (0.0,), np.float32).reshape(-1, 1, 1)
    return call["input"] * _given(call, "scale") + bias


def _parametric_softplus(g: DomainWriter, call: DomainCall) -> DomainValue:
    return g.Softplus(call["X"] * _given(call, "beta")) * _given(call, "alpha")


def _scaled_tanh(g: DomainWriter, call: DomainCall) -> DomainValue:
    return g.Tanh(call["input"] * _given(call, "beta")) * _given(call, "alpha")


def _given(call: DomainCall, name: str) -> float:
    found = call.attribute(name)
    if found is None:
        raise call.invalid(f"it lacks the attribute {name!r}")
    return float(found)


def _crop(g: DomainWriter, call: DomainCall) -> DomainValue:
    """A border [left, top, right, bottom] less; with a scale [height, width], so much from its left and top."""
    border, scale = call.attribute("border"), call.attribute("scale")
    if len(border) != 4 or (scale and len(scale) != 2):
        raise call.invalid("its attribute border must be four numbers, and scale two")
    left, top, right, bottom = border
    last = int(np.iinfo(np.int64).max)
    ends = [top + scale[0], left + scale[1]] if scale else [-bottom or last, -right or last]
    return g.Slice(call["input"], [top, left], ends, [2, 3])


def _dynamic_slice(g: DomainWriter, call: DomainCall) -> DomainValue:
    return g.Slice(call["data"], call["starts"], call["ends"], call.get("axes"))


OLD: tuple[DomainRow, ...] = (
    DomainRow("Affine", _affine, ("X",), (real("alpha", 1.0), real("beta", 0.0)), ("Y",), domain=""),
    DomainRow("Scale", _scale, ("input",), (real("scale", 1.0),), domain=""),
    DomainRow(
        "ImageScaler",
        _image_scaler,
        ("input",),
        (real("scale", 1.0), reals("bias", None)),
        shapes="N C H W",
        domain="",
    ),
    DomainRow(
        "ParametricSoftplus", _parametric_softplus, ("X",), (real("alpha", None), real("beta", None)), ("Y",), domain=""
    ),
    DomainRow("ScaledTanh", _scaled_tanh, ("input",), (real("alpha", None), real("beta", None)), domain=""),
    DomainRow("Crop", _crop, ("input",), (integers("border"), integers("scale", None)), shapes="N C H W", domain=""),
    DomainRow("DynamicSlice", _dynamic_slice, ("data", "starts", "ends", "axes?"), domain=""),
)
