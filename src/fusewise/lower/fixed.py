"""A program with symbols where these are numbers: what a program without has in its place.

The runtime gets at the same numbers sooner (`runtime.plans`); this is what they mean, and what tools that look at programs read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from fusewise.ir.at_sizes import constant_at, type_at
from fusewise.ir.graph import SizesConstant
from fusewise.ir.size import evaluate
from fusewise.lower.memory import ALIGNMENT
from fusewise.lower.program import SIZES, Buffer, HostStep, HostValue, NativeStep, Place, Program, StepVersions

__all__ = ["chosen", "fixed", "fixed_host", "place_offsets"]

Number = Callable[[int], int]


def fixed(program: Program, values: Mapping[str, int]) -> Program:
    """The program for these values of its symbols, by name. What its steps read as their own sizes lies in buffers.

    Raises `ZeroDivisionError` where a size cannot be computed.
    """
    if not program.symbols:
        return program

    def number(size: int) -> int:
        return evaluate(size, values)

    buffers, arena_bytes = _buffers(program.buffers, number)
    steps: list[NativeStep | HostStep] = []
    for step in program.steps:
        if isinstance(step, HostStep):
            steps.append(fixed_host(step, values))
            continue
        one = chosen(step, values)
        if one is not None:
            own = len(buffers)
            buffers += [_own_sizes(one, number)] if one.sizes else []
            steps.append(_native(one, number, own))
    return replace(
        program,
        inputs=tuple(replace(port, type=type_at(port.type, values), contents=()) for port in program.inputs),
        outputs=tuple(replace(port, type=type_at(port.type, values)) for port in program.outputs),
        buffers=tuple(buffers),
        steps=tuple(steps),
        arena_bytes=arena_bytes,
        accounts=tuple(replace(a, flops=number(a.flops), nbytes=number(a.nbytes)) for a in program.accounts),
        objects=tuple(
            (name, constant_at(one, values).array if isinstance(one, SizesConstant) else one)
            for name, one in program.objects
        ),
        symbols=(),
        checks=(),
        growth=None,
    )


def chosen(step: NativeStep | StepVersions, values: Mapping[str, int]) -> NativeStep | None:
    """The version that is run for these values of symbols; None where there is nothing to do."""
    if isinstance(step, NativeStep):
        return step
    if evaluate(step.extent, values) == 0:
        return None
    return next(one for conditions, one in step.versions if all(c.holds(values) for c in conditions))


def place_offsets(sizes: Sequence[int], places: Sequence[int]) -> tuple[list[int], int]:
    """Where buffers of these sizes begin that share places, and how large all places are together: a place begins where the one
    before ends, and each buffer lies in its middle (see `lower.memory`), whole cache lines from the start."""
    lines = [-(-max(1, size) // ALIGNMENT) * ALIGNMENT for size in sizes]
    largest = [0] * (max(places, default=-1) + 1)
    for size, place in zip(lines, places, strict=True):
        largest[place] = max(largest[place], size)
    starts = list(accumulate(largest, initial=0))
    middles = (
        starts[p] + (largest[p] - size) // 2 // ALIGNMENT * ALIGNMENT for size, p in zip(lines, places, strict=True)
    )
    return list(middles), starts[-1]


def _buffers(buffers: Sequence[Buffer], number: Number) -> tuple[list[Buffer], int]:
    found = [
        replace(one, nbytes=number(one.nbytes), contents=tuple(number(size) for size in one.contents), place=-1)
        for one in buffers
    ]
    arena = [k for k, one in enumerate(buffers) if one.kind == "arena"]
    offsets, total = place_offsets([found[k].nbytes for k in arena], [buffers[k].place for k in arena])
    for k, offset in zip(arena, offsets, strict=True):
        found[k] = replace(found[k], offset=offset)
    return found, total


def _own_sizes(step: NativeStep, number: Number) -> Buffer:
    contents = tuple(number(size) for size in step.sizes)
    return Buffer("sizes", 8 * len(contents), contents=contents)


def _native(step: NativeStep, number: Number, own: int) -> NativeStep:
    return replace(
        step,
        arguments=tuple(Place(own if p.buffer == SIZES else p.buffer, number(p.offset)) for p in step.arguments),
        sites=tuple(replace(site, low=number(site.low), high=number(site.high)) for site in step.sites),
        extents=tuple(replace(one, low=number(one.low), high=number(one.high)) for one in step.extents),
        sizes=(),
    )


def fixed_host(step: HostStep, values: Mapping[str, int]) -> HostStep:
    """A host step with numbers for the sizes of its operands."""

    def number(size: int) -> int:
        return evaluate(size, values)

    def operand(one: HostValue) -> HostValue:
        name, place, kind = one
        return name, _place(place, number), None if kind is None else type_at(kind, values)

    return replace(step, reads=tuple(map(operand, step.reads)), writes=tuple(map(operand, step.writes)))


def _place(place: Place | None, number: Number) -> Place | None:
    if place is None:
        return None
    strides = None if place.strides is None else tuple(number(stride) for stride in place.strides)
    return Place(place.buffer, number(place.offset), strides)
