"""A model of the processor's data caches, fed with the addresses that machine code touches.

Levels are set-associative with lines of 64 bytes and replace the line that was used longest ago. A line is looked for level by
level and then is in all levels down to where it was found; a store fetches its line as a load does. Levels of one core are one for
each worker, others are shared. Not modelled: fetching ahead by the hardware, writing back, translation of addresses (sets are
chosen by virtual addresses), and what other programs put in the way.

The model itself is machine code, a function of LLVM IR text that every traced kernel has a copy of (`codegen.llvm.traced`); what
it knows is one array of 64-bit words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fusewise.codegen.llvm.traced import PREFETCH
from fusewise.codegen.target import LINE_BYTES
from fusewise.errors import UsageError
from fusewise.runtime.arena import address_of
from fusewise.runtime.host import host_target
from fusewise.words import bytes_of

__all__ = ["CacheLevel", "Caches", "Counts", "counts_of", "host_levels", "parsed_levels"]

_SYSTEM = Path("/")
_COUNTERS, _LAST, _HEADER = 6, 6, 7
"""Words: loads, stores and prefetches, then the bytes of each; the line touched last; then, of each level, where the tags of the
worker are, misses, and misses of prefetches."""

_SCALE, _LARGEST = {"": 0, "K": 10, "M": 20, "G": 30}, 1 << 30
_NOTHING = -1
_FARTHEST = 4
"""An instruction fetches into one of so many levels; where there are fewer, into the last."""


@dataclass(frozen=True, slots=True)
class CacheLevel:
    """One level of the caches: its size and how many lines a set holds; `shared` by all workers, or one for each."""

    name: str
    nbytes: int
    ways: int
    shared: bool = False

    @property
    def sets(self) -> int:
        return max(1, self.nbytes // (self.ways * LINE_BYTES))


@dataclass(frozen=True, slots=True)
class Counts:
    """What code did to memory: instructions that load, store and prefetch, the bytes of loads and stores, and for each level of the
    caches the lines that it did not hold, when loads and stores wanted them (`misses`) and when prefetches did (`fetched`)."""

    loads: int
    stores: int
    prefetches: int
    bytes_loaded: int
    bytes_stored: int
    misses: tuple[int, ...]
    fetched: tuple[int, ...]

    @property
    def accesses(self) -> int:
        """Loads and stores."""
        return self.loads + self.stores

    def lines(self, level: int) -> int:
        """Lines that a level got from the next, whoever wanted them."""
        return self.misses[level] + self.fetched[level]


class Caches:
    """The model's memory: `listener` is its function as text, `counts` what it has counted since `clear`."""

    def __init__(self, levels: Sequence[CacheLevel], workers: int = 1) -> None:
        """Empty caches for so many workers."""
        self.levels, self.workers = tuple(levels), workers
        sizes = [level.sets * level.ways for level in self.levels]
        copies = [1 if level.shared else workers for level in self.levels]
        self._header = _HEADER + 3 * len(self.levels)
        starts = np.cumsum([self._header, *(a * b for a, b in zip(sizes, copies, strict=True))])
        self._words = np.full(int(starts[-1]), _NOTHING, np.int64)
        self._words[: self._header] = 0
        self._bases = [
            [int(start) + (0 if level.shared else worker * size) for worker in range(workers)]
            for level, start, size in zip(self.levels, starts, sizes, strict=False)
        ]
        self.use(0)

    @property
    def listener(self) -> str:
        """LLVM IR text of `@fw.touch` and `@fw.touch.lanes`. It names the place of this object's words: keep the object for as long
        as code with it may run."""
        return _listener(address_of(self._words), self.levels)

    def use(self, worker: int) -> None:
        """What comes next is done by this worker."""
        at = address_of(self._words)
        self._words[_LAST] = _NOTHING
        for k, bases in enumerate(self._bases):
            self._words[_HEADER + 3 * k] = at + 8 * bases[worker]

    @property
    def counted(self) -> np.ndarray:
        """All counters as int64 words, to be subtracted and added; `counts_of` says what they mean."""
        levels = self._words[_HEADER : self._header].reshape(-1, 3)[:, 1:]
        return np.concatenate([self._words[:_COUNTERS], levels.ravel()])

    @property
    def counts(self) -> Counts:
        return counts_of(self.counted)

    def clear(self) -> None:
        """Count from zero; the caches keep what they hold."""
        self._words[:_COUNTERS] = 0
        self._words[_HEADER : self._header].reshape(-1, 3)[:, 1:] = 0


def counts_of(words: np.ndarray) -> Counts:
    """Counters by name."""
    loads, stores, prefetches, loaded, stored, _, *levels = (int(word) for word in words)
    return Counts(loads, stores, prefetches, loaded, stored, tuple(levels[::2]), tuple(levels[1::2]))


def host_levels(root: Path = _SYSTEM) -> tuple[CacheLevel, ...]:
    """The data caches that cpu 0 sees, nearest first. Where the system does not describe them: of the sizes that the compiler plans
    with, 8 ways in each core and 16 in what all share."""
    cpu = root / "sys/devices/system/cpu/cpu0"
    siblings = len(_members(_text(cpu / "topology/thread_siblings_list"))) or 1
    found: dict[int, CacheLevel] = {}
    for index in sorted((cpu / "cache").glob("index*")):
        size = re.fullmatch(r"(\d+)([KMG]?)", _text(index / "size"))
        level, ways = _text(index / "level"), _text(index / "ways_of_associativity")
        if size is None or _text(index / "type") == "Instruction" or not (level.isdecimal() and ways.isdecimal()):
            continue
        nbytes = int(size[1]) << _SCALE[size[2]]
        shared = len(_members(_text(index / "shared_cpu_list"))) > siblings
        lines = max(1, nbytes // LINE_BYTES)
        found[int(level)] = CacheLevel(f"L{level}", nbytes, min(int(ways) or lines, lines), shared)
    if found:
        return tuple(found[level] for level in sorted(found))
    target = host_target()
    return (
        CacheLevel("L1", target.l1_bytes, 8),
        CacheLevel("L2", target.l2_bytes, 8),
        CacheLevel("L3", target.l3_bytes, 16, shared=True),
    )


def _cache_bytes(text: str) -> int:
    try:
        return bytes_of(text)
    except UsageError as error:
        raise UsageError(f"the size of a cache: {error}") from None


def parsed_levels(text: str) -> tuple[CacheLevel, ...]:
    """Caches that are written as sizes and ways, nearest first: `64K:4,512K:8,4M:16`. All workers share the third level and those
    beyond. `UsageError` for another text."""
    found: list[CacheLevel] = []
    for number, part in enumerate(text.split(","), start=1):
        known = re.fullmatch(r"([^:]+):([1-9]\d*)", part.strip())
        if known is None or len(part) > 20:
            raise UsageError(f"{part.strip()!r} is no cache: give a size and its ways, as in 64K:4,512K:8,4M:16")
        level = CacheLevel(f"L{number}", _cache_bytes(known[1]), int(known[2]), number >= 3)
        if not level.ways * LINE_BYTES <= level.nbytes <= _LARGEST:
            raise UsageError(f"{part.strip()!r} is no cache: it holds no set of {level.ways} lines, or more than 1024M")
        found.append(level)
    if len(found) > _FARTHEST:
        raise UsageError(f"there are at most {_FARTHEST} levels of caches, not {len(found)}")
    return tuple(found)


def _members(text: str) -> set[int]:
    """The processors of a list such as `0-3,8`."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if first.isdecimal():
            found.update(range(int(first), int(last if last.isdecimal() else first) + 1))
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


# --- the function -----------------------------------------------------------------------------------------------------


def _listener(address: int, levels: Sequence[CacheLevel]) -> str:
    starts = "".join(f" i64 {PREFETCH + k}, label %level{min(k, len(levels) - 1)}" for k in range(1, _FARTHEST))
    blocks = "".join(_level(k, level, k + 1 == len(levels)) for k, level in enumerate(levels))
    return _TEXT.format(words=f"inttoptr (i64 {address} to ptr)", last=_LAST, prefetch=PREFETCH) + (
        f"""
define internal void @fw.line(i64 %line, i64 %kind) noinline nounwind {{
entry:
  %words = inttoptr i64 {address} to ptr
  %last.at = getelementptr i64, ptr %words, i64 {_LAST}
  %last = load i64, ptr %last.at, align 8
  %same = icmp eq i64 %last, %line
  %nearest = icmp ule i64 %kind, {PREFETCH}
  %known = and i1 %same, %nearest
  %ahead = icmp uge i64 %kind, {PREFETCH}
  %which = zext i1 %ahead to i64
  br i1 %known, label %done, label %look
look:
  switch i64 %kind, label %level0 [{starts} ]
{blocks}done:
  ret void
}}
"""
    )


def _level(k: int, level: CacheLevel, is_last: bool) -> str:
    """Look for the line in one level, count it if it is not there, and go on to the next."""
    note = "  store i64 %line, ptr %last.at, align 8\n" if k == 0 else ""
    word = _HEADER + 3 * k
    return f"""level{k}:
{note}  %base.at{k} = getelementptr i64, ptr %words, i64 {word}
  %base{k} = load ptr, ptr %base.at{k}, align 8
  %set{k} = urem i64 %line, {level.sets}
  %way{k} = mul i64 %set{k}, {level.ways}
  %at{k} = getelementptr i64, ptr %base{k}, i64 %way{k}
  %hit{k} = call i1 @fw.found(ptr %at{k}, i64 {level.ways}, i64 %line)
  br i1 %hit{k}, label %done, label %missed{k}
missed{k}:
  %first{k} = getelementptr i64, ptr %words, i64 {word + 1}
  %count.at{k} = getelementptr i64, ptr %first{k}, i64 %which
  %count{k} = load i64, ptr %count.at{k}, align 8
  %more{k} = add i64 %count{k}, 1
  store i64 %more{k}, ptr %count.at{k}, align 8
  br label %{"done" if is_last else f"level{k + 1}"}
"""


_TEXT = """
define internal void @fw.touch(ptr %pointer, i64 %nbytes, i64 %count, i64 %kind) noinline nounwind {{
entry:
  %none = icmp sle i64 %nbytes, 0
  br i1 %none, label %done, label %some
some:
  %low = ptrtoint ptr %pointer to i64
  %behind = add i64 %low, %nbytes
  %high = sub i64 %behind, 1
  %from = lshr i64 %low, 6
  %to = lshr i64 %high, 6
  %ahead = icmp ugt i64 %kind, {prefetch}
  %slot = select i1 %ahead, i64 {prefetch}, i64 %kind
  %count.at = getelementptr i64, ptr {words}, i64 %slot
  %counted = load i64, ptr %count.at, align 8
  %counts = add i64 %counted, %count
  store i64 %counts, ptr %count.at, align 8
  %bytes.at = getelementptr i64, ptr %count.at, i64 3
  %moved = load i64, ptr %bytes.at, align 8
  %moves = add i64 %moved, %nbytes
  store i64 %moves, ptr %bytes.at, align 8
  br label %lines
lines:
  %line = phi i64 [ %from, %some ], [ %next, %lines ]
  call void @fw.line(i64 %line, i64 %kind)
  %next = add i64 %line, 1
  %more = icmp ule i64 %next, %to
  br i1 %more, label %lines, label %done
done:
  ret void
}}

define internal void @fw.touch.lanes(ptr %pointer, i64 %mask, i64 %element, i64 %count, i64 %kind) noinline nounwind {{
entry:
  %none = icmp eq i64 %mask, 0
  br i1 %none, label %done, label %some
some:
  %first = call i64 @llvm.cttz.i64(i64 %mask, i1 false)
  %above = call i64 @llvm.ctlz.i64(i64 %mask, i1 false)
  %behind = sub i64 64, %above
  %lanes = sub i64 %behind, %first
  %skip = mul i64 %first, %element
  %nbytes = mul i64 %lanes, %element
  %start = getelementptr i8, ptr %pointer, i64 %skip
  call void @fw.touch(ptr %start, i64 %nbytes, i64 %count, i64 %kind)
  br label %done
done:
  ret void
}}

define internal i1 @fw.found(ptr %set, i64 %ways, i64 %line) noinline nounwind {{
entry:
  %newest = load i64, ptr %set, align 8
  %is.newest = icmp eq i64 %newest, %line
  br i1 %is.newest, label %hit, label %older
older:
  store i64 %line, ptr %set, align 8
  br label %look
look:
  %way = phi i64 [ 1, %older ], [ %next, %pass ]
  %moved = phi i64 [ %newest, %older ], [ %held, %pass ]
  %more = icmp ult i64 %way, %ways
  br i1 %more, label %pass, label %miss
pass:
  %at = getelementptr i64, ptr %set, i64 %way
  %held = load i64, ptr %at, align 8
  store i64 %moved, ptr %at, align 8
  %next = add i64 %way, 1
  %same = icmp eq i64 %held, %line
  br i1 %same, label %hit, label %look
miss:
  ret i1 false
hit:
  ret i1 true
}}
"""
