"""A row of the benchmark of operators: one use of an operator, at two usual sizes, as data; and the model that it stands for.

Operands are told by what they hold, and made when a row is measured: the same row gives the same arrays in every process.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

from fusewise.ir.dtypes import DType, dtype_named
from fusewise.ir.types import SequenceType, TensorType, ValueType
from fusewise.ops.proto import tensor_to_proto, type_to_proto
from fusewise.ops.sampling import random_array

__all__ = [
    "NEWEST_SHARED",
    "Operand",
    "Operands",
    "Row",
    "boxes",
    "distinct",
    "ids",
    "k",
    "model_alone",
    "model_of",
    "one",
    "rois",
    "w",
    "words",
    "x",
]

NEWEST_SHARED = 26
"""The newest opset of ONNX's own domain that ONNX Runtime reads, too; an operator that is newer is measured at the newest."""

_WORDS = ("Monday", "tuesday", "WEDNESDAY", "a longer text of several words", "one,two,three", "x1", "")


@dataclass(frozen=True)
class Operand:
    """A tensor: element type, shape, and what it holds. A `known` one is a constant of the model.

    `holds` is `uniform` (between `low` and `high`), `boxes` ([..., 4], corners below and above; of [..., 5] the first
    is the image, 0), `distinct` (no position twice, at
    least along axis 1), `words`, or `literal`, whose values are `values`.
    """

    dtype: str
    dims: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    known: bool = False
    holds: str = "uniform"
    values: tuple[Any, ...] = ()

    @property
    def element(self) -> DType:
        return dtype_named(self.dtype)

    def array(self, place: int) -> np.ndarray:
        """The contents, as operand number `place`."""
        rng = np.random.default_rng(zlib.crc32(repr((self, place)).encode()))
        if self.holds == "literal":
            return np.array(self.values).astype(self.element.numpy).reshape(self.dims)
        if self.holds == "words":
            return np.array(rng.choice(_WORDS, self.dims), object)
        if self.holds == "boxes":
            low, extent = rng.uniform(0, self.high, (2, *self.dims[:-1], 2))
            image = np.zeros((*self.dims[:-1], self.dims[-1] - 4))
            return np.concatenate([image, low, low + 0.1 * extent], -1).astype(self.element.numpy)
        if self.holds == "distinct":
            return self._distinct(rng)
        return random_array(self.element, self.dims, rng, self.low, self.high)

    def _distinct(self, rng: np.random.Generator) -> np.ndarray:
        """One position from each of as many stretches of equal length as there are elements, or places along axis 1."""
        among = math.prod(self.dims) if math.prod(self.dims) <= self.high else self.dims[1]
        stretch = int(self.high) // among
        begins = np.arange(among) * stretch
        shape = self.dims if among == math.prod(self.dims) else (among, *(1,) * (len(self.dims) - 2))
        return (begins.reshape(shape) + rng.integers(0, stretch, self.dims)).astype(self.element.numpy)


Operands = tuple[Operand | list[Operand] | None, ...]
"""In order; None is absent, a list is a sequence of tensors."""


def x(*dims: int, of: str = "float32", low: float = -2.0, high: float = 2.0) -> Operand:
    """An input of random values."""
    return Operand(of, dims, low, high)


def w(*dims: int, of: str = "float32", low: float = -0.1, high: float = 0.1) -> Operand:
    """A weight: random values that the model holds."""
    return Operand(of, dims, low, high, known=True)


def ids(below: int, *dims: int, of: str = "int64") -> Operand:
    """An input of positions from 0 on, below `below`."""
    return Operand(of, dims, 0, below - 1)


def distinct(below: int, *dims: int, of: str = "int64") -> Operand:
    """An input of positions that are different from each other, at least along axis 1."""
    return Operand(of, dims, 0, below, holds="distinct")


def boxes(*dims: int, high: float = 512.0) -> Operand:
    """An input of boxes [..., 4] by their corners, below `high` and a tenth of it large at most."""
    return Operand("float32", (*dims, 4), 0, high, holds="boxes")


def rois(count: int) -> Operand:
    """An input of boxes [count, 5] in the first image, as MaxRoiPool takes them."""
    return Operand("float32", (count, 5), 0, 512.0, holds="boxes")


def words(*dims: int) -> Operand:
    return Operand("string", dims, holds="words")


def k(*values: Any, of: str = "int64") -> Operand:
    """A vector of these values, which the model holds."""
    return Operand(of, (len(values),), known=True, holds="literal", values=values)


def one(value: Any, of: str = "int64") -> Operand:
    """A scalar that the model holds."""
    return Operand(of, (), known=True, holds="literal", values=(value,))


@dataclass(frozen=True)
class Row:
    """An operator with attributes, on operands of two sizes, the smaller first. `note` tells rows of one operator apart.

    `random` answers are not compared. `newest` is the opset to write the model in.
    """

    op: str
    sizes: tuple[Operands, Operands]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""
    note: str = ""
    random: bool = False
    opset: int = NEWEST_SHARED

    @property
    def label(self) -> str:
        return f"{self.op} {self.note}".strip()


def model_of(row: Row, size: int) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A model of the one node, and its feeds."""
    given = enumerate(row.sizes[size])
    feeds = {f"x{place}": _value(one, place) for place, one in given if one is not None and not _is_constant(one)}
    return model_alone(row, size), feeds


def model_alone(row: Row, size: int) -> onnx.ModelProto:
    """A model of the one node. What it is fed is not made."""
    given = row.sizes[size]
    names = tuple("" if operand is None else f"x{place}" for place, operand in enumerate(given))
    attributes = {name: _attribute(value) for name, value in row.attributes.items()}
    results = [f"y{n}" for n in range(row.outputs)]
    node = helper.make_node(row.op, names, results, domain=row.domain, **attributes)
    constants, inputs = [], []
    for place, (name, operand) in enumerate(zip(names, given, strict=True)):
        if operand is None:
            continue
        if _is_constant(operand):
            constants.append(tensor_to_proto(_value(operand, place), name))
        else:
            inputs.append(onnx.ValueInfoProto(name=name, type=type_to_proto(_type(operand))))
    outputs = [onnx.ValueInfoProto(name=name) for name in results]
    graph = helper.make_graph([node], "operator", inputs, outputs, constants)
    imports = [helper.make_opsetid("", row.opset)]
    if row.domain:
        version = max(schema.since_version for schema in onnx.defs.get_all_schemas() if schema.domain == row.domain)
        imports.append(helper.make_opsetid(row.domain, version))
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _is_constant(operand: Operand | Sequence[Operand]) -> bool:
    return isinstance(operand, Operand) and operand.known


def _attribute(value: Any) -> Any:
    """A text that begins like a graph in ONNX's textual form is that graph; arrays are tensors."""
    if isinstance(value, str) and value.startswith("body "):
        return onnx.parser.parse_graph(value)
    return tensor_to_proto(value) if isinstance(value, np.ndarray) else value


def _value(operand: Operand | Sequence[Operand], place: int) -> Any:
    if isinstance(operand, Operand):
        return operand.array(place)
    return [part.array(100 * place + number) for number, part in enumerate(operand)]


def _type(operand: Operand | Sequence[Operand]) -> ValueType:
    if isinstance(operand, Operand):
        return TensorType(operand.element, operand.dims)
    return SequenceType(TensorType(operand[0].element, None))
