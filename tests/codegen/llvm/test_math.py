"""The mathematical functions: errors in units in the last place against more precise arithmetic, and IEEE special cases."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.guarded import within
from tests.machines import runnable

from fusewise.codegen.llvm.math import functions as mathfn
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.build import Module
from fusewise.codegen.nest.tree import vector
from fusewise.codegen.target import TARGETS, Target
from fusewise.runtime.jit import compile_assembly, compile_object, load

Run = Callable[..., np.ndarray]


def module_text(op: str, element: str, lanes: int, target: Target) -> str:
    """`kernel(x, y, result, n)`: apply a function to n elements, a multiple of `lanes`."""
    module = Module()
    f = module.function("kernel", ("ptr noalias", "ptr noalias", "ptr noalias", "i64"))
    first, second, result, n = f.arguments
    kind = vector(element, lanes)

    def body(i, _):
        x = f.load(kind, f.at(first, i, element))
        y = f.load(kind, f.at(second, i, element))
        if op == "pow":
            value = mathfn.power(f, target, x, y, None)
        elif op == "fmod":
            value = mathfn.remainder(f, target, x, y)
        elif op == "gated":
            value = mathfn.gated(f, target, x, y)
        else:
            value = mathfn.call(f, target, op, x)
        f.store(value, f.at(result, i, element))

    f.loop(0, n, lanes, body)
    f.give_back()
    return llvm_text(module)


@pytest.fixture(scope="module")
def run(target: Target) -> Callable[..., np.ndarray]:
    libraries = {}

    def apply(op: str, x: np.ndarray, y: np.ndarray | None = None, bits: int = 256, most: int = 512) -> np.ndarray:
        """`bits` of a vector, on the machine as if its vectors had `most` at most."""
        element, lanes = ("float", bits // 32) if x.dtype == np.float32 else ("double", bits // 64)
        key, machine = (op, element, bits, most), replace(target, vector_bits=min(most, target.vector_bits))
        if key not in libraries:
            text = module_text(op, element, lanes, machine)
            libraries[key] = load([compile_object(text, machine)], ["kernel"])
        whole = -(-x.size // lanes) * lanes
        second = np.ones_like(x) if y is None else y
        operands = {
            "x": np.pad(x, (0, whole - x.size)),
            "y": np.resize(second, whole),
            "result": np.empty(whole, x.dtype),
        }
        function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)(libraries[key].addresses["kernel"])
        with within(operands, "behind", {"result"}) as placed:
            function(*(one.address for one in placed.values()), whole)
        return operands["result"][: x.size]

    return apply


def erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64)).astype(x.dtype)


def sigmoid(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))
    return np.where(np.isnan(x), x, np.where(x >= 0, 1 / (1 + small), small / (1 + small)))


TRUTH: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "erf": erf,
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
}
BOUND_ULP = {"exp": 3, "log": 1.5, "floor": 0, "ceil": 0, "round": 0, "sin": 1, "cos": 1, "tan": 1}
"""For float, where it is not the common bound of 4."""


def error_in_ulp(found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Distance in units in the last place of the result type; `truth` is more precise."""
    rounded = truth.astype(found.dtype)
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    finite = np.isfinite(found) & np.isfinite(rounded)
    spacing = np.spacing(np.abs(np.where(finite, rounded, 1))).astype(truth.dtype)
    distance = np.abs(np.where(finite, found, 0).astype(truth.dtype) - np.where(finite, truth, 0)) / spacing
    return np.where(same, 0, np.where(finite, distance, np.inf)).astype(float)


def check_float_bits(run: Run, op: str, step: int) -> None:
    """Every `step`-th bit pattern of float32; an odd number lets none of the bits stay as it is."""
    x = np.arange(0, 2**32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)
    if op == "sigmoid":  # subnormal results are flushed
        x = x[~(x < -87)]
    with np.errstate(all="ignore"):
        error = error_in_ulp(run(op, x), TRUTH[op](x.astype(np.float64)))
    worst = int(np.argmax(error))
    assert error[worst] <= BOUND_ULP.get(op, 4), (op, x[worst], error[worst])


@pytest.mark.parametrize("op", TRUTH)
def test_float_over_the_bit_patterns(run, op):
    check_float_bits(run, op, 200_003 if op == "erf" else 20_011)


def test_erf_is_one_far_out(run):
    x = np.array([4.0, 4.5, 10.0, 3e38, np.inf, -4.0, -10.0, -np.inf], np.float32)
    np.testing.assert_array_equal(run("erf", x), np.sign(x))
    assert np.abs(run("erf", np.linspace(3.5, 4.2, 4001, dtype=np.float32))).max() == 1


@pytest.mark.slow
@pytest.mark.parametrize("target", runnable()[:1], ids=lambda target: target.name, scope="session")
@pytest.mark.parametrize("op", TRUTH)
def test_float_over_many_bit_patterns(run, op):
    check_float_bits(run, op, 4093 if op == "erf" else 509)


def points(op: str, n: int = 4000) -> np.ndarray:
    """Arguments of the function's domain, over many magnitudes."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=n) * s for s in (1e-8, 1e-3, 0.3, 1, 5, 30, 300)] + [rng.uniform(-1, 1, n)])
    if op in ("log", "acosh"):
        x = np.abs(x) + (op == "acosh")
    if op in ("asin", "acos", "atanh"):
        x = x[np.abs(x) < 1]
    if op == "log1p":
        x = x[x > -1]
    if op in ("exp", "expm1", "sinh", "cosh", "sigmoid"):
        x = x[np.abs(x) < 700]
    if op in ("sin", "cos", "tan"):
        huge = rng.normal(size=n) * np.exp(rng.uniform(0, 700, n))
        x = np.concatenate(
            [x, rng.normal(size=n) * 1e5, np.arange(1, 999) * np.pi / 2, huge, [6381956970095103 * 2.0**797]]
        )
    return x


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 2.0**-60, reason="nothing here is more precise than float64")
@pytest.mark.parametrize("op", TRUTH)
def test_double(run, op):
    x = points(op)
    wide = x if op == "erf" else x.astype(np.longdouble)  # math.erf is good to one unit itself
    error = error_in_ulp(run(op, x), TRUTH[op](wide))
    worst = int(np.argmax(error))
    assert error[worst] <= 4, (op, x[worst], error[worst])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", TRUTH)
def test_special_arguments(run, op, dtype):
    huge, tiny = np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal
    normal = np.finfo(dtype).tiny
    x = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1, tiny, -tiny, normal, -normal, 0.5, -0.5, 2, -2, 1 + 2**-20]
    x += [huge, -huge]
    given = np.array(x, dtype)
    with np.errstate(all="ignore"):
        expected = TRUTH[op](given.astype(np.float64)).astype(dtype)
    found = run(op, given)
    np.testing.assert_allclose(found, expected, rtol=8 * np.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_power(run, dtype):
    rng = np.random.default_rng(1)
    x = np.exp(rng.normal(size=20_000) * (5 if dtype == np.float32 else 30)).astype(dtype)
    y = (rng.normal(size=20_000) * 8).astype(dtype)
    wide = np.float64 if dtype == np.float32 else np.longdouble
    with np.errstate(all="ignore"):
        truth = np.power(x.astype(wide), y.astype(wide))
        found = run("pow", x, y)
        error = error_in_ulp(found, truth)
    worst = int(np.argmax(error))
    assert error[worst] <= (1 if dtype == np.float32 else 2), (x[worst], y[worst], found[worst], truth[worst])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", ["pow", "fmod"])
def test_two_argument_specials(run, op, dtype):
    special = np.array([0, -0.0, np.nan, np.inf, -np.inf, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 2.5, 1e30, -1e-30], dtype)
    x, y = (v.reshape(-1).copy() for v in np.meshgrid(special, special))
    with np.errstate(all="ignore"):
        expected = {"pow": np.power, "fmod": np.fmod}[op](x, y)
    np.testing.assert_allclose(run(op, x, y), expected, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainder_is_exact(run, dtype):
    rng = np.random.default_rng(2)
    x = (rng.normal(size=4000) * np.exp(rng.uniform(-20, 60, 4000))).astype(dtype)
    y = (rng.normal(size=4000) * np.exp(rng.uniform(-20, 20, 4000))).astype(dtype)
    np.testing.assert_array_equal(run("fmod", x, y), np.fmod(x, y))


@pytest.mark.parametrize("generic", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("op", [*TRUTH, "pow", "fmod"])
def test_no_target_needs_a_library(generic, op):
    """Whatever the machine lacks is written out, not called."""
    for element in ("float", "double"):
        lines = compile_assembly(module_text(op, element, 4, generic), generic).splitlines()
        words = [line.split() for line in lines]
        called = {w[1] for w in words if len(w) > 1 and w[0] in ("callq", "bl", "jmp", "b")}
        assert not {name for name in called if not name.startswith((".", "fusewise.", "*"))}, called


def ordinary_floats(step: int) -> np.ndarray:
    """Every `step`-th float32 from 2^-10 to 16, and its negative: where activations lie."""
    low, high = (int(np.float32(x).view(np.uint32)) for x in (2.0**-10, 16.0))
    x = np.arange(low, high, step, dtype=np.uint32).view(np.float32)
    return np.concatenate([x, -x])


@pytest.mark.parametrize("op", ["exp", "erf", "tanh", "sigmoid"])
def test_float_where_activations_lie(run, op):
    x = ordinary_floats(499)
    error = error_in_ulp(run(op, x), TRUTH[op](x.astype(np.float64)))
    worst = int(np.argmax(error))
    assert error[worst] <= BOUND_ULP.get(op, 4), (x[worst], error[worst])


@pytest.mark.parametrize(("bits", "most"), [(32, 512), (128, 512), (256, 512), (512, 512), (256, 256)])
@pytest.mark.parametrize("op", ["exp_below", "gated", "sigmoid"])
def test_exponentials_of_any_length(run, op, bits, most):
    """Powers of two come from tables in registers, if there are any, of 8 numbers or 16; exp_below need not be right when tiny."""
    x = np.concatenate([ordinary_floats(499), np.linspace(-87.3, 100, 50_001, dtype=np.float32)])
    x = x[x <= 0] if op == "exp_below" else x
    wide = x.astype(np.float64)
    truth = {"exp_below": np.exp, "gated": lambda x: x * sigmoid(x), "sigmoid": sigmoid}[op](wide)
    error = error_in_ulp(run(op, x, x, bits, most), truth)
    error = error[truth > 2.0**-124] if op == "exp_below" else error
    assert error.max() <= 4, (x[int(np.argmax(error))], error.max())
    special = np.array([-np.inf, np.finfo(np.float32).min, -1e4, np.nan], np.float32)
    expected = {"gated": [np.nan, 0, 0, np.nan]}.get(op, [0, 0, 0, np.nan])
    np.testing.assert_array_equal(run(op, special, special, bits, most), expected)


def test_gelu():
    """x (1 + erf(x / sqrt 2)) / 2 is good to 4 units of itself for positive x, and of x / 2 for negative, where the sum cancels."""
    from fusewise import api
    from fusewise.ops.build import GraphBuilder

    x = ordinary_floats(499)
    b = GraphBuilder()
    model = api.compile(b.finish(b.op("Gelu", b.input("x", x.shape))), threads=1, cache=False)
    (found,) = model.run(None, {"x": x})
    wide = x.astype(np.float64)
    truth = wide * (1 + erf(wide / math.sqrt(2))) / 2
    unit = np.spacing(np.where(x > 0, truth, -wide / 2).astype(np.float32))
    error = np.abs(found.astype(np.float64) - truth) / unit
    worst = int(np.argmax(error))
    assert error[worst] <= 4, (x[worst], error[worst])
