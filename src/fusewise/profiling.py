"""Groups of a model's plan timed by themselves, on a processor or on a GPU, and kept for later planning (`runtime.profile`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from fusewise import making
from fusewise.codegen.legalize import for_native, passes_for
from fusewise.fusion.cost import CostSource
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
    """A row for each group of a graph's plan, which is made of measured costs: what it takes by itself, measured now where it was
    not before. All that was measured on the way is kept in `database`, by which later compilations for the same device plan.

    `us` and `spread_us` are None where a group cannot be timed, and `failure` says why. A GPU has to be here; the errors of
    `runtime.gpu.driver` are raised.
    """
    fresh: set[str] = set()
    with ExitStack() as held:
        bench = (_here if how.device == "cpu" else _on_gpu)(how, database, held)

        def cost(graph: Graph, nodes: tuple[int, ...]) -> float | None:
            progress("measuring", 0.0)
            key = bench.key(graph, nodes)
            if database.lookup(key) is None:
                fresh.add(key)
            return bench.measurement(graph, nodes).median_ns

        plan, rows = bench.planned(graph, CostSource(None, cost)), []
        legal = plan.partition.graph
        for number, group in enumerate(plan.partition.groups):
            progress("measuring groups", number / len(plan.partition.groups))
            cost(legal, group.nodes)
            found = bench.measurement(legal, group.nodes)
            us, spread = (None if ns is None else ns / 1e3 for ns in (found.median_ns, found.spread_ns))
            told = {"us": us, "spread_us": spread, "known": found.key not in fresh, "failure": found.failure}
            rows.append({"group": number, "operators": found.what, **told})
    return rows


@dataclass(frozen=True)
class _Bench:
    """How groups are timed: what an entry is kept under, the entry, and the plan of a graph by such costs."""

    key: Callable[[Graph, tuple[int, ...]], str]
    measurement: Callable[[Graph, tuple[int, ...]], Measurement]
    planned: Callable[[Graph, CostSource], Plan]


def _here(how: GroupTiming, database: ProfileDatabase, held: ExitStack) -> _Bench:
    workers, cache = worker_count(how.threads), KernelCache(database.folder.parent)

    def planned(graph: Graph, costs: CostSource) -> Plan:
        trace = Trace()
        clean = run(graph, passes_for(host_target()), trace, exact=how.exact)
        legal = for_native(clean, how.precision, trace, exact=how.exact, target=host_target())
        return making.grouped(legal, making.Making(workers, exact=how.exact), trace, costs=costs)

    return _Bench(
        lambda graph, nodes: group_key(graph, nodes, workers),
        lambda graph, nodes: measurement(database, graph, nodes, workers, cache),
        planned,
    )


def _on_gpu(how: GroupTiming, database: ProfileDatabase, held: ExitStack) -> _Bench:
    from fusewise.runtime.gpu import drivers
    from fusewise.runtime.gpu.compile import TritonCompiler
    from fusewise.runtime.gpu.measure import GpuProfile, GpuTimer

    driver = drivers.opened(how.device)
    held.callback(driver.close)
    profile = GpuProfile(database, driver.name, how.precision, how.exact)
    compiler = held.enter_context(TritonCompiler())
    timer = GpuTimer(profile, driver, compiler, KernelCache(database.folder.parent))
    how_made = making.GpuMaking(drivers.row_of(driver), how.precision, exact=how.exact)
    return _Bench(
        profile.key, timer.measurement, lambda graph, costs: making.gpu_planned(graph, how_made, costs=costs).plan
    )
