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
from fusewise.runtime.rounds import RoundPorts, Rounds, loop_rounds, rounds_of, scan_rounds, with_outputs_apart
from fusewise.runtime.windows import Windowed, with_windows

__all__ = ["control_evaluator"]

MakeNested = Callable[[Graph], Nested]


@record(frozen=True, slots=True)
class _Body:
    """A body: `graph` has the values it reads from outside behind its own inputs, which lie at `captured` among the node's."""

    graph: Graph
    count: int
    nested: Nested | Windowed
    captured: tuple[int, ...]
    make: MakeNested

    def run(self, own: Sequence[Any], outer: Sequence[Any]) -> list[Any]:
        return self.nested.run([*own, *[outer[place] for place in self.captured]] if self.captured else own)

    def run_rounds(
        self, own: Sequence[Any], outer: Sequence[Any], ports: RoundPorts, lines: Sequence[np.ndarray], count: int
    ) -> Rounds | None:
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
        whole = with_outputs_apart(whole) if len(set(whole.outputs)) < len(whole.outputs) else whole
        windows = with_windows(whole) if node.op == "Loop" else None
        nested = make(whole) if windows is None else Windowed(make(windows), make(whole))
        bodies[name] = _Body(whole, len(inner.inputs), nested, tuple(start + k for k, _ in open_ones), make)
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


_FIRST_ROUNDS, _MORE_ROUNDS = 32, 3
"""Rounds that are made ready at first where a condition may end them at any time, and then for each that there was."""


_FEW_ROUNDS = 6
"""Making a call of native code ready takes as long as so many by themselves."""


class _Progress:
    """Rounds made so far, of so many `expected`: their `count`, and `scanned`, what is gathered of them; `steady`: what a round
    holds has not changed, as it does where something grows."""

    def __init__(self, what: str, kinds: Sequence[Any], expected: int) -> None:
        self._what, self._kinds = what, kinds
        self.scanned: list[list[Any]] = [[] for _ in kinds]
        self.count = self._gathered = self._held = self._each = 0
        self._size, self.steady = -1, False
        self._try_at = 0 if expected >= _FEW_ROUNDS else _FEW_ROUNDS

    @property
    def may_be_one_call(self) -> bool:
        """Is it worth looking for native code for what follows? Where there was none it is looked for less and less often."""
        return self.count >= self._try_at and (self.steady or not self.count)

    def had_no_call(self) -> None:
        """There was none."""
        self._try_at = max(_FEW_ROUNDS, 2 * self.count)

    def check_rest(self, rounds: int) -> None:
        """Refuse so many more rounds that are known to come, if they would gather too much."""
        if self.steady:
            check_held(self._what, self._gathered + self._held + self._each * rounds)

    def add(self, values: Sequence[Any], results: Sequence[Any], rounds: int, *, is_one: bool) -> None:
        """What some rounds have given: what is carried, and what is gathered, along a new first axis unless it `is_one`."""
        for found, value in zip(self.scanned, results, strict=True):
            found.append(np.asarray(value)[None] if is_one else value)
        self._held, more = _nbytes(values), _nbytes(results)
        self._each = more // rounds
        size = self._held + self._each
        self._size, self.steady = size, size == self._size or not is_one
        self.count, self._gathered = self.count + rounds, self._gathered + more
        check_rounds(self._what, self.count)
        check_held(self._what, self._gathered + self._held)

    def joined(self) -> list[np.ndarray]:
        """All that is gathered."""
        return list(map(_joined, self.scanned, self._kinds))


def _loop(node: Node, bodies: dict[str, _Body]) -> Run:
    body = bodies["body"]
    carried = body.count - 2
    what = f"node {node.label!r} (Loop)"
    endless = goes_on(body.graph)
    kinds = [body.graph.types.get(name) for name in body.graph.outputs[1 + carried :]]
    most = rounds_of(body.graph) if endless else 1
    several = body.of(loop_rounds(body.graph, carried)) if most > 1 else None
    states = tuple((2 + k, 1 + k) for k in range(carried))
    gathered = tuple(range(1 + carried, len(body.graph.outputs)))
    ports = RoundPorts(0, states, (), gathered, None if endless else (1, 0))
    expected = 0  # as many as there were the last time

    def run(operands: list[Any], outer: Sequence[Any]) -> list[Any]:
        nonlocal expected
        trips, condition, *values = operands if len(operands) > 1 else (*operands, None)
        values += [None] * (carried - len(values))
        going = np.array(True) if condition is None else np.asarray(condition).reshape(())
        limit = MOST_ROUNDS + 1 if trips is None else min(int(trips.reshape(-1)[0]), MOST_ROUNDS + 1)
        if bool(going) and endless:
            check_rounds(what, limit)
        done = _Progress(what, kinds, limit if endless else expected)
        while bool(going) and done.count < limit:
            own, rest = (np.array(done.count, np.int64), going, *values), limit - done.count
            if endless:
                done.check_rest(rest)
            if done.may_be_one_call:
                found = body.run_rounds(
                    own, outer, ports, (), rest if endless else min(rest, max(_FIRST_ROUNDS, _MORE_ROUNDS * done.count))
                )
                if found is not None:
                    values, going = found.states, np.array(found.goes_on)
                    done.add(values, found.gathered, found.count, is_one=False)
                    continue
                done.had_no_call()
            together = several if done.steady and rest >= most else None
            results = (together or body).run(own, outer)
            going, values = np.asarray(results[0]).reshape(()), results[1 : 1 + carried]
            done.add(values, results[1 + carried :], 1 if together is None else most, is_one=together is None)
        expected = done.count
        return [*values, *done.joined()]

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
        length = len(lines[0])
        check_rounds(what, length)
        done = _Progress(what, kinds, length)
        while done.count < length:
            step = done.count
            done.check_rest(length - step)
            if done.may_be_one_call:
                rest = [np.require(line[step:], requirements=("C", "ALIGNED")) for line in lines]
                own = *carried, *(np.asarray(line[0]) for line in rest)
                found = body.run_rounds(own, outer, ports, rest, length - step)
                if found is not None:
                    carried = found.states
                    done.add(carried, found.gathered, found.count, is_one=False)
                    continue
                done.had_no_call()
            together = several if done.steady and length - step >= most else None
            rounds = 1 if together is None else most
            parts = (np.asarray(line[step]) if together is None else line[step : step + rounds] for line in lines)
            results = (together or body).run((*carried, *parts), outer)
            carried = results[:states]
            done.add(carried, results[states:], rounds, is_one=together is None)
        found_all = (value[:: -1 if back else 1] for value, back in zip(done.joined(), turned_out, strict=True))
        return [*carried, *(np.moveaxis(value, 0, axis) for value, axis in zip(found_all, axes_out, strict=True))]

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


def _joined(values: list[np.ndarray], kind: Any) -> np.ndarray:
    """All rounds' values as one array; without any, an empty one of the declared type."""
    if values:
        return np.concatenate(values)
    if not isinstance(kind, TensorType):
        return np.empty(0, np.float32)
    dims = [dim if isinstance(dim, int) else 0 for dim in kind.shape or ()]
    return np.empty((0, *dims), kind.dtype.numpy)
