"""Weights made of weights, computed when they are first read: a pass decides by types, and whoever packs the weights pays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusewise.ir.dtypes import DType
from fusewise.ir.graph import Constant, LazyConstant
from fusewise.ir.types import TensorType

__all__ = ["rounded", "transposed"]


def transposed(constant: Constant, order: Sequence[int]) -> LazyConstant:
    """The constant with its axes in another order, a permutation of their numbers."""
    dims = constant.type.dims
    kind = TensorType(constant.dtype, tuple(dims[axis] for axis in order))
    recipe = (id(constant), "transposed", tuple(order))
    return LazyConstant(kind, lambda: np.ascontiguousarray(constant.read_once().transpose(order)), recipe)


def rounded(constant: Constant, dtype: DType) -> LazyConstant:
    """The constant in a narrower float type, to nearest, ties to even; what is too large becomes infinite."""

    def make() -> np.ndarray:
        with np.errstate(over="ignore"):
            return constant.read_once().astype(dtype.numpy)

    return LazyConstant(TensorType(dtype, constant.type.shape), make, (id(constant), "rounded", dtype.name))
