"""What people hold shows itself in one to five lines, whatever is in it and whatever it is called."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fusewise
from fusewise.benchmarking.verification import Case, Fault, Verification
from fusewise.cards import Card, counted, listed, one_line
from fusewise.comparing import Comparison
from fusewise.fusion.plan import plan
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.trace import Trace

HOSTILE = "<script>alert('&')</script>\n\x1b[31mred\x1b[0m\u202e\r" + "long" * 5000
TEXTS = st.one_of(st.text(), st.just(HOSTILE), st.text("<>&\"'\n\x1b\u2028", max_size=20))


class Tags(HTMLParser):
    """Collects the tags of a fragment, and that each that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check(shown: Any) -> str:
    """One to five short lines of printable characters, and HTML of our tags alone; the text."""
    text, tags = repr(shown), Tags()
    lines = text.split("\n")
    assert 1 <= len(lines) <= 5, text
    assert all(line.isprintable() and len(line) <= 1000 for line in lines), text
    tags.feed(shown._repr_html_())
    assert tags.seen <= {"table", "caption", "tbody", "tr", "th", "td"} and not tags.open
    return text


def network(name: str = "network", count: int = 1, width: int = 4) -> Graph:
    """A product and an addition for each of so many inputs, all under the name."""
    b = GraphBuilder(name)
    weight = b.constant(np.ones((width, width), np.float32))
    inputs = [b.input(f"{name} {k}", (2, width)) for k in range(count)]
    return b.finish(*(b.op("Add", b.op("MatMul", x, weight), x) for x in inputs))


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=9), TEXTS)
def test_any_card(rows: list[tuple[str, str]], title: str) -> None:
    card = Card(title, tuple(rows))
    lines = card.text.split("\n")
    assert len(lines) == 1 + min(4, len(rows))
    assert all(line.isprintable() and len(line) <= 118 for line in lines)
    tags = Tags()
    tags.feed(card.html)
    assert tags.seen <= {"table", "caption", "tbody", "tr", "th", "td"} and not tags.open


def test_words_of_a_card() -> None:
    assert one_line("a\nb\x1b") == "a\\nb\\x1b"
    assert one_line("x" * 100, 10) == "xxxxxxx..."
    assert listed([]) == "none"
    assert listed("abcdef") == "a, b, c, d and 2 more"
    assert counted({"Relu": 2, "Conv": 53, "Add": 2}) == "53 Conv, 2 Add, 2 Relu"


def test_graphs() -> None:
    text = check(network(count=2))
    assert "4 nodes" in text and "2 Add, 2 MatMul" in text and "network 0: float32[2,4]" in text
    check(network(HOSTILE, 300))
    check(Graph((), (), (), {}))
    check(Graph(("nobody",), (), (), {}))  # broken, as a pass in the making may leave it


def test_plans() -> None:
    graph = network(HOSTILE, 20)
    found = plan(graph, Trace())
    assert "40 nodes in 20 groups" in check(found)
    check(found.partition)


def test_a_layer_fusion_plan() -> None:
    b = GraphBuilder(HOSTILE)
    x = b.input("x", (1, 4, 16, 16))
    weight = b.constant(np.ones((4, 4, 3, 3), np.float32))
    for _ in range(3):
        x = b.op("Relu", b.op("Conv", x, weight, pads=[1, 1, 1, 1]))
    found = fusewise.plan(b.finish(x), buffer="64KiB")
    assert "to and from DRAM" in check(found) and "KiB" in check(found)
    check(found.plan)


def test_traces() -> None:
    trace = Trace(limit=3, disabled=frozenset({HOSTILE}))
    check(trace)
    plan(network(HOSTILE, 20), trace)
    trace.add("host", HOSTILE, (HOSTILE,), HOSTILE, applied=False)
    assert "gated" in check(trace) and "past the bisection limit" in check(trace)


def test_options() -> None:
    assert check(fusewise.Options()) == "Options()"
    assert check(fusewise.Options(threads=2, exact=True)) == "Options(threads=2, exact=True)"
    big = {HOSTILE: np.zeros((1000, 1000))}
    check(fusewise.Options(values=big, disable=(HOSTILE,) * 999, shapes={HOSTILE: (1,)}, cache=HOSTILE, fusion=HOSTILE))
    assert eval(repr(fusewise.Options(threads=2, symbols={"n": "1..8"})), {"Options": fusewise.Options}) == (
        fusewise.Options(threads=2, symbols={"n": "1..8"})
    )


def test_verifications() -> None:
    good = Verification(True, "onnxruntime", {"y": 1e-7}, {"y": 1e-5}, 3)
    assert check(good) == (
        "Verification: answers agree with onnxruntime's: output 'y' differs by 1.00e-07, at most 1e-05 (inputs: random)\n"
        "  differs   y by 1.0e-07 (may be 1e-05)\n  compiled  1 time, 3 decisions"
    )
    errors = {f"{HOSTILE}{k}": 1.0 for k in range(100)}
    fault = Fault(HOSTILE, HOSTILE, HOSTILE, "native code", HOSTILE, 1.0, 0.0)
    case = Case(HOSTILE, False, errors, dict.fromkeys(errors, 0.0))
    check(
        Verification(
            False, HOSTILE, errors, dict.fromkeys(errors, 0.0), 9, HOSTILE, inputs=HOSTILE, cases=(case,), fault=fault
        )
    )


def row(ms: float) -> dict[str, Any]:
    return {"p50_ms": ms, "p90_ms": ms, "runs": 9, "max_rel_error": 1e-7, "peak_rss_mb": 31.0}


def test_comparisons() -> None:
    runtimes = {"fusewise": row(1.0), "onnxruntime": row(1.5), HOSTILE: {"error": HOSTILE}}
    found = {"runtimes": runtimes, "ratio": 1.5, "best_peer": "onnxruntime"}
    about = {"model": HOSTILE, "threads": 1, "precision": "float32"}
    assert "1.50 times as fast as onnxruntime" in check(Comparison(about | {"model": "m"} | found))
    check(Comparison(about | found))
    alone = {"runtimes": {"fusewise": row(1.0)}, "ratio": None, "best_peer": None}
    assert "no other runtime" in check(Comparison(about | {"model": "m"} | alone))
    sizes = [{"symbols": {HOSTILE: k}, **found} for k in range(20)]
    check(Comparison(about | {"sizes": sizes}))
    assert isinstance(Comparison(about), dict)


@pytest.mark.parametrize("make", [network, lambda: network(HOSTILE.replace("\x1b", ""), 30)])
def test_models(make: Callable[[], Graph]) -> None:
    model = fusewise.compile(make(), cache=False, threads=1)
    text = check(model)
    assert "Add" in text and "MatMul" in text and "on the host  nothing" in text
    model.close()
    assert check(model) == "Model, closed"


def test_what_is_not_whole_yet_is_shown_too() -> None:
    """A debugger looks at objects whose constructor has not ended."""
    for kind in (Graph, fusewise.Model, Trace, Verification):
        assert repr(object.__new__(kind)).startswith("<")
