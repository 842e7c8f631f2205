"""One graph out of classes of equal values: nodes picked by an integer program (Y. Yang et al., MLSys 2021, section 5.1).

Every node is picked or not; every value that is wanted, by the graph or by a node that is picked, has a node that makes it; and
values lie on levels so that none is made of itself. A node that is read twice is paid once, which picking the cheapest tree
would miss. Prices see fusion as far as classes tell: an elementwise operator is taken in where a kernel could make its
operand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

import numpy as np

from fusewise.errors import UsageError
from fusewise.ir.graph import Attribute, Constant, Graph, Node
from fusewise.ir.types import ValueType
from fusewise.records import record
from fusewise.rewrite.cost import Cost

__all__ = ["NodeCandidate", "extracted"]

_SECONDS = 20.0


@record(eq=False)
class NodeCandidate:
    """A node that may be picked: its operands are classes, `results` the class of each of its outputs."""

    op: str
    operands: tuple[str, ...]
    attributes: tuple[tuple[str, Attribute], ...]
    results: dict[int, str]

    def node(self) -> Node:
        outputs = tuple(self.results.get(k, "") for k in range(max(self.results) + 1))
        inputs = self.operands
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        return Node(self.op, inputs, outputs, self.attributes)


@record(frozen=True)
class _Surroundings:
    """What prices may know of a class: its type, whether it is constant, and a node that makes it."""

    types: Mapping[str, ValueType]
    constants: Mapping[str, Constant]
    makers: Mapping[str, Node]

    def maker(self, value: str) -> Node | None:
        return self.makers.get(value)

    def readers(self, value: str) -> int:
        return 1

    def constant(self, value: str) -> Constant | None:
        return self.constants.get(value)


def extracted(
    graph: Graph,
    choices: Sequence[NodeCandidate],
    outputs: Mapping[str, str],
    given: Mapping[str, str],
    types: Mapping[str, ValueType],
    constants: Mapping[str, Constant],
    cost: Cost,
) -> Graph | None:
    """The cheapest graph with these outputs, each a class; None when the program is not solved in time.

    `given` says what the classes of inputs and of the first graph's constants were called. `UsageError` without SciPy.
    """
    leaves = {*given, *constants}
    usable = _usable(choices, leaves)
    makers: dict[str, Node] = {}
    for choice in usable:
        node = choice.node()
        for value in choice.results.values():
            makers.setdefault(value, node)
    around = _Surroundings(types, constants, makers)
    prices = [cost.of(choice.node(), around) for choice in usable]
    picked = _picked(usable, prices, set(outputs.values()) - leaves, leaves)
    return None if picked is None else _built(graph, [usable[k] for k in picked], outputs, given, types, constants)


def _usable(choices: Sequence[NodeCandidate], leaves: set[str]) -> list[NodeCandidate]:
    """The nodes whose operands can all be made, and that make something which is not given anyway."""
    made = set(leaves)
    usable: list[NodeCandidate] = []
    waiting = [choice for choice in choices if not leaves.issuperset(choice.results.values())]
    while True:
        ready = [choice for choice in waiting if all(x in made for x in choice.operands if x)]
        if not ready:
            return usable
        usable.extend(ready)
        made.update(x for choice in ready for x in choice.results.values())
        waiting = [choice for choice in waiting if choice not in set(ready)]


def _picked(
    choices: Sequence[NodeCandidate], prices: Sequence[float], wanted: set[str], leaves: set[str]
) -> list[int] | None:
    """The numbers of the nodes that make what is wanted at the least price together."""
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import coo_array
    except ImportError:
        raise UsageError("--search saturate needs SciPy: pip install 'fusewise[search]'") from None
    classes = sorted({x for choice in choices for x in choice.results.values()} - leaves)
    place = {name: len(choices) + k for k, name in enumerate(classes)}
    serving: dict[str, list[int]] = {}
    for k, choice in enumerate(choices):
        for value in set(choice.results.values()):
            serving.setdefault(value, []).append(k)
    rows: list[dict[int, float]] = []
    low: list[float] = []
    for name in wanted:
        rows.append(dict.fromkeys(serving[name], 1.0))
        low.append(1.0)
    step = 1.0 / (len(classes) + 1)
    knot = _knots(choices, {name: k for k, name in enumerate(classes)})
    for k, choice in enumerate(choices):
        for operand in {x for x in choice.operands if x} - leaves:
            row = dict.fromkeys(serving[operand], 1.0)
            row[k] = row.get(k, 0.0) - 1.0
            rows.append(row)  # who is picked has operands
            low.append(0.0)
            for value in set(choice.results.values()) - leaves:
                if value == operand:
                    rows.append({k: -1.0})
                    low.append(0.0)
                elif knot[value] == knot[operand]:  # level(value) >= level(operand) + step, if picked
                    rows.append({place[value]: 1.0, place[operand]: -1.0, k: -(1.0 + step)})
                    low.append(-1.0)
    entries = [(r, c, v) for r, row in enumerate(rows) for c, v in row.items()]
    shape = (len(rows), len(choices) + len(classes))
    matrix = coo_array(
        ([v for _, _, v in entries], ([r for r, _, _ in entries], [c for _, c, _ in entries])), shape=shape
    )
    objective = np.concatenate([np.asarray(prices) + max(prices, default=1.0) * 1e-9, np.zeros(len(classes))])
    whole = np.concatenate([np.ones(len(choices)), np.zeros(len(classes))])
    found = milp(
        objective,
        constraints=LinearConstraint(matrix.tocsr(), np.array(low), np.full(len(low), np.inf)),
        integrality=whole,
        bounds=Bounds(0.0, 1.0),
        options={"time_limit": _SECONDS, "mip_rel_gap": 1e-4},
    )
    return None if found.x is None else [k for k in range(len(choices)) if found.x[k] > 0.5]


def _knots(choices: Sequence[NodeCandidate], place: Mapping[str, int]) -> dict[str, int]:
    """Classes by the cycle they may be on: levels are only needed where a value could be made of itself."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = {
        (place[operand], place[value])
        for choice in choices
        for operand in choice.operands
        for value in choice.results.values()
        if operand in place and value in place
    }
    ends = np.array(sorted(edges), dtype=np.int64).reshape(-1, 2)
    network = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(len(place), len(place)))
    _, labels = connected_components(network.tocsr(), directed=True, connection="strong")
    return {name: int(labels[k]) for name, k in place.items()}


def _built(
    graph: Graph,
    choices: Sequence[NodeCandidate],
    outputs: Mapping[str, str],
    given: Mapping[str, str],
    types: Mapping[str, ValueType],
    constants: Mapping[str, Constant],
) -> Graph:
    """The nodes that the outputs need, in order, under names that the first graph gave where it gave any."""
    leaves = {*given, *constants}
    maker = {value: choice for choice in choices for value in choice.results.values() if value not in leaves}
    names = _Names(dict(given), {*graph.inputs, *graph.outputs, *given.values()}, types)
    for output, value in outputs.items():
        names.known.setdefault(value, output)
    nodes: list[Node] = []
    for choice in _ordered(maker, outputs.values()):
        node = choice.node()
        inputs = tuple(names.of(x) if x else "" for x in node.inputs)
        results = tuple(
            names.of(x) if maker.get(x) is choice and x not in node.outputs[:k] else names.unused(x)
            for k, x in enumerate(node.outputs)
        )
        nodes.append(Node(node.op, inputs, results, node.attributes, name=results[0]))
    for output, value in outputs.items():
        if names.of(value) != output:
            nodes.append(Node("Identity", (names.of(value),), (output,), name=output))
            names.kinds[output] = types[value]
    kept = {names.of(value): constant for value, constant in constants.items() if value in names.known}
    kinds = {**names.kinds, **{name: graph.types[name] for name in graph.inputs}}
    return graph.replace(nodes=tuple(nodes), types=kinds, constants=kept).pruned()


def _ordered(maker: Mapping[str, NodeCandidate], outputs: Iterable[str]) -> list[NodeCandidate]:
    """The nodes that are needed, each after those that make its operands."""
    found: list[NodeCandidate] = []
    done: set[NodeCandidate] = set()
    waiting = [(value, False) for value in outputs]
    while waiting:
        value, ready = waiting.pop()
        choice = maker.get(value)
        if choice is None or choice in done:
            continue
        if ready:
            done.add(choice)
            found.append(choice)
        else:
            waiting.append((value, True))
            waiting.extend((x, False) for x in choice.operands if x)
    return found


@record
class _Names:
    """What classes are called in the graph; every name has a type and is given once."""

    known: dict[str, str]
    taken: set[str]
    types: Mapping[str, ValueType]
    kinds: dict[str, ValueType] = field(default_factory=dict)

    def of(self, value: str) -> str:
        if value not in self.known:
            self.known[value] = self.unused(value)
        self.kinds[self.known[value]] = self.types[value]
        return self.known[value]

    def unused(self, value: str) -> str:
        """A name of its own; for a result that is made elsewhere too, or not needed."""
        name = value or "unused"
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        if value:
            self.kinds[name] = self.types[value]
        return name
