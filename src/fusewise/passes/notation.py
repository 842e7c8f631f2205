"""Graph notation that writes nodes: what stands in a rule as `d * g.Exp(x)` is nodes with inferred types at once.

`+ - * /` and unary `-` are ONNX's Add, Sub, Mul, Div and Neg; `g.Name(...)` is any operator, `domain.Name` where a text names one
of another domain. Numbers are constants of the type of the values beside them, lists of whole numbers are int64. A pattern
(`rewrite.pattern`) is looked for; this is put there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fusewise.errors import UnsupportedModel
from fusewise.ir.deciding import known_below
from fusewise.ir.dtypes import BOOL, DType
from fusewise.ir.graph import Constant, Node, attributes_of, integer_array
from fusewise.ir.size import Size
from fusewise.ir.types import TensorType, ValueType
from fusewise.ops.infix import Infix
from fusewise.ops.spec import Call
from fusewise.passes.edit import Edit, may_be_empty
from fusewise.records import record

__all__ = ["Notation", "Operand", "TensorValue", "call_of"]


@record(frozen=True, eq=False)
class TensorValue(Infix):
    """A tensor of known shape in a graph that is being written."""

    name: str
    kind: TensorType
    notation: Notation

    @property
    def dims(self) -> tuple[int, ...]:
        return self.kind.dims

    @property
    def rank(self) -> int:
        return self.kind.rank

    @property
    def size(self) -> int:
        return self.kind.size

    @property
    def dtype(self) -> DType:
        return self.kind.dtype


Operand = TensorValue | float | Sequence[int] | np.ndarray | None


def call_of(edit: Edit, node: Node) -> Call:
    """The node as rows see it, with its types and the constants among its operands as they are by now."""
    return Call(
        node,
        tuple(edit.types[v] if v else None for v in node.inputs),
        tuple(edit.types[v] if v else None for v in node.outputs),
        tuple(edit.constants.get(v) if v else None for v in node.inputs),
    )


class Notation:
    """`g` in the functions of rules. `nodes` are what was written so far; every value is called `stem` and its operator.

    With `folds`, a constant that is only reshaped is a new constant, and no node.
    """

    def __init__(self, edit: Edit, stem: str, *, folds: bool = False) -> None:
        self.edit = edit
        self.stem = stem
        self.folds = folds
        self.nodes: list[Node] = []
        self._constants: dict[tuple[str, tuple[int, ...], object], TensorValue] = {}

    def __getattr__(self, op: str) -> Callable[..., TensorValue]:
        if op.startswith("_"):
            raise AttributeError(op)
        return lambda *operands, **attributes: self.several(op, 1, *operands, **attributes)[0]

    def several(self, op: str, outputs: int, *operands: Operand, **attributes: Any) -> tuple[TensorValue, ...]:
        """The results of an operator that has more than one."""
        places = tuple(f"{self.stem} {k}" for k in range(outputs))
        node = self._applied(op, places, operands, attributes)
        kinds = self.edit.inferred(node)
        return self._made(node, tuple(kinds[place] for place in places))

    def typed(self, op: str, kind: TensorType, *operands: Operand, **attributes: Any) -> TensorValue:
        """The result, of a type that is given, of an operator on types that ONNX does not have it for."""
        return self._made(self._applied(op, (self.stem,), operands, attributes), (kind,))[0]

    def _applied(
        self, op: str, places: tuple[str, ...], operands: Sequence[Operand], attributes: dict[str, Any]
    ) -> Node:
        like = next((x.dtype for x in operands if isinstance(x, TensorValue) and x.dtype != BOOL), None)
        values = [None if x is None else self._operand(x, like) for x in operands]
        names = ["" if x is None else x.name for x in values]
        while names and not names[-1]:
            names.pop()
        domain, _, name = op.rpartition(".")
        given = {key: value for key, value in attributes.items() if value is not None}
        return Node(name, tuple(names), places, attributes_of(**given), domain)

    def _made(self, node: Node, kinds: Sequence[ValueType]) -> tuple[TensorValue, ...]:
        made = tuple(self.edit.value(f"{self.stem}_{node.op.lower()}", kind) for kind in kinds)
        self.nodes.append(replace(node, outputs=made, name=made[0]))
        return tuple(self.value(name) for name in made)

    def value(self, name: str) -> TensorValue:
        """A value of the graph. `UnsupportedModel` for one that is no tensor of known shape."""
        kind = self.edit.static(name)
        if kind is None:
            raise UnsupportedModel(f"the value {name!r} is {self.edit.types[name]}, but its shape must be known here")
        return TensorValue(name, kind, self)

    def constant(self, array: np.ndarray) -> TensorValue:
        """A constant; equal ones are one."""
        contents = tuple(map(str, array.reshape(-1).tolist())) if array.dtype == object else array.tobytes()
        key = (array.dtype.str, array.shape, contents)
        if key not in self._constants:
            self._constants[key] = self.value(self.edit.constant(array, f"{self.stem}_number"))
        return self._constants[key]

    def number(self, number: float, like: DType) -> TensorValue:
        """A scalar of a type."""
        return self.constant(np.array(number).astype(like.numpy))

    # what is often written

    def cast(self, x: TensorValue, dtype: DType) -> TensorValue:
        """In another type."""
        return x if x.dtype == dtype else self.Cast(x, to=dtype.onnx)

    def reshape(self, x: TensorValue, dims: Sequence[int]) -> TensorValue:
        """The same elements in another shape."""
        if x.dims == tuple(dims):
            return x
        known = self.edit.constants.get(x.name) if self.folds else None
        if known is not None:
            return self.value(self.edit.constant(known.array.reshape(tuple(dims)), f"{x.name}_reshaped"))
        return self.Reshape(x, list(dims), allowzero=may_be_empty(dims).get("allowzero", 0))

    def permute(self, x: TensorValue, order: Sequence[int]) -> TensorValue:
        """The axes in another order."""
        return x if list(order) == list(range(x.rank)) else self.Transpose(x, perm=list(order))

    def expand(self, x: TensorValue, dims: Sequence[int]) -> TensorValue:
        """Repeated along axes of one element."""
        return x if x.dims == tuple(dims) else self.Expand(x, list(dims))

    def sum(self, x: TensorValue, axes: Sequence[int], keep: bool = True) -> TensorValue:
        """The sum along some axes; along none, the value itself."""
        return self.ReduceSum(x, list(axes), keepdims=int(keep)) if axes else x

    def fill(self, number: float, dims: Sequence[int], dtype: DType) -> TensorValue:
        """A tensor of one number."""
        value = Constant(np.array([number]).astype(dtype.numpy))
        return self.ConstantOfShape(list(dims), value=value)

    def slice(self, x: TensorValue, axis: int, start: int, end: int, step: int = 1) -> TensorValue:
        """A range along one axis, by ONNX's rules."""
        if (start, step) == (0, 1) and known_below(x.dims[axis] - 1, end):
            return x
        return self.Slice(x, [start], [end], [axis], [step])

    def pad(self, x: TensorValue, axis: int, before: int, after: int) -> TensorValue:
        """Zeros around one axis; negative numbers cut off."""
        if not before and not after:
            return x
        pads = [0] * (2 * x.rank)
        pads[axis], pads[axis + x.rank] = before, after
        return self.Pad(x, pads)

    def flat(self, x: TensorValue, axis: int) -> TensorValue:
        """As a matrix: axes before `axis` are one, and those from it on are the other."""
        return self.reshape(x, [math.prod(x.dims[:axis]), math.prod(x.dims[axis:])])

    def _operand(self, operand: Operand, like: DType | None) -> TensorValue:
        if isinstance(operand, TensorValue):
            return operand
        if isinstance(operand, np.ndarray):
            return self.constant(operand)
        assert operand is not None
        if isinstance(operand, int | float):
            assert like is not None, "a number has the type of a value beside it"
            return self.number(operand, like)
        if isinstance(operand, Size):
            assert like is not None, "a size has the type of a value beside it"
            return self.cast(self.constant(integer_array([operand]).reshape(())), like)
        return self.constant(integer_array(operand))
