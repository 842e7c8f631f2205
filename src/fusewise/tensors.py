"""PyTorch's tensors as NumPy arrays, and back, in the same memory wherever both can say what lies there."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

__all__ = ["array_of", "is_tensor", "tensor_of"]


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
    if plain.dtype is torch.bfloat16:  # NumPy has no such type of its own
        import ml_dtypes

        return np.asarray(plain.view(torch.int16).numpy()).view(ml_dtypes.bfloat16)
    return np.asarray(plain.numpy(force=plain.is_neg() or plain.is_conj()))


def tensor_of(array: Any) -> Any:
    """An array as a tensor that shares its memory. One that may not be written to is copied; what is no array stays as it is."""
    import torch

    if not isinstance(array, np.ndarray):
        return array
    if not array.flags.writeable:
        array = array.copy()
    if array.dtype.kind == "V" and array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    tensor = torch.from_numpy(array)
    return tensor if array.size else torch.empty(array.shape, dtype=tensor.dtype)  # which has other strides
