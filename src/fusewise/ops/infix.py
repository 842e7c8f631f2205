"""What `+ - * /` and unary `-` mean between values of a graph that is being written: ONNX's Add, Sub, Mul, Div and Neg."""

from __future__ import annotations

from typing import Any, Self

__all__ = ["Infix"]


class Infix:
    """A value whose `notation` writes nodes by the names of operators: `notation.Add(a, b)`."""

    notation: Any

    def _applied(self, op: str, *operands: Any) -> Self:
        found: Self = getattr(self.notation, op)(*operands)
        return found

    def __add__(self, other: Any) -> Self:
        return self._applied("Add", self, other)

    def __radd__(self, other: Any) -> Self:
        return self._applied("Add", other, self)

    def __sub__(self, other: Any) -> Self:
        return self._applied("Sub", self, other)

    def __rsub__(self, other: Any) -> Self:
        return self._applied("Sub", other, self)

    def __mul__(self, other: Any) -> Self:
        return self._applied("Mul", self, other)

    def __rmul__(self, other: Any) -> Self:
        return self._applied("Mul", other, self)

    def __truediv__(self, other: Any) -> Self:
        return self._applied("Div", self, other)

    def __rtruediv__(self, other: Any) -> Self:
        return self._applied("Div", other, self)

    def __neg__(self) -> Self:
        return self._applied("Neg", self)
