"""Lowered work to a program: passes decide about it one after the other, then memory is planned and all is written down."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from fusewise.codegen.choose import choose_kernels
from fusewise.codegen.families.boxes import routine_for
from fusewise.codegen.kernel import Implementation
from fusewise.codegen.llvm.checked import checked
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.build import Module
from fusewise.codegen.steps.calls import repeat_calls
from fusewise.codegen.steps.depth_first import tile_depth_first
from fusewise.codegen.steps.draft import (
    Area,
    DraftPass,
    HostDraft,
    Pointer,
    PortDraft,
    ProgramDraft,
    TaskDraft,
    Visit,
    first_draft,
)
from fusewise.codegen.steps.extents import state_extents
from fusewise.codegen.steps.lifetimes import find_lifetimes
from fusewise.codegen.steps.overwrite import overwrite_results
from fusewise.codegen.steps.pointers import place_arguments
from fusewise.codegen.steps.prefetch import fetch_ahead
from fusewise.codegen.steps.samples import run_by_samples
from fusewise.codegen.target import Target
from fusewise.errors import UnsupportedModel
from fusewise.ir.partition import Partition
from fusewise.ir.types import ValueType
from fusewise.lower.account import accounts
from fusewise.lower.memory import plan_arena
from fusewise.lower.program import HostStep, KernelCode, NativeStep, Place, Port, Program
from fusewise.lower.work import HostWork, lower_partition
from fusewise.trace import Trace

__all__ = ["PASSES", "generate"]

PASSES: tuple[DraftPass, ...] = (
    run_by_samples,
    choose_kernels,
    fetch_ahead,
    place_arguments,
    tile_depth_first,
    find_lifetimes,
    overwrite_results,
    repeat_calls,
    state_extents,
)
"""What is decided about a program, in order. Each pass reads what those before it have decided."""

_LONGEST_TABLE = 16
"""Elements of a table that people are shown."""

_FIRST: Mapping[str, int] = MappingProxyType({})


def generate(
    partition: Partition,
    target: Target,
    trace: Trace,
    *,
    workers: int = 1,
    exact: bool = False,
    strict: bool = False,
    ways: Mapping[str, int] = _FIRST,
) -> Program:
    """The program that runs every group of `partition` on `target`.

    `workers` sizes per-worker scratch memory, and kernels are chosen for so many. With `strict`, a node that would run on the host
    is an error that lists all such nodes. `ways` may name, by a task's digest (`KernelCode.task`), another of its `alternatives`
    than the first.
    """
    lowered = lower_partition(partition, trace, exact=exact)
    on_host = [work for work in lowered.work if isinstance(work, HostWork)]
    if strict and on_host:
        nodes = [pair for work in on_host for pair in zip(work.nodes, work.reasons, strict=True)]
        listed = "; ".join(f"{node.label} ({node.op}: {reason})" for node, reason in nodes)
        raise UnsupportedModel(f"{len(nodes)} nodes have no native kernel: {listed}; compile without --strict")
    machine, draft = replace(target, workers=workers), first_draft(lowered, ways)
    for decide in PASSES:
        draft = decide(draft, machine, trace)
    made = _program(draft, machine, len(partition.groups))
    return replace(made, exact=exact, disabled=tuple(sorted(trace.disabled)))


def _program(draft: ProgramDraft, target: Target, groups: int) -> Program:
    """Numbers in place of names: of areas in the order in which ports and steps name them, of kernels in that of steps."""
    number = {area: k for k, area in enumerate(dict.fromkeys((*draft.ports.values(), *draft.lifetimes)))}
    offsets, arena_bytes = _plan(draft)
    buffers = tuple(replace(area.buffer, offset=offsets[area]) if area in offsets else area.buffer for area in number)
    codes = [_codes(step, target) for step in draft.steps]
    kernels = {code.symbol: code for found in codes for code in found}
    at = {symbol: k for k, symbol in enumerate(kernels)}
    steps = [
        _native(step, at[code[0].symbol], number) if isinstance(step, TaskDraft) else _host(step, draft, number)
        for step, code in zip(draft.steps, codes, strict=True)
    ]
    return Program(
        tuple(_port(port, draft, number) for port in draft.inputs),
        tuple(_port(port, draft, number) for port in draft.outputs),
        buffers,
        tuple(kernels.values()),
        tuple(_visited(steps[visit.step], draft.steps[visit.step], visit) for visit in draft.visits),
        arena_bytes,
        groups,
        (("", draft.graph.opset), *draft.graph.opsets),
        tuple(_objects(draft).items()),
        target.workers,
        accounts(draft.graph, draft.lowered.groups),
        target.sanitize,
    )


def _plan(draft: ProgramDraft) -> tuple[Mapping[Area, int], int]:
    """Where each area in the arena begins, and how large that is."""
    lifetimes = {area: used for area, used in draft.lifetimes.items() if area.buffer.kind == "arena"}
    number = {area: k for k, area in enumerate(lifetimes)}
    pairs = [(number[old], number[new]) for old, new in draft.overwrites]
    offsets, total = plan_arena(list(lifetimes.values()), pairs)
    return dict(zip(lifetimes, offsets, strict=True)), total


def _port(port: PortDraft, draft: ProgramDraft, number: Mapping[Area, int]) -> Port:
    return Port(port.name, draft.graph.types[port.name], -1 if port.area is None else number[port.area])


def _objects(draft: ProgramDraft) -> dict[str, np.ndarray]:
    """Constants that are outputs or read by host steps, and in no native memory."""
    read = [v for step in draft.steps if isinstance(step, HostDraft) for v, place, _ in step.reads if place is None]
    names = [*(port.name for port in draft.outputs if port.area is None), *read]
    return {name: draft.graph.constants[name].array for name in names if name in draft.graph.constants}


def _codes(step: TaskDraft | HostDraft, target: Target) -> list[KernelCode]:
    """The kernel of a native step, or those that help with the nodes of a host step."""
    if isinstance(step, TaskDraft):
        return [_code(step.way, target)]
    return [code for node in step.work.nodes if (code := routine_for(node, target.instructions)) is not None]


def _code(way: Implementation, target: Target) -> KernelCode:
    key = f"{way.key}|{target.key}"
    symbol = "k" + hashlib.blake2b(key.encode(), digest_size=10).hexdigest()
    build, nest = _builder(way, target, symbol), lambda: _shown(way.build(target.instructions, symbol))
    return KernelCode(symbol, key, build, way.task.digest, way.kernel.effort, way.level, nest)


def _shown(module: Module) -> str:
    from fusewise.codegen.nest.text import printed  # which only people ask for

    return printed(module, _LONGEST_TABLE)


def _builder(way: Implementation, target: Target, symbol: str) -> Callable[[], str]:
    instructions = target.instructions
    if target.sanitize:
        return lambda: checked(llvm_text(way.build(instructions, symbol), instructions), symbol)
    return lambda: llvm_text(way.build(instructions, symbol), instructions)


def _native(step: TaskDraft, kernel: int, number: Mapping[Area, int]) -> NativeStep:
    work, places = step.work, tuple(Place(number[pointer.area], pointer.offset) for pointer in step.pointers)
    return NativeStep(
        kernel,
        places,
        work.label,
        work.group,
        way=step.way.told,
        strips=step.strips,
        pieces=step.pieces,
        sites=work.bound.sites,
        extents=step.extents,
    )


def _host(step: HostDraft, draft: ProgramDraft, number: Mapping[Area, int]) -> HostStep:
    work = step.work

    def told(value: str, pointer: Pointer | None, kind: ValueType | None) -> tuple[str, Place | None, ValueType | None]:
        place = None if pointer is None else Place(number[pointer.area], pointer.offset, pointer.strides)
        return value, place, kind

    reads, writes = (tuple(told(*each) for each in one) for one in (step.reads, step.writes))
    return HostStep(work.nodes, draft.graph.opset, reads, writes, work.reasons, work.group)


def _visited(step: NativeStep | HostStep, made: TaskDraft | HostDraft, visit: Visit) -> NativeStep | HostStep:
    """A step, with its arguments moved on for a sample and a call."""
    if isinstance(step, HostStep) or not (visit.sample or visit.call):
        return step
    moved = zip(step.arguments, made.pointers, strict=True)
    return replace(step, arguments=tuple(replace(place, offset=pointer.at(visit)) for place, pointer in moved))
