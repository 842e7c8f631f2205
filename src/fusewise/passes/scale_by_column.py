"""Give quantised weights with one scale a scale for each column of their product. Numeric class exact.

Kernels that dequantise in registers read scales beside the weights, in panels; one number is a literal of the code instead.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fusewise.ir.graph import Graph, Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.passes.packed_weights import PACKED_TYPES
from fusewise.trace import Trace

__all__ = ["scale_by_column"]


def scale_by_column(graph: Graph, trace: Trace) -> Graph:
    """y = MatMul(x, DequantizeLinear(w, s, z))   ->   y = MatMul(x, DequantizeLinear(w, [s, ..., s], [z, ..., z], axis=1))

    and for Gemm, along axis 0 where the weights are turned. Refused: weights that are not constant, or of more than two dimensions.
    """
    return sweep(graph, trace, (LocalRule("scale_by_column", ("MatMul", "Gemm"), _by_column),))


def _by_column(edit: Edit, node: Node) -> Change | None:
    read, axis = node.inputs[1], 0 if node.attribute("transB", 0) else 1
    turn = edit.made_by(read, "Transpose")
    if turn is not None and turn.attribute("perm", (1, 0)) == (1, 0):
        read, axis = turn.inputs[0], 1 - axis
    weights, kind = edit.made_by(read, "DequantizeLinear"), edit.static(read)
    if weights is None or kind is None or kind.rank != 2 or weights.inputs[0] not in edit.constants:
        return None
    numbers = [edit.operand(weights, i) for i in range(1, len(weights.inputs))]
    if edit.constants[weights.inputs[0]].dtype not in PACKED_TYPES or any(x is None or x.size != 1 for x in numbers):
        return None
    if weights.attribute("block_size", 0):
        return None
    columns = [
        edit.constant(np.repeat(x.reshape(1), kind.dims[axis]), f"{node.label}_{stem}")
        for x, stem in zip(numbers, ("scale", "zero"), strict=False)
        if x is not None
    ]
    value = edit.value(f"{node.label}_weights", kind)
    inputs = (weights.inputs[0], *columns)
    nodes = [replace(weights, inputs=inputs, outputs=(value,), name="", attributes=attributes_of(axis=axis))]
    if turn is not None and read != node.inputs[1]:
        value = edit.value(f"{node.label}_turned", TensorType(kind.dtype, kind.dims[::-1]))
        nodes.append(replace(turn, inputs=(nodes[0].outputs[0],), outputs=(value,), name=""))
    product = node.with_inputs((node.inputs[0], value, *node.inputs[2:]))
    return Change((weights, node), "scales lie beside the weights", (*nodes, product))
