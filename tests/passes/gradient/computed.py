"""Graphs computed by ONNX's evaluator, in whatever precision they are in, and what gradients are held against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator

from fusewise.frontend.onnx_export import to_model
from fusewise.ir.dtypes import FLOAT32, FLOAT64, DType
from fusewise.ir.graph import Constant, Graph
from fusewise.ir.types import TensorType
from fusewise.ops.corrections import corrected_operators

Computed = Callable[[Mapping[str, np.ndarray]], dict[str, Any]]


def computed(graph: Graph) -> Computed:
    """A function that gives the outputs of the graph by name."""
    session = ReferenceEvaluator(to_model(graph), new_ops=list(corrected_operators()))
    return lambda feeds: dict(zip(graph.outputs, session.run(None, dict(feeds)), strict=True))


def in_type(graph: Graph, dtype: DType) -> Graph:
    """The same graph with another type in the place of float32 and float64."""
    kinds = {
        name: replace(kind, dtype=dtype) if isinstance(kind, TensorType) and kind.dtype in _WIDE else kind
        for name, kind in graph.types.items()
    }
    constants = {
        name: Constant(constant.array.astype(dtype.numpy)) if constant.dtype in _WIDE else constant
        for name, constant in graph.constants.items()
    }
    nodes = (
        node.with_attributes(to=dtype.onnx) if node.op == "Cast" and node.attribute("to") in (1, 11) else node
        for node in graph.nodes
    )
    return graph.replace(types=kinds, constants=constants, nodes=tuple(nodes))


def along(run: Computed, feeds: Mapping[str, np.ndarray], output: str, steps: Mapping[str, np.ndarray]) -> float:
    """The slope of the sum of an output along a direction, by a difference of the fourth order."""
    total = 0.0
    for factor, share in ((1, 8), (-1, -8), (2, -1), (-2, 1)):
        moved = {name: x + factor * _STEP * steps[name] if name in steps else x for name, x in feeds.items()}
        total += share * float(np.sum(run(moved)[output]))
    return total / (12 * _STEP)


_STEP = 1e-4
_WIDE = (FLOAT32, FLOAT64)


def apart(found: np.ndarray, expected: np.ndarray, least: float = 1e-30) -> float:
    """The largest difference, by the largest value expected."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if not found.size:
        return 0.0
    return float(np.max(np.abs(found - expected)) / max(float(np.max(np.abs(expected))), least))
