"""Products of tiles: what stands for an instruction of a matrix unit gives its results bit for bit, as its maker defines them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codegen.nest.tiles import OnTiles
from tests.codegen.ways import machine_code

from fusewise.codegen.instructions.table import AMX_BF16, AMX_FP16, AMX_INT8, MATRIX_INSTRUCTIONS
from fusewise.codegen.nest.build import Module
from fusewise.codegen.nest.instruction import Instruction, TileIn
from fusewise.codegen.nest.interpret import interpret
from fusewise.codegen.nest.verify import verify
from fusewise.codegen.target import Target
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from fusewise.runtime.host import host_target

SMALLEST, LARGEST = Fraction(1, 1 << 126), Fraction((1 << 24) - 1) * (1 << 104)


# --- the definition ---------------------------------------------------------------------------------------------------


def rounded(exact: Fraction) -> float:
    """To 24 bits, to nearest even, of any exponent; then what is below the smallest normal number is a zero, what is beyond the
    largest infinite."""
    sign, size = (-1.0, -exact) if exact < 0 else (1.0, exact)
    if size == 0:
        return 0.0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    step = Fraction(2) ** (exponent - 23)
    near = Fraction(round(size / step)) * step  # Python rounds halves to even
    if near < SMALLEST:
        return sign * 0.0
    return sign * (float(near) if near <= LARGEST else np.inf)


def added(a: float, b: float) -> float:
    """a + b of float32, none of them subnormal."""
    if not (np.isfinite(a) and np.isfinite(b)) or (a == 0 and b == 0):
        return a + b
    exact = Fraction(a) + Fraction(b)
    return rounded(exact)


def multiplied(a: float, b: float, c: float) -> float:
    """a * b + c, rounded once."""
    if not np.isfinite([a, b, c]).all() or ((a == 0 or b == 0) and c == 0):
        return float(np.float64(a) * np.float64(b) + np.float64(c))
    return rounded(Fraction(a) * Fraction(b) + Fraction(c))


def normal(x: np.ndarray) -> np.ndarray:
    """Without the subnormal numbers of float32."""
    return np.where(np.abs(x) < 2.0**-126, np.copysign(np.float32(0), x), x)


@np.errstate(all="ignore")
def by_definition(row: Instruction, sums: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """`sums` [rows, 16] with the products of `left` [rows, 16, terms] and `right` [16, 16, terms] added."""
    if row.is_exact:
        total = np.einsum("mkt,knt->mn", left.astype(np.int64), right.astype(np.int64))
        return (total + sums).astype(np.int32)
    a, b, c = (x.astype(np.float32) for x in (left, right, sums))
    if row.left == BFLOAT16:
        a, b = normal(a), normal(b)
    c = normal(c)
    found = np.empty(sums.shape, np.float32)
    for m, n in np.ndindex(*sums.shape):
        halves = [0.0, 0.0]
        for k in range(16):
            for t in range(2):
                halves[t] = multiplied(float(a[m, k, t]), float(b[k, n, t]), halves[t])
        found[m, n] = added(float(c[m, n]), added(*halves))
    return found


# --- what is emitted --------------------------------------------------------------------------------------------------


def program(row: Instruction, target: Target) -> Module:
    """One instruction on tiles whose rows lie 68 bytes apart."""
    module = Module()
    f = module.function("f", ("ptr", "ptr", "ptr"))
    assert row.matrix is not None
    row.matrix.emulate(f, target, *(TileIn(pointer, 68) for pointer in f.arguments))
    f.give_back()
    verify(module)
    return module


@cache
def compiled(row: Instruction, target: Target) -> Callable[..., None]:
    return machine_code(program(row, target), target)


def spread(tile: np.ndarray) -> np.ndarray:
    """Rows of 64 bytes, 68 bytes apart."""
    found = np.full((16, 68), 99, np.uint8)
    found[:, :64] = np.ascontiguousarray(tile).view(np.uint8).reshape(16, 64)
    return found


def by_code(row: Instruction, target: Target, sums: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    tiles = [spread(tile) for tile in (sums, left, right)]
    compiled(row, target)(*(tile.ctypes.data for tile in tiles))
    assert (tiles[0][:, 64:] == 99).all()
    return np.ascontiguousarray(tiles[0][:, :64]).view(sums.dtype)


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    """The same bits, whichever NaN."""
    none = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), none)
    np.testing.assert_array_equal(np.where(none, 0, found).view(np.int32), np.where(none, 0, expected).view(np.int32))


def special(dtype: DType) -> np.ndarray:
    """Numbers at the ends of a type."""
    info = np.finfo(dtype.numpy) if dtype in (FLOAT16, FLOAT32) else None
    bits = f"u{dtype.itemsize}"
    fraction = {"bfloat16": 7, "float16": 10, "float32": 23}[dtype.name]
    infinite = ((1 << dtype.bits - 1 - fraction) - 1) << fraction
    found = [0, 1, (1 << fraction) - 1, 1 << fraction, (1 << fraction) + 1, infinite - 1, infinite, infinite + 1]
    assert info is None or np.array(infinite - 1, bits).view(dtype.numpy) == info.max
    return np.array([*found, *(one | 1 << dtype.bits - 1 for one in found)], bits).view(dtype.numpy)


def floats(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], spread: int, share: float) -> np.ndarray:
    """Numbers of so many powers of two, of which float16 has fewer, some of them special."""
    spread = spread % 13 if dtype == FLOAT16 else spread
    found = rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread + 1, shape)
    ends = rng.choice(special(dtype), shape)
    with np.errstate(all="ignore"):
        return np.where(rng.random(shape) < share, ends, found.astype(np.float32).astype(dtype.numpy))


@pytest.mark.parametrize("row", [AMX_BF16, AMX_FP16], ids=repr)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1 << 30), spread=st.sampled_from((0, 3, 30, 63, 70)), share=st.sampled_from((0, 0.003, 0.1)))
def test_floats_are_added_as_the_manual_says(row: Instruction, seed: int, spread: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    left, right = (floats(rng, dtype, (16, 16, 2), spread, share) for dtype in (row.left, row.right))
    sums = floats(rng, FLOAT32, (16, 16), 2 * spread, share)
    some = slice(seed % 5, None, 5)  # the definition is slow
    expected = by_definition(row, sums[some], left[some], right)
    assert_same(by_code(row, host_target(), sums, left, right)[some], expected)


@pytest.mark.parametrize("row", [AMX_BF16, AMX_FP16], ids=repr)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1 << 30), exponent=st.integers(-66, -60))
def test_floats_that_cancel_or_vanish(row: Instruction, seed: int, exponent: int) -> None:
    """Products that take each other away, about the smallest normal number, and sums that do so with them."""
    rng = np.random.default_rng(seed)
    scale = 2.0 ** (exponent if row.left == BFLOAT16 else -12)
    left, right = ((rng.standard_normal((16, 16, 2)) * scale).astype(dtype.numpy) for dtype in (row.left, row.right))
    left[:, 8:] = -left[:, :8]
    right[8:] = right[:8]
    left[:, 8:] *= rng.choice(np.array([1, 1.0078125]), (16, 8, 2)).astype(row.left.numpy)
    sums = (rng.choice([-1.0, 1.0, 1.5], (16, 16)) * 2.0**-126).astype(np.float32)
    some = slice(seed % 5, None, 5)  # the definition is slow
    expected = by_definition(row, sums[some], left[some], right)
    assert_same(by_code(row, host_target(), sums, left, right)[some], expected)


def test_tininess_is_seen_after_rounding_to_any_exponent() -> None:
    """2^-126 - 2^-150 is 24 bits of a smaller exponent, and so becomes zero; half a step nearer it is 2^-126."""
    for less, expected in ((2.0**-150, 0.0), (2.0**-151, 2.0**-126), (2.0**-152, 2.0**-126)):
        left, right = (np.zeros((16, 16, 2), BFLOAT16.numpy) for _ in range(2))
        left[0, :2, 0], right[:2, 0, 0] = (1.0, 2.0**-64), (2.0**-126, -less * 2.0**64)
        sums = np.zeros((16, 16), np.float32)
        found = by_code(AMX_BF16, host_target(), sums, left, right)
        assert found[0, 0] == expected == by_definition(AMX_BF16, sums, left, right)[0, 0]


def test_even_and_odd_terms_are_added_apart() -> None:
    """Large numbers that would swallow a small one between them, if all were added one after the other."""
    left, right = (np.zeros((16, 16, 2), BFLOAT16.numpy) for _ in range(2))
    left[...] = 1
    right[0, :, 0], right[1, :, 1], right[2, :, 0] = 2.0**30, 1.0, -(2.0**30)
    assert (by_code(AMX_BF16, host_target(), np.zeros((16, 16), np.float32), left, right) == 1).all()


@pytest.mark.parametrize("row", AMX_INT8, ids=repr)
def test_bytes_are_added_up_and_wrap(row: Instruction) -> None:
    rng = np.random.default_rng(0)
    for ends in (False, True):
        left, right = (
            rng.choice([-128, 127] if ends else np.arange(-128, 128), (16, 16, 4)).astype(np.int8).view(dtype.numpy)
            for dtype in (row.left, row.right)
        )
        sums = rng.choice(np.array([-(1 << 31), (1 << 31) - 1, 0]), (16, 16)).astype(np.int32)
        expected = by_definition(row, sums, left, right)
        np.testing.assert_array_equal(by_code(row, host_target(), sums, left, right), expected)
        assert (expected != sums.astype(np.int64) + np.einsum("mkt,knt->mn", *map(np.int64, (left, right)))).any()


def tiles_of(row: Instruction) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums and operands, some of them special."""
    rng = np.random.default_rng(1)
    if row.is_exact:
        left, right = (rng.integers(0, 256, (16, 64)).astype(np.uint8) for _ in range(2))
        return rng.integers(-99, 99, (16, 16)).astype(np.int32), left, right
    left, right = (floats(rng, row.left, (16, 16, 2), 30, 0.05) for _ in range(2))
    return floats(rng, FLOAT32, (16, 16), 60, 0.05), left, right


@pytest.mark.parametrize("row", [AMX_BF16, AMX_FP16, AMX_INT8[1]], ids=repr)
def test_every_machine_gives_the_same(target: Target, row: Instruction) -> None:
    tiles = tiles_of(row)
    assert_same(by_code(row, target, *tiles), by_code(row, host_target(), *tiles))


@pytest.mark.parametrize("row", [AMX_BF16, AMX_FP16, *AMX_INT8], ids=repr)
def test_the_interpreter_gives_the_same(row: Instruction) -> None:
    tiles = [spread(tile) for tile in tiles_of(row)]
    interpret(program(row, host_target()), "f", tiles)
    expected = by_code(row, host_target(), *tiles_of(row))
    assert_same(np.ascontiguousarray(tiles[0][:, :64]).view(expected.dtype), expected)


@pytest.mark.parametrize("row", [AMX_BF16, AMX_FP16, *AMX_INT8], ids=repr)
@pytest.mark.parametrize("share", [0.0, 0.05])
def test_the_unit_itself_or_what_stands_for_it(row: Instruction, share: float) -> None:
    """A reduction of one step, which a machine that has the unit does by it."""
    case, rng = OnTiles(row, 1, 1, 1, 1, 0), np.random.default_rng(3)
    sums, left, right = case.operands(3)
    if not row.is_exact:
        left, right = (floats(rng, row.left, x.shape, 30, share) for x in (left, right))
        sums = floats(rng, FLOAT32, sums.shape, 60, share)
    expected = by_definition(row, sums, left[:, :16], right[:, :16])
    machine_code(case.program(), host_target())(*(x.ctypes.data for x in (sums, left, right)))
    assert_same(sums, expected)


def test_rows_fill_tiles() -> None:
    assert len({row.name for row in MATRIX_INSTRUCTIONS}) == len(MATRIX_INSTRUCTIONS)
    for row in MATRIX_INSTRUCTIONS:
        assert row.matrix is not None
        assert row.lane.bits == row.terms * (row.matrix.part or row.left).bits == 32
        assert (row.rows, row.lanes, row.matrix.steps) == (16, 16, 16) and row.sum.bits == 32
