"""One use of an operator as the rules of validity see it: its attributes with ONNX's defaults, its operands' extents and values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx

from fusewise.ir.dtypes import DType
from fusewise.ir.graph import Node
from fusewise.ir.types import Dim, TensorType, ValueType
from fusewise.ops.proto import attribute_from_proto
from fusewise.records import record

__all__ = ["Rule", "Size", "Use", "ValidityRow", "alike", "shown"]


@record(frozen=True)
class Use:
    """A node, the types of its operands (None: absent or unknown), and the values of those that are known.

    `opset` is the version of the node's own domain, `formal` the names of the operands where ONNX does not say them.
    """

    node: Node
    types: tuple[ValueType | None, ...]
    constants: tuple[np.ndarray | None, ...]
    opset: int
    formal: tuple[str, ...] = ()

    def attribute(self, name: str) -> Any:
        """The attribute, or ONNX's default for it; None where there is neither."""
        given = self.node.attribute(name)
        return self.default(name) if given is None else given

    def default(self, name: str) -> Any:
        """What ONNX takes for an attribute that is absent; None where it says nothing."""
        return _defaults(self.node.op, self.node.domain, self.opset).get(name)

    def is_text(self, name: str) -> bool:
        """Is an attribute a string, or several?"""
        schema = _schema(self.node.op, self.node.domain, self.opset)
        kinds = onnx.defs.OpSchema.AttrType
        return (
            schema is not None
            and name in schema.attributes
            and schema.attributes[name].type in (kinds.STRING, kinds.STRINGS)
        )

    def shape(self, i: int) -> tuple[Dim, ...] | None:
        """The shape of operand `i`; None when it is absent, no tensor, or of unknown rank."""
        kind = self.types[i] if i < len(self.types) else None
        return kind.shape if isinstance(kind, TensorType) else None

    def rank(self, i: int) -> int | None:
        """The number of dimensions of operand `i`, when known."""
        shape = self.shape(i)
        return None if shape is None else len(shape)

    def extent(self, i: int, position: int) -> int | None:
        """One dimension of operand `i`, when it is there and a number."""
        shape = self.shape(i)
        if shape is None or not -len(shape) <= position < len(shape):
            return None
        dim = shape[position]
        return dim if isinstance(dim, int) else None

    def count(self, i: int) -> int | None:
        """The number of elements of operand `i`, when known."""
        shape = self.shape(i)
        if shape is None or not all(isinstance(dim, int) for dim in shape):
            return None
        return math.prod(dim for dim in shape if isinstance(dim, int))

    def dtype(self, i: int) -> DType | None:
        """The element type of operand `i`, when it is a tensor."""
        kind = self.types[i] if i < len(self.types) else None
        return kind.dtype if isinstance(kind, TensorType) else None

    def values(self, i: int) -> list[Any] | None:
        """The elements of operand `i` as numbers, when they are known."""
        found = self.constants[i] if i < len(self.constants) else None
        return None if found is None or found.dtype == object else found.reshape(-1).tolist()

    def has(self, i: int) -> bool:
        """Is operand `i` given?"""
        return i < len(self.node.inputs) and bool(self.node.inputs[i])

    def operand(self, i: int) -> str:
        """How messages name operand `i`: by its position and ONNX's name for it."""
        formal = self.formal or _operands(self.node.op, self.node.domain, self.opset)
        name = formal[min(i, len(formal) - 1)] if formal else ""
        return f"its input {i} ({name})" if name else f"its input {i}"


Rule = Callable[[Use], str]
"""What is wrong with a use of an operator, as the end of a sentence that begins with the node; empty when nothing is."""

Size = Callable[[Use], int | None]
"""A number that a rule compares with, or None when it is not known yet."""


@record(frozen=True)
class ValidityRow:
    """What ONNX's text asks of one operator.

    - `shapes`: signatures of the operands (see `signature`), or a function that chooses one.
    - `sizes`: names in the signatures whose extents the attributes give.
    - `rules`: what else must hold; they come first.
    """

    op: str
    shapes: str | Callable[[Use], str] = ""
    rules: tuple[Rule, ...] = ()
    sizes: tuple[tuple[str, Size], ...] = ()
    domain: str = ""


def alike(first: Sequence[Dim], second: Sequence[Dim]) -> bool:
    """Are two shapes equal, as far as their dimensions are numbers?"""
    return len(first) == len(second) and all(
        a == b or not isinstance(a, int) or not isinstance(b, int) for a, b in zip(first, second, strict=True)
    )


def shown(value: Any) -> str:
    """A shape or an attribute in a message, cut where it is long."""
    text = "[" + ", ".join(map(str, value)) + "]" if isinstance(value, tuple | list) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


@cache
def _schema(op: str, domain: str, opset: int) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return None


@cache
def _defaults(op: str, domain: str, opset: int) -> Mapping[str, Any]:
    schema = _schema(op, domain, opset)
    if schema is None:
        return {}
    given = {name: attribute.default_value for name, attribute in schema.attributes.items()}
    return {name: attribute_from_proto(proto) for name, proto in given.items() if proto.type}


@cache
def _operands(op: str, domain: str, opset: int) -> tuple[str, ...]:
    schema = _schema(op, domain, opset)
    return () if schema is None else tuple(formal.name for formal in schema.inputs)
