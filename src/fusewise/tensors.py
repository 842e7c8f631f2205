"""PyTorch's tensors as NumPy arrays, and back, in the same memory wherever both can say what lies there."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["array_of", "is_tensor", "tensor_like", "tensor_of"]

_SEEN_AS: Mapping[str, str] = {
    "bfloat16": "int16",
    "float8_e4m3fn": "uint8",
    "float8_e4m3fnuz": "uint8",
    "float8_e5m2": "uint8",
    "float8_e5m2fnuz": "uint8",
    "float8_e8m0fnu": "uint8",
}
"""Types that NumPy has not of its own, and what is as wide."""


def is_tensor(value: Any) -> bool:
    """Is it a tensor of PyTorch? Does not load PyTorch: where nobody has, nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def array_of(tensor: Any) -> np.ndarray:
    """A tensor on the processor as an array that shares its memory, with its shape, strides and element type.

    Gradients are left aside. What only looks conjugated or negated is written out, and so is a copy.
    """
    import torch

    plain = tensor.detach() if tensor.requires_grad else tensor
    if plain.dtype.itemsize <= 2 and (bits := _SEEN_AS.get(name := str(plain.dtype).removeprefix("torch."))):
        import ml_dtypes

        return np.asarray(plain.view(getattr(torch, bits)).numpy()).view(getattr(ml_dtypes, name))
    return np.asarray(plain.numpy(force=plain.is_neg() or plain.is_conj()))


def tensor_of(array: Any) -> Any:
    """An array as a tensor that shares its memory. One that may not be written to is copied; what is no array stays as it is."""
    import torch

    if not isinstance(array, np.ndarray):
        return array
    if not array.flags.writeable:
        array = array.copy()
    if array.dtype.isbuiltin != 1 and (bits := _SEEN_AS.get(name := array.dtype.name)):
        tensor = torch.from_numpy(array.view(bits)).view(getattr(torch, name))
    else:
        tensor = torch.from_numpy(array)
    return tensor if array.size else torch.empty(array.shape, dtype=tensor.dtype)  # which has other strides


def tensor_like(shape: Sequence[int], dtype: str, other: Any) -> Any:
    """A new tensor on the device of an `other`, of a type that NumPy or ml_dtypes calls `dtype`; contents undefined."""
    import torch

    return torch.empty(tuple(shape), dtype=getattr(torch, dtype), device=other.device)
