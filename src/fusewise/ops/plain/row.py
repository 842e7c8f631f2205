"""What a row of plain NumPy is: an operator, since when it means this, and how NumPy computes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fusewise.ir.graph import Node
from fusewise.records import record

__all__ = ["Evaluator", "Given", "Other", "Plain", "PlainFunction", "axes_of", "is_number", "of_any", "plain"]

Evaluator = Callable[..., list[Any]]
"""Takes the node's present operands, then its captured values, in order; gives its outputs, None for absent ones.

Tensors are arrays, sequences lists, and an empty optional is None."""

PlainFunction = Callable[..., Any]
"""Takes operands by place, None for absent ones; gives the output, or a tuple of several."""

Given = Callable[[Node], PlainFunction]
"""Takes a node; gives a function of its operands."""


class Other(Exception):
    """Not a case for NumPy alone: the reference evaluator is asked, whose errors are its own."""


@record(frozen=True, slots=True)
class Plain:
    """An operator of the default domain or `domain`: `make(node)` computes it, as it is from version `since` on.

    `numbers`: only operands of NumPy's own numbers are for it; others are asked of the evaluator.
    """

    op: str
    since: int
    make: Given
    numbers: bool = True
    domain: str = ""


def plain(op: str, since: int, function: Callable[..., Any]) -> Plain:
    """A function of the operands alone."""
    return Plain(op, since, lambda node: function)


def of_any(op: str, since: int, make: Given) -> Plain:
    """Of operands of any type."""
    return Plain(op, since, make, numbers=False)


def is_number(dtype: np.dtype[Any]) -> bool:
    """Of a type that is NumPy's own: narrow floats are not, which ONNX may want saturated."""
    return dtype.isbuiltin == 1 and dtype.kind in "biuf"


def axes_of(node: Node, operand: Any) -> tuple[int, ...] | None:
    """Of an operand, or of an attribute as earlier versions have them."""
    found = node.attribute("axes") if operand is None else operand
    return None if found is None else tuple(int(axis) for axis in np.asarray(found).reshape(-1))
