"""A program for a GPU as data: launches of kernels over buffers, and which of them have to wait for which.

A step says which bytes it reads and writes. Whoever runs the program needs no more: two steps may run at the same time unless
one of them writes what the other touches, and everything else of their order follows from that (`edges`). Host steps cut a
program into stretches of launches (`stretches`), each of which is one graph on the device.

Buffers of the arena lie on boundaries of 256 bytes, as `cuMemAlloc` gives them and as the widest loads want them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import groupby

import numpy as np

from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.codegen.gpu.touched import Touch, TouchedMemory
from fusewise.errors import BrokenPlan
from fusewise.ir.graph import Constant
from fusewise.ir.size import Symbol
from fusewise.ir.types import TensorType, ValueType
from fusewise.lower.memory import ALIGNMENT as CACHE_LINE
from fusewise.lower.memory import Lifetime, plan_arena
from fusewise.lower.program import Account, DataPosition, HostStep, Packing, Place, Port
from fusewise.records import record

__all__ = [
    "ALIGNMENT",
    "KINDS",
    "ByteRange",
    "GpuBuffer",
    "GpuProgram",
    "GpuStep",
    "aligned",
    "check_program",
    "edges",
    "planned",
    "reads_of",
    "stretches",
    "writes_of",
]

ALIGNMENT = 256
"""Bytes: where `cuMemAlloc` and the arena let buffers begin."""

KINDS = ("arena", "constant", "input", "output", "host", "fault")
"""What a buffer may be."""

_READ_ONLY = ("constant", "input")

_MOST_BLOCKS = (2**31 - 1, 65535, 65535)
"""Of a launch, along each of its axes (CUDA Programming Guide, "Compute Capabilities")."""


@record(frozen=True, slots=True)
class GpuBuffer:
    """Memory that steps name, `nbytes` long.

    `kind`: `arena` (`offset` bytes into the one arena, by `planned`), `constant` (filled once from `data`, by `packing` where
    there is one, which then gives `nbytes` bytes; the runtime lays all of them into one allocation), `input` and `output`
    (what the caller hands in and gets, the port called `value`), `host` (between host steps and kernels, or between host
    steps; the value called `value`), `fault` (zeros before a run, where kernels say what is wrong with their data).
    """

    kind: str
    nbytes: int
    offset: int = 0
    value: str = ""
    data: Constant | None = None
    packing: Packing | None = None


@record(frozen=True, slots=True)
class ByteRange:
    """Bytes from `low` up to `high` of buffer number `buffer`; with a `period`, of each so many bytes from `low` on only the first
    `width`: a run of channels of every pixel, beside which others lie."""

    buffer: int
    low: int
    high: int
    period: int = 0
    width: int = 0


@record(frozen=True, slots=True)
class GpuStep:
    """One launch of kernel number `kernel` with pointers to `arguments`, one for each that the kernel names.

    It touches no other bytes than those of `reads` and `writes`; what it writes it may also read. `label` names the nodes,
    `group` is their number in the partition. Of a task that reads positions from data `sites` says where, two int64 each at
    its argument `fault`.
    """

    kernel: int
    arguments: tuple[Place, ...]
    reads: tuple[ByteRange, ...]
    writes: tuple[ByteRange, ...]
    label: str = ""
    group: int = -1
    sites: tuple[DataPosition, ...] = ()


@record(frozen=True)
class GpuProgram:
    """Everything the runtime needs. `device` is an architecture by name (`sm_90`), `precision` what float32 is computed in
    (`float32`: three products of TF32, `exact`: IEEE without contraction, `tf32`, `float16`, `bfloat16`).

    `kernels` are distinct, and each is one launch. `objects` are constants that only host steps read. `arena_bytes` is what
    the buffers of the arena need; a step of no blocks is left out. The rest is as in `lower.program.Program`; `accounts` are for
    people.
    """

    device: str
    precision: str
    kernels: tuple[GpuKernel, ...]
    steps: tuple[GpuStep | HostStep, ...]
    buffers: tuple[GpuBuffer, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    arena_bytes: int = 0
    groups: int = 0
    opsets: tuple[tuple[str, int], ...] = ()
    objects: tuple[tuple[str, np.ndarray], ...] = field(default=(), compare=False)
    accounts: tuple[Account, ...] = field(default=(), compare=False)

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """Its free dimensions: none, as kernels for a GPU are written for sizes."""
        return ()

    @property
    def launches(self) -> int:
        """Kernels that one inference launches."""
        return sum(isinstance(step, GpuStep) for step in self.steps)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Pairs of steps of which the second has to wait for the first, without those that follow from others."""
        return edges(self.steps, self.buffers)


def aligned(nbytes: int) -> int:
    """The least multiple of `ALIGNMENT` that is at least so large, and not 0."""
    return max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT


# --- the arena ------------------------------------------------------------------------------------------------------------


def planned(program: GpuProgram) -> GpuProgram:
    """The program with an offset for each buffer of the arena: those that are never alive at the same time share memory.

    Steps come in the order of their levels: how many others have to run before, one after the other, by what they compute. A buffer
    lives for all of a level, so memory is not shared by what may run side by side. That steps which share memory do not run at the
    same time is not assumed all the same: it makes an edge.
    """
    levels = _levels(program)
    order = sorted(levels, key=lambda number: (levels[number], number))
    lives: dict[int, tuple[int, int]] = {}
    for number in order:
        step, level = program.steps[number], levels[number]
        for one in (*reads_of(step), *writes_of(step)):
            if program.buffers[one.buffer].kind == "arena":
                lives[one.buffer] = (lives.get(one.buffer, (level, level))[0], level)
    unit = ALIGNMENT // CACHE_LINE  # the planner's lines, each of which stands for ours
    sizes = [aligned(program.buffers[number].nbytes) // unit for number in lives]
    offsets, total = plan_arena([Lifetime(size, *life) for size, life in zip(sizes, lives.values(), strict=True)])
    where = dict(zip(lives, offsets, strict=True))
    buffers = tuple(
        replace(buffer, offset=where[number] * unit) if number in where else buffer
        for number, buffer in enumerate(program.buffers)
    )
    steps = tuple(program.steps[number] for number in order)
    return replace(program, steps=steps, buffers=buffers, arena_bytes=total * unit)


def _levels(program: GpuProgram) -> dict[int, int]:
    """The level of each step by number, if no buffers share memory. Host steps have each a level, and what is behind them higher
    ones."""
    apart = [replace(buffer, kind="host") if buffer.kind == "arena" else buffer for buffer in program.buffers]
    levels: dict[int, int] = {}
    begin = 0
    for is_launches, numbers in stretches(program.steps):
        if is_launches:
            levels |= dict.fromkeys(numbers, begin)
            for first, second in sorted(edges(program.steps, apart, numbers), key=lambda edge: edge[1]):
                levels[second] = max(levels[second], levels[first] + 1)
        else:
            levels |= {number: begin + k for k, number in enumerate(numbers)}
        begin = max(levels[number] for number in numbers) + 1
    return levels


# --- who waits for whom ---------------------------------------------------------------------------------------------------


def edges(
    steps: Sequence[GpuStep | HostStep], buffers: Sequence[GpuBuffer], numbers: Iterable[int] | None = None
) -> tuple[tuple[int, int], ...]:
    """Pairs (earlier, later) of the steps with these `numbers`, all for None, such that any order that keeps to them gives
    the answers of the program's own.

    A step waits for the last that wrote what it reads, for all that have read what it overwrites, and for the last that wrote
    it. Edges that follow from others are left out.
    """
    memory = TouchedMemory()
    waits: dict[int, set[int]] = {}
    for number in range(len(steps)) if numbers is None else numbers:
        found = waits.setdefault(number, set())
        for one in filter(_holds_bytes, reads_of(steps[number])):
            found |= memory.read(*_address(one, buffers), Touch(number, one.period, one.width))
        for one in filter(_holds_bytes, writes_of(steps[number])):
            found |= memory.write(*_address(one, buffers), Touch(number, one.period, one.width))
        found.discard(number)
    return tuple(_reduced(waits))


def _holds_bytes(one: ByteRange) -> bool:
    return one.low < one.high


def _address(one: ByteRange, buffers: Sequence[GpuBuffer]) -> tuple[object, int, int]:
    """Where a range lies: the arena's buffers in one space by their offsets, every other buffer in its own."""
    buffer = buffers[one.buffer]
    if buffer.kind != "arena":
        return one.buffer, one.low, one.high
    return "arena", buffer.offset + one.low, buffer.offset + one.high


def _reduced(waits: Mapping[int, set[int]]) -> Iterator[tuple[int, int]]:
    """The edges that do not follow from others. Steps come after those that they wait for."""
    behind: dict[int, int] = {}  # of each step all before it that it waits for, as bits
    for number, found in waits.items():
        reached = 0
        for one in sorted(found, reverse=True):
            if not reached >> one & 1:
                yield one, number
                reached |= behind[one] | 1 << one
        behind[number] = reached


def stretches(steps: Sequence[GpuStep | HostStep]) -> Iterator[tuple[bool, tuple[int, ...]]]:
    """The numbers of steps that follow each other without one of the other sort between, and whether they are launches."""
    for launches, numbers in groupby(range(len(steps)), lambda number: isinstance(steps[number], GpuStep)):
        yield launches, tuple(numbers)


def reads_of(step: GpuStep | HostStep) -> Sequence[ByteRange]:
    """The bytes that a step reads."""
    return step.reads if isinstance(step, GpuStep) else _static(step.reads)


def writes_of(step: GpuStep | HostStep) -> Sequence[ByteRange]:
    """The bytes that a step writes."""
    return step.writes if isinstance(step, GpuStep) else _static(step.writes)


def _static(values: Iterable[tuple[str, Place | None, ValueType | None]]) -> list[ByteRange]:
    """The bytes of what lies in memory, those between elements included."""
    found = []
    for _, place, kind in values:
        if place is None or not isinstance(kind, TensorType):
            continue
        low, high = 0, int(kind.nbytes)
        if place.strides is not None:
            steps = [stride * (int(extent) - 1) for stride, extent in zip(place.strides, kind.dims, strict=True)]
            low = sum(min(0, one) for one in steps) * kind.dtype.itemsize
            high = (sum(max(0, one) for one in steps) + 1) * kind.dtype.itemsize
        found.append(ByteRange(place.buffer, place.offset + low, place.offset + high))
    return found


# --- is it sound? ---------------------------------------------------------------------------------------------------------


def check_program(program: GpuProgram) -> None:
    """Raise `BrokenPlan` unless everything that is named exists, every range and pointer lies in its buffer, every buffer of
    the arena in the arena and on its boundary, nobody writes constants or inputs, and every pointer keeps the alignment that
    its kernel was written for."""
    for number, buffer in enumerate(program.buffers):
        _require(buffer.kind in KINDS, f"buffer {number} is of the unknown kind {buffer.kind!r}")
        if buffer.kind == "arena":
            fits = buffer.offset % ALIGNMENT == 0 and 0 <= buffer.offset <= program.arena_bytes - buffer.nbytes
            _require(fits, f"buffer {number} does not lie in the arena")
    for number, step in enumerate(program.steps):
        for one in (*reads_of(step), *writes_of(step)):
            _check_range(one, program.buffers, f"step {number}")
        written = {program.buffers[one.buffer].kind for one in writes_of(step)}
        _require(not written & set(_READ_ONLY), f"step {number} writes what may only be read")
        if isinstance(step, GpuStep):
            _check_launch(step, program, f"step {number}")
    for port in (*program.inputs, *program.outputs):
        if port.buffer >= 0:
            _require(port.buffer < len(program.buffers), f"port {port.name!r} has no buffer")


def _check_launch(step: GpuStep, program: GpuProgram, who: str) -> None:
    _require(0 <= step.kernel < len(program.kernels), f"{who} launches kernel {step.kernel}, which does not exist")
    kernel = program.kernels[step.kernel]
    fits = len(kernel.grid) <= len(_MOST_BLOCKS) and all(
        1 <= blocks <= most for blocks, most in zip(kernel.grid, _MOST_BLOCKS, strict=False)
    )
    _require(fits, f"{who} launches {kernel.symbol} over {kernel.grid} blocks, which no GPU does")
    _require(len(step.arguments) == len(kernel.arguments), f"{who} gives {kernel.symbol} another number of arguments")
    for place, name, boundary in zip(step.arguments, kernel.arguments, kernel.alignments, strict=True):
        _check_range(ByteRange(place.buffer, place.offset, place.offset), program.buffers, who)
        _require(place.offset % min(boundary, ALIGNMENT) == 0, f"{who} gives {kernel.symbol} a crooked {name}")


def _check_range(one: ByteRange, buffers: Sequence[GpuBuffer], who: str) -> None:
    _require(0 <= one.buffer < len(buffers), f"{who} names buffer {one.buffer}, which does not exist")
    _require(min(1, one.period) <= one.width <= one.period, f"{who} touches {one.width} of every {one.period} bytes")
    inside = 0 <= one.low <= one.high <= buffers[one.buffer].nbytes
    _require(
        inside,
        f"{who} touches bytes {one.low} to {one.high} of buffer {one.buffer}, which has {buffers[one.buffer].nbytes}",
    )


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise BrokenPlan(f"the program for the GPU is broken: {sentence}")
