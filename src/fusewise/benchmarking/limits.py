"""What this machine can do at most: a pure loop of fused multiply-adds, and copying memory, on as many workers as a model has;
and how soon these workers meet.

Both run on the pool that runs models. The best of many calls counts, of multiply-adds for each worker by itself, so that other
programs disturb little.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.build import Module
from fusewise.codegen.nest.instruction import multiply_add
from fusewise.codegen.nest.tree import vector
from fusewise.codegen.target import Target
from fusewise.runtime.arena import address_of, aligned_block
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import compile_object, load
from fusewise.runtime.threads import shared_pool, step_table

__all__ = ["MachineLimits", "machine_limits", "meeting_ns"]

_CHAINS, _ROUNDS, _CALLS = 12, 50_000, 200
_LEAST_COPY = 64 << 20
_COPY_CALLS = 10
_MEETINGS, _MEETING_CALLS = 1000, 15


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Giga-operations of float32 a second in fused multiply-adds (two operations each), and gigabytes a second, read and
    written, of copying arrays far larger than the caches."""

    gflops: float
    copy_gbs: float


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
    calls = _timed(library.addresses[symbols[0]], [address_of(room)], workers, _CALLS)
    each = (calls[..., 1] - calls[..., 0]).min(axis=0)
    places = [address_of(source), address_of(there), nbytes]
    copies = _timed(library.addresses[symbols[1]], places, workers, _COPY_CALLS)
    together = (copies[..., 1].max(axis=1) - copies[..., 0].min(axis=1)).min()
    operations = 2 * _CHAINS * target.lanes * _ROUNDS
    return MachineLimits(float(np.sum(operations / each)), 2 * nbytes / float(together))


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


def _timed(function: int, arguments: list[int], workers: int, calls: int) -> np.ndarray:
    """When each worker began and ended, int64[calls, workers, 2] in nanoseconds."""
    words = np.array(arguments, np.int64)
    table = step_table([(function, address_of(words), True)])
    clock = np.zeros((calls, 1, workers, 2), np.int64)
    for row in clock:
        shared_pool().run(table, workers, row)
    return clock[:, 0]


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
