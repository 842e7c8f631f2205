"""The rows of the table of instructions, and that a new one is all that products and convolutions need."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.codegen.families import test_convolution, test_product

from fusewise.codegen.families.convolution.direct import direct_by
from fusewise.codegen.families.product.matrix import product_by
from fusewise.codegen.instructions.table import INSTRUCTIONS, MADDUBS
from fusewise.codegen.llvm.registers import splat, widen
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.build import Function, Module
from fusewise.codegen.nest.instruction import LAYOUTS, Instruction, fused_of, multiply_add, neighbours
from fusewise.codegen.nest.tree import Value, vector
from fusewise.codegen.nest.types import memory_type
from fusewise.codegen.target import TARGETS, InstructionSet, Target
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, DType
from fusewise.runtime.jit import compile_object, load


def nowhere(instructions: InstructionSet, lanes: int) -> bool:
    return False


def toy(terms: int) -> Instruction:
    """A dot product of so many float16, which no machine has."""
    bits = 16 * terms

    def take_apart(f: Function, instructions: InstructionSet, a: Value, b: Value, total: Value) -> Value:
        for k in range(terms):
            x, y = (
                widen(f, instructions, f.convert("trunc", shifted(f, value, 16 * k), "i16"), FLOAT16)
                for value in (a, b)
            )
            total = multiply_add(f, instructions, x, y, total)
        return total

    def shifted(f: Function, value: Value, by: int) -> Value:
        return f.binary("lshr", value, splat(f, by, value, f"i{bits}"))

    return Instruction(
        f"dot{terms}",
        FLOAT16,
        FLOAT16,
        FLOAT32,
        nowhere,
        take_apart,
        lane=DType(f"{terms} float16", 0, bits, "float"),
        terms=terms,
    )


TOYS = [toy(terms) for terms in (2, 4)]

FEW = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.mark.parametrize("row", INSTRUCTIONS, ids=repr)
@pytest.mark.parametrize("native", [True, False], ids=["", "emulated"])
@pytest.mark.parametrize("part", [1, 2])
def test_every_row_adds_the_products_of_its_terms(target: Target, row: Instruction, native: bool, part: int) -> None:
    one = row if native else replace(row, has=nowhere)
    lanes = max(1, target.lanes // part)
    if not row.has(target, lanes) and row.emulate is None:
        pytest.skip("the machine does not have it, and nothing stands for it")
    rng = np.random.default_rng(0)
    least = 0 if row.left.kind == "uint" else -8
    left = rng.integers(least, 8, (lanes, row.terms)).astype(row.left.numpy)
    right = rng.integers(-8, 8, (lanes, row.terms)).astype(row.right.numpy)
    sums = rng.integers(-99, 99, lanes).astype(row.sum.numpy)
    expected = sums.astype(np.int64) + (left.astype(np.int64) * right.astype(np.int64)).sum(1)
    module = Module()
    f = module.function("f", ("ptr", "ptr", "ptr"))
    a, b = (f.load(vector(memory_type(row.lane), lanes), pointer) for pointer in f.arguments[:2])
    total = f.load(vector(row.element, lanes), f.arguments[2])
    f.store(one.add(f, target, a, b, total), f.arguments[2])
    f.give_back()
    library = load([compile_object(llvm_text(module), target, "full")], ["f"])
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(library.addresses["f"])
    call(left.ctypes.data, right.ctypes.data, sums.ctypes.data)
    np.testing.assert_array_equal(sums.astype(np.int64), expected)


@pytest.mark.parametrize("instruction", TOYS, ids=repr)
@FEW
@given(
    rows=st.integers(1, 40),
    steps=st.sampled_from((1, 2, 5, 9, 150)),
    columns=st.sampled_from((1, 3, 7, 8, 17, 33, 50)),
    op=st.sampled_from(("MatMul", "Gemm")),
    epilogue=st.sampled_from(("none", "residual")),
    workers=st.integers(1, 3),
)
def test_products_by_a_new_instruction(
    run_kernel: Any,
    target: Target,
    instruction: Instruction,
    rows: int,
    steps: int,
    columns: int,
    op: str,
    **options: Any,
) -> None:
    depth = instruction.terms * steps
    arrays = [test_product.numbers(1, (rows, depth), FLOAT16), test_product.numbers(2, (depth, columns), FLOAT16)]
    expected = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)
    if op == "Gemm":
        arrays.append(test_product.numbers(3, (columns,), FLOAT16))
        expected = expected + arrays[2]
    kernel = product_by("toy-product", instruction)
    test_product.check(
        run_kernel, (kernel,), target, op, arrays, expected, {}, dtype=FLOAT16, tolerance=2e-3, **options
    )


@pytest.mark.parametrize("instruction", TOYS, ids=repr)
@FEW
@given(
    x=st.tuples(st.integers(1, 2), st.integers(1, 9), st.integers(1, 9)),
    taps=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    inputs=st.integers(1, 5),
    outputs=st.sampled_from((1, 3, 8, 17)),
    stride=st.integers(1, 2),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    groups=st.sampled_from((1, 1, 2)),
)
def test_convolutions_by_a_new_instruction(
    run_kernel: Any,
    target: Target,
    instruction: Instruction,
    x: tuple[int, int, int],
    taps: tuple[int, int],
    inputs: int,
    outputs: int,
    stride: int,
    pads: tuple[int, ...],
    groups: int,
) -> None:
    """Against PyTorch; groups of fewer outputs than fill a vector are refused."""
    outputs = outputs if groups == 1 else target.lanes + outputs
    inputs *= instruction.terms
    shape = (x[0], groups * inputs, *(extent + kernel for extent, kernel in zip(x[1:], taps, strict=True)))
    attributes = {"strides": (stride, stride), "dilations": (1, 1), "pads": pads, "group": groups}
    test_convolution.check(
        run_kernel,
        (direct_by("toy-convolution", instruction),),
        target,
        "Conv",
        shape,
        (groups * outputs, inputs, *taps),
        attributes,
        test_convolution.correlate(attributes),
        dtype=FLOAT16,
        tolerance=2e-3,
        most=2,
    )


@given(st.integers(1, 3), st.integers(0, 9), st.integers(1, 3), st.integers(0, 2), st.sampled_from((2, 4)))
def test_elements_hold_neighbours(a: int, b: int, c: int, axis: int, terms: int) -> None:
    array = np.random.default_rng(0).integers(-128, 128, (a, b, c)).astype(np.int8)
    found = np.moveaxis(neighbours(array, axis, terms), axis, -1)
    moved = np.moveaxis(array, axis, -1)
    moved = np.pad(moved, ((0, 0), (0, 0), (0, -moved.shape[-1] % terms)))
    apart = np.ascontiguousarray(found).view(np.int8).reshape(moved.shape)
    np.testing.assert_array_equal(apart, moved)


def test_rows_say_what_they_are() -> None:
    assert len({row.name for row in INSTRUCTIONS}) == len(INSTRUCTIONS), "keys of code name an instruction"
    for row in INSTRUCTIONS:
        assert repr(row) == row.name and row.terms in LAYOUTS
        assert row.lane.bits == row.terms * row.left.bits == row.terms * row.right.bits
    assert [fused_of(dtype).sum for dtype in (FLOAT32, BFLOAT16, FLOAT64)] == [FLOAT32, FLOAT32, FLOAT64]


def test_registers_beside_the_tile() -> None:
    """What is taken apart needs some, and products that are added by another instruction do."""
    dpbf16 = next(row for row in INSTRUCTIONS if row.name == "dpbf16")
    avx512, sse2 = (next(t for t in TARGETS if t.name == name) for name in ("avx512", "sse2"))
    assert dpbf16.room(avx512).registers == avx512.registers - 4
    capable = replace(avx512, features="+avx512bf16")
    assert dpbf16.room(capable) == capable and MADDUBS.room(avx512) == avx512
    assert [dpbf16.in_flight(target) for target in (avx512, sse2)] == [0, 4]
