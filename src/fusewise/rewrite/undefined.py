"""What an operation on fractions without a result gives, and functions of elements that keep it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["UNDEFINED", "elementwise"]


class _Undefined:
    """What an operation without a result gives; any arithmetic with it gives it again."""

    def __repr__(self) -> str:
        return "undefined"


UNDEFINED = _Undefined()


def elementwise(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """An elementwise function on fractions as one on object arrays that keeps what is undefined."""

    def one(*x: Any) -> Any:
        return UNDEFINED if any(each is UNDEFINED for each in x) else function(*x)

    def every(*arrays: np.ndarray) -> np.ndarray:
        return np.asarray(np.frompyfunc(one, len(arrays), 1)(*arrays), dtype=object)

    return every
