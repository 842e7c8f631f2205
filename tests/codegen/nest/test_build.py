"""The functions that kernels are written as."""

import ctypes

import numpy as np
import pytest

from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.build import Module
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.target import Target
from fusewise.runtime.arena import address_of
from fusewise.runtime.jit import compile_object, load


def _table(hides: bool, tight: bool) -> str:
    """A module whose function `table` writes 10 i + j at [i, j] of 5 x 7 numbers."""
    module = Module()
    f = module.function("table", ("ptr",))
    f.hides_counters = hides

    def row(i: Value, _: object) -> None:
        def column(j: Value, _: object) -> None:
            number: Int = f.add(f.mul(i, 10), j)
            f.store(f.convert("sitofp", f.i64(number), "float"), f.at(f.arguments[0], f.add(f.mul(i, 7), j)))

        f.loop(0, 7, 1, column, rolled=True, tight=tight)

    f.loop(0, 5, 1, row, rolled=True)
    f.give_back()
    return llvm_text(module)


@pytest.mark.parametrize(("hides", "tight", "hidden"), [(False, False, 0), (True, True, 1), (True, False, 2)])
def test_hidden_counters_count_as_others(target: Target, hides: bool, tight: bool, hidden: int) -> None:
    text = _table(hides, tight)
    assert text.count("call i64 asm") == hidden
    library = load([compile_object(text, target, "tidy")], ["table"])
    found = np.full(35, -1, np.float32)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.addresses["table"])(address_of(found))
    np.testing.assert_array_equal(found.reshape(5, 7), 10 * np.arange(5)[:, None] + np.arange(7))


def test_loops_that_carry_values_show_their_counter(target: Target) -> None:
    module = Module()
    f = module.function("total", (), "i64")
    f.hides_counters = True
    (total,) = f.loop(0, 9, 1, lambda i, sums: [f.i64(f.add(sums[0], i))], [f.i64(0)])
    f.give_back(total)
    assert "asm" not in llvm_text(module)
    library = load([compile_object(llvm_text(module), target)], ["total"])
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(library.addresses["total"])() == 36
