"""Weights made of weights, computed when they are first read: a pass decides by types, and whoever packs the weights pays.

Nothing that is made so is kept once it was read. What holds the numbers of weights of 16 bits, however they are turned and joined,
knows them as they were (`Constant.short`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from fusewise.ir.graph import Constant, LazyConstant
from fusewise.ir.types import TensorType

__all__ = ["SHORT_FLOATS", "joined", "rounded", "transposed"]

SHORT_FLOATS = (FLOAT16, BFLOAT16)
"""Floats of 16 bits, all of which are float32, too."""


def transposed(constant: Constant, order: Sequence[int]) -> LazyConstant:
    """The constant with its axes in another order, a permutation of their numbers; a matrix is not copied for it."""
    dims = constant.type.dims
    kind = TensorType(constant.dtype, tuple(dims[axis] for axis in order))
    recipe = (id(constant), "transposed", tuple(order))
    short = None if constant.short is None else transposed(constant.short, order)

    def make() -> np.ndarray:
        turned = constant.read_once().transpose(order)
        return turned if turned.ndim == 2 else np.ascontiguousarray(turned)

    return LazyConstant(kind, make, recipe, again=True, short=short)


def joined(constants: Sequence[Constant], axis: int) -> LazyConstant:
    """Constants of one type and rank one behind the other along an axis."""
    dims = list(constants[0].type.dims)
    dims[axis] = sum(one.type.dims[axis] for one in constants)
    recipe = (*map(id, constants), "joined", axis)
    parts = [one.short for one in constants if one.short is not None]
    are_short = len(parts) == len(constants) and len({one.dtype for one in parts}) == 1

    def make() -> np.ndarray:
        return np.concatenate([one.read_once() for one in constants], axis)

    kind = TensorType(constants[0].dtype, tuple(dims))
    return LazyConstant(kind, make, recipe, again=True, short=joined(parts, axis) if are_short else None)


def rounded(constant: Constant, dtype: DType) -> LazyConstant:
    """The constant in another float type, to nearest, ties to even; what is too large becomes infinite."""

    def make() -> np.ndarray:
        with np.errstate(over="ignore"):
            return constant.read_once().astype(dtype.numpy)

    short = constant if constant.dtype in SHORT_FLOATS and dtype == FLOAT32 else None
    recipe = (id(constant), "rounded", dtype.name)
    return LazyConstant(TensorType(dtype, constant.type.shape), make, recipe, again=True, short=short)
