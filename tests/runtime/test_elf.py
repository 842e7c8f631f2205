"""Object files loaded without LLVM: the same code as by its linker, and what is left to that."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import platform
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusewise.errors import FusewiseError
from fusewise.runtime import elf, jit
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import compile_object, load

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="such files are made on this system alone"
)

CALLED = "define i64 @called(i64 %x) {{ %y = mul i64 %x, {factor}\n ret i64 %y }}"

CALLER = """
declare i64 @called(i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
@table = private unnamed_addr constant [4 x i64] [{table}], align 64

define internal i64 @own(i64 %x) noinline {{
  %at = getelementptr i64, ptr @table, i64 %x
  %value = load i64, ptr %at
  ret i64 %value
}}

define i64 @caller(i64 %x, i64 %n) {{
  switch i64 %x, label %other [i64 0, label %a  i64 1, label %b  i64 2, label %c  i64 3, label %d]
a:
  %first = call i64 @called(i64 7)
  ret i64 %first
b:
  %second = call i64 @own(i64 %n)
  ret i64 %second
c:
  %memory = alloca [64 x i8]
  call void @llvm.memset.p0.i64(ptr %memory, i8 {byte}, i64 %n, i1 false)
  %third = load i8, ptr %memory
  %wide = zext i8 %third to i64
  ret i64 %wide
d:
  %float = sitofp i64 %n to double
  %product = fmul double %float, {double}
  %fourth = fptosi double %product to i64
  ret i64 %fourth
other:
  ret i64 -1
}}
"""


def results(address: int) -> list[int]:
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)
    return [function(x, n) for x in range(5) for n in range(1, 4)]


@given(
    st.integers(-(1 << 31), 1 << 31),
    st.lists(st.integers(-(1 << 62), 1 << 62), min_size=4, max_size=4),
    st.integers(0, 127),
    st.integers(-1000, 1000),
    st.booleans(),
)
def test_code_does_the_same_as_by_the_linker_of_llvm(factor, table, byte, double, turned):
    caller = CALLER.format(table=", ".join(f"i64 {x}" for x in table), byte=byte, double=float(double))
    objects = [compile_object(text, host_target(), "quick") for text in (CALLED.format(factor=factor), caller)]
    if turned:
        objects.reverse()
    code = elf.loaded(objects)
    assert code is not None
    found = results(code.addresses["caller"])
    assert found[:3] == [(7 * factor + (1 << 63)) % (1 << 64) - (1 << 63)] * 3
    library = jit._linked(objects, ["caller"], keep=False)
    assert found == results(library.addresses["caller"])


def lines_of_memory(address: int) -> list[str]:
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(text, 16) for text in line.split()[0].split("-"))
        if begin <= address < end:
            found.append(line)
    return found


def test_code_cannot_be_written_to_and_goes_with_its_owner():
    code = elf.loaded([compile_object(CALLED.format(factor=3), host_target())])
    assert code is not None
    address = code.addresses["called"]
    assert [line.split()[1] for line in lines_of_memory(address)] == ["r-xp"]
    del code
    gc.collect()
    assert not [line for line in lines_of_memory(address) if line.split()[1] == "r-xp"]


def test_code_that_is_kept_stays():
    library = load([compile_object(CALLED.format(factor=3), host_target())], ["called"], keep=True)
    address = library.addresses["called"]
    del library
    gc.collect()
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(14) == 42


@pytest.mark.parametrize(
    "text",
    [
        "@count = global i64 41\ndefine i64 @f() { %x = load i64, ptr @count\n %y = add i64 %x, 1\n ret i64 %y }",
        "@zero = internal global i64 0\ndefine i64 @f() {\n store volatile i64 42, ptr @zero\n ret i64 42 }",
    ],
    ids=["data", "zeros"],
)
def test_what_is_not_known_here_is_left_to_llvm(text):
    image = compile_object(text, host_target())
    assert elf.loaded([image]) is None
    library = load([image], ["f"])
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(library.addresses["f"])() == 42


def test_other_files_and_those_cut_short_are_refused():
    image = compile_object(CALLED.format(factor=3), host_target())
    executable = image[:16] + struct.pack("<H", 2) + image[18:]
    other_machine = image[:18] + struct.pack("<H", 183) + image[20:]
    for other in (
        b"",
        b"\x7fELF",
        b"MZ" + image[2:],
        executable,
        other_machine,
        *(image[:k] for k in range(len(image))),
    ):
        with pytest.raises(elf.Unlinkable, match="an object file is damaged"):
            elf.loaded([other])


def changed(image: bytes, at: int, layout: str, value: int) -> bytes:
    return image[:at] + struct.pack(layout, value) + image[at + struct.calcsize(layout) :]


def headers(image: bytes, kind: int) -> list[int]:
    """Where the headers of the sections of a kind are that are not empty."""
    (table,), (count,) = struct.unpack_from("<Q", image, 40), struct.unpack_from("<H", image, 60)
    places = [table + 64 * k for k in range(count)]
    return [
        at for at in places if struct.unpack_from("<II", image, at)[1] == kind and image[at + 32 : at + 40] != bytes(8)
    ]


def test_parts_outside_of_each_other_are_refused():
    """Sections beyond the file, places beyond a section, alignments that are none, symbols without an end."""
    image = compile_object(CALLER.format(table="i64 5, i64 6, i64 7, i64 8", byte=3, double=2.5), host_target())
    called = compile_object(CALLED.format(factor=3), host_target())
    assert elf.loaded([image, called]) is not None
    (symbols,), (relocations, *_) = headers(image, 2), headers(image, 4)
    contents = [at for at in headers(image, 1) if struct.unpack_from("<Q", image, at + 8)[0] & 2]
    (first,) = struct.unpack_from("<Q", image, relocations + 24)
    (strings,) = struct.unpack_from("<Q", image, symbols + 24)
    tried = [
        *(changed(image, 40, "<Q", value) for value in (len(image), 1 << 63)),  # where the headers are
        *(changed(image, at + 24, "<Q", value) for at in (*contents, symbols) for value in (len(image), 1 << 62)),
        *(changed(image, at + 32, "<Q", value) for at in (*contents, symbols) for value in (len(image), 1 << 62)),
        *(changed(image, at + 48, "<Q", value) for at in contents for value in (3, 1 << 40)),
        *(changed(image, first, "<Q", value) for value in (1 << 20, 1 << 63)),
        changed(image, first + 12, "<I", 1 << 30),  # the symbol
        *(changed(image, strings + 24 * k, "<I", 1 << 30) for k in range(3)),  # its name
        changed(image, symbols + 40, "<I", 1 << 20),  # the section with its name
    ]
    for other in tried:
        with pytest.raises(elf.Unlinkable):
            elf.loaded([other, called])


@given(st.data())
def test_no_damage_does_more_than_be_refused(data: st.DataObject):
    """Loaded, not run: what is refers only to memory of its own."""
    image = bytearray(compile_object(CALLED.format(factor=3), host_target()))
    for _ in range(data.draw(st.integers(1, 4))):
        image[data.draw(st.integers(0, len(image) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(elf.Unlinkable):
        elf.loaded([bytes(image)])


def test_another_system(monkeypatch):
    image = compile_object(CALLED.format(factor=3), host_target())
    monkeypatch.setattr(elf.platform, "machine", lambda: "aarch64")
    assert elf.loaded([image]) is None


def test_a_system_that_lets_nothing_be_executed(monkeypatch):
    class Refusing:
        @staticmethod
        def mprotect(*_: object) -> int:
            return -1

    image = compile_object(CALLED.format(factor=3), host_target())
    monkeypatch.setattr(elf.ctypes, "CDLL", lambda *_, **__: Refusing)
    with pytest.raises(FusewiseError, match="does not let generated code be executed"):
        elf.loaded([image])
