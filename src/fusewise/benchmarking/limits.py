"""What this machine can do at most: a pure loop of fused multiply-adds, moving data in each level of the caches, and copying
memory, on as many workers as a model has; and how soon these workers meet.

Both run on the pool that runs models. The best of many calls counts, of multiply-adds for each worker by itself, so that other
programs disturb little.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path

import numpy as np

from fusewise.benchmarking.bandwidth import SPREAD, LevelLimit, measured_levels, timed
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.build import Module
from fusewise.codegen.nest.instruction import multiply_add
from fusewise.codegen.nest.tree import vector
from fusewise.codegen.target import Target
from fusewise.errors import FusewiseError
from fusewise.files import write_text
from fusewise.runtime.arena import address_of, aligned_block
from fusewise.runtime.folder import folder_fault
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import compile_object, load
from fusewise.runtime.measure import machine_name
from fusewise.runtime.threads import shared_pool, step_table
from fusewise.version import VERSION

__all__ = ["MachineLimits", "ceilings", "machine_limits", "meeting_ns"]

_CHAINS, _ROUNDS, _CALLS = 12, 50_000, 200
_LEAST_COPY = 64 << 20
_COPY_CALLS = 10
_MEETINGS, _MEETING_CALLS = 1000, 15


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Giga-operations of float32 a second in fused multiply-adds (two operations each), and gigabytes a second, read and
    written, of copying arrays far larger than the caches. `levels`: what can be moved in each level of the caches and in memory,
    where that was asked for."""

    gflops: float
    copy_gbs: float
    levels: tuple[LevelLimit, ...] = ()

    @property
    def disturbed(self) -> str:
        """A sentence on levels whose measurements differ too much to be trusted; empty where there are none."""
        found = [f"{level.name} by {level.spread:.0%}" for level in self.levels if level.spread > SPREAD]
        if not found:
            return ""
        return f"measurements of this machine spread ({', '.join(found)}): other programs were in the way, ceilings may be too low"

    def higher(self, other: MachineLimits) -> MachineLimits:
        """The higher of two measurements of everything, since whatever disturbs lowers it."""
        pairs = zip(self.levels, other.levels, strict=True)
        levels = tuple(max(pair, key=lambda level: level.gbs) for pair in pairs)
        return MachineLimits(max(self.gflops, other.gflops), max(self.copy_gbs, other.copy_gbs), levels)


def machine_limits(workers: int) -> MachineLimits:
    """Measure both on so many workers; takes about a second."""
    target = host_target()
    symbols = ["fused_multiply_adds", "copy"]
    build = (_fused_multiply_adds, _copy)
    images = [compile_object(text(symbol, target), target) for text, symbol in zip(build, symbols, strict=True)]
    library = load(images, symbols)
    room = aligned_block(4 * (_CHAINS + 2) * target.lanes * workers)
    room.fill(0)
    nbytes = max(_LEAST_COPY, 4 * target.l3_bytes)
    source, there = aligned_block(nbytes), aligned_block(nbytes)
    source.fill(1)
    there.fill(0)
    calls = timed(library.addresses[symbols[0]], [address_of(room)], workers, _CALLS)
    each = (calls[..., 1] - calls[..., 0]).min(axis=0)
    places = [address_of(source), address_of(there), nbytes]
    copies = timed(library.addresses[symbols[1]], places, workers, _COPY_CALLS)
    together = (copies[..., 1].max(axis=1) - copies[..., 0].min(axis=1)).min()
    operations = 2 * _CHAINS * target.lanes * _ROUNDS
    return MachineLimits(float(np.sum(operations / each)), 2 * nbytes / float(together))


def ceilings(workers: int, folder: Path | None = None, low: MachineLimits | None = None) -> MachineLimits:
    """All limits with those of the levels of caches, from `folder` where they were measured for this machine and so many workers
    before. `low` ones that code was faster than are measured again, and the higher ones of both kept."""
    path = None if folder is None or folder_fault(folder) else folder / f"limits-{workers}.json"
    known = None if path is None or low is not None else _kept(path)
    if known is not None:
        return known
    plain = machine_limits(workers)
    found = MachineLimits(plain.gflops, plain.copy_gbs, measured_levels(workers))
    found = found if low is None else found.higher(low)
    if path is not None and not found.disturbed:
        with suppress(FusewiseError):  # a place that has no room is none to fail for
            write_text(path, json.dumps({"for": _made_for(), **asdict(found)}, indent=1) + "\n")
    return found


def _made_for() -> str:
    return f"{VERSION}|{machine_name()}"


def _kept(path: Path) -> MachineLimits | None:
    """What a file of `ceilings` says; None for one that says nothing for this machine, or what no machine can be."""
    try:
        said = json.loads(path.read_text())
        levels = tuple(LevelLimit(**level) for level in said["levels"])
        found = MachineLimits(float(said["gflops"]), float(said["copy_gbs"]), levels)
        speeds = (found.gflops, found.copy_gbs, *(float(level.gbs) for level in levels))
        ends = [level.nbytes for level in levels]
        good = all(0 < speed < inf for speed in speeds) and all(type(n) is int and n > 0 for n in ends[:-1])
        return found if good and levels and ends[-1] is None and said["for"] == _made_for() else None
    except (OSError, ValueError, TypeError, LookupError):
        return None


def meeting_ns(workers: int) -> float:
    """Nanoseconds that workers with nothing to do take to meet at a barrier; takes some milliseconds.

    It tells how near the cores are: on two virtual cores of a Zen 4 it was about 45 or about 305, for seconds or minutes each,
    most likely as they shared a third cache level or did not; models that pass much from core to core took up to a half longer
    in the second state.
    """
    target = host_target()
    module = Module()
    module.function("nothing", ("ptr", "i64", "i64")).give_back()
    library = load([compile_object(llvm_text(module, target), target)], ["nothing"])
    table = step_table([(library.addresses["nothing"], 0, True)] * _MEETINGS)
    taken = []
    for _ in range(_MEETING_CALLS):
        begin = time.perf_counter_ns()
        shared_pool().run(table, workers)
        taken.append(time.perf_counter_ns() - begin)
    return float(np.median(taken)) / _MEETINGS


def _fused_multiply_adds(symbol: str, target: Target) -> str:
    """As many independent sums as hide the latency of the instruction."""
    module = Module()
    f = module.function(symbol, ("ptr", "i64", "i64"))
    arguments, worker, _ = f.arguments
    memory = f.at(f.load("ptr", arguments), f.mul(worker, (_CHAINS + 2) * target.lanes))
    kind = vector("float", target.lanes)
    a, b, *start = (f.load(kind, f.at(memory, k * target.lanes)) for k in range(_CHAINS + 2))
    sums = f.loop(
        0, _ROUNDS, 1, lambda _, carried: [multiply_add(f, target, x, a, b) for x in carried], start, rolled=True
    )
    for k, value in enumerate(sums):
        f.store(value, f.at(memory, k * target.lanes))
    f.give_back()
    return llvm_text(module, target)


def _copy(symbol: str, target: Target) -> str:
    """Every worker copies its share, a vector at a time."""
    module = Module()
    f = module.function(symbol, ("ptr", "i64", "i64"))
    arguments, worker, workers = f.arguments
    source, there = f.load("ptr", arguments), f.load("ptr", f.at(arguments, 1, "ptr"))
    count = f.udiv(f.load("i64", f.at(arguments, 2, "i64")), 4 * target.lanes)
    low, high = (f.udiv(f.mul(f.add(worker, k), count), workers) for k in (0, 1))

    def one(i: object, _: object) -> None:
        place = f.mul(i, target.lanes)  # type: ignore[arg-type]
        f.store(f.load(vector("float", target.lanes), f.at(source, place)), f.at(there, place))

    f.loop(low, high, 1, one)
    f.give_back()
    return llvm_text(module, target)
