"""The table of operators as a streaming accelerator sees them: what kind each is and which window it reads.

Takes a node of a prepared graph; gives its `OperatorForm`. The accelerator streams images row by row, so what matters of an
operator is how many rows and columns it looks back and ahead, whether it must see a whole map before it can answer, how much
weight it carries. An operator that cannot be said in these terms is `opaque`, with the reason: it runs alone, through DRAM.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fusewise.accel.windows import PIXEL, AxisWindow, centred, resized, spread
from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType, ValueType
from fusewise.ops.spec import Call
from fusewise.ops.table import spec_of
from fusewise.ops.window import transposed_window_of, window_of

__all__ = ["KINDS", "AxisWindow", "Image", "OperatorForm", "form_of", "image_of"]

KINDS = ("conv", "depthwise", "pool", "global_pool", "pointwise", "resize", "flatten", "opaque")
"""`conv`: every output channel reads every input channel of its group, Gemm included. `pointwise`: elementwise operators,
joins, and what mixes the channels of one pixel. `flatten`: a map becomes one pixel of many channels."""

Image = tuple[int, int, int]
"""Channels, height and width."""


@dataclass(frozen=True, slots=True)
class OperatorForm:
    """One operator: its kind, its windows along rows and columns, its weights, its work.

    `weights` counts elements, bias included; `filter_weights` those of one output channel, without bias, over
    `filter_channels` input channels; `macs` counts multiply-accumulates. `reason` says why the kind is `opaque`.
    """

    kind: str
    rows: AxisWindow = PIXEL
    columns: AxisWindow = PIXEL
    weights: int = 0
    filter_weights: int = 0
    macs: int = 0
    reason: str = ""
    filter_channels: int = 1


def image_of(kind: ValueType) -> Image | None:
    """Channels, height, width of a tensor, or None when it is not one image.

    [1,C,H,W] is an image, [1,C] a single pixel, and [1,S,D] a column of S pixels (tokens) with D channels.
    """
    if not isinstance(kind, TensorType) or not kind.is_static:
        return None
    match kind.dims:
        case (1, int(channels), int(height), int(width)) if min(channels, height, width) > 0:
            return channels, height, width
        case (1, int(length), int(channels)) if min(length, channels) > 0:
            return channels, length, 1
        case (1, int(channels)) if channels > 0:
            return channels, 1, 1
    return None


def form_of(graph: Graph, node: Node) -> OperatorForm:
    """The row of the table for one node of a prepared graph."""
    weights = _weights(graph, node)
    if node.captured or not node.writes:
        return OperatorForm("opaque", weights=weights, reason=f"{node.op} holds a subgraph")
    reads = tuple(dict.fromkeys(v for v in node.reads if v not in graph.constants))
    for value in (*reads, *node.writes):
        if image_of(graph.types[value]) is None:
            return OperatorForm("opaque", weights=weights, reason=f"{value} {graph.types[value]} is not one image")
    if not reads:
        return OperatorForm("opaque", weights=weights, reason=f"{node.op} reads no tensor")
    reader = _READERS.get(node.op) if node.domain in ("", "ai.onnx") else None
    if reader is None:
        spec = spec_of(node.op, node.domain)
        if spec is None or spec.scalar is None:
            return OperatorForm("opaque", weights=weights, reason=f"{node.op} has no streaming form")
        reader = _elementwise
    found = reader(graph, node, weights)
    return found if isinstance(found, OperatorForm) else OperatorForm("opaque", weights=weights, reason=found)


def _weights(graph: Graph, node: Node) -> int:
    """Elements of floating-point constants; numbers that stand alone are part of the instruction, not of the weights."""
    arrays = (graph.array(value) for value in node.inputs if value)
    return sum(a.size for a in arrays if a is not None and a.ndim > 0 and (a.dtype.kind == "f" or a.dtype.kind == "V"))


def _image(graph: Graph, value: str) -> Image:
    found = image_of(graph.types[value])
    assert found is not None, value
    return found


def _call(graph: Graph, node: Node) -> Call:
    inputs, outputs = (tuple(graph.tensor(v) if v else None for v in values) for values in (node.inputs, node.outputs))
    return Call(node, inputs, outputs, tuple(graph.constants.get(v) for v in node.inputs))


def _windows(graph: Graph, node: Node, kernel: tuple[int, ...]) -> tuple[AxisWindow, AxisWindow]:
    """Along rows and columns, of a convolution or a pool."""
    found = window_of(_call(graph, node), kernel)
    rows, columns = (centred(found.kernel[d], found.dilations[d], found.strides[d], found.begins[d]) for d in (0, 1))
    return rows, columns


def _conv(graph: Graph, node: Node, weights: int) -> OperatorForm | str:
    kernel = graph.array(node.inputs[1])
    if kernel is None:
        return "the weights are not constant"
    if kernel.ndim != 4:
        return f"{kernel.ndim - 2} spatial axes instead of two"
    channels, height, width = _image(graph, node.outputs[0])
    rows, columns = _windows(graph, node, kernel.shape[2:])
    each = math.prod(kernel.shape[1:])
    inputs = _image(graph, node.inputs[0])[0]
    depthwise = kernel.shape[1] == 1 and node.attribute("group", 1) == inputs > 1
    kind = "depthwise" if depthwise else "conv"
    work = each * channels * height * width
    return OperatorForm(kind, rows, columns, weights, each, work, filter_channels=kernel.shape[1])


def _conv_transpose(graph: Graph, node: Node, weights: int) -> OperatorForm | str:
    """An output pixel reads ceil(kernel / stride) input pixels along an axis."""
    kernel = graph.array(node.inputs[1])
    if kernel is None:
        return "the weights are not constant"
    if kernel.ndim != 4:
        return f"{kernel.ndim - 2} spatial axes instead of two"
    before, after, found = (
        _image(graph, node.inputs[0]),
        _image(graph, node.outputs[0]),
        transposed_window_of(_call(graph, node), kernel.shape[2:]),
    )
    rows, columns = (
        spread(found.kernel[d], found.dilations[d], found.strides[d], found.begins[d], before[1 + d], after[1 + d])
        for d in (0, 1)
    )
    depth = kernel.shape[0] // node.attribute("group", 1)
    each, work = depth * math.prod(kernel.shape[2:]), math.prod(kernel.shape[1:]) * math.prod(before)
    return OperatorForm("conv", rows, columns, weights, each, work, filter_channels=depth)


def _product(graph: Graph, node: Node, weights: int) -> OperatorForm | str:
    """Gemm and MatMul with constant weights: a 1x1 convolution over the pixels."""
    matrix = graph.array(node.inputs[1])
    if matrix is None or node.inputs[0] in graph.constants:
        return "the weights are not constant"
    if matrix.ndim != 2 or node.attribute("transA", 0) or any(v not in graph.constants for v in node.reads[1:]):
        return "not a product of pixels and a matrix"
    if graph.tensor(node.inputs[0]).rank == 4:
        return "the product runs along the width"
    channels, height, width = _image(graph, node.outputs[0])
    each = matrix.size // channels
    return OperatorForm("conv", PIXEL, PIXEL, weights, each, each * channels * height * width, filter_channels=each)


def _pool(graph: Graph, node: Node, weights: int) -> OperatorForm | str:
    kernel, (_, height, width) = node.attribute("kernel_shape"), _image(graph, node.inputs[0])
    if len(kernel) != 2:
        return f"{len(kernel)} spatial axes instead of two"
    if len(node.writes) > 1:
        return "the positions of the maxima are asked for"
    pads = node.attribute("pads", (0, 0, 0, 0))
    if tuple(kernel) == (height, width) and (height, width) != (1, 1) and not any(pads):
        return OperatorForm("global_pool")
    rows, columns = _windows(graph, node, tuple(kernel))
    return OperatorForm("pool", rows, columns, macs=math.prod(kernel) * math.prod(_image(graph, node.outputs[0])))


def _global_pool(graph: Graph, node: Node, weights: int) -> OperatorForm | str:
    return OperatorForm("global_pool", macs=math.prod(_image(graph, node.inputs[0])))


def _reduce(graph: Graph, node: Node, weights: int) -> OperatorForm | str:
    axes = graph.array(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else None
    kind = graph.tensor(node.inputs[0])
    if axes is None or kind.rank != 4 or {int(a) % 4 for a in np.ravel(axes)} != {2, 3}:
        return "it reduces other axes than height and width"
    return _global_pool(graph, node, weights)


def _elementwise(graph: Graph, node: Node, weights: int) -> OperatorForm | str:
    _, height, width = _image(graph, node.outputs[0])
    kind = graph.tensor(node.outputs[0])
    for value in node.reads:
        if value not in graph.constants:
            one = _image(graph, value)[1:] == (1, 1)
            if graph.tensor(value).rank != kind.rank or not (one or _image(graph, value)[1:] == (height, width)):
                return f"{value} is stretched along one axis"
    return OperatorForm("pointwise", weights=weights, macs=kind.size)


def _along_channels(graph: Graph, node: Node, weights: int) -> OperatorForm | str:
    """Concat, Split, Softmax and normalisations: pointwise when they work within one pixel."""
    rank = graph.tensor(node.inputs[0]).rank
    axis = node.attribute("axis", 0 if node.op == "Split" else -1) % rank
    if axis != (1 if rank == 4 else rank - 1):
        return f"{node.op} works along axis {axis}, across pixels"
    if any(value in graph.constants for value in node.reads[:1]):
        return "it reads a constant image"
    return OperatorForm("pointwise", weights=weights, macs=graph.tensor(node.outputs[0]).size)


def _reshape(graph: Graph, node: Node, weights: int) -> OperatorForm | str:
    """Reshape and its kin: free when the pixels stay, `flatten` when a map becomes one pixel."""
    (channels, *extent), (after, *pixels) = _image(graph, node.inputs[0]), _image(graph, node.outputs[0])
    if extent == pixels and channels == after:
        return OperatorForm("pointwise")
    return OperatorForm("flatten") if pixels == [1, 1] else f"{node.op} moves pixels"


def _resize(graph: Graph, node: Node, weights: int) -> OperatorForm | str:
    """Nearest reads one pixel, linear the two on either side."""
    mode = node.attribute("mode", "nearest")
    if mode not in ("nearest", "linear"):
        return f"Resize by {mode} has no streaming form"
    before, after = _image(graph, node.inputs[0]), _image(graph, node.outputs[0])
    if before[0] != after[0]:
        return "Resize changes the channels"
    rounding, coordinates = node.attribute("nearest_mode", "round_prefer_floor"), _coordinates(graph, node)
    found: list[AxisWindow] = []
    for d in (0, 1):
        positions = coordinates(d, before[1 + d], after[1 + d])
        if positions is None:
            return f"Resize by {node.attribute('coordinate_transformation_mode', '')} coordinates has no streaming form"
        found.append(resized(mode == "linear", rounding, positions, before[1 + d]))
    rows, columns = found
    return OperatorForm("resize", rows, columns, macs=math.prod(after))


def _coordinates(graph: Graph, node: Node) -> Callable[[int, int, int], list[float] | None]:
    """Of a Resize: where every output pixel reads along an axis (0 rows, 1 columns) of so many pixels before and after."""
    mode = node.attribute("coordinate_transformation_mode", "half_pixel")
    scales = graph.array(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    axes = node.attribute("axes", (0, 1, 2, 3))

    def positions(axis: int, before: int, after: int) -> list[float] | None:
        scale = after / before
        if scales is not None and scales.size == len(axes) and 2 + axis in axes and scales.all():
            scale = float(scales[list(axes).index(2 + axis)])
        match mode:
            case "half_pixel" | "half_pixel_symmetric" | "pytorch_half_pixel":
                if mode == "pytorch_half_pixel" and after == 1:
                    return [0.0]
                shift = before / 2 * (1 - after / (scale * before)) if mode == "half_pixel_symmetric" else 0.0
                return [shift + (y + 0.5) / scale - 0.5 for y in range(after)]
            case "asymmetric":
                return [y / scale for y in range(after)]
            case "align_corners":
                return [y * (before - 1) / max(1, after - 1) for y in range(after)]
        return None

    return positions


def _pad(graph: Graph, node: Node, weights: int) -> OperatorForm | str:
    """Zeros around the image: the result comes that much before the input, and reads one pixel."""
    before, after = _image(graph, node.inputs[0]), _image(graph, node.outputs[0])
    pads = graph.array(node.inputs[1]) if len(node.inputs) > 1 else None
    if before[0] != after[0] or pads is None or pads.size != 8 or (pads < 0).any():
        return "Pad adds channels or cuts"
    top, left = int(pads[2]), int(pads[3])
    return OperatorForm("pointwise", AxisWindow(top, -top, begin=top), AxisWindow(left, -left, begin=left))


def _slice(graph: Graph, node: Node, weights: int) -> OperatorForm | str:
    """A part of the image, cut out: the result comes that much after the input, and reads one pixel."""
    starts, ends, axes, steps = (graph.array(v) for v in (*node.inputs[1:5], *("",) * 4)[:4])
    if starts is None or ends is None or axes is None or (steps is not None and (steps != 1).any()):
        return "Slice takes every so many pixels, or all axes"
    begins = {int(axis) % 4: int(start) for axis, start in zip(axes, starts, strict=True)}
    if graph.tensor(node.inputs[0]).rank != 4 or not set(begins) <= {2, 3} or min(begins.values()) < 0:
        return "Slice takes a part of the channels, or counts from the end"
    top, left = begins.get(2, 0), begins.get(3, 0)
    return OperatorForm("pointwise", AxisWindow(-top, top, begin=-top), AxisWindow(-left, left, begin=-left))


_READERS: dict[str, Callable[[Graph, Node, int], OperatorForm | str]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _product,
    "MatMul": _product,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "LpPool": _pool,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "ReduceMean": _reduce,
    "ReduceMax": _reduce,
    "ReduceSum": _reduce,
    "Concat": _along_channels,
    "Split": _along_channels,
    "Softmax": _along_channels,
    "LogSoftmax": _along_channels,
    "LayerNormalization": _along_channels,
    "RMSNormalization": _along_channels,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Resize": _resize,
    "Pad": _pad,
    "Slice": _slice,
}
"""Operators that are not elementwise; those are known from the operator table by their scalar body."""
