"""Cheaper functions in place of exact ones. Numeric class approximate: runs only where it is asked for by name.

erf(x) is near tanh(2 / sqrt(pi) (x + 0.08943 x^3)): the form of GELU that BERT's authors used, within 5e-4 of the exact one
everywhere (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016). Other functions are not touched: their kernels are
polynomials already.
"""

from __future__ import annotations

import math

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.passes.edit import Change, Edit, LocalRule, rebuilt, sweep
from fusewise.trace import Trace

__all__ = ["fast_math"]

_SLOPE, _CUBIC = 2 / math.sqrt(math.pi), 2 * 0.044715


def fast_math(graph: Graph, trace: Trace) -> Graph:
    """GELU and the error function by the hyperbolic tangent.

    y = Gelu(x)   ->   y = Gelu(x) {approximate=tanh}
    """
    return sweep(graph, trace, (LocalRule("FastMath", ("Gelu", "Erf"), _by_tanh),))


def _by_tanh(edit: Edit, node: Node) -> Change | None:
    kind = edit.static(node.inputs[0])
    if node.op == "Gelu":
        if node.attribute("approximate", "none") != "none":
            return None
        return Change((node,), "GELU by tanh", (node.with_attributes(approximate="tanh"),))
    if kind is None or kind.dtype.name != "float32":
        return None
    x, stem = node.inputs[0], node.label

    def value(part: str) -> str:
        return edit.value(f"{stem}_{part}", kind)

    def number(part: str, figure: float) -> str:
        return edit.constant(np.array(figure, np.float32), f"{stem}_{part}")

    square, cubic, bracket, inner = value("square"), value("cubic"), value("bracket"), value("inner")
    nodes = (
        Node("Mul", (x, x), (square,), name=square),
        Node("Mul", (square, number("third", _SLOPE * _CUBIC)), (cubic,), name=cubic),
        Node("Add", (cubic, number("first", _SLOPE)), (bracket,), name=bracket),
        Node("Mul", (x, bracket), (inner,), name=inner),
        rebuilt(node, "Tanh", (inner,)),
    )
    return Change((node,), "erf by tanh", nodes)
