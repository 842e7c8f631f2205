"""The cross entropy of a softmax, by its logarithms; what is narrower than float32 is computed in float32."""

from __future__ import annotations

from fusewise.ir.dtypes import FLOAT32
from fusewise.ops.spec import Call
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["LOSSES"]


def _cross_entropy(
    g: Notation, call: Call, x: TensorValue, target: TensorValue, weight: TensorValue | None = None
) -> tuple[TensorValue, ...]:
    wide = FLOAT32 if x.dtype.bits < 32 else x.dtype
    x_wide = g.cast(x, wide)
    asked = len(call.outputs) > 1 and call.outputs[1] is not None
    # a logarithm that only its loss is taken of is not worth storing with all the others
    logarithms = g.LogSoftmax(x_wide, axis=1) if asked else x_wide - g.ReduceLogSumExp(x_wide, [1], keepdims=1)
    weight = None if weight is None else g.cast(weight, wide)
    loss = g.NegativeLogLikelihoodLoss(logarithms, target, weight, **dict(call.node.attributes))
    return (g.cast(loss, x.dtype), *((g.cast(logarithms, x.dtype),) if asked else ()))


LOSSES: tuple[Decomposition, ...] = (row("SoftmaxCrossEntropyLoss", _cross_entropy),)
