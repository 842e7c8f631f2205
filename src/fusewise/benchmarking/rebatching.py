"""A model of a fixed batch for another one: shapes that follow are rewritten, and answers are compared sample by sample."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fusewise.benchmarking.accuracy import relative_error, tolerance_of
from fusewise.benchmarking.inputs import random_feeds
from fusewise.benchmarking.reference import answer
from fusewise.errors import FusewiseError, InvalidModel, UsageError
from fusewise.frontend.bind import bind
from fusewise.frontend.onnx_export import save
from fusewise.ir.graph import Constant, Graph, Node
from fusewise.ir.types import TensorType, ValueType
from fusewise.ops.infer import infer_outputs

__all__ = ["rebatched"]

_SHAPE_OPERANDS = {"Reshape": 1, "Expand": 1, "Resize": 3}
"""Operators that are told dimensions of their result, and by which operand. ConstantOfShape is none: nothing
tells whether a dimension of it is a batch."""


def rebatched(graph: Graph, batch: int) -> Graph:
    """The graph of fixed shapes for `batch` samples in every input whose first dimension is that of the first.

    Dimensions that constants state follow. `UsageError` that names the node which holds the batch where types do not fit then, a
    result does not grow, or the answers for samples together are not those for each alone.
    """
    first = graph.types[graph.inputs[0]]
    if not isinstance(first, TensorType) or not first.shape or not isinstance(first.shape[0], int):
        raise UsageError(f"input {graph.inputs[0]!r} is {first}, which has no batch; leave --batch out")
    old = first.shape[0]
    names = [name for name in graph.inputs if _leading(graph.types[name]) == old]
    if old in (0, batch):
        return graph
    shapes = {name: (batch, *graph.tensor(name).dims[1:]) for name in names}
    written = _with_shapes(graph, shapes, old, batch)
    try:
        found = bind(written, shapes)
    except InvalidModel as error:
        raise _held(batch, str(error)) from None
    _require_grown(graph, found, old, batch)
    _require_same_answers(graph, found, names, old)
    return found


def _leading(kind: ValueType) -> object:
    return kind.shape[0] if isinstance(kind, TensorType) and kind.shape else None


def _held(batch: int, why: str) -> UsageError:
    return UsageError(f"the model cannot be run for a batch of {batch}: {why}")


def _with_shapes(graph: Graph, shapes: Mapping[str, Sequence[int]], old: int, batch: int) -> Graph:
    """The graph with the constants that state dimensions rewritten, node by node, as types follow from the new inputs."""
    types: dict[str, ValueType | None] = dict(graph.types)
    for name, shape in shapes.items():
        types[name] = replace(graph.tensor(name), shape=tuple(shape))
    constants = dict(graph.constants)
    nodes = []
    for node in graph.nodes:
        place = _SHAPE_OPERANDS.get(node.op)
        stated = node.inputs[place] if place is not None and place < len(node.inputs) else ""
        if not node.domain and stated in graph.constants:
            array = graph.constants[stated].array
            other = _followed(node, array, graph.types, types, old, batch)
            if other is not None:
                name = f"{stated}_{node.label}_batch_{batch}"
                constants[name] = Constant(other)
                types[name] = graph.types[stated]
                node = replace(node, inputs=tuple(name if k == place else v for k, v in enumerate(node.inputs)))
        known = tuple(
            constants[v].array if v in constants and constants[v].type.size < 1024 else None for v in node.inputs
        )
        try:
            outputs = infer_outputs(node, tuple(types.get(v) if v else None for v in node.inputs), known, graph.opset)
        except InvalidModel as error:
            raise _held(batch, str(error)) from None
        types.update(zip(node.outputs, outputs, strict=True))
        nodes.append(node)
    kinds = {name: types[name] or kind for name, kind in graph.types.items()}
    kinds |= {name: constant.type for name, constant in constants.items()}
    return graph.replace(nodes=tuple(nodes), constants=constants, types=kinds)


def _followed(
    node: Node, stated: np.ndarray, before: Mapping[str, ValueType], types: Mapping[str, Any], old: int, batch: int
) -> np.ndarray | None:
    """The dimensions that a constant states for the other batch; None where it stays as it is."""
    if stated.ndim != 1 or not stated.size or stated[0] <= 0 or stated[0] * batch % old:
        return None
    data = node.inputs[0]
    if _elements(types.get(data)) == _elements(before.get(data)):
        return None  # what it reads does not grow
    if node.op in ("Expand", "Resize") and stated[0] != old:
        return None
    other = stated.copy()
    other[0] = stated[0] * batch // old
    return other


def _elements(kind: Any) -> int | None:
    return kind.size if isinstance(kind, TensorType) and kind.is_static else None


def _require_grown(before: Graph, after: Graph, old: int, batch: int) -> None:
    """Every result of what grows grows by as much."""
    for node, other in zip(before.nodes, after.nodes, strict=True):
        if node.op in ("Shape", "Size"):
            continue
        reads = [(v, w) for v, w in zip(node.reads, other.reads, strict=True) if v not in before.constants]
        grown = any(_ratio(before.types[v], after.types[w]) > 1 for v, w in reads)
        if batch > old and grown and all(_ratio(before.types[v], after.types[v]) == 1 for v in node.writes):
            raise _held(
                batch, f"node {node.label!r} ({node.op}) gives {after.types[node.writes[0]]} whatever the batch is"
            )


def _ratio(before: ValueType, after: ValueType) -> float:
    sizes = _elements(before), _elements(after)
    return sizes[1] / sizes[0] if sizes[0] and sizes[1] is not None else 1


def _require_same_answers(before: Graph, after: Graph, names: Sequence[str], old: int) -> None:
    """The answers for all samples at once are those of the graph of the smaller batch, for as many at a time as it takes."""
    batch = after.tensor(names[0]).dims[0]
    large, small = (after, before) if batch > old else (before, after)
    feeds: dict[str, Any] = dict(random_feeds(large))
    count, each = max(batch, old), min(batch, old)
    parts = [
        {name: value[at : at + each] if name in names else value for name, value in feeds.items()}
        for at in range(0, count - each + 1, each)
    ]

    def differs(outputs: Sequence[str]) -> bool:
        try:
            together, alone = _answers(large, feeds, outputs), [_answers(small, part, outputs) for part in parts]
        except FusewiseError as error:
            raise _held(batch, f"its answers cannot be compared ({error})") from None
        for k, found in enumerate(together):
            expected = np.concatenate([answers[k] for answers in alone]) if np.ndim(found) else None
            if expected is None or relative_error(found[: len(expected)], expected) > tolerance_of(expected):
                return True
        return False

    if differs(before.outputs):
        guilty = next((node for node in before.nodes if node.writes and differs(node.writes[:1])), None)
        where = "the model" if guilty is None else f"node {guilty.label!r} ({guilty.op})"
        raise _held(
            batch, f"{where} mixes samples, or holds the old batch: its results are not those of each sample alone"
        )


def _answers(graph: Graph, feeds: Mapping[str, Any], outputs: Sequence[str]) -> list[Any]:
    """The values of a graph by a reference."""
    with tempfile.TemporaryDirectory(prefix="fusewise-batch-") as folder:
        path = Path(folder) / "model.onnx"
        asked = graph.replace(outputs=tuple(outputs)).pruned()
        save(asked, path)
        return answer(path, {name: feeds[name] for name in asked.inputs})[1]
