"""Write normalisations with elementary operators and drop what only training needs. Numeric class reassociating.

What is written out can be folded, shared and fused by passes that know no normalisation. The opposite of `recognise_norms`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Graph, Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.passes.fold_batch_norm import lower_batch_norm
from fusewise.passes.simplify_movement import RULES as MOVEMENT
from fusewise.records import record
from fusewise.trace import Trace

__all__ = ["RULES", "simplify_inference"]


def simplify_inference(graph: Graph, trace: Trace) -> Graph:
    """Batch normalisation becomes a product and a sum, Dropout and Identity go, and other normalisations are written out.

    y = LayerNormalization(x, s, b)   ->   d = x - mean(x); y = d / sqrt(mean(d * d) + e) * s + b
    """
    return sweep(lower_batch_norm(graph, trace), trace, RULES if graph.opset >= 18 else RULES[:2])


@record
class _Writer:
    """Nodes of one decomposition in order; every value has the type given or that of its first operand."""

    edit: Edit
    stem: str
    nodes: list[Node]

    def op(self, kind: str, *inputs: str, like: TensorType | None = None, **attributes: int) -> str:
        result = self.edit.value(f"{self.stem}_{kind.lower()}", like or self.edit.types[inputs[0]])
        self.nodes.append(Node(kind, inputs, (result,), attributes_of(**attributes), name=result))
        return result

    def scalar(self, number: float) -> str:
        return self.edit.constant(np.array(number, np.float32), f"{self.stem}_number")

    def mean(self, x: str, axes: list[int]) -> str:
        kind = self.edit.static(x)
        assert kind is not None
        small = TensorType(kind.dtype, tuple(1 if k in axes else dim for k, dim in enumerate(kind.dims)))
        places = self.edit.constant(np.array(axes, np.int64), f"{self.stem}_axes")
        return self.op("ReduceMean", x, places, like=small, keepdims=1)

    def over_root(self, x: str, squared: str, axes: list[int], epsilon: float) -> str:
        """x / sqrt(mean(squared * squared) + epsilon)"""
        power = self.mean(self.op("Mul", squared, squared), axes)
        return self.op("Div", x, self.op("Sqrt", self.op("Add", power, self.scalar(epsilon))))


def _written_out(edit: Edit, node: Node) -> Change | None:
    """Layer, RMS and instance normalisation of float32, when nobody asks for the statistics."""
    kind = edit.static(node.inputs[0])
    if kind is None or kind.dtype != FLOAT32 or not all(edit.is_unused(v) for v in node.outputs[1:]):
        return None
    writer = _Writer(edit, node.label, [])
    x, epsilon = node.inputs[0], node.attribute("epsilon", 1e-5)
    if node.op == "InstanceNormalization":
        axes = list(range(2, kind.rank))
        scale, bias = (_along_channels(edit, value, kind.rank) for value in node.inputs[1:3])
        if not axes or scale is None or bias is None:
            return None
    else:
        axes = list(range(node.attribute("axis", -1) % kind.rank, kind.rank))
        scale, bias = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else ""
    centred = x if node.op == "RMSNormalization" else writer.op("Sub", x, writer.mean(x, axes))
    y = writer.over_root(centred, centred, axes, epsilon)
    y = writer.op("Mul", y, scale)
    if bias:
        writer.op("Add", y, bias)
    last = replace(writer.nodes[-1], outputs=node.outputs[:1])
    return Change((node,), "written out", (*writer.nodes[:-1], last))


def _along_channels(edit: Edit, value: str, rank: int) -> str | None:
    array = edit.array(value)
    return None if array is None else edit.constant(array.reshape(-1, *(1,) * (rank - 2)), f"{value}_channels")


_DROPPED = ("drop-identity", "drop-dropout")

RULES: tuple[LocalRule, ...] = (
    *(rule for rule in MOVEMENT if rule.name in _DROPPED),
    LocalRule("norm-to-primitives", ("LayerNormalization", "RMSNormalization", "InstanceNormalization"), _written_out),
)
