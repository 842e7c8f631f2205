"""Control flow on the host: If, Loop, Scan and SequenceMap, whose bodies are made ready once and compiled where that pays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fusewise.frontend.bodies import bodies_of, goes_on, graph_of_body
from fusewise.ir.graph import Constant, Graph, Node
from fusewise.ir.types import TensorType
from fusewise.ops.allowed import MOST_ROUNDS, check_held, check_rounds
from fusewise.ops.plain.row import Evaluator
from fusewise.records import record
from fusewise.runtime.nested import Nested
from fusewise.runtime.rounds import RoundPorts, loop_rounds, rounds_of, scan_rounds

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
        return self.nested.run([*own, *[outer[place] for place in self.captured]] if self.captured else own)

    def run_rounds(
        self, own: Sequence[Any], outer: Sequence[Any], ports: RoundPorts, lines: Sequence[np.ndarray], count: int
    ) -> tuple[list[np.ndarray], list[np.ndarray], int] | None:
        """Some of `count` rounds in one call, see `Nested.run_rounds`."""
        values = [*own, *[outer[place] for place in self.captured]]
        return self.nested.run_rounds(values, ports, lines, count) if count > 1 else None

    def of(self, rounds: Graph) -> _Body:
        """The same for several rounds as one graph."""
        return replace(self, graph=rounds, nested=self.make(rounds))


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
    endless = goes_on(body.graph)
    kinds = [body.graph.types.get(name) for name in body.graph.outputs[1 + carried :]]
    most = rounds_of(body.graph) if endless else 1
    several = body.of(loop_rounds(body.graph, carried)) if most > 1 else None
    states = tuple((2 + k, 1 + k) for k in range(carried))
    ports = RoundPorts(0, states, (), tuple(range(1 + carried, len(body.graph.outputs))))

    def run(operands: list[Any], outer: Sequence[Any]) -> list[Any]:
        trips, condition, *values = operands
        values += [None] * (carried - len(values))
        going = np.array(True) if condition is None else np.asarray(condition).reshape(())
        limit = None if trips is None else int(trips.reshape(-1)[0])
        if (limit is None or limit > MOST_ROUNDS) and bool(going) and endless:
            check_rounds(what, MOST_ROUNDS + 1)
        scanned: list[list[Any]] = [[] for _ in kinds]
        count = gathered = held = each = 0
        size, steady = -1, False  # bytes of a round, and whether they stay the same: what grows is looked at every time
        while bool(going) and (limit is None or count < limit):
            if endless and steady and limit is not None:
                check_held(what, gathered + held + each * (limit - count))
                own = np.array(count, np.int64), going, *values
                found = body.run_rounds(own, outer, ports, (), limit - count)
                if found is not None:
                    values, parts, rounds = found
                    _gather(scanned, parts, False)
                    count, gathered = count + rounds, gathered + _nbytes(parts)
                    check_rounds(what, count)
                    continue
            together = several if steady and limit is not None and limit - count >= most else None
            rounds = 1 if together is None else most
            results = (together or body).run((np.array(count, np.int64), going, *values), outer)
            going, values = np.asarray(results[0]).reshape(()), results[1 : 1 + carried]
            _gather(scanned, results[1 + carried :], together is None)
            held, more = _nbytes(values), _nbytes(results[1 + carried :])
            each = more // rounds
            size, steady = held + each, size == held + each
            count, gathered = count + rounds, gathered + more
            check_rounds(what, count)
            check_held(what, gathered + held)
        return [*values, *map(_joined, scanned, kinds)]

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
    most = rounds_of(body.graph)
    several = body.of(scan_rounds(body.graph, states, count)) if most > 1 else None
    pairs, elements = tuple((k, k) for k in range(states)), tuple(range(states, states + count))
    ports = RoundPorts(-1, pairs, elements, tuple(range(states, len(body.graph.outputs))))
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
        held = each = 0
        size, steady = -1, False
        while step < length:
            if steady:
                check_held(what, gathered + held + each * (length - step))
                rest = [np.require(line[step:], requirements=("C", "ALIGNED")) for line in lines]
                own = *carried, *(np.asarray(line[0]) for line in rest)
                given = body.run_rounds(own, outer, ports, rest, length - step)
                if given is not None:
                    carried, parts, rounds = given
                    _gather(scanned, parts, False)
                    step, gathered = step + rounds, gathered + _nbytes(parts)
                    continue
            together = several if steady and length - step >= most else None
            rounds = 1 if together is None else most
            elements = (np.asarray(line[step]) if together is None else line[step : step + rounds] for line in lines)
            results = (together or body).run((*carried, *elements), outer)
            carried = results[:states]
            _gather(scanned, results[states:], together is None)
            held, more = _nbytes(carried), _nbytes(results[states:])
            each = more // rounds
            size, steady = held + each, size == held + each
            step, gathered = step + rounds, gathered + more
            check_held(what, gathered + held)
        found = (
            _joined(parts, kind)[:: -1 if back else 1]
            for parts, kind, back in zip(scanned, kinds, turned_out, strict=True)
        )
        joined = (np.moveaxis(value, 0, axis) for value, axis in zip(found, axes_out, strict=True))
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
        lines = [value if isinstance(value, list) else [value] * count for value in operands]
        found = [body.run(own, outer) for own in zip(*lines, strict=True)]
        return [[results[k] for results in found] for k in range(len(node.outputs))]

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


def _gather(scanned: list[list[Any]], values: Sequence[Any], is_one: bool) -> None:
    """Add what one round gives, or several, along a new first axis."""
    for found, value in zip(scanned, values, strict=True):
        found.append(np.asarray(value)[None] if is_one else value)


def _joined(values: list[np.ndarray], kind: Any) -> np.ndarray:
    """All rounds' values as one array; without any, an empty one of the declared type."""
    if values:
        return np.concatenate(values)
    if not isinstance(kind, TensorType):
        return np.empty(0, np.float32)
    dims = [dim if isinstance(dim, int) else 0 for dim in kind.shape or ()]
    return np.empty((0, *dims), kind.dtype.numpy)
