"""Graph notation for a model that is being imported: nodes with inferred types, whose dimensions need not be numbers yet.

As in `passes.notation`, `+ - * /` are ONNX's operators, `g.Name(...)` is any (of another domain where a text names one as
`domain.Name`), numbers take the type of the values beside them, and lists of whole numbers are int64. A dimension is a number or,
where that is not known, a value of one element (`DomainWriter.dim`); both stand in lists of sizes side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from fusewise.errors import InvalidModel, UnsupportedModel
from fusewise.frontend.upgrade import UpgradeSite
from fusewise.ir.dtypes import BOOL, INT64, DType
from fusewise.ir.graph import Constant, Node, attributes_of
from fusewise.ir.types import Dim, TensorType, ValueType
from fusewise.ops.infix import Infix
from fusewise.records import record

__all__ = ["DomainValue", "DomainWriter", "Extent", "Operand", "WriterSite"]


class WriterSite(UpgradeSite, Protocol):
    """The graph under construction around a node, which learns types while nodes are written."""

    opset: int

    def infer(self, node: Node) -> None:
        """Infer the types of what a node gives."""

    def known_constant(self, name: str) -> Constant | None:
        """The constant of this name, of this graph or of those around it."""

    def declared(self, name: str) -> ValueType | None:
        """The type that the model itself says a value has."""

    def keep(self, name: str, constant: Constant) -> None:
        """Add a constant under a fresh name."""


@record(frozen=True, eq=False)
class DomainValue(Infix):
    """A value of a graph that is being imported."""

    name: str
    kind: ValueType | None
    notation: DomainWriter

    @property
    def shape(self) -> tuple[Dim, ...] | None:
        """The dimensions: numbers, names, or None where nothing is known; None where not even the rank is."""
        return self.kind.shape if isinstance(self.kind, TensorType) else None

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The shape of a value of known rank; `UnsupportedModel` where that is not known."""
        if self.shape is None:
            raise self.notation.unsupported(
                f"the rank of {self.name!r} must be known; state its shape in the model, or export it with fixed shapes"
            )
        return self.shape

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def dtype(self) -> DType:
        """The element type; `UnsupportedModel` for what is no tensor."""
        if not isinstance(self.kind, TensorType):
            raise self.notation.unsupported(f"{self.name!r} must be a tensor")
        return self.kind.dtype

    def dim(self, axis: int) -> Dim:
        """One dimension as far as it is known. `InvalidModel` where there is no such axis."""
        if not -self.rank <= axis < self.rank:
            raise self.notation.invalid(f"{self.name!r} has {self.rank} dimensions, which it cannot have here")
        return self.dims[axis]

    def extent(self, axis: int) -> int | None:
        """One dimension, where it is a number. `InvalidModel` where there is no such axis."""
        dim = self.dim(axis)
        return dim if isinstance(dim, int) else None

    def __floordiv__(self, other: Any) -> DomainValue:
        """Of sizes, which are not negative."""
        return self._applied("Div", self, other)


Extent = int | DomainValue
"""A size: a number, or a value of type int64 and shape [1]."""

Operand = DomainValue | float | Sequence[Extent] | np.ndarray | Constant | None


class DomainWriter:
    """`g` in the functions of rows. What is written stands for `node`; its values are called by that and by their operators."""

    def __init__(self, site: WriterSite, node: Node) -> None:
        self.site = site
        self.node = node
        self.nodes: list[Node] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], DomainValue] = {}

    def __getattr__(self, op: str) -> Callable[..., DomainValue]:
        if op.startswith("_"):
            raise AttributeError(op)
        return lambda *operands, **attributes: self.several(op, 1, *operands, **attributes)[0]

    def several(self, op: str, outputs: int, *operands: Operand, **attributes: Any) -> tuple[DomainValue, ...]:
        """The results of an operator that has more than one."""
        like = next((x.dtype for x in operands if isinstance(x, DomainValue) and x.dtype != BOOL), None)
        names = ["" if x is None else self._operand(x, like).name for x in operands]
        while names and not names[-1]:
            names.pop()
        stem = f"{self.node.label}_{op.rpartition('.')[2].lower()}"
        made = tuple(self.site.fresh(stem) for _ in range(outputs))
        given = {key: value for key, value in attributes.items() if value is not None}
        domain, _, name = op.rpartition(".")
        node = Node(name, tuple(names), made, attributes_of(**given), domain, made[0], self.node.origin)
        self.site.infer(node)
        self.nodes.append(node)
        return tuple(self.value(name) for name in made)

    def value(self, name: str) -> DomainValue:
        """A value of the graph."""
        return DomainValue(name, self.site.type_of(name), self)

    def constant(self, contents: np.ndarray | Constant) -> DomainValue:
        """A constant; equal arrays are one."""
        if isinstance(contents, Constant):
            name = self.site.fresh(f"{self.node.label}_constant")
            self.site.keep(name, contents)
            return self.value(name)
        key = (contents.dtype.str, contents.shape, contents.tobytes())
        if contents.dtype == object or key not in self._constants:
            self._constants[key] = self.value(self.site.constant(contents, f"{self.node.label}_constant"))
        return self._constants[key]

    def number(self, number: float, like: DType) -> DomainValue:
        """A scalar of a type."""
        return self.constant(np.array(number).astype(like.numpy))

    def known(self, x: DomainValue | None) -> np.ndarray | None:
        """The contents of an operand that is a constant, or small and computed from constants; None for others."""
        if x is None:
            return None
        found = self.site.known_constant(x.name)
        if found is not None:
            return found.array
        small = self.site.value_of(x.name)
        return small if small is not None and small.dtype != object else None

    def known_constant(self, x: DomainValue) -> Constant | None:
        """The constant that an operand is, whose contents may not have been read yet."""
        return self.site.known_constant(x.name)

    # sizes

    def dim(self, x: DomainValue, axis: int) -> Extent:
        """One dimension: a number where it is known, else a value [1]."""
        known = x.dim(axis)
        if isinstance(known, int):
            return known
        axis %= x.rank
        return self.Shape(x, start=axis, end=axis + 1)

    def sizes(self, x: DomainValue) -> list[Extent]:
        """Every dimension."""
        return [self.dim(x, axis) for axis in range(x.rank)]

    def scalar(self, extent: Extent) -> DomainValue:
        """A size as a value without dimensions."""
        return self.number(extent, INT64) if isinstance(extent, int) else self.Squeeze(extent, [0])

    def reshape(self, x: DomainValue, dims: Sequence[Extent]) -> DomainValue:
        """The same elements in another shape; one of `dims` may be -1, which is what is left."""
        unknown = [i for i, dim in enumerate(dims) if not isinstance(dim, int)]
        if len(unknown) == 1 and -1 not in dims and 0 not in dims:
            dims = [-1 if i in unknown else dim for i, dim in enumerate(dims)]
            unknown = []
        is_exact = -1 not in [dim for dim in dims if isinstance(dim, int)]
        return self.Reshape(x, list(dims), allowzero=1 if is_exact and (unknown or 0 in dims) else None)

    # what is often written

    def cast(self, x: DomainValue, dtype: DType) -> DomainValue:
        """In another type."""
        return x if x.dtype == dtype else self.Cast(x, to=dtype.onnx)

    def permute(self, x: DomainValue, order: Sequence[int]) -> DomainValue:
        """The axes in another order."""
        return x if list(order) == list(range(x.rank)) else self.Transpose(x, perm=list(order))

    def slice(self, x: DomainValue, axis: int, start: Extent, end: Extent, step: int = 1) -> DomainValue:
        """A range along one axis, by ONNX's rules."""
        return self.Slice(x, [start], [end], [axis], [step])

    def flat(self, x: DomainValue, axis: int) -> DomainValue:
        """As a matrix: axes before `axis` are one, and those from it on are the other."""
        return self.Flatten(x, axis=axis)

    def total(self, first: DomainValue, *others: DomainValue | None) -> DomainValue:
        """The sum of what is there."""
        for other in others:
            first = first if other is None else first + other
        return first

    def _operand(self, operand: Operand, like: DType | None) -> DomainValue:
        if isinstance(operand, DomainValue):
            return operand
        if isinstance(operand, np.ndarray | Constant):
            return self.constant(operand)
        assert operand is not None
        if isinstance(operand, int | float):
            if like is None:
                raise self.invalid("it does arithmetic, and its operands are no numbers")
            return self.number(operand, like)
        if all(isinstance(item, int) for item in operand):
            return self.constant(np.array(operand, dtype=np.int64))
        if len(operand) == 1:
            return self._operand(operand[0], INT64)
        parts = [self.constant(np.array([x], dtype=np.int64)) if isinstance(x, int) else x for x in operand]
        return self.Concat(*parts, axis=0)

    # ends

    def invalid(self, problem: str) -> InvalidModel:
        """The node breaks its operator's rules; `problem` is the end of a sentence that begins with the node."""
        return InvalidModel(f"node {self.node.label!r} ({self.node.op}): {problem}")

    def unsupported(self, problem: str) -> UnsupportedModel:
        """The node is valid, but asks for what is not done."""
        return UnsupportedModel(f"node {self.node.label!r} ({self.node.op}): {problem}")

    def written(self, outputs: Sequence[DomainValue | None]) -> list[Node]:
        """Everything that was written, in order, with `outputs` under the names of the node's."""
        made = {name for node in self.nodes for name in node.outputs}
        names: dict[str, str] = {}
        for place, name in enumerate(self.node.outputs):
            if not name:
                continue
            value = outputs[place] if place < len(outputs) else None
            if value is None:
                raise self.unsupported(f"its output {place} is not supported")
            if value.name in made and value.name not in names:
                names[value.name] = name
            else:
                copy = Node("Identity", (value.name,), (name,), name=name, origin=self.node.origin)
                self.nodes.append(copy)
        return [
            replace(
                node,
                inputs=tuple(names.get(one, one) for one in node.inputs),
                outputs=tuple(names.get(one, one) for one in node.outputs),
            )
            for node in self.nodes
        ]
