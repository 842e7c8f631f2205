"""Activations, with what is added before them, and dropout, which at inference is what is added."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from fusewise.frontend.domains.row import DomainCall, DomainRow, Written, integer, real
from fusewise.frontend.domains.writer import DomainValue, DomainWriter
from fusewise.ir.dtypes import FLOAT32

__all__ = ["ACTIVATIONS", "activated"]

Activation = Callable[..., DomainValue]

_ACTIVATIONS: Mapping[str, tuple[int, Activation]] = MappingProxyType(
    {
        "Clip": (2, lambda g, x, low, high: g.Clip(x, low, high)),
        "Elu": (1, lambda g, x, alpha: g.Elu(x, alpha=alpha)),
        "Gelu": (0, lambda g, x: g.Gelu(x)),
        "HardSigmoid": (2, lambda g, x, alpha, beta: g.HardSigmoid(x, alpha=alpha, beta=beta)),
        "HardSwish": (0, lambda g, x: g.HardSwish(x)),
        "LeakyRelu": (1, lambda g, x, alpha: g.LeakyRelu(x, alpha=alpha)),
        "ParametricSoftplus": (2, lambda g, x, alpha, beta: g.Softplus(x * beta) * alpha),
        "Relu": (0, lambda g, x: g.Relu(x)),
        "ScaledTanh": (2, lambda g, x, alpha, beta: g.Tanh(x * beta) * alpha),
        "Selu": (2, lambda g, x, alpha, gamma: g.Selu(x, alpha=alpha, gamma=gamma)),
        "Sigmoid": (0, lambda g, x: g.Sigmoid(x)),
        "Silu": (0, lambda g, x: x * g.Sigmoid(x)),
        "Softplus": (0, lambda g, x: g.Softplus(x)),
        "Softsign": (0, lambda g, x: g.Softsign(x)),
        "Tanh": (0, lambda g, x: g.Tanh(x)),
        "ThresholdedRelu": (1, lambda g, x, alpha: g.ThresholdedRelu(x, alpha=alpha)),
    }
)
"""Activations that other operators name, and how many parameters each has."""


def activated(
    g: DomainWriter, call: DomainCall, x: DomainValue, name: str | None, parameters: Sequence[float]
) -> DomainValue:
    """`x` under an activation by name, of which ONNX Runtime's fusions leave those in `_ACTIVATIONS`."""
    if not name:
        return x
    if name not in _ACTIVATIONS:
        raise call.unsupported(f"its activation {name!r} is not one of {', '.join(_ACTIVATIONS)}")
    count, function = _ACTIVATIONS[name]
    if len(parameters) != count:
        raise call.invalid(f"its activation {name} has {count} parameters, not {len(parameters)}")
    return function(g, x, *parameters)


def _gelu(g: DomainWriter, call: DomainCall) -> DomainValue:
    return g.Gelu(call["X"])


def _bias_gelu(g: DomainWriter, call: DomainCall) -> DomainValue:
    return g.Gelu(call["A"] + call["B"])


def _fast_gelu(g: DomainWriter, call: DomainCall) -> DomainValue:
    return g.Gelu(g.total(call["X"], call.get("bias")), approximate="tanh")


def _quick_gelu(g: DomainWriter, call: DomainCall) -> DomainValue:
    return call["X"] * g.Sigmoid(call["X"] * call.attribute("alpha"))


def _scaled_silu(g: DomainWriter, call: DomainCall) -> DomainValue:
    x, scale = call["X"], call.get("scale")
    scaled = x * call.attribute("alpha") if scale is None else x * g.cast(scale, x.dtype)
    return scaled * g.Sigmoid(scaled)


def _bias_split_gelu(g: DomainWriter, call: DomainCall) -> DomainValue:
    left, right = g.several("Split", 2, call["X"] + call["bias"], axis=-1, num_outputs=2)
    return left * g.Gelu(right)


def _bias_add(g: DomainWriter, call: DomainCall) -> DomainValue:
    return call["X"] + call["bias"] + call["skip"]


def _bias_softmax(g: DomainWriter, call: DomainCall) -> DomainValue:
    """Softmax over all axes from `axis` on."""
    total = call["data"] + call["bias"]
    axis = call.attribute("axis") % total.rank
    if axis == total.rank - 1:
        return g.Softmax(total, axis=-1)
    return g.reshape(g.Softmax(g.flat(total, axis), axis=-1), g.sizes(total))


def _bias_dropout(g: DomainWriter, call: DomainCall) -> Written:
    total = call["data"] + call["bias"]
    y, mask = g.several("Dropout", 2, total, call.get("ratio"), call.get("training_mode"), seed=call.attribute("seed"))
    return g.total(y, call.get("residual")), mask


def _bitmask_dropout(g: DomainWriter, call: DomainCall) -> Written:
    return g.Dropout(call["data"], call.get("ratio"), call.get("training_mode"), seed=call.attribute("seed")), None


def _bitmask_bias_dropout(g: DomainWriter, call: DomainCall) -> Written:
    return *tuple(_bias_dropout(g, call) or ())[:1], None  # type: ignore[arg-type]


def _linear_attention_gate(g: DomainWriter, call: DomainCall) -> Written:
    """In float32: exp(decay) within the recurrence enlarges what is lost."""
    a, b = call["a"], call.get("b")
    decay = g.Softplus(g.cast(a, FLOAT32) + call["dt_bias"]) * call["decay_scale"]
    return g.cast(decay, a.dtype), None if b is None else g.cast(g.Sigmoid(g.cast(b, FLOAT32)), a.dtype)


ACTIVATIONS: tuple[DomainRow, ...] = (
    DomainRow("Gelu", _gelu, ("X",), outputs=("Y",)),
    DomainRow("BiasGelu", _bias_gelu, ("A", "B"), outputs=("C",), shapes="... H, H"),
    DomainRow("FastGelu", _fast_gelu, ("X", "bias?"), outputs=("Y",), shapes="... H, H"),
    DomainRow("QuickGelu", _quick_gelu, ("X",), (real("alpha", 1.702),), ("Y",)),
    DomainRow("ScaledSiLU", _scaled_silu, ("X", "scale?"), (real("alpha", 1.0),), ("Y",), shapes="..., one"),
    DomainRow("BiasSplitGelu", _bias_split_gelu, ("X", "bias"), outputs=("Y",), shapes="... H, H"),
    DomainRow("BiasAdd", _bias_add, ("X", "bias", "skip"), outputs=("Y",), shapes="*S H, H, *S H"),
    DomainRow("BiasSoftmax", _bias_softmax, ("data", "bias"), (integer("axis", 1), integer("is_inner_broadcast"))),
    DomainRow(
        "BiasDropout",
        _bias_dropout,
        ("data", "bias", "residual?", "ratio?", "training_mode?"),
        (integer("seed", None),),
        ("output", "mask?"),
    ),
    DomainRow(
        "BitmaskBiasDropout",
        _bitmask_bias_dropout,
        ("data", "bias", "residual?", "ratio?", "training_mode?"),
        (integer("seed", None),),
        ("output", "mask?"),
    ),
    DomainRow(
        "BitmaskDropout",
        _bitmask_dropout,
        ("data", "ratio?", "training_mode?"),
        (integer("seed", None),),
        ("output", "mask?"),
    ),
    DomainRow(
        "LinearAttentionGate",
        _linear_attention_gate,
        ("a", "dt_bias", "decay_scale", "b?"),
        outputs=("decay", "beta?"),
        shapes="*S H, H, H, *S H",
    ),
)
