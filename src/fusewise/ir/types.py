"""Types of values: tensors, sequences, optionals and maps. All frozen, all hashable."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fusewise.ir.dtypes import DType
from fusewise.ir.size import Size

__all__ = ["Dim", "MapType", "OptionalType", "SequenceType", "TensorType", "ValueType"]

Dim = int | str | None
"""A dimension: a number or a `Size`; before a graph is bound also a symbol's name, or None when nothing is known."""

_NUMBERS = frozenset({int})
_KNOWN = frozenset({int, Size})


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dense tensor. `shape` is None when even the rank is unknown."""

    dtype: DType
    shape: tuple[Dim, ...] | None

    @property
    def is_static(self) -> bool:
        """Is every dimension a number, or known in terms of symbols?"""
        return self.shape is not None and _KNOWN.issuperset(map(type, self.shape))

    @property
    def is_fixed(self) -> bool:
        """Is every dimension a number?"""
        return self.shape is not None and _NUMBERS.issuperset(map(type, self.shape))

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape as numbers and sizes; `ValueError` when it is not static."""
        if self.shape is None or not self.is_static:
            raise ValueError(f"shape {self} is not static")
        return self.shape  # type: ignore[return-value]  # all known

    @property
    def rank(self) -> int:
        """Number of dimensions; `ValueError` when unknown."""
        if self.shape is None:
            raise ValueError("rank is unknown")
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements; `ValueError` when the shape is not static."""
        return math.prod(self.dims)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor in memory."""
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype.name}[*]"
        return f"{self.dtype.name}[{','.join('?' if dim is None else str(dim) for dim in self.shape)}]"


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A list of values of one type."""

    element: ValueType

    def __str__(self) -> str:
        return f"seq({self.element})"


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value that may be absent."""

    element: ValueType

    def __str__(self) -> str:
        return f"optional({self.element})"


@dataclass(frozen=True, slots=True)
class MapType:
    """A dictionary of values of one type, by keys that are integers or strings."""

    key: DType
    element: ValueType

    def __str__(self) -> str:
        return f"map({self.key.name},{self.element})"


ValueType = TensorType | SequenceType | OptionalType | MapType
