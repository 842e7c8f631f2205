"""The equations that are printed, their operations, and what is left of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusewise.rewrite.page import page
from fusewise.rewrite.printed import PRINTED, PrintedEquation, counted, rewritten

M, N = 6, 10


@pytest.mark.parametrize("equation", PRINTED[:3], ids=lambda equation: equation.before)
def test_operations_are_those_that_are_printed(equation: PrintedEquation) -> None:
    for graph, text in zip(rewritten(equation, M, N), equation.printed, strict=True):
        assert counted(equation, graph) == eval(text, {"m": M, "n": N})


RIGHT = ("Abs(b) * a * c", "a * (c + b)", "Exp(ReduceSum(a, axes, keepdims=0))")


@pytest.mark.parametrize("equation, expected", tuple(zip(PRINTED, RIGHT, strict=False)))
def test_the_right_side_is_the_one_that_is_printed(shown: Any, equation: PrintedEquation, expected: str) -> None:
    assert shown(rewritten(equation, M, N)[1]) == expected


def test_the_reciprocal_of_a_constant_is_computed_before(referred: Any) -> None:
    equation = PRINTED[3]
    before, after = rewritten(equation, M, N)
    assert [node.op for node in after.nodes] == ["MatMul", "Div", "Div"]
    (constant,) = (after.constants[x].array for x in after.nodes[1].inputs if x in after.constants)
    np.testing.assert_array_equal(constant, np.reciprocal(before.constants["c"].array))
    assert (counted(equation, before), counted(equation, after)) == (4 * M * N, 2 * M * N)
    rng = np.random.default_rng(1)
    feeds = {x: rng.uniform(1, 2, before.tensor(x).dims).astype(np.float32) for x in before.inputs}
    np.testing.assert_allclose(referred(after, feeds)[0], referred(before, feeds)[0], rtol=1e-6)


def test_the_page_shows_them() -> None:
    text = page()
    assert all(f"`{equation.before}`" in text and equation.printed[0] in text for equation in PRINTED)
