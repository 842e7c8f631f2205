"""One graph out of classes of equal values: nodes picked by an integer program (Y. Yang et al., MLSys 2021, section 5.1).

Every node is picked or not; every value that is wanted, by the graph or by a node that is picked, has a node that makes it; and
values lie on levels so that none is made of itself. A node that is read twice is paid once, which picking the cheapest tree
would miss. Prices see fusion as far as classes tell: an elementwise operator is taken in where a kernel could make its
operand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fusewise.errors import UsageError
from fusewise.ir.graph import Attribute, Constant, Graph, Node
from fusewise.ir.types import ValueType
from fusewise.rewrite.cost import Cost

__all__ = ["Choice", "extracted"]

_SECONDS = 20.0


@dataclass(eq=False)
class Choice:
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


@dataclass(frozen=True)
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
    choices: Sequence[Choice],
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


def _usable(choices: Sequence[Choice], leaves: set[str]) -> list[Choice]:
    """The nodes whose operands can all be made, and that make something which is not given anyway."""
    made = set(leaves)
    usable: list[Choice] = []
    waiting = [choice for choice in choices if not leaves.issuperset(choice.results.values())]
    while True:
        ready = [choice for choice in waiting if all(x in made for x in choice.operands if x)]
        if not ready:
            return usable
        usable.extend(ready)
        made.update(x for choice in ready for x in choice.results.values())
        waiting = [choice for choice in waiting if choice not in set(ready)]


def _picked(choices: Sequence[Choice], prices: Sequence[float], wanted: set[str], leaves: set[str]) -> list[int] | None:
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


def _knots(choices: Sequence[Choice], place: Mapping[str, int]) -> dict[str, int]:
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
    choices: Sequence[Choice],
    outputs: Mapping[str, str],
    given: Mapping[str, str],
    types: Mapping[str, ValueType],
    constants: Mapping[str, Constant],
) -> Graph | None:
    """The nodes that the outputs need, in order, under names that the first graph gave where it gave any."""
    maker = {value: choice for choice in choices for value in choice.results.values()}
    names = dict(given)
    taken = {*graph.inputs, *graph.outputs, *names.values()}
    for output, value in outputs.items():
        if value not in names:
            names[value] = output
    nodes: list[Node] = []
    done: set[int] = set()
    kinds: dict[str, ValueType] = {}

    def called(value: str) -> str:
        if value and value not in names:
            name = value
            while name in taken:
                name += "_"
            names[value] = name
            taken.add(name)
        if value:
            kinds[names[value]] = types[value]
        return names.get(value, "")

    def written(choice: Choice, outputs: tuple[str, ...]) -> tuple[str, ...]:
        """What a node's results are called; a class that another node makes too, or this one twice, is made there."""
        found = []
        for k, value in enumerate(outputs):
            name = called(value)
            if maker.get(value) is not choice or value in outputs[:k] or value in given or value in constants:
                while name in taken:
                    name += "_"
                taken.add(name)
                kinds[name] = types[value]
            found.append(name)
        return tuple(found)

    waiting = [(value, False) for value in reversed(list(outputs.values()))]
    while waiting:
        value, ready = waiting.pop()
        choice = maker.get(value)
        if choice is None or id(choice) in done or value in given or value in constants:
            continue
        if not ready:
            waiting.append((value, True))
            waiting.extend((x, False) for x in choice.operands if x)
            continue
        done.add(id(choice))
        node = choice.node()
        inputs, results = tuple(map(called, node.inputs)), written(choice, node.outputs)
        nodes.append(Node(node.op, inputs, results, node.attributes, name=results[0]))
    for output, value in outputs.items():
        if called(value) != output:
            nodes.append(Node("Identity", (called(value),), (output,), name=output))
            kinds[output] = types[value]
    kept = {names[value]: constant for value, constant in constants.items() if names.get(value) in kinds}
    for name in graph.inputs:
        kinds[name] = graph.types[name]
    return graph.replace(nodes=tuple(nodes), types=kinds, constants=kept).pruned()
