"""Loads object files of x86-64 Linux (ELF) without LLVM, whose import would take a third of opening a compiled model.

Kernels are compiled to be position independent and for the small code model, so what they refer to is 32 bits away: constants, each
other, tables of jumps, and functions of the process by way of a jump. Everything lies in one stretch of memory, which is no longer
written to once it may be executed. Whatever else a file has is left to LLVM's linker; a file whose parts do not lie inside it and
inside each other is refused.

Formats: "System V Application Binary Interface, AMD64 Architecture Processor Supplement", 4.4; "ELF-64 Object File Format".
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
from collections.abc import Mapping, Sequence

from fusewise.errors import FusewiseError
from fusewise.records import record

__all__ = ["Code", "Unlinkable", "loaded"]

_IDENTITY = b"\x7fELF\x02\x01\x01"  # 64 bits, little endian, version 1
_RELOCATABLE, _X86_64 = 1, 62
_CONTENTS, _SYMBOLS, _NAMES, _RELOCATIONS, _UNWINDING = 1, 2, 3, 4, 0x70000001
_IN_FILE = frozenset({_CONTENTS, _SYMBOLS, _NAMES, _RELOCATIONS})
_WRITTEN, _HELD, _THREADS_OWN = 0x1, 0x2, 0x400
_RELATIVE, _CALL = 2, 4  # R_X86_64_PC32, R_X86_64_PLT32
_LOCAL = 0
_WORD_BYTES, _FARTHEST = 4, 1 << 31

_JUMP = b"\xff\x25\0\0\0\0"
"""To where the eight bytes behind it say."""

_STUB_BYTES = 16


_MOST_ALIGNED = 1 << 16
"""Sections of vectors want 64 bytes, and none more than a page."""


class Unlinkable(FusewiseError):
    """Generated code that cannot be linked: a fault of ours, or of the file it comes from."""


class _Unknown(Exception):
    """The file has something that is not understood here."""


@record(frozen=True, slots=True)
class Code:
    """Machine code in memory, there for as long as this object, and where its symbols lie."""

    pages: mmap.mmap
    addresses: Mapping[str, int]


@record(frozen=True, slots=True)
class _Section:
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    nbytes: int
    link: int
    info: int
    alignment: int
    entry_bytes: int


@record(frozen=True, slots=True)
class _Symbol:
    """`section` is 0 for one that is defined elsewhere; `seen` by other files."""

    name: str
    seen: bool
    section: int
    value: int


class _Object:
    """The parts of a file: sections, symbols, and where in memory, from the first byte of all, sections are put."""

    def __init__(self, image: bytes) -> None:
        kind, machine = struct.unpack_from("<HH", image, 16)
        if not image.startswith(_IDENTITY) or (kind, machine) != (_RELOCATABLE, _X86_64):
            raise ValueError("it is none of this system's")
        self.image = image
        (table,) = struct.unpack_from("<Q", image, 40)
        (count,) = struct.unpack_from("<H", image, 60)
        if table + 64 * count > len(image):
            raise ValueError("its table of sections reaches beyond it")
        self.sections = [_Section(*struct.unpack_from("<IIQQQQIIQQ", image, table + 64 * k)) for k in range(count)]
        for section in self.sections:
            if section.kind in _IN_FILE and section.offset + section.nbytes > len(image):
                raise ValueError("a section reaches beyond the file")
        self.places: dict[int, int] = {}
        tables = [section for section in self.sections if section.kind == _SYMBOLS]
        self.symbols = [self._symbol(table, k) for table in tables for k in range(table.nbytes // 24)]

    def _symbol(self, table: _Section, number: int) -> _Symbol:
        name, info, _, section, value = struct.unpack_from("<IBBHQ", self.image, table.offset + 24 * number)
        names = self.sections[table.link]
        end = names.offset + names.nbytes
        if names.kind != _NAMES:
            raise ValueError("symbols have no names")
        text = self.image[names.offset + name : self.image.index(b"\0", names.offset + name, end)].decode()
        return _Symbol(text, info >> 4 != _LOCAL, section, value)

    def put(self, end: int) -> int:
        """Find places for what is held in memory from `end` on; the new end."""
        for number, section in enumerate(self.sections):
            if not section.flags & _HELD or section.kind == _UNWINDING:
                continue
            if section.kind != _CONTENTS or section.flags & (_WRITTEN | _THREADS_OWN):
                raise _Unknown
            alignment = max(1, section.alignment)
            if alignment > _MOST_ALIGNED or alignment & (alignment - 1):
                raise ValueError("a section has no alignment that there is")
            self.places[number] = _aligned(end, alignment)
            end = self.places[number] + section.nbytes
        return end

    def relocations(self) -> list[tuple[int, _Symbol, int]]:
        """Where in memory how far away which symbol lies is to be written, and what is added to that."""
        found = []
        for section in self.sections:
            if section.kind != _RELOCATIONS or section.info not in self.places:
                continue
            begin, room = self.places[section.info], self.sections[section.info].nbytes
            for offset, kind, number, addend in struct.iter_unpack("<QIIq", self.contents(section)):
                symbol = self.symbols[number]
                if kind not in (_RELATIVE, _CALL) or symbol.section not in (0, *self.places):
                    raise _Unknown
                if offset + _WORD_BYTES > room or (symbol.section and not self.holds(symbol)):
                    raise ValueError("something outside of its section is referred to")
                found.append((begin + offset, symbol, addend))
        return found

    def holds(self, symbol: _Symbol) -> bool:
        """Does a symbol of this file lie in its section, or right behind it?"""
        return symbol.value <= self.sections[symbol.section].nbytes

    def contents(self, section: _Section) -> bytes:
        return self.image[section.offset : section.offset + section.nbytes]


def loaded(images: Sequence[bytes]) -> Code | None:
    """The code of these object files, linked; `addresses` has the symbols that other files may see. None where this system has
    files of another kind, or one has something that is left to LLVM.

    Raises `Unlinkable` when a symbol is defined twice, or nowhere, and when a file is damaged.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    end = 0
    try:
        objects = [_Object(image) for image in images]
        for one in objects:
            end = one.put(end)
        relocations = [one.relocations() for one in objects]
    except _Unknown:
        return None
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise Unlinkable(f"generated code could not be linked: an object file is damaged ({error})") from None
    defined = _defined(objects)
    outside = {symbol.name for found in relocations for _, symbol, _ in found if not symbol.section} - defined.keys()
    begin = _aligned(end, _STUB_BYTES)
    stubs = {name: begin + _STUB_BYTES * number for number, name in enumerate(sorted(outside))}
    pages = mmap.mmap(-1, begin + _STUB_BYTES * max(1, len(stubs)), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for name, place in stubs.items():
        pages[place : place + _STUB_BYTES] = (_JUMP + struct.pack("<Q", _of_process(name))).ljust(_STUB_BYTES, b"\0")
    for one, found in zip(objects, relocations, strict=True):
        for number, place in one.places.items():
            section = one.sections[number]
            pages[place : place + section.nbytes] = one.contents(section)
        for place, symbol, addend in found:
            target = one.places[symbol.section] + symbol.value if symbol.section else (defined | stubs)[symbol.name]
            if not -_FARTHEST <= target + addend - place < _FARTHEST:
                raise Unlinkable(f"generated code could not be linked: {symbol.name or 'a constant'} is too far away")
            struct.pack_into("<i", pages, place, target + addend - place)
    return Code(pages, _executable(pages, defined))


def _aligned(place: int, alignment: int) -> int:
    return -(-place // alignment) * alignment


def _defined(objects: Sequence[_Object]) -> dict[str, int]:
    """The place of every symbol that other files see."""
    found: dict[str, int] = {}
    for one in objects:
        for symbol in one.symbols:
            if symbol.seen and symbol.section in one.places and one.holds(symbol):
                if symbol.name in found:
                    raise Unlinkable(f"generated code could not be linked: {symbol.name} is defined twice")
                found[symbol.name] = one.places[symbol.section] + symbol.value
    return found


def _of_process(name: str) -> int:
    try:
        return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value or 0
    except AttributeError:
        raise Unlinkable(f"generated code could not be linked: there is no function {name}") from None


def _executable(pages: mmap.mmap, places: Mapping[str, int]) -> dict[str, int]:
    """Addresses of places in memory that can be executed from here on, and not be written to."""
    system = ctypes.CDLL(None, use_errno=True)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    if system.mprotect(ctypes.c_void_p(begin), ctypes.c_size_t(len(pages)), mmap.PROT_READ | mmap.PROT_EXEC):
        raise Unlinkable(f"the system does not let generated code be executed (error {ctypes.get_errno()})")
    return {name: begin + place for name, place in places.items()}
