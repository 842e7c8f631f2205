"""Strassen's algorithm: its tables, random products and 1x1 convolutions against NumPy and PyTorch, some of any size, and when it
is chosen."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.codegen.families.test_convolution import check as check_convolution
from tests.codegen.families.test_convolution import convolution, correlate
from tests.codegen.families.test_convolution_free import SIZES, SYMBOLS, free_convolution
from tests.codegen.families.test_convolution_free import check as check_free
from tests.codegen.families.test_product import FEW, check, numbers, product
from tests.codegen.free import versions_of
from tests.codegen.ways import refusal, scheduled, text_of, way, ways
from tests.machines import runnable

from fusewise.codegen.candidates import PRODUCTS
from fusewise.codegen.families.convolution.direct import DIRECT
from fusewise.codegen.families.strassen import plan as strassen_plan
from fusewise.codegen.families.strassen.form import LEFT, LEFT_STEPS, MADE, RESULT_STEPS, RIGHT, extend
from fusewise.codegen.families.strassen.kernel import STRASSEN, STRASSEN_CONV
from fusewise.codegen.families.strassen.plan import StrassenSchedule, strassen_space
from fusewise.codegen.kernel import Implementation
from fusewise.codegen.llvm.stores import far_of
from fusewise.codegen.machine.figures import MeasuredFigures
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.target import TARGETS, Target
from fusewise.ir.dtypes import FLOAT64
from fusewise.lower.task import Task
from fusewise.runtime.jit import compile_assembly

TOLERANCE = 2e-6
"""Largest error, relative to the largest value: sums of half the depth, and differences of them."""

ONE_A_CYCLE = replace(TARGETS[0], multiply_bits=512)


@pytest.fixture(scope="session", params=runnable(), ids=lambda target: target.name)
def target(request: pytest.FixtureRequest) -> Target:
    """A machine whose code runs here, if it added with units of their own."""
    return replace(request.param, adds_apart=True)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every product that can be halved is."""
    strassen_space.cache_clear()
    for name, value in {"worth": -math.inf, "few_worth": -math.inf, "shortest": 0}.items():
        monkeypatch.setattr(MeasuredFigures().strassen, name, value)
    monkeypatch.setattr(strassen_plan, "LEAST_SUMS", 1)
    yield
    strassen_space.cache_clear()


def matmul(rows: int, depth: int, columns: int, constant: bool = True, epilogue: str = "none") -> Task:
    arrays = [np.zeros((rows, depth), np.float32), np.zeros((depth, columns), np.float32)]
    orders = ((0, 1), (0, 1))
    return product("MatMul", arrays, (rows, columns), {}, orders=orders, constant=constant, epilogue=epilogue)


def favourite(task: Task, target: Target) -> StrassenSchedule:
    schedule: StrassenSchedule = way(STRASSEN, task, target).schedule
    return schedule


def test_seven_products_make_every_quarter() -> None:
    """The steps as a bilinear form: quarter (i, j) of the result is the sum over k of A(i, k) B(k, j)."""
    quarters = np.eye(4, dtype=int)
    left = np.array(extend(quarters, LEFT_STEPS, np.add, np.subtract))[list(LEFT)]
    right, made = [], np.zeros(4, int)
    for sources in RIGHT:
        terms = [made if source == MADE else quarters[source] for source in sources]
        made = terms[0] - terms[1] if len(terms) == 2 else made
        right.append(made if len(terms) == 2 else terms[0])
    result = np.array(extend(np.eye(7, dtype=int), RESULT_STEPS, np.add, np.subtract))[-4:]
    found = np.einsum("cp,pa,pb->cab", result, left, np.array(right))
    wanted = np.zeros((4, 4, 4), int)
    for i, j, k in np.ndindex(2, 2, 2):
        wanted[2 * i + j, 2 * i + k, 2 * k + j] = 1
    np.testing.assert_array_equal(found, wanted)


@FEW
@given(
    rows=st.integers(3, 150),
    depth=st.sampled_from((1, 2, 3, 5, 37)),
    more=st.sampled_from((0, 2, 12)),
    columns=st.integers(2, 200),
    op=st.sampled_from(("MatMul", "Gemm")),
    scale=st.sampled_from((1.0, -0.5)),
    epilogue=st.sampled_from(("none", "residual", "gelu")),
    workers=st.sampled_from((1, 2, 3, 7, 64)),
    one_a_cycle=st.booleans(),
)
def test_random_products_agree_with_numpy(
    run_kernel: Any,
    target: Target,
    always: None,
    rows: int,
    depth: int,
    more: int,
    columns: int,
    op: str,
    scale: float,
    epilogue: str,
    workers: int,
    one_a_cycle: bool,
) -> None:
    target = replace(target, multiply_bits=target.vector_bits) if one_a_cycle else target
    depth = depth * 2 * target.lanes + more
    task = matmul(rows, depth, columns)
    if refusal(STRASSEN, task, target) is not None:
        columns = -(-columns // (2 * target.lanes)) * 2 * target.lanes
    arrays, attributes = [numbers(1, (rows, depth)), numbers(2, (depth, columns))], {}
    expected = arrays[0].astype(np.float64) @ arrays[1]
    if op == "Gemm":
        arrays.append(numbers(3, (columns,)))
        attributes = {"alpha": scale}
        expected = scale * expected + arrays[2]
    options: dict[str, Any] = {"epilogue": epilogue, "workers": workers, "tolerance": 5e-6}
    check(run_kernel, (STRASSEN,), target, op, arrays, expected, attributes, **options)


@pytest.mark.parametrize("shape", [(131, 2048, 96), (260, 1184, 160), (98, 4096, 64)])
@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("few", [False, True], ids=["wide", "one a cycle"])
def test_chunks_blocks_and_panels_meet(
    run_kernel: Any, target: Target, always: None, shape: tuple[int, int, int], workers: int, few: bool
) -> None:
    rows, depth, columns = shape
    target = replace(target, multiply_bits=target.vector_bits, l2_bytes=1 << 18) if few else target
    arrays = [numbers(1, (rows, depth)), numbers(2, (depth, columns))]
    expected = arrays[0].astype(np.float64) @ arrays[1]
    check(run_kernel, (STRASSEN,), target, "MatMul", arrays, expected, {}, workers=workers, tolerance=TOLERANCE)


@pytest.mark.parametrize(("whole", "rest"), [(1, 1), (3, 3), (5, 1), (3, 0)])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_panels_that_share_columns_are_one_pair(
    run_kernel: Any, target: Target, always: None, whole: int, rest: int, workers: int
) -> None:
    """In another pair a column would round otherwise, and which result stayed would depend on who came last. Of an odd number the
    last is paired with itself."""
    target = replace(target, multiply_bits=target.vector_bits)
    columns = whole * target.lanes + rest
    arrays = [numbers(1, (131, 512)), numbers(2, (512, columns))]
    expected = arrays[0].astype(np.float64) @ arrays[1]
    check(run_kernel, (STRASSEN,), target, "MatMul", arrays, expected, {}, workers=workers, tolerance=5e-6)


@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
@pytest.mark.parametrize("panels", [1, 2, 3, 5])
def test_a_panel_that_has_no_other_beside_it_stays_inside(
    run_kernel: Any, target: Target, always: None, vectors: int, panels: int
) -> None:
    """Any tile may be asked for, whichever this machine does best with; stores take vectors of a row together."""
    lanes, columns = target.lanes, panels * vectors * target.lanes
    schedule = StrassenSchedule(Tile(3, vectors, lanes), per_block=2, chunk=17)
    arrays = [numbers(1, (19, 68)), numbers(2, (68, columns))]
    expected = arrays[0].astype(np.float64) @ arrays[1]
    options: dict[str, Any] = {"epilogue": "gelu", "schedule": schedule, "tolerance": 5e-6}
    check(run_kernel, (STRASSEN,), target, "MatMul", arrays, expected, {}, **options)


def test_chunks_are_added_up_by_themselves(
    run_kernel: Any, target: Target, always: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside 2 ** 24 a one is lost, but only in the sum of its own chunk; rows and columns are alike, so differences are zero."""
    half, chunk, large = 512, 64, 2.0**24
    monkeypatch.setattr(strassen_plan, "LONGEST_CHUNK", chunk // 2 if target.has_few_registers else chunk)
    left = np.ones((56, 2 * half), np.float32)
    left[:, 0], left[:, half] = large, 0.0
    arrays = [left, np.ones((2 * half, 64), np.float32)]
    expected = np.full((56, 64), large + (half - chunk) + (half - 1))
    check(run_kernel, (STRASSEN,), target, "MatMul", arrays, expected, {}, tolerance=4 / large)


@FEW
@given(
    batch=st.integers(1, 3),
    inputs=st.sampled_from((1, 2, 5)),
    more=st.sampled_from((0, 2, 12)),
    outputs=st.sampled_from((32, 64, 96, 160, 200)),
    side=st.integers(2, 13),
    stride=st.integers(1, 2),
    bias=st.booleans(),
    epilogue=st.sampled_from(("none", "residual", "swish")),
    prologue=st.sampled_from(("none", "relu", "gate")),
    workers=st.integers(1, 4),
)
def test_random_convolutions_agree_with_torch(
    run_kernel: Any,
    target: Target,
    always: None,
    batch: int,
    inputs: int,
    more: int,
    outputs: int,
    side: int,
    stride: int,
    bias: bool,
    epilogue: str,
    prologue: str,
    workers: int,
) -> None:
    channels = inputs * 2 * target.lanes + more
    attributes = {"strides": [1, stride], "kernel_shape": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "group": 1}
    x, w = (batch, channels, side, stride * (side - 1) + 1), (outputs, channels, 1, 1)
    ends: dict[str, Any] = {"bias": bias, "epilogue": epilogue, "prologue": prologue}
    out = (batch, outputs, side, side)
    task = convolution("Conv", x, w, out, attributes, **ends)
    assume(refusal(STRASSEN_CONV, task, target) is None)
    kernels, reference, options = (STRASSEN_CONV,), correlate(attributes), {"workers": workers, "tolerance": 5e-6}
    check_convolution(run_kernel, kernels, target, "Conv", x, w, attributes, reference, **ends, **options)


@pytest.mark.parametrize("pixels", [(131,), (9, 25), (3, 5, 17)], ids=["a signal", "a map", "a volume"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("prologue", ["relu", "gate"])
def test_what_is_fused_in_front_is_computed_on_the_way_in(
    run_kernel: Any, target: Target, always: None, pixels: tuple[int, ...], stride: int, prologue: str
) -> None:
    """Of a map so large that it is fetched ahead; and a residual lies under the result where tiles are moved back, too."""
    target = replace(target, multiply_bits=target.vector_bits, l2_bytes=1 << 18)
    rank, channels = len(pixels), 2 * (target.figures.caches.near_bytes // 4 // math.prod(pixels) // 2 + target.lanes)
    attributes = {"strides": [stride] * rank, "dilations": [1] * rank, "pads": [0] * 2 * rank, "group": 1}
    x, w = (1, channels, *(stride * (out - 1) + 1 for out in pixels)), (96, channels, *(1,) * rank)
    options: dict[str, Any] = {"epilogue": "residual", "prologue": prologue, "tolerance": 5e-6}
    task = convolution("Conv", x, w, (1, 96, *pixels), attributes, epilogue="residual", prologue=prologue)
    assert refusal(STRASSEN_CONV, task, target) is None
    check_convolution(run_kernel, (STRASSEN_CONV,), target, "Conv", x, w, attributes, correlate(attributes), **options)


FREE = {
    "plain": {"channels": (64, 64), "kernel": (1, 1)},
    "apart": {"channels": (32, 64), "kernel": (1, 1), "strides": (2, 2), "epilogue": "residual"},
    "computed": {"channels": (32, 64), "kernel": (1, 1), "prologue": "relu", "epilogue": "swish"},
}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", FREE)
def test_halves_for_every_size(target: Target, name: str, workers: int) -> None:
    case = FREE[name]
    task = free_convolution(case)
    versions = versions_of((STRASSEN_CONV, DIRECT), task, SYMBOLS, replace(target, workers=workers), workers)
    halved = 0
    for sizes in SIZES:
        names = check_free(versions, case, sizes)
        assert names, f"no version is for {sizes}"
        halved += STRASSEN_CONV.name in names
    assert halved > 2


def pointwise(inputs: int, outputs: int, side: int, prologue: str) -> Task:
    attributes = {"strides": [1, 1], "dilations": [1, 1], "pads": [0] * 4, "group": 1}
    shapes = (1, inputs, side, side), (outputs, inputs, 1, 1), (1, outputs, side, side)
    return convolution("Conv", *shapes, attributes, prologue=prologue)


def test_writing_the_left_operand_first_has_to_pay() -> None:
    assert refusal(STRASSEN_CONV, pointwise(512, 128, 28, "relu"), ONE_A_CYCLE) is None
    assert refusal(STRASSEN_CONV, pointwise(576, 96, 19, "none"), ONE_A_CYCLE) is None
    computed = refusal(STRASSEN_CONV, pointwise(576, 96, 19, "gate"), ONE_A_CYCLE)
    assert str(computed) == "no tile saves more than it costs"


def test_what_is_computed_is_fetched_as_what_lies_there() -> None:
    def found(prologue: str) -> int:
        return fetches(way(STRASSEN_CONV, pointwise(512, 256, 28, prologue), ONE_A_CYCLE))

    assert found("relu") == found("none")


def test_large_products_are_halved_and_small_ones_are_not() -> None:
    assert PRODUCTS.index(STRASSEN) < len(PRODUCTS) - 1, "the last one accepts all"
    assert refusal(STRASSEN, matmul(128, 768, 3072), ONE_A_CYCLE) is None
    assert str(refusal(STRASSEN, matmul(128, 128, 128), ONE_A_CYCLE)) == "no tile saves more than it costs"
    assert str(refusal(STRASSEN, matmul(8, 768, 3072), ONE_A_CYCLE)) == "too few rows to halve"
    assert (
        str(refusal(STRASSEN, matmul(128, 769, 768), ONE_A_CYCLE)) == "the depth has no halves, or they fill no vector"
    )
    assert refusal(STRASSEN, matmul(128, 312, 1200), ONE_A_CYCLE) is None
    assert refusal(STRASSEN, matmul(1000, 8192, 1024), ONE_A_CYCLE) is None
    assert "round too often" in str(refusal(STRASSEN, matmul(1000, 12544, 1024), ONE_A_CYCLE))
    assert (
        str(refusal(STRASSEN, matmul(128, 8 * 1021, 768), ONE_A_CYCLE))
        == "the depth is short, or has no divisor of a good length"
    )


def test_two_multiplications_a_cycle_leave_less_to_save() -> None:
    two = next(target for target in TARGETS if target.name == "avx512")
    assert two.multiplies(two.vector_bits) == 2
    assert refusal(STRASSEN, matmul(128, 768, 768), two) is None
    assert refusal(STRASSEN, matmul(196, 1024, 256), two) is None
    assert str(refusal(STRASSEN, matmul(784, 512, 128), two)) == "no tile saves more than it costs"


def test_rows_are_dealt_out_evenly_where_two_multiplications_begin_in_a_cycle() -> None:
    two = next(target for target in TARGETS if target.name == "avx512")
    for rows, workers, tiles in ((128, 1, 8), (128, 2, 4), (197, 2, 5), (784, 2, 7)):
        schedule = favourite(matmul(rows, 768, 768), replace(two, workers=workers))
        assert schedule.per_block == tiles
        assert math.ceil(math.ceil(rows / 2) / schedule.tile.rows / tiles) % workers == 0
    assert str(refusal(STRASSEN, matmul(49, 2048, 1024), two)) == "no tile saves more than it costs"


def test_rows_are_dealt_out_evenly_where_one_multiplication_begins_in_a_cycle() -> None:
    """A block that both workers share is for few rows."""
    for rows, depth, tiles in ((128, 768, 4), (128, 3072, 4), (784, 512, 7), (49, 2048, 5)):
        assert favourite(matmul(rows, depth, 768), ONE_A_CYCLE).per_block == tiles


def test_tiles_of_one_vector_where_one_multiplication_begins_in_a_cycle() -> None:
    two = next(target for target in TARGETS if target.name == "avx512")
    for task in (matmul(128, 512, 128), matmul(128, 768, 3072), matmul(196, 1024, 256)):
        found = [one.schedule for one in ways(STRASSEN, task, ONE_A_CYCLE)]
        assert (found[0].tile.rows in (7, 8), found[0].tile.vectors) == (True, 1)
        assert all(a != b for a, b in itertools.combinations(found, 2))
    assert favourite(matmul(128, 768, 3072), two).tile.vectors > 1


def test_short_products_with_simple_stores_are_finished_beside_others() -> None:
    """Where one multiplication begins in a cycle."""
    two = next(target for target in TARGETS if target.name == "avx512")

    def is_beside(target: Target, depth: int, epilogue: str) -> bool:
        found = way(STRASSEN, matmul(128, depth, 3072, epilogue=epilogue), target)
        return "!prof" in text_of(found, target.instructions, "kernel")

    assert all(is_beside(ONE_A_CYCLE, depth, "residual") for depth in (256, 512))
    assert not is_beside(ONE_A_CYCLE, 768, "residual"), "of a deep one it is little of the time"
    assert not is_beside(ONE_A_CYCLE, 512, "gelu"), "it has multiply-adds of its own"
    assert not is_beside(two, 512, "residual"), "not measured"


def fetches(found: Implementation) -> int:
    return text_of(found, ONE_A_CYCLE.instructions, "kernel").count("call void @llvm.prefetch")


def test_residuals_and_results_that_are_far_are_fetched() -> None:
    """With a residual both are; without, results that the second levels do not hold."""
    plain, added = (matmul(128, 256, 512, epilogue=epilogue) for epilogue in ("none", "residual"))
    small, large = (replace(ONE_A_CYCLE, workers=2, l2_bytes=kilobytes << 10) for kilobytes in (192, 1024))

    def found(task: Task, machine: Target) -> int:
        schedule = replace(favourite(plain, ONE_A_CYCLE), far=far_of(task, machine))
        return fetches(scheduled(STRASSEN, task, machine, schedule))

    near = found(plain, large)
    assert found(plain, small) == found(added, large) == near
    results = found(plain, replace(small, workers=1)) - near
    assert results > 0
    assert found(added, small) - near == 2 * results
    assert favourite(added, large).far == far_of(added, large)


def test_rows_of_a_large_left_operand_are_fetched_ahead(always: None) -> None:
    """But not where they lie at unequal distances."""
    long, short = (matmul(rows, 1024, 128) for rows in (256, 128))
    schedule = favourite(long, ONE_A_CYCLE)
    assert schedule.is_far and not favourite(short, ONE_A_CYCLE).is_far
    ways = (scheduled(STRASSEN, long, ONE_A_CYCLE, replace(schedule, is_far=is_far)) for is_far in (True, False))
    far, near = map(fetches, ways)
    assert far - near == len(LEFT_STEPS)


@pytest.mark.parametrize("rows", [98, 99])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_residuals_that_are_fetched(run_kernel: Any, target: Target, always: None, rows: int, workers: int) -> None:
    small = replace(target, l2_bytes=256, multiply_bits=target.vector_bits)
    arrays = [numbers(1, (rows, 512)), numbers(2, (512, 192))]
    expected = arrays[0].astype(np.float64) @ arrays[1]
    options: dict[str, Any] = {"epilogue": "residual", "workers": workers, "tolerance": 5e-6}
    check(run_kernel, (STRASSEN,), small, "MatMul", arrays, expected, {}, **options)


def test_tiles_have_no_more_rows_than_a_set_has_places_where_all_lie_in_one() -> None:
    found = {depth: favourite(matmul(400, depth, 512), ONE_A_CYCLE).tile.rows for depth in (512, 544)}
    assert found[512] <= ONE_A_CYCLE.l1_bytes // 4096 < found[544]


def test_few_registers_take_longer_chunks_and_more_tiles_to_a_block() -> None:
    """On two threads, a block that both share is left to the plain kernel."""
    few = next(target for target in TARGETS if target.name == "avx2")
    assert few.registers == 16
    for rows, depth, tiles, chunk in ((197, 768, 10, 384), (197, 3072, 10, 512), (361, 512, 10, 256)):
        schedule = favourite(matmul(rows, depth, 768), few)
        assert (schedule.tile.rows, schedule.per_block, schedule.chunk) == (5, tiles, chunk)
    assert (
        str(refusal(STRASSEN, matmul(784, 256, 512), few)) == "the depth is short, or has no divisor of a good length"
    )
    shared = refusal(STRASSEN, matmul(128, 768, 768), few)
    assert str(shared) == "no tile saves more than it costs"
    assert refusal(STRASSEN, matmul(128, 768, 768), replace(few, workers=1)) is None


def test_convolutions_add_up_shorter_runs() -> None:
    few = next(target for target in TARGETS if target.name == "avx2")
    attributes = {"strides": [1, 1], "kernel_shape": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "group": 1}
    task = convolution("Conv", (1, 1024, 19, 19), (512, 1024, 1, 1), (1, 512, 19, 19), attributes)
    for other, chunk, longest in ((ONE_A_CYCLE, 128, 256), (few, 256, 512)):
        assert way(STRASSEN_CONV, task, other).schedule.chunk == chunk
        assert favourite(matmul(361, 1024, 512), other).chunk == longest


@pytest.mark.parametrize("batch", [1, 2])
def test_pixels_a_stride_apart_are_halved_where_they_lie(
    run_kernel: Any, target: Target, always: None, batch: int
) -> None:
    attributes = {"strides": [2, 2], "kernel_shape": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "group": 1}
    x, w, out = (batch, 128, 17, 25), (96, 128, 1, 1), (batch, 96, 9, 13)
    task = convolution("Conv", x, w, out, attributes, bias=True, epilogue="residual")
    assert refusal(STRASSEN_CONV, task, target) is None
    options: dict[str, Any] = {"bias": True, "epilogue": "residual", "workers": 2, "tolerance": 5e-6}
    check_convolution(run_kernel, (STRASSEN_CONV,), target, "Conv", x, w, attributes, correlate(attributes), **options)


def test_what_is_not_a_plain_product_of_floats_is_refused() -> None:
    task = matmul(128, 768, 3072)
    refused = [replace(task, exact=True), matmul(128, 768, 3072, constant=False)]
    arrays = [np.zeros((128, 768)), np.zeros((768, 3072))]
    refused.append(product("MatMul", arrays, (128, 3072), {}, orders=((0, 1), (0, 1)), constant=True, dtype=FLOAT64))
    reasons = {str(refusal(STRASSEN, one, ONE_A_CYCLE)) for one in refused}
    assert reasons == {"exact, not of float32, or of a right operand that changes"}
    arrays = [np.zeros((128, 768), np.float32), np.zeros((768, 3072), np.float32)]
    deep = product("MatMul", arrays, (128, 3072), {}, orders=((1, 0), (0, 1)), constant=True)
    assert str(refusal(STRASSEN, deep, ONE_A_CYCLE)) == "not one product of two plain matrices"


def test_additions_in_the_way_of_multiplications_are_not_worth_it() -> None:
    beside = refusal(STRASSEN, matmul(128, 768, 3072), replace(ONE_A_CYCLE, adds_apart=False))
    assert str(beside) == "additions take the units that multiply, as long as what they save"


@pytest.mark.parametrize("other", [*TARGETS, ONE_A_CYCLE], ids=[*(t.name for t in TARGETS), "one a cycle"])
def test_code_for_every_machine_multiplies_in_vectors(other: Target, always: None) -> None:
    task = matmul(128, 512, 384)
    found = ways(STRASSEN, task, other)
    assert found
    for one in found:
        text = compile_assembly(text_of(one, other.instructions, "kernel"), other)
        wanted = "vfmadd" if other.fma and other.triple.startswith("x86") else "fmla" if other.fma else "mulps"
        assert wanted in text


def test_many_workers_would_make_the_same_factors_each_for_itself() -> None:
    task = matmul(128, 768, 768)
    assert refusal(STRASSEN, task, replace(ONE_A_CYCLE, workers=1)) is None
    assert refusal(STRASSEN, task, replace(ONE_A_CYCLE, workers=2)) is None
    assert str(refusal(STRASSEN, task, replace(ONE_A_CYCLE, workers=32))) == "no tile saves more than it costs"
