"""Every word of the expression language in Triton's interpreter, against NumPy's reading."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.codegen.gpu.interpreting import check, launch
from tests.runtime.gpu.kernels import needs_triton

from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.nests import nest
from fusewise.ir.dtypes import BOOL, DTYPES, FLOAT32, INT64, DType, dtype_named
from fusewise.lower.task import Operand, Store, Task
from fusewise.ops.expr import BINARY, COMPARE, UNARY, Expr, binary, bits, cast, compare, const, index, load, unary

pytestmark = needs_triton

DEVICE = device_named("sm_90")
FLOATS = [dtype for dtype in DTYPES if dtype.is_float and dtype.bits >= 16]
INTEGERS = [dtype for dtype in DTYPES if dtype.is_integer]
ALL = [*FLOATS, *INTEGERS, BOOL]
OF_INTEGERS = frozenset("neg abs floor ceil round sign not bitnot isnan isinf".split())
OF_BITS = frozenset("bitand bitor bitxor shl shr".split())
OF_LOGIC = frozenset("and or xor".split())

by_name = pytest.mark.parametrize("dtype", ALL, ids=[dtype.name for dtype in ALL])


def numbers(dtype: DType, seed: int = 0) -> np.ndarray:
    """35 numbers with those that are easily got wrong."""
    rng = np.random.default_rng(seed)
    if dtype == BOOL:
        return rng.integers(0, 2, 35).astype(bool)
    if dtype.is_float:
        special = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 40.0, -40.0]
        return rng.permutation([*special, *rng.normal(scale=3, size=21)]).astype(dtype.numpy)
    bits = dtype.bits
    low, high = (0, 2**bits - 1) if dtype.kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    special = [low, high, 0, 1, max(low, -1), low // 2, high // 2 + 1, min(7, high), max(low, -7)]
    drawn = [int(x) for x in rng.integers(max(low, -100), min(high, 100) + 1, 35 - len(special))]
    return np.array(rng.permutation(np.array([*special, *drawn], object)).tolist(), object).astype(dtype.numpy)


def x(k: int, dtype: DType) -> Expr:
    return load(f"in{k}", dtype, (index("i0"), index("i1")))


def storing(dtypes: list[DType], values: dict[str, Expr]) -> Task:
    """A task that stores each value by itself, over 5 by 7 elements."""
    operands = [Operand(f"in{k}", dtype, (5, 7), (7, 1)) for k, dtype in enumerate(dtypes)]
    operands += [Operand(f"out_{name}", value.dtype, (5, 7), (7, 1)) for name, value in values.items()]
    at = (index("i0"), index("i1"))
    return Task((5, 7), tuple(operands), tuple(Store(f"out_{name}", at, value) for name, value in values.items()))


def run(dtypes: list[DType], values: dict[str, Expr], contents: list[np.ndarray] | None = None) -> None:
    arrays = contents or [numbers(dtype, k) for k, dtype in enumerate(dtypes)]
    task = storing(dtypes, values)
    given = {f"in{k}": array for k, array in enumerate(arrays)}
    check(nest(task, DEVICE), task, given, times=8)


def of_one_operand(dtype: DType) -> dict[str, Expr]:
    words = UNARY - {"bitnot"} if dtype.is_float else OF_INTEGERS if dtype.is_integer else {"not"}
    words -= (
        {"floor", "ceil", "round"} if dtype.is_integer and dtype.bits == 64 else set()
    )  # by way of float64 in NumPy
    return {op: unary(op, x(0, dtype)) for op in sorted(words)}


@by_name
def test_words_of_one_operand(dtype: DType) -> None:
    run([dtype], of_one_operand(dtype))


def of_two_operands(dtype: DType) -> dict[str, Expr]:
    words = BINARY - OF_LOGIC - OF_BITS if dtype.is_float else BINARY - OF_LOGIC if dtype.is_integer else OF_LOGIC
    words -= {"pow"} if dtype.is_integer else {"floordiv"}  # NumPy has NaN for the floor of an infinite quotient
    values = {op: binary(op, x(0, dtype), x(1, dtype)) for op in sorted(words)}
    values |= {
        f"{op}_three": binary(op, x(0, dtype), const(3 if dtype.bits > 2 else 1, dtype))
        for op in sorted(words - OF_LOGIC)
    }
    values |= {f"one_{op}": binary(op, const(1, dtype), x(0, dtype)) for op in sorted(words)}
    return values | {op: compare(op, x(0, dtype), x(1, dtype)) for op in sorted(COMPARE)}


@by_name
def test_words_of_two_operands(dtype: DType) -> None:
    run([dtype, dtype], of_two_operands(dtype))


@pytest.mark.parametrize("dtype", INTEGERS, ids=[dtype.name for dtype in INTEGERS])
def test_powers_of_integers(dtype: DType) -> None:
    exponents = (np.arange(35) % min(7, 2 ** (dtype.bits - 1))).astype(dtype.numpy)
    run([dtype, dtype], {"pow": binary("pow", x(0, dtype), x(1, dtype))}, [numbers(dtype), exponents])


@by_name
def test_casts(dtype: DType) -> None:
    """To every type; floats that no integer holds are asked for elsewhere, since NumPy leaves them open."""
    array = numbers(dtype)
    if dtype.is_float:
        array = np.where(np.isfinite(array), array, 5).astype(dtype.numpy)
    to = [other for other in ALL if not (dtype.is_float and other.kind == "uint") and max(dtype.bits, other.bits) >= 8]
    run([dtype], {f"{other.name}": cast(x(0, dtype), other) for other in to if other != dtype}, [array])


@pytest.mark.parametrize("dtype", [dtype_named("float32"), dtype_named("float64")], ids=str)
def test_floats_that_no_integer_holds_saturate(dtype: DType) -> None:
    given = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 1e20, -1e20] * 5).astype(dtype.numpy)
    names = ("int32", "int64", "uint64", "int8")
    at = (index("i0"), index("i1"))
    operands = [
        Operand("in0", dtype, (5, 7), (7, 1)),
        *(Operand(f"out_{n}", dtype_named(n), (5, 7), (7, 1)) for n in names),
    ]
    task = Task((5, 7), tuple(operands), tuple(Store(f"out_{n}", at, cast(x(0, dtype), dtype_named(n))) for n in names))
    found, _ = launch(nest(task, DEVICE), task, {"in0": given})
    most, wide = 2**31 - 1, 2**63 - 1
    three = [3_000_000_000, -3_000_000_000]
    assert found["out_int32"][0].tolist() == [0, most, -most - 1] + [most, -most - 1] * 2
    assert found["out_int64"][0].tolist() == [0, wide, -wide - 1, *three, wide, -wide - 1]
    assert found["out_int8"][0].tolist() == [0, -1, 0, -1, 0, -1, 0], "32 bits saturate, the rest wraps"
    assert found["out_uint64"][0].tolist()[:2] == [0, 2**64 - 1]


def test_bits() -> None:
    pairs = [
        ("float32", "int32"),
        ("float32", "uint32"),
        ("float64", "int64"),
        ("float16", "uint16"),
        ("bfloat16", "int16"),
    ]
    pairs += [(b, a) for a, b in pairs] + [("bool", "uint8"), ("uint8", "bool")]
    for a, b in pairs:
        source, to = dtype_named(a), dtype_named(b)
        array = numbers(source)
        if b == "bool":
            array = array % 2
        if to.is_float:  # any NaN is a NaN
            array = numbers(to).view(source.numpy)
        run([source], {b: bits(x(0, source), to)}, [array])


def test_floats_of_a_byte_are_moved() -> None:
    kind, byte = dtype_named("float8_e4m3fn"), dtype_named("uint8")
    at = (index("i0"), index("i1"))
    operands = [Operand(name, dtype, (5, 7), (7, 1)) for name, dtype in (("in0", kind), ("out0", kind), ("out1", byte))]
    task = Task((5, 7), tuple(operands), (Store("out0", at, x(0, kind)), Store("out1", at, bits(x(0, kind), byte))))
    given = numbers(byte)
    found, _ = launch(nest(task, DEVICE), task, {"in0": given.view(kind.numpy)})
    assert (found["out0"].view(np.uint8) == given.reshape(5, 7)).all()
    assert (found["out1"] == given.reshape(5, 7)).all()


@pytest.mark.parametrize("wide", [False, True], ids=["near", "far"])
def test_arithmetic_of_indices(wide: bool) -> None:
    """Positions are numbers of 64 bits however they are computed."""
    i, j = index("i0"), index("i1")
    step = 2**33 + 1 if wide else 3
    form = (i - 2) * step + j
    values: dict[str, Callable[[], Expr]] = {
        "form": lambda: form,
        "negative": lambda: (i - 3) // 2,
        "rest": lambda: (i - 3) % 2,
        "by_negative": lambda: binary("floordiv", form, const(-3)),
        "div": lambda: binary("div", form, const(4)),
        "less": lambda: binary("min", form, j),
        "data": lambda: x(0, INT64) + form,
        "above": lambda: cast(compare("gt", form, j), INT64),
        "float": lambda: cast(form, FLOAT32),
        "by_zero": lambda: binary("floormod", form, j - 3),
    }
    run([INT64], {name: value() for name, value in values.items()})
