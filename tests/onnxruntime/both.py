"""The same use of ONNX Runtime and of what stands in its place, side by side."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fusewise.onnxruntime as ours

theirs = pytest.importorskip("onnxruntime")

Use = Callable[[ModuleType], Any]


def outcome(use: Use, runtime: ModuleType) -> tuple[Any, set[str]]:
    """What a use gives, or else the names that its error can be caught by."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return plain(use(runtime)), set()
        except Exception as error:
            return None, {kind.__name__ for kind in type(error).__mro__}


def plain(value: Any) -> Any:
    """Values of either runtime as values of neither."""
    if hasattr(value, "data_type"):
        return [value.data_type(), value.numpy()] if value.is_tensor() else value.data_type()
    if hasattr(value, "shape") and hasattr(value, "type") and hasattr(value, "name"):
        return [value.name, value.shape, value.type]
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def alike(found: Any, wanted: Any, tolerance: float = 1e-5) -> bool:
    """Equal, floats but for a rounding."""
    if isinstance(wanted, np.ndarray):
        if not isinstance(found, np.ndarray) or found.dtype != wanted.dtype or found.shape != wanted.shape:
            return False
        if wanted.dtype.kind == "f":
            return bool(np.allclose(found, wanted, rtol=tolerance, atol=tolerance))
        return bool(np.array_equal(found, wanted))
    if isinstance(wanted, list):
        same = isinstance(found, list) and len(found) == len(wanted)
        return same and all(alike(a, b, tolerance) for a, b in zip(found, wanted, strict=True))
    if isinstance(wanted, dict):
        return list(found) == list(wanted) and alike(list(found.values()), list(wanted.values()), tolerance)
    if isinstance(wanted, float):
        return abs(found - wanted) <= tolerance * max(1, abs(wanted))
    return bool(found == wanted)


def same(use: Use, tolerance: float = 1e-5) -> None:
    """Both give the same; or ours raises what can be caught by the name of the error of theirs."""
    found, caught = outcome(use, ours)
    wanted, names = outcome(use, theirs)
    if names:
        kind = next(iter(names - {"Exception", "BaseException", "object"} - _ABOVE), "Exception")
        assert kind in caught, f"{kind} there, {caught or found} here"
    else:
        assert not caught, f"{wanted} there, {caught} here"
        assert alike(found, wanted, tolerance), f"{wanted} there, {found} here"


_ABOVE = {"LookupError", "ArithmeticError"}
