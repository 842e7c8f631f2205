"""Code that tells of its accesses: each kind of access, what it tells, and that answers stay as they are."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from fusewise.benchmarking.caches import CacheLevel, Caches, Counts
from fusewise.codegen.llvm.traced import traced
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.build import Module
from fusewise.errors import UnsupportedModel
from fusewise.runtime.arena import address_of, aligned_block
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import compile_object, load, optimized

ELEMENTS = 64
REGISTER = 16


def counts(text: str, symbol: str = "k") -> tuple[Counts, np.ndarray, np.ndarray]:
    """What a function of two arrays of 64 floats counts, and the arrays afterwards."""
    target, caches = host_target(), Caches([CacheLevel("L1", 4096, 8)])
    image = compile_object(traced(optimized(text, target), caches.listener, REGISTER), target, "bare")
    library = load([image], [symbol])
    out, source = (aligned_block(4 * ELEMENTS).view(np.float32) for _ in range(2))
    out[:], source[:] = 0, np.arange(ELEMENTS)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library.addresses[symbol])
    call(address_of(out), address_of(source))
    return caches.counts, out, source


def written(body) -> str:
    module = Module()
    f = module.function("k", ("ptr", "ptr"))
    body(f, *f.arguments)
    f.give_back()
    return llvm_text(module)


def each(f, out, source):
    f.loop(0, ELEMENTS, 1, lambda i, _: f.store(f.load("float", f.at(source, i)), f.at(out, i)), rolled=True)


def wide(f, out, source):
    f.store(f.load("<64 x float>", source), out)


def masked(f, out, source):
    mask = f.mask(f.i64(5), 8)
    f.masked_store(f.masked_load("<8 x float>", source, mask), out, mask)


CASES = {
    "scalars": (each, Counts(64, 64, 0, 256, 256, (8,), (0,)), 64),
    "a vector wider than a register": (wide, Counts(16, 16, 0, 256, 256, (8,), (0,)), 64),
    "some lanes": (masked, Counts(2, 2, 0, 20, 20, (2,), (0,)), 5),
    "a copy": (lambda f, out, source: f.copy(out, source, 160), Counts(10, 10, 0, 160, 160, (6,), (0,)), 40),
    "fetching ahead": (lambda f, out, source: f.prefetch(source), Counts(0, 0, 1, 0, 0, (0,), (1,)), 0),
}


@pytest.mark.parametrize("case", CASES)
def test_every_access_is_told(case: str) -> None:
    body, wanted, copied = CASES[case]
    found, out, source = counts(written(body))
    assert found == wanted
    assert np.array_equal(out[:copied], source[:copied])
    assert not out[copied:].any()


def test_a_fill_that_writes_nothing_tells_nothing() -> None:
    text = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define void @k(ptr %out, ptr %source) {
  %first = load i32, ptr %source, align 4
  %none = sext i32 %first to i64
  tail call void @llvm.memset.p0.i64(ptr align 4 %out, i8 1, i64 %none, i1 false)
  ret void
}
"""
    assert counts(text)[0] == Counts(1, 0, 0, 4, 0, (1,), (0,))


def test_pointers_that_are_expressions() -> None:
    text = """
@table = private unnamed_addr constant [4 x i32] [i32 0, i32 1, i32 2, i32 3]
define void @k(ptr %out, ptr %source) {
  %part = load volatile i32, ptr getelementptr inbounds (i8, ptr @table, i64 8), align 4
  store volatile i32 %part, ptr %out, align 4
  store ptr getelementptr inbounds (i8, ptr @table, i64 4), ptr %source, align 8
  ret void
}
"""
    found, out, _ = counts(text)
    assert (found.loads, found.stores, found.bytes_loaded, found.bytes_stored) == (1, 2, 4, 12)
    assert out.view(np.int32)[0] == 2


@pytest.mark.parametrize(
    "line",
    [
        "  %x = call <4 x float> @llvm.masked.gather.v4f32.v4p0(<4 x ptr> %p, i32 4, <4 x i1> %m, <4 x float> %v)",
        "  %x = atomicrmw add ptr %p, i64 1 seq_cst, align 8",
        "  %x = load { i64, i64 }, ptr %p, align 8",
    ],
)
def test_what_is_not_known_is_said(line: str) -> None:
    with pytest.raises(UnsupportedModel, match="memory accesses cannot be counted"):
        traced(line, "", REGISTER)


def test_what_touches_no_memory_stays() -> None:
    text = "  %x = call float @llvm.fma.f32(float %a, float %b, float %c)\n  ret void"
    assert traced(text, "listener", REGISTER).startswith(text)
