"""Types of nodes that rules write: of numbers by ONNX's inference, of sizes by the rows here."""

from __future__ import annotations

from fusewise.ir.graph import Node
from fusewise.ir.size import Size
from fusewise.ir.types import TensorType, ValueType
from fusewise.ops.infer import infer_outputs
from fusewise.ops.shapes.table import Arrays, Types, infer_sizes

__all__ = ["infer_again"]


class _AlreadyTold:
    """What must hold of sizes for these nodes: nothing that the nodes in whose place they are did not ask for."""

    def equal(self, a: int, b: int, why: str) -> int:
        return a

    def at_least(self, a: int, b: int, why: str) -> None:
        pass


def _is_of_sizes(kind: ValueType | None) -> bool:
    """Is a dimension a size in terms of symbols? Of those that are not known at all ONNX's inference knows as much."""
    return isinstance(kind, TensorType) and kind.shape is not None and any(isinstance(dim, Size) for dim in kind.shape)


def infer_again(node: Node, types: Types, values: Arrays, opset: int) -> Types:
    """The type of each output of a node that takes the place of others, as `infer_outputs` and `infer_sizes` tell it."""
    if any(map(_is_of_sizes, types)) or any(value is not None and value.dtype == object for value in values):
        return infer_sizes(node, types, values, opset, _AlreadyTold())
    return infer_outputs(node, types, values, opset)
