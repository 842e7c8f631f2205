"""A kernel whose every load and store first looks whether it touches its operands and nothing else.

Takes a kernel as text and gives it as text, so that whatever kernels write is looked at, and those that are not checked are what
they were. The exported function finds, in the word before its pointers, the address of a table of 64-bit words: `HEADER` of them,
where the first access that fails is noted and the address of memory for what goes wrong, then for every pointer where it may
be used from, up to where, and whether to write. An access that fails goes to that memory instead, and the run on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from fusewise.lower.program import KernelCode

__all__ = ["FAULT", "HEADER", "RANGE_WORDS", "bytes_of", "checked", "checked_code", "type_of"]

FAULT = ("found", "argument", "address", "nbytes", "writes")
"""The first words of the table: is anything wrong, with which pointer (-1: one of them all), and what was tried."""

HEADER = len(FAULT) + 2
"""Behind them the address of memory for what goes wrong, and how many pointers there are."""

RANGE_WORDS = 3

_STACK, _TABLE = "stack", "table"
"""Where pointers come from that are no argument: memory of the function itself, and constants of its module."""

_CONSTANT = re.compile(r"(@\S+) = private unnamed_addr constant \[(\d+ x \S+)\]")
_ACCESS = re.compile(r"\b(load|store|llvm\.mem\w+|llvm\.masked\.\w+)\b")
_LOAD = re.compile(r"  (%\S+) = load (.+), ptr (\S+), align (\d+)$")
_STORE = re.compile(r"  store (.+), ptr (\S+), align (\d+)$")
_MASKED = re.compile(r"  (?:%\S+ = )?call .+? @llvm\.masked\.(load|store)\.v(\d+)[a-z]+(\d+)\.p0\(")
_WHERE = re.compile(r"\bptr (\S+), i32 \d+, (<\d+ x i1>) (%[^\s,)]+|<[^>]*>|zeroinitializer)")
_COPY = re.compile(r"ptr align \d+ (\S+), ptr align \d+ (\S+), i64 (\S+), i1 false")
_FILL = re.compile(r"ptr align \d+ (\S+), i8 \S+, i64 (\S+), i1 false")
_DERIVED = re.compile(r"  (%\S+) = (?:getelementptr .*?, ptr (\S+?),|call ptr @llvm\.launder\S+\(ptr (\S+)\))")
_MERGED = re.compile(r"  (%\S+) = (?:phi ptr (.*)|select i1 \S+, ptr (\S+), ptr (\S+))$")


def checked(text: str, symbol: str) -> str:
    """The module of the kernel `symbol`, checked."""
    lines = text.split("\n")
    found: list[str] = []
    start = 0
    for number, line in enumerate(lines):
        if line.startswith("define "):
            start = number
        if line == "}":
            found.extend(_function(lines[start : number + 1], symbol))
            start = number + 1
        elif not any(each.startswith("define ") for each in lines[start : start + 1]):
            found.append(line)
            start = number + 1
    declared = {line for line in found if line.startswith("declare ")}
    needed = [line for line in _DECLARATIONS if line not in declared]
    tables = [(each[1], bytes_of(f"<{each[2]}>")) for each in map(_CONSTANT.match, lines) if each is not None]
    return "\n".join([*needed, *found, _routines(tables)])


def checked_code(code: KernelCode) -> KernelCode:
    """A kernel, checked."""
    return replace(code, key=f"{code.key}|checked", build=lambda: checked(code.build(), code.symbol))


def _function(lines: list[str], symbol: str) -> Iterator[str]:
    """A function: the exported one hands the table on, its body looks at every access."""
    head = lines[0]
    if f"@{symbol}(" in head:
        for line in lines:
            if f"@{symbol}_body(" in line:
                yield "  %table.at = getelementptr ptr, ptr %a0, i64 -1"
                yield "  %table = load ptr, ptr %table.at, align 8"
                line = f"{line[:-1]}, ptr %table)"
            yield line
        return
    if f"@{symbol}_body(" not in head:
        yield from lines
        return
    opening, closing = head.rsplit(")", 1)
    yield f"{opening.replace('ptr noalias', 'ptr')}, ptr %table){closing}"
    yield from _Body(lines[1:]).lines()


class _Body:
    """The lines of a kernel's body, and where its pointers come from."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._bases: dict[str, tuple[str, ...]] = {}
        self._number = 0
        for line in lines:
            if " = alloca " in line:
                self._bases[line.split()[0]] = (_STACK,)
            elif (derived := _DERIVED.match(line)) is not None:
                self._bases[derived[1]] = (derived[2] or derived[3],)
            elif (merged := _MERGED.match(line)) is not None:
                pairs = re.findall(r"\[ (\S+), ", merged[2]) if merged[2] else [merged[3], merged[4]]
                self._bases[merged[1]] = tuple(pairs)

    def lines(self) -> Iterator[str]:
        for line in self._lines:
            yield from self._checked(line) if _ACCESS.search(line) else (line,)

    def _checked(self, line: str) -> Iterator[str]:
        if (load := _LOAD.match(line)) is not None:
            yield from self._replaced(line, load[3], bytes_of(load[2]), 0)
        elif (store := _STORE.match(line)) is not None:
            yield from self._replaced(line, store[2], bytes_of(type_of(store[1])), 1)
        elif (masked := _MASKED.match(line)) is not None:
            yield from self._masked(line, int(masked[2]), int(masked[3]) // 8, int(masked[1] == "store"))
        elif "@llvm.memcpy" in line and (copy := _COPY.search(line)) is not None:
            yield from self._bulk(line, ((copy[1], 1), (copy[2], 0)), copy[3])
        elif "@llvm.memset" in line and (fill := _FILL.search(line)) is not None:
            yield from self._bulk(line, ((fill[1], 1),), fill[2])
        else:
            raise ValueError(f"an access that is not known: {line.strip()}")

    def _replaced(self, line: str, pointer: str, nbytes: int | str, writes: int) -> Iterator[str]:
        """The access, by a pointer that is good."""
        argument = self._argument(pointer)
        if argument is None:
            yield line
            return
        good = self._name()
        yield f"  {good} = call ptr @fw.checked({_given(pointer, nbytes, writes, argument)})"
        yield re.sub(rf"ptr {re.escape(pointer)}(?=[,\s)]|$)", f"ptr {good}", line)

    def _masked(self, line: str, lanes: int, element: int, writes: int) -> Iterator[str]:
        where = _WHERE.search(line)
        assert where is not None, line
        pointer, argument = where[1], self._argument(where[1])
        if argument is None:
            yield line
            return
        bits, wide, good = (self._name() for _ in range(3))
        yield f"  {bits} = bitcast {where[2]} {where[3]} to i{lanes}"
        yield f"  {wide} = zext i{lanes} {bits} to i64" if lanes < 64 else f"  {wide} = add i64 {bits}, 0"
        yield f"  {good} = call ptr @fw.masked(i64 {wide}, {_given(pointer, element, writes, argument)})"
        yield re.sub(rf"ptr {re.escape(pointer)},", f"ptr {good},", line)

    def _bulk(self, line: str, pointers: tuple[tuple[str, int], ...], nbytes: str) -> Iterator[str]:
        """A copy, or filling, that is done when all of it is good."""
        length = nbytes
        for pointer, writes in pointers:
            argument = self._argument(pointer)
            if argument is None:
                continue
            good, same, left = (self._name() for _ in range(3))
            yield f"  {good} = call ptr @fw.checked({_given(pointer, nbytes, writes, argument)})"
            yield f"  {same} = icmp eq ptr {good}, {pointer}"
            yield f"  {left} = select i1 {same}, i64 {length}, i64 0"
            length = left
        yield line.replace(f"i64 {nbytes}, i1 false", f"i64 {length}, i1 false")

    def _argument(self, pointer: str) -> int | None:
        """Which of the kernel's pointers this one comes from, -1 where that is not known here; None where it is no matter."""
        roots: set[str] = set()
        stack, seen = [pointer], set[str]()
        while stack:
            name = stack.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in self._bases:
                stack.extend(self._bases[name])
            else:
                roots.add(_TABLE if name.startswith("@") else name)
        if _STACK in roots or roots == {_TABLE}:
            return None
        roots.discard(_TABLE)  # which is allowed for every argument
        (root,) = roots if len(roots) == 1 else ("",)
        return int(root[2:]) if re.fullmatch(r"%a\d+", root) else -1

    def _name(self) -> str:
        self._number += 1
        return f"%check{self._number}"


def _given(pointer: str, nbytes: int | str, writes: int, argument: int) -> str:
    return f"ptr {pointer}, i64 {nbytes}, i64 {writes}, i64 {argument}, ptr %table"


def type_of(operand: str) -> str:
    """The type at the beginning of an operand."""
    return operand[: operand.index(">") + 1] if operand.startswith("<") else operand.split(" ", 1)[0]


def bytes_of(kind: str) -> int:
    """Bytes of an LLVM type: a scalar, or a vector of them."""
    lanes, element = 1, kind
    if kind.startswith("<"):
        count, _, element = kind[1:-1].partition(" x ")
        lanes = int(count)
    known = {"float": 4, "double": 8, "half": 2, "bfloat": 2, "ptr": 8}
    return lanes * (known[element] if element in known else -(-int(element[1:]) // 8))


_DECLARATIONS = ("declare i64 @llvm.cttz.i64(i64, i1)", "declare i64 @llvm.ctlz.i64(i64, i1)")


def _routines(tables: list[tuple[str, int]]) -> str:
    """What every access calls; a module's own `tables`, by size in bytes, may be read beside the arguments."""
    own: list[str] = []
    for k, (name, nbytes) in enumerate(tables):
        own += [
            f"  %own.{k} = ptrtoint ptr {name} to i64",
            f"  %into.{k} = sub i64 %low, %own.{k}",
            f"  %left.{k} = sub i64 {nbytes}, %nbytes",
            f"  %in.{k} = icmp ule i64 %into.{k}, %left.{k}",
            f"  %any.{k} = or i1 %in.{k}, {f'%any.{k - 1}' if k else '%never'}",
        ]
    return _ROUTINES.replace("  ; own\n", "".join(f"{line}\n" for line in own)).replace(
        "%any,", f"%any.{len(tables) - 1}," if tables else "%never,"
    )


_ROUTINES = f"""
define internal ptr @fw.checked(ptr %pointer, i64 %nbytes, i64 %writes, i64 %argument, ptr %table) noinline nounwind {{
entry:
  %low = ptrtoint ptr %pointer to i64
  %high = add i64 %low, %nbytes
  %none = icmp sle i64 %nbytes, 0
  br i1 %none, label %good, label %some
some:
  %is.one = icmp sge i64 %argument, 0
  %count.at = getelementptr i64, ptr %table, i64 {HEADER - 1}
  %count = load i64, ptr %count.at, align 8
  %behind = add i64 %argument, 1
  %from = select i1 %is.one, i64 %argument, i64 0
  %to = select i1 %is.one, i64 %behind, i64 %count
  br label %look
look:
  %k = phi i64 [ %from, %some ], [ %next, %more ]
  %word = mul i64 %k, {RANGE_WORDS}
  %ranges = getelementptr i64, ptr %table, i64 {HEADER}
  %range = getelementptr i64, ptr %ranges, i64 %word
  %end.at = getelementptr i64, ptr %range, i64 1
  %may.at = getelementptr i64, ptr %range, i64 2
  %begin = load i64, ptr %range, align 8
  %end = load i64, ptr %end.at, align 8
  %may = load i64, ptr %may.at, align 8
  %after = icmp sge i64 %low, %begin
  %before = icmp sle i64 %high, %end
  %allowed = icmp sle i64 %writes, %may
  %inside = and i1 %after, %before
  %fine = and i1 %inside, %allowed
  br i1 %fine, label %good, label %more
more:
  %next = add i64 %k, 1
  %again = icmp slt i64 %next, %to
  br i1 %again, label %look, label %beside
beside:
  %never = icmp slt i64 %nbytes, 0
  ; own
  br i1 %any, label %good, label %bad
bad:
  %found = load i64, ptr %table, align 8
  %is.first = icmp eq i64 %found, 0
  br i1 %is.first, label %note, label %away
note:
  %argument.at = getelementptr i64, ptr %table, i64 1
  %address.at = getelementptr i64, ptr %table, i64 2
  %nbytes.at = getelementptr i64, ptr %table, i64 3
  %writes.at = getelementptr i64, ptr %table, i64 4
  store i64 %argument, ptr %argument.at, align 8
  store i64 %low, ptr %address.at, align 8
  store i64 %nbytes, ptr %nbytes.at, align 8
  store i64 %writes, ptr %writes.at, align 8
  store i64 1, ptr %table, align 8
  br label %away
away:
  %sink.at = getelementptr i64, ptr %table, i64 {HEADER - 2}
  %sink = load ptr, ptr %sink.at, align 8
  ret ptr %sink
good:
  ret ptr %pointer
}}

define internal ptr @fw.masked(i64 %mask, ptr %pointer, i64 %element, i64 %writes, i64 %argument, ptr %table) noinline nounwind {{
entry:
  %none = icmp eq i64 %mask, 0
  br i1 %none, label %good, label %some
some:
  %first = call i64 @llvm.cttz.i64(i64 %mask, i1 false)
  %above = call i64 @llvm.ctlz.i64(i64 %mask, i1 false)
  %behind = sub i64 64, %above
  %lanes = sub i64 %behind, %first
  %skip = mul i64 %first, %element
  %nbytes = mul i64 %lanes, %element
  %start = getelementptr i8, ptr %pointer, i64 %skip
  %other = call ptr @fw.checked(ptr %start, i64 %nbytes, i64 %writes, i64 %argument, ptr %table)
  %same = icmp eq ptr %other, %start
  br i1 %same, label %good, label %bad
bad:
  ret ptr %other
good:
  ret ptr %pointer
}}
"""
