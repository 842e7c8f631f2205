"""Every row of validity, and the one question that is asked of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from fusewise.ir.dtypes import dtype_of
from fusewise.ir.graph import Node
from fusewise.ir.types import TensorType
from fusewise.ops.validity.classic import CLASSIC
from fusewise.ops.validity.control import CONTROL
from fusewise.ops.validity.movement import MOVEMENT
from fusewise.ops.validity.plain import PLAIN
from fusewise.ops.validity.products import PRODUCTS
from fusewise.ops.validity.signature import misfit
from fusewise.ops.validity.use import Use, ValidityRow, shown
from fusewise.ops.validity.windows import WINDOWS

__all__ = ["ROWS", "fault", "fault_of_operands"]

ROWS: tuple[ValidityRow, ...] = (*PLAIN, *MOVEMENT, *WINDOWS, *PRODUCTS, *CLASSIC, *CONTROL)

_BY_NAME: Mapping[tuple[str, str], ValidityRow] = MappingProxyType({(row.domain, row.op): row for row in ROWS})


def fault(use: Use) -> str:
    """What ONNX's text forbids about a use of an operator, as the end of a sentence; empty when nothing is found.

    Attributes are looked at before shapes, so that a rule may rely on those before it in its row.
    """
    found = _no_text(use)
    if found:
        return found
    row = _BY_NAME.get((use.node.domain, use.node.op))
    if row is None:
        return ""
    for rule in row.rules:
        found = rule(use)
        if found:
            return found
    if not row.shapes:
        return ""
    text = row.shapes if isinstance(row.shapes, str) else row.shapes(use)
    sizes = {name: size for name, of in row.sizes if (size := of(use)) is not None}
    return misfit(text, use, sizes)


def _no_text(use: Use) -> str:
    """Bytes are what is left of a string that is no UTF-8, as ONNX wants it; or a type, which is another kind of attribute."""
    for name, value in use.node.attributes:
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, bytes) and use.is_text(name):
                return f"its attribute {name} is {shown(part)}; text must be UTF-8"
    return ""


_FEW = 64
"""Elements of an operand whose contents rules are asked about."""


def fault_of_operands(node: Node, operands: Sequence[Any], opset: int) -> str:
    """`fault` of a node and the operands that it got, None for absent ones."""
    arrays = [operand if isinstance(operand, np.ndarray) else None for operand in operands]
    types = tuple(None if array is None else TensorType(dtype_of(array), array.shape) for array in arrays)
    known = tuple(array if array is not None and array.size <= _FEW else None for array in arrays)
    return fault(Use(node, types, known, opset))
