"""Small graphs, of every family of kernels one at least, and what they are run on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from tests.codegen.quantized_products import quantised_products

from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT32, INT64, UINT8, DType
from fusewise.ir.graph import Graph, Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.ops.build import GraphBuilder

__all__ = ["CASES", "Case", "feeds_of"]


@dataclass
class Draft:
    """A graph being built, and where its weights come from."""

    b: GraphBuilder
    rng: np.random.Generator

    def weights(self, *shape: int) -> str:
        """Random, of a size that leaves results near 1."""
        size = math.sqrt(max(1, math.prod(shape[1:])))
        return self.b.constant((self.rng.standard_normal(shape) / size).astype(np.float32))

    def convolution(self, x: str, outputs: int, taps: int = 3, group: int = 1, stride: int = 1) -> str:
        """Padded so that a map keeps its size; rectified."""
        w, bias = self.weights(outputs, self.b.shape(x)[1] // group, taps, taps), self.weights(outputs)
        pads = [taps // 2] * 4
        y: str = self.b.op("Conv", x, w, bias, pads=pads, group=group, strides=[stride] * 2)
        return str(self.b.op("Relu", y))


@dataclass(frozen=True)
class Case:
    """`kernels` are those that the graph is there for, by name; it is run by so many threads. Where it is `exact`, bfloat16 is
    rounded wherever the graph says so, on every machine."""

    kernels: tuple[str, ...]
    make: Callable[[Draft], tuple[str, ...]]
    threads: int = 2
    exact: bool = False

    def graph(self) -> Graph:
        draft = Draft(GraphBuilder("case"), np.random.default_rng(3))
        return draft.b.finish(*self.make(draft))


def feeds_of(graph: Graph) -> dict[str, np.ndarray]:
    """The same random inputs on every machine."""
    rng, feeds = np.random.default_rng(4), {}
    for name in graph.inputs:
        kind = graph.types[name]
        assert isinstance(kind, TensorType)
        numbers = rng.standard_normal(kind.dims)
        feeds[name] = numbers.astype(kind.dtype.numpy) if kind.dtype == FLOAT32 else rng.integers(0, 9, kind.dims)
        feeds[name] = feeds[name].astype(kind.dtype.numpy)
    return feeds


def products(d: Draft) -> tuple[str, ...]:
    x, y = d.b.input("x", (13, 37)), d.b.input("y", (13, 37))
    constant = d.b.op("Relu", d.b.op("Gemm", x, d.weights(37, 45), d.weights(45), alpha=0.5))
    varying = d.b.op("MatMul", constant, d.b.op("MatMul", d.b.op("Transpose", constant, perm=[1, 0]), y))
    return constant, varying


def halves(d: Draft) -> tuple[str, ...]:
    """Columns that leave one panel without another beside it."""
    x, image = d.b.input("x", (192, 512)), d.b.input("image", (1, 32, 13, 13))
    y = d.b.op("Gelu", d.b.op("MatMul", x, d.weights(512, 324)))
    wide = d.convolution(d.convolution(image, 512), 1000, 1)
    return y, wide


def convolutions(d: Draft) -> tuple[str, ...]:
    x = d.convolution(d.b.input("x", (1, 3, 25, 23)), 16, 5, stride=2)
    own = d.convolution(x, 16, 3, group=16)
    first = d.convolution(own, 40, 1)
    grouped = d.convolution(first, 24, 3, group=4)
    up = d.b.op("ConvTranspose", grouped, d.weights(24, 9, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1])
    return own, grouped, up


def transforms(d: Draft) -> tuple[str, ...]:
    x = d.convolution(d.b.input("x", (1, 8, 30, 27)), 32, 1)
    return (d.convolution(d.convolution(x, 40), 36, 5),)


def scaled(d: Draft) -> tuple[str, ...]:
    x = d.convolution(d.b.input("x", (1, 16, 28, 28)), 48, 1)
    gate = d.b.op("Sigmoid", d.b.op("Conv", d.b.op("GlobalAveragePool", x), d.weights(48, 48, 1, 1)))
    return (d.b.op("Conv", d.b.op("Mul", x, gate), d.weights(20, 48, 1, 1)),)


def short_floats(d: Draft) -> tuple[str, ...]:
    def short(x: str) -> str:
        return str(d.b.op("Cast", x, to=BFLOAT16.onnx))

    x, image = d.b.input("x", (12, 64)), d.b.input("image", (1, 16, 9, 11))
    product = d.b.op("MatMul", short(x), short(d.weights(64, 24)))
    lies = d.b.op("MaxPool", short(image), kernel_shape=[2, 2])
    pairs = d.b.op("Conv", lies, short(d.weights(24, 16, 2, 2)))
    up = d.b.op("ConvTranspose", lies, short(d.weights(16, 24, 2, 2)), strides=[2, 2])
    half = d.b.op("Exp", d.b.op("Cast", x, to=FLOAT16.onnx))
    return tuple(d.b.op("Cast", y, to=FLOAT32.onnx) for y in (product, pairs, up, half))


def integers(d: Draft) -> tuple[str, ...]:
    x = d.b.op("MaxPool", d.b.op("Cast", d.b.input("x", (1, 16, 9, 9), INT32), to=UINT8.onnx), kernel_shape=[2, 2])
    w, own = (d.b.constant(d.rng.integers(-99, 99, shape).astype(np.int8)) for shape in ((12, 16, 3, 3), (16, 1, 3, 3)))
    zero = d.b.constant(np.uint8(3))
    a, b = (d.b.op("Cast", d.b.input(name, (13, 37), INT32), to=UINT8.onnx) for name in ("a", "b"))
    constant = d.b.constant(d.rng.integers(-99, 99, (37, 45)).astype(np.int8))
    varying = d.b.op("MatMulInteger", a, d.b.op("Transpose", b, perm=[1, 0]), zero, zero)
    convolved = d.b.op("ConvInteger", x, w, zero), d.b.op("ConvInteger", x, own, zero, group=16)
    return *convolved, d.b.op("MatMulInteger", a, constant, zero), varying


def quantised(d: Draft) -> tuple[str, ...]:
    """Weights so many that they stay as small as they are."""
    return quantised_products(d.b, 7, 136, 130)


def short_weights(d: Draft) -> tuple[str, ...]:
    """Weights of 16 bits, so many that they stay so."""

    def product(x: str, dtype: DType, *shape: int) -> str:
        w = (d.rng.standard_normal(shape) / math.sqrt(shape[0])).astype(dtype.numpy)
        return str(d.b.op("MatMul", x, d.b.op("Cast", d.b.constant(w), to=FLOAT32.onnx)))

    few, many = d.b.input("few", (7, 136)), d.b.input("many", (192, 512))
    types = (FLOAT16, BFLOAT16)
    return *(product(few, dtype, 136, 130) for dtype in types), *(product(many, dtype, 512, 324) for dtype in types)


def norms_and_pools(d: Draft) -> tuple[str, ...]:
    x = d.convolution(d.b.input("x", (2, 3, 17, 14)), 32, 3)
    rows = d.b.op("LayerNormalization", d.b.input("rows", (7, 51)), d.weights(51), d.weights(51))
    grouped = d.b.op("GroupNormalization", x, d.weights(32), d.weights(32), num_groups=8)
    pooled = d.b.op("AveragePool", d.b.op("MaxPool", x, kernel_shape=[3, 2], pads=[1, 0, 1, 1]), kernel_shape=[2, 3])
    return d.b.op("Softmax", rows), d.b.op("LogSoftmax", rows, axis=0), grouped, pooled


def attentions(d: Draft) -> tuple[str, ...]:
    q, k, v = (d.b.input(name, (1, 4, length, 16)) for name, length in (("q", 11), ("k", 19), ("v", 19)))
    one = d.b.input("one", (1, 4, 1, 16))
    return d.b.op("Attention", q, k, v), d.b.op("Attention", one, k, v)


def linear_attentions(d: Draft) -> tuple[str, ...]:
    q, k, v = (d.b.input(name, (1, 7, 24)) for name in ("q", "k", "v"))
    d.b.opset = 27
    return tuple(d.b.op("LinearAttention", q, k, v, q_num_heads=2, kv_num_heads=2, update_rule="linear", outputs=2))


def selections(d: Draft) -> tuple[str, ...]:
    """Running sums, the largest elements, and elements put where positions say, of which some are the same."""
    x, where = d.b.input("x", (5, 37)), d.b.input("where", (5, 4), INT64)
    several = d.b.op("CumSum", x, d.b.constant(np.int64(0)))
    one = d.b.op("CumSum", x, d.b.constant(np.int64(1)), reverse=1)
    largest, at = d.b.op("TopK", x, d.b.constant([6]), outputs=2)
    added = d.b.op("ScatterElements", x, where, d.weights(5, 4), axis=1, reduction="add")
    return several, one, largest, at, added


def maps(d: Draft) -> tuple[str, ...]:
    x = d.b.input("x", (3, 50))
    pieces = [d.b.op(op, x) for op in ("Erf", "Tanh", "Sigmoid", "Exp", "Sin", "Cos", "Softplus", "Mish", "Atan")]
    power = d.b.op("Pow", d.b.op("Abs", x), d.b.constant(np.float32(1.7)))
    joined = d.b.op("Concat", *pieces, d.b.op("Log", d.b.op("Add", power, d.b.constant(np.float32(1)))), axis=1)
    turned = d.b.op("Transpose", joined, perm=[1, 0])
    return d.b.op("ReduceSum", joined, d.b.constant([1])), d.b.op("CumSum", turned, d.b.constant(np.int64(0)))


def images(d: Draft) -> tuple[str, ...]:
    x = d.b.input("x", (1, 3, 12, 15))
    sizes = d.b.constant([1, 3, 40, 61])
    return d.b.op("Resize", x, None, None, sizes, mode="linear"), d.b.op("Resize", x, None, None, sizes, mode="cubic")


def turned(d: Draft) -> tuple[str, ...]:
    """Copies by squares, of whole vectors and of fewer elements."""
    x, small = d.b.input("x", (2, 33, 40)), d.b.input("small", (9, 11))
    return d.b.op("Transpose", x, perm=(0, 2, 1)), d.b.op("Transpose", small, perm=(1, 0))


def sampled(d: Draft) -> tuple[str, ...]:
    return (d.b.op("GridSample", d.b.input("image", (1, 5, 6, 7)), d.b.input("grid", (1, 4, 5, 2)), mode="linear"),)


def boxes(d: Draft) -> tuple[str, ...]:
    corners = np.sort(d.rng.uniform(0, 20, (9, 2, 2)), axis=1).reshape(9, 4).astype(np.float32)
    x, rois, batch = d.b.input("x", (1, 18, 20, 20)), d.b.constant(corners), d.b.constant(np.zeros(9, np.int64))
    aligned = d.b.op("RoiAlign", x, rois, batch, output_height=3, output_width=5)
    numbered = d.b.constant(np.hstack([np.zeros((9, 1), np.float32), corners]))
    pooled = d.b.op("MaxRoiPool", x, numbered, pooled_shape=[2, 3])
    scores = d.b.op("Sigmoid", d.b.input("scores", (1, 2, 9)))
    few, limit = d.b.constant(np.int64(5)), d.b.constant(np.float32(0.3))
    chosen = d.b.op("NonMaxSuppression", d.b.constant(corners[None]), scores, few, limit)
    return aligned, pooled, chosen


def trees(d: Draft) -> tuple[str, ...]:
    """Six of three nodes, for rows that fill two blocks and some of a third, and for one row."""
    numbers = list(range(6))
    settings: dict[str, Any] = {
        "nodes_treeids": [tree for tree in numbers for _ in range(3)],
        "nodes_nodeids": [0, 1, 2] * 6,
        "nodes_featureids": [node for tree in numbers for node in (tree, 0, 0)],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * 6,
        "nodes_values": d.rng.standard_normal(18).tolist(),
        "nodes_truenodeids": [1, 0, 0] * 6,
        "nodes_falsenodeids": [2, 0, 0] * 6,
        "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0, 0] * 3,
        "target_treeids": [tree for tree in numbers for _ in range(2)],
        "target_nodeids": [1, 2] * 6,
        "target_ids": [0, 1, 2] * 4,
        "target_weights": d.rng.standard_normal(12).tolist(),
        "n_targets": 3,
    }
    for name, rows in (("x", 19), ("one", 1)):
        given, made = d.b.input(name, (rows, 6)), f"{name}_scores"
        d.b.types[made] = TensorType(FLOAT32, (rows, 3))
        d.b.nodes.append(
            Node("TreeEnsembleRegressor", (given,), (made,), attributes_of(**settings), "ai.onnx.ml", made)
        )
    return "x_scores", "one_scores"


def recurrences(d: Draft) -> tuple[str, ...]:
    x, w, r = d.b.input("x", (5, 2, 9)), d.weights(1, 28, 9), d.weights(1, 28, 7)
    tokens = d.b.op("Gather", d.weights(9, 6), d.b.input("tokens", (4,), INT64))
    every, last, _ = d.b.op("LSTM", x, w, r, hidden_size=7, outputs=3)
    lengths, gates = d.b.constant(np.array([3, 5], np.int32)), (d.weights(2, 21, 9), d.weights(2, 21, 7))
    both, _ = d.b.op("GRU", x, *gates, None, lengths, hidden_size=7, direction="bidirectional", outputs=2)
    return every, last, both, tokens


def shared_recurrence(d: Draft) -> tuple[str, ...]:
    """So much of a state that workers share each step."""
    x, w, r = d.b.input("x", (3, 1, 8)), d.weights(1, 1260, 8), d.weights(1, 1260, 420)
    return tuple(d.b.op("GRU", x, w, r, hidden_size=420, outputs=2))


CASES: Mapping[str, Case] = MappingProxyType(
    {
        "products": Case(("product",), products),
        "halves": Case(("strassen-product", "strassen-convolution"), halves, threads=1),
        "convolutions": Case(("direct-convolution", "depthwise-convolution", "transposed-convolution"), convolutions),
        "transforms": Case(("winograd-convolution",), transforms),
        "scaled": Case(("scaled-convolution",), scaled),
        "short floats": Case(
            ("bfloat16-product", "bfloat16-convolution", "bfloat16-transposed-convolution"),
            short_floats,
            exact=True,
        ),
        "integers": Case(("integer-convolution", "integer-product", "depthwise-convolution"), integers),
        "quantised": Case(("quantised-product", "quantised-rows-product"), quantised),
        "short weights": Case(
            tuple(
                f"{prefix}{short}-weights-product" for prefix in ("", "strassen-") for short in ("float16", "bfloat16")
            ),
            short_weights,
            threads=1,
        ),
        "norms and pools": Case(("rows", "softmax-rows", "channel-norm", "pool"), norms_and_pools),
        "attention": Case(("attention", "attention-few"), attentions),
        "linear attention": Case(("linear-attention",), linear_attentions),
        "selections": Case(("scan", "scatter", "top_k"), selections),
        "trees": Case(("forest",), trees),
        "maps": Case(("any-nest",), maps),
        "images": Case(("blend-rows",), images),
        "turned": Case(("turned-copy",), turned),
        "sampled": Case(("sampled",), sampled),
        "boxes": Case(("roi-pool",), boxes),
        "recurrences": Case(("recurrence",), recurrences),
        "shared recurrence": Case(("recurrence-by-steps",), shared_recurrence),
    }
)
"""By name. Kernels for instructions that one family of machines lacks are in none."""
