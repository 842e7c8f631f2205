"""What is known of an operator: one frozen row each.

A row adds only what ONNX lacks: how elements map along each operand, what it costs, its algebra, and the definition of
one output element. Types, truth and text come from the `onnx` package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np

from fusewise.ir.graph import Constant, Node
from fusewise.ir.types import TensorType, ValueType
from fusewise.ops.expr import Expr, load
from fusewise.records import record

__all__ = ["ANCHOR_FAMILIES", "WHOLE_FAMILIES", "Call", "Mapping", "NotDefined", "OpSpec", "Sample"]


ANCHOR_FAMILIES = frozenset(
    "matmul matmul_integer gemm conv conv_integer conv_transpose max_pool average_pool lp_pool softmax log_softmax layer_norm"
    " group_norm instance_norm rms_norm lp_norm attention sampled".split()
)
"""Kernel families that have something better than their element definition; one such node anchors a group."""

WHOLE_FAMILIES = frozenset("forest linear_attention recurrence roi_pool scan scatter top_k".split())
"""Kernel families of nodes that are one task each, whether they have a definition or not: they join no group."""


class Mapping(IntEnum):
    """How output elements relate to an operand's elements, ordered by complexity (DNNFusion, table 2)."""

    ONE_TO_ONE = 0
    REORGANIZE = 1
    SHUFFLE = 2
    ONE_TO_MANY = 3
    MANY_TO_MANY = 4
    OPAQUE = 5


class NotDefined(Exception):
    """Raised by a definition for a case it does not cover; the text says which, and becomes the reason in events."""


@record(frozen=True)
class Call:
    """One application of an operator, as rows see it: the node, its types, and the constants among its inputs.

    `inputs[i]` is None for an absent operand. `constants[i]` is the array when the operand is known, or a constant whose array
    is read when somebody asks for it, else None.
    """

    node: Node
    inputs: tuple[ValueType | None, ...]
    outputs: tuple[ValueType | None, ...]
    constants: tuple[np.ndarray | Constant | None, ...] = ()

    @cached_property
    def is_static(self) -> bool:
        """Are the shapes of all operands and outputs known? Operands that are not tensors count as unknown."""
        return all(isinstance(t, TensorType) and t.is_static for t in self.inputs + self.outputs if t is not None)

    @cached_property
    def without_arithmetic(self) -> str:
        """The first dtype among operands and outputs that code has no form for: strings, complex numbers; empty for none."""
        kinds = (t.dtype for t in self.inputs + self.outputs if isinstance(t, TensorType))
        return next((dtype.name for dtype in kinds if dtype.kind in ("string", "complex")), "")

    @cached_property
    def narrow(self) -> str:
        """The first dtype among operands and outputs that is a float of a byte or less, which code moves and converts, but does
        not compute in; empty for none."""
        kinds = (t.dtype for t in self.inputs + self.outputs if isinstance(t, TensorType))
        return next((dtype.name for dtype in kinds if dtype.is_float and dtype.bits <= 8), "")

    def attribute(self, name: str, default: Any = None) -> Any:
        return self.node.attribute(name, default)

    def single(self, name: str, default: float) -> float:
        """An attribute that is a number, in float32 as ONNX keeps it."""
        return float(np.float32(self.attribute(name, default)))

    def has(self, i: int) -> bool:
        """Is operand `i` present?"""
        return i < len(self.inputs) and self.inputs[i] is not None

    def input(self, i: int) -> TensorType:
        """The tensor type of operand `i`."""
        kind = self.inputs[i]
        if not isinstance(kind, TensorType):
            raise NotDefined(f"operand {i} of {self.node.op} is not a tensor")
        return kind

    def output(self, i: int = 0) -> TensorType:
        """The tensor type of output `i`."""
        kind = self.outputs[i]
        if not isinstance(kind, TensorType):
            raise NotDefined(f"output {i} of {self.node.op} is not a tensor")
        return kind

    def is_known(self, i: int) -> bool:
        """Are the contents of operand `i` known? Asking does not read them."""
        return i < len(self.constants) and self.constants[i] is not None

    def constant(self, i: int) -> np.ndarray | None:
        """The contents of operand `i` when they are known."""
        found = self.constants[i] if i < len(self.constants) else None
        return found.array if isinstance(found, Constant) else found

    def known(self, i: int) -> np.ndarray:
        """The contents of operand `i`; `NotDefined` when they are not known."""
        found = self.constant(i)
        if found is None:
            raise NotDefined(f"operand {i} of {self.node.op} is not constant")
        return found

    def at(self, i: int, *indices: Expr | int) -> Expr:
        """The element of operand `i` at an index; the operand is named by its position until lowering binds it."""
        kind = self.input(i)
        assert len(indices) == kind.rank, (self.node.op, i, indices)
        return load(f"#{i}", kind.dtype, indices)


@record(frozen=True)
class Sample:
    """One example of an operator for the sweeps: operand types or arrays, and attributes.

    An operand given as `(dtype name, shape)` is filled with random values; an array is used as it is and is constant;
    None is absent. `low` and `high` bound random values, `outputs` is how many outputs to ask for.
    """

    inputs: tuple[tuple[str, tuple[int, ...]] | np.ndarray | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    low: float = -2.0
    high: float = 2.0


@record(frozen=True)
class OpSpec:
    """One operator.

    - `mapping(call)`: a `Mapping` per operand, in order (types per edge).
    - `flops(call)`: arithmetic operations of one application; a multiply-accumulate is two, a copy none.
    - `scalar(call, *operands)`: the output element from the aligned operand elements, for elementwise operators;
    broadcast
      is added by the caller. Absent operands arrive as None.
    - `define(call, output, index)`: the output element at `index` (one expression per dimension of output number
    `output`), for the
      others. May raise `NotDefined`.
    - `family`: the kernel family that has a better way than the definition (`matmul gemm conv pool softmax norm ...`), or none
    beside it (`WHOLE_FAMILIES`).
    - `flags`: `associative`, `commutative`, `linear`, `idempotent`; `copy` for rows that only move elements, `narrow` for those
      that take floats of a byte or less as they are, `chooses` for anchors one of whose operands holds positions, int64;
      `distributes_over` names operators.
    - `shaped_by`: operands whose contents decide the shape of the result. Where they are not known the shape is only what the model
      says, which need not hold, and nothing is defined.
    """

    name: str
    mapping: Callable[[Call], tuple[Mapping, ...]]
    flops: Callable[[Call], int]
    domain: str = ""
    scalar: Callable[..., Expr] | None = None
    define: Callable[[Call, int, tuple[Expr, ...]], Expr] | None = None
    family: str = ""
    flags: frozenset[str] = frozenset()
    distributes_over: tuple[str, ...] = ()
    shaped_by: tuple[int, ...] = ()
    samples: tuple[Sample, ...] = ()
