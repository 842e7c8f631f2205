"""Combine operators that read the same tensor into one wider operator, and split its result. Numeric class exact.

The sums behind every element stay what they were. Fewer, larger products fill a machine better; a Split costs a copy where it
cannot be fused. Convolutions side by side are common in branching networks, products in attention (query, key, value).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import field

import numpy as np

from fusewise.ir.graph import Constant, Graph, Node, attributes_of, constant_of, integer_array
from fusewise.ir.types import TensorType, ValueType
from fusewise.ops.bijection import RESHAPES, bijective_operands
from fusewise.ops.table import spec_of
from fusewise.passes.later import joined
from fusewise.records import record
from fusewise.trace import Trace

__all__ = ["LEAST_BRANCHES", "combine_batch_matmul", "combine_conv2d", "combine_dense", "combine_products"]

LEAST_BRANCHES = 2
"""So many operators on one tensor are combined; other compilers wait for three."""


def combine_conv2d(graph: Graph, trace: Trace) -> Graph:
    """Convolutions of one image with filters of one size, groups of one, and constant weights become one.

    a = Conv(x, v); b = Conv(x, w)   ->   a, b = Split(Conv(x, concat(v, w)), axis=1)

    Refused: strides, pads or dilations differ, or some have a bias that is not constant.
    """
    return _combined(graph, trace, "CombineParallelConv2D", _conv_alike, _one_conv)


def combine_dense(graph: Graph, trace: Trace) -> Graph:
    """Products of one tensor with constant matrices become one.

    a = MatMul(x, v); b = MatMul(x, w)   ->   a, b = Split(MatMul(x, concat(v, w)), axis=-1)
    """
    return _combined(graph, trace, "CombineParallelDense", _dense_alike, _one_dense)


def combine_products(graph: Graph, trace: Trace) -> Graph:
    """What `combine_conv2d` and `combine_dense` combine, where that leaves fewer kernels.

    A branch that a Concat or the user gets writes its result where that wants it, and would have to be copied there from a wider
    result, as would one whose elements a reshape wants beside each other: these stay by themselves. Others are combined with those
    behind which the same is done to each element, which belongs to their kernel then (`before_split`).
    """

    def unless_copied(alike: Alike) -> Alike:
        def found(graph: Graph, node: Node) -> Hashable | None:
            key = alike(graph, node)
            return None if key is None or _is_copied_as_part(graph, node) else (key, _done_behind(graph, node))

        return found

    graph = _combined(graph, trace, "CombineParallelConv2D", unless_copied(_conv_alike), _one_conv)
    return _combined(graph, trace, "CombineParallelDense", unless_copied(_dense_alike), _one_dense)


def combine_batch_matmul(graph: Graph, trace: Trace) -> Graph:
    """Products of one tensor with several that are computed too become one.

    a = MatMul(x, y); b = MatMul(x, z)   ->   a, b = Split(MatMul(x, Concat(y, z)), axis=-1)

    Only tensors that are there when the first product runs take part.
    """
    return _combined(graph, trace, "CombineParallelBatchMatmul", _batch_alike, _one_batch)


@record
class _Draft:
    """A graph while branches are combined: types and constants that are new so far."""

    graph: Graph
    types: dict[str, ValueType]
    constants: dict[str, Constant] = field(default_factory=dict)

    def value(self, stem: str, kind: ValueType) -> str:
        name, count = stem, 0
        while name in self.types:
            count += 1
            name = f"{stem}_{count}"
        self.types[name] = kind
        return name

    def constant(self, array: np.ndarray, stem: str) -> str:
        return self.later(constant_of(array), stem)

    def later(self, data: Constant, stem: str) -> str:
        name = self.value(stem, data.type)
        self.constants[name] = data
        return name

    def array(self, value: str) -> np.ndarray:
        return self.graph.constants[value].array


Alike = Callable[[Graph, Node], Hashable | None]
Build = Callable[[_Draft, Sequence[Node]], tuple[Node, ...]]


def _combined(graph: Graph, trace: Trace, name: str, alike: Alike, build: Build) -> Graph:
    """Combine nodes with one key. The combined node stands where the first of them stood."""
    branches: dict[tuple[str, Hashable], list[int]] = {}
    for i, node in enumerate(graph.nodes):
        key = None if node.domain else alike(graph, node)
        if key is not None:
            branches.setdefault((node.inputs[0], key), []).append(i)
    draft = _Draft(graph, dict(graph.types))
    instead: dict[int, tuple[Node, ...]] = {}
    for members in branches.values():
        members = _ready(graph, members)
        labels = tuple(graph.nodes[i].label for i in members)
        if len(members) >= LEAST_BRANCHES and trace.allows("rewrite", name, labels, "they read one tensor"):
            instead |= dict.fromkeys(members[1:], ())
            instead[members[0]] = build(draft, [graph.nodes[i] for i in members])
    if not instead:
        return graph
    nodes = tuple(new for i, node in enumerate(graph.nodes) for new in instead.get(i, (node,)))
    return graph.replace(nodes=nodes, types=draft.types, constants={**graph.constants, **draft.constants}).pruned()


def _ready(graph: Graph, members: Sequence[int]) -> list[int]:
    """Those whose operands are all there when the first of them runs."""
    first = members[0]
    return [i for i in members if all(graph.producer.get(v, -1) < first for v in graph.nodes[i].reads)]


def _static(graph: Graph, value: str) -> TensorType | None:
    kind = graph.types.get(value)
    return kind if isinstance(kind, TensorType) and kind.is_static else None


def _is_copied_as_part(graph: Graph, node: Node) -> bool:
    """Would the result have to be copied, were it a part of a wider one?

    That is where a Concat or the user gets it, at once or by way of operators that work element by element or move elements, or
    where a reshape joins the axis along which it would be a part with others.
    """
    axis: int | None = 1 if node.op == "Conv" else graph.tensor(node.outputs[0]).rank - 1
    alone = True  # and not computed with others, whose kernel then writes it
    while node.outputs[0] not in graph.output_set:
        users = [graph.nodes[n] for n in graph.users[node.outputs[0]]]
        if any(not user.domain and _takes_whole(graph, user, axis) for user in users):
            return True
        if len(users) != 1:
            return False
        value, node = node.outputs[0], users[0]
        alone = alone and all(v == value or v in graph.constants for v in node.reads)
        if len(node.outputs) != 1 or not bijective_operands(graph, node):
            return False
        if node.op in RESHAPES:
            axis = None
        elif node.op == "Transpose" and axis is not None:
            permutation = node.attribute("perm", tuple(range(graph.tensor(node.outputs[0]).rank))[::-1])
            axis = permutation.index(axis)
    return alone


def _done_behind(graph: Graph, node: Node) -> tuple[tuple[str, str], ...]:
    """Operators with their attributes that work on each element of the result, and of theirs, with constants at most."""
    found: list[tuple[str, str]] = []
    while len(users := graph.users[node.outputs[0]]) == 1 and node.outputs[0] not in graph.output_set:
        value, node = node.outputs[0], graph.nodes[users[0]]
        spec = spec_of(node.op, node.domain)
        if spec is None or spec.scalar is None or any(v != value and v not in graph.constants for v in node.reads):
            break
        found.append((node.op, repr(node.attributes)))
    return tuple(found)


def _takes_whole(graph: Graph, node: Node, axis: int | None) -> bool:
    """Does a node want its operand in one piece of memory? `axis`: where that is a part; None for several."""
    if node.op not in RESHAPES:
        return node.op == "Concat"
    if axis is None:
        return True
    before, after = graph.tensor(node.inputs[0]).dims, graph.tensor(node.outputs[0]).dims
    fronts, backs = ({math.prod(part) for part in parts} for parts in (_fronts(after), _fronts(after[::-1])))
    return math.prod(before[:axis]) not in fronts or math.prod(before[axis + 1 :]) not in backs


def _fronts(dims: Sequence[int]) -> list[Sequence[int]]:
    return [dims[:count] for count in range(len(dims) + 1)]


def _split(draft: _Draft, nodes: Sequence[Node], whole: Node, axis: int) -> tuple[Node, Node]:
    widths = [draft.graph.tensor(node.outputs[0]).dims[axis] for node in nodes]
    sizes = draft.constant(integer_array(widths), f"{whole.name}_widths")
    origin = tuple(dict.fromkeys(name for node in nodes for name in node.origin))
    parts = tuple(node.outputs[0] for node in nodes)
    split = Node("Split", (whole.outputs[0], sizes), parts, attributes_of(axis=axis), "", f"{whole.name}_split", origin)
    return whole, split


def _joined(draft: _Draft, nodes: Sequence[Node], inputs: Sequence[str], axis: int) -> Node:
    """A node like the first, on other operands, as wide along `axis` as all of them."""
    kind = draft.graph.tensor(nodes[0].outputs[0])
    dims = list(kind.dims)
    dims[axis] = sum(draft.graph.tensor(node.outputs[0]).dims[axis] for node in nodes)
    name = f"{nodes[0].label}_combined"
    result = draft.value(name, TensorType(kind.dtype, tuple(dims)))
    origin = tuple(dict.fromkeys(part for node in nodes for part in node.origin))
    return Node(nodes[0].op, tuple(inputs), (result,), nodes[0].attributes, "", name, origin)


def _conv_alike(graph: Graph, node: Node) -> Hashable | None:
    if node.op != "Conv" or node.attribute("group", 1) != 1 or node.inputs[0] in graph.constants:
        return None
    kind, out = _static(graph, node.inputs[1]), _static(graph, node.outputs[0])
    if out is None or kind is None or kind.rank != 4 or any(v and v not in graph.constants for v in node.inputs[1:]):
        return None
    settings = (
        node.attribute("strides", (1, 1)),
        node.attribute("pads", (0, 0, 0, 0)),
        node.attribute("dilations", (1, 1)),
        node.attribute("auto_pad", "NOTSET"),
    )
    return kind.dtype.name, kind.dims[1:], settings


def _one_conv(draft: _Draft, nodes: Sequence[Node]) -> tuple[Node, ...]:
    weights = np.concatenate([draft.array(node.inputs[1]) for node in nodes])
    operands = [nodes[0].inputs[0], draft.constant(weights, f"{nodes[0].inputs[1]}_combined")]
    if any(len(node.inputs) > 2 and node.inputs[2] for node in nodes):
        operands.append(draft.constant(_biases(draft, nodes, weights.dtype), f"{nodes[0].label}_biases"))
    return _split(draft, nodes, _joined(draft, nodes, operands, 1), 1)


def _biases(draft: _Draft, nodes: Sequence[Node], dtype: np.dtype) -> np.ndarray:
    """The biases one after another; zeros for those that have none."""
    widths = [draft.graph.tensor(node.outputs[0]).dims[1] for node in nodes]
    parts = [
        draft.array(node.inputs[2]).reshape(-1) if len(node.inputs) > 2 and node.inputs[2] else np.zeros(width, dtype)
        for node, width in zip(nodes, widths, strict=True)
    ]
    parts = [np.broadcast_to(part, (width,)) for part, width in zip(parts, widths, strict=True)]
    return np.concatenate(parts)


def _dense_alike(graph: Graph, node: Node) -> Hashable | None:
    if node.op not in ("MatMul", "Gemm") or node.inputs[0] in graph.constants:
        return None
    kind, out = _static(graph, node.inputs[1]), _static(graph, node.outputs[0])
    if out is None or kind is None or kind.rank != 2 or node.inputs[1] not in graph.constants or out.rank < 2:
        return None
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    if bias and (bias not in graph.constants or graph.tensor(bias).rank != 1):
        return None
    if bias and graph.tensor(bias).dims != out.dims[-1:]:
        return None
    return node.op, kind.dtype.name, repr(node.attributes), bool(bias), out.dims[:-1]


def _one_dense(draft: _Draft, nodes: Sequence[Node]) -> tuple[Node, ...]:
    axis = 0 if nodes[0].attribute("transB", 0) else 1
    weights = joined([draft.graph.constants[node.inputs[1]] for node in nodes], axis)
    operands = [nodes[0].inputs[0], draft.later(weights, f"{nodes[0].inputs[1]}_combined")]
    if len(nodes[0].inputs) > 2 and nodes[0].inputs[2]:
        biases = _biases(draft, nodes, weights.dtype.numpy)
        operands.append(draft.constant(biases, f"{nodes[0].label}_biases"))
    rank = draft.graph.tensor(nodes[0].outputs[0]).rank
    return _split(draft, nodes, _joined(draft, nodes, operands, rank - 1), rank - 1)


def _batch_alike(graph: Graph, node: Node) -> Hashable | None:
    if node.op != "MatMul" or node.inputs[1] in graph.constants or node.inputs[0] == node.inputs[1]:
        return None
    kind, out = _static(graph, node.inputs[1]), _static(graph, node.outputs[0])
    if out is None or kind is None or kind.rank < 2 or out.rank < 2:
        return None
    return kind.dtype.name, kind.dims[:-1]


def _one_batch(draft: _Draft, nodes: Sequence[Node]) -> tuple[Node, ...]:
    kinds = [draft.graph.tensor(node.inputs[1]) for node in nodes]
    dims = (*kinds[0].dims[:-1], sum(kind.dims[-1] for kind in kinds))
    name = f"{nodes[0].label}_right"
    right = draft.value(name, TensorType(kinds[0].dtype, dims))
    origin = tuple(dict.fromkeys(part for node in nodes for part in node.origin))
    along = attributes_of(axis=len(dims) - 1)
    join = Node("Concat", tuple(node.inputs[1] for node in nodes), (right,), along, "", name, origin)
    rank = draft.graph.tensor(nodes[0].outputs[0]).rank
    whole = _joined(draft, nodes, (nodes[0].inputs[0], right), rank - 1)
    return (join, *_split(draft, nodes, whole, rank - 1))
