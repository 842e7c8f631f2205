"""Small networks, one for each thing that line buffers and tiles must get right, and their values by ONNX's reference."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fusewise.accel.bits import bits_of
from fusewise.accel.network import Network, network_of
from fusewise.accel.simulate.lbdf import maps_of
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Constant, Graph, Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.ops.evaluate import evaluate

OPSET = 19


class Drawing:
    """A graph in the making; weights are random, shapes follow from running it."""

    def __init__(self, channels: int, height: int, width: int) -> None:
        self.rng = np.random.default_rng(0)
        self.values = {"x": self.rng.standard_normal((1, channels, height, width), np.float32)}
        self.constants: dict[str, Constant] = {}
        self.nodes: list[Node] = []

    def op(self, kind: str, *inputs: str | np.ndarray | None, outputs: int = 1, **attributes: Any) -> str:
        """Arrays become constants. Gives the first result's name; others end in .1, .2, ..."""
        names = []
        for one in inputs:
            name = one if isinstance(one, str) else ""
            if isinstance(one, np.ndarray):
                name = f"w{len(self.constants)}"
                self.constants[name] = Constant(one)
            names.append(name)
        first = f"{kind.lower()}{len(self.nodes)}"
        made = tuple(first if i == 0 else f"{first}.{i}" for i in range(outputs))
        node = Node(kind, tuple(names), made, attributes_of(**attributes), name=first)
        feeds = {v: self.values[v] if v in self.values else self.constants[v].array for v in node.reads}
        self.values |= dict(zip(made, evaluate(node, feeds, OPSET), strict=True))
        self.nodes.append(node)
        return first

    def conv(self, x: str, channels: int, kernel: int, stride: int = 1, pad: int | None = None, **more: Any) -> str:
        inputs = self.values[x].shape[1] // more.get("group", 1)
        weights = self.rng.standard_normal((channels, inputs, kernel, kernel), np.float32) / kernel
        bias = self.rng.standard_normal(channels, np.float32)
        pads = ((kernel - 1) * more.get("dilations", (1, 1))[0] // 2 if pad is None else pad,) * 4
        return self.op("Conv", x, weights, bias, strides=(stride, stride), pads=pads, **more)

    def depthwise(self, x: str, stride: int = 1) -> str:
        channels = self.values[x].shape[1]
        return self.conv(x, channels, 3, stride, group=channels)

    def graph(self, name: str) -> Graph:
        read = {v for node in self.nodes for v in node.reads}
        outputs = tuple(v for node in self.nodes for v in node.writes if v not in read)
        types = {v: TensorType(FLOAT32, array.shape) for v, array in self.values.items()}
        types |= {v: constant.type for v, constant in self.constants.items()}
        return Graph(("x",), outputs, tuple(self.nodes), types, self.constants, name, opset=OPSET)


def chain(d: Drawing) -> None:
    x = d.op("Relu", d.conv("x", 12, 3))
    d.conv(d.op("Relu", d.conv(x, 20, 3)), 9, 1)


def strides(d: Drawing) -> None:
    x = d.op("MaxPool", d.conv("x", 10, 7, 2), kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    d.conv(d.op("AveragePool", x, kernel_shape=(2, 2), strides=(2, 2)), 9, 3, pad=0)


def shortcut(d: Drawing) -> None:
    """A residual block that shrinks: the 1x1 shortcut looks at every second pixel."""
    x = d.op("Relu", d.conv("x", 9, 3))
    y = d.conv(d.op("Relu", d.conv(x, 16, 3, 2)), 16, 3)
    z = d.op("Relu", d.op("Add", y, d.conv(x, 16, 1, 2)))
    d.op("Add", d.conv(d.op("Relu", d.conv(z, 16, 3)), 16, 3), z)


def inverted(d: Drawing) -> None:
    """Two inverted residuals; the second one's input is the first one's sum."""
    x = "x"
    for _ in range(2):
        y = d.op("Clip", d.conv(x, 24, 1), np.float32(0), np.float32(6))
        y = d.op("Clip", d.depthwise(y), np.float32(0), np.float32(6))
        x = d.op("Add", d.conv(y, 4, 1), x)


def fire(d: Drawing) -> None:
    """Squeeze and two expansions side by side, twice."""
    x = "x"
    for _ in range(2):
        x = d.op("Relu", d.conv(x, 9, 1))
        x = d.op("Concat", d.op("Relu", d.conv(x, 16, 1)), d.op("Relu", d.conv(x, 16, 3)), axis=1)
    d.op("MaxPool", x, kernel_shape=(3, 3), strides=(2, 2), ceil_mode=1)


def gate(d: Drawing) -> None:
    """Squeeze and excite: the gate waits for the whole map."""
    x = d.depthwise(d.conv("x", 12, 1))
    x = d.op("Mul", x, d.op("Sigmoid", x))
    y = d.op("Relu", d.conv(d.op("GlobalAveragePool", x), 3, 1))
    d.conv(d.op("Mul", x, d.op("HardSigmoid", d.conv(y, 12, 1))), 8, 1)


def dilated(d: Drawing) -> None:
    """A pyramid of dilations with an image-wide branch, which is stretched again."""
    x = d.conv("x", 8, 1)
    y = d.op("Relu", d.conv(d.op("GlobalAveragePool", x), 8, 1))
    size = np.array([1, 8, *d.values[x].shape[2:]], np.int64)
    y = d.op("Resize", y, None, None, size, mode="linear", coordinate_transformation_mode="pytorch_half_pixel")
    parts = [d.conv(x, 8, 1), d.conv(x, 8, 3, dilations=(2, 2)), d.conv(x, 8, 3, dilations=(4, 4)), y]
    d.conv(d.op("Concat", *parts, axis=1), 8, 1)


def resized(mode: str, coordinates: str) -> Callable[[Drawing], None]:
    def draw(d: Drawing) -> None:
        x = d.conv("x", 8, 3, 2)
        size = np.array([1, 8, *d.values["x"].shape[2:]], np.int64)
        x = d.op("Resize", x, None, None, size, mode=mode, coordinate_transformation_mode=coordinates)
        d.conv(d.op("Concat", x, d.conv("x", 8, 1), axis=1), 8, 3)

    return draw


def transposed(d: Drawing) -> None:
    x = d.op("ConvTranspose", d.conv("x", 8, 3), d.rng.standard_normal((8, 6, 2, 2), np.float32), strides=(2, 2))
    d.conv(x, 4, 3)


def overlapping(d: Drawing) -> None:
    kernel = d.rng.standard_normal((8, 6, 4, 4), np.float32)
    x = d.op("ConvTranspose", d.conv("x", 8, 3), kernel, strides=(2, 2), pads=(1, 1, 1, 1))
    d.conv(x, 4, 3)


def shifted(d: Drawing) -> None:
    """Padding and cutting by nodes of their own, as some exporters write it."""
    x = d.op("Pad", d.conv("x", 8, 3), np.array([0, 0, 2, 1, 0, 0, 1, 2]))
    x = d.op("Relu", d.conv(x, 8, 3, pad=0))
    d.op("Slice", x, np.array([1, 1]), np.array([9, 8]), np.array([2, 3]))


def flattened(d: Drawing) -> None:
    x = d.op("Flatten", d.op("Relu", d.conv("x", 8, 3, 2)))
    d.op("Gemm", x, d.rng.standard_normal((10, d.values[x].shape[1]), np.float32), transB=1)


def tiny(d: Drawing) -> None:
    """Maps so small that no window lies within them."""
    x = d.conv(d.conv("x", 8, 3, 2), 8, 3, 2)
    d.conv(d.conv(x, 8, 3, 2), 8, 3)


SHAPES: dict[str, tuple[Callable[[Drawing], None], tuple[int, int, int]]] = {
    "chain": (chain, (3, 12, 9)),
    "strides": (strides, (3, 41, 36)),
    "shortcut": (shortcut, (4, 14, 12)),
    "inverted": (inverted, (4, 11, 10)),
    "fire": (fire, (10, 12, 11)),
    "gate": (gate, (9, 8, 7)),
    "dilated": (dilated, (9, 12, 11)),
    "nearest": (resized("nearest", "asymmetric"), (4, 12, 10)),
    "linear": (resized("linear", "half_pixel"), (4, 12, 10)),
    "aligned": (resized("linear", "align_corners"), (4, 13, 9)),
    "transposed": (transposed, (4, 7, 6)),
    "overlapping": (overlapping, (4, 7, 6)),
    "shifted": (shifted, (4, 9, 8)),
    "flattened": (flattened, (4, 10, 9)),
    "tiny": (tiny, (4, 9, 9)),
}


@cache
def small(name: str) -> tuple[Graph, Network, dict[int, np.ndarray]]:
    """One of `SHAPES`: the graph, the planner's view of it, and all its values as maps."""
    draw, size = SHAPES[name]
    drawing = Drawing(*size)
    draw(drawing)
    graph = drawing.graph(name)
    network = network_of(graph)
    return graph, network, maps_of(graph, network, drawing.values)


def outside(network: Network, group: int) -> set[int]:
    """The tensors that a group reads from outside."""
    read = {read.tensor for v in bits_of(group) for read in network.operators[v].reads}
    return {t for t in read if network.tensors[t].producer < 0 or not group >> network.tensors[t].producer & 1}
