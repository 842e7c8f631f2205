"""AArch64's outer products: what stands for them gives their results bit for bit, and they are what that machine gets."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codegen.families import test_convolution, test_product
from tests.codegen.ways import machine_code, text_of, ways

from fusewise.codegen.assemble import generate
from fusewise.codegen.families.convolution.direct import direct_by
from fusewise.codegen.families.product.matrix import product_by
from fusewise.codegen.families.product.outer import outer_floats
from fusewise.codegen.instructions.table import BFMMLA, MMLA
from fusewise.codegen.legalize import legalized
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.build import Module
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.nest.tree import vector
from fusewise.codegen.nest.types import memory_type
from fusewise.codegen.nest.verify import verify
from fusewise.codegen.target import TARGETS, Target
from fusewise.fusion.plan import partition
from fusewise.ir.dtypes import BFLOAT16, INT8, UINT8, DType
from fusewise.ops.build import GraphBuilder
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import compile_assembly
from fusewise.trace import Trace

NEON = next(target for target in TARGETS if target.name == "neon")
CAPABLE = replace(NEON, features="+bf16,+i8mm")


# --- the definition ---------------------------------------------------------------------------------------------------


def rounded(exact: Fraction) -> float:
    """To 24 bits, to odd."""
    sign, size = (-1.0, -exact) if exact < 0 else (1.0, exact)
    if size < Fraction(1, 1 << 126):
        return sign * 0.0 if exact else 0.0
    if size >= 1 << 128:
        return sign * np.inf
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    step = Fraction(2) ** (exponent - 23)
    whole = size // step
    return sign * float((whole | (whole * step != size)) * step)


def combined(
    op: Callable[[float, float], float], exact: Callable[[Fraction, Fraction], Fraction]
) -> Callable[..., float]:
    def run(a: float, b: float) -> float:
        plain = op(a, b)
        if not np.isfinite([a, b]).all() or a == 0 or b == 0:
            return plain
        return rounded(exact(Fraction(a), Fraction(b)))

    return run


add = combined(lambda a, b: float(np.float64(a) + np.float64(b)), lambda a, b: a + b)
multiply = combined(lambda a, b: float(np.float64(a) * np.float64(b)), lambda a, b: a * b)


def normal(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float32)
    return np.where(np.abs(x) < 2.0**-126, np.copysign(np.float32(0), x), x)


@np.errstate(all="ignore")
def by_definition(row: Instruction, left: np.ndarray, right: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """`sums` [2, 2] with the products of `left` and `right`, [2, terms], added."""
    if row.is_exact:
        return (sums + left.astype(np.int64) @ right.astype(np.int64).T).astype(np.int32)
    found, a, b = normal(sums), normal(left), normal(right)
    for m, n in np.ndindex(2, 2):
        total = float(found[m, n])
        for k in (0, 2):
            products = (multiply(float(a[m, k + t]), float(b[n, k + t])) for t in range(2))
            total = add(total, add(*products))
        found[m, n] = total
    return found


# --- what is emitted --------------------------------------------------------------------------------------------------


def program(row: Instruction, target: Target) -> Module:
    """The instruction once, on what three pointers lead to."""
    module = Module()
    f = module.function("f", ("ptr", "ptr", "ptr"))
    kind = vector(memory_type(row.lane), 2)
    a, b = (f.load(kind, pointer) for pointer in f.arguments[:2])
    total = f.load(vector(row.element, 4), f.arguments[2])
    f.store(row.add(f, target, a, b, total), f.arguments[2])
    f.give_back()
    verify(module)
    return module


@cache
def compiled(row: Instruction, target: Target) -> Callable[..., None]:
    return machine_code(program(row, target), target)


def by_code(row: Instruction, target: Target, left: np.ndarray, right: np.ndarray, sums: np.ndarray) -> np.ndarray:
    found = sums.copy()
    compiled(row, target)(left.ctypes.data, right.ctypes.data, found.ctypes.data)
    return found


def machines() -> list[Target]:
    """The host, and with the instructions where it has them."""
    host = host_target()
    if platform.machine() not in ("aarch64", "arm64") or not hasattr(ctypes.CDLL(None), "getauxval"):
        return [host]
    found = ctypes.CDLL(None).getauxval(26)  # AT_HWCAP2, where bit 13 is I8MM and bit 14 is BF16
    return [host, replace(host, features=f"{host.features},+bf16,+i8mm")] if found >> 13 & 3 == 3 else [host]


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    none = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), none)
    np.testing.assert_array_equal(np.where(none, 0, found).view(np.int32), np.where(none, 0, expected).view(np.int32))


def numbers(rng: np.random.Generator, spread: int, ends: bool) -> Iterator[np.ndarray]:
    """Rows, columns and sums, of so many powers of two."""
    operands = ((2, 4), BFLOAT16.numpy, spread)
    for shape, kind, power in (operands, operands, ((2, 2), np.float32, 2 * spread)):
        found = rng.standard_normal(shape) * 2.0 ** rng.integers(-power, power + 1, shape)
        info = [0.0, -0.0, 2.0**-126, 2.0**-127, -(2.0**-130), np.inf, -np.inf, np.nan, 3.38e38, -3.38e38, 1.0, -1.0]
        yield np.where((rng.random(shape) < 0.2) & ends, rng.choice(info, shape), found).astype(np.float32).astype(kind)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from((0, 2, 8, 30, 62, 64)), st.booleans())
def test_bfloats_are_added_as_the_manual_says(seed: int, spread: int, ends: bool) -> None:
    with np.errstate(all="ignore"):
        left, right, sums = numbers(np.random.default_rng(seed), spread, ends)
    for machine in machines():
        assert_same(by_code(BFMMLA, machine, left, right, sums), by_definition(BFMMLA, left, right, sums))


LARGEST = float(np.finfo(np.float32).max)


@pytest.mark.parametrize(
    "total, product, expected",
    [
        (1.0, 2.0**-40, 1 + 2.0**-23),
        (1.0, -(2.0**-40), 1 - 2.0**-24),
        (1.0, 2.0**-100, 1 + 2.0**-23),
        (1.0, -(2.0**-100), 1 - 2.0**-24),
        (-1.0, 2.0**-100, -1 + 2.0**-24),
        (1 + 2.0**-23, 2.0**-100, 1 + 2.0**-23),
        (1 + 2.0**-22, -(2.0**-100), 1 + 2.0**-23),
        (LARGEST, 2.0**50, LARGEST),
        (LARGEST, 2.0**103, LARGEST),
        (LARGEST, 2.0**104, np.inf),
        (-LARGEST, -(2.0**104), -np.inf),
        (2.0**-126, -(2.0**-126), 0.0),
        (1.5 * 2.0**-126, -(2.0**-126), 0.0),
    ],
)
def test_sums_are_rounded_to_odd(total: float, product: float, expected: float) -> None:
    left, right = np.zeros((2, 4), BFLOAT16.numpy), np.zeros((2, 4), BFLOAT16.numpy)
    size = 2.0 ** (np.frexp(product)[1] // 2)
    left[:, 1], right[:, 1] = size, product / size
    sums = np.full((2, 2), total, np.float32)
    assert_same(by_definition(BFMMLA, left, right, sums), np.full((2, 2), expected, np.float32))
    for machine in machines():
        assert_same(by_code(BFMMLA, machine, left, right, sums), np.full((2, 2), expected, np.float32))


def test_every_machine_gives_the_same(target: Target) -> None:
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        cases = [tuple(numbers(rng, 20, True)) for _ in range(50)]
    for left, right, sums in cases:
        assert_same(by_code(BFMMLA, target, left, right, sums), by_definition(BFMMLA, left, right, sums))


@pytest.mark.parametrize("row", MMLA, ids=repr)
def test_bytes_are_added_up_and_wrap(row: Instruction) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        left, right = (rng.integers(0, 256, (2, 8)).astype(np.uint8).view(kind.numpy) for kind in (row.left, row.right))
        sums = rng.choice(np.array([-(1 << 31), (1 << 31) - 1, 5]), (2, 2)).astype(np.int32)
        for machine in machines():
            found = by_code(row, machine, left, right, sums)
            np.testing.assert_array_equal(found, by_definition(row, left, right, sums))


@pytest.mark.parametrize("row", [BFMMLA, *MMLA], ids=repr)
def test_the_machine_gets_its_instruction(row: Instruction) -> None:
    assert [row.is_native(machine) for machine in (*TARGETS, CAPABLE)] == [False] * len(TARGETS) + [True]
    lines = compile_assembly(llvm_text(program(row, CAPABLE), CAPABLE), CAPABLE).splitlines()
    assert [line.split()[0] for line in lines if "mmla" in line] == [row.name]
    assert "mmla" not in compile_assembly(llvm_text(program(row, NEON), NEON), NEON)


@pytest.mark.parametrize("rows, depth, columns", [(2, 4, 1), (7, 36, 19), (5, 7, 3)])
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "changing"])
def test_products_by_it(run_kernel: Any, rows: int, depth: int, columns: int, constant: bool) -> None:
    arrays = [test_product.numbers(k, shape, BFLOAT16) for k, shape in enumerate(((rows, depth), (depth, columns)))]
    expected = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)
    given: dict[str, Any] = {"dtype": BFLOAT16, "tolerance": 1.6e-2, "constant": constant}
    kernel = replace(outer_floats("outer-product", BFMMLA), declines=lambda m, task, target: None)
    for machine in machines():
        test_product.check(run_kernel, (kernel,), machine, "MatMul", arrays, expected, {}, **given)


@pytest.mark.parametrize("groups, inputs, outputs, stride", [(1, 8, 5, 1), (2, 8, 16, 2), (1, 3, 4, 1)])
def test_convolutions_by_it(run_kernel: Any, groups: int, inputs: int, outputs: int, stride: int) -> None:
    attributes = {"strides": (stride,) * 2, "dilations": (1, 1), "pads": (1, 0, 2, 1), "group": groups}
    kernel, reference = direct_by("outer-convolution", BFMMLA), test_convolution.correlate(attributes)
    shapes = (2, groups * inputs, 5, 9), (groups * outputs, inputs, 3, 2)
    given: dict[str, Any] = {"dtype": BFLOAT16, "tolerance": 1.6e-2}
    for machine in machines():
        if groups * inputs % 4 == 0 or machine != host_target():
            test_convolution.check(run_kernel, (kernel,), machine, "Conv", *shapes, attributes, reference, **given)


@pytest.mark.parametrize(
    "op, left, right, kernel, words",
    [
        ("MatMul", BFLOAT16, BFLOAT16, "bfloat16-outer-product", "bfmmla"),
        ("MatMulInteger", INT8, INT8, "byte-outer-product", "smmla"),
        ("MatMulInteger", UINT8, INT8, "byte-outer-product", "usmmla"),
        ("Conv", BFLOAT16, BFLOAT16, "bfloat16-outer-convolution", "bfmmla"),
    ],
)
def test_kernels_of_a_machine_that_has_them(op: str, left: DType, right: DType, kernel: str, words: str) -> None:
    b, trace = GraphBuilder("outer"), Trace()
    weights = np.ones((32, 32, 3, 3) if op == "Conv" else (64, 48))
    x = b.input("x", (1, 32, 10, 10) if op == "Conv" else (20, 64), left)
    graph = b.finish(b.op(op, x, b.constant(weights.astype(right.numpy))))
    program = generate(partition(legalized(graph, CAPABLE, trace), trace), CAPABLE, trace)
    assert kernel in {event.what for event in trace if event.kind == "kernel" and event.applied}
    text = "".join(compile_assembly(one.build(), CAPABLE) for one in program.kernels)
    assert f"\t{words}\t" in text and "Spill" not in text


def test_a_product_is_made_of_it() -> None:
    """Each instruction for two rows, two columns and four steps; sums stay in registers."""
    arrays = [test_product.numbers(k, shape, BFLOAT16) for k, shape in enumerate(((8, 32), (32, 16)))]
    task = test_product.product("MatMul", arrays, (8, 16), {}, orders=((0, 1),) * 2, constant=True, dtype=BFLOAT16)
    (way, *_) = ways(product_by("outer-product", BFMMLA), task, CAPABLE, 1)
    text = compile_assembly(text_of(way, CAPABLE, "kernel"), CAPABLE)
    tile = way.schedule.product.tile
    assert text.count("bfmmla") % (tile.rows // 2 * tile.vectors) == 0 and text.count("bfmmla") > 0
    assert "Spill" not in text
