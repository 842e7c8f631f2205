"""Write normalisations with elementary operators and drop what only training needs. Numeric class reassociating.

What is written out can be folded, shared and fused by passes that know no normalisation. The opposite of `recognise_norms`.
"""

from __future__ import annotations

from dataclasses import replace

from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Graph, Node
from fusewise.passes.canonical_ops import LOWEST_OPSET, written_out
from fusewise.passes.decompositions.table import DECOMPOSITIONS
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.passes.fold_batch_norm import lower_batch_norm
from fusewise.passes.simplify_movement import RULES as MOVEMENT
from fusewise.trace import Trace

__all__ = ["RULES", "simplify_inference"]


def simplify_inference(graph: Graph, trace: Trace) -> Graph:
    """Batch normalisation becomes a product and a sum, Dropout and Identity go, and other normalisations are written out.

    y = LayerNormalization(x, s, b)   ->   d = x - mean(x); y = d / sqrt(mean(d * d) + e) * s + b
    """
    return sweep(lower_batch_norm(graph, trace), trace, RULES if graph.opset >= LOWEST_OPSET else RULES[:2])


def _written_out(edit: Edit, node: Node) -> Change | None:
    """Layer, RMS and instance normalisation of float32, when nobody asks for the statistics."""
    kind = edit.static(node.inputs[0])
    if kind is None or kind.dtype != FLOAT32 or not all(edit.is_unused(v) for v in node.outputs[1:]):
        return None
    return written_out(edit, replace(node, outputs=node.outputs[:1]), DECOMPOSITIONS[node.op])


_DROPPED = ("drop-identity", "drop-dropout")

RULES: tuple[LocalRule, ...] = (
    *(rule for rule in MOVEMENT if rule.name in _DROPPED),
    LocalRule("norm-to-primitives", ("LayerNormalization", "RMSNormalization", "InstanceNormalization"), _written_out),
)
