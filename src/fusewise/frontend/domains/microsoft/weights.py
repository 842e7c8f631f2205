"""Operands that hold packed weights: constants of the model, and what is made of them when it is read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fusewise.frontend.domains.row import DomainCall
from fusewise.frontend.domains.writer import DomainValue, DomainWriter
from fusewise.ir.graph import Constant, LazyConstant
from fusewise.ir.types import TensorType

__all__ = ["check_block", "check_shape", "constant_operand", "derived", "known_dims"]

_LEAST_BLOCK = 16


def constant_operand(g: DomainWriter, call: DomainCall, name: str) -> Constant:
    """An operand that has to be a constant."""
    found = g.known_constant(call[name])
    if found is None:
        raise call.unsupported(f"its input {name!r} must be a constant of the model")
    return found


def derived(
    g: DomainWriter,
    source: Constant,
    kind: TensorType,
    what: tuple[object, ...],
    make: Callable[[np.ndarray], np.ndarray],
    per_row: int = 0,
) -> DomainValue:
    """A constant of that type, made of another when it is read. With `per_row` so many rows of the other make one of it, each by
    themselves."""

    def made(first: int, last: int) -> np.ndarray:
        return make(source.rows(first * per_row, last * per_row))

    recipe, rows = (id(source), *what), made if per_row else None
    return g.constant(LazyConstant(kind, lambda: make(source.read_once()), recipe, again=True, make_rows=rows))


def known_dims(call: DomainCall, name: str) -> tuple[int, ...]:
    """The shape of an operand, which has to be known."""
    found = tuple(dim for dim in call[name].dims if isinstance(dim, int))
    if len(found) < call[name].rank:
        raise call.unsupported(f"the shape of its input {name!r} must be known")
    return found


def check_block(call: DomainCall, block: int) -> None:
    """`InvalidModel` for a run with one scale that is no power of two, or too short."""
    if block < _LEAST_BLOCK or block & (block - 1):
        raise call.invalid(f"its attribute block_size is {block}; it must be a power of two, {_LEAST_BLOCK} or more")


def check_shape(call: DomainCall, name: str, found: TensorType, *allowed: tuple[int, ...]) -> None:
    """`InvalidModel` for an input that has none of the shapes allowed."""
    if found.dims not in allowed:
        wanted = " or ".join(str(list(shape)) for shape in allowed)
        raise call.invalid(f"its input {name!r} has the shape {list(found.dims)}; its attributes ask for {wanted}")
