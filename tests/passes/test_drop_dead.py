"""What no output needs goes: nodes, constants, optional outputs."""

from __future__ import annotations

from typing import Any

from fusewise.passes.drop_dead import drop_dead
from fusewise.trace import Trace


def test_dead_nodes_and_what_only_they_read(rewrites: Any) -> None:
    rewrites(
        drop_dead,
        """
        input x: float32[2,3]
        constant c: float32[2,3] = #c
        a = Relu(x)
        b = Mul(a, c)
        d = Exp(b)
        y = Abs(a)
        return y
        """,
        "a = Relu(x)\ny = Abs(a)\nreturn y",
    )


def test_optional_outputs_nobody_reads(rewrites: Any) -> None:
    rewrites(
        drop_dead,
        """
        input x: float32[2,9]
        constant s: float32[9] = #s
        y, m, d = LayerNormalization(x, s)
        z, k, e = LayerNormalization(x, s)
        p, q = Split(y) {axis=1, num_outputs=2}
        return p, e
        """,
        """
        constant s = #
        y = LayerNormalization(x, s)
        z, _, e = LayerNormalization(x, s)
        p, q = Split(y) {axis=1, num_outputs=2}
        return p, e
        """,
        exact=False,  # the reference evaluator is asked about the second
    )


def test_nothing_to_do(refuses: Any, parse: Any) -> None:
    refuses(drop_dead, "input x: float32[2]\ny = Relu(x)\nreturn y")


def test_an_unread_constant_goes_without_an_event(parse: Any) -> None:
    graph = parse("input x: float32[2]\nconstant c: float32[2] = #c\ny = Relu(x)\nreturn y")
    trace = Trace()
    assert not drop_dead(graph, trace).constants
    assert not trace.events
