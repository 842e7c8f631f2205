"""Several rounds of a body as one graph, so that what a call costs is paid once for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fusewise.ir.graph import Constant, Graph, Node

__all__ = ["ROUNDS", "loop_rounds", "scan_rounds"]

ROUNDS = 8
"""How many, of a body that is small enough to gain by it."""

_MOST_NODES = 24


def loop_rounds(body: Graph, carried: int) -> Graph | None:
    """`ROUNDS` rounds of a Loop's body, whose condition stays as it is; None where the body is too large.

    Inputs are the body's: the number of the first round, the condition, what is carried, what comes from outside. Outputs are the
    condition, what is carried, and then round by round what is gathered.
    """
    if len(body.nodes) > _MOST_NODES:
        return None
    count, condition, *rest = body.inputs
    states = rest[:carried]
    nodes: list[Node] = []
    constants = dict(body.constants)
    gathered: list[str] = []
    for k in range(ROUNDS):
        number = count
        if k and count in _read(body):
            number, step = f"{count}@{k}", f"{count}@+{k}"
            constants[step] = Constant(np.array(k, np.int64))
            nodes.append(Node("Add", (count, step), (number,)))
        given = [number, condition, *states, *rest[carried:]]
        found = _round(body, k, given, nodes)
        states, last = found[1 : 1 + carried], found[0]
        gathered += found[1 + carried :]
    return body.replace(outputs=(last, *states, *gathered), nodes=tuple(nodes), constants=constants)


def scan_rounds(body: Graph, states: int, elements: int) -> Graph | None:
    """`ROUNDS` rounds of a Scan's body; None where the body is too large.

    Inputs are the states, round by round the elements that are scanned, and what comes from outside; outputs the states, and then
    round by round what is gathered.
    """
    if len(body.nodes) > _MOST_NODES:
        return None
    values, outer = list(body.inputs[:states]), body.inputs[states + elements :]
    nodes: list[Node] = []
    scanned: list[str] = []
    gathered: list[str] = []
    types = dict(body.types)
    for k in range(ROUNDS):
        own = [f"{name}@{k}" for name in body.inputs[states : states + elements]]
        types |= {new: types[old] for new, old in zip(own, body.inputs[states:], strict=False) if old in types}
        scanned += own
        found = _round(body, k, [*values, *own, *outer], nodes)
        values = found[:states]
        gathered += found[states:]
    return body.replace(
        inputs=(*body.inputs[:states], *scanned, *outer),
        outputs=(*values, *gathered),
        nodes=tuple(nodes),
        types=types,
    )


def _read(body: Graph) -> set[str]:
    return {name for node in body.nodes for name in node.reads} | set(body.outputs)


def _round(body: Graph, k: int, given: Sequence[str], nodes: list[Node]) -> list[str]:
    """Add the nodes of round `k`, whose inputs are the values `given`; the values that are its outputs."""
    names = dict(zip(body.inputs, given, strict=True))
    for node in body.nodes:
        names.update({value: f"{value}@{k}" for value in node.writes})
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
