"""Loops taken apart where accesses bend: the pieces together write what the whole does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusewise.codegen.families.generic.any_nest import ANY_NEST
from fusewise.codegen.families.generic.pieces import straight_pieces
from fusewise.codegen.llvm.loops import simplified
from fusewise.ir.dtypes import FLOAT32
from fusewise.lower.task import Operand, Store, Task
from fusewise.ops.expr import Expr, binary, const, index, load

RELAXED = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def place(mode: str, before: int, size: int) -> Expr:
    """Where a padded axis reads: its ends repeated, its elements in turn, or mirrored."""
    moved = index("i1") - before
    if mode == "edge":
        return binary("min", binary("max", moved, const(0)), const(size - 1))
    if mode == "wrap":
        return moved % size
    folded = moved % (2 * (size - 1))
    return binary("min", folded, const(2 * (size - 1)) - folded)


def padded(mode: str, rows: int, size: int, before: int, after: int) -> Task:
    whole = size + before + after
    operands = (
        Operand("out0", FLOAT32, (rows, whole), (whole, 1)),
        Operand("in0", FLOAT32, (rows, size), (size, 1)),
    )
    value = load("in0", FLOAT32, (index("i0"), place(mode, before, size)))
    return Task((rows, whole), operands, (Store("out0", (index("i0"), index("i1")), value),))


@pytest.mark.parametrize("mode, name", [("edge", "edge"), ("wrap", "wrap"), ("mirror", "reflect")])
@RELAXED
@given(rows=st.integers(1, 3), size=st.integers(2, 150), before=st.integers(0, 40), after=st.integers(0, 40))
def test_padding_is_numpys(run_kernel, mode: str, name: str, rows: int, size: int, before: int, after: int) -> None:
    data = np.random.default_rng(0).standard_normal((rows, size), dtype=np.float32)
    expected = np.pad(data, ((0, 0), (before, after)), mode=name)
    arrays = {"in0": data.reshape(-1).copy(), "out0": np.zeros(expected.size, np.float32)}
    run_kernel(ANY_NEST, padded(mode, rows, size, before, after), arrays, 2)
    np.testing.assert_array_equal(arrays["out0"], expected.reshape(-1))


def test_a_long_straight_run_is_a_loop_of_its_own() -> None:
    pieces = straight_pieces(simplified(padded("mirror", 5, 200, 3, 4)))
    assert [piece.extents for piece in pieces] == [(5, 3), (5, 200), (5, 4)]
    (store,) = pieces[1].stores
    assert not any(node.op in ("min", "floormod") for node in store.value.args)


@pytest.mark.parametrize("task", [padded("mirror", 5, 20, 1, 1), padded("wrap", 2, 40, 90, 90)])
def test_other_loops_stay_whole(task: Task) -> None:
    """Where the loop is short, or no run is half of it."""
    small = simplified(task)
    assert straight_pieces(small) == (small,)
