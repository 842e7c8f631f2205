"""TopK: an element's place among the results is how many others of its line are better, which every element counts for itself.

    rank[j] = sum(i: key[i] < key[j] or (key[i] == key[j] and i < j))
    if rank[j] < k: out[rank[j]] = in[j]

Ranks are a permutation, so each result is written once, and answers repeat. All blocks have a part in that, of one line, too. Of a
long line the best k of each chunk are found first (their places go to working memory), then the best of these. Elements become
keys, unsigned integers of which smaller ones are better (as in `llvm.radix_sort`): equal numbers have one, and NaN is larger than
any. Keys of up to 32 bits are compared together with their places.
"""

from __future__ import annotations

import math
from dataclasses import replace

from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.kernel import SCRATCH, GpuKernel, NoKernel, arguments_of
from fusewise.codegen.gpu.nests import next_power, warps_for
from fusewise.codegen.gpu.source import Scope, TritonWriter, decoded, is_int32
from fusewise.codegen.gpu.words import TritonTerm
from fusewise.ir.dtypes import dtype_named
from fusewise.lower.index import Simplifier
from fusewise.lower.task import Store, Task
from fusewise.ops.expr import Expr, binary, bits, cast, compare, const, index, select, unary
from fusewise.records import record

__all__ = ["MOST_COMPARISONS", "top_k"]

MOST_COMPARISONS = 1 << 34
"""Of keys; about as long as a transfer to the host and back of as many elements. Not measured on a GPU."""
_SECOND = 1 << 24
"""Comparisons that a second launch takes as long as. Not measured on a GPU."""
_CHUNKS = tuple(1 << bits for bits in range(9, 16))
_MINE, _OTHERS = 32, 256
"""Elements of a block, and how many others they are compared with at once."""
_SHORT = 64
"""Elements of a line up to which a block has several lines."""
_TILE = 4096

_KEYS = {size: dtype_named(f"uint{8 * size}") for size in (1, 2, 4, 8)}
_WIDE = _KEYS[8]
_RANK = "rank"


def top_k(task: Task, device: Device, precision: str) -> GpuKernel:
    """A kernel or two for TopK; `NoKernel` for others, and for lines that are too long."""
    if task.anchor is None or task.anchor.family != "top_k":
        raise NoKernel("no TopK")
    if not task.is_fixed:
        raise NoKernel("a kernel for a GPU is written for known sizes")
    lines = _Lines.of(task)
    chunk = lines.chunk
    whole = _Stage(lines, lines.length, lines.length, False)
    if chunk == lines.length:
        return _written(whole)
    first = _Stage(lines, lines.length, chunk, False)
    behind = _written(_Stage(lines, first.kept, first.kept, True))
    return replace(_written(first), scratch_bytes=4 * lines.count * first.kept, then=(behind,))


@record(frozen=True)
class _Lines:
    """`count` lines along `axis`, each of `length` elements, of which `wanted` are. `task` has the data's index space; `digest` is
    that of the task as it was, which says which are the best."""

    task: Task
    digest: str
    key: Expr
    axis: int
    count: int
    length: int
    wanted: int

    @classmethod
    def of(cls, task: Task) -> _Lines:
        anchor, data = task.anchored, task.anchored.operand_type(0)
        arguments_of(task)
        if not is_int32(0, data.size + _TILE):  # lanes behind the last are numbered, too
            raise NoKernel(f"TopK of {data.size} elements")
        axis, element = anchor.attribute("axis", -1) % len(task.extents), anchor.element(0)
        length, wanted = data.dims[axis], task.extents[axis]
        at = tuple(index(_RANK if d == axis else f"i{d}") for d in range(len(task.extents)))
        stores = tuple(
            Store(one.operand, at, index(f"i{axis}") if one.operand == "out1" else element) for one in task.stores
        )
        found = replace(task, extents=data.dims, stores=stores, anchor=None)
        key = _key(element, bool(anchor.attribute("largest", 1)))
        return cls(found, task.digest, key, axis, math.prod(data.dims) // max(1, length), length, wanted)

    @property
    def chunk(self) -> int:
        """Elements that compete first; all of a line where that is as good."""

        def cost(chunk: int) -> int:
            kept = _kept(self.length, chunk, self.wanted)
            return self.count * (self.length * chunk + kept * kept) + _SECOND

        most = {chunk: cost(chunk) for chunk in _CHUNKS if 2 * self.wanted <= chunk <= self.length // 2}
        most[self.length] = self.count * self.length**2
        best = min(most, key=lambda chunk: most[chunk])
        if most[best] > MOST_COMPARISONS:
            raise NoKernel(f"the best {self.wanted} of {self.count} lines of {self.length} elements")
        return best


def _kept(length: int, chunk: int, wanted: int) -> int:
    """How many are left of a line when each chunk has given its best."""
    return length // chunk * min(wanted, chunk) + min(wanted, length % chunk)


def _key(x: Expr, largest: bool) -> Expr:
    """An element as an unsigned integer of its width, smaller where it is better."""
    dtype = x.dtype
    if dtype.bits < 8 or dtype.itemsize not in _KEYS or not (dtype.is_integer or (dtype.is_float and dtype.bits > 8)):
        raise NoKernel(f"TopK of {dtype.name}")
    kind = _KEYS[dtype.itemsize]
    sign, most = const(1 << (dtype.bits - 1), kind), const((1 << dtype.bits) - 1, kind)
    raw = bits(x, kind)
    if dtype.is_float:
        ordered = select(compare("ge", raw, sign), unary("bitnot", raw), binary("bitor", raw, sign))
        ordered = select(compare("eq", x, const(0.0, dtype)), sign, ordered)
        ordered = select(unary("isnan", x), most, ordered)
    else:
        ordered = binary("bitxor", raw, sign) if dtype.kind == "int" else raw
    return unary("bitnot", ordered) if largest else ordered


@record(frozen=True)
class _Stage:
    """A launch: of each line `members` compete, in chunks. With `looks_up` they are those whose places are in working memory. Of
    more chunks than one the best ones' places go there; else they are the results."""

    lines: _Lines
    members: int
    chunk: int
    looks_up: bool

    @property
    def chunks(self) -> int:
        return -(-self.members // self.chunk)

    @property
    def kept(self) -> int:
        return _kept(self.members, self.chunk, self.lines.wanted)

    @property
    def is_flat(self) -> bool:
        """Does a block have elements of several lines?"""
        return self.chunks == 1 and self.members <= _SHORT

    @property
    def others(self) -> int:
        return min(_OTHERS, next_power(self.chunk))

    @property
    def mine(self) -> int:
        if not self.is_flat:
            return _MINE
        return min(_TILE // self.others, next_power(self.lines.count * self.members))

    @property
    def blocks(self) -> int:
        if self.is_flat:
            return -(-self.lines.count * self.members // self.mine)
        return self.lines.count * self.chunks * -(-self.chunk // self.mine)


def _written(stage: _Stage) -> GpuKernel:
    lines, task = stage.lines, stage.lines.task
    arguments = arguments_of(task)
    if stage.looks_up or stage.chunks > 1:
        arguments[SCRATCH] = ("i32", 16)
    writer = TritonWriter(task)
    writer.simplifier = Simplifier({**task.ranges, _RANK: lines.wanted})
    _Writing(stage, writer).all()
    types, alignments = zip(*arguments.values(), strict=True)
    part = f"_{stage.members}_{stage.chunk}" if SCRATCH in arguments else ""
    symbol, warps = f"top_{lines.digest}{part}", warps_for(stage.mine * stage.others, 32)
    of = f" of {stage.members}" if stage.looks_up else f" in chunks of {stage.chunk}" if stage.chunks > 1 else ""
    way = f"the best{of}, {stage.mine} to a block beside {stage.others}"
    source = writer.source(symbol, arguments)
    blocks = 0 if 0 in (lines.wanted, lines.count) else stage.blocks
    return GpuKernel(symbol, source, tuple(arguments), types, alignments, (blocks,), warps, way=way)


@record
class _Writing:
    """The text of one stage."""

    stage: _Stage
    writer: TritonWriter

    def _named(self, text: str, shape: tuple[int, ...] = (), kind: str = "int32") -> TritonTerm:
        return TritonTerm(self.writer.name(text), kind, shape)

    def all(self) -> None:
        stage, writer, words = self.stage, self.writer, self.writer.words
        mine, others = (stage.mine, 1), (1, stage.others)
        line, chunk, member, bound = self._mine()
        own = self._scope(line, member, (bound,))
        own_key = own.value(self._key())
        count, start = writer.name(f"tl.zeros([{stage.mine}, {stage.others}], tl.int32)"), writer.fresh()
        depth = writer.depth
        writer.put(f"for {start} in range(0, {stage.chunk}, {stage.others}):", 1)
        step = self._named(f"tl.full([], 0, tl.int32) + {start} + tl.arange(0, {stage.others})[None, :]", others)
        there = self._inside(step, chunk)
        other = self._named(f"{step.text} + {chunk.text} * {stage.chunk}", others) if stage.chunks > 1 else step
        key = self._scope(line, other, (bound, there)).value(self._key())
        better = words.compare("lt", key, own_key)
        if not self._is_packed:
            same = words.compare("eq", key, own_key)
            place, own_place = other, member  # of candidates that are equal the first lies first
            better = self._named(f"{better.text} | ({same.text} & ({place.text} < {own_place.text}))", mine, "int1")
        writer.put(f"{count} += ({better.text} & {there.text}).to(tl.int32)")
        writer.depth = depth
        rank = self._named(f"tl.sum({count}, 1)[:, None]", mine)
        self._keep(own, rank, line, chunk)

    @property
    def _is_packed(self) -> bool:
        return self.stage.lines.key.dtype.bits <= 32

    def _key(self) -> Expr:
        """What an element is compared by."""
        lines = self.stage.lines
        if not self._is_packed:
            return lines.key
        high = binary("mul", cast(lines.key, _WIDE), const(1 << 32, _WIDE))
        return binary("bitor", high, cast(index(f"i{lines.axis}"), _WIDE))

    def _mine(self) -> tuple[TritonTerm, TritonTerm, TritonTerm, TritonTerm]:
        """Line, chunk and number of a block's members, and which of them there are."""
        stage, words = self.stage, self.writer.words
        shape = (stage.mine, 1)
        block, zero = self._named("tl.program_id(0)"), TritonTerm("0", "int32", (), 0)
        lanes = f"tl.arange(0, {stage.mine})[:, None]"
        if stage.is_flat:
            number = self._named(f"{block.text} * {stage.mine} + {lanes}", shape)
            bound = words.term(f"{number.text} < {stage.lines.count * stage.members}", "int1", number)
            line = self._named(f"{number.text} // {stage.members}", shape)
            return line, zero, self._named(f"{number.text} % {stage.members}", shape), bound
        tiles = -(-stage.chunk // stage.mine)
        number = self._named(f"{block.text} % {tiles} * {stage.mine} + {lanes}", shape)
        chunk = self._named(f"{block.text} // {tiles} % {stage.chunks}") if stage.chunks > 1 else zero
        line = self._named(f"{block.text} // {tiles * stage.chunks}")
        member = self._named(f"{number.text} + {chunk.text} * {stage.chunk}", shape) if stage.chunks > 1 else number
        return line, chunk, member, self._inside(number, chunk)

    def _inside(self, number: TritonTerm, chunk: TritonTerm) -> TritonTerm:
        """Is there a member of a chunk by that number?"""
        stage = self.stage
        text = f"({number.text} < {stage.chunk})"
        if stage.members % stage.chunk:
            text += f" & ({number.text} + {chunk.text} * {stage.chunk} < {stage.members})"
        return self._named(text, number.shape, "int1")

    def _scope(self, line: TritonTerm, member: TritonTerm, bounds: tuple[TritonTerm, ...]) -> Scope:
        """Where members' places are known."""
        lines, writer = self.stage.lines, self.writer
        axes = [(f"i{d}", extent) for d, extent in enumerate(lines.task.extents) if d != lines.axis]
        place = member
        if self.stage.looks_up:
            where = f"{line.text} * {self.stage.members} + {member.text}"
            shape = member.shape if not line.shape else (self.stage.mine, member.shape[1])
            mask = bounds[-1].text if shape == bounds[-1].shape else " & ".join(one.text for one in bounds)
            place = self._named(f"tl.load({SCRATCH} + ({where}), mask={mask}, other=0)", shape)
        return Scope(writer, {**decoded(writer, line, axes), f"i{lines.axis}": place}, bounds)

    def _keep(self, own: Scope, rank: TritonTerm, line: TritonTerm, chunk: TritonTerm) -> None:
        """Write those whose rank is among the best."""
        stage, words, wanted = self.stage, self.writer.words, self.stage.lines.wanted
        best = words.term(f"{rank.text} < {wanted}", "int1", rank)
        if stage.chunks == 1:
            scope = own.inside({_RANK: rank}).under(best)
            for store in stage.lines.task.stores:
                scope.store(store)
            return
        (bound,) = own.bounds
        where = f"{line.text} * {stage.kept} + {chunk.text} * {min(wanted, stage.chunk)} + {rank.text}"
        place = own.indices[f"i{stage.lines.axis}"]
        self.writer.put(f"tl.store({SCRATCH} + ({where}), {place.text}, mask={bound.text} & {best.text})")
