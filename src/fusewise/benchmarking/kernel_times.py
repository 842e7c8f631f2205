"""What one operator takes in a runtime, by itself: the price list of a search that wants its graph to be fast there.

Figures go into the profile database and are taken once per operator, types, thread count and machine.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fusewise.benchmarking.peers import Subject, open_onnxruntime, peers_named
from fusewise.errors import FusewiseError
from fusewise.frontend import onnx_export
from fusewise.frontend.lowest_opset import at_lowest_opset
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Constant, Graph, Node
from fusewise.ir.key import structural_key
from fusewise.ir.types import TensorType
from fusewise.rewrite.cost import PricedNode
from fusewise.runtime.cache import KernelCache
from fusewise.runtime.measure import CannotMeasure, machine_name, measurement
from fusewise.runtime.profile import ProfileDatabase

__all__ = ["KernelTime", "in_fusewise", "in_onnxruntime", "kernel_graph"]

KernelTime = Callable[[PricedNode, Graph], float | None]
"""Milliseconds of a kernel in a model with the opset of the graph; None when it cannot be measured."""

_WARMUP, _LEAST, _MOST = 3, 7, 301
_SECONDS = 0.03
_SHORTEST_NS = 500.0
_NOTHING = Graph(
    ("x",), ("y",), (Node("Relu", ("x",), ("y",)),), dict.fromkeys("xy", TensorType(FLOAT32, (1,))), {}, "call", 21
)


def kernel_graph(kernel: PricedNode, opset: int, opsets: tuple[tuple[str, int], ...] = ()) -> Graph:
    """The kernel's node as a graph of its own, weights random. `CannotMeasure` when a shape is not known."""
    names = tuple("" if kind is None else f"i{k}" for k, kind in enumerate(kernel.inputs))
    outputs = tuple("" if kind is None else f"o{k}" for k, kind in enumerate(kernel.outputs))
    kinds = dict(zip((*names, *outputs), (*kernel.inputs, *kernel.outputs), strict=True))
    types = {name: kind for name, kind in kinds.items() if name and kind is not None}
    for kind in types.values():
        if not isinstance(kind, TensorType) or not kind.is_static:
            raise CannotMeasure(f"{kernel.node.op} has results of unknown size")
    constants: dict[str, Constant] = {}
    rng = np.random.default_rng(0)
    for name, weights, known in zip(names, kernel.weights, kernel.known, strict=True):
        if known is not None and name:
            constants[name] = known
        elif weights and name:
            kind = types[name]
            assert isinstance(kind, TensorType)
            constants[name] = Constant(rng.uniform(0.1, 1.0, kind.dims).astype(kind.dtype.numpy))
    node = Node(kernel.node.op, names, outputs, kernel.node.attributes, kernel.node.domain)
    data = tuple(name for name in names if name and name not in constants)
    return Graph(data, tuple(filter(None, outputs)), (node,), types, constants, "kernel", opset, opsets)


def in_fusewise(database: ProfileDatabase, threads: int, cache: KernelCache | None = None) -> KernelTime:
    """Times in our own runtime."""

    def time_ms(kernel: PricedNode, graph: Graph) -> float | None:
        try:
            small = kernel_graph(kernel, graph.opset, graph.opsets)
        except CannotMeasure:
            return None
        found = measurement(database, small, (0,), threads, cache).median_ns
        return None if found is None else found / 1e6

    return time_ms


def in_onnxruntime(database: ProfileDatabase, threads: int) -> KernelTime:
    """Times in ONNX Runtime, its own optimisations on, less what a call takes that does next to nothing: in a model that is
    paid once. `UsageError` when it is not installed."""
    peers_named(("onnxruntime",))
    import onnxruntime

    def measured(small: Graph, what: str) -> float | None:
        structure = structural_key(small, with_weights=False)
        key = f"onnxruntime {onnxruntime.__version__}|fastest tenth|{structure}|{threads}|{machine_name()}"
        known = database.lookup(key)
        if known is None:
            try:
                known = database.record(key, _samples_ns(small, threads), what)
            except Exception as error:  # ONNX Runtime's own have no common class
                known = database.fail(key, str(error), what)
        return known.median_ns

    def time_ms(kernel: PricedNode, graph: Graph) -> float | None:
        try:
            small = kernel_graph(kernel, graph.opset, graph.opsets)
        except CannotMeasure:
            return None
        found = measured(small, f"onnxruntime {kernel.node.op}")
        if found is None:
            return None
        call = measured(_NOTHING, "onnxruntime, a call") or 0.0
        return max(found - call, _SHORTEST_NS) / 1e6

    return time_ms


def _samples_ns(small: Graph, threads: int) -> list[float]:
    """Durations of the fastest tenth of single runs, in nanoseconds: what else a machine does only ever adds."""
    rng = np.random.default_rng(0)
    feeds = {}
    for name in small.inputs:
        kind = small.tensor(name)
        if not kind.dtype.is_float:
            raise FusewiseError(f"{name} is of type {kind.dtype.name}")
        feeds[name] = rng.uniform(0.1, 1.0, kind.dims).astype(kind.dtype.numpy)
    with tempfile.TemporaryDirectory(prefix="fusewise-kernel-") as folder:
        path = Path(folder) / "kernel.onnx"
        onnx_export.save(at_lowest_opset(small), path)
        session = open_onnxruntime(Subject(path), threads)
    found: list[float] = []
    begin = time.perf_counter()
    while len(found) < _MOST:
        start = time.perf_counter_ns()
        session.run(feeds)
        found.append(float(time.perf_counter_ns() - start))
        if len(found) >= _WARMUP + _LEAST and time.perf_counter() - begin > _SECONDS:
            break
    kept = sorted(found[_WARMUP:])
    return kept[: (len(kept) + 9) // 10]
