"""Activations by name: the nodes each is written with, and its values, from which its spread follows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from fusewise.zoo.net import Net, spread_through

__all__ = ["activate"]


def activate(net: Net, x: str, kind: str | None) -> str:
    """Apply the activation called `kind`, a key of the table below; None applies nothing."""
    if kind is None:
        return x
    write, values = _ACTIVATIONS[kind]
    return net.record(write(net, x), spread_through(net.spread(x), values))


def _single(op: str, **attributes: float | str) -> Callable[[Net, str], str]:
    def write(net: Net, x: str) -> str:
        y: str = net.builder.op(op, x, **attributes)
        return y

    return write


def _relu6(net: Net, x: str) -> str:
    b = net.builder
    y: str = b.op("Clip", x, b.constant(0.0, "zero"), b.constant(6.0, "six"))
    return y


def _silu(net: Net, x: str) -> str:
    y: str = net.builder.op("Mul", x, net.builder.op("Sigmoid", x))
    return y


def _hard_sigmoid(net: Net, x: str) -> str:
    b = net.builder
    if not net.decomposed:
        y: str = b.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)
        return y
    shifted = b.op("Clip", b.op("Add", x, b.constant(3.0, "three")), b.constant(0.0, "zero"), b.constant(6.0, "six"))
    y = b.op("Div", shifted, b.constant(6.0, "six"))
    return y


def _hard_swish(net: Net, x: str) -> str:
    y: str = net.builder.op("Mul", x, _hard_sigmoid(net, x)) if net.decomposed else net.builder.op("HardSwish", x)
    return y


def _mish(net: Net, x: str) -> str:
    b = net.builder
    y: str = b.op("Mul", x, b.op("Tanh", b.op("Softplus", x))) if net.decomposed else b.op("Mish", x)
    return y


def _gelu(net: Net, x: str) -> str:
    """x / 2 (1 + erf(x / sqrt 2)), as PyTorch's exporter wrote it before opset 20."""
    b = net.builder
    if not net.decomposed:
        y: str = b.op("Gelu", x)
        return y
    curve = b.op("Erf", b.op("Div", x, b.constant(math.sqrt(2), "root")))
    lifted = b.op("Mul", x, b.op("Add", curve, b.constant(1.0, "one")))
    y = b.op("Mul", lifted, b.constant(0.5, "half"))
    return y


def _gelu_tanh(net: Net, x: str) -> str:
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as GPT-2's own code has it."""
    b = net.builder
    if not net.decomposed:
        y: str = b.op("Gelu", x, approximate="tanh")
        return y
    cubed = b.op("Mul", b.op("Pow", x, b.constant(3.0, "cube")), b.constant(0.044715, "slope"))
    inner = b.op("Mul", b.op("Add", x, cubed), b.constant(math.sqrt(2 / math.pi), "root"))
    lifted = b.op("Add", b.op("Tanh", inner), b.constant(1.0, "one"))
    y = b.op("Mul", b.op("Mul", x, b.constant(0.5, "half")), lifted)
    return y


def _values_of_sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _values_of_gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


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
