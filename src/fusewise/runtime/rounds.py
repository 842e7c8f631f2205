"""Several rounds of a body as one graph, so that what a call costs is paid once for all of them; and what is what in a body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fusewise.ir.graph import Constant, Graph, Node, attributes_of
from fusewise.records import record

__all__ = ["RoundPorts", "Rounds", "loop_rounds", "rounds_of", "scan_rounds", "unused_mark", "with_outputs_apart"]

_MOST_ROUNDS, _LEAST_ROUNDS = 32, 8

_MOST_NODES = 192
"""Of all rounds together."""


@record(frozen=True, slots=True)
class RoundPorts:
    """What the inputs and outputs of a body are, by number: `counter`, the input that has the number of the round, or -1; `states`,
    pairs of an input and the output that is the next round's; `elements`, inputs that are another part of an array each round;
    `gathered`, outputs that are wanted of all rounds; `condition`, a pair as a state's, of a bool that ends the rounds when it is
    false, None where nothing but their number does. An input of a pair is -1 where nobody reads it."""

    counter: int
    states: tuple[tuple[int, int], ...]
    elements: tuple[int, ...] = ()
    gathered: tuple[int, ...] = ()
    condition: tuple[int, int] | None = None


@record(frozen=True, slots=True)
class Rounds:
    """What `count` rounds have given: the states after the last one, what is gathered, [count, ...], and what the last one said
    about another: true where no condition is looked at."""

    states: list[np.ndarray]
    gathered: list[np.ndarray]
    count: int
    goes_on: bool = True


def with_outputs_apart(body: Graph) -> Graph:
    """The same where no value is two outputs, which would have one array: what is carried and what is gathered have their own."""
    mark, nodes, types, outputs = unused_mark(body), list(body.nodes), dict(body.types), list[str]()
    for name in body.outputs:
        own = f"{name}{mark}{len(outputs)}" if name in outputs else name
        if own != name:
            nodes.append(Node("Identity", (name,), (own,)))
            types |= {own: body.types[name]} if name in body.types else {}
        outputs.append(own)
    return body.replace(outputs=tuple(outputs), nodes=tuple(nodes), types=types)


def rounds_of(body: Graph) -> int:
    """How many rounds are run together; 1 where the body is too large to gain by it."""
    most = min(_MOST_ROUNDS, _MOST_NODES // max(1, len(body.nodes)))
    return most if most >= _LEAST_ROUNDS else 1


def loop_rounds(body: Graph, carried: int) -> Graph:
    """As many rounds of a Loop's body, whose condition stays as it is.

    Inputs are the body's: the number of the first round, the condition, what is carried, what comes from outside. Outputs are the
    condition, what is carried, and what is gathered of all rounds, along a new first axis.
    """
    count, condition, *rest = body.inputs
    mark = unused_mark(body)
    states = rest[:carried]
    nodes: list[Node] = []
    constants = dict(body.constants)
    gathered: list[list[str]] = []
    for k in range(rounds_of(body)):
        number = count
        if k and count in _read(body):
            number, step = f"{count}{mark}{k}", f"{count}{mark}+{k}"
            constants[step] = Constant(np.array(k, np.int64))
            nodes.append(Node("Add", (count, step), (number,)))
        given = [number, condition, *states, *rest[carried:]]
        found = _round(body, f"{mark}{k}", given, nodes)
        states, last = found[1 : 1 + carried], found[0]
        gathered.append(found[1 + carried :])
    results = _together(gathered, mark, nodes, constants)
    return body.replace(outputs=(last, *states, *results), nodes=tuple(nodes), constants=constants)


def scan_rounds(body: Graph, states: int, elements: int) -> Graph:
    """As many rounds of a Scan's body.

    Inputs are the states, the elements of all rounds that are scanned, along a new first axis, and what comes from outside;
    outputs the states, and what is gathered of all rounds, likewise.
    """
    values, lines, outer = (
        list(body.inputs[:states]),
        body.inputs[states : states + elements],
        body.inputs[states + elements :],
    )
    mark = unused_mark(body)
    nodes: list[Node] = []
    constants = dict(body.constants)
    types = {name: kind for name, kind in body.types.items() if name not in lines}
    gathered: list[list[str]] = []
    for k in range(rounds_of(body)):
        place = f"{mark}{k}"
        constants[place] = Constant(np.array(k, np.int64))
        own = [f"{name}{mark}{k}" for name in lines]
        for line, name in zip(lines, own, strict=True):
            nodes.append(Node("Gather", (line, place), (name,), attributes_of(axis=0)))
        types |= {new: body.types[old] for old, new in zip(lines, own, strict=True) if old in body.types}
        found = _round(body, f"{mark}{k}", [*values, *own, *outer], nodes)
        values = found[:states]
        gathered.append(found[states:])
    results = _together(gathered, mark, nodes, constants)
    return body.replace(outputs=(*values, *results), nodes=tuple(nodes), types=types, constants=constants)


def _together(
    rounds: Sequence[Sequence[str]], mark: str, nodes: list[Node], constants: dict[str, Constant]
) -> list[str]:
    """Add the nodes that put the values of all rounds behind each other; the values that these are."""
    first = f"{mark}first"
    constants[first] = Constant(np.zeros(1, np.int64))
    found = []
    for number, values in enumerate(zip(*rounds, strict=True)):
        parts = tuple(f"{mark}{number}, {k}" for k in range(len(values)))
        nodes += [Node("Unsqueeze", (value, first), (part,)) for value, part in zip(values, parts, strict=True)]
        nodes.append(Node("Concat", parts, (f"{mark}all {number}",), attributes_of(axis=0)))
        found.append(f"{mark}all {number}")
    return found


def _read(body: Graph) -> set[str]:
    return {name for node in body.nodes for name in node.reads} | set(body.outputs)


def unused_mark(body: Graph) -> str:
    """What no value's name has in it."""
    names = {*body.inputs, *body.constants, *_read(body), *(name for node in body.nodes for name in node.writes)}
    mark = "@"
    while any(mark in name for name in names):
        mark += "@"
    return mark


def _round(body: Graph, end: str, given: Sequence[str], nodes: list[Node]) -> list[str]:
    """Add the nodes of a round, whose inputs are the values `given`; the values that are its outputs. Names end with `end`."""
    names = dict(zip(body.inputs, given, strict=True))
    for node in body.nodes:
        names.update({value: f"{value}{end}" for value in node.writes})
        nodes.append(
            replace(
                node,
                name=node.label,
                inputs=tuple(names.get(value, value) for value in node.inputs),
                outputs=tuple(names.get(value, value) for value in node.outputs),
                captured=tuple(names.get(value, value) for value in node.captured),
            )
        )
    return [names.get(value, value) for value in body.outputs]
