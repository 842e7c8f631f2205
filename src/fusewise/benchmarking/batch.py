"""A model for inputs of several samples: zoo models are built so, others are given a size for their first dimension."""

from __future__ import annotations

from pathlib import Path

from fusewise.errors import UsageError
from fusewise.frontend import onnx_import
from fusewise.ir.graph import Graph
from fusewise.ir.types import TensorType
from fusewise.zoo import catalogue

__all__ = ["batched"]


def batched(model: str, batch: int) -> tuple[Graph, dict[str, int]]:
    """The graph of a path or `zoo:NAME`, and sizes of its symbols, such that every input holds `batch` samples.

    `UsageError` when the first dimension of an input is a number, or has no name.
    """
    zoo, found, name = model.partition("zoo:")
    if found and not zoo:
        return catalogue.build(name, batch=batch), {}
    graph = onnx_import.load(Path(model))
    symbols: dict[str, int] = {}
    for value in graph.inputs:
        kind = graph.types[value]
        first = kind.shape[0] if isinstance(kind, TensorType) and kind.shape else None
        if not isinstance(first, str):
            raise UsageError(f"the first dimension of input {value!r} has no name; give --shape instead of --batch")
        symbols[first] = batch
    return graph, symbols
