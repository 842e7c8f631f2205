"""What a row of `ops.shapes` is given: shapes of operands, contents that are known, and whom to tell what must hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from fusewise.ir.deciding import known_below, known_equal
from fusewise.ir.graph import Node
from fusewise.ir.size import Size, greatest, symbols_of
from fusewise.records import record

__all__ = [
    "Operands",
    "Relations",
    "Row",
    "Shape",
    "Unknown",
    "ceiling",
    "divides",
    "is_unknown",
    "keep",
    "nonnegative",
    "position",
    "share",
]

Shape = tuple[int, ...]


class Unknown(Exception):
    """The shape cannot be told from what is known."""


class Relations(Protocol):
    """What must hold of sizes so that operands fit: each is told with a sentence that says why."""

    def equal(self, a: int, b: int, why: str) -> int:
        """Have two sizes be equal; gives the one to go on with."""

    def at_least(self, a: int, b: int, why: str) -> None:
        """Have the first be no smaller than the second."""


@record
class Operands:
    """What a row is given: the node, the shape of each operand (None: absent, or not even its rank is known), and contents:
    arrays of numbers, or of sizes, with None where an element is not known.
    """

    node: Node
    shapes: tuple[Shape | None, ...]
    values: tuple[np.ndarray | None, ...]
    relations: Relations

    def has(self, i: int) -> bool:
        """Is the operand given?"""
        return i < len(self.node.inputs) and bool(self.node.inputs[i])

    def shape(self, i: int = 0) -> Shape:
        """The shape of an operand; `Unknown` where there is none."""
        found = self.shapes[i] if i < len(self.shapes) else None
        if found is None:
            raise Unknown
        return found

    def ints(self, i: int) -> list[int]:
        """The contents of an operand as integers and sizes, in one row; `Unknown` where not all are known."""
        found = self.values[i] if i < len(self.values) else None
        if found is None:
            raise Unknown
        items = [int(n) if isinstance(n, float) and n.is_integer() else n for n in found.reshape(-1).tolist()]
        if not all(isinstance(item, int | Size) for item in items):
            raise Unknown
        return items

    def numbers(self, i: int) -> list[int]:
        """The same where all are numbers."""
        found = self.ints(i)
        if any(isinstance(item, Size) for item in found):
            raise Unknown
        return found

    def floats(self, i: int) -> list[float]:
        """The contents of an operand of floats."""
        found = self.values[i] if i < len(self.values) else None
        if found is None or found.dtype.kind not in "fiu":
            raise Unknown
        return [float(item) for item in found.reshape(-1).tolist()]

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute of the node."""
        return self.node.attribute(name, default)

    def axis(self, name: str, default: int, rank: int) -> int:
        """An attribute that is an axis, counted from the front."""
        return position(self.attribute(name, default), rank)

    def axes(self, i: int, rank: int, name: str = "axes") -> tuple[int, ...] | None:
        """Axes, counted from the front, by operand `i` or by an attribute; None where neither is given."""
        given = self.numbers(i) if self.has(i) else self.attribute(name)
        return None if given is None else tuple(position(axis, rank) for axis in given)

    @property
    def place(self) -> str:
        """How sentences name the node."""
        return f"node {self.node.label!r} ({self.node.op})"

    def equal(self, a: int, b: int, what: str) -> int:
        """Two sizes that have to be equal: `what` they are."""
        if known_equal(a, b):
            return a
        return self.relations.equal(a, b, f"{what} of {self.place} must be equal")

    def at_least(self, a: int, b: int, what: str) -> None:
        """The first may not be smaller than the second."""
        if not known_below(b - 1, a):
            self.relations.at_least(a, b, f"{what} of {self.place}")

    def broadcast(self, *shapes: Shape) -> Shape:
        """The shape that operands of these shapes are broadcast to. What is not known to be 1 is taken to be as long as others."""
        rank = max(map(len, shapes), default=0)
        padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
        found = []
        for axis, dims in enumerate(zip(*padded, strict=True)):
            best = dims[0]
            for dim in dims[1:]:
                best = dim if known_equal(best, 1) else best if known_equal(dim, 1) else self._longest(best, dim, axis)
            found.append(best)
        return tuple(found)

    def _longest(self, a: int, b: int, axis: int) -> int:
        if known_equal(a, b):
            return a
        for one, other in ((a, b), (b, a)):
            if not isinstance(one, Size) and is_unknown(other):
                return one
        if is_unknown(a) or is_unknown(b):
            return a if is_unknown(a) else b
        return self.equal(a, b, f"the sizes along axis {axis} of the operands")


Row = Callable[[Operands], Sequence[Shape | None]]
"""The shape of each output, the first ones where there are fewer; None for one that is not known. Raises `Unknown`."""


def position(axis: int, rank: int) -> int:
    """An axis counted from the front; `Unknown` where there is none."""
    if not -rank <= axis < max(rank, 1):
        raise Unknown
    return axis % rank if rank else 0


def is_unknown(size: int) -> bool:
    """Does a size depend on one that nothing is known of? Those have names that begin with a question mark."""
    return isinstance(size, Size) and any(symbol.name.startswith("?") for symbol in symbols_of(size))


def ceiling(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def nonnegative(size: int) -> int:
    """The size, or 0 where it is less."""
    found: int = greatest(size, 0)
    return found


def divides(by: int, whole: int) -> bool:
    """Is `whole` a multiple of `by`, whatever symbols are?"""
    return known_equal(whole % by, 0)


def share(case: Operands, whole: Sequence[int], parts: Sequence[int]) -> int:
    """The missing factor of `parts` that makes as many elements as `whole`; factors of both are left out first."""
    left, over = list(whole), list(parts)
    for dim in parts:
        for k, other in enumerate(left):
            if known_equal(dim, other):
                del left[k]
                over.remove(dim)
                break
    total, known = math.prod(left), math.prod(over)
    if known_equal(known, 0):
        raise Unknown
    if not divides(known, total):
        case.at_least(known, 1, f"what {total} elements are divided by")
        case.equal(total % known, 0, f"what is left over of {total} elements divided by {known}, and 0,")
    return total // known


def keep(shape: Sequence[int], at: int, size: int) -> Shape:
    """The shape with another size along one axis."""
    return (*shape[:at], size, *shape[at + 1 :])
