"""Bodies written out where nothing about them is open: of a Scan or a Loop once for each of a known number of steps, of an If both
branches, where they are small and what is not wanted can be left aside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fusewise.errors import InvalidModel
from fusewise.frontend.bodies import bodies_of, goes_on, graph_of_body
from fusewise.ir.deciding import hint
from fusewise.ir.graph import Graph, Node, Subgraph
from fusewise.ir.types import TensorType
from fusewise.ops.positions import holds_positions
from fusewise.ops.spec import Call
from fusewise.ops.table import spec_of
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue, call_of

__all__ = ["BODIES"]

MOST_STEPS, MOST_NODES = 128, 256
"""Steps, and nodes of all steps together, up to which a body is written out: more take longer to compile than they save."""

MOST_BRANCH, MOST_CHOSEN = 32, 1 << 14
"""Nodes of a branch of an If, and operations and elements of results of both together, up to which both are run: they take less
than choosing does."""


def _scan(g: Notation, call: Call, *operands: TensorValue | None) -> tuple[TensorValue, ...] | None:
    """States go from step to step; a step reads its elements of the other operands, and adds one to each further result."""
    ((_, subgraph, captured),) = bodies_of(call.node)
    body = graph_of_body(subgraph, g.edit.opset, g.edit.opsets)
    given = [x for x in operands if x is not None]
    count = call.attribute("num_scan_inputs")
    states, sequences = given[: len(given) - count], given[len(given) - count :]
    if not count or len(given) < len(operands) or any(node.captured for node in body.nodes):
        return None
    axes = [axis % x.rank for axis, x in zip(_each(call, "scan_input_axes", count), sequences, strict=True)]
    steps = sequences[0].dims[axes[0]]
    if not 0 < steps <= MOST_STEPS or steps * len(body.nodes) > MOST_NODES:
        return None
    backward = _each(call, "scan_input_directions", count)
    outer = _outer(g, subgraph, captured)
    rows: list[tuple[TensorValue, ...]] = []
    for step in range(steps):
        places = [steps - 1 - step if back else step for back in backward]
        parts = [_part(g, x, axis, place) for x, axis, place in zip(sequences, axes, places, strict=True)]
        found = _inlined(g, body, dict(outer) | dict(zip(body.inputs, (*states, *parts), strict=True)))
        if found is None:
            return None
        states = list(found[: len(states)])
        rows.append(found[len(states) :])
    return (*_different(g, states), *_stacked(g, call, rows))


def _loop(g: Notation, call: Call, *operands: TensorValue | None) -> tuple[TensorValue, ...] | None:
    """A number of rounds that is known, which nothing in the body can end sooner."""
    ((_, subgraph, captured),) = bodies_of(call.node)
    body = graph_of_body(subgraph, g.edit.opset, g.edit.opsets)
    rounds, starts = call.constant(0), not call.has(1) or call.constant(1)
    if rounds is None or rounds.size != 1 or not np.any(starts) or not goes_on(body):
        return None
    steps, states = int(rounds.reshape(-1)[0]), [x for x in operands[2:] if x is not None]
    if not 0 < steps <= MOST_STEPS or steps * len(body.nodes) > MOST_NODES or any(node.captured for node in body.nodes):
        return None
    if len(states) + 2 != len(body.inputs):
        return None
    outer, going = _outer(g, subgraph, captured), g.constant(np.array(True))
    rows: list[tuple[TensorValue, ...]] = []
    for step in range(steps):
        given = (g.constant(np.array(step, np.int64)), going, *states)
        found = _inlined(g, body, dict(outer) | dict(zip(body.inputs, given, strict=True)))
        if found is None:
            return None
        states = list(found[1 : 1 + len(states)])
        rows.append(found[1 + len(states) :])
    return (*_different(g, states), *_stacked(g, call, rows))


def _if(g: Notation, call: Call, condition: TensorValue) -> tuple[TensorValue, ...] | None:
    """Both branches, and of each result the one that is wanted. What may find fault with its data is in neither."""
    if condition.size != 1:
        return None
    branches = {}
    for name, subgraph, captured in bodies_of(call.node):
        body = graph_of_body(subgraph, g.edit.opset, g.edit.opsets)
        if len(body.nodes) > MOST_BRANCH or any(node.captured or holds_positions(node) for node in body.nodes):
            return None
        branches[name] = _inlined(g, body, _outer(g, subgraph, captured))
    then, other = branches["then_branch"], branches["else_branch"]
    if then is None or other is None or any(a.kind != b.kind for a, b in zip(then, other, strict=True)):
        return None
    costs = [_cost(g, node) for node in g.nodes]
    if None in costs or sum(hint(cost or 0) for cost in costs) > MOST_CHOSEN:
        return None
    wanted = g.reshape(condition, ())
    return tuple(g.Where(wanted, a, b) for a, b in zip(then, other, strict=True))


def _cost(g: Notation, node: Node) -> int | None:
    """Operations and elements of the results; None for what code has no definition for."""
    spec, call = spec_of(node.op, node.domain), call_of(g.edit, node)
    if spec is None or (spec.scalar is None and spec.define is None) or not call.is_static or call.without_arithmetic:
        return None
    return spec.flops(call) + sum(kind.size for kind in call.outputs if isinstance(kind, TensorType))


def _outer(g: Notation, subgraph: Subgraph, captured: Sequence[str]) -> dict[str, TensorValue]:
    """What a body reads from outside, by the names that it has for it."""
    return {name: g.value(value) for name, value in zip(subgraph.captures, captured, strict=True)}


def _different(g: Notation, values: Sequence[TensorValue]) -> list[TensorValue]:
    """The values, each result one of its own."""
    return [g.Identity(x) if x in values[:k] else x for k, x in enumerate(values)]


def _each(call: Call, name: str, count: int) -> Sequence[int]:
    """A number for each, 0 where none is given."""
    found: Sequence[int] = call.attribute(name) or (0,) * count
    return found


def _part(g: Notation, x: TensorValue, axis: int, place: int) -> TensorValue:
    """The element of a sequence at a place, without its axis."""
    one = g.slice(x, axis, place, place + 1)
    return g.reshape(one, [n for d, n in enumerate(one.dims) if d != axis])


def _stacked(g: Notation, call: Call, rows: Sequence[tuple[TensorValue, ...]]) -> list[TensorValue]:
    """What the steps give, side by side along a new axis."""
    columns = list(zip(*rows, strict=True))
    axes = _each(call, "scan_output_axes", len(columns))
    backward = _each(call, "scan_output_directions", len(columns))
    found = []
    for parts, axis, back in zip(columns, axes, backward, strict=True):
        place = axis % (parts[0].rank + 1)
        wide = [g.reshape(x, [*x.dims[:place], 1, *x.dims[place:]]) for x in (parts[::-1] if back else parts)]
        found.append(wide[0] if len(wide) == 1 else g.Concat(*wide, axis=place))
    return found


def _inlined(g: Notation, body: Graph, values: dict[str, TensorValue]) -> tuple[TensorValue, ...] | None:
    """The results of a body for its inputs and what it captures; None where a size is not known."""
    values |= {name: g.constant(constant.array) for name, constant in body.constants.items()}
    for node in body.nodes:
        inner = replace(node, inputs=tuple(values[name].name if name else "" for name in node.inputs))
        try:
            kinds = g.edit.inferred(inner)
        except InvalidModel:
            return None
        names = []
        for name in node.outputs:
            kind = kinds.get(name)
            if name and not (isinstance(kind, TensorType) and kind.is_static):
                return None
            names.append(g.edit.value(f"{g.stem}/{name}", kinds[name]) if name else "")
            if name:
                values[name] = g.value(names[-1])
        g.nodes.append(replace(inner, outputs=tuple(names), name=names[0], origin=()))
    return tuple(values[name] for name in body.outputs)


BODIES: tuple[Decomposition, ...] = (row("If", _if), row("Loop", _loop), row("Scan", _scan))
