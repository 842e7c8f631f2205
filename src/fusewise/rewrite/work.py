"""What a node costs: arithmetic operations, elements read, and itself; compared in this order (DNNFusion, section 4.2).

An operand that a node reads twice is read once. Constants are read too, but a node of constants alone costs nothing: it is
computed before the model runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fusewise.ir.deciding import hint
from fusewise.ir.graph import Node
from fusewise.ir.types import TensorType, ValueType
from fusewise.ops.spec import Call, NotDefined
from fusewise.ops.table import spec_of

__all__ = ["NOTHING", "Work", "work_of"]


class Work(NamedTuple):
    """Arithmetic operations, elements read, number of operators."""

    flops: int
    loads: int
    operators: int

    def plus(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.loads + other.loads, self.operators + other.operators)

    def minus(self, other: Work) -> Work:
        return Work(self.flops - other.flops, self.loads - other.loads, self.operators - other.operators)


NOTHING = Work(0, 0, 0)


def work_of(node: Node, types: Mapping[str, ValueType], constants: Mapping[str, np.ndarray | None]) -> Work:
    """The work of one node whose operands and outputs are static tensors. An operator without a row counts no arithmetic."""
    loads = sum(hint(kind.size) for x in dict.fromkeys(node.reads) if isinstance(kind := types[x], TensorType))
    inputs = tuple(types[x] if x else None for x in node.inputs)
    outputs = tuple(types[x] if x else None for x in node.outputs)
    spec = spec_of(node.op, node.domain)
    if spec is None:
        return Work(0, loads, 1)
    if spec.scalar is not None:
        return Work(_elementwise_flops(node.op, node.domain, node.attributes, inputs, outputs), loads, 1)
    known = tuple(constants.get(x) if x else None for x in node.inputs)
    try:
        return Work(hint(spec.flops(Call(node, inputs, outputs, known))), loads, 1)
    except NotDefined:
        return Work(0, loads, 1)


@lru_cache(maxsize=4096)
def _elementwise_flops(
    op: str,
    domain: str,
    attributes: tuple[tuple[str, object], ...],
    inputs: tuple[ValueType | None, ...],
    outputs: tuple[ValueType | None, ...],
) -> int:
    spec = spec_of(op, domain)
    assert spec is not None
    node = Node(op, ("",) * len(inputs), ("",) * len(outputs), attributes, domain)  # type: ignore[arg-type]
    try:
        return hint(spec.flops(Call(node, inputs, outputs)))
    except NotDefined:
        return 0
