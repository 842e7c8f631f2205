"""Arithmetic operations of a call, and of an expression: the functions that rows name in `OpSpec.flops`.

Every operation of the expression vocabulary counts one, transcendental or not; a multiply-accumulate is two; copies,
casts, selections and index arithmetic are free.
"""

from __future__ import annotations

from collections.abc import Callable

from fusewise.ir.types import TensorType
from fusewise.ops.expr import BINARY, COMPARE, UNARY, Expr, const, load, walk
from fusewise.ops.indexing import compute_type
from fusewise.ops.spec import Call, NotDefined

__all__ = ["ARITHMETIC", "FlopsRule", "free", "of_scalar", "operations", "per_input", "per_output"]

FlopsRule = Callable[[Call], int]

ARITHMETIC = UNARY | BINARY | COMPARE
"""What counts as an operation."""


def free(call: Call) -> int:
    """Copies and index changes cost no arithmetic."""
    return 0


def per_output(count: int) -> FlopsRule:
    """`count` operations for each element of output 0."""
    return lambda call: count * call.output().size


def per_input(count: int) -> FlopsRule:
    """`count` operations for each element of operand 0."""
    return lambda call: count * call.input(0).size


def operations(body: Expr) -> int:
    """Distinct operations of an expression without reductions."""
    return sum(node.op in ARITHMETIC for node in walk(body))


def of_scalar(scalar: Callable[..., Expr]) -> FlopsRule:
    """Operations of a scalar body for each element of output 0; strings and other undefined types cost nothing."""

    def rule(call: Call) -> int:
        operands = tuple(
            load(f"#{i}", compute_type(kind.dtype), (const(0),)) if isinstance(kind, TensorType) else None
            for i, kind in enumerate(call.inputs)
        )
        try:
            return call.output().size * operations(scalar(call, *operands))
        except NotDefined:
            return 0

    return rule
