"""How a graph that is legal for this machine becomes a program: its nodes are grouped, then code is written for the groups.

What compiles a graph does so by these two, be it to run it, to tune it or to measure it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fusewise.codegen.assemble import generate
from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.program import GpuProgram
from fusewise.fusion.cost import CostSource
from fusewise.fusion.plan import Plan, given, measured, plan
from fusewise.ir.graph import Graph
from fusewise.lower.program import Program
from fusewise.runtime.host import host_target
from fusewise.trace import Trace

if TYPE_CHECKING:
    from fusewise.passes.runner import Pass

__all__ = [
    "CompilationChoice",
    "GpuMaking",
    "GpuPlanned",
    "Making",
    "Planned",
    "generated",
    "gpu_planned",
    "gpu_planner",
    "grouped",
    "program_of",
]


@dataclass(frozen=True)
class Making:
    """The options that have a say in how a graph becomes a program, and the workers there are."""

    workers: int
    fusion: str = "dnnfusion"
    exact: bool = False
    strict: bool = False
    disable: tuple[str, ...] = ()
    sanitize: bool = False

    @property
    def trace(self) -> Trace:
        """A new one."""
        return Trace(disabled=frozenset(self.disable))


@dataclass(frozen=True)
class CompilationChoice:
    """What a model is to be compiled to: `groups` in place of the planner's (None: as planned), and for some tasks, by digest,
    which of the ways to run them. Times are medians in milliseconds; None before the race."""

    groups: tuple[tuple[int, ...], ...] | None = None
    ways: Mapping[str, int] = field(default_factory=dict)
    default_ms: float | None = None
    tuned_ms: float | None = None

    @property
    def is_default(self) -> bool:
        return self.groups is None and not self.ways

    @property
    def described(self) -> dict[str, Any]:
        """As plain JSON, for people."""
        kept = "default" if self.is_default else "tuned"
        return {"kept": kept, "default_ms": self.default_ms, "tuned_ms": self.tuned_ms, "tasks": len(self.ways)}


@dataclass(frozen=True)
class Planned:
    """What a compilation made of a graph, stage by stage: the graph as it was `bound`, `clean` after the passes, `graph` as it is
    legal here, the `plan` of its groups, the `program`, and the `choice` that had a say in it."""

    bound: Graph
    clean: Graph
    graph: Graph
    plan: Plan
    program: Program
    choice: CompilationChoice | None = None


def program_of(
    graph: Graph, making: Making, trace: Trace, choice: CompilationChoice | None = None, costs: CostSource | None = None
) -> Program:
    """The program of a legal graph: `grouped`, then `generated`.

    `making.disable` has no say here: `trace` knows what is refused.
    """
    return generated(grouped(graph, making, trace, choice, costs), making, trace, choice)


def grouped(
    graph: Graph, making: Making, trace: Trace, choice: CompilationChoice | None = None, costs: CostSource | None = None
) -> Plan:
    """The groups of a choice, or else those of the planner, which asks for `costs` where the table of types leaves it to them."""
    if choice is not None and choice.groups is not None:
        try:
            return measured(given(graph, choice.groups, trace))
        except ValueError:
            pass  # a record of something else; plan as usual
    return plan(graph, trace, making.fusion, costs=costs)


def generated(groups: Plan, making: Making, trace: Trace, choice: CompilationChoice | None = None) -> Program:
    """Code for the groups, each task run in the way of the choice, or else in the first."""
    return generate(
        groups.partition,
        replace(host_target(), sanitize=making.sanitize or host_target().sanitize),
        trace,
        workers=making.workers,
        exact=making.exact,
        strict=making.strict,
        ways={} if choice is None else choice.ways,
    )


@dataclass(frozen=True)
class GpuMaking:
    """How a graph becomes a program for `device`: in which `precision` (`codegen.gpu.legal.GPU_PRECISIONS`), after which `passes`,
    with groups by which planner. The others as in `Making`."""

    device: Device
    precision: str = "float32"
    fusion: str = "dnnfusion"
    exact: bool = False
    strict: bool = False
    passes: bool | Sequence[Pass] = True
    disable: tuple[str, ...] = ()

    @property
    def trace(self) -> Trace:
        """A new one."""
        return Trace(disabled=frozenset(self.disable))


@dataclass(frozen=True)
class GpuPlanned:
    """As `Planned`, for a GPU."""

    bound: Graph
    clean: Graph
    graph: Graph
    plan: Plan
    program: GpuProgram


def gpu_planned(
    bound: Graph,
    making: GpuMaking,
    trace: Trace | None = None,
    choice: CompilationChoice | None = None,
    costs: CostSource | None = None,
) -> GpuPlanned:
    """From a graph of known sizes to a program for a GPU: passes, groups, kernels, of which the `ways` of a choice may name others.
    No GPU is asked for. What `costs` do not know, measured on a GPU, is estimated at the prices of the device.

    Raises `UnsupportedModel` where sizes are free or, under `strict`, nodes run on the host; `UsageError` for a precision or
    a planner that there is not.
    """
    from fusewise.codegen.gpu.assemble import gpu_program
    from fusewise.codegen.gpu.legal import clean_for_gpu, for_gpu

    trace = making.trace if trace is None else trace
    clean, precision = clean_for_gpu(bound, making.precision, trace, making.passes, exact=making.exact)
    graph = for_gpu(clean, precision, trace, exact=making.exact)
    ways = {} if choice is None else choice.ways
    groups = gpu_planner(making.device, costs)(graph, trace, making.fusion)
    program = gpu_program(
        groups.partition, making.device, precision, trace, strict=making.strict, exact=making.exact, ways=ways
    )
    return GpuPlanned(bound, clean, graph, groups, program)


def gpu_planner(device: Device, costs: CostSource | None = None) -> Callable[[Graph, Trace, str], Plan]:
    """How a graph is planned for a device: with which trace, by the planner of which name. What `costs` do not know, measured on a
    GPU, is estimated at the prices of the device."""
    from fusewise.codegen.gpu.costs import GPU_LIMITS, prices_of

    priced = replace(costs or CostSource(), prices=prices_of(device))
    return lambda graph, trace, name: plan(graph, trace, name, costs=priced, limits=GPU_LIMITS)
