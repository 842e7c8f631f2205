"""A program in memory: machine code, buffers, and step tables over one array of kernel arguments, all as a run needs them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Union

import numpy as np

from fusewise.codegen.target import Target
from fusewise.ir.at_sizes import constant_at
from fusewise.ir.graph import SizesConstant
from fusewise.ir.types import TensorType
from fusewise.lower.program import Buffer, HostStep, NativeStep, Program
from fusewise.records import record
from fusewise.runtime.arena import address_of, aligned_block, maker_of
from fusewise.runtime.crew import Crew
from fusewise.runtime.faults import Faults, faults_of
from fusewise.runtime.jit import Library
from fusewise.runtime.results import Results
from fusewise.runtime.threads import CallRow, StepTable, step_table

if TYPE_CHECKING:  # a compiled model is opened without these
    from fusewise.runtime.checks import Checks
    from fusewise.runtime.hoststep import HostCall
    from fusewise.runtime.stages import HostStage

__all__ = [
    "Contents",
    "HostMaker",
    "HostPart",
    "RunPlan",
    "Stretch",
    "contents_in_sizes",
    "objects_at",
    "ports_of",
    "run_plan_of",
    "stretch_rows",
    "whole_stretch",
    "words_of",
]

HostPart = tuple[int, Union["HostCall", "HostStage"]]
"""A host step ready to run, with its number; of a stage, that of its first step."""

Ports = tuple[tuple[int, str], ...]

HostMaker = Callable[[Sequence[tuple[int, HostStep]]], list[HostPart]]


@record(frozen=True)
class Stretch:
    """Consecutive native steps: the calls, of each call the number of its step in the program, and who makes them."""

    table: StepTable
    steps: tuple[int, ...]
    crew: Crew


@record(eq=False)
class RunPlan:
    """Everything a run goes by, for one tuple of sizes where the program has symbols: for other ones it may be written anew
    (`runtime.plan_maker`), which nothing that a run gives back looks into.

    `ports` has buffer and name of each input. `words` are the kernels' arguments, into which a run writes where the caller's arrays
    are: `patches` has buffer, number of the word and byte offset of each. `fresh` makes the arrays of the
    outputs that have memory of their own. Words and calls may lie in `tables`. `whole`: see `whole_stretch`.
    """

    program: Program
    library: Library
    ports: Ports
    memory: tuple[np.ndarray | None, ...]
    words: memoryview
    patches: Iterable[Sequence[int]]
    fresh: tuple[tuple[int, Callable[[], np.ndarray]], ...]
    parts: tuple[Stretch | HostPart, ...]
    results: Results
    faults: Faults | None = None
    checks: Checks | None = None
    tables: object = None
    objects: tuple[tuple[str, np.ndarray], ...] = ()
    whole: Stretch | None = None


@record(frozen=True)
class Contents:
    """What an executable is made of, to be written to a file: `images` has the object file of each kernel of `symbols`.

    The program has no constants' data and no kernels any more; `constants` are theirs as packed, by buffer.
    """

    program: Program
    symbols: tuple[str, ...]
    images: tuple[bytes, ...]
    constants: Mapping[int, np.ndarray]
    target: Target


def contents_in_sizes(program: Program) -> dict[int, np.ndarray]:
    """The constants that are known in terms of sizes, as flat bytes by buffer, of a program where these are numbers."""
    kinds = {number: one for number, one in enumerate(program.buffers) if one.kind == "sizes"}
    return {number: words_of(one.contents, one.nbytes).view(np.uint8) for number, one in kinds.items()}


def objects_at(
    objects: Sequence[tuple[str, np.ndarray | SizesConstant]], values: Mapping[str, int]
) -> tuple[tuple[str, np.ndarray], ...]:
    """What host steps read by name, for these values of symbols."""
    return tuple(
        (name, one if isinstance(one, np.ndarray) else constant_at(one, values).array) for name, one in objects
    )


def whole_stretch(
    program: Program, parts: Sequence[Stretch | HostPart], fresh: Iterable[tuple[int, object]]
) -> Stretch | None:
    """All of a program, where that is one stretch of native steps between arrays of the caller's: inputs, and outputs that are
    `fresh` (their buffers come first), in order."""
    part = parts[0] if len(parts) == 1 else None
    given = all(port.buffer >= 0 for port in program.inputs)
    made = [buffer for buffer, _ in fresh] == [port.buffer for port in program.outputs]
    return part if isinstance(part, Stretch) and given and made else None


def ports_of(program: Program) -> Ports:
    """Buffer and name of each input; buffer -1 for what is not in memory."""
    return tuple((port.buffer, port.name) for port in program.inputs)


def words_of(numbers: Sequence[int], nbytes: int) -> np.ndarray:
    """Numbers as int64, or int32 where they have so few bytes."""
    return np.array(numbers, np.int32 if nbytes < 8 * len(numbers) else np.int64)


def _allocate(
    program: Program, constants: Mapping[int, np.ndarray], arena: np.ndarray
) -> tuple[np.ndarray | None, ...]:
    """Memory of every buffer as flat bytes; None for those the caller brings, of which a checked program has copies."""
    if program.is_checked:
        from fusewise.runtime.checks import guarded_memory

        return guarded_memory(program, constants)

    def memory_of(number: int, buffer: Buffer) -> np.ndarray | None:
        if buffer.kind == "arena":
            return arena[buffer.offset : buffer.offset + buffer.nbytes]
        if buffer.kind in ("host", "fault"):
            block = aligned_block(buffer.nbytes)
            block.fill(0)
            return block
        return constants.get(number)

    return tuple(memory_of(number, buffer) for number, buffer in enumerate(program.buffers))


def run_plan_of(
    contents: Contents, library: Library, workers: int, arena: np.ndarray, host: Callable[[Program], HostMaker]
) -> RunPlan:
    """Memory, and step tables, split at host steps, over one array of argument pointers. The program has no symbols; its arena
    may be larger than it has to be; a checked build lays buffers between guards instead. `host` gives what makes host
    steps in a row ready to run, and is asked where there are any."""
    program = contents.program
    memory = _allocate(program, {**contents.constants, **contents_in_sizes(program)}, arena)
    checks = _checks(program, memory)
    native = [step for step in program.steps if isinstance(step, NativeStep)]
    arguments, at = _pointers(native, memory, checks)
    parts: list[Stretch | HostPart] = []
    maker: HostMaker | None = None
    for hosted, group in groupby(enumerate(program.steps), lambda row: isinstance(row[1], HostStep)):
        if hosted:
            maker = host(program) if maker is None else maker
            parts.extend(maker([(number, step) for number, step in group if isinstance(step, HostStep)]))
            continue
        rows = [
            (number, CallRow(library.addresses[contents.symbols[s.kernel]], next(at), s.barrier, pieces=s.pieces))
            for number, s in group
            if isinstance(s, NativeStep)
        ]
        found = stretch_rows(program, rows)
        table = step_table([row for _, row in found])
        parts.append(Stretch(table, tuple(number for number, _ in found), Crew(workers, len(found))))
    fresh = {
        port.buffer: (port.buffer, maker_of(port.type.dims, port.type.dtype.numpy))
        for port in program.outputs
        if port.buffer >= 0 and program.buffers[port.buffer].kind == "output" and isinstance(port.type, TensorType)
        if memory[port.buffer] is None
    }
    return RunPlan(
        program,
        library,
        ports_of(program),
        memory,
        arguments.data,
        _patches(program, native, memory, fresh.keys()),
        tuple(fresh.values()),
        tuple(parts),
        Results(program.outputs, program),
        faults_of(program, memory),
        checks,
        objects=objects_at(program.objects, {}),
        whole=None if checks is not None else whole_stretch(program, parts, [*fresh.values()]),
    )


def _patches(
    program: Program, steps: Sequence[NativeStep], memory: tuple[np.ndarray | None, ...], fresh: Collection[int]
) -> tuple[tuple[int, int, int], ...]:
    """Which arguments point into the arrays of the caller."""
    given = {*(port.buffer for port in program.inputs), *fresh}
    return tuple(
        (place.buffer, number, place.offset)
        for number, place in enumerate(place for step in steps for place in step.arguments)
        if place.buffer in given and memory[place.buffer] is None
    )


def _checks(program: Program, memory: tuple[np.ndarray | None, ...]) -> Checks | None:
    """Of a checked program."""
    if not program.is_checked:
        return None
    from fusewise.runtime.checks import Checks

    return Checks(program, memory)


def _pointers(
    steps: Sequence[NativeStep], memory: tuple[np.ndarray | None, ...], checks: Checks | None
) -> tuple[np.ndarray, Iterator[int]]:
    """The arguments of all steps one behind the other, and where those of each begin. Those that are checked have the address of
    their table in front."""
    bases = [0 if block is None else address_of(block) for block in memory]
    before = [[]] * len(steps) if checks is None else [[table] for table in checks.addresses]
    words = [
        [*first, *(bases[p.buffer] + p.offset for p in s.arguments)] for first, s in zip(before, steps, strict=True)
    ]
    arguments = np.array([word for line in words for word in line] or [0], np.int64)
    ends = accumulate((8 * len(line) for line in words), initial=address_of(arguments))
    return arguments, (end + 8 * len(first) for end, first in zip(ends, before, strict=False))


def stretch_rows(program: Program, rows: Sequence[tuple[int, CallRow]]) -> list[tuple[int, CallRow]]:
    """Consecutive calls with the numbers of their steps; of two that are tiled depth-first as `NativeStep.strips` says."""
    found: list[tuple[int, CallRow]] = []
    for number, row in rows:
        before = program.steps[number - 1] if found else None
        if isinstance(before, NativeStep) and before.strips:
            strips, (first, above) = before.strips, found.pop()
            for strip in range(strips):
                found.append((first, above._replace(barrier=False, part=strip, parts=strips)))
                if strip >= 2:
                    meet = strip == strips - 1  # its first and last strip read what other workers have made
                    found.append((number, row._replace(barrier=meet, part=strip - 1, parts=strips)))
            found.append((number, row._replace(barrier=False, part=0, parts=strips)))
            found.append((number, row._replace(part=strips - 1, parts=strips)))
        else:
            found.append((number, row))
    return found
