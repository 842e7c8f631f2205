"""Have products read weights of 16 bits as they are stored.

The passes before see float32, whatever a model stores, so that they need not know of it. What is left of a model's own weights
then, perhaps turned or joined, is taken back to 16 bits, and a product widens it while it runs (`packed_weights`).
"""

from __future__ import annotations

import numpy as np

from fusewise.ir.dtypes import FLOAT16, FLOAT32
from fusewise.ir.graph import Constant, Graph, Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.passes.later import rounded
from fusewise.trace import Trace

__all__ = ["LEAST_BYTES", "halved_weights", "short_weights"]

LEAST_BYTES = 1 << 12
"""Of float32, from which weights are worth it."""


def short_weights(graph: Graph, trace: Trace) -> Graph:
    """Products of float32 take weights that are made of floats of 16 bits as these. Numeric class exact.

    y = MatMul(x, w)   ->   y = MatMul(x, Cast(s))       s of 16 bits, w = Cast(s)

    and for Gemm. Refused: small weights, those of other than two dimensions, and a Gemm that scales its product.
    """

    def shortened(edit: Edit, node: Node) -> Change | None:
        weights = _weights_of(edit, node)
        short = None if weights is None else weights.short
        return None if short is None else _cast_of(edit, node, short, "weights have 16 bits")

    return sweep(graph, trace, (LocalRule("short_weights", ("MatMul", "Gemm"), shortened),))


def halved_weights(graph: Graph, trace: Trace) -> Graph:
    """All weights of products, and tables that rows are gathered from, are rounded to float16. Numeric class approximate.

    y = MatMul(x, w)   ->   y = MatMul(x, Cast(w'))      w' = w rounded to float16
    y = Gather(t, i)   ->   y = Cast(Gather(t', i))

    Refused: weights of which a float16 cannot hold one, as it is too large, infinite or not a number.
    """
    known: dict[int, Constant | None] = {}

    def halved(constant: Constant) -> Constant | None:
        if constant.short is not None:
            return constant.short
        if id(constant) not in known:
            known[id(constant)] = rounded(constant, FLOAT16) if _fits(constant) else None
        return known[id(constant)]

    def product(edit: Edit, node: Node) -> Change | None:
        weights = _weights_of(edit, node)
        short = None if weights is None else halved(weights)
        return None if short is None else _cast_of(edit, node, short, "weights fit 16 bits")

    def rows(edit: Edit, node: Node) -> Change | None:
        table, kind = edit.constants.get(node.inputs[0]), edit.types[node.outputs[0]]
        if table is None or not isinstance(kind, TensorType) or not _is_long(table):
            return None
        short = halved(table)
        if short is None:
            return None
        read = _constant(edit, short, node.inputs[0])
        value = edit.value(f"{node.outputs[0]}_short", TensorType(short.dtype, kind.shape))
        gather = Node(node.op, (read, *node.inputs[1:]), (value,), node.attributes, "", node.name, node.origin)
        wide = Node("Cast", (value,), node.outputs, attributes_of(to=FLOAT32.onnx), origin=node.origin)
        return Change((node,), "its table fits 16 bits", (gather, wide))

    rules = LocalRule("halved_weights", ("MatMul", "Gemm"), product), LocalRule("halved_weights", ("Gather",), rows)
    return sweep(graph, trace, rules)


def _is_long(constant: Constant) -> bool:
    return constant.dtype == FLOAT32 and constant.type.nbytes >= LEAST_BYTES


def _weights_of(edit: Edit, node: Node) -> Constant | None:
    """The matrix of float32 that a product multiplies by, if it is a constant and worth it."""
    weights = edit.constants.get(node.inputs[1])
    if node.attribute("alpha", 1.0) != 1.0:
        return None
    return weights if weights is not None and weights.type.rank == 2 and _is_long(weights) else None


def _fits(constant: Constant) -> bool:
    """Is no number of it infinite as a float16, or none at all?"""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(constant.read_once().astype(np.float16)).all())


def _constant(edit: Edit, constant: Constant, stem: str) -> str:
    """A constant under a name of its own, the same each time."""
    name = f"{stem}_short"
    if edit.constants.get(name) is not constant:
        name = edit.value(name, constant.type)
        edit.constants[name] = constant
    return name


def _cast_of(edit: Edit, node: Node, short: Constant, reason: str) -> Change:
    """The product with its weights widened for it alone."""
    read = _constant(edit, short, node.inputs[1])
    value = edit.value(f"{node.label}_weights", TensorType(FLOAT32, short.type.shape))
    cast = Node("Cast", (read,), (value,), attributes_of(to=FLOAT32.onnx), origin=node.origin)
    return Change((node,), reason, (cast, node.with_inputs((node.inputs[0], value, *node.inputs[2:]))))
