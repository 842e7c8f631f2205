"""Texts as ONNX Runtime takes and gives them: arrays of objects that are `str`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fusewise.ir.types import OptionalType, SequenceType, TensorType, ValueType

__all__ = ["has_texts", "texts_in", "texts_out"]


def has_texts(kinds: Iterable[ValueType]) -> bool:
    """Does one of them hold tensors of texts?"""
    return any(_is_text(kind) for kind in kinds)


def _is_text(kind: ValueType) -> bool:
    if isinstance(kind, SequenceType | OptionalType):
        return _is_text(kind.element)
    return isinstance(kind, TensorType) and kind.dtype.kind == "string"


def texts_in(kinds: Mapping[str, ValueType], feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs by name, those of texts as arrays of `str`: other elements are written as texts, bytes read as UTF-8."""
    return {
        name: _as_texts(value)
        if name in kinds and isinstance(kinds[name], TensorType) and _is_text(kinds[name])
        else value
        for name, value in feeds.items()
    }


def _as_texts(value: Any) -> np.ndarray:
    array = np.asarray(value)
    flat = [
        one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one) for one in array.reshape(-1).tolist()
    ]
    made = np.empty(array.shape, object)
    made.reshape(-1)[:] = flat
    return made


def texts_out(results: list[Any]) -> list[Any]:
    """Results, those of texts as arrays of objects."""
    return [texts_out(one) if isinstance(one, list) else _plain(one) for one in results]


def _plain(value: Any) -> Any:
    return value.astype(object) if isinstance(value, np.ndarray) and value.dtype.kind in "US" else value
