"""How fast this machine moves data in each level of its caches and in memory: the best of several patterns, by our own code.

Each worker has a region of its own that fits the level, and goes over it again and again: reading, writing, copying, or adding two
arrays into a third. What the best of these moves in a second is a ceiling for all code that moves data there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from fusewise.benchmarking.caches import CacheLevel, host_levels
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.build import Module
from fusewise.codegen.nest.tree import Value, vector
from fusewise.codegen.target import Target
from fusewise.runtime.arena import address_of, aligned_block
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import compile_object, load
from fusewise.runtime.threads import shared_pool, step_table

__all__ = ["MEMORY", "SPREAD", "LevelLimit", "least_ns", "measured_levels", "timed"]

MEMORY = "memory"
_PATTERNS = (("read", 1, 0), ("write", 0, 1), ("copy", 1, 1), ("add", 2, 1))
"""Their names, and how many arrays they read and write."""

_UNROLLED = 8
_LEAST_MEMORY = 64 << 20
_CALL_BYTES = 8 << 20
_CALLS, _LONG_CALLS, _TRIES = 12, 4, 3
SPREAD = 0.1
"""How far the median of equal calls may be below the best of them."""

_PAGE, _PLACES = 4096, 4
_APART = 320
"""Bytes between arrays, so that they do not begin at the same place of a page."""


@dataclass(frozen=True, slots=True)
class LevelLimit:
    """A level of the caches, or memory: bytes of all workers' together (None: no end), gigabytes a second read and written at most,
    and the `spread` of what was measured, how far the median of equal calls is below the best of them."""

    name: str
    nbytes: int | None
    gbs: float
    spread: float = 0.0


def least_ns(levels: Sequence[LevelLimit], nbytes: float) -> tuple[float, str]:
    """The shortest time in which so many bytes can be moved, in nanoseconds, and the farthest level that some of them must be in:
    as many as it holds in the nearest, of the others as many as it holds in the next, and so on."""
    spent, left = 0.0, float(nbytes)
    for level in levels:
        here = left if level.nbytes is None else min(left, level.nbytes)
        spent, left = spent + here / level.gbs, left - here
        if left <= 0:
            break
    return spent, level.name


def measured_levels(workers: int, caches: Sequence[CacheLevel] | None = None) -> tuple[LevelLimit, ...]:
    """The caches' limits on so many workers, nearest first, and memory's; takes about a second.

    What spreads too much is measured again, twice at most, as other programs were in the way; the best of all counts.
    """
    target = host_target()
    known = host_levels() if caches is None else tuple(caches)
    symbols = [name for name, _, _ in _PATTERNS]
    images = [compile_object(_pattern(name, target, reads, writes), target) for name, reads, writes in _PATTERNS]
    library = load(images, symbols)
    functions = [library.addresses[symbol] for symbol in symbols]
    last = max((level.nbytes for level in known), default=0)
    most = max(_LEAST_MEMORY, 4 * last) // workers
    room = aligned_block(workers * (most + 8 * _APART))
    room.view(np.float32).fill(1)  # lines of zeros are a special case to some processors
    found: list[LevelLimit] = []
    before = 0
    for level in known:
        own = level.nbytes // workers if level.shared else level.nbytes
        region = own // 2 if not before else max(3 * before, own // 8)
        all_bytes = level.nbytes if level.shared else level.nbytes * workers
        if region > own * 3 // 4:  # no region is too large for the level before and fits this one
            if found:
                found[-1] = LevelLimit(
                    found[-1].name, (found[-1].nbytes or 0) + all_bytes, found[-1].gbs, found[-1].spread
                )
            continue
        gbs, spread = _best(functions, room, region, workers, level.shared)
        found.append(LevelLimit(level.name, all_bytes, gbs, spread))
        before = own
    gbs, spread = _best(functions, room, most, workers, True)
    return _descending((*found, LevelLimit(MEMORY, None, gbs, spread)))


def _descending(levels: Sequence[LevelLimit]) -> tuple[LevelLimit, ...]:
    """A nearer level is at least as fast as those behind it: what it was measured at otherwise is what was in its way."""
    found: list[LevelLimit] = []
    for level in reversed(levels):
        gbs = max(level.gbs, found[-1].gbs) if found else level.gbs
        found.append(LevelLimit(level.name, level.nbytes, gbs, level.spread))
    return tuple(reversed(found))


def _best(functions: Sequence[int], room: np.ndarray, region: int, workers: int, together: bool) -> tuple[float, float]:
    """Gigabytes a second of the best pattern over regions of so many bytes, and its spread. Workers that share a level are timed
    together, others each by itself. Regions begin at several places: some processors are slower where addresses are alike."""
    stride = (room.nbytes // workers) // _PAGE * _PAGE
    whole = region + 4 * _APART
    places = [k * (-(-whole // _PAGE) + k) * _PAGE for k in range(_PLACES)]
    fitting = [place for place in places if place + whole <= stride] or [0]
    best, spread = 0.0, 0.0
    for function, (_, reads, writes) in zip(functions, _PATTERNS, strict=True):
        each = region // (reads + writes) // (64 * _UNROLLED) * (64 * _UNROLLED)
        passes = max(1, _CALL_BYTES // region)
        moved = (reads + writes) * each * passes
        for place in fitting:
            rates = _rates(
                function, [address_of(room) + place, stride, each, each + _APART, passes], workers, moved, together
            )
            if max(rates) > best:
                best, spread = max(rates), 1 - median(rates) / max(rates)
    return best, spread


def _rates(function: int, arguments: Sequence[int], workers: int, moved: int, together: bool) -> list[float]:
    """Gigabytes a second of calls in which each worker has `moved` so many bytes; more calls where they differ."""
    rates: list[float] = []
    for _ in range(_TRIES):
        calls = timed(function, arguments, workers, _CALLS if moved <= 4 * _CALL_BYTES else _LONG_CALLS)
        if together:
            rates += [workers * moved / float(span) for span in calls[..., 1].max(1) - calls[..., 0].min(1)]
        else:
            rates += [float(np.sum(moved / own)) for own in calls[..., 1] - calls[..., 0]]
        if median(rates) >= (1 - SPREAD) * max(rates):
            break
    return rates


def timed(function: int, arguments: Sequence[int], workers: int, calls: int) -> np.ndarray:
    """When each worker began and ended, int64[calls, workers, 2] in nanoseconds."""
    words = np.array(arguments, np.int64)
    table = step_table([(function, address_of(words), True)])
    clock = np.zeros((calls, 1, workers, 2), np.int64)
    for row in clock:
        shared_pool().run(table, workers, row)
    return clock[:, 0]


def _pattern(symbol: str, target: Target, reads: int, writes: int) -> str:
    """A worker's arrays lie one behind the other in its region; it goes over them as often as it is told, some vectors at once."""
    module = Module()
    f = module.function(symbol, ("ptr", "i64", "i64"))
    arguments, worker, _ = f.arguments
    stride, nbytes, pitch, passes = (f.load("i64", f.at(arguments, k, "i64")) for k in range(1, 5))
    region = f.at(f.load("ptr", arguments), f.mul(worker, stride), "i8")
    arrays = [f.at(region, f.mul(pitch, k), "i8") for k in range(reads + writes)]
    kind, count = vector("float", target.lanes), f.udiv(nbytes, 4)
    one = f.constant(1.0, kind)

    def sweep(_: object, sums: Sequence[Value]) -> Sequence[Value]:
        def some(i: Value, sums: Sequence[Value]) -> Sequence[Value]:
            after = []
            for k, total in enumerate(sums):
                place = f.add(i, k * target.lanes)
                values = [f.load(kind, f.at(array, place)) for array in arrays[:reads]]
                value = one if not values else values[0] if len(values) == 1 else f.fadd(*values)
                for array in arrays[reads:]:
                    f.store(value, f.at(array, place))
                after.append(total if writes else f.fadd(total, value))
            return after

        return f.loop(0, count, _UNROLLED * target.lanes, some, sums, rolled=True)

    sums = f.loop(0, passes, 1, sweep, [one] * _UNROLLED, rolled=True)
    if not writes:
        for k, value in enumerate(sums):
            f.store(value, f.at(arrays[0], k * target.lanes))
    f.give_back()
    return llvm_text(module, target)
