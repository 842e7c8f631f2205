"""Tables of what depends on one loop variable: the same values, and only where they save something."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.codegen.llvm.tables import tabulated
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.build import Module
from fusewise.ir.dtypes import FLOAT32
from fusewise.lower.task import Operand, Store, Task
from fusewise.ops.expr import Expr, binary, cast, compare, const, index, load, reduce, select
from fusewise.ops.interpret import evaluate_expression

I0, I1 = index("i0"), index("i1")


def task_of(value: Expr, extents: tuple[int, int] = (5, 7)) -> Task:
    operands = (Operand("in0", FLOAT32, (64,), (1,)), Operand("out0", FLOAT32, extents, (extents[1], 1)))
    return Task(extents, operands, (Store("out0", (I0, I1), value),))


def read(at: Expr) -> Expr:
    return load("in0", FLOAT32, (at,))


@settings(max_examples=40, deadline=None)
@given(
    slope=st.integers(-9, 9),
    offset=st.integers(-40, 40),
    by=st.integers(2, 9),
    extents=st.tuples(*[st.integers(2, 9)] * 2),
)
def test_values_stay_the_same(slope, offset, by, extents):
    line = I1 * slope + offset
    place = binary("min", binary("max", line // by, 0), 7)
    value = read(I0 + place) * (cast(line % by, FLOAT32) * (1.0 / by)) + cast(I0 * 3 // by, FLOAT32)
    task = task_of(value, extents)
    tables = tabulated(task)
    x = np.random.default_rng(0).standard_normal(64, dtype=np.float32)
    axes = {"i0": extents[0], "i1": extents[1]}
    expected, _ = evaluate_expression(value, axes, {"in0": x})
    found, _ = evaluate_expression(tables.task.stores[0].value, axes, {"in0": x, **dict(tables.arrays)})
    np.testing.assert_array_equal(found, expected)
    assert all(array.shape in ((extents[0],), (extents[1],)) for _, array in tables.arrays)


def test_the_largest_value_of_one_variable_is_taken():
    coarse = binary("min", (I1 * 3 + 1) // 4, 4)
    tables = tabulated(task_of(read(I0 * 8 + coarse * 2) + read(I0 * 8 + coarse * 2)))
    assert [list(array) for _, array in tables.arrays] == [[0, 2, 2, 4, 6, 8, 8]]
    assert {operand.name: operand.shape for operand in tables.task.operands}["table0"] == (7,)


def test_what_is_cheap_or_guarded_or_of_several_variables_stays():
    place = I1 // 3
    inside = compare("lt", place, 2)
    for value in (
        read(I0 * 7 + I1),
        read((I0 + I1) // 3),
        select(inside, read(place), 0.0),
        reduce("sum", (("k", 4),), read(index("k") // 3)),
        cast(read(I0) // const(2.0, FLOAT32), FLOAT32),
    ):
        assert tabulated(task_of(value)).arrays == ()
    assert tabulated(task_of(read(I1 // 3), (2, 5000))).arrays == ()


def test_tables_of_several_nests_stand_side_by_side():
    module = Module()
    tables = tabulated(task_of(read(I1 // 3)))
    first, second = tables.pointers(module)["table0"], tables.pointers(module)["table0"]
    assert first != second and len(module.tables) == 2
    assert "[i64 0, i64 0, i64 0, i64 1, i64 1, i64 1, i64 2]" in llvm_text(module)
