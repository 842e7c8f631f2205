"""Random graphs for the fusion tests: all five mapping types, branches, shared values, broadcasts, several outputs.

A graph grows one operator at a time from a table of steps. A step takes the builder, a source of choices and a value, and
gives the values it made; it may decline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import onnx

from fusewise.ir.dtypes import DType
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.ops.proto import node_to_proto, tensor_to_proto, type_to_proto

MOST_ELEMENTS = 1536


@dataclass
class Choices:
    """A random source: `pick` one of several, `index` below a bound, an `order` of several, and arrays."""

    source: Random
    dtype: DType

    def index(self, below: int) -> int:
        return self.source.randrange(below)

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.index(len(options))]

    def order(self, count: int) -> list[int]:
        return self.source.sample(range(count), count)

    def array(self, *shape: int) -> np.ndarray:
        rng = np.random.default_rng(self.index(2**16))
        return rng.uniform(-1, 1, shape).astype(self.dtype.numpy)


Step = Callable[[GraphBuilder, Choices, str, list[str]], list[str]]


def unary(b: GraphBuilder, c: Choices, x: str, known: list[str]) -> list[str]:
    return [b.op(c.pick(("Relu", "Neg", "Abs", "Tanh", "Sigmoid", "Identity", "LeakyRelu")), x)]


def binary(b: GraphBuilder, c: Choices, x: str, known: list[str]) -> list[str]:
    """With a value of the same shape, one that broadcasts either way, a constant along an axis, or a number."""
    shape = b.shape(x)
    others = [v for v in known if fits(b.shape(v), shape)]
    kind = c.index(4)
    if kind == 0 or not others:
        y = b.constant(c.array(*(n if c.index(2) else 1 for n in shape)))
    elif kind == 1:
        y = b.constant(c.array())
    else:
        y = c.pick(others)
    pair = (x, y) if c.index(2) else (y, x)
    return [b.op(c.pick(("Add", "Sub", "Mul", "Max")), *pair)]


def fits(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Do two shapes broadcast to something not too large?"""
    try:
        return math.prod(np.broadcast_shapes(a, b)) <= MOST_ELEMENTS
    except ValueError:
        return False


def where(b: GraphBuilder, c: Choices, x: str, known: list[str]) -> list[str]:
    alike = [v for v in known if b.shape(v) == b.shape(x)]
    return [b.op("Where", b.op("Greater", x, b.constant(c.array())), x, c.pick(alike))]


def reshape(b: GraphBuilder, c: Choices, x: str, known: list[str]) -> list[str]:
    size = math.prod(b.shape(x))
    rest, target = size, []
    for _ in range(c.index(3)):
        factor = c.pick([n for n in range(1, min(rest, 12) + 1) if rest % n == 0])
        target.append(factor)
        rest //= factor
    target.insert(c.index(len(target) + 1), rest)
    return [b.op("Reshape", x, b.constant(target))]


def flatten(b: GraphBuilder, c: Choices, x: str, known: list[str]) -> list[str]:
    return [b.op("Flatten", x, axis=c.index(len(b.shape(x)) + 1))]


def transpose(b: GraphBuilder, c: Choices, x: str, known: list[str]) -> list[str]:
    return [b.op("Transpose", x, perm=c.order(len(b.shape(x))))]


def unsqueeze(b: GraphBuilder, c: Choices, x: str, known: list[str]) -> list[str]:
    return [b.op("Unsqueeze", x, b.constant([c.index(len(b.shape(x)) + 1)]))] if len(b.shape(x)) < 5 else []


def squeeze(b: GraphBuilder, c: Choices, x: str, known: list[str]) -> list[str]:
    axes = [k for k, n in enumerate(b.shape(x)) if n == 1]
    return [b.op("Squeeze", x, b.constant([c.pick(axes)]))] if axes else []


def slice_(b: GraphBuilder, c: Choices, x: str, known: list[str]) -> list[str]:
    shape = b.shape(x)
    if not shape:
        return []
    axis = c.index(len(shape))
    if not c.index(5):
        bounds = ([-1], [-(2**31)], [axis], [-1])
    else:
        start = c.index(shape[axis])
        bounds = ([start], [start + 1 + c.index(shape[axis] - start)], [axis], [1 + c.index(2)])
    return [b.op("Slice", x, *(b.constant(part) for part in bounds))]


def split(b: GraphBuilder, c: Choices, x: str, known: list[str]) -> list[str]:
    shape = b.shape(x)
    axes = [k for k, n in enumerate(shape) if n > 1]
    if not axes:
        return []
    axis = c.pick(axes)
    first = 1 + c.index(shape[axis] - 1)
    return list(b.op("Split", x, b.constant([first, shape[axis] - first]), axis=axis, outputs=2))


def concat(b: GraphBuilder, c: Choices, x: str, known: list[str]) -> list[str]:
    shape = b.shape(x)
    if not shape:
        return []
    axis = c.index(len(shape))
    alike = [v for v in known if len(b.shape(v)) == len(shape)]
    alike = [
        v for v in alike if all(m == n for k, (m, n) in enumerate(zip(b.shape(v), shape, strict=True)) if k != axis)
    ]
    parts = [x, *(c.pick(alike) for _ in range(1 + c.index(2)))]
    if sum(math.prod(b.shape(v)) for v in parts) > MOST_ELEMENTS:
        return []
    return [b.op("Concat", *(parts[k] for k in c.order(len(parts))), axis=axis)]


def expand(b: GraphBuilder, c: Choices, x: str, known: list[str]) -> list[str]:
    shape = [3 if n == 1 and c.index(2) else n for n in b.shape(x)]
    if not c.index(3):
        shape.insert(0, 2)
    return [b.op("Expand", x, b.constant(shape))] if shape and math.prod(shape) <= MOST_ELEMENTS else []


def gather(b: GraphBuilder, c: Choices, x: str, known: list[str]) -> list[str]:
    shape = b.shape(x)
    if not shape:
        return []
    axis = c.index(len(shape))
    indices = c.index(shape[axis]) if c.index(2) else [c.index(shape[axis]), c.index(shape[axis])]
    return [b.op("Gather", x, b.constant(np.array(indices, np.int64)), axis=axis)]


def pad(b: GraphBuilder, c: Choices, x: str, known: list[str]) -> list[str]:
    shape = b.shape(x)
    if not shape or math.prod(n + 1 for n in shape) > MOST_ELEMENTS:
        return []
    return [b.op("Pad", x, b.constant([c.index(2) for _ in range(2 * len(shape))]))]


def reduce(b: GraphBuilder, c: Choices, x: str, known: list[str]) -> list[str]:
    shape = b.shape(x)
    if not shape:
        return []
    axes = sorted({c.index(len(shape)) for _ in range(1 + c.index(2))})
    kind = c.pick(("ReduceSum", "ReduceMean", "ReduceMax"))
    return [b.op(kind, x, b.constant(axes), keepdims=c.index(2))]


def row(b: GraphBuilder, c: Choices, x: str, known: list[str]) -> list[str]:
    """Softmax, a normalisation, or one written out."""
    shape = b.shape(x)
    if not shape or shape[-1] < 2:
        return []
    kind = c.index(3)
    if kind == 0:
        return [b.op("Softmax", x, axis=c.index(len(shape)))]
    if kind == 1:
        return [b.op("LayerNormalization", x, b.constant(c.array(shape[-1])), axis=-1, epsilon=0.1)]
    centred = b.op("Sub", x, b.op("ReduceMean", x, b.constant([-1])))
    variance = b.op("ReduceMean", b.op("Mul", centred, centred), b.constant([-1]))
    return [b.op("Div", centred, b.op("Sqrt", b.op("Add", variance, b.constant(np.full((), 0.5, c.dtype.numpy)))))]


def matmul(b: GraphBuilder, c: Choices, x: str, known: list[str]) -> list[str]:
    shape = b.shape(x)
    if not shape:
        return []
    partners = [v for v in known if len(b.shape(v)) >= 2 and b.shape(v)[-2] == shape[-1]]
    partners = [v for v in partners if fits((*b.shape(v)[:-2], 1, 1), (*shape[:-2], 1, 1))]
    y = c.pick(partners) if partners and c.index(2) else b.constant(c.array(shape[-1], 1 + c.index(9)))
    rows = np.broadcast_shapes((*shape[:-2], 1, 1), (*b.shape(y)[:-2], 1, 1))
    if math.prod(rows) * shape[-1] * b.shape(y)[-1] > 4 * MOST_ELEMENTS:
        return []
    return [b.op("MatMul", x, y)]


def gemm(b: GraphBuilder, c: Choices, x: str, known: list[str]) -> list[str]:
    shape = b.shape(x)
    if len(shape) != 2:
        return []
    columns = 1 + c.index(9)
    return [b.op("Gemm", x, b.constant(c.array(columns, shape[1])), b.constant(c.array(columns)), transB=1)]


def image(b: GraphBuilder, c: Choices, x: str, known: list[str]) -> list[str]:
    """A convolution, pooling or another operator on pictures."""
    shape = b.shape(x)
    if len(shape) != 4 or min(shape) < 1 or math.prod(shape) > MOST_ELEMENTS // 2:
        return []
    kind, channels, out = c.index(6), shape[1], 1 + c.index(5)
    if kind <= 1:
        k = 1 + 2 * kind
        return [b.op("Conv", x, b.constant(c.array(out, channels, k, k)), b.constant(c.array(out)), pads=[kind] * 4)]
    if kind == 2:
        return [b.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])]
    if kind == 3:
        return [b.op("GlobalAveragePool", x)]
    if kind == 4:
        return [b.op("ConvTranspose", x, b.constant(c.array(channels, min(out, 2), 2, 2)), strides=[2, 2])]
    return [b.op("DepthToSpace", x, blocksize=2)] if channels % 4 == 0 else []


STEPS: tuple[tuple[Step, int], ...] = (
    (unary, 5),
    (binary, 7),
    (where, 1),
    (reshape, 4),
    (flatten, 1),
    (transpose, 3),
    (unsqueeze, 1),
    (squeeze, 1),
    (slice_, 2),
    (split, 2),
    (concat, 3),
    (expand, 2),
    (gather, 1),
    (pad, 1),
    (reduce, 2),
    (row, 1),
    (matmul, 3),
    (gemm, 2),
    (image, 4),
)
"""Every step and how often it is tried."""


def random_graph(source: Random, dtype: DType, nodes: int = 12) -> Graph:
    """A graph of at most `nodes` operators or a few more."""
    c = Choices(source, dtype)
    b = GraphBuilder("random")
    steps = [step for step, weight in STEPS for _ in range(weight)]
    known = [b.input(f"x{k}", start(c), dtype) for k in range(1 + c.index(2))]
    for _ in range(4 * nodes):
        if len(b.nodes) >= nodes:
            break
        x = known[-1 - min(c.index(3), c.index(len(known)))]  # mostly what was made last, so that chains grow
        made = c.pick(steps)(b, c, x, known)
        known.extend(v for v in made if len(b.shape(v)) <= 6)
    read = {v for node in b.nodes for v in node.reads}
    ends = [v for node in b.nodes for v in node.writes if v not in read or not c.index(8)]
    return b.finish(*ends)


def start(c: Choices) -> tuple[int, ...]:
    kind = c.index(3)
    if kind == 0:
        return c.pick(((1, 4, 4, 4), (1, 3, 6, 5), (2, 4, 3, 3), (1, 8, 2, 2)))
    return c.pick(((6, 8), (2, 3, 4), (1, 5, 8), (12,), (3, 1, 4), (2, 2, 3, 4)))


def feeds_for(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {v: rng.uniform(-1, 1, graph.tensor(v).dims).astype(graph.tensor(v).dtype.numpy) for v in graph.inputs}


def model_of(graph: Graph) -> onnx.ModelProto:
    """The graph as an ONNX model, made by the `onnx` package's own helpers."""
    proto = onnx.helper.make_graph(
        [node_to_proto(node) for node in graph.nodes],
        "g",
        [onnx.helper.make_value_info(v, type_to_proto(graph.types[v])) for v in graph.inputs],
        [onnx.helper.make_value_info(v, type_to_proto(graph.types[v])) for v in graph.outputs],
        [tensor_to_proto(c.array, v) for v, c in graph.constants.items()],
    )
    return onnx.helper.make_model(proto, opset_imports=[onnx.helper.make_opsetid("", graph.opset)], ir_version=10)
