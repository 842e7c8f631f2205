"""Products by a matrix unit, which is emulated: odd shapes, layouts, workers, and what floats in parts make of every number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.codegen.families import test_product
from tests.codegen.free import run_at, versions_of
from tests.codegen.ways import refusal, text_of, way

from fusewise.codegen.choose import alternatives
from fusewise.codegen.families.product.matrix import PRODUCT, MatrixSchedule
from fusewise.codegen.families.product.matrix_unit import TILE_PRODUCTS, tile_product
from fusewise.codegen.families.product.shape import MatrixProduct
from fusewise.codegen.instructions.table import AMX_BF16, AMX_FP16, AMX_PARTS, DPBF16
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import Instruction, MatrixForm, MatrixUnit, TileIn
from fusewise.codegen.target import TARGETS, InstructionSet, Target
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from fusewise.ir.size import Symbol, size_of
from fusewise.lower.task import Task
from fusewise.runtime.jit import compile_assembly

FEW = settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
ROWS, LANES, STEPS = 4, 4, 8


def _emulated(f: Function, instructions: InstructionSet, sums: TileIn, left: TileIn, right: TileIn) -> None:
    for r in range(ROWS):
        at = f.at(sums.pointer, f.mul(sums.pitch, r), "i8")
        total = f.load(f"<{LANES} x float>", at)
        for s in range(STEPS):
            a = f.splat(f.load("i32", f.at(f.at(left.pointer, f.mul(left.pitch, r), "i8"), s, "i32")), LANES)
            b = f.load(f"<{LANES} x i32>", f.at(right.pointer, f.mul(right.pitch, s), "i8"))
            total = DPBF16.add(f, instructions, a, b, total)
        f.store(total, at)


def _toy(name: str, **form: Any) -> Instruction:
    def nothing(*_: Any) -> None:
        raise AssertionError("no machine has it")

    unit = MatrixUnit(8, *[nothing] * 5, cycles=16, load_cycles=8, store_cycles=16)
    matrix = MatrixForm(STEPS, unit, nothing, _emulated, **form)
    return replace(DPBF16, name=name, rows=ROWS, lanes=LANES, apart=lambda i: 0, has=lambda i, n: False, matrix=matrix)


WHOLE = _toy("toy-tiles")
PARTS = replace(
    _toy("toy-parts", parts=2, products=((0, 1), (0, 0), (1, 0)), part=BFLOAT16), left=FLOAT32, right=FLOAT32
)
BOUND = 3 * 2.0**-16
"""What parts leave out of a product at most, relative to it."""

TOLERANCES = {WHOLE: 1.6e-2, PARTS: 1.13 * BOUND}
"""Of sums of positive products; GELU is at most so steep."""


def by(instruction: Instruction, chunk: int = 0) -> Any:
    """The kernel whatever it costs, in chunks of so many stored lanes where that goes."""
    kernel = tile_product(f"by {instruction!r}", instruction)

    def schedules(m: MatrixProduct, task: Task, target: Target) -> Iterator[MatrixSchedule]:
        for one in kernel.schedules(m, task, target):
            cut = chunk and m.computed is None and m.product.depth % chunk == 0 and m.product.depth > chunk
            yield replace(one, product=replace(one.product, chunk=chunk)) if cut else one

    return replace(kernel, schedules=schedules, declines=lambda m, task, target: None)


@pytest.mark.parametrize("instruction", [WHOLE, PARTS], ids=repr)
@FEW
@given(
    rows=st.sampled_from((4, 5, 8, 13, 33, 50)),
    depth=st.sampled_from((1, 3, 15, 16, 17, 32, 48, 67, 128, 1024)),
    columns=st.sampled_from((1, 3, 4, 7, 8, 17, 33)),
    lead=st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.booleans()), max_size=2),
    constant=st.booleans(),
    chunk=st.sampled_from((0, 16)),
    epilogue=st.sampled_from(("none", "residual", "gelu")),
    workers=st.integers(1, 4),
    data=st.data(),
)
def test_products_of_any_shape(
    run_kernel: Any,
    target: Target,
    instruction: Instruction,
    rows: int,
    depth: int,
    columns: int,
    lead: list[tuple[int, bool, bool]],
    chunk: int,
    data: st.DataObject,
    **options: Any,
) -> None:
    dtype = BFLOAT16 if instruction is WHOLE else FLOAT32
    left = (*(1 if thin else n for n, thin, _ in lead), rows, depth)
    right = (*(1 if thin else n for n, _, thin in lead), depth, columns)
    arrays = [np.abs(test_product.numbers(k, shape, dtype)) for k, shape in enumerate((left, right))]
    test_product.check(
        run_kernel,
        (by(instruction, chunk),),
        target,
        "MatMul",
        arrays,
        np.matmul(*(a.astype(np.float64) for a in arrays)),
        {},
        orders=tuple(tuple(data.draw(st.permutations(range(a.ndim)))) for a in arrays),
        dtype=dtype,
        tolerance=TOLERANCES[instruction],
        **options,
    )


@pytest.mark.parametrize("instruction", [WHOLE, PARTS], ids=repr)
@FEW
@given(
    rows=st.sampled_from((4, 7, 16, 33)),
    depth=st.sampled_from((5, 16, 40)),
    columns=st.sampled_from((1, 4, 9, 32)),
    flips=st.tuples(st.booleans(), st.booleans()),
    scales=st.sampled_from(((1.0, 1.0), (1.0, 2.0), (-1.5, -0.25), (2.0, 0.0))),
    constant=st.booleans(),
    workers=st.integers(1, 3),
)
def test_gemm(
    run_kernel: Any,
    target: Target,
    instruction: Instruction,
    rows: int,
    depth: int,
    columns: int,
    flips: tuple[bool, bool],
    scales: tuple[float, float],
    **options: Any,
) -> None:
    dtype = BFLOAT16 if instruction is WHOLE else FLOAT32
    alpha, beta = (1.0, scales[1]) if instruction is WHOLE else scales
    shapes = (rows, depth), (depth, columns), (columns,)
    left, right, third = (np.abs(test_product.numbers(k, shape, dtype)) for k, shape in enumerate(shapes))
    exact = alpha * (left.astype(np.float64) @ right.astype(np.float64)) + beta * third.astype(np.float64)
    arrays = [left.T if flips[0] else left, right.T if flips[1] else right, third]
    attributes = {"transA": int(flips[0]), "transB": int(flips[1]), "alpha": alpha, "beta": beta}
    arrays = [np.ascontiguousarray(a) for a in arrays]
    test_product.check(
        run_kernel,
        (by(instruction),),
        target,
        "Gemm",
        arrays,
        exact,
        attributes,
        dtype=dtype,
        tolerance=TOLERANCES[instruction],
        **options,
    )


def _hostile(draw: Any, shape: tuple[int, int], odd: list[float]) -> np.ndarray:
    """Numbers of usual magnitude, and in a few places, or in a whole row or column, odd ones."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    found = rng.standard_normal(shape).astype(np.float32)
    for number in odd:
        where = draw(st.sampled_from(("one", "row", "column")))
        row, column = (draw(st.integers(0, extent - 1)) for extent in shape)
        if where == "one":
            found[row, column] = number
            continue
        with np.errstate(all="ignore"):
            found[(row, slice(None)) if where == "row" else (slice(None), column)] *= np.float32(number)
    return found


ODD = st.sampled_from((np.inf, -np.inf, np.nan, 3.4e38, -3.39e38, 1e30, 1e-30, 1e-38, 1e-42, 1e-45, 0.0, -0.0))


@pytest.mark.parametrize("instruction", [PARTS, AMX_PARTS], ids=repr)
@settings(FEW, max_examples=8)
@given(odd=st.tuples(*[st.lists(ODD, max_size=3)] * 2), constant=st.booleans(), data=st.data())
def test_floats_in_parts_are_what_floats_are(
    run_kernel: Any,
    target: Target,
    instruction: Instruction,
    odd: tuple[list[float], list[float]],
    constant: bool,
    data: st.DataObject,
) -> None:
    """Infinities, NaN, what is too large for bfloat16, and what a unit takes for zero: as by multiply-adds. Compared are results
    that no order of additions makes an infinity of."""
    rows = data.draw(st.sampled_from((instruction.rows, instruction.rows + 5)))
    depth, columns = data.draw(st.sampled_from((3, 32, 40))), data.draw(st.sampled_from((5, 33)))
    left, right = _hostile(data.draw, (rows, depth), odd[0]), _hostile(data.draw, (depth, columns), odd[1])
    task = test_product.product("MatMul", [left, right], (rows, columns), {}, orders=((0, 1),) * 2, constant=constant)
    buffers = {"x0": left, "x1": right, "y": np.full((rows, columns), 7, np.float32)}
    kernel = by(instruction)
    for argument in way(kernel, task, target).arguments:
        if argument.packing is not None:
            buffers[argument.name] = argument.packing.pack(buffers[argument.name])
    run_kernel(kernel, task, buffers, workers=2)
    with np.errstate(all="ignore"):
        exact = left.astype(np.float64) @ right.astype(np.float64)
    sizes = [np.where(np.isfinite(x), np.abs(x), 0).astype(np.float64) for x in (left, right)]
    size = sizes[0] @ sizes[1]
    found = buffers["y"]
    sure = size < 3e38
    np.testing.assert_array_equal(np.isnan(found)[sure], np.isnan(exact)[sure])
    finite = sure & np.isfinite(exact)
    np.testing.assert_array_equal(found[sure & np.isinf(exact)], exact[sure & np.isinf(exact)])
    assert np.all(np.abs(found[finite] - exact[finite]) <= BOUND * size[finite] + 1e-36)


@pytest.mark.parametrize("where", ["rows", "columns", "constant columns"])
def test_an_infinity_times_what_is_next_to_nothing(run_kernel: Any, target: Target, where: str) -> None:
    """Is infinite in float32, so the parts of a number that is not 0 are not both 0."""
    left, right = np.ones((16, 3), np.float32), np.ones((3, 16), np.float32)
    small = np.resize(np.float32([1e-38, -1e-40, 4e-41, 1e-42, -2e-45, 1e-45]), 16)
    if where == "rows":
        left[:, 1], right[1, 5] = small, np.inf
    else:
        left[5, 1], right[1] = np.inf, small
    task = test_product.product("MatMul", [left, right], (16, 16), {}, orders=((0, 1),) * 2, constant=" " in where)
    buffers = {"x0": left, "x1": right, "y": np.full((16, 16), 7, np.float32)}
    for argument in way(by(AMX_PARTS), task, target).arguments:
        if argument.packing is not None:
            buffers[argument.name] = argument.packing.pack(buffers[argument.name])
    run_kernel(by(AMX_PARTS), task, buffers, workers=1)
    found = buffers["y"].T if where == "rows" else buffers["y"]
    np.testing.assert_array_equal(found[5], np.copysign(np.inf, small))
    assert np.isfinite(np.delete(found, 5, axis=0)).all()


@pytest.mark.slow
@pytest.mark.parametrize("depth", [64, 1024, 8192])
def test_the_error_of_floats_in_parts_is_bounded(run_kernel: Any, target: Target, depth: int) -> None:
    """Of the largest result, by the instruction itself."""
    for shift in (0.0, 1.0):
        arrays = [
            test_product.numbers(k, shape) + np.float32(shift) for k, shape in enumerate(((16, depth), (depth, 32)))
        ]
        exact = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)
        test_product.check(run_kernel, (by(AMX_PARTS),), target, "MatMul", arrays, exact, {}, tolerance=2e-5, workers=1)


@pytest.mark.parametrize("instruction", [AMX_BF16, AMX_FP16, AMX_PARTS], ids=repr)
@pytest.mark.parametrize("shape", [(16, 64, 16), (33, 40, 17), (50, 7, 70)], ids=str)
def test_products_of_the_unit(
    run_kernel: Any, target: Target, instruction: Instruction, shape: tuple[int, int, int]
) -> None:
    rows, depth, columns = shape
    arrays = [test_product.numbers(k, s, instruction.left) for k, s in enumerate(((rows, depth), (depth, columns)))]
    exact = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)
    tolerance = {FLOAT32: 2e-5, FLOAT16: 2e-3, BFLOAT16: 1.6e-2}[instruction.left]
    for constant in (True, False):
        test_product.check(
            run_kernel,
            (by(instruction),),
            target,
            "MatMul",
            arrays,
            exact,
            {},
            constant=constant,
            dtype=instruction.left,
            tolerance=tolerance,
        )


def test_where_there_is_no_unit_others_do_it(target: Target) -> None:
    arrays = [test_product.numbers(k, (64, 64)) for k in range(2)]
    task = test_product.product("MatMul", arrays, (64, 64), {}, orders=((0, 1),) * 2, constant=True)
    for kernel in TILE_PRODUCTS:
        assert str(refusal(kernel, task, target)).startswith("the machine has no ")


def machine_with_unit() -> Target:
    """A machine with a matrix unit."""
    return replace(TARGETS[0], cpu="sapphirerapids", features="+amx-tile,+amx-bf16,+amx-int8,+avx512bf16")


@pytest.mark.parametrize(
    ("shape", "dtype", "first"),
    [
        ((128, 768, 768), FLOAT32, "float32-in-parts"),
        ((128, 768, 768), BFLOAT16, "bfloat16-tiles"),
        ((512, 64, 64), BFLOAT16, "bfloat16-tiles"),
        ((17, 8, 8), FLOAT32, "product"),
        ((1, 768, 768), FLOAT32, "product"),
        ((1, 768, 768), BFLOAT16, "bfloat16-product"),
    ],
    ids=str,
)
def test_the_unit_is_chosen_where_it_is_faster(shape: tuple[int, int, int], dtype: DType, first: str) -> None:
    """By what is counted: not for few rows, nor where copies take longer than they save."""
    rows, depth, columns = shape
    arrays = [np.zeros(s, dtype.numpy) for s in ((rows, depth), (depth, columns))]
    task = test_product.product("MatMul", arrays, (rows, columns), {}, orders=((0, 1),) * 2, constant=True, dtype=dtype)
    assert next(iter(alternatives(task, machine_with_unit()))).kernel.name == first
    if dtype == FLOAT32:
        assert next(iter(alternatives(replace(task, exact=True), machine_with_unit()))).kernel.name == "product"


@pytest.mark.parametrize(("dtype", "products"), [(FLOAT32, 3), (BFLOAT16, 1)], ids=str)
def test_what_a_unit_is_told(dtype: DType, products: int) -> None:
    """Of a machine that has one: of four sums, each operand is loaded once for each part, and nothing else moves tiles."""
    arrays = [np.zeros(shape, dtype.numpy) for shape in ((64, 768), (768, 64))]
    task = test_product.product("MatMul", arrays, (64, 64), {}, orders=((0, 1),) * 2, constant=True, dtype=dtype)
    machine = machine_with_unit()
    one = next(iter(alternatives(task, machine)))
    assert (one.schedule.product.tile.rows, one.schedule.product.tile.vectors) == (32, 2)
    text = compile_assembly(text_of(one, machine.instructions, "kernel"), machine, one.level)
    told = Counter(line.split()[0] for line in text.splitlines() if line.strip())
    parts = one.schedule.product.tile.instruction.steps // 16
    assert (
        told["tdpbf16ps"] == 4 * products
        and told["tileloadd"] == 4 * parts
        and told["tilezero"] == told["tilestored"] == 4
    )
    assert told["ldtilecfg"] == told["tilerelease"] == 1


@pytest.mark.parametrize("instruction", [WHOLE, PARTS], ids=repr)
@pytest.mark.parametrize("depth", [16, 40])
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "changing"])
def test_products_of_any_number_of_rows(target: Target, instruction: Instruction, depth: int, constant: bool) -> None:
    """A version for those that fill a tile, and what every machine has for fewer."""
    dtype = BFLOAT16 if instruction is WHOLE else FLOAT32
    symbol = Symbol("rows", 1, 2**31 - 1)
    rows: Any = size_of(symbol)
    shapes: list[Any] = [SimpleNamespace(shape=s, ndim=2) for s in ((rows, depth), (depth, 33))]
    task = test_product.product(
        "MatMul", shapes, (rows, 33), {}, orders=((0, 1),) * 2, constant=constant, dtype=dtype, epilogue="residual"
    )
    versions = versions_of((by(instruction), PRODUCT), task, [symbol], target, workers=2)
    assert versions[0].kernel == f"by {instruction!r}"
    for count in (1, 2, 3, 4, 5, 7, 8, 31, 64, 65, 200):
        left, right, residual = (
            np.abs(test_product.numbers(k, s, dtype)) for k, s in enumerate(((count, depth), (depth, 33), (count, 33)))
        )
        exact = left.astype(np.float64) @ right.astype(np.float64) + residual.astype(np.float64)
        names = []
        for version in versions:
            arrays = {"x0": left, "x1": right, "r": residual, "y": np.zeros((count, 33), dtype.numpy)}
            for argument in version.loaded.arguments:
                if argument.packing is not None:
                    arrays[argument.name] = argument.packing.pack(right)
            ran = run_at([version], {"rows": count}, arrays)
            if ran:
                error = np.abs(arrays["y"].astype(np.float64) - exact).max() / exact.max()
                assert error <= TOLERANCES[instruction], (version.kernel, count)
            names += ran
        assert names, f"no version is for {count} rows"


def test_a_large_right_operand_is_not_copied_by_every_worker() -> None:
    arrays = [np.zeros((2048, 2048), np.float32)] * 2
    task = test_product.product("MatMul", arrays, (2048, 2048), {}, orders=((0, 1),) * 2, constant=False)
    assert next(iter(alternatives(task, machine_with_unit()))).kernel.name == "product"


def test_numbers_that_lie_apart_are_copied_one_by_one() -> None:
    """Which takes longer than a unit saves, if there are few rows."""
    shapes = (64, 768), (768, 768)
    arrays = [np.zeros(shape, np.float32) for shape in shapes]
    for turned, constant, first in (
        (False, False, "float32-in-parts"),
        (True, False, "product"),
        (True, True, "float32-in-parts"),
    ):
        orders = (0, 1), (1, 0) if turned else (0, 1)
        task = test_product.product("MatMul", arrays, (64, 768), {}, orders=orders, constant=constant)
        assert next(iter(alternatives(task, machine_with_unit()))).kernel.name == first, (turned, constant)
