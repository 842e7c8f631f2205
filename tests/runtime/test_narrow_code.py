"""Conversions to and from float16 and bfloat16 on a processor without them, against NumPy and ml_dtypes, bit for bit."""

import ctypes
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.codegen.target import TARGETS, Target
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import compile_object, load

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
PLAIN = next(target for target in TARGETS if target.name == "sse2")
LLVM_NAMES = {"float16": "half", "bfloat16": "bfloat", "float32": "float", "float64": "double"}


@pytest.fixture(scope="module", params=["plain", "host"])
def convert(request):
    """A function array, dtype -> array whose conversion is done by generated code."""
    if request.param == "plain" and host_target().triple.split("-")[0] != "x86_64":
        pytest.skip("the plain target is x86")
    # LLVM takes AVX512-BF16's instruction where it may, which makes zeros of subnormal numbers; our code narrows by itself
    host = replace(host_target(), features=host_target().features.replace("+avx512bf16", "-avx512bf16"))
    target: Target = PLAIN if request.param == "plain" else host
    names = {}
    texts = []
    for source in LLVM_NAMES:
        for result in LLVM_NAMES:
            wider = np.dtype(source if source != "bfloat16" else BFLOAT16).itemsize
            narrower = np.dtype(result if result != "bfloat16" else BFLOAT16).itemsize
            if wider == narrower:
                continue
            operation = "fptrunc" if wider > narrower else "fpext"
            a, b = LLVM_NAMES[source], LLVM_NAMES[result]
            names[source, result] = f"{source}_{result}"
            texts.append(f"""
            define void @{source}_{result}(ptr %from, ptr %to, i64 %count) {{
            entry:
              br label %loop
            loop:
              %i = phi i64 [ 0, %entry ], [ %next, %loop ]
              %from.at = getelementptr {a}, ptr %from, i64 %i
              %to.at = getelementptr {b}, ptr %to, i64 %i
              %x = load {a}, ptr %from.at
              %y = {operation} {a} %x to {b}
              store {b} %y, ptr %to.at
              %next = add i64 %i, 1
              %more = icmp slt i64 %next, %count
              br i1 %more, label %loop, label %done
            done:
              ret void
            }}""")
    library = load([compile_object("\n".join(texts), target)], list(names.values()), keep=True)

    def run(array, dtype):
        result = np.empty(array.shape, dtype)
        address = library.addresses[names[array.dtype.name, result.dtype.name]]
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address)(
            array.ctypes.data, result.ctypes.data, array.size
        )
        return result

    return run


def same(found, expected):
    """Equal bits, any NaN equal to any NaN."""
    with np.errstate(all="ignore"):
        nan = np.isnan(expected.astype(np.float64))
        np.testing.assert_array_equal(np.isnan(found.astype(np.float64)), nan)
    unsigned = f"u{found.dtype.itemsize}"
    np.testing.assert_array_equal(found[~nan].view(unsigned), expected[~nan].view(unsigned))


EDGES = np.array(
    [0.0, -0.0, 1e-8, 2.0**-25, 2.0**-24, 2.0**-14, 2.0**-126, 2.0**-133, 2.0**-134, 65504, 65519.99, 65520, 3.4e38, 3.39e38,
     np.inf, -np.inf, np.nan, 1 + 2.0**-8, 1 + 2.0**-9, 1 + 2.0**-11, 1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-9 + 2.0**-50]
)  # fmt: skip


@pytest.mark.parametrize("wide", ["float32", "float64"])
@pytest.mark.parametrize("narrow", ["float16", BFLOAT16], ids=str)
def test_narrowing(convert, wide, narrow):
    rng = np.random.default_rng(5)
    random = rng.integers(0, 1 << 32, 200_000, np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        ties = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64) * (1 + 2.0**-11)
        values = np.concatenate([random.astype(np.float64), EDGES, -EDGES, ties, ties * (1 + 2.0**-45)]).astype(wide)
        # ml_dtypes narrows float64 by way of float32, which rounds twice; rounding to odd in between rounds once
        middle = odd(values) if wide == "float64" and narrow == BFLOAT16 else values
        expected = middle.astype(narrow)
    same(convert(values, narrow), expected)


def odd(values):
    near = values.astype(np.float32)
    exact = (near.astype(np.float64) == values) | np.isnan(values)
    toward = np.where(np.abs(near.astype(np.float64)) > np.abs(values), np.nextafter(near, np.float32(0)), near)
    return np.where(exact, near, (toward.view(np.uint32) | 1).view(np.float32))


@pytest.mark.parametrize("wide", ["float32", "float64"])
@pytest.mark.parametrize("narrow", ["float16", BFLOAT16], ids=str)
def test_widening_is_exact(convert, narrow, wide):
    every = np.arange(1 << 16, dtype=np.uint16).view(narrow)
    with np.errstate(all="ignore"):
        same(convert(every, wide), every.astype(wide))


@settings(max_examples=200, deadline=None)
@given(value=st.floats(width=64))
def test_narrowing_rounds_once(convert, value):
    """NumPy rounds float64 to float16 once."""
    found = convert(np.array([value]), np.float16)
    with np.errstate(all="ignore"):
        same(found, np.array([value]).astype(np.float16))
