"""What operators that ONNX Runtime lacks are measured against: the same by PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["OTHERS", "Other"]

Other = Callable[..., Any]
"""Takes the row's attributes, then its operands as tensors of PyTorch; gives a result, or several."""


def _causal_conv(attributes: Mapping[str, Any], data: Any, weight: Any, bias: Any, past: Any) -> Any:
    import torch

    whole = torch.cat([past, data], -1)
    return torch.nn.functional.conv1d(whole, weight, bias, groups=len(weight)), whole[..., -past.shape[-1] :].clone()


def _linear_attention(attributes: Mapping[str, Any], query: Any, key: Any, value: Any) -> Any:
    heads = attributes["kv_num_heads"]
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (query, key, value))
    scores = (q @ k.mT / q.shape[-1] ** 0.5).tril()
    return (scores @ v).transpose(1, 2).flatten(2), k.mT @ v


def _flex(attributes: Mapping[str, Any], *operands: Any) -> Any:
    import torch

    return torch.nn.functional.scaled_dot_product_attention(*operands)


def _adagrad(attributes: Mapping[str, Any], rate: Any, step: Any, x: Any, g: Any, h: Any) -> Any:
    squares = h + g * g
    return x - rate * g / (squares.sqrt() + 1e-6), squares


def _adam(attributes: Mapping[str, Any], rate: Any, step: Any, x: Any, g: Any, v: Any, h: Any) -> Any:
    first, second = 0.9 * v + (1 - 0.9) * g, 0.999 * h + (1 - 0.999) * g * g
    adjusted = rate * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step)
    return x - adjusted * first / (second.sqrt() + 1e-6), first, second


def _momentum(attributes: Mapping[str, Any], rate: Any, step: Any, x: Any, g: Any, v: Any) -> Any:
    regular = attributes["norm_coefficient"] * x + g
    velocity = attributes["alpha"] * v + attributes["beta"] * regular
    return x - rate * velocity, velocity


def _swish(attributes: Mapping[str, Any], data: Any) -> Any:
    import torch

    return torch.nn.functional.silu(data)


def _swiglu(attributes: Mapping[str, Any], gate: Any, value: Any) -> Any:
    import torch

    return torch.nn.functional.silu(gate) * value


OTHERS: Mapping[tuple[str, str], Other] = {
    ("", "CausalConvWithState"): _causal_conv,
    ("", "LinearAttention"): _linear_attention,
    ("", "SwiGLU"): _swiglu,
    ("", "Swish"): _swish,
    ("ai.onnx.preview", "FlexAttention"): _flex,
    ("ai.onnx.preview.training", "Adagrad"): _adagrad,
    ("ai.onnx.preview.training", "Adam"): _adam,
    ("ai.onnx.preview.training", "Momentum"): _momentum,
}
"""By domain and operator. What ONNX Runtime has as a function of other operators is measured against that."""
