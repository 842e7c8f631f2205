"""Matrix products of random shape, layout and scaling against NumPy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.codegen.ways import refusal, scheduled, text_of, way, ways

from fusewise.codegen.candidates import PRODUCTS
from fusewise.codegen.families.product.matrix import PRODUCT, MatrixSchedule
from fusewise.codegen.families.product.places import column_at
from fusewise.codegen.families.product.plan import Product, ProductSchedule, RowAxis, prefetched
from fusewise.codegen.families.product.shape import MatrixProduct
from fusewise.codegen.kernel import Kernel
from fusewise.codegen.machine.figures import OverheadFigures
from fusewise.codegen.nest.build import Module
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.packing import column_starts, panels
from fusewise.codegen.target import TARGETS, Target
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, INT32, DType
from fusewise.ir.types import TensorType
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.ops.expr import Expr, binary, const, index, load, unary
from fusewise.runtime.jit import compile_assembly

TOLERANCE = 1e-5
"""Largest difference, relative to the largest value, between two orders of float32 summation."""

FEW = settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))


def stored(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a tensor whose axes lie in memory in this order."""
    inner = dense(tuple(shape[k] for k in order))
    return tuple(inner[order.index(k)] for k in range(len(shape)))


def element(name: str, dtype: DType, rank: int, prefix: str = "p") -> Expr:
    return load(name, dtype, tuple(index(f"{prefix}{k}") for k in range(rank)))


def product(
    op: str,
    arrays: list[np.ndarray],
    out: tuple[int, ...],
    attributes: dict[str, Any],
    *,
    orders: tuple[tuple[int, ...], ...],
    constant: bool,
    epilogue: str = "none",
    dtype: DType = FLOAT32,
) -> Task:
    """A task with a product at its anchor: operands x0, x1 (constant or not), x2, residual r, result y."""
    operands = [
        Operand(f"x{k}", dtype, a.shape, stored(a.shape, orders[k]), constant=constant and k == 1)
        for k, a in enumerate(arrays)
    ]
    at = tuple(index(f"i{k}") for k in range(len(out)))
    value = load(ACC, dtype, at)
    if epilogue == "residual":
        operands.append(Operand("r", dtype, out, dense(out)))
        value = value + load("r", dtype, at)
    if epilogue == "gelu":
        value = value * 0.5 * (unary("erf", value * math.sqrt(0.5)) + 1.0)
        value = binary("max", value * unary("sigmoid", value), const(-1.0, dtype))
    operands.append(Operand("y", dtype, out, dense(out)))
    anchor = Anchor(
        op,
        op.lower(),
        tuple(attributes.items()),
        tuple(TensorType(dtype, a.shape) for a in arrays),
        tuple(element(f"x{k}", dtype, a.ndim) for k, a in enumerate(arrays)),
        TensorType(dtype, out),
    )
    return Task(out, tuple(operands), (Store("y", at, value),), anchor)


def check(
    run_kernel: Any,
    kernels: tuple[Kernel, ...],
    target: Target,
    op: str,
    arrays: list[np.ndarray],
    expected: np.ndarray,
    attributes: dict[str, Any],
    *,
    orders: tuple[tuple[int, ...], ...] | None = None,
    constant: bool = True,
    epilogue: str = "none",
    dtype: DType = FLOAT32,
    workers: int = 2,
    tolerance: float = TOLERANCE,
    schedule: Any = None,
) -> None:
    """Run every kernel that accepts, by its favourite schedule unless another is given, and compare."""
    chosen = orders if orders is not None else tuple(tuple(range(a.ndim)) for a in arrays)
    task = product(
        op, arrays, expected.shape, attributes, orders=chosen, constant=constant, epilogue=epilogue, dtype=dtype
    )
    residual = np.random.default_rng(3).standard_normal(expected.shape).astype(dtype.numpy)
    if epilogue == "residual":
        expected = expected + residual
    if epilogue == "gelu":
        erf = np.vectorize(math.erf, otypes=[float])
        half = expected * 0.5 * (erf(expected * math.sqrt(0.5)) + 1)
        expected = np.maximum(half / (1 + np.exp(-half)), -1)
    accepted = [kernel for kernel in kernels if refusal(kernel, task, target) is None]
    assert accepted, [str(refusal(kernel, task, target)) for kernel in kernels]
    for kernel in accepted:
        one = way(kernel, task, target) if schedule is None else scheduled(kernel, task, target, schedule)
        buffers = {
            f"x{k}": np.ascontiguousarray(a.transpose(order))
            for k, (a, order) in enumerate(zip(arrays, chosen, strict=True))
        }
        buffers |= {"r": residual, "y": np.full(expected.shape, np.nan, dtype.numpy)}
        for argument in one.arguments:
            if argument.packing is not None:
                buffers[argument.name] = argument.packing.pack(buffers[argument.name])
        run_kernel(kernel, task, buffers, workers=workers, schedule=one.schedule, machine=target)
        found = buffers["y"].astype(np.float64)
        scale = max(float(np.abs(expected).max(initial=0)), 1e-30)
        error = float(np.abs(found - expected).max(initial=0)) / scale
        assert error <= tolerance, (kernel.name, one.schedule, error)


def numbers(seed: int, shape: tuple[int, ...], dtype: DType = FLOAT32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype.numpy)


SIZES = st.sampled_from((1, 2, 3, 5, 7, 8, 9, 16, 17, 33, 50))


@FEW
@given(
    rows=st.one_of(st.none(), SIZES),
    columns=st.one_of(st.none(), SIZES),
    depth=st.one_of(SIZES, st.just(0)),
    lead=st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.booleans()), max_size=3),
    skip=st.integers(0, 3),
    constant=st.booleans(),
    epilogue=st.sampled_from(("none", "residual", "gelu")),
    workers=st.integers(1, 4),
    data=st.data(),
)
def test_matmul_broadcasts_as_numpy_does(
    run_kernel: Any,
    target: Target,
    rows: int | None,
    columns: int | None,
    depth: int,
    lead: list[tuple[int, bool, bool]],
    skip: int,
    constant: bool,
    epilogue: str,
    workers: int,
    data: st.DataObject,
) -> None:
    left_lead = tuple(1 if thin else n for n, thin, _ in lead)
    right_lead = tuple(1 if thin else n for n, _, thin in lead)[skip:]
    left = (depth,) if rows is None else (*left_lead, rows, depth)
    right = (depth,) if columns is None else (*right_lead, depth, columns)
    arrays = [numbers(1, left), numbers(2, right)]
    expected = np.matmul(*(a.astype(np.float64) for a in arrays))
    orders = tuple(tuple(data.draw(st.permutations(range(a.ndim)))) for a in arrays)
    check(
        run_kernel,
        PRODUCTS,
        target,
        "MatMul",
        arrays,
        np.asarray(expected),
        {},
        orders=orders,
        constant=constant,
        epilogue=epilogue,
        workers=workers,
    )


@FEW
@given(
    rows=SIZES,
    columns=SIZES,
    depth=SIZES,
    flips=st.tuples(st.booleans(), st.booleans()),
    scales=st.sampled_from(((1.0, 1.0), (0.5, 1.0), (1.0, 2.0), (-1.5, 0.25), (2.0, 0.0))),
    addend=st.sampled_from(("none", "scalar", "row", "column", "full", "vector")),
    constant=st.booleans(),
    epilogue=st.sampled_from(("none", "residual")),
)
def test_gemm_scales_transposes_and_adds(
    run_kernel: Any,
    target: Target,
    rows: int,
    columns: int,
    depth: int,
    flips: tuple[bool, bool],
    scales: tuple[float, float],
    addend: str,
    constant: bool,
    epilogue: str,
) -> None:
    left, right = numbers(1, (rows, depth)), numbers(2, (depth, columns))
    shapes: dict[str, tuple[int, ...]] = {
        "scalar": (),
        "row": (1, columns),
        "column": (rows, 1),
        "full": (rows, columns),
        "vector": (columns,),
    }
    arrays = [left.T.copy() if flips[0] else left, right.T.copy() if flips[1] else right]
    expected = scales[0] * (left.astype(np.float64) @ right.astype(np.float64))
    if addend != "none":
        arrays.append(numbers(3, shapes[addend]))
        expected = expected + scales[1] * arrays[2].astype(np.float64)
    attributes = {"alpha": scales[0], "beta": scales[1], "transA": int(flips[0]), "transB": int(flips[1])}
    check(run_kernel, PRODUCTS, target, "Gemm", arrays, expected, attributes, constant=constant, epilogue=epilogue)


ATTENTION = [
    ("scores", (2, 3, 40, 16), (2, 3, 16, 40), (0, 2, 1, 3), (0, 3, 1, 2)),
    ("context", (2, 3, 40, 40), (2, 3, 40, 16), (0, 1, 2, 3), (0, 2, 1, 3)),
]


@pytest.mark.parametrize("name, left, right, left_order, right_order", ATTENTION)
def test_attention_reads_heads_where_they_lie(
    run_kernel: Any, target: Target, name: str, left: Any, right: Any, left_order: Any, right_order: Any
) -> None:
    arrays = [numbers(1, left), numbers(2, right)]
    expected = np.matmul(*(a.astype(np.float64) for a in arrays))
    orders = (left_order, right_order)
    check(run_kernel, PRODUCTS, target, "MatMul", arrays, expected, {}, orders=orders, constant=False, workers=3)


@pytest.mark.parametrize("shape", [(1, 700, 130), (130, 300, 65), (37, 2000, 20), (197, 67, 73), (23, 129, 403)])
def test_blocks_and_panels_meet(run_kernel: Any, target: Target, shape: tuple[int, int, int]) -> None:
    rows, depth, columns = shape
    arrays = [numbers(1, (rows, depth)), numbers(2, (depth, columns))]
    expected = arrays[0].astype(np.float64) @ arrays[1]
    for workers in (1, 2, 5, 8):
        check(run_kernel, PRODUCTS, target, "MatMul", arrays, expected, {}, workers=workers)


@FEW
@given(
    rows=st.integers(1, 70),
    steps=st.sampled_from((1, 4, 7, 30)),
    chunks=st.integers(2, 5),
    columns=SIZES,
    op=st.sampled_from(("MatMul", "Gemm")),
    epilogue=st.sampled_from(("none", "residual", "gelu")),
    split=st.sampled_from(("columns", "blocks")),
    workers=st.integers(1, 5),
)
def test_reduction_in_chunks(
    run_kernel: Any,
    target: Target,
    rows: int,
    steps: int,
    chunks: int,
    columns: int,
    op: str,
    split: str,
    **options: Any,
) -> None:
    """The sums wait in memory between the chunks, the bias is added once, and the stores run once."""
    arrays = [numbers(1, (rows, steps * chunks)), numbers(2, (steps * chunks, columns))]
    expected = arrays[0].astype(np.float64) @ arrays[1]
    if op == "Gemm":
        arrays.append(numbers(3, (columns,)))
        expected = expected + arrays[2]
    kernel = PRODUCT

    def schedules(m: MatrixProduct, task: Task, target: Target) -> Iterator[MatrixSchedule]:
        for schedule in kernel.schedules(m, task, target):
            product = replace(schedule.product, chunk=steps, by_columns=split == "columns")
            yield replace(schedule, product=prefetched(product, m.product, task, target))

    check(run_kernel, (replace(kernel, schedules=schedules),), target, op, arrays, expected, {}, **options)


def test_long_panels_are_reduced_in_chunks(target: Target) -> None:
    def chunk(rows: int, depth: int) -> int:
        arrays = [np.zeros((rows, depth), np.float32), np.zeros((depth, 512), np.float32)]
        task = product("MatMul", arrays, (rows, 512), {}, orders=((0, 1), (0, 1)), constant=True)
        return int(way(PRODUCT, task, target).schedule.product.chunk)

    assert 12544 % chunk(1000, 12544) == 0
    assert not chunk(1, 12544)  # each panel is used once
    assert not chunk(1000, 768)
    assert not chunk(1000, 100003)  # a prime


@pytest.mark.parametrize("rows", [8, 80, 128, 500])
def test_many_tiles_share_a_panel_where_few_panels_are_to_be_shared_out(rows: int) -> None:
    wide = next(other for other in TARGETS if other.name == "avx512")
    arrays = [np.zeros((rows, 512), np.float32), np.zeros((512, 128), np.float32)]
    task = product("MatMul", arrays, (rows, 128), {}, orders=((0, 1),) * 2, constant=True)
    schedule: ProductSchedule = way(PRODUCT, task, wide).schedule.product
    tiles = math.ceil(rows / schedule.tile.rows)
    assert not schedule.by_columns
    assert min(math.ceil(tiles / 2), 8) <= schedule.per_block <= math.ceil(tiles / 2)


def test_panels_that_fit_a_large_second_level_are_still_too_long() -> None:
    large = replace(TARGETS[0], l1_bytes=48 << 10, l2_bytes=2 << 20)
    large = large.with_figures(overhead=OverheadFigures(0.24, 0.2, 0.0))
    arrays = [np.zeros((197, 3072), np.float32), np.zeros((3072, 768), np.float32)]
    task = product("MatMul", arrays, (197, 768), {}, orders=((0, 1), (0, 1)), constant=True)
    assert way(PRODUCT, task, large).schedule.product.chunk == 512


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("dtype, tolerance", [(FLOAT64, 1e-13), (FLOAT16, 2e-3), (BFLOAT16, 1.6e-2)])
def test_other_float_types(run_kernel: Any, target: Target, dtype: DType, tolerance: float, constant: bool) -> None:
    arrays = [numbers(1, (9, 20), dtype), numbers(2, (20, 21), dtype)]
    expected = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)
    check(
        run_kernel,
        PRODUCTS,
        target,
        "MatMul",
        arrays,
        expected,
        {},
        dtype=dtype,
        constant=constant,
        tolerance=tolerance,
    )


def test_integers_are_refused(target: Target) -> None:
    arrays = [np.zeros((2, 3), np.int32), np.zeros((3, 4), np.int32)]
    orders = ((0, 1), (0, 1))
    task = product("MatMul", arrays, (2, 4), {}, orders=orders, constant=True, dtype=INT32)
    reason = refusal(PRODUCT, task, target)
    assert str(reason) == "element type has no matrix product kernel (int32)"


@pytest.mark.parametrize("other", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("shape", [(128, 64, 256), (128, 768, 768), (1, 64, 256), (49, 96, 40)])
def test_code_for_every_machine_keeps_the_tile_in_registers(other: Target, shape: tuple[int, int, int]) -> None:
    rows, depth, columns = shape
    arrays = [numbers(1, (rows, depth)), numbers(2, (depth, columns))]
    orders = ((0, 1), (0, 1))
    task = product("MatMul", arrays, (rows, columns), {}, orders=orders, constant=True)
    text = compile_assembly(text_of(way(PRODUCT, task, other), other.instructions, "kernel"), other)
    vectors = [line for line in text.splitlines() if any(r in line for r in ("%zmm", "%ymm", "%xmm", "q0", "q1", "q2"))]
    assert vectors, "the product is computed in vectors"
    assert not [line for line in vectors if "(%rsp" in line or "[sp" in line]


@pytest.mark.parametrize("vectors, more", [(0, 1), (1, 1), (3, 0), (5, 0), (5, 1)])
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "varying"])
def test_every_way_stays_inside_its_operands(
    run_kernel: Any, target: Target, vectors: int, more: int, constant: bool
) -> None:
    """Whichever tile a machine does best with: columns that fill no vector, or leave a part of a panel."""
    arrays = [numbers(1, (7, 9)), numbers(2, (9, vectors * target.lanes + more))]
    expected = arrays[0].astype(np.float64) @ arrays[1]
    task = product("MatMul", arrays, expected.shape, {}, orders=((0, 1), (0, 1)), constant=constant)
    (kernel,) = (each for each in PRODUCTS if refusal(each, task, target) is None)
    for one in ways(kernel, task, target):
        check(run_kernel, (kernel,), target, "MatMul", arrays, expected, {}, constant=constant, schedule=one.schedule)


@given(
    columns=st.integers(1, 140),
    lanes=st.sampled_from((1, 2, 4, 8, 16)),
    vectors=st.integers(1, 8),
    depth=st.integers(0, 3),
    multiple=st.integers(1, 3),
)
def test_panels_hold_every_column_where_it_is_looked_for(
    columns: int, lanes: int, vectors: int, depth: int, multiple: int
) -> None:
    assume(columns >= lanes)
    matrix = np.arange(depth * columns, dtype=np.float32).reshape(depth, columns)
    starts = column_starts(columns, lanes, vectors, multiple)
    found = panels(matrix, lanes, vectors, multiple)
    plain, tile = Product((), (RowAxis("i0", 1, depth),), "i1", columns, depth), Tile(1, vectors, lanes)
    f = Module().function("kernel", ())
    assert len(starts) % (vectors * multiple) == 0
    seen = set()
    for k, start in enumerate(starts):
        panel, slot = divmod(k, vectors)
        part = found[panel, :, slot * lanes : (slot + 1) * lanes]
        np.testing.assert_array_equal(part, matrix[:, start : start + lanes])
        assert column_at(plain, tile, panel, slot, f, multiple) == start
        assert slot == 0 or columns % tile.width or start == starts[k - 1] + lanes, "stores take vectors together"
        seen.update(range(start, start + lanes))
    assert seen == set(range(columns))
