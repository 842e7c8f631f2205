"""A decomposition: a special operator in terms of basic ones, one row each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusewise.ops.spec import Call
from fusewise.passes.notation import Notation, TensorValue
from fusewise.records import record

__all__ = ["Decomposition", "axes_of", "row"]

Written = TensorValue | tuple[TensorValue, ...] | None


@record(frozen=True)
class Decomposition:
    """How an operator is written with others.

    `write(g, call, *operands)` gives its results, operands being None where they are absent; or None for a case that it does not
    cover. It keeps what a rule for one operator must: the same mathematics, finite where the operator is finite.
    """

    op: str
    write: Callable[..., Written]

    def results(self, g: Notation, call: Call) -> tuple[TensorValue, ...] | None:
        """The results of one application, its operands being values of the graph; None where it stays as it is."""
        operands = [g.value(name) if name else None for name in call.node.inputs]
        found = self.write(g, call, *operands)
        results = (found,) if isinstance(found, TensorValue) else found
        return results if results is not None and len(results) >= len(call.node.outputs) else None


def row(op: str, write: Callable[..., Any]) -> Decomposition:
    """A row from a function in graph notation."""
    return Decomposition(op, write)


def axes_of(call: Call, operand: int = 1) -> tuple[int, ...] | None:
    """The axes that an operator reduces, none below 0, ascending: all where it names none; None where they are not known."""
    rank = call.input(0).rank
    if not call.has(operand):
        return () if call.attribute("noop_with_empty_axes", 0) else tuple(range(rank))
    if not call.is_known(operand):
        return None
    axes = sorted({int(axis) % rank for axis in call.known(operand).reshape(-1)})
    if axes or call.attribute("noop_with_empty_axes", 0):
        return tuple(axes)
    return tuple(range(rank))
