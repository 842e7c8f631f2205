"""Groups of a model's plan timed by themselves, on a processor or on a GPU, and kept for later planning (`runtime.profile`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from fusewise import making
from fusewise.codegen.legalize import for_native, passes_for
from fusewise.fusion.plan import Plan
from fusewise.ir.graph import Graph
from fusewise.passes.pipeline import run
from fusewise.runtime.cache import KernelCache
from fusewise.runtime.host import host_target, worker_count
from fusewise.runtime.measure import group_key, measurement
from fusewise.runtime.profile import Measurement, ProfileDatabase
from fusewise.trace import Trace

__all__ = ["GroupTiming", "timed_groups"]


@dataclass(frozen=True)
class GroupTiming:
    """Where groups are timed, and how they are compiled: on a CPU with so many `threads`, or on a GPU as users name it."""

    device: str = "cpu"
    threads: int | None = None
    precision: str = "float32"
    exact: bool = False


def timed_groups(
    graph: Graph,
    how: GroupTiming,
    database: ProfileDatabase,
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> list[dict[str, Any]]:
    """A row for each group of a graph's plan: what it takes by itself, measured now where it was not before, and kept in
    `database`, by which later compilations for the same device plan.

    `us` and `spread_us` are None where it cannot be timed, and `failure` says why. A GPU has to be here; the errors of
    `runtime.gpu.driver` are raised.
    """
    with ExitStack() as held:
        plan, measure = (_groups_here if how.device == "cpu" else _groups_on_gpu)(graph, how, database, held)
        rows = []
        for number, group in enumerate(plan.partition.groups):
            progress("measuring groups", number / len(plan.partition.groups))
            was_known, found = measure(plan.partition.graph, group.nodes)
            us, spread = (None if ns is None else ns / 1e3 for ns in (found.median_ns, found.spread_ns))
            told = {"us": us, "spread_us": spread, "known": was_known, "failure": found.failure}
            rows.append({"group": number, "operators": found.what, **told})
    return rows


_Measured = Callable[[Graph, tuple[int, ...]], tuple[bool, Measurement]]
"""Gives a group's entry, and whether it was there before."""


def _groups_here(graph: Graph, how: GroupTiming, database: ProfileDatabase, held: ExitStack) -> tuple[Plan, _Measured]:
    trace, workers, cache = Trace(), worker_count(how.threads), KernelCache(database.folder.parent)
    clean = run(graph, passes_for(host_target()), trace, exact=how.exact)
    legal = for_native(clean, how.precision, trace, exact=how.exact, target=host_target())

    def measure(graph: Graph, nodes: tuple[int, ...]) -> tuple[bool, Measurement]:
        known = database.lookup(group_key(graph, nodes, workers)) is not None
        return known, measurement(database, graph, nodes, workers, cache)

    return making.grouped(legal, making.Making(workers, exact=how.exact), trace), measure


def _groups_on_gpu(
    graph: Graph, how: GroupTiming, database: ProfileDatabase, held: ExitStack
) -> tuple[Plan, _Measured]:
    from fusewise.runtime.gpu import drivers
    from fusewise.runtime.gpu.compile import TritonCompiler
    from fusewise.runtime.gpu.measure import GpuProfile

    driver = drivers.opened(how.device)
    held.callback(driver.close)
    planned = making.gpu_planned(graph, making.GpuMaking(drivers.row_of(driver), how.precision, exact=how.exact))
    profile = GpuProfile(database, driver, how.precision, how.exact, KernelCache(database.folder.parent))
    compiler = held.enter_context(TritonCompiler())

    def measure(graph: Graph, nodes: tuple[int, ...]) -> tuple[bool, Measurement]:
        known = database.lookup(profile.key(graph, nodes)) is not None
        return known, profile.measurement(graph, nodes, compiler)

    return planned.plan, measure
