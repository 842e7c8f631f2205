"""Find activations that were written out, and write them as one operator. Numeric class reassociating.

A product is flattened to a constant coefficient and its other factors, so every association and order of the same product
is one pattern: `0.5 * x * (1 + erf(x / sqrt 2))` and `x * (1 + erf(x * 0.7071)) / 2` alike. Constants may differ from the
formula's by a relative 1e-6, as float32 does.
"""

from __future__ import annotations

import math
from collections import Counter

from fusewise.ir.graph import Graph, Node
from fusewise.passes.edit import Change, Edit, LocalRule, rebuilt, sweep
from fusewise.records import record
from fusewise.trace import Trace

__all__ = ["RULES", "recognise_activations"]

_RELATIVE = 1e-6
_MOST_FACTORS = 6


def recognise_activations(graph: Graph, trace: Trace) -> Graph:
    """GELU (by erf or tanh), HardSigmoid, HardSwish and Mish become one node.

    y = Mul(Mul(x, 0.5), Add(Erf(Div(x, 1.414214)), 1.0))   ->   y = Gelu(x)

    Refused: someone else reads an inner value of the product, or a constant is another.
    """
    return sweep(graph, trace, tuple(rule for since, rule in RULES if graph.opset >= since))


@record(frozen=True)
class _Product:
    """coefficient * factors[0] * factors[1] ...; `inner` are the nodes it was written with, the root left out."""

    coefficient: float
    factors: tuple[str, ...]
    inner: tuple[Node, ...]


def _close(found: float | None, wanted: float) -> bool:
    return found is not None and math.isclose(found, wanted, rel_tol=_RELATIVE)


def _product(edit: Edit, node: Node) -> _Product:
    """The product whose root is `node`: through Mul, Div by a constant, and Pow with a small whole exponent."""
    coefficient = 1.0
    factors: list[str] = []
    inner: list[Node] = []
    waiting: list[tuple[str, Node | None]] = [(node.outputs[0], node)]
    while waiting:
        value, maker = waiting.pop()
        number = edit.scalar(value)
        if number is not None:
            coefficient *= number
            continue
        divisor = edit.scalar(maker.inputs[1]) if maker is not None and maker.op in ("Div", "Pow") else None
        if maker is None or len(factors) + len(waiting) > _MOST_FACTORS or (maker.op != "Mul" and not divisor):
            factors.append(value)
            continue
        if maker.op == "Pow" and divisor not in (2.0, 3.0):
            factors.append(value)
            continue
        if maker is not node:
            inner.append(maker)
        if maker.op == "Div" and divisor:
            coefficient /= divisor
        times = int(divisor) if maker.op == "Pow" and divisor else 1
        for operand in maker.inputs if maker.op == "Mul" else maker.inputs[:1] * times:
            waiting.append((operand, edit.sole(operand, "Mul", "Div", "Pow") if times == 1 else None))
    return _Product(coefficient, tuple(factors), tuple(inner))


def _product_of(edit: Edit, value: str) -> _Product:
    """The product that an operand is; a value that is none is a product of itself."""
    maker = edit.made_by(value, "Mul", "Div", "Pow")
    return _Product(1.0, (value,), ()) if maker is None else _product(edit, maker)


def _plus_constant(edit: Edit, value: str, constant: float) -> tuple[Node, str] | None:
    """The Add of `constant` and another value that writes `value`, and that other value."""
    node = edit.sole(value, "Add")
    for i in (0, 1) if node is not None else ():
        if node is not None and _close(edit.scalar(node.inputs[i]), constant):
            return node, node.inputs[1 - i]
    return None


def _activation(edit: Edit, node: Node, matched: tuple[Node, ...], new: Node, x: str) -> Change | None:
    """The change, if the constants did not widen the shape."""
    return Change((*matched, node), "written out", (new,)) if edit.same_type(x, node.outputs[0]) else None


def _gelu(edit: Edit, node: Node) -> Change | None:
    """x / 2 (1 + f(x)), f the error function of x / sqrt 2 or its approximation by tanh."""
    product = _product(edit, node)
    if len(product.factors) != 2 or not _close(product.coefficient, 0.5):
        return None
    for x, lifted in (product.factors, product.factors[::-1]):
        lift = _plus_constant(edit, lifted, 1.0)
        curve = None if lift is None else edit.sole(lift[1], "Erf", "Tanh")
        if lift is None or curve is None:
            continue
        inner = _erf_argument(edit, curve, x) if curve.op == "Erf" else _tanh_argument(edit, curve, x)
        if inner is not None:
            kind = {"approximate": "tanh"} if curve.op == "Tanh" else {}
            matched = (*inner, curve, lift[0], *product.inner)
            return _activation(edit, node, matched, rebuilt(node, "Gelu", (x,), **kind), x)
    return None


def _erf_argument(edit: Edit, curve: Node, x: str) -> tuple[Node, ...] | None:
    """Is it x / sqrt 2? The nodes it is written with."""
    argument = _product_of(edit, curve.inputs[0])
    if argument.factors != (x,) or not _close(argument.coefficient, math.sqrt(0.5)):
        return None
    return _with_root(edit, curve.inputs[0], argument)


def _tanh_argument(edit: Edit, curve: Node, x: str) -> tuple[Node, ...] | None:
    """Is it sqrt(2 / pi) (x + 0.044715 x^3), or x (1 + 0.044715 x^2) times the root? The nodes it is written with."""
    argument = _product_of(edit, curve.inputs[0])
    if not _close(argument.coefficient, math.sqrt(2 / math.pi)):
        return None
    power = 3
    factors = list(argument.factors)
    if len(factors) == 2 and x in factors:
        factors.remove(x)
        power = 2
    total = edit.sole(factors[0], "Add") if len(factors) == 1 else None
    for i in (0, 1) if total is not None else ():
        assert total is not None
        first, cubic = total.inputs[1 - i], _product_of(edit, total.inputs[i])
        fits = first == x if power == 3 else _close(edit.scalar(first), 1.0)
        if fits and Counter(cubic.factors) == {x: power} and _close(cubic.coefficient, 0.044715):
            return (*_with_root(edit, total.inputs[i], cubic), total, *_with_root(edit, curve.inputs[0], argument))
    return None


def _with_root(edit: Edit, value: str, product: _Product) -> tuple[Node, ...]:
    root = edit.maker(value)
    return product.inner if root is None or product.factors == (value,) else (*product.inner, root)


def _mish(edit: Edit, node: Node) -> Change | None:
    """x tanh(softplus(x))."""
    for x, curved in (node.inputs, node.inputs[::-1]):
        tanh = edit.sole(curved, "Tanh")
        softplus = None if tanh is None else edit.sole(tanh.inputs[0], "Softplus")
        if tanh is not None and softplus is not None and softplus.inputs[0] == x:
            return _activation(edit, node, (softplus, tanh), rebuilt(node, "Mish", (x,)), x)
    return None


def _hard_sigmoid(edit: Edit, node: Node) -> Change | None:
    """clip(x + 3, 0, 6) / 6."""
    product = _product(edit, node)
    if len(product.factors) != 1 or not _close(product.coefficient, 1 / 6):
        return None
    found = _shifted_clip(edit, product.factors[0])
    if found is None:
        return None
    x, matched = found
    return _activation(
        edit, node, (*matched, *product.inner), rebuilt(node, "HardSigmoid", (x,), alpha=1 / 6, beta=0.5), x
    )


def _shifted_clip(edit: Edit, value: str) -> tuple[str, tuple[Node, ...]] | None:
    """x and the nodes, when `value` is clip(x + 3, 0, 6)."""
    clip = edit.sole(value, "Clip")
    if clip is None or len(clip.inputs) != 3:
        return None
    shifted = _plus_constant(edit, clip.inputs[0], 3.0)
    if shifted is None or edit.scalar(clip.inputs[1]) != 0 or edit.scalar(clip.inputs[2]) != 6:
        return None
    return shifted[1], (shifted[0], clip)


def _is_sixth(node: Node) -> bool:
    """Is a HardSigmoid that of HardSwish?"""
    return _close(node.attribute("alpha", 0.2), 1 / 6) and _close(node.attribute("beta", 0.5), 0.5)


def _hard_swish(edit: Edit, node: Node) -> Change | None:
    """x hardsigmoid(x) with slope 1/6 and offset 1/2, or x clip(x + 3, 0, 6) / 6."""
    product = _product(edit, node)
    if len(product.factors) != 2:
        return None
    for x, gate in (product.factors, product.factors[::-1]):
        single = edit.sole(gate, "HardSigmoid")
        if single is not None and single.inputs[0] == x and _close(product.coefficient, 1.0) and _is_sixth(single):
            return _activation(edit, node, (single, *product.inner), rebuilt(node, "HardSwish", (x,)), x)
        found = _shifted_clip(edit, gate)
        if found is not None and found[0] == x and _close(product.coefficient, 1 / 6):
            return _activation(edit, node, (*found[1], *product.inner), rebuilt(node, "HardSwish", (x,)), x)
    return None


RULES: tuple[tuple[int, LocalRule], ...] = (
    (20, LocalRule("recognise-gelu", ("Mul", "Div"), _gelu)),
    (18, LocalRule("recognise-mish", ("Mul",), _mish)),
    (14, LocalRule("recognise-hard-swish", ("Mul", "Div"), _hard_swish)),
    (7, LocalRule("recognise-hard-sigmoid", ("Mul", "Div"), _hard_sigmoid)),
)
"""Each rule with the first opset that has the operator it writes."""
