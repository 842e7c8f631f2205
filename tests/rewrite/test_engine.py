"""What rewriting makes of whole graphs: the published examples, what must stay, and random expressions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.ir.dtypes import BOOL, FLOAT32, INT32, DType, dtype_named
from fusewise.ir.graph import Graph
from fusewise.ir.verify import verify
from fusewise.ops.build import GraphBuilder
from fusewise.passes.merge_equal import merge_equal
from fusewise.rewrite.engine import parts, rewrite
from fusewise.rewrite.exact import UNDEFINED, run_exactly
from fusewise.rewrite.rules.table import ALGEBRA
from fusewise.rewrite.work import NOTHING, Work, work_of
from fusewise.trace import Trace

M, N = 8, 8
UINT8 = dtype_named("uint8")


def work(graph: Graph) -> Work:
    total = NOTHING
    for node in graph.nodes:
        total = total.plus(work_of(node, graph.types, {x: c.array for x, c in graph.constants.items()}))
    return total


AXES = {"axes": np.array([1]), "s": np.array(2, np.uint32)}

PUBLISHED = [
    (lambda g, a, b: g.Reciprocal(a) * g.Reciprocal(a * b), "Reciprocal(a * (a * b))", 4, 3),
    (lambda g, a, b, c: (a * g.Sqrt(g.Abs(b))) * (g.Sqrt(g.Abs(b)) * c), "Abs(b) * a * c", 5, 3),
    (lambda g, a, b, c: g.Abs(a) * b * g.Abs(c), "Abs(a * c) * b", 4, 3),
    (lambda g, a, b, c: a * c + a * b, "a * (c + b)", 3, 2),
    (lambda g, a, b: a + a * b, "a * (b + 1)", 2, 2),
    (lambda g, a, b, c: g.Pow(a + b, 2) - (a + b) * c, "(a + b) * (a + b - c)", 4, 3),
    (lambda g, a, b, c: (a + b) * (a + b) - (a + b) * c, "(a + b) * (a + b - c)", 4, 3),
]
"""Table 4 of the paper, rows without axes: before, after, arithmetic operations for each element, sums shared."""


@pytest.mark.parametrize("function, expected, before, after", PUBLISHED)
def test_published_rules(written: Any, shown: Any, function: Any, expected: str, before: int, after: int) -> None:
    graph = merged(written(function, a=(M, N), b=(M, N), c=(M, N)))
    result = rewrite(graph, ALGEBRA, Trace())
    verify(result)
    assert shown(result) == expected
    assert work(graph).flops == before * M * N
    assert work(result).flops == after * M * N
    assert work(result) < work(graph)


@pytest.mark.parametrize(
    "function, dtype, expected, before, after",
    [
        (
            lambda g, a, b, c, axes: (a * g.ReduceSum(b, axes)) * (g.ReduceSum(b, axes) * c),
            FLOAT32,
            "ReduceSum(b, axes) * ReduceSum(b, axes) * (a * c)",
            4 * M * N,
            3 * M * N + M,
        ),
        (
            lambda g, a, s, axes: g.ReduceSum(g.BitShift(a, s, direction="LEFT"), axes),
            dtype_named("uint32"),
            "BitShift(ReduceSum(a, axes), s, direction='LEFT')",
            None,
            None,
        ),
        (
            lambda g, a, axes: g.ReduceProd(g.Exp(a), axes),
            FLOAT32,
            "Exp(ReduceSum(a, axes))",
            2 * M * N,
            M * N + M,
        ),
    ],
)
def test_published_rules_on_rows(
    written: Any, shown: Any, function: Any, dtype: DType, expected: str, before: int | None, after: int | None
) -> None:
    graph = merged(written(function, dtype, AXES, a=(M, N), b=(M, N), c=(M, N)))
    result = rewrite(graph, ALGEBRA, Trace())
    verify(result)
    assert shown(result) == expected
    assert work(result).flops < work(graph).flops
    if before is not None:
        assert (work(graph).flops, work(result).flops) == (before, after)


def merged(graph: Graph) -> Graph:
    """What is computed twice computed once, as the passes before leave it."""
    return merge_equal(graph, Trace())


def test_constants_are_combined_and_computed(written: Any, shown: Any) -> None:
    graph = written(lambda g, x, c: (2 * (x + 1) + c) * 3 - 4, constants={"c": 0.5})
    result = rewrite(graph, ALGEBRA, Trace())
    assert shown(result) == "(2 * (x + 1) + 0.5) * 3 - 4", "a product does not trade places with a sum"
    graph = written(lambda g, x, y: ((x * 2) / 4) * (y * 3))
    assert shown(rewrite(graph, ALGEBRA, Trace())) == "1.5 * (x * y)"


@pytest.mark.parametrize(
    "constant, reason", [(1e30, "a constant would leave the range of its type"), (1e-30, "a constant would vanish")]
)
def test_constants_stay_in_range(written: Any, constant: float, reason: str) -> None:
    graph, trace = written(lambda g, x, c: (x * c) * c, constants={"c": constant}), Trace()
    assert rewrite(graph, ALGEBRA, trace) is graph
    assert [(event.what, event.reason, event.applied) for event in trace] == [("regroup-mul", reason, False)]


def test_small_operands_meet_first(written: Any, shown: Any) -> None:
    graph = written(lambda g, x, r, s: (x * r) * s, x=(4, 8), r=(8,), s=(1, 8))
    assert shown(rewrite(graph, ALGEBRA, Trace())) in ("r * s * x", "s * r * x")
    outer = written(lambda g, x, r, s: (x * r) * s, x=(4, 8), r=(8,), s=(4, 1))
    assert rewrite(outer, ALGEBRA, Trace()) is outer, "together they are as large as x"


def test_a_sum_of_one_value_is_a_product(written: Any, shown: Any) -> None:
    for function, expected in (
        (lambda g, a: a + a + a, "a * 3"),
        (lambda g, a: a + a + a + a + a, "a * 5"),
        (lambda g, a, b: a + b + a + a, "a * 3 + b"),
    ):
        assert shown(rewrite(written(function), ALGEBRA, Trace())) == expected
    twice = written(lambda g, a: a + a)
    assert rewrite(twice, ALGEBRA, Trace()) is twice, "a sum is as cheap"


@pytest.mark.parametrize(
    "function, expected",
    [
        (lambda g, a: g.Conv(g.Pow(g.Conv(a, a), 2), a), "Mul"),
        (lambda g, a: g.Conv(g.Max(g.Conv(a, a), g.Conv(a, a)), a), None),
        (lambda g, a: g.Conv(1 / g.Conv(a, a), a), "Reciprocal"),
    ],
)
def test_one_node_among_others_without_laws(written: Any, function: Any, expected: str | None) -> None:
    graph = merged(written(function, a=(3, 3, 1, 1)))
    assert [node.op for node in rewrite(graph, ALGEBRA, Trace()).nodes] == ["Conv", *filter(None, [expected]), "Conv"]


def test_a_value_beside_itself_is_known_where_it_is_finite(written: Any, shown: Any) -> None:
    def beside(g: Any, a: Any, b: Any) -> Any:
        return g.Max(a - a, b), b * g.Sub(a, a)

    graph = written(beside)
    assert rewrite(graph, ALGEBRA, Trace()) is graph, "infinity less infinity is no number"
    result = rewrite(written(beside, INT32), ALGEBRA, Trace())
    assert [node.op for node in result.nodes] == ["Max"]
    assert [result.array(x).tolist() for x in result.outputs[1:]] == [[[0] * 3] * 2]
    whole = written(lambda g, a: g.Cast(a, to=1) / g.Cast(a, to=1), INT32)
    assert [node.op for node in rewrite(merged(whole), ALGEBRA, Trace()).nodes] == ["Cast", "Div"], "it may be zero"


# -- what must stay -----------------------------------------------------------------------------------------------------------


def test_a_shared_product_is_not_computed_twice(written: Any) -> None:
    graph = merged(written(lambda g, a, b, c: (a * b + a * c, g.Exp(a * b), g.Exp(a * c))))
    assert rewrite(graph, ALGEBRA, Trace()) is graph
    partly = merged(written(lambda g, a, b, c: (a * b + a * c, g.Exp(a * b))))
    assert rewrite(partly, ALGEBRA, Trace()) is partly, "one product stays: nothing is saved"


def test_outputs_of_the_graph_stay(written: Any, shown: Any) -> None:
    graph = merged(written(lambda g, a, b, c: (a * b + a * c, a * b, a * c)))
    assert rewrite(graph, ALGEBRA, Trace()) is graph
    graph = merged(written(lambda g, a: (g.Sqrt(g.Abs(a)) * g.Sqrt(g.Abs(a)), g.Neg(g.Sqrt(g.Abs(a))))))
    result = rewrite(graph, ALGEBRA, Trace())
    verify(result)
    assert result.outputs == graph.outputs
    assert shown(result) == "Identity(Abs(a)), -Sqrt(Abs(a))"


def test_a_root_needs_a_sign(written: Any) -> None:
    graph, trace = merged(written(lambda g, a: g.Sqrt(a) * g.Sqrt(a) + 1)), Trace()
    assert rewrite(graph, ALGEBRA, trace) is graph
    (event,) = trace
    assert (event.what, event.applied) == ("root-times-itself", False)
    assert event.reason == "a is not known to be nonnegative"
    assert event.where


def test_approximate_rules_are_off_unless_asked_for(written: Any, shown: Any) -> None:
    graph = written(lambda g, a, b: g.Sqrt(g.Abs(a)) * g.Sqrt(g.Exp(b)))
    assert rewrite(graph, ALGEBRA, Trace()) is graph
    assert shown(rewrite(graph, ALGEBRA, Trace(), worst="approximate")) == "Sqrt(Abs(a) * Exp(b))"


def test_exact_mode_takes_exact_applications_only(written: Any, shown: Any) -> None:
    def both(g: Any, a: Any, b: Any, c: Any) -> Any:
        return a * b + a * c, g.Max(g.Min(a, b), g.Min(a, c))

    graph = written(both)
    assert shown(rewrite(graph, ALGEBRA, Trace(), worst="exact")) == "a * b + a * c, Min(a, Max(b, c))"
    whole = written(both, INT32)
    assert shown(rewrite(whole, ALGEBRA, Trace(), worst="exact")) == "a * (b + c), Min(a, Max(b, c))"
    # signs change no bit, but another order of the factors may
    graph = written(lambda g, a, b, c: -a * c * -b)
    assert rewrite(graph, ALGEBRA, Trace(), worst="exact") is graph
    assert shown(rewrite(graph, ALGEBRA, Trace())) == "a * b * c"


def test_unknown_shapes_are_left_alone() -> None:
    build = GraphBuilder()
    a, b, c = (build.input(name, ("n", 3)) for name in "abc")
    graph = build.finish(build.op("Add", build.op("Mul", a, b), build.op("Mul", a, c)))
    assert rewrite(graph, ALGEBRA, Trace()) is graph


def test_a_part_ends_at_an_operator_without_laws(written: Any) -> None:
    graph = written(lambda g, a, b: g.Softmax(a + b) * (b - a), dtype=FLOAT32)
    ops = [[graph.nodes[i].op for i in part] for part in parts(graph, frozenset({"Add", "Mul", "Sub"}))]
    assert sorted(ops) == [["Add"], ["Sub", "Mul"]]


# -- decisions ----------------------------------------------------------------------------------------------------------------


def test_events_tell_what_was_saved(written: Any) -> None:
    trace = Trace()
    rewrite(written(lambda g, a, b, c: a * b + a * c), ALGEBRA, trace)
    (event,) = trace
    assert (event.kind, event.what, event.before, event.after) == ("rewrite", "factor-out-of-sum", 18.0, 12.0)
    assert event.reason == "operations 18 to 12, elements read 36 to 24, operators 3 to 2"
    assert len(event.where) == 3


def test_rules_can_be_disabled_and_decisions_limited(written: Any, shown: Any) -> None:
    graph = written(lambda g, a, b, c, d: (a * b + a * c) * d + d * g.Neg(-c * -b))
    everything = Trace()
    rewrite(graph, ALGEBRA, everything)
    assert everything.gates >= 3
    for limit in range(everything.gates + 1):
        trace = Trace(limit=limit)
        verify(rewrite(graph, ALGEBRA, trace))
        assert sum(event.applied for event in trace) == min(limit, everything.gates)
    without = rewrite(graph, ALGEBRA, Trace(disabled=frozenset({"product-of-negatives"})))
    assert "-c * -b" in shown(without)


# -- random expressions -------------------------------------------------------------------------------------------------------

SHAPES = ((2, 3), (3,), (2, 1), ())
ORDERED = ("Add", "Sub", "Mul", "Max", "Min"), ("Neg", "Abs")
FIELD = ("Mul", "Div", "Add", "Sub"), ("Neg", "Abs", "Reciprocal", "Sqrt", "Exp")
LOGIC = ("And", "Or", "Xor"), ("Not",)
BITS = ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "Add", "Mul", "Max", "Min"), ("BitwiseNot",)

Choice = tuple[int, int, int]


def expression(choices: list[Choice], operators: tuple[tuple[str, ...], ...], dtype: DType, shared: int) -> Graph:
    """A graph of one node a choice: operator, operands among what is there; whatever nobody reads is an output."""
    build = GraphBuilder("random")
    values = [build.input(f"x{k}", shape, dtype) for k, shape in enumerate(SHAPES)]
    two, one = operators
    for which, left, right in choices:
        recent = values[-shared:]
        op = (two * 2 + one)[which % (2 * len(two) + len(one))]
        inputs = [recent[left % len(recent)]] + ([recent[right % len(recent)]] if op in two else [])
        values.append(build.op(op, *inputs))
    read = {x for node in build.nodes for x in node.inputs}
    return build.finish(*(x for node in build.nodes for x in node.outputs if x not in read))


NUMBER = st.integers(0, 1000)
EXPRESSIONS = st.lists(st.tuples(NUMBER, NUMBER, NUMBER), min_size=2, max_size=14)


def rewritten(graph: Graph) -> Graph:
    """Rewritten, sound, with less work, and once for all."""
    graph = merged(graph)
    result = rewrite(graph, ALGEBRA, Trace())
    verify(result)
    assert (result.inputs, result.outputs) == (graph.inputs, graph.outputs)
    assert [result.types[x] for x in result.outputs] == [graph.types[x] for x in graph.outputs]
    assert result is graph or work(result) < work(graph)
    assert rewrite(result, ALGEBRA, Trace()) is result
    return result


@settings(max_examples=60, deadline=None)
@given(EXPRESSIONS, st.sampled_from((ORDERED, FIELD)), st.integers(3, 8), st.integers(0, 99))
def test_random_expressions_keep_their_value(choices: Any, operators: Any, shared: int, seed: int) -> None:
    graph = expression(choices, operators, FLOAT32, shared)
    rng = np.random.default_rng(seed)
    feeds = {}
    for name in graph.inputs:
        kind = graph.tensor(name)
        numbers = [Fraction(int(x), 2) for x in rng.integers(-4, 9, kind.size)]
        feeds[name] = np.array([*numbers, None], dtype=object)[:-1].reshape(kind.dims)
    for a, b in zip(run_exactly(graph, feeds), run_exactly(rewritten(graph), feeds), strict=True):
        for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True):
            assert x is UNDEFINED or x == y


def test_what_loses_a_reader_far_away_is_looked_at_again(written: Any) -> None:
    """A difference that is zero leaves its operands, and what made them, without a reader: a tree of minima grows."""

    def far(g: Any, a: Any, b: Any) -> Any:
        least = g.Min(a, b)
        far = g.Neg(g.Abs(least))
        return g.Min(least, a), far - far

    result = rewritten(written(far, INT32))
    assert [(node.op, node.inputs) for node in result.nodes] == [("Min", ("a", "b"))]


@settings(max_examples=60, deadline=None)
@given(
    EXPRESSIONS,
    st.sampled_from(((ORDERED, INT32), (LOGIC, BOOL), (BITS, UINT8))),
    st.integers(3, 8),
    st.integers(0, 99),
)
def test_random_expressions_of_integers_keep_every_bit(choices: Any, kinds: Any, shared: int, seed: int) -> None:
    operators, dtype = kinds
    graph = expression(choices, operators, dtype, shared)
    rng = np.random.default_rng(seed)
    feeds = {}
    for name in graph.inputs:
        shape = graph.tensor(name).dims
        raw = rng.integers(0, 2**32, shape, dtype=np.uint32)
        feeds[name] = (raw > 2**31) if dtype == BOOL else raw.astype(dtype.numpy)
    for a, b in zip(run_exactly(graph, feeds), run_exactly(rewritten(graph), feeds), strict=True):
        np.testing.assert_array_equal(a, b)
