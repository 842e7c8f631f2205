"""The rows of the table of instructions, and that a new one is all that products, convolutions and attention need."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.codegen.families import test_attention, test_convolution, test_product
from tests.codegen.ways import machine_code, refusal

from fusewise.codegen.families.attention.packed import ATTENTION, attention_by
from fusewise.codegen.families.convolution.direct import DIRECT, direct_by
from fusewise.codegen.families.product.matrix import PRODUCT, MatrixProduct, MatrixSchedule, product_by
from fusewise.codegen.families.product.tiles import TiledProduct, favourite_tiles, widths
from fusewise.codegen.instructions.table import DPBF16, INSTRUCTIONS, MADDUBS
from fusewise.codegen.llvm.registers import splat, widen
from fusewise.codegen.nest.build import Function, Module
from fusewise.codegen.nest.instruction import FUSED, LAYOUTS, Instruction, fused_of, multiply_add, neighbours
from fusewise.codegen.nest.tree import Value, vector
from fusewise.codegen.nest.types import memory_type
from fusewise.codegen.target import TARGETS, InstructionSet, Target
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, DType
from fusewise.lower.task import Task


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


def outer(row: Instruction) -> Instruction:
    """An outer product of four rows and four columns, which are spread over the lanes of another instruction."""

    def spread(f: Function, instructions: InstructionSet, a: Value, b: Value, total: Value) -> Value:
        rows, columns = zip(*np.ndindex(a.lanes, b.lanes), strict=True)
        return row.add(f, instructions, f.shuffle(a, a, rows), f.shuffle(b, b, columns), total)

    return replace(row, name=f"outer-{row.name}", has=nowhere, emit=spread, emulate=None, rows=4, lanes=4)


OUTER = [outer(FUSED), outer(DPBF16)]

TOYS = [*(toy(terms) for terms in (2, 4)), *OUTER]

TOLERANCES = {FLOAT32: test_product.TOLERANCE, FLOAT16: 2e-3, BFLOAT16: 1.6e-2}
"""Those of the families' own instructions."""

FEW = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.mark.parametrize("row", [*INSTRUCTIONS, *OUTER], ids=repr)
@pytest.mark.parametrize("native", [True, False], ids=["", "emulated"])
@pytest.mark.parametrize("part", [1, 2])
def test_every_row_adds_the_products_of_its_terms(target: Target, row: Instruction, native: bool, part: int) -> None:
    one = row if native else replace(row, has=nowhere)
    lanes = row.lanes or max(1, target.lanes // part)
    if not row.lanes and not row.has(target, lanes) and row.emulate is None:
        pytest.skip("the machine does not have it, and nothing stands for it")
    rng = np.random.default_rng(0)
    least = 0 if row.left.kind == "uint" else -8
    left = rng.integers(least, 8, (row.rows if row.lanes else lanes, row.terms)).astype(row.left.numpy)
    right = rng.integers(-8, 8, (lanes, row.terms)).astype(row.right.numpy)
    products = np.einsum("rk,lk->rl" if row.lanes else "lk,lk->l", left.astype(np.int64), right.astype(np.int64))
    sums = rng.integers(-99, 99, products.shape).astype(row.sum.numpy)
    expected = sums.astype(np.int64) + products
    module = Module()
    f = module.function("f", ("ptr", "ptr", "ptr"))
    a = f.load(vector(memory_type(row.lane), len(left)), f.arguments[0])
    b = f.load(vector(memory_type(row.lane), lanes), f.arguments[1])
    total = f.load(vector(row.element, sums.size), f.arguments[2])
    f.store(one.add(f, target, a, b, total), f.arguments[2])
    f.give_back()
    machine_code(module, target)(left.ctypes.data, right.ctypes.data, sums.ctypes.data)
    np.testing.assert_array_equal(sums.astype(np.int64), expected)


@pytest.mark.parametrize("instruction", TOYS, ids=repr)
@FEW
@given(
    rows=st.integers(1, 40),
    steps=st.sampled_from((1, 2, 5, 9, 150, 1024)),
    chunks=st.sampled_from((1, 1, 3)),
    columns=st.sampled_from((1, 3, 7, 8, 17, 33, 50)),
    constant=st.booleans(),
    turned=st.booleans(),
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
    chunks: int,
    columns: int,
    constant: bool,
    turned: bool,
    op: str,
    **options: Any,
) -> None:
    """Of several terms with constants only; the reduction may be done in chunks, and the right operand lie either way."""
    depth, dtype = instruction.terms * steps * chunks, instruction.left
    shapes = (max(rows, instruction.rows), depth), (depth, columns)
    arrays = [test_product.numbers(seed, shape, dtype) for seed, shape in enumerate(shapes)]
    expected = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)
    if op == "Gemm":
        arrays.append(test_product.numbers(3, (columns,), dtype))
        expected = expected + arrays[2]
    kernel = product_by("toy-product", instruction)

    def schedules(m: MatrixProduct, task: Task, target: Target) -> Iterator[MatrixSchedule]:
        for schedule in kernel.schedules(m, task, target):
            cut = chunks > 1 and schedule.right == "packed"
            yield replace(schedule, product=replace(schedule.product, chunk=steps)) if cut else schedule

    test_product.check(
        run_kernel,
        (replace(kernel, schedules=schedules),),
        target,
        op,
        arrays,
        expected,
        {},
        orders=((0, 1), (1, 0) if turned else (0, 1), (0,))[: len(arrays)],
        constant=constant or instruction.terms > 1,
        dtype=dtype,
        tolerance=TOLERANCES[dtype],
        **options,
    )


@pytest.mark.parametrize("instruction", TOYS, ids=repr)
@FEW
@given(
    x=st.tuples(st.integers(1, 2), st.integers(1, 9), st.integers(1, 9)),
    taps=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    inputs=st.integers(1, 5),
    outputs=st.sampled_from((1, 3, 8, 17)),
    stride=st.integers(1, 2),
    pads=st.one_of(st.just((0,) * 4), st.tuples(*[st.integers(0, 2)] * 4)),
    dilation=st.sampled_from((1, 1, 5)),
    groups=st.sampled_from((1, 1, 2)),
    layout=st.sampled_from(("last", "planar")),
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
    dilation: int,
    groups: int,
    layout: str,
) -> None:
    """Against PyTorch; of several terms, groups of fewer outputs than fill a vector are refused, and so are planes."""
    if instruction.terms > 1:
        outputs, layout = outputs if groups == 1 else target.lanes + outputs, "last"
    inputs *= instruction.terms
    least = 2 if instruction.rows > 1 else 0
    sides = (least + extent + dilation * kernel for extent, kernel in zip(x[1:], taps, strict=True))
    shape = (x[0], groups * inputs, *sides)
    attributes = {"strides": (stride, stride), "dilations": (dilation, dilation), "pads": pads, "group": groups}
    test_convolution.check(
        run_kernel,
        (direct_by("toy-convolution", instruction),),
        target,
        "Conv",
        shape,
        (groups * outputs, inputs, *taps),
        attributes,
        test_convolution.correlate(attributes),
        dtype=instruction.left,
        tolerance=TOLERANCES[instruction.left],
        most=2,
        layout=layout,
    )


@FEW
@given(
    heads=st.tuples(*[st.integers(1, 2)] * 3),
    queries=st.integers(4, 40),
    keys=st.sampled_from((1, 3, 7, 16, 33, 48, 700)),
    size=st.integers(1, 20),
    width=st.sampled_from((1, 3, 4, 9, 24)),
    masked=st.sampled_from(("none", "keys", "full", "column", "bool")),
    causal=st.booleans(),
    interleaved=st.booleans(),
    workers=st.integers(1, 3),
)
def test_attention_by_a_new_instruction(
    run_kernel: Any, heads: tuple[int, int, int], queries: int, keys: int, size: int, width: int, **options: Any
) -> None:
    kernel = attention_by("toy-attention", OUTER[0])
    test_attention.check(run_kernel, (*heads, queries, keys, size, width), kernel=kernel, **options)


def test_fewer_rows_than_an_instruction_takes_are_left_to_the_next_kernel(target: Target) -> None:
    for row in OUTER:
        arrays = [test_product.numbers(k, shape, row.left) for k, shape in enumerate(((3, 8), (8, 8)))]
        task = test_product.product("MatMul", arrays, (3, 8), {}, orders=((0, 1),) * 2, constant=True, dtype=row.left)
        assert str(refusal(product_by("toy-product", row), task, target)) == f"{row.name} takes more rows (3)"
        assert refusal(PRODUCT, task, target) is None
        attributes = {"strides": (1, 1), "dilations": (1, 1), "pads": (0,) * 4, "group": 1}
        task = test_convolution.convolution(
            "Conv", (1, 8, 1, 3), (8, 8, 1, 1), (1, 8, 1, 3), attributes, dtype=row.left
        )
        assert str(refusal(direct_by("toy-convolution", row), task, target)) == f"{row.name} takes more rows (3)"
        assert refusal(DIRECT, task, target) is None
    for row, queries, reason in (
        (OUTER[0], 3, "outer-fma takes more rows (3)"),
        (OUTER[1], 4, "outer-dpbf16 takes no float32 one by one"),
    ):
        shape = (1, 1, queries, 8)
        task = test_attention.attention([shape] * 3, shape, {})
        assert str(refusal(attention_by("toy-attention", row), task, target)) == reason
        assert refusal(ATTENTION[-1], task, target) is None


@pytest.mark.parametrize("machine", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("row", OUTER, ids=repr)
def test_tiles_of_outer_products(machine: Target, row: Instruction) -> None:
    """Whole instructions high, as wide as the instruction, and no more of their sums than there are registers."""
    room = row.room(machine)
    for rows, columns in itertools.product((4, 5, 40), (1, 4, 50)):
        lanes = widths(room, columns, row)
        tiles = favourite_tiles(room, TiledProduct(rows, columns, 64, instruction=row), lanes)
        assert tiles and {tile.instruction for tile in tiles} == {row}
        for tile in tiles:
            assert tile.rows % row.rows == 0 and tile.rows <= rows and tile.lanes == 4
            sums = tile.rows * tile.vectors * tile.lanes * 32 // machine.vector_bits
            assert sums + tile.vectors < room.registers


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
