"""Recurrences that no kernel runs: of floats of 16 bits in float32, and of no steps or samples, whose states are zero."""

from __future__ import annotations

from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.types import TensorType
from fusewise.ops.spec import Call
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["RECURRENCES"]

LENGTHS = 4
"""Which operand says how long samples are."""


def _recurrence(g: Notation, call: Call, *operands: TensorValue | None) -> tuple[TensorValue, ...] | None:
    x = operands[0]
    assert x is not None
    if 0 in x.dims[:2]:
        kinds = [kind if isinstance(kind, TensorType) else x.kind for kind in call.outputs]
        return tuple(g.fill(0, kind.dims, kind.dtype) for kind in kinds)
    if x.dtype.bits >= 32:
        return None
    wide = [y if y is None or k == LENGTHS else g.cast(y, FLOAT32) for k, y in enumerate(operands)]
    found = g.several(call.node.op, len(call.outputs), *wide, **dict(call.node.attributes))
    return tuple(g.cast(y, x.dtype) for y in found)


RECURRENCES: tuple[Decomposition, ...] = tuple(row(op, _recurrence) for op in ("LSTM", "GRU", "RNN"))
