"""Products with quantised weights of every width, layout and size of blocks against NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.codegen.nest.interpreted import interpreted
from tests.codegen.quantized_products import Product, check
from tests.codegen.ways import program_of, refusal, way, ways

from fusewise.codegen.candidates import PRODUCTS
from fusewise.codegen.families.product.dequantized import DEQUANTIZED, IN_PANELS, IN_REGISTERS
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.target import TARGETS, Target
from fusewise.ir.dtypes import FLOAT16
from fusewise.passes.packed_weights import PACKED_TYPES

FEW = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@FEW
@given(
    rows=st.sampled_from((1, 2, 5, 9, 20)),
    depth=st.sampled_from((1, 16, 70, 99, 160)),
    columns=st.sampled_from((1, 7, 16, 33, 70, 100)),
    block=st.sampled_from((16, 32, 256)),
    dtype=st.sampled_from([kind.name for kind in PACKED_TYPES]),
    zeros=st.booleans(),
    turned=st.booleans(),
    gemm=st.booleans(),
    workers=st.integers(1, 3),
)
def test_weights_are_what_numpy_makes_of_them(run_kernel: Any, target: Target, workers: int, **given: Any) -> None:
    check(run_kernel, DEQUANTIZED, target, Product(**given), workers)


def test_scales_and_rows_of_float16_are_computed_in_float32(run_kernel: Any, target: Target) -> None:
    check(run_kernel, DEQUANTIZED, target, Product(scale=FLOAT16, turned=True))


@FEW
@given(
    rows=st.sampled_from((1, 3, 12)),
    depth=st.sampled_from((16, 70, 160)),
    columns=st.sampled_from((1, 7, 8, 33, 70)),
    block=st.sampled_from((16, 64)),
    turned=st.booleans(),
    gemm=st.booleans(),
    pick=st.integers(0, 99),
)
def test_weights_are_numbers_of_a_table(run_kernel: Any, target: Target, pick: int, **given: Any) -> None:
    """By one of the ways that there are of each."""
    of = Product(zeros=False, table=True, **given)
    every = list(DEQUANTIZED.every(way(DEQUANTIZED, of.task(), target).understood, of.task(), target))
    check(run_kernel, DEQUANTIZED, target, of, schedule=every[pick % len(every)])


@pytest.mark.parametrize("machine", TARGETS, ids=lambda machine: machine.name)
def test_tables_are_read_in_registers_where_an_instruction_does_so(machine: Target) -> None:
    """Interpreted, so that machines whose code does not run here are looked at, too."""
    of = Product(rows=2, depth=40, columns=24, zeros=False, table=True)
    one = way(DEQUANTIZED, of.task(), machine)
    buffers = {**of.stored(), "y": np.full((2, 24), np.nan, np.float32)}
    packed = {a.name: a.packing.pack(buffers[a.name]) for a in one.arguments if a.packing is not None}
    module = program_of(one, machine, "kernel")
    interpreted(one, module, {**buffers, **packed}, most=100_000)
    assert np.abs(buffers["y"] - of.expected()).max() <= 1e-6 * of.magnitude()
    picks = {"avx512": "permvar.sf.512", "avx2": "permps", "neon": "tbl4"}.get(machine.name)
    assert picks is None or picks in llvm_text(module, machine)


def test_long_blocks_are_added_up_piece_by_piece(run_kernel: Any, target: Target) -> None:
    check(run_kernel, DEQUANTIZED, target, Product(rows=1, depth=1100, columns=20, block=1100, dtype="int8"))
    check(run_kernel, DEQUANTIZED, target, Product(rows=1, depth=1100, columns=20, block=512, dtype="int4"))


def test_every_way_reads_weights_packed_alike(run_kernel: Any, target: Target) -> None:
    of = Product(rows=9, depth=64, columns=130)
    task = of.task()
    understood = way(DEQUANTIZED, task, target).understood
    every = list(DEQUANTIZED.every(understood, task, target))
    assert {one.right for one in every} == {IN_REGISTERS, IN_PANELS}
    recipes = {
        tuple(a.packing.recipe for a in DEQUANTIZED.arguments(understood, task, one) if a.packing is not None)
        for one in every
    }
    assert len(recipes) == 1
    check(run_kernel, DEQUANTIZED, target, of, schedule=every[-1])


@pytest.mark.parametrize(
    "dtype, rows, depth, how",
    [
        ("int8", 127, 1024, IN_REGISTERS),
        ("int8", 128, 1024, IN_PANELS),
        ("int8", 512, 2048, IN_REGISTERS),
        ("int4", 512, 1024, IN_REGISTERS),
        ("int4", 1025, 1024, IN_PANELS),
    ],
)
def test_panels_are_made_where_they_pay(dtype: str, rows: int, depth: int, how: str) -> None:
    machine = replace(TARGETS[0], multiply_bits=512)
    assert machine.multiplies_once
    task = Product(rows=rows, depth=depth, columns=128, dtype=dtype, zeros=False).task()
    assert way(DEQUANTIZED, task, machine).schedule.right == how


def test_weights_take_no_more_memory_than_they_are_stored_in(target: Target) -> None:
    task, arrays = Product(rows=1, depth=256, columns=128).task(), Product(depth=256, columns=128).arrays()
    one = ways(DEQUANTIZED, task, target, 1)[0]
    packed = sum(a.packing.pack(arrays[a.name]).nbytes for a in one.arguments if a.packing is not None)
    assert packed == 256 * 128 // 2 + 8 * 128 * (4 + 1)


@pytest.mark.parametrize("columns", [7, 130, 300])
@pytest.mark.parametrize("dtype, turned", [("int4", True), ("uint4", False), ("uint2", True), ("int8", False)])
def test_a_matrix_is_packed_from_some_rows_at_a_time(
    monkeypatch: pytest.MonkeyPatch, target: Target, dtype: str, turned: bool, columns: int
) -> None:
    of = Product(depth=99, columns=columns, dtype=dtype, turned=turned)
    one, arrays = ways(DEQUANTIZED, of.task(), target, 1)[0], of.stored()
    for argument in (a for a in one.arguments if a.packing is not None):
        array, most = arrays[argument.name], 0
        expected = argument.packing.pack(array)

        def rows(first: int, last: int, array: np.ndarray = array) -> np.ndarray:
            nonlocal most
            most = max(most, last - first)
            assert 0 <= first < last <= len(array)
            return array[first:last]

        with monkeypatch.context() as context:
            context.setattr("fusewise.codegen.families.product.quantized_packing._AT_ONCE", 64)
            parts = argument.packing.parts
            found = np.full(parts.nbytes, 255, np.uint8)
            parts.fill(rows, found)
        assert found.tobytes() == expected.tobytes()
        assert argument.name != "w" or columns < 100 or most < len(array) // 2


@pytest.mark.parametrize("block", [8, 24])
def test_blocks_that_words_straddle_are_refused(target: Target, block: int) -> None:
    assert all(refusal(kernel, Product(block=block).task(), target) is not None for kernel in PRODUCTS)
