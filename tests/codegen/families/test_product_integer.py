"""Products of integers: every sum exact, whatever the shapes, the zero points, the layout and the machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from tests.codegen.instructions.test_outer_products import machines
from tests.codegen.ways import refusal, ways
from tests.machines import compiled, runnable

from fusewise import api
from fusewise.codegen.assemble import generate
from fusewise.codegen.candidates import MATMUL_INTEGER
from fusewise.codegen.families.product.byte_tiles import byte_tile_product
from fusewise.codegen.families.product.integer import LEAST_ROWS
from fusewise.codegen.families.product.outer import outer_bytes
from fusewise.codegen.instructions.table import AMX_INT8, MMLA, for_bytes
from fusewise.codegen.kernel import Kernel
from fusewise.codegen.target import TARGETS, Target
from fusewise.fusion.plan import partition
from fusewise.ir.dtypes import INT8, INT16, INT32, UINT8
from fusewise.ir.types import TensorType
from fusewise.lower.layout import row_major
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.ops.expr import index, load
from fusewise.passes.write_out import write_out
from fusewise.runtime.jit import compile_assembly
from fusewise.trace import Trace

KERNELS = ("byte-product", "integer-product")


def model(
    feeds: dict[str, np.ndarray],
    constants: dict[str, np.ndarray],
    reads: list[str],
    perm: tuple[list[int] | None, list[int] | None] = (None, None),
) -> onnx.ModelProto:
    """MatMulInteger, whose first two operands are transposed where that is asked for."""
    known = {**feeds, **constants}
    turned = [helper.make_node("Transpose", [n], [f"{n}t"], perm=p) for n, p in zip(reads, perm, strict=False) if p]
    operands = [f"{n}t" if k < 2 and perm[k] else n for k, n in enumerate(reads)]
    graph = helper.make_graph(
        [*turned, helper.make_node("MatMulInteger", operands, ["y"])],
        "integers",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(np.ascontiguousarray(known[n]), n) for n in constants],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def defined(
    a: np.ndarray, b: np.ndarray, a_zero: np.ndarray | None = None, b_zero: np.ndarray | None = None
) -> np.ndarray:
    """The sums in 64 bits: zero points are one, or one for each row of `a` and column of `b`."""
    left, right = a.astype(np.int64), b.astype(np.int64)
    if a_zero is not None:
        left = left - (a_zero.reshape(-1, 1) if a_zero.ndim == 1 and a_zero.size > 1 else a_zero.astype(np.int64))
    if b_zero is not None:
        right = right - b_zero.astype(np.int64)
    return np.asarray(left @ right)


def answered(
    asked: onnx.ModelProto,
    feeds: dict[str, np.ndarray],
    target: Target,
    threads: int = 1,
    disabled: tuple[str, ...] = (),
) -> tuple[np.ndarray, set[str]]:
    """What the model gives after constants have lost their zero points, and the kernels that it runs by."""
    trace = Trace(disabled=frozenset(disabled))
    graph = write_out(api.load(asked), trace)
    (found,) = compiled(graph, target, threads, trace)[1].run(None, feeds)
    return found, {event.what for event in trace if event.kind == "kernel" and event.applied}


def numbers(draw: st.DrawFn, kind: type, shape: tuple[int, ...]) -> np.ndarray:
    """A few numbers, the ends of their type often among them."""
    info, rng = np.iinfo(kind), np.random.default_rng(draw(st.integers(0, 1 << 30)))
    low, high = draw(st.sampled_from(((info.min, info.max), (info.min, info.min), (info.max, info.max), (-5, 9))))
    some = np.clip([low, high, *rng.integers(low, high + 1, 3)], info.min, info.max)
    return rng.choice(some, shape).astype(kind)


_KIND = st.sampled_from((np.uint8, np.int8))
_SIZE = st.sampled_from((1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 50, 64, 70))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_sums_are_exact(target: Target, data: st.DataObject) -> None:
    """Stacks and their broadcasts, vectors, operands that lie otherwise, zero points of every form, constants and not."""
    draw = data.draw
    rows, depth, columns = draw(_SIZE), draw(_SIZE | st.sampled_from((128, 260))), draw(_SIZE)
    lead = draw(st.lists(st.sampled_from((1, 2, 3)), max_size=3))
    own = [[draw(st.sampled_from((n, n, 1))) for n in lead[draw(st.integers(0, len(lead))) :]] for _ in range(2)]
    a = numbers(draw, draw(_KIND), (*own[0], rows, depth))
    b = numbers(draw, draw(_KIND), (*own[1], depth, columns))
    vectors = draw(st.sampled_from(("",) * 6 + ("a", "b", "ab")))
    a, b = (a[(0,) * (a.ndim - 1)] if "a" in vectors else a), (b[(0,) * (b.ndim - 2)][:, 0] if "b" in vectors else b)
    perm: list[list[int] | None] = [None, None]
    given_arrays = {"a": a, "b": b}
    for k, (name, array) in enumerate((("a", a), ("b", b))):
        if array.ndim > 1 and draw(st.booleans()):
            perm[k] = [*range(array.ndim - 2), array.ndim - 1, array.ndim - 2]
            given_arrays[name] = array.swapaxes(-1, -2)
    a_forms: list[tuple[int, ...]] = [(), (1,)]
    b_forms: list[tuple[int, ...]] = [(), (1,)]
    if not vectors:
        a_forms += [(rows,), (*a.shape[:-1], 1)]
        b_forms += [(columns,), (*b.shape[:-2], 1, columns)]
    a_zero = numbers(draw, a.dtype.type, draw(st.sampled_from(a_forms))) if draw(st.booleans()) else None
    b_zero = numbers(draw, b.dtype.type, draw(st.sampled_from(b_forms))) if draw(st.booleans()) else None
    zeros = {name: zero for name, zero in (("az", a_zero), ("bz", b_zero)) if zero is not None}
    every = {name: np.ascontiguousarray(array) for name, array in {**given_arrays, **zeros}.items()}
    constant = {name for name in every if name != "a" and draw(st.booleans())}
    feeds = {name: array for name, array in every.items() if name not in constant}
    constants = {name: every[name] for name in every if name in constant}
    reads = ["a", "b", "az" if "az" in every else "", "bz" if "bz" in every else ""]
    while not reads[-1]:
        reads.pop()
    disabled = draw(st.sampled_from(((), ("byte-product",))))
    asked = model(feeds, constants, reads, (perm[0], perm[1]))
    found, kernels = answered(asked, feeds, target, draw(st.integers(1, 3)), disabled)
    expected = defined(a, b, a_zero, b_zero)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, expected)
    around_zero = b_zero is None or ("bz" in constant and "b" not in vectors)
    packed = "b" in constant and perm[1] is None and around_zero
    assert kernels & {*KERNELS} or not (packed or (rows >= LEAST_ROWS and "a" not in vectors))


def test_few_rows_are_no_reason_to_copy_a_matrix(target: Target) -> None:
    b = np.ones((64, 48), np.int8)
    for rows in (LEAST_ROWS - 1, LEAST_ROWS):
        feeds = {"a": np.full((rows, 64), 3, np.uint8), "b": b}
        found, kernels = answered(model(feeds, {}, ["a", "b"]), feeds, target)
        np.testing.assert_array_equal(found, defined(feeds["a"], b))
        assert kernels == {"any-nest" if rows < LEAST_ROWS else "integer-product"}


TILES = replace(byte_tile_product("tiles", AMX_INT8), declines=lambda m, task, target: None)
"""By the unit of another machine, which is emulated, whatever it costs."""


OUTER = outer_bytes("outer", MMLA)
"""By instructions of AArch64, likewise."""


HERE, *OTHERS = runnable()

SCHEDULED = [
    *((target, kernel) for target in (HERE, *OTHERS) for kernel in MATMUL_INTEGER[2:]),
    *((target, TILES) for target in (HERE, *OTHERS[-1:])),
    (HERE, OUTER),
]
"""Of what is emulated the code is nearly the same for every machine, and the last is of one machine whatever the target."""


@pytest.mark.parametrize(
    ("target", "kernel"), SCHEDULED, indirect=["target"], ids=[f"{one.name}-{kernel.name}" for one, kernel in SCHEDULED]
)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_schedules(run_kernel: Any, target: Target, kernel: Kernel[Any, Any], data: st.DataObject) -> None:
    """Added to numbers that lie where the sums may be put, by several workers and piece by piece."""
    draw = data.draw
    rows, depth, columns = draw(st.integers(LEAST_ROWS, 40)), draw(st.integers(1, 20)), draw(st.integers(4, 50))
    if kernel is TILES:
        rows, depth = rows + AMX_INT8[0].rows, depth * draw(st.sampled_from((1, 16)))
    lead = draw(st.sampled_from(((), (2,), (3, 2))))
    stacks = kernel.name != "byte-product" and draw(st.booleans())
    a = numbers(draw, draw(_KIND), (*lead, rows, depth))
    signs = _KIND if kernel is TILES or (kernel is OUTER and a.dtype == np.uint8) else st.just(np.int8)
    b = numbers(draw, draw(signs), (*(lead if stacks else ()), depth, columns))
    a_zero = numbers(draw, a.dtype.type, ())
    constant = kernel is OUTER or kernel.name == "byte-product" or draw(st.booleans())
    arrays = {"a": a, "b": b, "az": a_zero}
    around = np.zeros((), np.int64)
    if kernel is TILES and draw(st.booleans()):  # a zero point that is taken from constants before, or not
        constant, zero = draw(st.booleans()), numbers(draw, b.dtype.type, draw(st.sampled_from(((), (columns,)))))
        around = zero.astype(np.int64)
        arrays |= {"b": b.astype(np.int16) - zero.astype(np.int16)} if constant else {"bz": zero}
    added = np.random.default_rng(0).integers(-99, 99, (*lead, rows, columns)).astype(np.int32)
    task = added_product(arrays, added.shape, constant)
    if refusal(kernel, task, target) is not None:
        assert kernel.name == "byte-product" and for_bytes(target) is None
        return
    machine = machines()[-1] if kernel is OUTER else target
    for one in ways(kernel, task, machine, 3):
        buffers = {**arrays, "r": added.copy(), "y": np.full(added.shape, -1, np.int32)}
        for argument in one.arguments:
            if argument.packing is not None:
                buffers[argument.name] = argument.packing.pack(buffers[argument.name])
        workers = draw(st.integers(1, 3))
        run_kernel(kernel, task, buffers, workers=workers, schedule=one.schedule, machine=machine)
        np.testing.assert_array_equal(buffers["y"], defined(a, b, a_zero, around) + added)


def added_product(arrays: dict[str, np.ndarray], out: tuple[int, ...], constant: bool) -> Task:
    """The sums of `a`, less a zero point, times `b`, and what is added to them."""
    dtypes = {dtype.numpy: dtype for dtype in (UINT8, INT8, INT16)}
    kinds = {name: TensorType(dtypes[x.dtype], x.shape) for name, x in arrays.items()}
    operands = [
        Operand(name, kind.dtype, kind.dims, row_major(kind.dims), constant=constant and name == "b")
        for name, kind in kinds.items()
    ]
    at = tuple(index(f"i{k}") for k in range(len(out)))
    prologue = tuple(load(n, k.dtype, tuple(index(f"p{d}") for d in range(k.rank))) for n, k in kinds.items())
    anchor = Anchor("MatMulInteger", "matmul_integer", (), tuple(kinds.values()), prologue, TensorType(INT32, out))
    results = [Operand(name, INT32, out, row_major(out)) for name in ("r", "y")]
    value = load(ACC, INT32, at) + load("r", INT32, at)
    return Task(out, (*operands, *results), (Store("y", at, value),), anchor)


@pytest.mark.parametrize("value", [-128, -127, 127, None], ids=str)
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_matrices_whose_products_do_not_fit_16_bits(target: Target, value: int | None, kind: type) -> None:
    """All of one number, or alternating between the ends, with left operands at theirs."""
    b = np.full((64, 24), -128 if value is None else value, np.int8)
    if value is None:
        b[1::3], b[:, 1::2] = 127, ~b[:, 1::2]
    info = np.iinfo(kind)
    a = np.full((9, 64), info.max, kind)
    a[2:4], a[:, 7:11] = info.min, info.min
    zero = np.array(info.max - 3, kind)
    found, kernels = answered(model({"a": a}, {"b": b, "z": zero}, ["a", "b", "z"]), {"a": a}, target)
    np.testing.assert_array_equal(found, defined(a, b, zero))
    assert ("byte-product" in kernels) == (for_bytes(target) is not None)


@pytest.mark.parametrize("zero", [0, 1, 127, 128, 254, 255])
def test_matrices_around_any_number(target: Target, zero: int) -> None:
    """Differences of up to nine bits, of every size."""
    rng = np.random.default_rng(1)
    a, b = (rng.choice([0, 255, *rng.integers(0, 256, 9)], s).astype(np.uint8) for s in ((5, 72), (72, 40)))
    points = {"az": np.array(255 - zero, np.uint8), "bz": np.full(40, zero, np.uint8)}
    points["bz"][::3] = 128
    found, _ = answered(model({"a": a}, {"b": b, **points}, ["a", "b", "az", "bz"]), {"a": a}, target)
    np.testing.assert_array_equal(found, defined(a, b, points["az"], points["bz"]))


@pytest.mark.parametrize("shapes", [((0, 5), (5, 4)), ((3, 0), (0, 4)), ((3, 5), (5, 0)), ((2, 0, 5), (5, 4))], ids=str)
def test_nothing_to_multiply(target: Target, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (np.ones(shape, np.uint8) for shape in shapes)
    for feeds, constants in (({"a": a, "b": b}, {}), ({"a": a}, {"b": b})):
        found, _ = answered(model(feeds, constants, ["a", "b"]), feeds, target)
        np.testing.assert_array_equal(found, defined(a, b))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("disabled", [(), ("byte-product",)], ids=["", "without bytes"])
@pytest.mark.parametrize("constant", [True, False], ids=["", "at run time"])
def test_the_instruction(target: Target, disabled: tuple[str, ...], constant: bool) -> None:
    a, b = np.ones((48, 64), np.uint8), np.ones((64, 96), np.int8)
    feeds, constants = ({"a": a}, {"b": b}) if constant else ({"a": a, "b": b}, {})
    graph = api.load(model(feeds, constants, ["a", "b"]))
    program = generate(partition(graph, Trace()), target, Trace(disabled=frozenset(disabled)))
    whole = target.vector_bits >= 256 and not disabled and constant
    assert program.kernels[0].key.startswith("byte-product" if whole else "integer-product")
    code = compile_assembly(program.kernels[0].build(), target)
    assert ("pmaddwd" in code) == target.triple.startswith("x86") and ("pmaddubsw" in code) == whole
    if target.triple.startswith("aarch64"):
        assert "mla" in code or "mlal" in code


def test_the_instruction_that_sums_in_one() -> None:
    target = replace(next(target for target in TARGETS if target.name == "avx2"), features="+avxvnni")
    graph = api.load(model({"a": np.ones((48, 64), np.uint8)}, {"b": np.ones((64, 96), np.int8)}, ["a", "b"]))
    program = generate(partition(graph, Trace()), target, Trace())
    code = compile_assembly(program.kernels[0].build(), target)
    assert "vpdpbusd" in code and "pmadd" not in code
