"""What is read from joined tensors is read from the parts; what needs all of them, or is not known, stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.passes.conftest import assert_same_answers

from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.passes.simplify_movement import simplify_movement
from fusewise.trace import Trace

WIDTHS = (3, 1, 4)


def sliced(*bounds: tuple[int, int, int, int], widths: tuple[int, ...] = WIDTHS) -> Graph:
    """A Slice of three joined tensors, by begin, end, axis and step."""
    build = GraphBuilder("sliced")
    parts = [build.input(name, (2, width)) for name, width in zip("abc", widths, strict=False)]
    joined = build.op("Concat", *parts, axis=-1)
    operands = (build.constant(np.array(numbers, np.int64)) for numbers in zip(*bounds, strict=True))
    return build.finish(build.op("Slice", joined, *operands))


def gathered(*indices: int, scalar: bool = False, width: int = 3) -> Graph:
    build = GraphBuilder("gathered")
    joined = build.op("Concat", build.input("a", (2, width)), build.input("b", (2, 1)), axis=1)
    wanted = np.array(indices[0] if scalar else indices, np.int64)
    return build.finish(build.op("Gather", joined, build.constant(wanted), axis=-1))


def simplified(graph: Graph, same_answers: Any) -> list[tuple[str, ...]]:
    """Operator and operands that are no constants of each node that is left; answers stay."""
    after = simplify_movement(graph, Trace())
    same_answers(graph, after, True)
    assert simplify_movement(after, Trace()) is after
    return [(node.op, *(x for x in node.inputs if x not in after.constants)) for node in after.nodes]


@pytest.mark.parametrize(
    "bounds, expected",
    [
        ((0, 2, 1, 1), [("Slice", "a")]),
        ((4, 8, 1, 2), [("Slice", "c")]),
        ((-3, 99, 1, 1), [("Slice", "c")]),
        ((3, 4, -1, 1), [("Identity", "b")]),
        ((4, 8, 1, 1), [("Identity", "c")]),
        ((0, 4, 1, 3), [("Concat", "a", "b"), ("Slice", "concat_out_met")]),
        ((2, 5, 1, 1), [("Concat", "a", "b", "c"), ("Slice", "concat_out")]),
        ((7, 3, 1, -1), [("Concat", "a", "b", "c"), ("Slice", "concat_out")]),
        ((5, 5, 1, 1), [("Concat", "a", "b", "c"), ("Slice", "concat_out")]),
        ((0, 1, 0, 1), [("Concat", "a", "b", "c"), ("Slice", "concat_out")]),
    ],
)
def test_a_slice_reads_the_parts_it_meets(
    same_answers: Any, bounds: tuple[int, int, int, int], expected: list[tuple[str, ...]]
) -> None:
    assert simplified(sliced(bounds), same_answers) == expected


def test_other_axes_are_cut_as_before(same_answers: Any) -> None:
    assert simplified(sliced((1, 2, 0, 1), (5, 7, 1, 1)), same_answers) == [("Slice", "c")]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=3),
    st.integers(-9, 9),
    st.integers(-9, 12),
    st.sampled_from((1, 2, 3, -1)),
)
def test_any_slice_of_any_parts(widths: list[int], begin: int, end: int, step: int) -> None:
    graph = sliced((begin, end, 1, step), widths=tuple(widths))
    assert_same_answers(graph, simplify_movement(graph, Trace()), True)


@pytest.mark.parametrize(
    "graph, expected",
    [
        (gathered(2, 0, -3), [("Gather", "a")]),
        (gathered(-1, scalar=True), [("Reshape", "b")]),
        (gathered(0, -3, 2), [("Identity", "a")]),
        (gathered(-1), [("Identity", "b")]),
        (gathered(1, 0, 2), [("Gather", "a")]),
        (gathered(0, scalar=True, width=1), [("Reshape", "a")]),
        (gathered(1, 3), [("Concat", "a", "b"), ("Gather", "concat_out")]),
    ],
)
def test_a_gather_reads_the_part_it_meets(same_answers: Any, graph: Graph, expected: list[tuple[str, ...]]) -> None:
    assert simplified(graph, same_answers) == expected


def test_what_was_stacked_and_taken_out_again_is_itself(same_answers: Any) -> None:
    build = GraphBuilder("stacked")
    parts = [build.input(name, (2, 3)) for name in "ab"]
    first = build.constant(np.array([0], np.int64))
    stacked = build.op("Concat", *(build.op("Unsqueeze", part, first) for part in parts), axis=0)
    taken = build.op("Gather", stacked, build.constant(np.array(1, np.int64)), axis=0)
    graph = build.finish(build.op("Relu", taken))
    assert simplified(graph, same_answers) == [("Relu", "b")]


def test_constants_beside_each_other_are_joined_beforehand(parse: Any, same_answers: Any, shown: Any) -> None:
    numbers = "\n".join(f"constant {name}: float32[1] = [{k}.0]" for k, name in enumerate("abcde"))
    graph = parse(
        f"input x: float32[3]\ninput y: float32[2]\n{numbers}\nz = Concat(a, b, x, c, y, d, e) {{axis=0}}\nreturn z"
    )
    after = simplify_movement(graph, Trace())
    same_answers(graph, after, True)
    assert [after.tensor(x).dims for x in after.nodes[0].inputs] == [(2,), (3,), (1,), (2,), (2,)]
    assert simplify_movement(after, Trace()) is after


def test_large_constants_stay_apart() -> None:
    build = GraphBuilder("large")
    large = [build.constant(np.full((1, 10_000), k, np.float32)) for k in range(2)]
    graph = build.finish(build.op("Concat", build.input("x", (1, 10_000)), *large, axis=0))
    assert simplify_movement(graph, Trace()) is graph
