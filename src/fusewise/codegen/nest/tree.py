"""The program of a kernel as data: values, and what is done to them."""

from __future__ import annotations

from fusewise.records import record

__all__ = ["Int", "Value", "vector"]


@record(frozen=True, slots=True)
class Value:
    """An SSA value or constant: its text and its LLVM type."""

    text: str
    type: str

    def __str__(self) -> str:
        return f"{self.type} {self.text}"

    @property
    def lanes(self) -> int:
        """Vector length; 1 for a scalar."""
        return int(self.type[1:].split(" ", 1)[0]) if self.type.startswith("<") else 1

    @property
    def element(self) -> str:
        """Element type of a vector, or the type itself."""
        return self.type.split(" x ", 1)[1][:-1] if self.type.startswith("<") else self.type


Int = int | Value
"""An i64: known now (Python int) or at run time."""


def vector(element: str, lanes: int) -> str:
    """The LLVM type of `lanes` elements; a scalar when `lanes` is 1."""
    return element if lanes == 1 else f"<{lanes} x {element}>"
