"""A graph has both normal forms, is told so, and can be read in either."""

from __future__ import annotations

from typing import Any

from fusewise.ir.forms import a_normal_text, graph_normal_text
from fusewise.passes.normal_forms import a_normal_form, graph_normal_form
from fusewise.trace import Trace

TEXT = """
input x: float32[1,8]
a = Exp(x)
b = Neg(a)
c, d = Split(b) {axis=1, num_outputs=2}
e = Add(c, d)
f = Mul(a, x)
return e, f
"""


def test_the_passes_change_nothing_and_say_why(parse: Any) -> None:
    graph, trace = parse(TEXT), Trace()
    assert a_normal_form(graph, trace) is graph
    assert graph_normal_form(graph, trace) is graph
    assert [event.reason for event in trace] == [
        "A-normal form already: 5 nodes bind 6 names, each once and before it is read",
        "graph normal form already: nodes are joined by the values they read, 1 of which are shared and not repeated",
    ]


def test_both_forms_as_text(parse: Any) -> None:
    graph = parse(TEXT)
    assert a_normal_text(graph).splitlines() == [
        "let a = Exp(x)",
        "let b = Neg(a)",
        "let c, d = Split(b, axis=1, num_outputs=2)",
        "let e = Add(c, d)",
        "let f = Mul(a, x)",
        "in e, f",
    ]
    assert graph_normal_text(graph).splitlines() == [
        "a = Exp(x)",
        "c, d = Split(Neg(a), axis=1, num_outputs=2)",
        "e = Add(c, d)",
        "f = Mul(a, x)",
        "return e, f",
    ]
