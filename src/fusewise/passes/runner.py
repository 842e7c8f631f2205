"""The runner of passes: once or until nothing changes, with a record of what each did, the graph checked after each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from fusewise.errors import BrokenGraph
from fusewise.ir.graph import Graph
from fusewise.ir.size import SizeNeeded, Undecided
from fusewise.ir.verify import verify
from fusewise.records import record
from fusewise.trace import BY_NAME, SEALED, Trace

__all__ = ["MOST_ROUNDS", "Pass", "PassRun", "PassStep", "Runner"]

Pass = Callable[[Graph, Trace], Graph]
"""A pure function: never in place, the same graph object when there is nothing to do."""

MOST_ROUNDS = 32
"""Far more than any graph takes: passes that undo each other end."""


@record(frozen=True, slots=True)
class PassStep:
    """A pass as a list of passes names it: of the clean-up, or from the published tables.

    `numeric_class`: `exact` (the same bits, up to the sign of a zero that ONNX leaves open), `reassociating` (the same mathematics,
    roundings may differ) or `approximate`. A `late` pass waits until the others have nothing left to do: it would hide from them
    what they look for.
    `level` is the optimisation level its authors declare, None for others. `idle` says why it has nothing to do on this graph,
    and is empty for a pass that has. A pass that must be `asked` for is left out of lists unless the user allows approximations,
    one that `adds_outputs` unless gradients are wanted.
    `version` goes up when a pass comes to mean something else, so that saved orders notice.
    """

    name: str
    function: Pass
    summary: str
    numeric_class: str
    level: int | None = None
    idle: str = ""
    asked: bool = False
    version: int = 1
    adds_outputs: bool = False
    late: bool = False


@record(frozen=True, slots=True)
class PassRun:
    """One run of a pass. `why` says why nothing changed, where more is known than that nothing matched.

    `held` rewrites were kept out because the nodes are inside a fused block. `nodes` are those of the graph before and after, and
    `did` the decisions it carried out by their names, with how often each, as pairs.
    """

    name: str
    ms: float
    changed: bool
    why: str = ""
    held: int = 0
    nodes: tuple[int, int] = (0, 0)
    did: tuple[tuple[str, int], ...] = ()


def _is_another(before: Graph, after: Graph) -> bool:
    return before is not after


@record
class Runner:
    """Runs passes, each with an event of kind `pass`: the number of nodes before and after, and its time.

    `refused` says by name why passes must not run; those whose names are in `trace.disabled` do not in any case.
    `differ` says whether a pass changed the graph it was given. `sealed` gives the nodes of a graph that no pass may touch.
    `check`: every new graph is verified, and `BrokenGraph` names the pass that broke it. `runs` are the records so far.
    """

    trace: Trace
    clock: Callable[[], float]
    refused: Mapping[str, str] = field(default_factory=dict)
    differ: Callable[[Graph, Graph], bool] = _is_another
    sealed: Callable[[Graph], frozenset[str]] | None = None
    check: bool = True

    def __post_init__(self) -> None:
        self.runs: list[PassRun] = []
        self._settled: dict[tuple[str, Pass], Graph] = {}  # where each pass last had nothing to do

    def settled(self, graph: Graph, steps: Sequence[PassStep]) -> Graph:
        """The graph after rounds until one changes nothing; late passes wait for a round in which the others changed nothing."""
        for _ in range(MOST_ROUNDS):
            start = graph
            for step in steps:
                waits = step.late and graph is not start
                if not waits and not self._is_settled(graph, step):
                    graph = self.once(graph, step)
            if graph is start:
                break
        return graph

    def in_turn(self, graph: Graph, steps: Iterable[PassStep]) -> Graph:
        """The graph after each of the passes where it stands."""
        for step in steps:
            graph = self.once(graph, step)
        return graph

    def once(self, graph: Graph, step: PassStep) -> Graph:
        """The graph after one pass."""
        by_name = step.name in self.trace.disabled
        why = BY_NAME if by_name else self.refused.get(step.name, "")
        if by_name:
            self.trace.add("pass", step.name, reason=BY_NAME, applied=False)
        if why or self._is_settled(graph, step):
            nodes = (len(graph.nodes), len(graph.nodes))
            self.runs.append(PassRun(step.name, 0.0, False, why or "nothing changed since it last ran", nodes=nodes))
            self._settled[step.name, step.function] = graph
            return graph
        return self._run(graph, step)

    def _is_settled(self, graph: Graph, step: PassStep) -> bool:
        return self._settled.get((step.name, step.function)) is graph

    def _run(self, graph: Graph, step: PassStep) -> Graph:
        trace, events = self.trace, len(self.trace.events)
        if self.sealed is not None:
            trace.sealed = self.sealed(graph)
        begin = self.clock()
        needed = ""
        try:
            result = step.function(graph, trace)
        except (SizeNeeded, Undecided) as size:
            result, needed = graph, str(size)
        elapsed_ms = (self.clock() - begin) * 1e3
        if self.sealed is not None:
            trace.sealed = frozenset()
        fresh = trace.events[events:]
        held = sum(event.reason == SEALED for event in fresh)
        changed = result is not graph and self.differ(graph, result)
        if result is not graph and self.check:
            _verified(step, result)
        if not changed:
            result = graph
            self._settled[step.name, step.function] = graph
        told = next((event.reason for event in fresh if event.kind == "form"), step.idle)
        why = "" if changed else needed or (f"{held} nodes are inside fused blocks" if held else told)
        did = Counter(event.what for event in fresh if event.applied and event.kind == "rewrite") if changed else {}
        nodes = (len(graph.nodes), len(result.nodes))
        self.runs.append(PassRun(step.name, elapsed_ms, changed, why, held, nodes, tuple(did.items())))
        trace.add(
            "pass",
            step.name,
            reason=f"{elapsed_ms:.2f} ms" + ("" if changed else f", {why or 'nothing to do'}"),
            before=float(len(graph.nodes)),
            after=float(len(result.nodes)),
            applied=changed,
        )
        return result


def _verified(step: PassStep, graph: Graph) -> None:
    try:
        verify(graph)
    except BrokenGraph as error:
        raise BrokenGraph(f"pass {step.name} broke the graph: {error}") from error
