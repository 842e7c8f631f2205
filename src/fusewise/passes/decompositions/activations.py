"""Activations written with elementary functions, such that nothing overflows where the activation does not.

What grows without bound is taken of Min(x, 0): where another branch is chosen, its value is no obstacle, nor is its slope.
"""

from __future__ import annotations

import math

from fusewise.ops.spec import Call
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["ACTIVATIONS"]

_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875


def _gelu(g: Notation, call: Call, x: TensorValue) -> TensorValue:
    if call.attribute("approximate", "none") == "tanh":
        return x * 0.5 * (1 + g.Tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))
    return x * 0.5 * (1 + g.Erf(x * math.sqrt(0.5)))


def _below_zero(g: Notation, x: TensorValue, below: TensorValue) -> TensorValue:
    return g.Where(g.Less(x, 0), below, x)


def _grown(g: Notation, x: TensorValue, alpha: float = 1.0) -> TensorValue:
    """exp(x / alpha) - 1 below zero, and 0 above."""
    held = g.Min(x, 0)
    return g.Exp(held if alpha == 1 else held / alpha) - 1


def _elu(g: Notation, call: Call, x: TensorValue) -> TensorValue:
    return _below_zero(g, x, call.attribute("alpha", 1.0) * _grown(g, x))


def _celu(g: Notation, call: Call, x: TensorValue) -> TensorValue:
    alpha = call.attribute("alpha", 1.0)
    return _below_zero(g, x, alpha * _grown(g, x, alpha))


def _selu(g: Notation, call: Call, x: TensorValue) -> TensorValue:
    alpha: float = call.attribute("alpha", _SELU_ALPHA)
    gamma: float = call.attribute("gamma", _SELU_GAMMA)
    return gamma * _below_zero(g, x, alpha * _grown(g, x))


def _shrink(g: Notation, call: Call, x: TensorValue) -> TensorValue:
    bound, bias = call.attribute("lambd", 0.5), call.attribute("bias", 0.0)
    return g.Where(g.Less(x, -bound), x + bias, g.Where(g.Greater(x, bound), x - bias, 0))


def _log_softmax(g: Notation, call: Call, x: TensorValue) -> TensorValue:
    axes = [call.attribute("axis", -1) % max(x.rank, 1)]
    shifted = x - g.ReduceMax(x, axes, keepdims=1)
    return shifted - g.Log(g.sum(g.Exp(shifted), axes))


ACTIVATIONS: tuple[Decomposition, ...] = (
    row("Gelu", _gelu),
    row("HardSigmoid", lambda g, call, x: g.Clip(call.attribute("alpha", 0.2) * x + call.attribute("beta", 0.5), 0, 1)),
    row("HardSwish", lambda g, call, x: x * g.Clip(x / 6 + 0.5, 0, 1)),
    row("Mish", lambda g, call, x: x * g.Tanh(g.Softplus(x))),
    row("Swish", lambda g, call, x: x * g.Sigmoid(call.attribute("alpha", 1.0) * x)),
    row("Softplus", lambda g, call, x: g.Max(x, 0) + g.Log(1 + g.Exp(-g.Abs(x)))),
    row("Softsign", lambda g, call, x: x / (1 + g.Abs(x))),
    row("LeakyRelu", lambda g, call, x: _below_zero(g, x, call.attribute("alpha", 0.01) * x)),
    row("PRelu", lambda g, call, x, slope: _below_zero(g, x, slope * x)),
    row("Elu", _elu),
    row("Celu", _celu),
    row("Selu", _selu),
    row("ThresholdedRelu", lambda g, call, x: g.Where(g.Greater(x, call.attribute("alpha", 1.0)), x, 0)),
    row("Shrink", _shrink),
    row("LogSoftmax", _log_softmax),
)
