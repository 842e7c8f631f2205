"""A Scan over a known number of steps, few enough, as its body once for each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fusewise.errors import InvalidModel
from fusewise.frontend.bodies import bodies_of, graph_of_body
from fusewise.ir.graph import Graph
from fusewise.ir.types import TensorType
from fusewise.ops.spec import Call
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, Value

__all__ = ["SCANS"]

MOST_STEPS, MOST_NODES = 64, 256
"""Steps, and nodes of all steps together, up to which a body is written out: more take longer to compile than they save."""


def _scan(g: Notation, call: Call, *operands: Value | None) -> tuple[Value, ...] | None:
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
    outer = {name: g.value(value) for name, value in zip(subgraph.captures, captured, strict=True)}
    rows: list[tuple[Value, ...]] = []
    for step in range(steps):
        places = [steps - 1 - step if back else step for back in backward]
        parts = [_part(g, x, axis, place) for x, axis, place in zip(sequences, axes, places, strict=True)]
        found = _inlined(g, body, dict(outer) | dict(zip(body.inputs, (*states, *parts), strict=True)))
        if found is None:
            return None
        states = list(found[: len(states)])
        rows.append(found[len(states) :])
    return (*states, *_stacked(g, call, rows))


def _each(call: Call, name: str, count: int) -> Sequence[int]:
    """A number for each, 0 where none is given."""
    found: Sequence[int] = call.attribute(name) or (0,) * count
    return found


def _part(g: Notation, x: Value, axis: int, place: int) -> Value:
    """The element of a sequence at a place, without its axis."""
    one = g.slice(x, axis, place, place + 1)
    return g.reshape(one, [n for d, n in enumerate(one.dims) if d != axis])


def _stacked(g: Notation, call: Call, rows: Sequence[tuple[Value, ...]]) -> list[Value]:
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


def _inlined(g: Notation, body: Graph, values: dict[str, Value]) -> tuple[Value, ...] | None:
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


SCANS: tuple[Decomposition, ...] = (row("Scan", _scan),)
