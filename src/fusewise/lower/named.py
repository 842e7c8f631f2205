"""The operands of a node's own task, named by their places in ONNX: `in1` or `const1` is what the node reads second, `out0` its
first result. Each has the shape that ONNX gives it, or its axes in another order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from fusewise.ir.dtypes import INT64
from fusewise.ir.graph import Graph, Node
from fusewise.lower.compose import BoundTask, BufferView
from fusewise.lower.program import DataPosition
from fusewise.lower.task import Operand, Task
from fusewise.ops.expr import Expr, load
from fusewise.records import record

__all__ = ["Named"]


@record
class Named:
    """What a task's expressions call its operands, and where they read positions from data, while it is being made."""

    graph: Graph
    node: Node
    views: Mapping[str, BufferView]
    operands: dict[str, Operand] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    sites: list[DataPosition] = field(default_factory=list)

    def given(self, place: int, order: Sequence[int] | None = None) -> Operand:
        """What the node reads there."""
        value = self.node.inputs[place]
        return self._named(f"{'const' if value in self.graph.constants else 'in'}{place}", value, order)

    def read(self, place: int, at: Sequence[Expr]) -> Expr:
        """The element at an index of what the node reads there."""
        operand = self.given(place)
        return load(operand.name, operand.dtype, tuple(at))

    def result(self, place: int, order: Sequence[int] | None = None) -> Operand:
        """What the node writes there."""
        return self._named(f"out{place}", self.node.outputs[place], order)

    def _named(self, name: str, value: str, order: Sequence[int] | None) -> Operand:
        if name not in self.operands:
            kind, view = self.graph.tensor(value), self.views[value]
            axes = range(kind.rank) if order is None else order
            shape, strides = (tuple(of[axis] for axis in axes) for of in (kind.dims, view.strides))
            constant = name.startswith("const")
            self.operands[name] = Operand(name, kind.dtype, shape, strides, constant=constant, alignment=view.alignment)
            self.values[name] = value
        return self.operands[name]

    def bounded(self, position: Expr, place: int, least: int, most: int, wraps: bool = False) -> Expr:
        """A position from what the node reads there, kept within bounds; see `ops.expr.bounded`."""
        self.sites.append(DataPosition(self.node.label, self.node.op, self.node.inputs[place], least, most, wraps))
        return Expr("bounded", INT64, (position,), (least, most, len(self.sites) - 1))

    def bind(self, task: Task) -> BoundTask:
        """The task, made of these operands."""
        return BoundTask(task, dict(self.values), tuple(self.sites))
