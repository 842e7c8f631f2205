"""One network as three frameworks export it: the same function and weights, other layouts and other operators.

PyTorch's form is the zoo's own. TensorFlow keeps channels last, so its converters put a Transpose on both sides of every
convolution, batch normalisation and pooling; padding of strided convolutions is a Pad, a bias an Add, a fully connected layer
MatMul and Add on flattened tokens, ReLU6 a Max and a Min, a global average a ReduceMean, and layer normalisation the formula of
batch normalisation. MXNet keeps channels first, pads in front of poolings, transposes the weights of fully connected layers,
leaves Dropout and Identity in, and writes layer normalisation and GELU out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from fusewise.errors import UsageError
from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.ops.build import GraphBuilder
from fusewise.ops.table import spec_of
from fusewise.words import nearest

__all__ = ["AS_EXPORTED", "STYLES", "styled"]

AS_EXPORTED = "exported"
"""The style of a name, `NAME@exported`, that says what `decomposed` does (`zoo.catalogue.build`)."""

_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def styled(graph: Graph, style: str) -> Graph:
    """`graph` as the framework `style`, a key of `STYLES`, exports it.

    In TensorFlow's style image inputs are [batch, height, width, channels]. `UsageError` for another style.
    """
    if style not in STYLES:
        raise UsageError(f"no framework style is called {style!r}; {nearest(style, (*STYLES, AS_EXPORTED))}")
    return STYLES[style](graph)


@dataclass
class _Writer:
    """A copy of a graph in another style. `names` maps values to their copies, `last` images to copies with channels last,
    `turned` matrices to transposed copies."""

    graph: Graph
    builder: GraphBuilder
    names: dict[str, str] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)
    turned: dict[str, str] = field(default_factory=dict)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        value: str = self.builder.op(kind, *inputs, name=f"style.{kind.lower()}", **attributes)
        return value

    def number(self, figure: float) -> str:
        return self.builder.constant(np.array(figure, np.float32), "number")

    def array(self, value: str) -> np.ndarray | None:
        return self.graph.array(value)

    def dims(self, value: str) -> tuple[int, ...]:
        kind = self.graph.types.get(value)
        return kind.dims if isinstance(kind, TensorType) and kind.is_static else ()

    def value(self, name: str) -> str:
        """The copy of a value in ONNX's own layout."""
        if not name:
            return ""
        if name not in self.names:
            if name in self.graph.constants:
                self.names[name] = self._constant(name)
            else:
                self.names[name] = self.op("Transpose", self.last[name], perm=_FIRST)
        return self.names[name]

    def _constant(self, name: str) -> str:
        return self.builder.constant(self.graph.constants[name].array, name)

    def channels_last(self, name: str) -> str:
        """The copy of an image with channels last; constants turned so that they broadcast as before."""
        if name not in self.last:
            array = self.array(name)
            if array is None:
                self.last[name] = self.op("Transpose", self.names[name], perm=_LAST)
            elif array.size == 1:
                return self.value(name)
            else:
                full = array.reshape((1,) * (4 - array.ndim) + array.shape).transpose(_LAST)
                self.last[name] = self.builder.constant(np.ascontiguousarray(full), name)
        return self.last[name]

    def keep(self, node: Node) -> None:
        """The node as it is."""
        made = self.builder.op(
            node.op,
            *(self.value(v) for v in node.inputs),
            outputs=len(node.outputs),
            name=node.name,
            **dict(node.attributes),
        )
        for old, new in zip(node.outputs, (made,) if len(node.outputs) == 1 else made, strict=True):
            self.names[old] = new

    def finish(self) -> Graph:
        graph = self.builder.finish(*(self.value(name) for name in self.graph.outputs))
        names = dict(zip(graph.outputs, self.graph.outputs, strict=True))
        rename = {value: names.get(value, value) for value in graph.types}
        clash = set(names.values()) & set(graph.types) - set(names)
        rename |= {value: f"{value}_inner" for value in clash}
        return graph.replace(
            outputs=self.graph.outputs,
            nodes=tuple(_renamed(node, rename) for node in graph.nodes),
            types={rename[value]: kind for value, kind in graph.types.items()},
        )


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    inputs, outputs = (tuple(names.get(v, v) for v in values) for values in (node.inputs, node.outputs))
    return replace(node, inputs=inputs, outputs=outputs)


def _gelu(writer: _Writer, node: Node) -> str:
    x = writer.value(node.inputs[0])
    curve = writer.op("Erf", writer.op("Div", x, writer.number(math.sqrt(2))))
    half = writer.op("Mul", x, writer.number(0.5))
    return writer.op("Mul", half, writer.op("Add", curve, writer.number(1.0)))


# --- TensorFlow ----------------------------------------------------------------------------------------------------------


def _tensorflow(graph: Graph) -> Graph:
    writer = _Writer(graph, GraphBuilder(graph.name, graph.opset))
    for name in graph.inputs:
        kind = graph.tensor(name)
        if kind.rank == 4 and kind.dtype.is_float:
            batch, channels, height, width = kind.dims
            writer.last[name] = writer.builder.input(name, (batch, height, width, channels))
        else:
            writer.names[name] = writer.builder.input(name, kind.dims, kind.dtype)
    for node in graph.nodes:
        if any(value in writer.last and value not in graph.constants for value in node.inputs):
            _tensorflow_image(writer, node)
        else:
            _tensorflow_matrix(writer, node)
    return writer.finish()


def _tensorflow_image(writer: _Writer, node: Node) -> None:
    spec = spec_of(node.op)
    result = node.outputs[0]
    if node.op == "Clip" and len(node.inputs) == 3:
        low, high = (writer.value(v) for v in node.inputs[1:])
        x = writer.op("Max", writer.channels_last(node.inputs[0]), low)
        writer.last[result] = writer.op("Min", x, high)
    elif spec is not None and spec.scalar is not None and len(writer.dims(result)) == 4:
        operands = (writer.channels_last(v) if v else "" for v in node.inputs)
        writer.last[result] = writer.op(node.op, *operands, **dict(node.attributes))
    elif node.op == "Concat" and node.attribute("axis") == 1 and len(writer.dims(result)) == 4:
        writer.last[result] = writer.op("Concat", *map(writer.channels_last, node.inputs), axis=3)
    elif node.op == "Conv" and len(writer.dims(result)) == 4:
        _tensorflow_conv(writer, node)
    elif node.op == "GlobalAveragePool":
        axes = writer.builder.constant([1, 2], "axes")
        writer.last[result] = writer.op("ReduceMean", writer.channels_last(node.inputs[0]), axes, keepdims=1)
    elif node.op == "Flatten" and writer.dims(node.inputs[0])[2:] == (1, 1):
        shape = writer.builder.constant([-1, writer.dims(node.inputs[0])[1]], "shape")
        writer.names[result] = writer.op("Reshape", writer.channels_last(node.inputs[0]), shape)
    elif node.op == "Transpose" and tuple(node.attribute("perm")) == _LAST:
        writer.names[result] = writer.op("Identity", writer.channels_last(node.inputs[0]))
    elif node.op in ("BatchNormalization", "MaxPool", "AveragePool"):
        image = writer.op("Transpose", writer.channels_last(node.inputs[0]), perm=_FIRST)
        rest = (writer.value(v) for v in node.inputs[1:])
        writer.last[result] = writer.op(
            "Transpose", writer.op(node.op, image, *rest, **dict(node.attributes)), perm=_LAST
        )
    else:
        writer.keep(node)


def _tensorflow_conv(writer: _Writer, node: Node) -> None:
    """Pad where the stride would make TensorFlow's own padding differ, then the convolution without bias, then an Add."""
    image = writer.channels_last(node.inputs[0])
    pads = tuple(node.attribute("pads", (0, 0, 0, 0)))
    attributes = dict(node.attributes)
    if any(pads) and max(node.attribute("strides", (1, 1))) > 1:
        top, left, bottom, right = pads
        amounts = writer.builder.constant([0, top, left, 0, 0, bottom, right, 0], "paddings")
        image = writer.op("Pad", image, amounts)
        attributes["pads"] = (0, 0, 0, 0)
    first = writer.op("Transpose", image, perm=_FIRST)
    y = writer.op("Conv", first, writer.value(node.inputs[1]), **attributes)
    y = writer.op("Transpose", y, perm=_LAST)
    if len(node.inputs) > 2 and node.inputs[2]:
        y = writer.op("Add", y, writer.value(node.inputs[2]))
    writer.last[node.outputs[0]] = y


def _tensorflow_matrix(writer: _Writer, node: Node) -> None:
    result = node.outputs[0]
    if node.op == "Gemm" and node.inputs[1] in writer.graph.constants and _is_plain(node):
        weights = writer.graph.constants[node.inputs[1]].array
        stored = weights.T if node.attribute("transB", 0) else weights
        matrix = writer.builder.constant(np.ascontiguousarray(stored), node.inputs[1])
        y = writer.op("MatMul", writer.value(node.inputs[0]), matrix)
        writer.names[result] = writer.op("Add", y, writer.value(node.inputs[2])) if len(node.inputs) > 2 else y
    elif node.op == "MatMul" and node.inputs[1] in writer.graph.constants and len(writer.dims(node.inputs[0])) == 3:
        batch, tokens, width = writer.dims(node.inputs[0])
        flat = writer.op("Reshape", writer.value(node.inputs[0]), writer.builder.constant([-1, width], "shape"))
        y = writer.op("MatMul", flat, writer.value(node.inputs[1]))
        shape = writer.builder.constant([batch, tokens, writer.dims(result)[2]], "shape")
        writer.names[result] = writer.op("Reshape", y, shape)
    elif node.op == "Gelu" and node.attribute("approximate", "none") == "none":
        writer.names[result] = _gelu(writer, node)
    elif node.op == "LayerNormalization" and len(node.inputs) == 3:
        writer.names[result] = _tensorflow_norm(writer, node)
    else:
        writer.keep(node)


def _is_plain(node: Node) -> bool:
    factors = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    return factors == (1.0, 1.0) and not node.attribute("transA", 0)


def _tensorflow_norm(writer: _Writer, node: Node) -> str:
    """x * inv + (beta - mean * inv), inv = gamma / sqrt(variance + epsilon): `tf.nn.batch_normalization` over the last axis."""
    x, gamma, beta = (writer.value(v) for v in node.inputs)
    axes = writer.builder.constant([-1], "axes")
    mean = writer.op("ReduceMean", x, axes, keepdims=1)
    centred = writer.op("Sub", x, mean)
    variance = writer.op("ReduceMean", writer.op("Mul", centred, centred), axes, keepdims=1)
    root = writer.op("Sqrt", writer.op("Add", variance, writer.number(node.attribute("epsilon", 1e-5))))
    slope = writer.op("Mul", writer.op("Reciprocal", root), gamma)
    offset = writer.op("Sub", beta, writer.op("Mul", mean, slope))
    return writer.op("Add", writer.op("Mul", x, slope), offset)


# --- MXNet ---------------------------------------------------------------------------------------------------------------


def _mxnet(graph: Graph) -> Graph:
    writer = _Writer(graph, GraphBuilder(graph.name, graph.opset))
    for name in graph.inputs:
        kind = graph.tensor(name)
        writer.names[name] = writer.builder.input(name, kind.dims, kind.dtype)
    for node in graph.nodes:
        _mxnet_node(writer, node)
    return writer.finish()


def _mxnet_node(writer: _Writer, node: Node) -> None:
    result = node.outputs[0]
    if node.op == "MatMul" and writer.array(node.inputs[1]) is not None and len(writer.dims(node.inputs[1])) == 2:
        weights = writer.graph.constants[node.inputs[1]].array
        if node.inputs[1] not in writer.turned:
            stored = writer.builder.constant(np.ascontiguousarray(weights.T), node.inputs[1])
            writer.turned[node.inputs[1]] = stored
        turned = writer.op("Transpose", writer.turned[node.inputs[1]], perm=(1, 0))
        writer.names[result] = writer.op("MatMul", writer.value(node.inputs[0]), turned)
    elif node.op == "Gemm" and writer.array(node.inputs[1]) is not None:
        dropped = writer.op("Dropout", writer.value(node.inputs[0]))
        rest = (writer.value(v) for v in node.inputs[1:])
        writer.names[result] = writer.op("Gemm", dropped, *rest, **dict(node.attributes))
    elif node.op == "MaxPool" and any(node.attribute("pads", ())) and not node.attribute("ceil_mode", 0):
        pads = tuple(node.attribute("pads"))
        half = len(pads) // 2
        amounts = writer.builder.constant([0, 0, *pads[:half], 0, 0, *pads[half:]], "pads")
        lowest = writer.number(float(np.finfo(np.float32).min))
        padded = writer.op("Pad", writer.value(node.inputs[0]), amounts, lowest)
        attributes = dict(node.attributes) | {"pads": (0,) * len(pads)}
        writer.names[result] = writer.op("MaxPool", padded, **attributes)
    elif node.op == "Gelu" and node.attribute("approximate", "none") == "none":
        writer.names[result] = _gelu(writer, node)
    elif node.op == "LayerNormalization" and len(node.inputs) == 3:
        writer.names[result] = _mxnet_norm(writer, node)
    elif node.op == "Softmax":
        kept = writer.op("Softmax", writer.value(node.inputs[0]), **dict(node.attributes))
        writer.names[result] = writer.op("Dropout", kept)
    elif node.op == "Concat":
        writer.names[result] = writer.op(
            "Concat", *(writer.op("Identity", writer.value(v)) for v in node.inputs), **dict(node.attributes)
        )
    else:
        writer.keep(node)


def _mxnet_norm(writer: _Writer, node: Node) -> str:
    x, gamma, beta = (writer.value(v) for v in node.inputs)
    axes = writer.builder.constant([-1], "axes")
    centred = writer.op("Sub", x, writer.op("ReduceMean", x, axes, keepdims=1))
    variance = writer.op("ReduceMean", writer.op("Pow", centred, writer.number(2.0)), axes, keepdims=1)
    root = writer.op("Sqrt", writer.op("Add", variance, writer.number(node.attribute("epsilon", 1e-5))))
    return writer.op("Add", writer.op("Mul", writer.op("Div", centred, root), gamma), beta)


STYLES: Mapping[str, Callable[[Graph], Graph]] = MappingProxyType(
    {"pytorch": lambda graph: graph, "tensorflow": _tensorflow, "mxnet": _mxnet}
)
"""Frameworks by name."""
