"""Matrix products: parallel ones merged, sums of them, another order. For the search: not every one pays everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from fusewise.rewrite.match import Match
from fusewise.rewrite.pattern import Computed
from fusewise.rewrite.rule import Guard, Rule, RuleSample, rule
from fusewise.rewrite.rules.guards import all_of, one_number

__all__ = ["PRODUCTS"]


def _matrices(*variables: str) -> Guard:
    """The variables are matrices."""

    def check(match: Match) -> str | None:
        wrong = next((name for name in variables if match.type(name).rank != 2), None)
        return None if wrong is None else f"{wrong} is not a matrix"

    check.__doc__ = f"{' and '.join(variables)} are matrices"
    return check


def _one_shape(match: Match) -> str | None:
    """b and c have one shape."""
    return None if match.type("b").dims == match.type("c").dims else "the shapes of b and c differ"


def _plain_gemm(match: Match) -> str | None:
    """Gemm without factors, on an untransposed left side."""
    node = match.like["p"]
    plain = node.attribute("alpha", 1.0) == 1 and node.attribute("beta", 1.0) == 1 and not node.attribute("transA", 0)
    if not plain:
        return "the product is scaled or transposed"
    vectors = match.type("b").rank == match.type("d").rank == 1
    wide = match.type("b").size == _rows(match, "v") and match.type("d").size == _rows(match, "w")
    return None if vectors and wide else "a bias is not one number a column"


def _rows(match: Match, weights: str) -> int:
    return match.type(weights).dims[0 if match.like["p"].attribute("transB", 0) else 1]


def _apart(match: Match) -> str | None:
    """Neither product needs the other."""
    graph = match.graph
    first, second = sorted(graph.producer[root] for root in match.roots)
    waiting, seen = [second], set()
    while waiting:
        for value in graph.nodes[waiting.pop()].reads:
            maker = graph.producer.get(value, -1)
            if maker == first:
                return "one product needs the other"
            if maker > first and maker not in seen:
                seen.add(maker)
                waiting.append(maker)
    return None


def _halved_product(match: Match) -> str | None:
    """The Split cuts the columns in two halves."""
    width, sizes = match.type("w").dims[1], match.array("sizes")
    axis = match.like["s"].attribute("axis", 0) % match.type("x").rank
    even = sizes is None or list(sizes) == [width // 2] * 2
    return None if axis == match.type("x").rank - 1 and even and width % 2 == 0 else "not two halves of the columns"


def _sum_of_columns(match: Match) -> np.ndarray:
    array = match.array("w")
    assert array is not None
    first, second = np.split(array, 2, axis=1)
    return np.asarray(first + second)


_ROWS = Computed("rows", lambda m: np.array([m.type("x").dims[0], m.type("y").dims[0]], np.int64))
_WIDTHS = Computed("widths", lambda m: np.array([m.type("v").dims[-1], m.type("w").dims[-1]], np.int64))
_GEMM_WIDTHS = Computed("widths", lambda m: np.array([_rows(m, "v"), _rows(m, "w")], np.int64))
_GEMM_AXIS = Computed("axis", lambda m: 0 if m.like["p"].attribute("transB", 0) else 1)


def _turns(match: Match) -> str | None:
    """The transposition is of a matrix."""
    perm = match.like["t"].attribute("perm", (1, 0))
    return None if tuple(perm) == (1, 0) else "other axes than those of a matrix are turned"


def _turned(side: str) -> Computed:
    """Whether Gemm reads this side transposed, once it reads it from before the transposition."""
    return Computed(f"1 - {side}", lambda m: 1 - int(m.like["p"].attribute(side, 0)))


def _added(pair: tuple[Any, Any]) -> Any:
    return pair[0] + pair[1]


PRODUCTS: tuple[Rule, ...] = (
    rule(
        "merge-parallel-products",
        lambda g, x, v, w: (g.MatMul(x, v), g.MatMul(x, w)),
        lambda g, x, v, w: g.Split(g.MatMul(x, g.Concat(v, w, axis=-1)), _WIDTHS, axis=-1, outputs=2),
        "distributive",
        "reassociating",
        needs=(("v", "constant"), ("w", "constant")),
        guard=_matrices("v", "w"),
        samples=(
            RuleSample({"x": (2, 2, 3), "v": (3, 2), "w": (3, 4)}),
            RuleSample({"x": (4, 3), "v": (3, 1), "w": (3, 1)}),
        ),
    ),
    rule(
        "merge-parallel-gemms",
        lambda g, x, v, b, w, d: (g.Gemm(x, v, b, like="p"), g.Gemm(x, w, d, like="p")),
        lambda g, x, v, b, w, d: g.Split(
            g.Gemm(x, g.Concat(v, w, axis=_GEMM_AXIS), g.Concat(b, d, axis=0), like="p"),
            _GEMM_WIDTHS,
            axis=1,
            outputs=2,
        ),
        "distributive",
        "reassociating",
        needs=tuple((name, "constant") for name in "vbwd"),
        guard=all_of(_matrices("v", "w"), _plain_gemm),
        samples=(
            RuleSample({"x": (2, 3), "v": (3, 2), "b": (2,), "w": (3, 4), "d": (4,)}),
            RuleSample({"x": (2, 3), "v": (2, 3), "b": (2,), "w": (1, 3), "d": (1,)}, {}, {"p": {"transB": 1}}),
        ),
    ),
    rule(
        "merge-products-with-one-matrix",
        lambda g, x, y, w: (g.MatMul(x, w), g.MatMul(y, w)),
        lambda g, x, y, w: g.Split(g.MatMul(g.Concat(x, y, axis=0), w), _ROWS, axis=0, outputs=2),
        "distributive",
        "exact",
        needs=(("w", "constant"),),
        guard=all_of(_matrices("x", "y", "w"), _apart),
        samples=(
            RuleSample({"x": (1, 3), "y": (2, 3), "w": (3, 2)}),
            RuleSample({"x": (2, 1), "y": (2, 1), "w": (1, 3)}),
        ),
    ),
    rule(
        "sum-of-halves-into-product",
        lambda g, x, w, sizes=None: _added(g.Split(g.MatMul(x, w), sizes, like="s", outputs=2)),
        lambda g, x, w, sizes=None: g.MatMul(x, Computed("sum of the halves of w", _sum_of_columns)),
        "distributive",
        "reassociating",
        needs=(("w", "constant"),),
        guard=all_of(_matrices("w"), _halved_product),
        samples=(
            RuleSample({"x": (2, 3), "w": (3, 4)}, {"sizes": np.array([2, 2])}, {"s": {"axis": -1}}),
            RuleSample({"x": (1, 2, 3), "w": (3, 2)}, {"sizes": None}, {"s": {"axis": 2, "num_outputs": 2}}),
        ),
    ),
    rule(
        "left-factor-out-of-products",
        lambda g, a, b, c: g.MatMul(a, b) + g.MatMul(a, c),
        lambda g, a, b, c: g.MatMul(a, b + c),
        "distributive",
        "reassociating",
        guard=_one_shape,
        samples=(
            RuleSample({"a": (2, 3), "b": (3, 2), "c": (3, 2)}),
            RuleSample({"a": (2, 2, 3), "b": (3, 1), "c": (3, 1)}),
        ),
    ),
    rule(
        "right-factor-out-of-products",
        lambda g, a, b, c: g.MatMul(b, a) + g.MatMul(c, a),
        lambda g, a, b, c: g.MatMul(b + c, a),
        "distributive",
        "reassociating",
        guard=_one_shape,
        samples=(
            RuleSample({"a": (3, 2), "b": (2, 3), "c": (2, 3)}),
            RuleSample({"a": (3, 1), "b": (2, 1, 3), "c": (2, 1, 3)}),
        ),
    ),
    rule(
        "product-of-concatenations",
        lambda g, x, v, y, w: g.MatMul(x, v) + g.MatMul(y, w),
        lambda g, x, v, y, w: g.MatMul(g.Concat(x, y, axis=-1), g.Concat(v, w, axis=0)),
        "distributive",
        "reassociating",
        guard=all_of(_matrices("v", "w"), lambda m: _same_but_last(m, "x", "y")),
        samples=(
            RuleSample({"x": (2, 3), "v": (3, 2), "y": (2, 1), "w": (1, 2)}),
            RuleSample({"x": (2, 2, 3), "v": (3, 4), "y": (2, 2, 3), "w": (3, 4)}),
        ),
    ),
    rule(
        "product-from-the-right",
        lambda g, a, b, c: g.MatMul(g.MatMul(a, b), c),
        lambda g, a, b, c: g.MatMul(a, g.MatMul(b, c)),
        "associative",
        "reassociating",
        guard=_matrices("b", "c"),
        samples=(
            RuleSample({"a": (4, 2), "b": (2, 3), "c": (3, 1)}),
            RuleSample({"a": (2, 1, 3), "b": (3, 3), "c": (3, 2)}),
        ),
    ),
    rule(
        "product-from-the-left",
        lambda g, a, b, c: g.MatMul(a, g.MatMul(b, c)),
        lambda g, a, b, c: g.MatMul(g.MatMul(a, b), c),
        "associative",
        "reassociating",
        guard=_matrices("a", "b", "c"),
        samples=(
            RuleSample({"a": (1, 2), "b": (2, 3), "c": (3, 4)}),
            RuleSample({"a": (2, 3), "b": (3, 1), "c": (1, 2)}),
        ),
    ),
    rule(
        "scale-into-weights",
        lambda g, x, w, s: g.MatMul(x * s, w),
        lambda g, x, w, s: g.MatMul(x, w * s),
        "associative",
        "reassociating",
        needs=(("w", "constant"),),
        guard=one_number("s"),
        samples=(RuleSample({"x": (2, 3), "w": (3, 2), "s": ()}, {"s": np.array(2, np.float32)}),),
    ),
    rule(
        "transposition-into-gemm-on-the-left",
        lambda g, a, b, c=None: g.Gemm(g.Transpose(a, like="t"), b, c, like="p"),
        lambda g, a, b, c=None: g.Gemm(a, b, c, like="p", transA=_turned("transA")),
        "recognising",
        "exact",
        guard=_turns,
        samples=(
            RuleSample({"a": (3, 2), "b": (3, 4)}, {"c": None}),
            RuleSample({"a": (2, 3), "b": (4, 3), "c": (4,)}, {}, {"p": {"transA": 1, "transB": 1, "alpha": 2.0}}),
        ),
    ),
    rule(
        "transposition-into-gemm-on-the-right",
        lambda g, a, b, c=None: g.Gemm(a, g.Transpose(b, like="t"), c, like="p"),
        lambda g, a, b, c=None: g.Gemm(a, b, c, like="p", transB=_turned("transB")),
        "recognising",
        "exact",
        guard=_turns,
        samples=(
            RuleSample({"a": (2, 3), "b": (4, 3)}, {"c": None}, {"t": {"perm": (1, 0)}}),
            RuleSample({"a": (3, 2), "b": (3, 4), "c": (2, 4)}, {}, {"p": {"transA": 1, "transB": 1, "beta": 0.5}}),
        ),
    ),
    rule(
        "transposition-into-product-on-the-left",
        lambda g, a, b: g.MatMul(g.Transpose(a, like="t"), b),
        lambda g, a, b: g.Gemm(a, b, transA=1),
        "recognising",
        "exact",
        guard=all_of(_turns, _matrices("a", "b")),
        samples=(
            RuleSample({"a": (3, 2), "b": (3, 4)}),
            RuleSample({"a": (1, 2), "b": (1, 3)}, {}, {"t": {"perm": (1, 0)}}),
        ),
    ),
    rule(
        "transposition-into-product-on-the-right",
        lambda g, a, b: g.MatMul(a, g.Transpose(b, like="t")),
        lambda g, a, b: g.Gemm(a, b, transB=1),
        "recognising",
        "exact",
        guard=all_of(_turns, _matrices("a", "b")),
        samples=(
            RuleSample({"a": (2, 3), "b": (4, 3)}),
            RuleSample({"a": (2, 1), "b": (3, 1)}, {}, {"t": {"perm": (1, 0)}}),
        ),
    ),
    rule(
        "product-of-transposed",
        lambda g, a, b: g.MatMul(g.Transpose(a, perm=(1, 0)), g.Transpose(b, perm=(1, 0))),
        lambda g, a, b: g.Transpose(g.MatMul(b, a), perm=(1, 0)),
        "commutative",
        "reassociating",
        samples=(RuleSample({"a": (3, 2), "b": (4, 3)}),),
    ),
)


def _same_but_last(match: Match, *variables: str) -> str | None:
    leading = {match.type(name).dims[:-1] for name in variables}
    return None if len(leading) == 1 else "the operands are not stacked alike"
