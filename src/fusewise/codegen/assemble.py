"""Lowered work to a program: passes decide about it one after the other, then memory is planned and all is written down."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    SizedCode,
    TaskDraft,
    Visit,
    first_draft,
)
from fusewise.codegen.steps.extents import state_extents
from fusewise.codegen.steps.lifetimes import find_lifetimes
from fusewise.codegen.steps.overwrite import overwrite_results
from fusewise.codegen.steps.pointers import STEP_SIZES, place_arguments
from fusewise.codegen.steps.prefetch import fetch_ahead
from fusewise.codegen.steps.samples import run_by_samples
from fusewise.codegen.target import Target
from fusewise.errors import UnsupportedModel
from fusewise.ir.deciding import at_hint, deciding
from fusewise.ir.graph import Graph, SizesConstant
from fusewise.ir.partition import Partition
from fusewise.ir.types import ValueType
from fusewise.lower.account import accounts
from fusewise.lower.memory import Lifetime, plan_arena, plan_places
from fusewise.lower.program import (
    SIZES,
    Buffer,
    HostStep,
    HostValue,
    KernelCode,
    NativeStep,
    Place,
    Port,
    Program,
    StepVersions,
)
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
    planned, arena_bytes = _plan(draft)
    buffers = tuple(planned.get(area, area.buffer) for area in number)
    codes = [_codes(step, target) for step in draft.steps]
    kernels = {code.symbol: code for found in codes for code in found}
    at = {symbol: k for k, symbol in enumerate(kernels)}
    steps = [
        _step(step, [at[one.symbol] for one in code], number)
        if isinstance(step, TaskDraft)
        else _host(step, draft, number)
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
        accounts(draft.graph if not draft.symbols else _planned_for(draft.graph), draft.lowered.groups),
        target.sanitize,
        symbols=draft.symbols,
        checks=draft.graph.checks,
        growth=draft.graph.growth,
    )


def _plan(draft: ProgramDraft) -> tuple[Mapping[Area, Buffer], int]:
    """Each area in the arena where it lies, and how large that is: at the hint, where sizes are not known."""
    lifetimes = {area: at_hint(used) for area, used in draft.lifetimes.items() if area.buffer.kind == "arena"}
    number = {area: k for k, area in enumerate(lifetimes)}
    pairs = [(number[old], number[new]) for old, new in draft.overwrites]
    if draft.symbols:
        places = plan_places(list(lifetimes.values()), pairs)
        found = zip(lifetimes, places, strict=True)
        return {area: replace(area.buffer, place=place) for area, place in found}, _needed(lifetimes.values(), places)
    offsets, total = plan_arena(list(lifetimes.values()), pairs)
    return {area: replace(area.buffer, offset=at) for area, at in zip(lifetimes, offsets, strict=True)}, total


def _planned_for(graph: Graph) -> Graph:
    """The graph with the numbers that sizes are at the hint."""
    return graph.replace(types={value: at_hint(kind) for value, kind in graph.types.items()})


def _needed(lifetimes: Iterable[Lifetime], places: Sequence[int]) -> int:
    """Bytes of all places, each as large as the largest that it is for."""
    largest: dict[int, int] = {}
    for one, place in zip(lifetimes, places, strict=True):
        largest[place] = max(one.size, largest.get(place, 0))
    return sum(largest.values())


def _port(port: PortDraft, draft: ProgramDraft, number: Mapping[Area, int]) -> Port:
    contents = dict(draft.graph.contents).get(port.name, ())
    return Port(port.name, draft.graph.types[port.name], -1 if port.area is None else number[port.area], contents)


def _objects(draft: ProgramDraft) -> dict[str, np.ndarray | SizesConstant]:
    """Constants that are outputs or read by host steps, and in no native memory."""
    read = [v for step in draft.steps if isinstance(step, HostDraft) for v, place, _ in step.reads if place is None]
    names = [*(port.name for port in draft.outputs if port.area is None), *read]
    found = {name: draft.graph.constants[name] for name in names if name in draft.graph.constants}
    return {name: one if isinstance(one, SizesConstant) else one.array for name, one in found.items()}


def _codes(step: TaskDraft | HostDraft, target: Target) -> list[KernelCode]:
    """The kernel of a native step, or those that help with the nodes of a host step."""
    if isinstance(step, TaskDraft):
        return [
            _code(one.way, target) if one.code is None else _sized(one.way, one.code, target) for one in step.versions
        ]
    return [code for node in step.work.nodes if (code := routine_for(node, target.instructions)) is not None]


def _code(way: Implementation, target: Target) -> KernelCode:
    key = f"{way.key}|{target.key}"
    symbol = "k" + hashlib.blake2b(key.encode(), digest_size=10).hexdigest()
    instructions, written = target.instructions, _writer(target, symbol)

    def listing() -> tuple[str, str]:
        module = way.build(instructions, symbol)
        return _shown(module), written(module)

    def build() -> str:
        return written(way.build(instructions, symbol))

    return KernelCode(symbol, key, build, way.task.digest, way.kernel.effort, way.level, listing)


def _sized(way: Implementation, code: SizedCode, target: Target) -> KernelCode:
    """A kernel that was built when it was chosen, by another name than all others."""
    key = f"{code.key}|{target.key}"
    symbol = "k" + hashlib.blake2b(key.encode(), digest_size=10).hexdigest()
    text, instructions = re.sub(r"@kernel\b", f"@{symbol}", code.text), target.instructions
    text = re.sub(r"@kernel_body\b", f"@{symbol}_body", text)

    def listing() -> tuple[str, str]:
        with deciding(code.hints):
            return _shown(way.build(instructions, symbol)), text

    return KernelCode(symbol, key, lambda: text, way.task.digest, way.kernel.effort, way.level, listing)


def _shown(module: Module) -> str:
    from fusewise.codegen.nest.text import printed  # which only people ask for

    return printed(module, _LONGEST_TABLE)


def _writer(target: Target, symbol: str) -> Callable[[Module], str]:
    """Writes a kernel as LLVM IR."""
    instructions = target.instructions
    if target.sanitize:
        return lambda module: checked(llvm_text(module, instructions), symbol)
    return lambda module: llvm_text(module, instructions)


def _step(step: TaskDraft, kernels: Sequence[int], number: Mapping[Area, int]) -> NativeStep | StepVersions:
    """A step, or its versions."""
    if step.code is None:
        return _native(step, kernels[0], number)
    made = [_native(one, kernel, number) for one, kernel in zip(step.versions, kernels, strict=True)]
    conditions = [one.code.conditions for one in step.versions if one.code is not None]
    return StepVersions(math.prod(step.work.bound.task.extents), tuple(zip(conditions, made, strict=True)))


def _native(step: TaskDraft, kernel: int, number: Mapping[Area, int]) -> NativeStep:
    sizes = () if step.code is None else step.code.sizes
    pointers = step.pointers if sizes else [one for one in step.pointers if one.area != STEP_SIZES]
    work, places = step.work, tuple(Place(number.get(pointer.area, SIZES), pointer.offset) for pointer in pointers)
    values, written = work.bound.values, {store.operand for store in work.bound.task.stores}
    names = [one.name for one, at in zip(step.arguments, step.pointers, strict=True) if sizes or at.area != STEP_SIZES]
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
        sizes=sizes,
        touched=tuple((values.get(name, ""), name in written) for name in names),
    )


def _host(step: HostDraft, draft: ProgramDraft, number: Mapping[Area, int]) -> HostStep:
    work = step.work

    def told(value: str, pointer: Pointer | None, kind: ValueType | None) -> HostValue:
        place = None if pointer is None else Place(number[pointer.area], pointer.offset, pointer.strides)
        return value, place, kind

    reads, writes = (tuple(told(*each) for each in one) for one in (step.reads, step.writes))
    return HostStep(work.nodes, draft.graph.opset, reads, writes, work.reasons, work.group)


def _visited(
    step: NativeStep | StepVersions | HostStep, made: TaskDraft | HostDraft, visit: Visit
) -> NativeStep | StepVersions | HostStep:
    """A step, with its arguments moved on for a sample and a call."""
    if not isinstance(step, NativeStep) or not (visit.sample or visit.call):
        return step
    moved = zip(step.arguments, made.pointers, strict=True)
    return replace(step, arguments=tuple(replace(place, offset=pointer.at(visit)) for place, pointer in moved))
