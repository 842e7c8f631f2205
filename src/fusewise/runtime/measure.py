"""Time a group of operators by itself: compiled as a small graph of its own, run until its median is steady.

Only the time between the first step's start and the last one's end counts, as the program itself takes it, so that what Python
adds around a run does not hide a small kernel. Caches are warm, as they are for a group whose producer just ran.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from fusewise.codegen.assemble import generate
from fusewise.errors import FusewiseError
from fusewise.ir.graph import Graph
from fusewise.ir.key import structural_key
from fusewise.ir.partition import Group, Partition
from fusewise.ir.types import TensorType
from fusewise.lower.program import HostStep
from fusewise.ops.spec import NotDefined
from fusewise.runtime.cache import KernelCache, source_digest
from fusewise.runtime.executable import Executable, build
from fusewise.runtime.host import host_target, worker_count
from fusewise.runtime.profile import Measurement, ProfileDatabase
from fusewise.trace import Trace

__all__ = [
    "CannotMeasure",
    "group_feeds",
    "group_graph",
    "group_key",
    "kept_measurement",
    "looked_up",
    "machine_name",
    "measurable_graph",
    "measure_group",
    "measured",
    "measurement",
    "profiled",
]

_WARMUP, _LEAST, _MOST = 2, 7, 101
_ENOUGH_SECONDS, _LONGEST_SECONDS = 0.02, 2.0
_PLACES = {"Gather": 1, "GatherElements": 1, "GatherND": 1, "RoiAlign": 2}
"""The operands that are places to read."""


class CannotMeasure(FusewiseError):
    """A group cannot be timed by itself, and the message says why."""


def machine_name() -> str:
    """What measurements hold for: the CPU with its features and caches."""
    target = host_target()
    return f"{target.key}|{target.l1_bytes}|{target.l2_bytes}|{target.l3_bytes}"


def group_graph(graph: Graph, nodes: Sequence[int]) -> Graph:
    """The nodes `nodes` (ascending indexes) as a graph of their own, with the constants they read."""
    group = Group(tuple(nodes))
    read = group.inputs(graph)
    named = {*read, *(value for n in nodes for value in graph.nodes[n].writes)}
    small = Graph(
        inputs=tuple(value for value in read if value not in graph.constants),
        outputs=group.outputs(graph),
        nodes=group.members(graph),
        types={value: graph.types[value] for value in named if value in graph.types},
        constants={value: graph.constants[value] for value in read if value in graph.constants},
        name="group",
        opset=graph.opset,
        opsets=graph.opsets,
    )
    return small


def group_key(graph: Graph, nodes: Sequence[int], threads: int) -> str:
    """Everything the duration of a group depends on: its structure and types, threads, machine, this program's version.

    Names do not enter, nor the values of weights: equal groups of any two models have one key.
    """
    structure = structural_key(group_graph(graph, nodes), with_weights=False)
    return f"{structure}|{threads}|{machine_name()}|{source_digest()}"


def measure_group(
    graph: Graph,
    nodes: Sequence[int],
    threads: int | None = None,
    *,
    cache: KernelCache | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Durations of single runs of a group in nanoseconds: 7 to 99 of them for 20 ms, but for no longer than 2 seconds.

    Raises `CannotMeasure` when the group cannot be compiled or run by itself, or would run on the host.
    """
    small = measurable_graph(graph, nodes)
    try:
        return _samples(_compiled(small, worker_count(threads), cache), group_feeds(small), clock)
    except (FusewiseError, NotDefined, MemoryError) as error:
        raise CannotMeasure(str(error) or type(error).__name__) from error


def measurable_graph(graph: Graph, nodes: Sequence[int]) -> Graph:
    """As `group_graph`, of a group whose shapes are known and whose results are read; `CannotMeasure` for others."""
    small = group_graph(graph, nodes)
    for value in (*small.inputs, *small.outputs):
        kind = small.types[value]
        if not isinstance(kind, TensorType) or not kind.is_static:
            raise CannotMeasure(f"the shape of {value!r} is not known")
    if not small.outputs:
        raise CannotMeasure("nobody reads its results")
    return small


def _compiled(small: Graph, workers: int, cache: KernelCache | None) -> Executable:
    whole = Partition(small, (Group(tuple(range(len(small.nodes)))),))
    program = generate(whole, host_target(), Trace(), workers=workers)
    on_host = [step.nodes[0] for step in program.steps if isinstance(step, HostStep)]
    if on_host:
        raise CannotMeasure(f"{on_host[0].op} runs on the host")
    return build(program, threads=workers, cache=cache)


def group_feeds(small: Graph) -> dict[str, np.ndarray]:
    """Ordinary numbers for every input: floats between 0.1 and 1, ones, and zeros where they are places to read."""
    places = {node.inputs[_PLACES[node.op]] for node in small.nodes if node.op in _PLACES}
    rng, feeds = np.random.default_rng(0), {}
    for value in small.inputs:
        kind = small.tensor(value)
        if kind.dtype.kind in ("string", "complex"):
            raise CannotMeasure(f"{value!r} is of type {kind.dtype.name}")
        if kind.dtype.is_float:
            feeds[value] = rng.uniform(0.1, 1.0, kind.dims).astype(kind.dtype.numpy)
        else:
            feeds[value] = np.full(kind.dims, 0 if value in places else 1, kind.dtype.numpy)
    return feeds


def _samples(model: Executable, feeds: dict[str, np.ndarray], clock: Callable[[], float]) -> list[float]:
    found: list[float] = []
    begin = clock()
    while len(found) < _MOST:
        _, steps = model.run_with_timings(None, feeds)
        found.append(float(max(s.end_ns for s in steps) - min(s.start_ns for s in steps)) if steps else 0.0)
        spent = clock() - begin
        if spent > _ENOUGH_SECONDS and len(found) >= _WARMUP + _LEAST:
            break
        if spent > _LONGEST_SECONDS and len(found) > _WARMUP:
            break
    return found[_WARMUP:]


def profiled(database: ProfileDatabase, threads: int) -> Callable[[Graph, tuple[int, ...]], float | None]:
    """What a group took when it was measured, in nanoseconds; None when it was not, or could not be.

    Asked again of one graph it answers as before, whatever was measured since.
    """
    return looked_up(database, lambda graph, nodes: group_key(graph, nodes, threads))


def looked_up(
    database: ProfileDatabase, key_of: Callable[[Graph, tuple[int, ...]], str]
) -> Callable[[Graph, tuple[int, ...]], float | None]:
    """As `profiled`, of entries under the keys that `key_of` gives."""
    answers: dict[tuple[int, ...], float | None] = {}
    asked: list[Graph] = []

    def cost(graph: Graph, nodes: tuple[int, ...]) -> float | None:
        if not asked or asked[0] is not graph:
            asked[:] = [graph]
            answers.clear()
        if nodes not in answers:
            known = database.lookup(key_of(graph, nodes))
            answers[nodes] = None if known is None else known.median_ns
        return answers[nodes]

    return cost


def measured(
    database: ProfileDatabase, threads: int, cache: KernelCache | None = None
) -> Callable[[Graph, tuple[int, ...]], float | None]:
    """What a group takes, in nanoseconds: as it was measured, or measured now and kept; None when that fails."""

    def cost(graph: Graph, nodes: tuple[int, ...]) -> float | None:
        return measurement(database, graph, nodes, threads, cache).median_ns

    return cost


def measurement(
    database: ProfileDatabase, graph: Graph, nodes: Sequence[int], threads: int, cache: KernelCache | None = None
) -> Measurement:
    """The entry of a group, measured now if there is none; one that failed is not tried again."""
    key = group_key(graph, nodes, threads)
    known = database.lookup(key)
    if known is not None:
        return known
    return kept_measurement(database, key, graph, nodes, lambda: measure_group(graph, nodes, threads, cache=cache))


def kept_measurement(
    database: ProfileDatabase, key: str, graph: Graph, nodes: Sequence[int], measure: Callable[[], list[float]]
) -> Measurement:
    """Measure a group now, in nanoseconds, and keep what comes of it: why there is nothing, where `CannotMeasure` is raised."""
    what = "+".join(graph.nodes[i].op for i in nodes)
    try:
        samples = measure()
    except CannotMeasure as reason:
        return database.fail(key, str(reason), what)
    return database.record(key, samples, what)
