"""Reductions by a matrix unit: printed and read back, held against their rules, and run on arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codegen.nest.tiles import OnTiles

from fusewise.codegen.instructions.table import AMX_BF16, AMX_INT8, AMX_PARTS, MATRIX_INSTRUCTIONS
from fusewise.codegen.nest.build import Module
from fusewise.codegen.nest.instruction import FUSED
from fusewise.codegen.nest.interpret import interpret
from fusewise.codegen.nest.memory import OutOfBounds
from fusewise.codegen.nest.parse import parsed
from fusewise.codegen.nest.text import printed
from fusewise.codegen.nest.tile import AccumulateTiles, ReductionLoop, Tile, WithTiles
from fusewise.codegen.nest.tree import Value
from fusewise.codegen.nest.verify import verify
from fusewise.errors import BrokenKernel, UsageError

ROWS = {row.name: row for row in (FUSED, *MATRIX_INSTRUCTIONS)}

ON_TILES = st.builds(
    OnTiles,
    st.sampled_from(MATRIX_INSTRUCTIONS),
    rows=st.integers(1, 2),
    vectors=st.integers(1, 3),
    outer=st.integers(1, 2),
    inner=st.integers(1, 2),
    apart=st.sampled_from((0, 1, 7)),
    from_zero=st.booleans(),
)

ONE = OnTiles(AMX_BF16, 1, 2, 2, 1, 4)


@given(ON_TILES)
@settings(deadline=None, max_examples=30)
def test_it_is_read_back_as_it_was(case: OnTiles) -> None:
    module = case.program()
    verify(module)
    again = parsed(printed(module), {}, ROWS)
    assert again.contents == module.contents and printed(again) == printed(module)


def test_its_text() -> None:
    assert printed(ONE.program()) == (
        "function f(ptr %a0, ptr %a1, ptr %a2) -> void {\n"
        "  with tiles of tdpbf16ps {\n"
        "    accumulate tiles tdpbf16ps 16 x 2 x 16 at %a0 {\n"
        "      rows %a1 pitch 43\n"
        "      panel %a2 pitch 37\n"
        "      level 2 stride 20\n"
        "      level 16 stride 1\n"
        "    }\n"
        "  }\n"
        "  ret()\n"
        "}\n"
    )


@pytest.mark.parametrize(
    "change, complaint",
    [
        (("with tiles of tdpbf16ps", "with tiles of ruler"), "line 2 .*'ruler' is no instruction"),
        (("accumulate tiles tdpbf16ps", "accumulate tiles ruler"), "line 3 .*'ruler' is no instruction"),
        (("panel", "pane"), "line 5 .*expected 'panel'"),
        (("%a1 pitch 43", "%a1"), "line 4 .*expected 'pitch'"),
    ],
)
def test_what_cannot_be_read_is_named(change: tuple[str, str], complaint: str) -> None:
    text = printed(ONE.program())
    assert change[0] in text
    with pytest.raises(UsageError, match=complaint):
        parsed(text.replace(*change, 1), {}, ROWS)


def changed(case: OnTiles = ONE, **changes: Any) -> Module:
    """A program with other fields in its reduction."""
    module = case.program()
    (function,) = module.functions
    whole, last = function.taken()
    assert isinstance(whole, WithTiles)
    (inner,) = whole.body
    assert isinstance(inner, AccumulateTiles)
    function.include((replace(whole, body=(replace(inner, **changes),)), last))
    return module


def outside(case: OnTiles = ONE) -> Module:
    """A reduction in no stretch of a matrix unit."""
    module = case.program()
    (function,) = module.functions
    whole, last = function.taken()
    assert isinstance(whole, WithTiles)
    function.include((*whole.body, last))
    return module


def within(instruction: Any, times: int = 1) -> Module:
    """A reduction in so many more stretches of an instruction."""
    module = outside()
    (function,) = module.functions
    *nodes, last = function.taken()
    for _ in range(times):
        nodes = [WithTiles(instruction, tuple(nodes))]
    function.include((*nodes, last))
    return module


NUMBER = Value("1", "i64")


@pytest.mark.parametrize(
    "module, complaint",
    [
        (outside(), "is by tdpbf16ps, which is not in use there"),
        (within(AMX_PARTS), "is by tdpbf16ps, which is not in use there"),
        (within(AMX_BF16, 2), "is no stretch of a matrix unit, or within one"),
        (within(FUSED), "is no stretch of a matrix unit, or within one"),
        (changed(tile=replace(ONE.tile, rows=15)), "is not made of tdpbf16ps, which takes 16 x 16"),
        (changed(tile=replace(ONE.tile, lanes=8)), "is not made of tdpbf16ps, which takes 16 x 16"),
        (changed(tile=Tile(16, 2, 16, AMX_INT8[0])), "is by tdpbssd, which is not in use there"),
        (changed(levels=(ReductionLoop(17, 1),)), "does not end with multiples of 16 steps side by side"),
        (changed(levels=(ReductionLoop(16, 2),)), "does not end with multiples of 16 steps side by side"),
        (changed(levels=(ReductionLoop(16, 1, phases=2, phase_stride=1),)), "does not end with multiples of 16 steps"),
        (changed(levels=(ReductionLoop(16, 1, phases=0),)), "has no loops"),
        (changed(levels=(ReductionLoop(16, 1, 0, 8),)), "does not end with multiples of 16 steps side by side"),
        (
            changed(replace(ONE, instruction=AMX_PARTS), levels=(ReductionLoop(16, 1),)),
            "does not end with multiples of 32 steps side by side",
        ),
        (changed(levels=()), "has no loops"),
        (changed(sums=NUMBER), "has sums of type i64, not ptr"),
        (changed(left=NUMBER), "has a row of type i64, not ptr"),
        (changed(right=NUMBER), "has columns of type i64, not ptr"),
        (changed(left_pitch=Value("%a1", "ptr")), "has a pitch of type ptr, not i64"),
        (changed(sums=Value("%v9", "ptr")), "uses %v9, which nothing before it defines"),
    ],
)
def test_every_fault_is_found(module: Module, complaint: str) -> None:
    with pytest.raises(BrokenKernel, match=complaint):
        verify(module)


def test_the_verifier_goes_on_behind_a_stretch() -> None:
    """What begins after one may use the same unit again, and values of the first are gone."""
    module = ONE.program()
    (function,) = module.functions
    whole, last = function.taken()
    function.include((whole, whole, last))
    verify(module)


@given(ON_TILES, st.integers(0, 99))
@settings(deadline=None, max_examples=20)
def test_it_is_run_as_it_means(case: OnTiles, seed: int) -> None:
    operands = case.operands(seed)
    expected = case.expected(operands)
    interpret(case.program(), "f", list(operands))
    np.testing.assert_array_equal(operands[0], expected)


def test_every_access_is_looked_at() -> None:
    sums, left, right = ONE.operands(0)
    shorter = left.reshape(-1)[: -2 * (ONE.levels[0].stride + 3)].copy()
    for operands in ((sums[:-1].copy(), left, right), (sums, shorter, right), (sums, left, right[:-1].copy())):
        with pytest.raises(OutOfBounds):
            interpret(ONE.program(), "f", list(operands))
