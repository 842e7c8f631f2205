"""A model for inputs of several samples: zoo models are built so, others are given a size for their first dimension."""

from __future__ import annotations

from pathlib import Path

from fusewise.benchmarking.rebatching import rebatched
from fusewise.errors import UsageError
from fusewise.frontend import onnx_import
from fusewise.frontend.bind import bind
from fusewise.ir.graph import Graph
from fusewise.ir.types import TensorType
from fusewise.zoo import catalogue

__all__ = ["batched"]


def batched(model: str | Graph, batch: int) -> tuple[Graph, dict[str, int]]:
    """The graph of a path, `zoo:NAME` or another graph, and sizes of its symbols, such that every input holds `batch` samples.

    Where first dimensions are numbers, the model is rewritten for others (`rebatching`). `UsageError` when that cannot be, with the
    node that holds the batch, or where some have a name and others do not.
    """
    zoo, found, name = model.partition("zoo:") if isinstance(model, str) else ("", "", "")
    if found and not zoo:
        return catalogue.build(name, batch=batch), {}
    graph = onnx_import.load(Path(model)) if isinstance(model, str) else model
    symbols: dict[str, int] = {}
    numbers = []
    for value in graph.inputs:
        kind = graph.types[value]
        first = kind.shape[0] if isinstance(kind, TensorType) and kind.shape else None
        if isinstance(first, str):
            symbols[first] = batch
        elif isinstance(first, int):
            numbers.append(value)
        else:
            raise UsageError(f"the first dimension of input {value!r} has no name; give --shape instead of --batch")
    if numbers and symbols:
        raise UsageError(
            f"the first dimension of input {numbers[0]!r} is a number and that of others has a name; give --shape instead"
        )
    return (rebatched(bind(graph), batch), {}) if numbers else (graph, symbols)
