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

from fusewise.errors import BrokenGraph
from fusewise.ir.graph import Graph
from fusewise.ir.key import structural_key
from fusewise.ir.verify import verify
from fusewise.passes.catalogue import CATALOGUE, Pass
from fusewise.passes.hints import FUSION, LAYOUT, hint
from fusewise.passes.partition_graph import REGIONS
from fusewise.passes.published import Step, step_named
from fusewise.passes.unused_functions import unused_functions
from fusewise.select.pipeline import BY_HINT, Pipeline
from fusewise.trace import BY_NAME, INTER_BLOCK, SEALED, Trace

__all__ = ["AS_NAMED", "Blocks", "Outcome", "PassRun", "graph_key", "run_pipeline"]

Blocks = Callable[[Graph], Iterable[Iterable[str]]]
"""Labels of the nodes of every fused block of a graph, as fixed patterns find them."""

_MOST_ROUNDS = 8
AS_NAMED: Mapping[Pass, Pass] = MappingProxyType({})
"""No function takes the place of a pass's own."""
_LATE = frozenset(row.name for row in CATALOGUE if row.late)


@dataclass(frozen=True, slots=True)
class PassRun:
    """One run of a pass. `why` says why nothing changed, where more is known than that nothing matched.

    `held` rewrites were kept out because the nodes are inside a fused block.
    """

    name: str
    ms: float
    changed: bool
    why: str = ""
    held: int = 0


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
    runner = _Runner(trace or Trace(), exact, pipeline, blocks, clock)
    named = [step_named(name) for name in pipeline.passes]
    steps = [replace(step, function=instead.get(step.function, step.function)) for step in named]
    if pipeline.settle:
        graph = runner.settled(graph, steps)
    else:
        for step in steps:
            graph = runner.step(graph, step)
    if pipeline.fusion == BY_HINT:
        return Outcome(pipeline, graph, hint(graph, FUSION) or "none", bool(hint(graph, LAYOUT)), tuple(runner.runs))
    return Outcome(pipeline, graph, pipeline.fusion, True, tuple(runner.runs))


class _Runner:
    """The state of one run: records so far, and where each pass had nothing to do."""

    def __init__(
        self, trace: Trace, exact: bool, pipeline: Pipeline, blocks: Blocks | None, clock: Callable[[], float]
    ):
        self.trace, self.exact, self.pipeline, self.blocks, self.clock = trace, exact, pipeline, blocks, clock
        self.runs: list[PassRun] = []
        self._idle: dict[str, Graph] = {}
        self._sealed: tuple[Graph | None, frozenset[str]] = (None, frozenset())
        self._keyed: tuple[Graph | None, str] = (None, "")

    def settled(self, graph: Graph, steps: list[Step]) -> Graph:
        """Rounds until one changes nothing; late passes wait for a round in which the others changed nothing."""
        for _ in range(_MOST_ROUNDS):
            start = graph
            for step in steps:
                waits = step.name in _LATE and graph is not start
                if not waits and self._idle.get(step.name) is not graph:
                    graph = self.step(graph, step)
            if graph is start:
                break
        return graph

    def step(self, graph: Graph, step: Step) -> Graph:
        refusal = self._refusal(step)
        if refusal or self._idle.get(step.name) is graph:
            self.runs.append(PassRun(step.name, 0.0, False, refusal or "nothing changed since it last ran"))
            return graph
        self.trace.sealed = self._inside_blocks(graph)
        events = len(self.trace.events)
        begin = self.clock()
        result = step.function(graph, self.trace)
        elapsed_ms = (self.clock() - begin) * 1e3
        held = sum(event.reason == SEALED for event in self.trace.events[events:])
        self.trace.sealed = frozenset()
        changed = result is not graph and self._differ(graph, result)
        if result is not graph:
            self._check(step, result)
        if not changed:
            result = graph
            self._idle[step.name] = graph
        told = next((event.reason for event in self.trace.events[events:] if event.kind == "form"), step.idle)
        why = "" if changed else f"{held} nodes are inside fused blocks" if held else told
        self.runs.append(PassRun(step.name, elapsed_ms, changed, why, held))
        self.trace.add(
            "pass",
            step.name,
            reason=f"{elapsed_ms:.2f} ms" + ("" if changed else f", {why or 'nothing to do'}"),
            before=float(len(graph.nodes)),
            after=float(len(result.nodes)),
            applied=changed,
        )
        return result

    def _differ(self, before: Graph, after: Graph) -> bool:
        """Have the graphs different keys? Where the numbers of operators differ, so do the keys, and none is computed."""
        noted = _notes(before) != _notes(after)
        return noted or _operators(before) != _operators(after) or self._key(before) != self._key(after)

    def _key(self, graph: Graph) -> str:
        if self._keyed[0] is not graph:
            self._keyed = graph, graph_key(graph, False)
        return self._keyed[1]

    def _refusal(self, step: Step) -> str:
        """Why a pass must not run; empty when it may."""
        if step.name in self.trace.disabled:
            return BY_NAME
        if step.asked and not self.pipeline.approximate:
            return step.idle or "approximate; runs only when asked for"
        if step.adds_outputs and not self.pipeline.gradients:
            return "adds outputs; runs only when gradients are asked for"
        if self.exact and step.numeric_class != "exact":
            return "may change a rounding"
        return ""

    def _inside_blocks(self, graph: Graph) -> frozenset[str]:
        """Nodes that share a fused block with another."""
        if self.blocks is None or not hint(graph, FUSION):
            return frozenset()
        if self._sealed[0] is not graph:
            found = [tuple(block) for block in self.blocks(graph)]
            self._sealed = graph, frozenset(name for block in found if len(block) > 1 for name in block)
        return self._sealed[1]

    def _check(self, step: Step, graph: Graph) -> None:
        try:
            verify(graph)
        except BrokenGraph as error:
            raise BrokenGraph(f"pass {step.name} broke the graph: {error}") from error
