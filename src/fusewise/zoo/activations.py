"""Activations by name: the nodes each is written with, and its values for the probe."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from fusewise.zoo.net import Net

__all__ = ["activate"]


def activate(net: Net, x: str, kind: str | None) -> str:
    """Apply the activation called `kind`, a key of the table below; None applies nothing."""
    if kind is None:
        return x
    write, values = _ACTIVATIONS[kind]
    return net.follow(write(net, x), (x,), values)


def _single(op: str, **attributes: float) -> Callable[[Net, str], str]:
    def write(net: Net, x: str) -> str:
        return net.op(op, x, name="", **attributes)

    return write


def _relu6(net: Net, x: str) -> str:
    return net.op("Clip", x, net.constant(0.0, "zero"), net.constant(6.0, "six"))


def _silu(net: Net, x: str) -> str:
    return net.op("Mul", x, net.op("Sigmoid", x))


def _hard_sigmoid(net: Net, x: str) -> str:
    if not net.decomposed:
        return net.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)
    shifted = net.op(
        "Clip", net.op("Add", x, net.constant(3.0, "three")), net.constant(0.0, "zero"), net.constant(6.0, "six")
    )
    return net.op("Div", shifted, net.constant(6.0, "six"))


def _hard_swish(net: Net, x: str) -> str:
    return net.op("Mul", x, _hard_sigmoid(net, x)) if net.decomposed else net.op("HardSwish", x)


def _mish(net: Net, x: str) -> str:
    return net.op("Mul", x, net.op("Tanh", net.op("Softplus", x))) if net.decomposed else net.op("Mish", x)


def _gelu(net: Net, x: str) -> str:
    """x / 2 (1 + erf(x / sqrt 2)), as PyTorch's exporter wrote it before opset 20."""
    if not net.decomposed:
        return net.op("Gelu", x)
    curve = net.op("Erf", net.op("Div", x, net.constant(math.sqrt(2), "root")))
    lifted = net.op("Mul", x, net.op("Add", curve, net.constant(1.0, "one")))
    return net.op("Mul", lifted, net.constant(0.5, "half"))


def _gelu_tanh(net: Net, x: str) -> str:
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as GPT-2's own code has it."""
    if not net.decomposed:
        return net.op("Gelu", x, approximate="tanh")
    cubed = net.op("Mul", net.op("Pow", x, net.constant(3.0, "cube")), net.constant(0.044715, "slope"))
    inner = net.op("Mul", net.op("Add", x, cubed), net.constant(math.sqrt(2 / math.pi), "root"))
    lifted = net.op("Add", net.op("Tanh", inner), net.constant(1.0, "one"))
    return net.op("Mul", net.op("Mul", x, net.constant(0.5, "half")), lifted)


def _values_of_sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def _values_of_gelu(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def _values_of_hard_sigmoid(x: np.ndarray) -> np.ndarray:
    return np.clip(x / 6 + 0.5, 0, 1)


_ACTIVATIONS: Mapping[str, tuple[Callable[[Net, str], str], Callable[[np.ndarray], np.ndarray]]] = MappingProxyType(
    {
        "relu": (_single("Relu"), lambda x: np.maximum(x, 0)),
        "relu6": (_relu6, lambda x: np.clip(x, 0, 6)),
        "leaky_relu": (_single("LeakyRelu", alpha=0.1), lambda x: np.maximum(x, 0.1 * x)),
        "sigmoid": (_single("Sigmoid"), _values_of_sigmoid),
        "tanh": (_single("Tanh"), np.tanh),
        "silu": (_silu, lambda x: x * _values_of_sigmoid(x)),
        "hard_sigmoid": (_hard_sigmoid, _values_of_hard_sigmoid),
        "hard_swish": (_hard_swish, lambda x: x * _values_of_hard_sigmoid(x)),
        "mish": (_mish, lambda x: x * np.tanh(np.logaddexp(0, x))),
        "gelu": (_gelu, _values_of_gelu),
        "gelu_tanh": (_gelu_tanh, _values_of_gelu),
    }
)
