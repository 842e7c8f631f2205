"""Find activations that were written out, and write them as one operator. Numeric class reassociating.

Products are monomials, so every association and order of the same product is one pattern: `0.5 * x * (1 + erf(x / sqrt 2))` and
`x * (1 + erf(x * 0.7071)) / 2` alike.
"""

from __future__ import annotations

import math
from typing import Any

from fusewise.ir.graph import Graph, Node
from fusewise.passes.edit import Change, Edit, LocalRule, looking_for, rebuilt, sweep
from fusewise.rewrite.match import Occurrence
from fusewise.trace import Trace

__all__ = ["RULES", "recognise_activations"]

_RELATIVE = 1e-6


def recognise_activations(graph: Graph, trace: Trace) -> Graph:
    """GELU (by erf or tanh), HardSigmoid, HardSwish and Mish become one node.

    y = Mul(Mul(x, 0.5), Add(Erf(Div(x, 1.414214)), 1.0))   ->   y = Gelu(x)

    Refused: someone else reads an inner value of the product, or a constant is another.
    """
    return sweep(graph, trace, tuple(rule for since, rule in RULES if graph.opset >= since))


def _activation(edit: Edit, node: Node, found: Occurrence, op: str, **attributes: Any) -> Change | None:
    """The change, if the constants did not widen the shape."""
    x = found.value("x")
    if not edit.same_type(x, node.outputs[0]):
        return None
    return Change(edit.covered(found, node), "written out", (rebuilt(node, op, (x,), **attributes),))


def _gelu(g: Any, x: Any) -> Any:
    """x / 2 (1 + f(x)), f the error function of x / sqrt 2 or its approximation by tanh."""
    curve = g.Erf(g.monomial(math.sqrt(0.5), x, shared=True), like="erf") | g.Tanh(_tanh_argument(g, x))
    return g.monomial(0.5, x, 1 + curve)


def _tanh_argument(g: Any, x: Any) -> Any:
    """sqrt(2 / pi) (x + 0.044715 x^3), or x (1 + 0.044715 x^2) times the root."""
    root, third = math.sqrt(2 / math.pi), 0.044715
    cubic, square = g.monomial(third, x, x, x, shared=True), g.monomial(third, x, x, shared=True)
    return g.monomial(root, x + cubic, shared=True) | g.monomial(root, x, 1 + square, shared=True)


def _as_gelu(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    return _activation(edit, node, found, "Gelu", **({} if "erf" in found.like else {"approximate": "tanh"}))


def _mish(g: Any, x: Any) -> Any:
    return x * g.Tanh(g.Softplus(x))


def _as_mish(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    return _activation(edit, node, found, "Mish")


def _shifted_clip(g: Any, x: Any) -> Any:
    return g.Clip(x + 3, 0, 6)


def _hard_sigmoid(g: Any, x: Any) -> Any:
    return g.monomial(1 / 6, _shifted_clip(g, x))


def _as_hard_sigmoid(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    return _activation(edit, node, found, "HardSigmoid", alpha=1 / 6, beta=0.5)


def _hard_swish(g: Any, x: Any) -> Any:
    """x hardsigmoid(x), or x clip(x + 3, 0, 6) / 6."""
    return g.monomial(1, x, g.HardSigmoid(x, like="gate")) | g.monomial(1 / 6, x, _shifted_clip(g, x))


def _as_hard_swish(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    gate = found.like.get("gate")
    return _activation(edit, node, found, "HardSwish") if gate is None or _is_of_swish(gate) else None


def _is_of_swish(gate: Node) -> bool:
    """Has a HardSigmoid slope 1/6 and offset 1/2?"""
    alpha, beta = gate.attribute("alpha", 0.2), gate.attribute("beta", 0.5)
    return math.isclose(alpha, 1 / 6, rel_tol=_RELATIVE) and math.isclose(beta, 0.5, rel_tol=_RELATIVE)


RULES: tuple[tuple[int, LocalRule], ...] = (
    (20, looking_for("recognise-gelu", _gelu, _as_gelu)),
    (18, looking_for("recognise-mish", _mish, _as_mish)),
    (14, looking_for("recognise-hard-swish", _hard_swish, _as_hard_swish)),
    (7, looking_for("recognise-hard-sigmoid", _hard_sigmoid, _as_hard_sigmoid)),
)
"""Each rule with the first opset that has the operator it writes."""
