"""Which pixels of its operands an operator reads for each pixel of its result: the literal geometry, from the node's attributes.

Nothing here comes from the planner's own table of windows, so that executing a plan can contradict it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusewise.accel.operators import image_of
from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.ops.evaluate import evaluate
from fusewise.ops.spec import Call
from fusewise.ops.window import transposed_window_of, window_of

__all__ = ["AxisReach", "Reach", "reach_of", "transposed_begins"]


@dataclass(frozen=True)
class AxisReach:
    """Along one axis, `first[y]` to `last[y]` in steps of `step` are the input positions that output position y reads.

    They may lie outside the input, where padding is: `extent` is the input's size. `exact` has the positions between two pixels
    that a Resize reads at.
    """

    first: np.ndarray
    last: np.ndarray
    step: int
    extent: int
    exact: np.ndarray | None = None

    def between(self, at: int) -> tuple[int, int, float]:
        """The two positions that output position `at` lies between, and the share of the second."""
        low, high = int(self.first[at]), int(self.last[at])
        return low, high, 0.0 if self.exact is None else float(self.exact[at]) - low


@dataclass(frozen=True)
class Reach:
    """How an operator reads one operand; `whole` when it takes pixels as they come and answers after the last."""

    rows: AxisReach
    columns: AxisReach
    whole: bool = False


def reach_of(graph: Graph, node: Node, value: str) -> Reach:
    """The geometry of operand `value` of a node with a streaming form."""
    before, after = image_of(graph.types[value]), image_of(graph.types[node.writes[0]])
    assert before is not None and after is not None
    if node.op in ("Conv", "MaxPool", "AveragePool", "LpPool"):
        weights = graph.array(node.inputs[1]) if node.op == "Conv" else None
        kernel = weights.shape[2:] if weights is not None else tuple(node.attribute("kernel_shape"))
        window = window_of(_call(graph, node), kernel)
        rows, columns = (
            _window(
                after[1 + d], window.strides[d], window.begins[d], window.kernel[d], window.dilations[d], before[1 + d]
            )
            for d in (0, 1)
        )
        return Reach(rows, columns)
    if node.op == "ConvTranspose":
        weights = graph.array(node.inputs[1])
        assert weights is not None
        window = transposed_window_of(_call(graph, node), weights.shape[2:])
        rows, columns = (
            _spread(
                after[1 + d], window.strides[d], window.begins[d], window.kernel[d], window.dilations[d], before[1 + d]
            )
            for d in (0, 1)
        )
        return Reach(rows, columns)
    if node.op in ("GlobalAveragePool", "GlobalMaxPool", "ReduceMean", "ReduceMax", "ReduceSum"):
        return _all(before)
    if node.op in ("Reshape", "Flatten", "Squeeze", "Unsqueeze") and before[1:] != after[1:]:
        return _all(before)
    shift = (0, 0)
    if node.op == "Pad":
        pads = graph.array(node.inputs[1])
        assert pads is not None
        shift = -int(pads[2]), -int(pads[3])
    if node.op == "Slice":
        shift = _slice_starts(graph, node)
    if node.op == "Resize":
        rows, columns = (_resized(graph, node, d, before, after) for d in (0, 1))
        return Reach(rows, columns)
    rows, columns = (_same(after[1 + d], before[1 + d], shift[d]) for d in (0, 1))
    return Reach(rows, columns)


def transposed_begins(graph: Graph, node: Node) -> tuple[int, int]:
    """Rows and columns that a ConvTranspose cuts off before its result."""
    weights = graph.array(node.inputs[1])
    assert weights is not None
    top, left = transposed_window_of(_call(graph, node), weights.shape[2:]).begins
    return top, left


def _call(graph: Graph, node: Node) -> Call:
    kinds = [tuple(graph.tensor(v) if v else None for v in values) for values in (node.inputs, node.outputs)]
    return Call(node, kinds[0], kinds[1], tuple(graph.constants.get(v) for v in node.inputs))


def _window(outputs: int, stride: int, begin: int, kernel: int, dilation: int, extent: int) -> AxisReach:
    first = np.arange(outputs) * stride - begin
    return AxisReach(first, first + (kernel - 1) * dilation, dilation, extent)


def _spread(outputs: int, stride: int, begin: int, kernel: int, dilation: int, extent: int) -> AxisReach:
    """Output y of a transposed window gathers the inputs i with 0 <= y + begin - i * stride <= (kernel - 1) * dilation."""
    at = np.arange(outputs) + begin
    first = -((-(at - (kernel - 1) * dilation)) // stride)
    return AxisReach(first, np.maximum(first, at // stride), 1, extent)


def _all(before: tuple[int, int, int]) -> Reach:
    rows, columns = (AxisReach(np.zeros(1, int), np.array([size - 1]), 1, size) for size in before[1:])
    return Reach(rows, columns, whole=True)


def _same(outputs: int, extent: int, shift: int) -> AxisReach:
    """Position for position, or the only one there is."""
    at = np.zeros(outputs, int) if extent == 1 and shift == 0 else np.arange(outputs) + shift
    return AxisReach(at, at, 1, extent)


def _slice_starts(graph: Graph, node: Node) -> tuple[int, int]:
    starts, axes = graph.array(node.inputs[1]), graph.array(node.inputs[3])
    assert starts is not None and axes is not None
    begins = {int(axis) % 4: int(start) for axis, start in zip(axes, starts, strict=True)}
    return begins.get(2, 0), begins.get(3, 0)


def _resized(
    graph: Graph, node: Node, axis: int, before: tuple[int, int, int], after: tuple[int, int, int]
) -> AxisReach:
    """Resizing the numbers 0, 1, 2, ... along an axis tells between which two pixels each result lies."""
    kind = graph.tensor(node.inputs[0])
    assert isinstance(kind, TensorType)
    shape = (kind.dims[0], kind.dims[1], before[1], before[2])
    ramp = np.arange(before[1 + axis], dtype=np.float32).reshape((1, 1, -1, 1) if axis == 0 else (1, 1, 1, -1))
    feeds = {value: graph.array(value) for value in node.reads if value in graph.constants}
    feeds[node.inputs[0]] = np.ascontiguousarray(np.broadcast_to(ramp, shape))
    (found,) = evaluate(node, feeds, graph.opset, graph.opsets)[:1]
    line = found[0, 0, :, 0] if axis == 0 else found[0, 0, 0, :]
    line = np.clip(np.round(line.astype(np.float64), 4), 0, before[1 + axis] - 1)
    return AxisReach(np.floor(line).astype(int), np.ceil(line).astype(int), 1, before[1 + axis], line)
