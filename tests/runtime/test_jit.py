"""IR text to addresses: results, errors, symbols of the process, lifetime."""

import ctypes
import gc

import numpy as np
import pytest

from fusewise.codegen.target import TARGETS
from fusewise.errors import FusewiseError
from fusewise.runtime import elf
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import LEVELS, compile_assembly, compile_object, load

ADD = "define i64 @{0}(i64 %x) {{ %y = add i64 %x, {1}\n ret i64 %y }}"


@pytest.fixture(autouse=True, params=["own", "llvm"])
def linker(request, monkeypatch):
    if request.param == "llvm":
        monkeypatch.setattr(elf, "loaded", lambda images: None)


def call(address, *arguments):
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(arguments))(address)(*arguments)


@pytest.mark.parametrize("level", LEVELS)
def test_levels_agree(level):
    library = load([compile_object(ADD.format("f", 3), host_target(), level)], ["f"])
    assert call(library.addresses["f"], 39) == 42


def test_many_objects_at_once():
    objects = [compile_object(ADD.format(f"f{k}", k), host_target(), "quick") for k in range(40)]
    library = load(objects, [f"f{k}" for k in range(40)])
    assert [call(library.addresses[f"f{k}"], 100) for k in range(40)] == list(range(100, 140))


def test_libraries_do_not_see_each_other():
    """Two programs may use the same symbol for different code."""
    first, second = (load([compile_object(ADD.format("f", k), host_target())], ["f"]) for k in (1, 2))
    assert (call(first.addresses["f"], 0), call(second.addresses["f"], 0)) == (1, 2)
    del first
    gc.collect()
    assert call(second.addresses["f"], 0) == 2


def test_memory_intrinsics_reach_the_process():
    text = """
    declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
    declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
    declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
    define void @f(ptr %to, ptr %from, i64 %n) {
      call void @llvm.memset.p0.i64(ptr %to, i8 7, i64 %n, i1 false)
      %half = udiv i64 %n, 2
      call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %half, i1 false)
      %next = getelementptr i8, ptr %to, i64 1
      call void @llvm.memmove.p0.p0.i64(ptr %next, ptr %to, i64 %half, i1 false)
      ret void
    }"""
    library = load([compile_object(text, host_target())], ["f"])
    to, source = np.zeros(1000, np.uint8), (np.arange(1000) % 251).astype(np.uint8)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(library.addresses["f"])
    function(to.ctypes.data, source.ctypes.data, 1000)
    expected = np.concatenate([source[:1], source[:500], np.full(499, 7, np.uint8)])
    np.testing.assert_array_equal(to, expected)


def test_constant_tables_are_linked():
    text = """
    @table = private unnamed_addr constant [3 x i64] [i64 5, i64 6, i64 7], align 64
    define i64 @f(i64 %k) {
      %at = getelementptr i64, ptr @table, i64 %k
      %v = load i64, ptr %at
      ret i64 %v
    }"""
    library = load([compile_object(text, host_target())], ["f"])
    assert [call(library.addresses["f"], k) for k in range(3)] == [5, 6, 7]


@pytest.mark.parametrize(
    "text",
    [
        "this is not IR",
        "define i64 @f(i64 %x) { ret i64 %y }",
        "define i64 @f(i64 %x) {\n br label %b\nb:\n %y = add i64 %z, 1\n %z = add i64 %x, 1\n ret i64 %y\n}",
    ],
)
def test_broken_text_is_refused(text):
    with pytest.raises(FusewiseError, match="not valid LLVM IR"):
        compile_object(text, host_target())


def test_missing_and_doubled_symbols_are_refused():
    image = compile_object(ADD.format("f", 1), host_target())
    calls_nothing = """
    declare i64 @no_such_function(i64)
    define i64 @g(i64 %x) {
      %y = call i64 @no_such_function(i64 %x)
      ret i64 %y
    }"""
    for images, symbols in (
        ([image], ["g"]),
        ([image, image], ["f"]),
        ([compile_object(calls_nothing, host_target())], ["g"]),
    ):
        with pytest.raises(FusewiseError, match="could not be linked"):
            load(images, symbols)


def test_nothing_to_load():
    assert dict(load([], []).addresses) == {}


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_code_for_other_machines_can_be_read(target):
    text = "define <16 x float> @f(<16 x float> %x) { %y = fadd <16 x float> %x, %x\n ret <16 x float> %y }"
    register = {"avx512": "zmm", "avx2": "ymm", "sse2": "xmm", "neon": "v0.4s"}[target.name]
    assert register in compile_assembly(text, target)
