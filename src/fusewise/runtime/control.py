"""Control flow on the host: If, Loop, Scan and SequenceMap, whose bodies are made ready once and compiled where that pays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fusewise.frontend.bodies import bodies_of, graph_of_body
from fusewise.ir.graph import Constant, Graph, Node
from fusewise.ir.types import TensorType
from fusewise.ops.allowed import MOST_ROUNDS, check_held, check_rounds
from fusewise.ops.plain.row import Evaluator
from fusewise.records import record
from fusewise.runtime.nested import Nested
from fusewise.runtime.rounds import ROUNDS, loop_rounds, scan_rounds

__all__ = ["control_evaluator"]

MakeNested = Callable[[Graph], Nested]


@record(frozen=True, slots=True)
class _Body:
    """A body: `graph` has the values it reads from outside behind its own inputs, which lie at `captured` among the node's."""

    graph: Graph
    count: int
    nested: Nested
    captured: tuple[int, ...]
    make: MakeNested

    def run(self, own: Sequence[Any], outer: Sequence[Any]) -> list[Any]:
        return self.nested.run([*own, *(outer[place] for place in self.captured)])

    def of(self, rounds: Graph | None) -> _Body | None:
        """The same for several rounds as one graph."""
        return None if rounds is None else replace(self, graph=rounds, nested=self.make(rounds))


def control_evaluator(
    node: Node,
    opset: int,
    opsets: tuple[tuple[str, int], ...],
    constants: Mapping[str, Constant],
    make: MakeNested,
) -> Evaluator | None:
    """A node with bodies, ready to run; None for any other, and for a Scan over batches, which ended with opset 8.

    Of the values that bodies read from outside, `constants` are theirs, too.
    """
    rule = _RULES.get(node.op) if not node.domain else None
    if rule is None or (node.op == "Scan" and opset < _SCAN):
        return None
    bodies, start = {}, 0
    for name, subgraph, outer in bodies_of(node):
        inner = graph_of_body(subgraph, opset, opsets)
        known = {a: constants[b] for a, b in zip(subgraph.captures, outer, strict=True) if b in constants}
        open_ones = [(k, value) for k, value in enumerate(subgraph.captures) if value not in known]
        whole = inner.replace(
            inputs=(*inner.inputs, *(value for _, value in open_ones)), constants={**inner.constants, **known}
        )
        bodies[name] = _Body(whole, len(inner.inputs), make(whole), tuple(start + k for k, _ in open_ones), make)
        start += len(subgraph.captures)
    present = [place for place, name in enumerate(node.inputs) if name]
    run = rule(node, bodies)

    def evaluate(*operands: Any) -> list[Any]:
        given = dict(zip(present, operands, strict=False))
        found = run([given.get(place) for place in range(len(node.inputs))], operands[len(present) :])
        return [value if name else None for name, value in zip(node.outputs, found, strict=True)]

    return evaluate


_SCAN = 9

Run = Callable[[list[Any], Sequence[Any]], list[Any]]
"""Takes operands by place, and the captured values."""


def _if(node: Node, bodies: dict[str, _Body]) -> Run:
    def run(operands: list[Any], outer: Sequence[Any]) -> list[Any]:
        return bodies["then_branch" if bool(operands[0].reshape(-1)[0]) else "else_branch"].run((), outer)

    return run


def _loop(node: Node, bodies: dict[str, _Body]) -> Run:
    body = bodies["body"]
    carried = body.count - 2
    what = f"node {node.label!r} (Loop)"
    endless = _goes_on(body.graph)
    kinds = [body.graph.types.get(name) for name in body.graph.outputs[1 + carried :]]
    several = body.of(loop_rounds(body.graph, carried)) if endless else None

    def run(operands: list[Any], outer: Sequence[Any]) -> list[Any]:
        trips, condition, *values = operands
        values += [None] * (carried - len(values))
        going = np.array(True) if condition is None else np.asarray(condition).reshape(())
        limit = None if trips is None else int(trips.reshape(-1)[0])
        if (limit is None or limit > MOST_ROUNDS) and bool(going) and endless:
            check_rounds(what, MOST_ROUNDS + 1)
        scanned: list[list[Any]] = [[] for _ in kinds]
        count = gathered = 0
        size, steady = -1, False  # bytes of a round, and whether they stay the same: what grows is looked at every time
        while bool(going) and (limit is None or count < limit):
            together = several if steady and limit is not None and limit - count >= ROUNDS else None
            rounds = ROUNDS if together is not None else 1
            results = (together or body).run((np.array(count, np.int64), going, *values), outer)
            going, values = np.asarray(results[0]).reshape(()), results[1 : 1 + carried]
            for number, value in enumerate(results[1 + carried :]):
                scanned[number % len(kinds)].append(value)
            held, more = _nbytes(values), _nbytes(results[1 + carried :])
            size, steady = held + more // rounds, size == held + more // rounds
            count, gathered = count + rounds, gathered + more
            check_rounds(what, count)
            check_held(what, gathered + held)
        return [*values, *map(_stacked, scanned, kinds)]

    return run


def _nbytes(values: Iterable[Any]) -> int:
    """Of those that are arrays."""
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray))


def _scan(node: Node, bodies: dict[str, _Body]) -> Run:
    body, count = bodies["body"], node.attribute("num_scan_inputs")
    states = body.count - count
    what = f"node {node.label!r} (Scan)"
    kinds = [body.graph.types.get(name) for name in body.graph.outputs[states:]]
    axes, turned = (_each(node, f"scan_input_{word}", count) for word in ("axes", "directions"))
    several = body.of(scan_rounds(body.graph, states, count))
    axes_out, turned_out = (_each(node, f"scan_output_{word}", len(kinds)) for word in ("axes", "directions"))

    def run(operands: list[Any], outer: Sequence[Any]) -> list[Any]:
        carried = operands[:states]
        lines = [np.moveaxis(x, axis, 0) for x, axis in zip(operands[states:], axes, strict=True)]
        lines = [line[::-1] if back else line for line, back in zip(lines, turned, strict=True)]
        if len({len(line) for line in lines}) != 1:
            raise ValueError(f"Scan's inputs have {[len(line) for line in lines]} elements along their axes")
        check_rounds(what, len(lines[0]))
        scanned: list[list[Any]] = [[] for _ in kinds]
        step, length, gathered = 0, len(lines[0]), 0
        size, steady = -1, False
        while step < length:
            together = several if steady and length - step >= ROUNDS else None
            rounds = range(step, step + (ROUNDS if together is not None else 1))
            elements = (np.asarray(line[k]) for k in rounds for line in lines)
            results = (together or body).run((*carried, *elements), outer)
            carried = results[:states]
            for number, value in enumerate(results[states:]):
                scanned[number % len(kinds)].append(value)
            held, more = _nbytes(carried), _nbytes(results[states:])
            size, steady = held + more // len(rounds), size == held + more // len(rounds)
            step, gathered = rounds.stop, gathered + more
            check_held(what, gathered + held)
        joined = (
            np.moveaxis(_stacked(found[::-1] if back else found, kind), 0, axis)
            for found, kind, axis, back in zip(scanned, kinds, axes_out, turned_out, strict=True)
        )
        return [*carried, *joined]

    return run


def _sequence_map(node: Node, bodies: dict[str, _Body]) -> Run:
    """The first operand is a sequence; of the others those that are go along with it, and the rest are the same each time."""
    body = bodies["body"]

    def run(operands: list[Any], outer: Sequence[Any]) -> list[Any]:
        count = len(operands[0])
        if any(isinstance(value, list) and len(value) != count for value in operands):
            raise ValueError("SequenceMap's sequences differ in length")
        check_rounds(f"node {node.label!r} (SequenceMap)", count)
        found: list[list[Any]] = [[] for _ in node.outputs]
        for k in range(count):
            results = body.run([value[k] if isinstance(value, list) else value for value in operands], outer)
            for values, value in zip(found, results, strict=True):
                values.append(value)
        return list(found)

    return run


_RULES: dict[str, Callable[[Node, dict[str, _Body]], Run]] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceMap": _sequence_map,
}


def _each(node: Node, name: str, count: int) -> tuple[int, ...]:
    """An axis or direction for each of `count` values; 0 where the attribute is absent."""
    found = tuple(int(value) for value in node.attribute(name) or (0,) * count)
    if len(found) != count:
        raise ValueError(f"Scan has {len(found)} axes or directions for {count} values")
    return found


def _goes_on(body: Graph) -> bool:
    """Does the body of a Loop hand its condition on as it is, so that only the count can end it?"""
    name = body.outputs[0]
    maker = body.producer_of(name)
    while maker is not None and maker.op in ("Identity", "Cast"):
        name = maker.inputs[0]
        maker = body.producer_of(name)
    return maker is None and name == body.inputs[1]


def _stacked(values: list[np.ndarray], kind: Any) -> np.ndarray:
    """All rounds' values as one array; without any, an empty one of the declared type."""
    if values:
        return np.stack(values)
    if not isinstance(kind, TensorType):
        return np.empty(0, np.float32)
    dims = [dim if isinstance(dim, int) else 0 for dim in kind.shape or ()]
    return np.empty((0, *dims), kind.dtype.numpy)
