"""LSTM, GRU and RNN written out, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusewise.codegen.legalize import for_native
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.passes.unroll_recurrences import MOST_STEPS, unroll_recurrences
from fusewise.trace import Trace

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrence(
    op: str,
    steps: int = 3,
    samples: int = 1,
    hidden: int = 5,
    bias: bool = True,
    start: str = "none",
    constant: bool = True,
    extra: tuple[str, ...] = (),
    **attributes: Any,
) -> Graph:
    """One over a sequence of four numbers each; states begin with `none`, `zeros` or an `input`. `extra` are operands behind."""
    b, rng = GraphBuilder(), np.random.default_rng(steps)
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    gates, outputs = GATES[op] * hidden, 3 if op == "LSTM" else 2
    x = b.input("x", (steps, samples, 4))

    def weights(*shape: int) -> str:
        values = rng.normal(scale=0.4, size=(directions, *shape)).astype(np.float32)
        return b.constant(values) if constant else b.input(b.fresh("w"), values.shape)

    operands: list[str | None] = [x, weights(gates, 4), weights(gates, hidden)]
    operands.append(weights(2 * gates) if bias else None)
    shape = (directions, samples, hidden)
    if start != "none":
        operands.append(None)
        for name in ("h", "c")[: outputs - 1]:
            operands.append(b.input(name, shape) if start == "input" else b.constant(np.zeros(shape, np.float32)))
    operands.extend(b.constant(np.full(samples, steps, np.int32)) for name in extra if name == "lengths")
    return b.finish(*b.op(op, *operands, outputs=outputs, hidden_size=hidden, **attributes))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    op=st.sampled_from(tuple(GATES)),
    steps=st.integers(1, 4),
    samples=st.integers(1, 3),
    hidden=st.integers(1, 9),
    direction=st.sampled_from(("forward", "reverse", "bidirectional")),
    bias=st.booleans(),
    start=st.sampled_from(("none", "zeros", "input")),
    resets_after=st.integers(0, 1),
)
def test_any_recurrence(same_answers: Any, op: str, direction: str, resets_after: int, **options: Any) -> None:
    attributes: dict[str, Any] = {"direction": direction}
    if op == "GRU":
        attributes["linear_before_reset"] = resets_after
    before = recurrence(op, **options, **attributes)
    after = unroll_recurrences(before, Trace())
    assert not any(node.op in GATES for node in after.nodes)
    same_answers(before, after, False)


@pytest.mark.parametrize(
    ("op", "activations"), [("RNN", ("Relu",)), ("LSTM", ("Sigmoid", "Relu", "Tanh")), ("GRU", ("Tanh", "Sigmoid"))]
)
def test_activations(same_answers: Any, op: str, activations: tuple[str, ...]) -> None:
    before = recurrence(op, start="input", activations=activations)
    after = unroll_recurrences(before, Trace())
    assert {node.op for node in after.nodes} >= set(activations)
    same_answers(before, after, False)


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("LSTM", {"constant": False}),
        ("LSTM", {"clip": 1.0}),
        ("LSTM", {"input_forget": 1}),
        ("RNN", {"extra": ("lengths",)}),
        ("RNN", {"activations": ("HardSigmoid",)}),
        ("GRU", {"steps": MOST_STEPS + 1}),
        ("GRU", {"steps": MOST_STEPS // 2 + 1, "direction": "bidirectional"}),
    ],
)
def test_what_stays(op: str, options: dict[str, Any]) -> None:
    graph, trace = recurrence(op, **options), Trace()
    assert unroll_recurrences(graph, trace) is graph
    assert not trace.events


def test_only_for_a_shorter_precision() -> None:
    graph = recurrence("LSTM")
    assert for_native(graph, "float32", Trace(), exact=True) is graph
    assert for_native(graph, "float32", Trace()) is graph
    assert len(for_native(graph, "bfloat16", Trace()).nodes) > 3
