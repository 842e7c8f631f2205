"""A kernel that tells of every load, store and prefetch before it makes it.

Takes LLVM IR as the optimiser leaves it and gives it as text, so that what is told is what machine code does, but for registers
that the back end spills. The listener is a function of the text `listener`, which the module gets a copy of:
`void @fw.touch(ptr address, i64 bytes, i64 instructions, i64 kind)`. A vector wider than a register takes several instructions, a
copy or filling one for each register; a masked access is told with the bytes from its first to its last lane.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fusewise.codegen.llvm.checked import bytes_of, type_of
from fusewise.errors import UnsupportedModel

__all__ = ["LOAD", "PREFETCH", "STORE", "traced"]

LOAD, STORE, PREFETCH = 0, 1, 2
"""Kinds of accesses. A prefetch is of kind `PREFETCH` for all levels of the cache, one more for each level that it leaves out."""

_ACCESS = re.compile(r"^  (?:%\S+ = )?(?:(?:tail|musttail|notail) )?(load|store|call|atomicrmw|cmpxchg) (.*)$")
_MASKED = re.compile(r"@llvm\.masked\.(load|store)\.v(\d+)[a-z]+(\d+)\.p0\(")
_BULK = re.compile(r"@llvm\.mem(cpy|move|set)\.\w[\w.]*\(")
_PREFETCH = re.compile(r"@llvm\.prefetch\.p0\(")
_ELSEWHERE = re.compile(r"@llvm\.(mem|masked)\w*\.|\b(tile|gather|scatter)\w*\(")
_KNOWN = re.compile(r"(?:<\d+ x )?(?:i\d+|float|double|half|bfloat|ptr)>?")
_MASK = re.compile(r"(<\d+ x i1>) (.+)$")


def traced(text: str, listener: str, register_bytes: int) -> str:
    """The module, with the listener in it. `UnsupportedModel` for an instruction that reaches memory in a way that is not known."""
    tracer = _Tracer(register_bytes)
    lines = [each for line in text.split("\n") for each in tracer.lines(line)]
    missing = [line for line in _DECLARATIONS if line.split("@")[1].split("(")[0] not in text]
    return "\n".join([*lines, *missing, listener])


class _Tracer:
    """Puts before each access the call that tells of it."""

    def __init__(self, register_bytes: int) -> None:
        self._register_bytes = register_bytes
        self._number = 0

    def lines(self, line: str) -> Iterator[str]:
        access = _ACCESS.match(line)
        if access is not None:
            yield from self._told(access[1], access[2], line)
        yield line

    def _told(self, what: str, rest: str, line: str) -> Iterator[str]:
        if what in ("load", "store"):
            first, pointer = (part.removeprefix("volatile ") for part in _parts(rest)[:2])
            kind = first if what == "load" else type_of(first)
            if not _KNOWN.fullmatch(kind):
                raise _unknown(line)
            yield self._touch(_pointer(pointer), bytes_of(kind), LOAD if what == "load" else STORE)
        elif what == "call":
            yield from self._called(rest, line)
        else:
            raise _unknown(line)

    def _called(self, rest: str, line: str) -> Iterator[str]:
        if (masked := _MASKED.search(rest)) is not None:
            yield from self._masked(rest[masked.end() :], int(masked[2]), int(masked[3]) // 8, masked[1])
        elif (bulk := _BULK.search(rest)) is not None:
            operands = _parts(rest[bulk.end() :])
            nbytes = operands[2].split()[-1]
            if bulk[1] != "set":
                yield from self._spread(_pointer(operands[1]), nbytes, LOAD)
            yield from self._spread(_pointer(operands[0]), nbytes, STORE)
        elif (fetch := _PREFETCH.search(rest)) is not None:
            operands = _parts(rest[fetch.end() :])
            locality = int(operands[2].split()[-1])
            yield self._touch(_pointer(operands[0]), 1, PREFETCH + (3 - locality if locality else 0))
        elif _ELSEWHERE.search(rest) is not None:
            raise _unknown(line)

    def _touch(self, pointer: str, nbytes: int, kind: int) -> str:
        count = -(-nbytes // self._register_bytes)
        return f"  call void @fw.touch(ptr {pointer}, i64 {nbytes}, i64 {count}, i64 {kind})"

    def _spread(self, pointer: str, nbytes: str, kind: int) -> Iterator[str]:
        """So many bytes, a register at a time."""
        more, count = self._name(), self._name()
        yield f"  {more} = add i64 {nbytes}, {self._register_bytes - 1}"
        yield f"  {count} = udiv i64 {more}, {self._register_bytes}"
        yield f"  call void @fw.touch(ptr {pointer}, i64 {nbytes}, i64 {count}, i64 {kind})"

    def _masked(self, rest: str, lanes: int, element: int, what: str) -> Iterator[str]:
        operands = _parts(rest)
        pointer = _pointer(operands[what == "store"])
        mask = next(found for operand in operands if (found := _MASK.search(operand)) is not None)
        bits, wide = self._name(), self._name()
        count, kind = -(-lanes * element // self._register_bytes), LOAD if what == "load" else STORE
        yield f"  {bits} = bitcast {mask[1]} {mask[2]} to i{lanes}"
        yield f"  {wide} = zext i{lanes} {bits} to i64" if lanes < 64 else f"  {wide} = add i64 {bits}, 0"
        yield f"  call void @fw.touch.lanes(ptr {pointer}, i64 {wide}, i64 {element}, i64 {count}, i64 {kind})"

    def _name(self) -> str:
        self._number += 1
        return f"%told{self._number}"


def _unknown(line: str) -> UnsupportedModel:
    return UnsupportedModel(f"memory accesses cannot be counted: nothing is known of `{line.strip()}`")


def _parts(text: str) -> list[str]:
    """The operands of an instruction, or of a call from behind its opening bracket up to its end."""
    found, depth, start = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign in "(<[{") - (sign in ")>]}")
        if depth < 0 or (sign == "," and depth == 0):
            found.append(text[start:place].strip())
            start = place + 1
        if depth < 0:
            break
    else:
        found.append(text[start:].strip())
    return found


def _pointer(operand: str) -> str:
    """The pointer of an operand, without what is said of it."""
    constant = re.search(r"(?:getelementptr|inttoptr|addrspacecast)\b.*$", operand)
    return operand.split()[-1] if constant is None else constant[0]


_DECLARATIONS = ("declare i64 @llvm.cttz.i64(i64, i1)", "declare i64 @llvm.ctlz.i64(i64, i1)")
