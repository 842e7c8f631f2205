"""Today's graphs written down as exporters did years ago.

`written_at(graph, opset)` gives a model of an opset from 7 to 12: operands that were attributes are attributes again, axes
count from the front, resizing is `Upsample` or the first `Resize`, and weights are listed among the inputs, as the third
version of the file format asked. Only what the architectures in the tests need; anything else is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fusewise.ir.graph import Graph, Node
from fusewise.ops.proto import node_to_proto, type_to_proto

__all__ = ["written_at"]

Attributes = dict[str, Any]


@dataclass(frozen=True)
class Was:
    """The constant operand `position` was the attribute `name` before opset `before`."""

    before: int
    position: int
    name: str


OPERANDS: dict[str, tuple[Was, ...]] = {
    "Clip": (Was(11, 2, "max"), Was(11, 1, "min")),
    "Pad": (Was(11, 2, "value"), Was(11, 1, "pads")),
    "ReduceMax": (Was(18, 1, "axes"),),
    "ReduceMean": (Was(18, 1, "axes"),),
    "ReduceSum": (Was(13, 1, "axes"),),
    "Slice": (Was(10, 3, "axes"), Was(10, 2, "ends"), Was(10, 1, "starts")),
    "Split": (Was(13, 1, "split"),),
    "Squeeze": (Was(13, 1, "axes"),),
    "Unsqueeze": (Was(13, 1, "axes"),),
}


@dataclass
class _Page:
    """The model under construction."""

    graph: Graph
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    def constant(self, name: str, array: np.ndarray) -> str:
        self.weights[name] = array
        return name

    def write(self, node: Node) -> None:
        special = SPECIAL.get(node.op)
        if special is not None:
            special(self, node)
        else:
            self.add(node)

    def add(self, node: Node, **changes: Any) -> None:
        """One node, its operands and axes as they were; `changes` are attributes set, or removed where None."""
        inputs = list(node.inputs)
        for was in OPERANDS.get(node.op, ()):
            if self.opset < was.before and len(inputs) > was.position:
                value = inputs.pop(was.position)
                if value:
                    array = self.graph.array(value)
                    assert array is not None, f"{node.label}: {was.name} is computed"
                    changes[was.name] = array.tolist()
        changed = node.with_inputs(inputs).with_attributes(**changes)
        proto = node_to_proto(changed.with_attributes(**self.axes_from_the_front(changed)))
        del proto.metadata_props[:]
        for name in inputs:
            if name in self.graph.constants:
                self.weights[name] = self.graph.constants[name].array
        self.nodes.append(proto)

    def axes_from_the_front(self, node: Node) -> Attributes:
        """Negative axes came with opset 11."""
        value = node.outputs[0] if node.op == "Unsqueeze" else node.inputs[0]
        rank = self.graph.tensor(value).rank
        found: Attributes = {}
        for name, given in node.attributes:
            if self.opset < 11 and name == "axis" and isinstance(given, int):
                found[name] = given % rank
            if self.opset < 11 and name == "axes" and isinstance(given, tuple):
                found[name] = [axis % rank for axis in given]
        return found

    def model(self) -> onnx.ModelProto:
        weights = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        described = [helper.make_tensor_value_info(w.name, w.data_type, w.dims) for w in weights]
        ends = [
            [helper.make_value_info(v, type_to_proto(self.graph.types[v])) for v in values]
            for values in (self.graph.inputs, self.graph.outputs)
        ]
        body = helper.make_graph(self.nodes, self.graph.name, [*ends[0], *described], ends[1], weights)
        return helper.make_model(body, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=3)


def batch_normalization(page: _Page, node: Node) -> None:
    """Statistics per channel had to be asked for before opset 9."""
    page.add(node, spatial=1 if page.opset < 9 else None)


def softmax(page: _Page, node: Node) -> None:
    """Over all axes from `axis` on, before opset 13: the same for the last one only."""
    rank = page.graph.tensor(node.inputs[0]).rank
    assert node.attribute("axis", -1) % rank == rank - 1, f"{node.label}: not over the last axis"
    page.add(node, axis=rank - 1)


def split(page: _Page, node: Node) -> None:
    """Sizes were always written down, or left out for equal parts."""
    page.add(node, num_outputs=None)


def reshape(page: _Page, node: Node) -> None:
    assert node.attribute("allowzero", 0) == 0
    page.add(node, allowzero=None)


def pooling(page: _Page, node: Node) -> None:
    """Rounding up and dilation came with opset 10."""
    assert node.attribute("ceil_mode", 0) == 0 and set(node.attribute("dilations", (1,))) == {1}
    page.add(node, ceil_mode=None, dilations=None)


def resize(page: _Page, node: Node) -> None:
    """Upsample with its scales as an attribute (7, 8) or an operand (9), the first Resize (10), Resize with sizes (11)."""
    sizes = page.graph.array(node.inputs[3])
    assert sizes is not None
    if page.opset >= 11:
        nothing = page.constant(f"{node.label}.nothing", np.zeros(0, np.float32))
        page.add(node.with_inputs([node.inputs[0], nothing, nothing, node.inputs[3]]))
        return
    assert node.attribute("coordinate_transformation_mode") == "asymmetric"
    scales = (sizes / np.array(page.graph.tensor(node.inputs[0]).dims)).astype(np.float32)
    old = helper.make_node(
        "Resize" if page.opset == 10 else "Upsample",
        [node.inputs[0]],
        node.outputs,
        node.label,
        mode=node.attribute("mode", "nearest"),
    )
    if page.opset < 9:
        old.attribute.append(helper.make_attribute("scales", scales.tolist()))
    else:
        old.input.append(page.constant(f"{node.label}.scales", scales))
    page.nodes.append(old)


SPECIAL: dict[str, Callable[[_Page, Node], None]] = {
    "AveragePool": pooling,
    "BatchNormalization": batch_normalization,
    "MaxPool": pooling,
    "Reshape": reshape,
    "Resize": resize,
    "Softmax": softmax,
    "Split": split,
}


def written_at(graph: Graph, opset: int) -> onnx.ModelProto:
    """The model of `opset`, 7 to 12, that computes what `graph` does; it passes ONNX's checker."""
    page = _Page(graph, opset)
    for node in graph.nodes:
        page.write(node)
    model = page.model()
    onnx.checker.check_model(model, full_check=True)
    return model
