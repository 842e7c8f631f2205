"""Run a pipeline and say what each pass did: its time, whether it changed anything, what fused blocks kept it from.

Takes a graph and a pipeline; gives the graph, how it is to be fused, and a record for every pass that ran. Unchanged means that
the structural key is: up to renaming the graph is what it was.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from fusewise.ir.graph import Graph
from fusewise.ir.key import structural_key
from fusewise.passes.hints import FUSION, LAYOUT, hint
from fusewise.passes.partition_graph import REGIONS
from fusewise.passes.published import step_named
from fusewise.passes.runner import Pass, PassRun, PassStep, Runner
from fusewise.passes.unused_functions import unused_functions
from fusewise.select.pipeline import BY_HINT, Pipeline
from fusewise.trace import INTER_BLOCK, Trace

__all__ = ["AS_NAMED", "Blocks", "Outcome", "graph_key", "run_pipeline"]

Blocks = Callable[[Graph], Iterable[Iterable[str]]]
"""Labels of the nodes of every fused block of a graph, as fixed patterns find them."""

AS_NAMED: Mapping[Pass, Pass] = MappingProxyType({})
"""No function takes the place of a pass's own."""


@dataclass(frozen=True)
class Outcome:
    """The graph after a pipeline. `fusion` is the planner to use, `packed` whether operators may choose their layout."""

    pipeline: Pipeline
    graph: Graph
    fusion: str
    packed: bool
    runs: tuple[PassRun, ...]

    @property
    def total_ms(self) -> float:
        return sum(run.ms for run in self.runs)

    @property
    def unchanged(self) -> tuple[str, ...]:
        """Passes none of whose runs changed the graph."""
        changed = {run.name for run in self.runs if run.changed}
        return tuple(dict.fromkeys(run.name for run in self.runs if run.name not in changed))

    @property
    def effective(self) -> Pipeline:
        """The runs that changed something, in their order: the same graph with nothing run in vain."""
        passes = tuple(run.name for run in self.runs if run.changed)
        return replace(self.pipeline, passes=passes, settle=False)

    @property
    def disables(self) -> tuple[str, ...]:
        """What the compiler must not do for this outcome."""
        return () if self.packed else (INTER_BLOCK,)

    @property
    def key(self) -> str:
        """Equal for outcomes that compile to the same program with the same weights."""
        return f"{graph_key(self.graph)} {self.fusion} {self.packed}"

    @property
    def cost_key(self) -> str:
        """Equal for outcomes that cost the same: the contents of large weights do not enter."""
        return f"{graph_key(self.graph, with_weights=False)} {self.fusion} {self.packed}"


def graph_key(graph: Graph, with_weights: bool = True) -> str:
    """The structural key, and what the graph asks of the compiler."""
    return f"{structural_key(graph, with_weights)} {hint(graph, FUSION)} {hint(graph, LAYOUT)}"


def _operators(graph: Graph) -> Counter[tuple[str, str]]:
    return Counter((node.domain, node.op) for node in graph.nodes)


def _notes(graph: Graph) -> object:
    """What passes note of a graph that does not enter its key, since it is compiled to the same program."""
    return hint(graph, REGIONS), unused_functions(graph)


def run_pipeline(
    pipeline: Pipeline,
    graph: Graph,
    trace: Trace | None = None,
    *,
    exact: bool = False,
    blocks: Blocks | None = None,
    instead: Mapping[Pass, Pass] = AS_NAMED,
    clock: Callable[[], float] = time.process_time,
) -> Outcome:
    """The graph after the passes of `pipeline`, and what each did.

    With `blocks`, passes behind FuseOps leave nodes inside fused blocks alone; without it they look inside. `exact` skips
    passes that may change a rounding. A pass that had nothing to do on a graph is not run on it again. `instead` has functions
    that take the place of passes' own, because they suit a machine better.
    """
    named = [step_named(name) for name in pipeline.passes]
    steps = [replace(step, function=instead.get(step.function, step.function)) for step in named]
    runner = Runner(
        trace or Trace(),
        clock,
        {step.name: why for step in steps if (why := _refusal(step, pipeline, exact))},
        _Changes().differ,
        None if blocks is None else _Blocks(blocks).inside,
    )
    graph = runner.settled(graph, steps) if pipeline.settle else runner.in_turn(graph, steps)
    if pipeline.fusion == BY_HINT:
        return Outcome(pipeline, graph, hint(graph, FUSION) or "none", bool(hint(graph, LAYOUT)), tuple(runner.runs))
    return Outcome(pipeline, graph, pipeline.fusion, True, tuple(runner.runs))


def _refusal(step: PassStep, pipeline: Pipeline, exact: bool) -> str:
    """Why a pass must not run; empty when it may."""
    if step.asked and not pipeline.approximate:
        return step.idle or "approximate; runs only when asked for"
    if step.adds_outputs and not pipeline.gradients:
        return "adds outputs; runs only when gradients are asked for"
    if exact and step.numeric_class != "exact":
        return "may change a rounding"
    return ""


class _Changes:
    """Tells graphs apart; the key of the last one that was asked about is kept."""

    def __init__(self) -> None:
        self._keyed: tuple[Graph | None, str] = (None, "")

    def differ(self, before: Graph, after: Graph) -> bool:
        """Have the graphs different keys? Where the numbers of operators differ, so do the keys, and none is computed."""
        noted = _notes(before) != _notes(after)
        return noted or _operators(before) != _operators(after) or self._key(before) != self._key(after)

    def _key(self, graph: Graph) -> str:
        if self._keyed[0] is not graph:
            self._keyed = graph, graph_key(graph, False)
        return self._keyed[1]


class _Blocks:
    """The fused blocks of graphs; those of the last one that was asked about are kept."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._inside: tuple[Graph | None, frozenset[str]] = (None, frozenset())

    def inside(self, graph: Graph) -> frozenset[str]:
        """Nodes that share a fused block with another."""
        if not hint(graph, FUSION):
            return frozenset()
        if self._inside[0] is not graph:
            found = [tuple(block) for block in self._blocks(graph)]
            self._inside = graph, frozenset(name for block in found if len(block) > 1 for name in block)
        return self._inside[1]
