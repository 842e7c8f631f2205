"""Slices of a Loop's body that begin at the number of the round, as elements that are gathered: of one shape in every round.

A slice ends where its operand does, and an index that is out of bounds is a fault, so this is right as long as none is found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fusewise.errors import FusewiseError
from fusewise.ir.dtypes import INT64
from fusewise.ir.graph import Constant, Graph, Node, attributes_of
from fusewise.records import record
from fusewise.runtime.nested import Nested
from fusewise.runtime.rounds import RoundPorts, Rounds, unused_mark

__all__ = ["Windowed", "with_windows"]

_LONGEST = 64
"""Elements along the axis."""

_MOST_FAULTS = 4
"""With so many the body is taken as it is from then on."""

_FOLLOWED = frozenset({"Add", "Cast", "Identity", "Reshape", "Sub", "Unsqueeze"})

_MOST_STEPS = 16
"""From the number of the round to a place."""


class Windowed:
    """A body `with_windows`, and as it is where that finds a fault: a round has no effect but what it gives."""

    def __init__(self, windowed: Nested, plain: Nested) -> None:
        self._windowed, self._plain = windowed, plain
        self._faults = 0

    def run(self, values: Sequence[Any]) -> list[Any]:
        """As `Nested.run`."""
        if self._faults < _MOST_FAULTS:
            try:
                return self._windowed.run(values)
            except FusewiseError:  # if it is one of the body's, too, that says so
                self._faults += 1
        return self._plain.run(values)

    def run_rounds(
        self, values: Sequence[Any], ports: RoundPorts, lines: Sequence[np.ndarray], count: int
    ) -> Rounds | None:
        """As `Nested.run_rounds`."""
        if self._faults < _MOST_FAULTS:
            try:
                return self._windowed.run_rounds(values, ports, lines, count)
            except FusewiseError:
                self._faults += 1
        return self._plain.run_rounds(values, ports, lines, count)


def with_windows(body: Graph) -> Graph | None:
    """The same where no window is left that moves along with the rounds: x[i + 2 : i + 5] -> Gather(x, i + 2 + [0, 1, 2]). None
    where there is none."""
    makers = {name: node for node in body.nodes for name in node.writes}
    mark, constants = unused_mark(body), dict(body.constants)
    nodes: list[Node] = []
    for node in body.nodes:
        found = _window(body, makers, node)
        if found is None:
            nodes.append(node)
            continue
        axis, length = found
        place = node.inputs[1]
        if length > 1:
            steps = f"{mark}{length}"
            constants[steps] = Constant(np.arange(length, dtype=np.int64))
            place = f"{node.outputs[0]}{mark}"
            nodes.append(Node("Add", (node.inputs[1], steps), (place,)))
        nodes.append(Node("Gather", (node.inputs[0], place), node.outputs, attributes_of(axis=axis), name=node.label))
    changed = any(old is not new for old, new in zip(body.nodes, nodes, strict=False))
    return body.replace(nodes=tuple(nodes), constants=constants) if changed else None


def _window(body: Graph, makers: Mapping[str, Node], node: Node) -> tuple[int, int] | None:
    """The axis and the length of a window from the number of the round on, or from a later place."""
    if node.op != "Slice" or node.domain or len(node.inputs) < 3:
        return None
    known = _Numbers(body, makers)
    begin, end = (known.after_counter(value) for value in node.inputs[1:3])
    axis, step = (
        known.number(value, absent) for value, absent in zip((*node.inputs[3:], "", "")[:2], (0, 1), strict=True)
    )
    if axis is None or step != 1 or begin is None or end is None or begin < 0 or not 0 < end - begin <= _LONGEST:
        return None
    return axis, end - begin


@record(frozen=True)
class _Numbers:
    """What is known of values of a body by name; `makers` are the nodes that give them."""

    body: Graph
    makers: Mapping[str, Node]

    def after_counter(self, value: str) -> int | None:
        """How much the one element of a value of rank 1 is above the number of the round; None where that is not known."""
        above, steps = 0, list[Node]()
        while value != self.body.inputs[0]:
            node = self.makers.get(value)
            if node is None or node.domain or node.op not in _FOLLOWED or len(steps) == _MOST_STEPS:
                return None
            steps.append(node)
            if node.op not in ("Add", "Sub"):
                value = node.inputs[0]
                continue
            left, right = map(self.number, node.inputs)
            if right is not None:
                above, value = above + (right if node.op == "Add" else -right), node.inputs[0]
            elif left is not None and node.op == "Add":
                above, value = above + left, node.inputs[1]
            else:
                return None
        rank: int | None = 0
        for node in reversed(steps):
            rank = self._rank_after(node, rank)
        return above if rank == 1 else None

    def _rank_after(self, node: Node, rank: int | None) -> int | None:
        """The rank of what a node makes of one element; None where its value is not the same."""
        others = [self._array(value) for value in node.inputs]
        found = [array for array in others if array is not None]
        if rank is None:
            return None
        if node.op == "Identity" or (node.op == "Cast" and node.attribute("to") == INT64.onnx):
            return rank
        if node.op in ("Add", "Sub") and len(found) == 1:
            return max(rank, found[0].ndim)
        if node.op == "Unsqueeze" and len(found) == 1:
            return rank + found[0].size
        return found[0].size if node.op == "Reshape" and len(found) == 1 else None

    def number(self, value: str, absent: int | None = None) -> int | None:
        """The one whole number that a constant is."""
        if not value:
            return absent
        array = self._array(value)
        if array is None or array.size != 1 or array.dtype.kind not in "iu":
            return None
        return int(array.reshape(-1)[0])

    def _array(self, value: str) -> np.ndarray | None:
        maker, known = self.makers.get(value), self.body.constants.get(value)
        if maker is not None and maker.op == "Constant" and not maker.domain:
            known = maker.attribute("value")
        return known.array if isinstance(known, Constant) else None
