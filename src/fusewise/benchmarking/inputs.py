"""Random inputs a model can digest: seeded, and with integers in the range the graph gives them a meaning for.

A token id must be smaller than the table it looks up, a mask is 0 or 1. The range is read off the graph: an integer input
is followed through operators that only move elements to the operators that use it as an index.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

import numpy as np

from fusewise.errors import UsageError
from fusewise.ir.dtypes import STRING
from fusewise.ir.graph import Graph, Node
from fusewise.ir.size import Size
from fusewise.ir.types import MapType, OptionalType, SequenceType, TensorType, ValueType
from fusewise.runtime.host import check_memory

__all__ = ["MOVES", "index_bound", "index_bounds", "random_feeds", "random_values"]

MOVES = frozenset(
    "Cast Concat Expand Flatten Identity Reshape Slice Split Squeeze Tile Transpose Unsqueeze Clip Where Mod".split()
)
"""Operators whose output elements are elements of operand 0 (or of all operands), so that a range survives them."""

_IN_A_LIST = 2
_WHILE_MADE_BYTES = 16  # of an element: random numbers are float64 before they are of its type
_IMAGE_MAX = 256
_ONES = 0.8  # how much of a mask is 1: enough that no attention row is masked whole


def random_feeds(graph: Graph, seed: int = 0) -> dict[str, object]:
    """One value for each graph input: arrays, lists of arrays for sequences.

    The same seed gives an input the same contents whatever other inputs there are. `UsageError` for an input whose shape
    is not known.
    """
    return random_values({name: graph.types[name] for name in graph.inputs}, index_bounds(graph), seed)


def random_values(types: Mapping[str, ValueType], bounds: Mapping[str, int | None], seed: int = 0) -> dict[str, object]:
    """One value for each name of `types`; `bounds` has one more than the largest index an input may hold, where it is one.

    `ResourceLimit` when they would not fit the memory.
    """
    check_memory(_WHILE_MADE_BYTES * sum(map(_elements, types.values())), "random inputs")
    feeds: dict[str, object] = {}
    for name, kind in types.items():
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        feeds[name] = _value(name, kind, bounds.get(name), rng)
    return feeds


def index_bounds(graph: Graph) -> dict[str, int | None]:
    """`index_bound` of every input."""
    return {name: index_bound(graph, name) for name in graph.inputs}


def _elements(kind: ValueType) -> int:
    """Of a tensor, or of all those of a list as `_value` makes it."""
    if isinstance(kind, SequenceType):
        return _IN_A_LIST * _elements(kind.element)
    if isinstance(kind, OptionalType):
        return _elements(kind.element)
    if isinstance(kind, MapType):
        return 0
    return kind.size if kind.is_static else 0


def _value(name: str, kind: ValueType, bound: int | None, rng: np.random.Generator) -> object:
    if isinstance(kind, SequenceType):
        return [_value(name, kind.element, bound, rng) for _ in range(_IN_A_LIST)]
    if isinstance(kind, OptionalType):
        return _value(name, kind.element, bound, rng)
    if isinstance(kind, MapType):
        raise UsageError(f"input {name!r} is a {kind}, of which there are no random ones; give it yourself")
    if not kind.is_static:
        raise UsageError(f"input {name!r} has shape {kind}; give it with --shape {name}=...")
    return _tensor(kind, bound, rng)


def _tensor(kind: TensorType, bound: int | None, rng: np.random.Generator) -> np.ndarray:
    shape, dtype = kind.dims, kind.dtype
    if dtype == STRING:
        words = np.array(["alpha", "beta", "gamma", "delta"], dtype=object)
        return np.asarray(words[rng.integers(0, len(words), shape)], dtype=object).reshape(shape)
    if dtype.kind == "complex":
        pair = rng.standard_normal((2, *shape))
        return np.asarray(pair[0] + 1j * pair[1]).astype(dtype.numpy)
    if dtype.is_float:
        return np.asarray(rng.standard_normal(shape)).astype(dtype.numpy)
    if dtype.kind == "bool":
        return np.asarray(rng.random(shape) < _ONES)
    if bound is not None:
        return np.asarray(rng.integers(0, max(1, bound), shape)).astype(dtype.numpy)
    if dtype.bits == 8:
        return rng.integers(0, _IMAGE_MAX, shape).astype(np.uint8).view(dtype.numpy).reshape(shape)
    return np.asarray(rng.random(shape) < _ONES).astype(dtype.numpy)


def index_bound(graph: Graph, value: str) -> int | None:
    """One more than the largest index that every use of `value` as an index allows; None when it is never used as one."""
    bounds: list[int] = []
    waiting, seen = [value], {value}
    while waiting:
        name = waiting.pop()
        for node in (graph.nodes[k] for k in graph.users[name]):
            bounds.extend(_bounds(graph, node, name))
            if node.op in MOVES:
                waiting.extend(v for v in node.writes if v not in seen)
                seen.update(node.writes)
    return min(bounds, default=None)


def _along(node: Node) -> slice:
    axis = node.attribute("axis", 0)
    return slice(axis, axis + 1 or None)


_TABLES: Mapping[str, tuple[int, int, Callable[[Node], slice]]] = {
    **dict.fromkeys(("Gather", "GatherElements", "Scatter", "ScatterElements"), (1, 0, _along)),
    "GatherND": (1, 0, lambda node: slice(node.attribute("batch_dims", 0), None)),
    "ScatterND": (1, 0, lambda node: slice(None)),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), (1, 0, lambda node: slice(1, 2))),
    "RoiAlign": (2, 0, lambda node: slice(0, 1)),
    "RotaryEmbedding": (3, 1, lambda node: slice(0, 1)),
}
"""Operators with an operand that indexes another: the positions of both, and the axes of the table that are indexed."""


def _least(extent: int) -> int:
    """How many entries a table has at any size, one where it may have none."""
    return max(1, extent.bounds[0]) if isinstance(extent, Size) else extent


def _bounds(graph: Graph, node: Node, name: str) -> list[int]:
    """How many entries the tables have that `node` indexes with `name`."""
    if node.op in _TABLES and not node.domain:
        indices, table, axes = _TABLES[node.op]
        if len(node.inputs) <= indices or node.inputs[indices] != name:
            return []
        extents = (graph.tensor(node.inputs[table]).shape or ())[axes(node)]
        return [_least(extent) for extent in extents if isinstance(extent, int | Size)]
    if node.op == "OneHot" and name == node.inputs[0]:
        depth = graph.array(node.inputs[1])
        return [] if depth is None or not np.isfinite(depth).all() else [int(depth.reshape(-1)[0])]
    return []
