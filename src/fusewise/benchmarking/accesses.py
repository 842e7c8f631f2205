"""What a program does to memory, step by step: every load and store of its kernels, and what a model of the caches makes of them.

The program is compiled once more with kernels that tell of each access (`codegen.llvm.traced`) to a model of the caches
(`benchmarking.caches`), and run on real data, so that addresses, order and repetition are those of the program itself. Of a step
one worker does its share after the other. What runs on the host is not seen.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fusewise.benchmarking.caches import CacheLevel, Caches, Counts, counts_of
from fusewise.codegen.llvm.traced import traced
from fusewise.codegen.target import Target
from fusewise.lower.program import KernelCode, NativeStep, Program
from fusewise.runtime.executable import build
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import optimized
from fusewise.runtime.threads import StepTable

__all__ = ["Accesses", "accesses_of"]


@dataclass(frozen=True, slots=True)
class Accesses:
    """Counts of one run of a program, and of each native step, by the step's number; `answers` are what the run gave."""

    levels: tuple[CacheLevel, ...]
    whole: Counts
    steps: Mapping[int, Counts]
    answers: Sequence[Any]


def accesses_of(
    program: Program, feeds: Mapping[str, Any], levels: Sequence[CacheLevel], target: Target | None = None
) -> Accesses:
    """Count one run of a program, by as many workers as it was planned for, after a run that fills the caches.

    `target` is the machine that it was generated for, by default this one. `UnsupportedModel` for code that cannot be traced.
    """
    machine = host_target() if target is None else target
    caches = Caches(levels, program.workers)
    called = {step.kernel for step in program.steps if isinstance(step, NativeStep)}
    kernels = tuple(
        _traced(kernel, caches.listener, machine) if number in called else kernel
        for number, kernel in enumerate(program.kernels)
    )
    model = build(replace(program, kernels=kernels), threads=program.workers, target=machine)
    walker = _Walker(caches)
    model.run_by(walker.walk, feeds)
    caches.clear()
    walker.steps.clear()
    answers = model.run_by(walker.walk, feeds)
    steps = {number: counts_of(words) for number, words in sorted(walker.steps.items())}
    return Accesses(caches.levels, caches.counts, steps, answers)


def _traced(kernel: KernelCode, listener: str, target: Target) -> KernelCode:
    """The kernel, optimised as it would be and then traced."""

    def text() -> str:
        return traced(optimized(kernel.build(), target, kernel.level), listener, target.vector_bits // 8)

    return replace(kernel, key=f"{kernel.key}|traced", build=text, level="bare")


class _Walker:
    """Makes the calls of step tables, every worker's share in turn, and keeps what each step added to the counters."""

    def __init__(self, caches: Caches) -> None:
        self.steps: dict[int, np.ndarray] = {}
        self._caches = caches
        self._kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 5)

    def walk(self, table: StepTable, numbers: Sequence[int]) -> None:
        """As `runtime.threads.Pool.run` deals out shares, without taking pieces of the others'."""
        caches, workers = self._caches, self._caches.workers
        for number, (address, arguments, _, strip) in zip(numbers, table.words.tolist(), strict=True):
            parts, part = strip >> 32, strip & 0xFFFFFFFF
            call, before = self._kernel(address), caches.counted
            for worker in range(workers):
                caches.use(worker)
                share = worker * parts + part
                call(arguments, share, share + 1, workers * parts, worker, 0)
            added = caches.counted - before
            self.steps[number] = self.steps[number] + added if number in self.steps else added
