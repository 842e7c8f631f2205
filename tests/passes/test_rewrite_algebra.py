"""The two passes that rewrite: which applications each makes, and when they run."""

from __future__ import annotations

from typing import Any

import pytest

from fusewise.passes.pipeline import CLEAN, run
from fusewise.passes.rewrite_algebra import rewrite_algebra, rewrite_exactly
from fusewise.trace import Trace

X = "input x: float32[2,3]\ninput z: float32[2,3]\ninput s: float32[3]\n"


def test_a_factor_is_taken_out(rewrites: Any) -> None:
    before = X + "a = Mul(x, s)\nb = Mul(z, s)\ny = Add(a, b)\nreturn y"
    after = "y_1 = Add(x, z)\ny = Mul(s, y_1)\nreturn y"
    rewrites(rewrite_algebra, before, after, exact=False)


def test_what_changes_no_bit(rewrites: Any, refuses: Any) -> None:
    before = X + "a = Relu(x)\nb = Relu(z)\ny = Max(a, b)\nreturn y"
    rewrites(rewrite_exactly, before, "y_1 = Max(x, z)\ny = Relu(y_1)\nreturn y")
    refuses(rewrite_exactly, X + "a = Mul(x, s)\nb = Mul(z, s)\ny = Add(a, b)\nreturn y")


@pytest.mark.parametrize("exact, left", [(True, "Mul Mul Add"), (False, "Add Mul")])
def test_exact_mode_keeps_roundings(parse: Any, same_answers: Any, exact: bool, left: str) -> None:
    graph = parse(X + "a = Mul(x, s)\nb = Mul(z, s)\ny = Add(a, b)\nreturn y")
    after = run(graph, exact=exact)
    assert [node.op for node in after.nodes] == left.split()
    same_answers(graph, after, exact)


def test_what_others_recognise_is_not_hidden_from_them(parse: Any, same_answers: Any) -> None:
    """The factor 0.5 stands before GELU's sum; taken through it, nobody would see GELU any more."""
    graph = parse(
        X
        + """
        constant root: float32[] = 1.4142135
        constant one: float32[] = 1.0
        constant half: float32[] = 0.5
        a = Div(x, root)
        b = Erf(a)
        c = Add(b, one)
        d = Mul(x, c)
        y = Mul(d, half)
        return y
        """
    )
    trace = Trace()
    after = run(graph, CLEAN, trace)
    assert [node.op for node in after.nodes] == ["Gelu"]
    same_answers(graph, after, False)
    alone = run(graph, (rewrite_algebra,))
    same_answers(graph, alone, False)
    assert "Gelu" not in {node.op for node in alone.nodes}


def test_rules_go_by_name(parse: Any) -> None:
    graph = parse(X + "a = Mul(x, s)\nb = Mul(z, s)\ny = Add(a, b)\nreturn y")
    trace = Trace(disabled=frozenset({"factor-out-of-sum"}))
    assert rewrite_algebra(graph, trace) is graph
    assert [(event.what, event.reason) for event in trace] == [("factor-out-of-sum", "disabled by name")]


def test_nothing_is_rewritten_past_the_range_of_a_constant(parse: Any) -> None:
    graph = parse(X + "constant c: float32[] = 3e30\na = Mul(x, c)\ny = Mul(a, c)\nreturn y")
    assert rewrite_algebra(graph, Trace()) is graph
