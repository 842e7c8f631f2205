"""A large graph searched in pieces: cut where few substitutions are lost, then searched again across the cuts.

Edges carry as much as there are substitutions that cover both their ends; a minimum cut between the first and the last third of
the nodes halves the graph, and so on until pieces are small (the flow-based split of Z. Jia et al., SysML 2019). Each piece is
searched by itself with its share of the budget, so that what is found in one place is not paid for by trying everything in
all others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fusewise.errors import UsageError
from fusewise.ir.graph import Graph, Node
from fusewise.records import record
from fusewise.rewrite.cost import Cost, WholeGraph, kernel_of
from fusewise.rewrite.engine import drafts_of
from fusewise.rewrite.rule import Rule
from fusewise.rewrite.search.found import Found, SearchLimits, SubstitutionStep, evenly
from fusewise.rewrite.search.frontier import unless_below_one
from fusewise.rewrite.search.promise import Promises
from fusewise.rewrite.search.relaxed import search

__all__ = ["Division", "Each", "SearchTask", "piece_of", "pieces", "replaced", "search_in_pieces"]

_DATA, _COVERED, _FUSED, _NEVER = 1, 8, 64, 1 << 28
_SHORTEST_BUDGET, _STEEPEST = 10, 6.0


def pieces(graph: Graph, rules: Sequence[Rule], largest: int) -> list[tuple[int, ...]]:
    """The nodes in pieces of at most `largest`, cut where fewest substitutions are; every piece reads only from earlier ones.

    `UsageError` when SciPy, whose maximum flow this uses, is not installed.
    """
    together = _together(graph, rules)
    waiting, done = [tuple(range(len(graph.nodes)))], []
    while waiting:
        piece = waiting.pop()
        halves = _halved(graph, piece, together) if len(piece) > largest else None
        if halves is None:
            done.append(piece)
        else:
            waiting.extend(reversed(halves))
    return done


def _together(graph: Graph, rules: Sequence[Rule]) -> dict[tuple[int, int], int]:
    """How much two nodes should stay together: substitutions that cover both, and fusion."""
    found: dict[tuple[int, int], int] = {}

    def tie(first: int, second: int, weight: int) -> None:
        key = min(first, second), max(first, second)
        found[key] = found.get(key, 0) + weight

    for draft in drafts_of(graph, rules, weigh=Promises()):
        covered = draft.match.nodes
        for first, second in itertools.pairwise(covered):
            tie(first, second, _COVERED)
    around = WholeGraph(graph)
    for i, node in enumerate(graph.nodes):
        into = kernel_of(node, around).into if node.reads else -1
        for value in node.reads:
            maker = graph.producer.get(value)
            if maker is not None:
                tie(maker, i, _FUSED if into >= 0 and node.inputs[into] == value else _DATA)
    return found


def _halved(
    graph: Graph, piece: tuple[int, ...], together: Mapping[tuple[int, int], int]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The piece in two by a minimum cut somewhere in its middle third; None when the cut fails."""
    try:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import maximum_flow
    except ImportError:
        raise UsageError("splitting a large graph needs SciPy: pip install 'fusewise[search]'") from None
    place = {node: k + 1 for k, node in enumerate(piece)}
    source, sink = 0, len(piece) + 1
    capacity: dict[tuple[int, int], int] = {}
    for (first, second), weight in together.items():
        if first in place and second in place:
            capacity[place[first], place[second]] = weight
            capacity[place[second], place[first]] = weight
    for node in piece:  # who reads lies on the later side, or with whom it reads from
        for value in graph.nodes[node].reads:
            maker = graph.producer.get(value)
            if maker in place:
                capacity[place[node], place[maker]] = _NEVER
    third = max(1, len(piece) // 3)
    capacity |= {(source, k + 1): _NEVER for k in range(third)}
    capacity |= {(k + 1, sink): _NEVER for k in range(len(piece) - third, len(piece))}
    ends = np.array(list(capacity), np.int32)
    values = np.array(list(capacity.values()), np.int32)
    network = csr_array((values, (ends[:, 0], ends[:, 1])), shape=(sink + 1, sink + 1))
    flow = maximum_flow(network, source, sink)
    rest = (network - flow.flow).tocsr()
    reached, stack = {source}, [source]
    while stack:
        k = stack.pop()
        row = slice(rest.indptr[k], rest.indptr[k + 1])
        for other, left in zip(rest.indices[row], rest.data[row], strict=True):
            if left > 0 and int(other) not in reached:
                reached.add(int(other))
                stack.append(int(other))
    early = tuple(node for node in piece if place[node] in reached)
    late = tuple(node for node in piece if place[node] not in reached)
    return (early, late) if early and late and sink not in reached else None


def piece_of(graph: Graph, nodes: Sequence[int]) -> Graph:
    """Some nodes of a graph, ascending, as a graph of their own. What others need of them are its outputs."""
    inside = set(nodes)
    members = [graph.nodes[i] for i in nodes]
    made = {x for node in members for x in node.writes}
    read = dict.fromkeys(x for node in members for x in node.reads if x not in made)
    outputs = [
        x
        for node in members
        for x in node.writes
        if x in graph.output_set or any(user not in inside for user in graph.users[x])
    ]
    return graph.replace(
        inputs=tuple(x for x in read if x not in graph.constants), outputs=tuple(outputs), nodes=tuple(members)
    ).pruned()


def replaced(graph: Graph, nodes: Sequence[int], piece: Graph) -> Graph:
    """The graph with a better `piece`, which has the same inputs and outputs, in the place of these nodes.

    The nodes must be convex. Values that are new in the piece get names that are new in the graph.
    """
    inside = set(nodes)
    before = piece_of(graph, nodes)
    names: dict[str, str] = {}
    taken = set(graph.types)
    for name in piece.types:
        if name not in before.types and name in taken:
            count = 1
            while f"{name}_{count}" in taken or f"{name}_{count}" in piece.types:
                count += 1
            names[name] = f"{name}_{count}"
        taken.add(names.get(name, name))
    new = [_renamed(node, names) for node in piece.nodes]
    earlier = [node for i, node in enumerate(graph.nodes) if i not in inside and i < max(inside)]
    later = [node for i, node in enumerate(graph.nodes) if i > max(inside)]
    needed = {x for node in new for x in node.reads}
    ordered = _around(earlier, new, needed)
    types = {**graph.types, **{names.get(x, x): kind for x, kind in piece.types.items()}}
    constants = {**graph.constants, **{names.get(x, x): constant for x, constant in piece.constants.items()}}
    return graph.replace(nodes=(*ordered, *later), types=types, constants=constants).pruned()


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    return replace(
        node,
        inputs=tuple(names.get(x, x) for x in node.inputs),
        outputs=tuple(names.get(x, x) for x in node.outputs),
        captured=tuple(names.get(x, x) for x in node.captured),
    )


def _around(others: Sequence[Node], new: Sequence[Node], needed: set[str]) -> list[Node]:
    """The new nodes after the others they need and before the others that need them; those stay in their order."""
    made = {x for node in new for x in node.writes}
    before, after = [], []
    for node in others:
        if any(x in made for x in node.reads):
            made.update(node.writes)
            after.append(node)
        else:
            before.append(node)
    return [*before, *new, *after]


@record(frozen=True)
class SearchTask:
    """A graph or a piece of one to search, with what it may cost on the way and how long it may take."""

    graph: Graph
    alpha: float = 1.05
    limits: SearchLimits = SearchLimits()


Each = Callable[[Iterable[SearchTask]], Iterable[Found]]
"""Searches tasks, on as many workers as it likes; gives what was found in the order of the tasks."""


@record(frozen=True)
class Division:
    """How a graph is searched in pieces: of at most so many nodes, the graph as a `whole` in the end, too, if told; `each` carries
    the searches out, one after another by default, and the result does not depend on it."""

    largest: int = 40
    whole: bool = False
    each: Each | None = None


def search_in_pieces(
    task: SearchTask,
    rules: Sequence[Rule],
    cost: Cost,
    division: Division | None = None,
    *,
    keep: int = 1,
    progress: Callable[[float], None] | None = None,
) -> Found:
    """Search the pieces of a graph, then windows of their size across the seams, those side by side that share no node.

    Each search has its share of the budget, at least 10 graphs, and may rise as far as `alpha` allows the whole graph to, but
    at most six times that part of its own cost; costs of steps are those of the whole graph as the pieces add up. With `whole`
    pieces and windows share half of the budget, and what is left goes to the graph as a whole in the end: that finds what no
    piece holds, such as products far apart that share a matrix. `keep` is as for `search`. Raises what `pieces` and `search`
    raise.
    """
    unless_below_one(task.alpha)
    division = Division() if division is None else division
    graph, limits, largest, whole = task.graph, task.limits, division.largest, division.whole

    def in_turn(tasks: Iterable[SearchTask]) -> Iterator[Found]:
        return (search(one.graph, rules, cost, alpha=one.alpha, limits=one.limits) for one in tasks)

    begin = limits.clock()
    parts = pieces(graph, rules, largest)
    if whole:
        share, told = max(1, limits.graphs // 4 // len(parts)), _part(progress, 0.0, 0.5)
    else:
        share, told = max(_SHORTEST_BUDGET, limits.graphs // 2 // len(parts)), _part(progress, 0.0, 1.0)
    run = _Pieces(replace(task, limits=replace(limits, graphs=share)), cost, division.each or in_turn, begin)
    run.improve([_named(graph, nodes) for nodes in parts], _part(told, 0.0, 0.5))
    seams = [_named(graph, nodes)[-1] for nodes in parts[:-1]]
    while seams and run.ended == "searched":
        seams, windows = run.windows(seams, largest)
        run.improve(windows, _part(told, 0.5, 1.0))
    if whole and run.ended == "searched":
        run.limits = replace(limits, graphs=max(_SHORTEST_BUDGET, limits.graphs - run.explored))
        run.spent = False  # what places left is looked at again
        run.improve([_named(run.graph, range(len(run.graph.nodes)))], _part(progress, 0.5, 1.0))
    return run.found(keep)


def _part(progress: Callable[[float], None] | None, begin: float, end: float) -> Callable[[float], None]:
    """Progress of a part of the work."""
    return lambda share: None if progress is None else progress(begin + share * (end - begin))


def _named(graph: Graph, nodes: Sequence[int]) -> tuple[str, ...]:
    return tuple(x for i in nodes for x in graph.nodes[i].writes)


class _Pieces:
    """The graph as it gets better, piece by piece."""

    def __init__(self, task: SearchTask, cost: Cost, each: Each, begin: float) -> None:
        self.start = self.graph = task.graph
        self.cost, self.alpha, self.limits, self.each = cost, task.alpha, task.limits, each
        self.begin = begin
        self.first = self.now = cost(task.graph)
        self.steps: list[SubstitutionStep] = []
        self.way: list[tuple[Graph, float, tuple[SubstitutionStep, ...]]] = []
        self.explored = self.duplicates = 0
        self.ended = "searched"
        self.spent = False  # has the budget of a place been used up?

    def windows(self, names: Sequence[str], size: int) -> tuple[list[str], list[tuple[str, ...]]]:
        """Around each name what its neighbours in the order of the graph write: no path leaves them and enters again.

        Windows that share a node with one before are left for later; the names of those come first.
        """
        taken: set[int] = set()
        left, found = [], []
        for name in names:
            centre = self.graph.producer.get(name)
            if centre is None:
                continue
            near = range(max(0, centre - size // 2), min(len(self.graph.nodes), centre + size // 2))
            if taken.isdisjoint(near):
                taken.update(near)
                found.append(_named(self.graph, near))
            else:
                left.append(name)
        return left, found

    def improve(self, places: Sequence[Sequence[str]], progress: Callable[[float], None]) -> None:
        """Search the nodes that write these values, each place by itself, and take what makes the whole graph better."""
        graph, now = self.graph, self.now
        waiting: list[Sequence[str]] = []

        def tasks() -> Iterator[SearchTask]:
            for values in places:
                nodes = sorted({i for x in values if (i := graph.producer.get(x)) is not None})
                left = None if self.limits.seconds is None else self.limits.seconds - (self.limits.clock() - self.begin)
                if left is not None and left <= 0:
                    self.ended = "seconds"
                    return
                piece = piece_of(graph, nodes)
                # as far up as in the whole graph, within reason
                share = self.cost(piece) / now if now else 1.0
                alpha = 1 + (self.alpha - 1) * min(_STEEPEST, 1 / share if share else 1.0)
                waiting.append(values)
                yield SearchTask(piece, alpha, replace(self.limits, seconds=left))

        try:
            for k, found in enumerate(self.each(tasks())):
                self._take(waiting[k], found)
                progress((k + 1) / len(places))
                if self.ended != "searched":
                    return
        except KeyboardInterrupt:
            self.ended = "interrupted"

    def _take(self, values: Sequence[str], found: Found) -> None:
        self.explored += found.explored
        self.duplicates += found.duplicates
        self.ended = found.ended if found.ended in ("interrupted", "seconds") else self.ended
        self.spent |= found.ended == "graphs"
        if not found.steps:
            return
        nodes = sorted({i for x in values if (i := self.graph.producer.get(x)) is not None})
        graph = replaced(self.graph, nodes, found.graph)
        after = self.cost(graph)
        if after >= self.now:
            return
        for step in found.steps:
            price = self.now + step.cost_after - found.cost_before
            before = self.steps[-1].cost_after if self.steps else self.first
            self.steps.append(replace(step, serial=len(self.steps) + 1, cost_before=before, cost_after=price))
        self.steps[-1] = replace(self.steps[-1], cost_after=after)
        self.graph, self.now = graph, after
        self.way.append((graph, after, tuple(self.steps)))

    def found(self, keep: int) -> Found:
        best = [self.way[-1 - k] for k in evenly(len(self.way), keep)]
        seconds = self.limits.clock() - self.begin
        start = (self.start, self.first, ())
        ended = "graphs" if self.spent and self.ended == "searched" else self.ended
        return Found((*best, start), self.first, self.explored, self.duplicates, seconds, ended)
