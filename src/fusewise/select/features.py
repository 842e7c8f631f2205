"""What an architecture looks like: counts and shares that tell families of networks apart.

Read off the graph as it was loaded, whoever exported it. Nodes that only work out sizes do not count, so a model with sizes
computed at run time has the features of the same model without. Shares are of convolutions unless said otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType

__all__ = ["Features", "features_of"]

_MOVES = frozenset(
    "Reshape Flatten Squeeze Unsqueeze Transpose Identity Cast Sigmoid Softmax Relu Slice Split Mul Add Sub Exp Concat".split()
)
_RECURRENT = frozenset("LSTM GRU RNN".split())
_MASK_SIDE = 1024  # larger squares are weights, not masks
_PRODUCTS = ("MatMul", "Gemm")


@dataclass(frozen=True)
class Features:
    """Counts, except where the name says otherwise.

    `depth`: convolutions and products with weights on the longest path. `branching`: the largest number of convolutions or
    products on one value. `pyramid_heads`: sizes of image maps whose predictions are joined at the end. `dense_output`: the area
    of the largest image among the outputs over that of the input. `joined_maps`: images joined along their channels.
    `product_weights`: the share of weights in matrices. `repeated_weights`: matrices that several products read; `unrolled`:
    recurrent operators, or such matrices where no token is looked up. `joined_share` and `sigmoid_share` are to the number of
    convolutions.
    """

    operators: tuple[tuple[str, int], ...]
    nodes: int
    depth: int
    convolutions: int
    depthwise_share: float
    grouped_share: float
    large_kernel_share: float
    volumes: int
    products: int
    product_weights: float
    repeated_weights: int
    branching: int
    residuals: int
    joined_maps: int
    gates: int
    upsamplings: int
    pyramid_heads: int
    dense_output: float
    poolings: int
    batch_norms: int
    layer_norms: int
    attention_blocks: int
    causal: int
    tokens: int
    images: int
    regions: int
    recurrent: int
    quantised: int
    dynamic: int
    unrolled: int
    joined_share: float
    sigmoid_share: float

    def count(self, *names: str) -> int:
        """How many nodes are of these operators."""
        known = dict(self.operators)
        return sum(known.get(name, 0) for name in names)


def features_of(graph: Graph) -> Features:
    """The features of a graph. One pass over its nodes, and one over the weights of convolutions and products."""
    nodes = [node for node in graph.nodes if not _is_size(graph, node)]
    operators = Counter(node.op for node in nodes)
    convolutions = [node for node in nodes if node.op in ("Conv", "ConvTranspose")]
    filters = [shape for node in convolutions if len(shape := _dims(graph, node.inputs[1])) > 2]
    products = [node for node in nodes if node.op in _PRODUCTS and _weights(graph, node) is not None]
    matrices = {_weights(graph, node) or "" for node in products}
    in_matrices = sum(graph.tensor(v).size for v in matrices)
    in_filters = sum(int(np.prod(shape)) for shape in filters)
    readers = Counter(_weights(graph, node) for node in products)
    repeated = sum(count > 1 for count in readers.values())
    tokens = sum(_is_embedding(graph, node) for node in nodes)
    groups = [_group(graph, node) for node in convolutions]
    joined = sum(node.op == "Concat" and _is_map(graph, node.outputs[0]) for node in nodes)
    return Features(
        operators=tuple(sorted(operators.items())),
        nodes=len(nodes),
        depth=_depth(graph, {*map(id, convolutions), *map(id, products)}),
        convolutions=len(convolutions),
        depthwise_share=_share(groups.count("depthwise"), len(convolutions)),
        grouped_share=_share(groups.count("grouped"), len(convolutions)),
        large_kernel_share=_share(sum(max(shape[2:]) >= 3 for shape in filters), len(filters)),
        volumes=sum(len(shape) == 5 for shape in filters),
        products=len(products),
        product_weights=_share(in_matrices, in_matrices + in_filters),
        repeated_weights=repeated,
        branching=_branching(graph, [*convolutions, *products]),
        residuals=sum(_is_residual(graph, node) for node in nodes),
        joined_maps=joined,
        gates=sum(_is_gate(graph, node) for node in nodes),
        upsamplings=operators["Resize"] + operators["Upsample"] + operators["ConvTranspose"],
        pyramid_heads=_pyramid_heads(graph),
        dense_output=_dense_output(graph),
        poolings=operators["MaxPool"] + operators["AveragePool"],
        batch_norms=operators["BatchNormalization"],
        layer_norms=operators["LayerNormalization"] + operators["RMSNormalization"] + operators["Sqrt"],
        attention_blocks=operators["Attention"] + sum(_is_attention(graph, node) for node in nodes),
        causal=operators["Trilu"]
        + sum(_is_causal(graph, name) for name in graph.constants)
        + sum(node.op == "Attention" and node.attribute("is_causal", 0) for node in nodes),
        tokens=tokens,
        images=sum(len(_dims(graph, value)) == 4 for value in graph.inputs),
        regions=operators["RoiAlign"] + operators["NonMaxSuppression"] + operators["MaxRoiPool"],
        recurrent=sum(operators[name] for name in _RECURRENT),
        quantised=operators["QuantizeLinear"] + operators["DequantizeLinear"],
        dynamic=sum(_is_unknown(graph, node.writes[0]) for node in nodes),
        unrolled=sum(operators[name] for name in _RECURRENT) + (0 if tokens else repeated),
        joined_share=_share(joined, len(convolutions)),
        sigmoid_share=_share(operators["Sigmoid"] + operators["Swish"], len(convolutions)),
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _dims(graph: Graph, value: str) -> tuple[int, ...]:
    """The shape of a tensor; empty when it has none or it is not known."""
    kind = graph.types.get(value)
    return kind.dims if isinstance(kind, TensorType) and kind.is_static else ()


def _is_unknown(graph: Graph, value: str) -> bool:
    kind = graph.types.get(value)
    return isinstance(kind, TensorType) and not kind.is_static


def _is_size(graph: Graph, node: Node) -> bool:
    """Does it only work out sizes: whole numbers, few of them, not from an input?"""
    if node.op in ("Shape", "Size", "Constant", "ConstantOfShape", "Range"):
        return True
    kind = graph.types.get(node.writes[0]) if node.writes else None
    whole = isinstance(kind, TensorType) and kind.dtype.is_integer and kind.is_static and kind.size <= 8
    return whole and not any(value in graph.inputs for value in node.reads)


def _weights(graph: Graph, node: Node) -> str | None:
    """The constant matrix of a product, also behind a Transpose."""
    for value in node.inputs[:2]:
        maker = graph.producer_of(value)
        source = maker.inputs[0] if maker is not None and maker.op == "Transpose" else value
        if source in graph.constants and len(_dims(graph, source)) == 2:
            return source
    return None


def _group(graph: Graph, node: Node) -> str:
    """`depthwise` with a filter for each channel, `grouped`, or empty."""
    group = node.attribute("group", 1)
    shape = _dims(graph, node.inputs[1])
    if group == 1 or not shape:
        return ""
    return "depthwise" if shape[1] == 1 else "grouped"


def _depth(graph: Graph, heavy: set[int]) -> int:
    depths: dict[str, int] = {}
    for node in graph.nodes:
        depth = max((depths.get(value, 0) for value in node.reads), default=0) + (id(node) in heavy)
        depths.update(dict.fromkeys(node.writes, depth))
    return max((depths.get(value, 0) for value in graph.outputs), default=0)


def _branching(graph: Graph, heavy: Iterable[Node]) -> int:
    return max(Counter(_before_layout(graph, node.inputs[0]) for node in heavy).values(), default=0)


def _before_layout(graph: Graph, value: str) -> str:
    """The value as it was before it was brought into another layout."""
    while (maker := graph.producer_of(value)) is not None and maker.op in ("Transpose", "Pad", "Identity", "Dropout"):
        value = maker.inputs[0]
    return value


def _is_map(graph: Graph, value: str) -> bool:
    """Is it an image: four axes, and more than a pixel?"""
    shape = _dims(graph, value)
    return len(shape) in (4, 5) and min(shape[-2:]) > 1


def _is_residual(graph: Graph, node: Node) -> bool:
    """A sum of two computed tensors of one shape with at least three axes."""
    if node.op != "Add" or any(value not in graph.producer for value in node.inputs):
        return False
    shapes = {_dims(graph, value) for value in node.inputs}
    return len(shapes) == 1 and len(next(iter(shapes))) >= 3


def _is_gate(graph: Graph, node: Node) -> bool:
    """A factor for each channel of an image, computed from the image: squeeze and excitation."""
    if node.op != "Mul" or any(value not in graph.producer for value in node.inputs):
        return False
    first, second = sorted((_dims(graph, value) for value in node.inputs), key=lambda dims: int(np.prod(dims)))
    return len(first) == len(second) == 4 and int(np.prod(first)) == max(first) and second[2] * second[3] > 1


def _is_attention(graph: Graph, node: Node) -> bool:
    """A Softmax whose result is multiplied with what else is computed."""
    if node.op != "Softmax":
        return False
    waiting, seen = [node.outputs[0]], set()
    while waiting:
        value = waiting.pop()
        for reader in (graph.nodes[k] for k in graph.users[value]):
            if reader.op == "MatMul" and all(v not in graph.constants for v in reader.inputs):
                return True
            if (
                reader.op in ("Cast", "Dropout", "Identity", "Where", "Reshape", "Mul")
                and reader.outputs[0] not in seen
            ):
                seen.add(reader.outputs[0])
                waiting.append(reader.outputs[0])
    return False


def _is_causal(graph: Graph, name: str) -> bool:
    """A constant square mask that keeps what is before: true or zero below the diagonal, false or very low above."""
    shape = graph.tensor(name).dims
    if len(shape) < 2 or shape[-1] != shape[-2] or not 2 <= shape[-1] <= _MASK_SIDE or np.prod(shape[:-2]) != 1:
        return False
    square = graph.constants[name].array.reshape(shape[-2:])
    if square.dtype == object:
        return False
    keep = square if square.dtype == bool else square >= 1 if np.any(square == 1) else square > -1e4
    return bool(np.array_equal(keep, np.tril(np.ones_like(keep, dtype=bool))))


def _is_embedding(graph: Graph, node: Node) -> bool:
    """Rows of a constant table, by numbers that come from an input."""
    if node.op != "Gather" or node.inputs[0] not in graph.constants or len(_dims(graph, node.inputs[0])) != 2:
        return False
    value = node.inputs[1]
    while (maker := graph.producer_of(value)) is not None and maker.op in ("Cast", "Reshape", "Identity"):
        value = maker.inputs[0]
    return value in graph.inputs


def _dense_output(graph: Graph) -> float:
    areas = [shape[-1] * shape[-2] for value in graph.inputs if len(shape := _dims(graph, value)) == 4]
    found = [
        max(shape[1] * shape[2], shape[2] * shape[3])  # channels first or last
        for value in graph.outputs
        if len(shape := _dims(graph, value)) == 4
    ]
    return max(found, default=0) / max(areas) if areas else 0.0


def _pyramid_heads(graph: Graph) -> int:
    """Walk back from every Concat near an output, through what moves or rescales, to convolutions: how many sizes have they?"""
    best = 0
    for value in graph.outputs:
        sizes: set[tuple[int, ...]] = set()
        waiting, seen = [value], set()
        while waiting:
            maker = graph.producer_of(waiting.pop())
            if maker is None or id(maker) in seen:
                continue
            seen.add(id(maker))
            if maker.op == "Conv":
                sizes.add(_dims(graph, maker.outputs[0])[2:])
            elif maker.op in _MOVES:
                waiting.extend(v for v in maker.inputs if v)
        best = max(best, len(sizes))
    return best
