"""The sweep from results to operands: rules are asked against topological order, and what arrives at a value is added up.

An operator without a rule is written with others (`decompositions`), beside the graph, and these are asked. Broadcasting is undone
here alone. Whole numbers have no slope: what passes through them, quantised values too, arrives as nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusewise.errors import UnsupportedModel
from fusewise.ir.graph import Node
from fusewise.ir.types import MapType, OptionalType, SequenceType
from fusewise.ops.spec import NotDefined
from fusewise.passes.decompositions.table import decomposition_of
from fusewise.passes.edit import Edit
from fusewise.passes.gradient.row import Reverse
from fusewise.passes.gradient.table import GRADIENTS
from fusewise.passes.notation import Notation, TensorValue, call_of

__all__ = ["Sweep"]


class Sweep:
    """Writes gradients behind `nodes`, with `g`. `by` are the values that slopes are wanted by."""

    def __init__(self, edit: Edit, g: Notation, nodes: Sequence[Node], by: Iterable[str]) -> None:
        self.edit, self.g, self.nodes = edit, g, nodes
        self._moving = set(by)  # values that depend on those, by way of floats
        self._written: dict[str, tuple[list[Node], tuple[TensorValue, ...]] | None] = {}
        self._follow(nodes)

    def slopes(self, output: str, by: Sequence[str]) -> list[TensorValue | None]:
        """The slope of the sum of `output` by each value of `by`; None where it does not depend on it."""
        whole = self.g.value(output)
        arrived = {output: [self.g.fill(1, whole.dims, whole.dtype)]}
        self._back(self.nodes, arrived)
        return [self._total(value, arrived) for value in by]

    def _follow(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if not self._moving.isdisjoint(node.reads):
                self._moving.update(value for value in node.writes if self._is_float(value))

    def _is_float(self, value: str) -> bool:
        kind = self.edit.types.get(value)
        while isinstance(kind, SequenceType | OptionalType | MapType):
            kind = kind.element
        return kind is not None and kind.dtype.kind in ("float", "complex")

    def _back(self, nodes: Sequence[Node], arrived: dict[str, list[TensorValue]]) -> None:
        for node in reversed(nodes):
            if not any(value in arrived for value in node.writes):
                continue
            wanted = [value in self._moving for value in node.inputs]
            if any(wanted) or not self._moving.isdisjoint(node.captured):
                self._through(node, wanted, arrived)

    def _through(self, node: Node, wanted: Sequence[bool], arrived: dict[str, list[TensorValue]]) -> None:
        """What the operands of one node get of what arrived at its results."""
        d = tuple(self._total(value, arrived) if value else None for value in node.outputs)
        found = None if node.domain else GRADIENTS.get(node.op)
        try:
            if found is not None:
                parts = found.rule(self.g, self._reverse(node, d, wanted))
                if parts is not None:
                    for value, part, want in zip(node.inputs, parts, wanted, strict=True):
                        if part is not None and want:
                            arrived.setdefault(value, []).append(self._unbroadcast(part, self.g.value(value)))
                    return
            written = self._decomposed(node)
        except NotDefined as reason:
            raise _without_rule(node, str(reason)) from None
        if written is None:
            known = found is not None or decomposition_of(node) is not None
            raise _without_rule(node, "of this form" if known else "")
        nodes, results = written
        for result, part in zip(results, d, strict=False):
            if part is not None:
                arrived.setdefault(result.name, []).append(part)
        self._back(nodes, arrived)

    def _reverse(self, node: Node, d: tuple[TensorValue | None, ...], wanted: Sequence[bool]) -> Reverse:
        x = tuple(self._tensor(value) for value in node.inputs)
        y = tuple(self._tensor(value) for value in node.outputs)
        return Reverse(call_of(self.edit, node), x, y, d, tuple(wanted))

    def _tensor(self, value: str) -> TensorValue | None:
        return self.g.value(value) if value else None

    def _decomposed(self, node: Node) -> tuple[list[Node], tuple[TensorValue, ...]] | None:
        """The node written with others, once however many outputs are swept from."""
        if node.outputs[0] not in self._written:
            row, begin = decomposition_of(node), len(self.g.nodes)
            results = None if row is None else row.results(self.g, call_of(self.edit, node))
            nodes = self.g.nodes[begin:]
            self._follow(nodes)
            self._written[node.outputs[0]] = None if results is None else (nodes, results)
        return self._written[node.outputs[0]]

    def _total(self, value: str, arrived: dict[str, list[TensorValue]]) -> TensorValue | None:
        """All that arrived at a value, added up once."""
        parts = arrived.get(value)
        if not parts:
            return None
        while len(parts) > 1:
            parts.append(parts.pop(0) + parts.pop(0))
        return parts[0]

    def _unbroadcast(self, part: TensorValue, operand: TensorValue) -> TensorValue:
        """The part in the shape of the operand: added up along axes that the operand was repeated along."""
        lead = part.rank - operand.rank
        axes = [k for k in range(part.rank) if k < lead or (operand.dims[k - lead] == 1 and part.dims[k] != 1)]
        return self.g.reshape(self.g.sum(part, axes), operand.dims) if axes else part


def _without_rule(node: Node, about: str) -> UnsupportedModel:
    form = f" {about}" if about else ""
    op = f"{node.domain}.{node.op}" if node.domain else node.op
    return UnsupportedModel(
        f"node {node.label!r}: there is no gradient of operator {op}{form}; ask for the gradient by values behind it, or of outputs"
        " that do not depend on it"
    )
