"""Groups to a program for a GPU: kernels are chosen, and a step says where its arguments lie and which bytes it touches.

A group that no kernel computes falls apart into its nodes, and a node that no kernel computes runs on the host. Where values lie
was decided by lowering, as for processors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from fusewise.codegen.gpu.choose import ChosenKernel, GpuChoice
from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.kernel import FAULT, SCRATCH, STEP, STEP_BYTES, GpuKernel, NoKernel
from fusewise.codegen.gpu.program import (
    ByteRange,
    GpuBuffer,
    GpuProgram,
    GpuStep,
    check_program,
    planned,
)
from fusewise.codegen.steps.draft import Area, Pointer, PortDraft, ProgramDraft, first_draft, in_memory
from fusewise.codegen.steps.pointers import SITE_BYTES, constant_area, host_read, host_write, value_area
from fusewise.errors import UnsupportedModel
from fusewise.ir.graph import Graph, SizesConstant
from fusewise.ir.partition import Group, Partition
from fusewise.ir.types import TensorType, ValueType
from fusewise.lower.account import accounts
from fusewise.lower.program import Buffer, HostStep, Packing, Place, Port
from fusewise.lower.task import Operand
from fusewise.lower.work import HostWork, Lowered, TaskWork, lower_partition
from fusewise.records import record
from fusewise.trace import Trace

__all__ = ["gpu_program"]

_FIRST: Mapping[str, int] = MappingProxyType({})

_PRODUCTS = ("exact", "tf32")
"""Precisions that concern how kernels multiply float32; in the others they do it three times in TF32."""


def gpu_program(
    partition: Partition,
    device: Device,
    precision: str,
    trace: Trace,
    *,
    strict: bool = False,
    exact: bool = False,
    ways: Mapping[str, int] = _FIRST,
) -> GpuProgram:
    """The program that runs every group of `partition` on `device`, products of float32 in `precision`, or in IEEE's where
    `exact`.

    Raises `UnsupportedModel` for a model of free dimensions, and with `strict` when nodes run on the host, which it lists.
    """
    _require_inputs(partition.graph)
    precision = "exact" if exact else precision
    choice = GpuChoice(device, precision if precision in _PRODUCTS else "float32", ways)
    draft, chosen = _lowered(partition, choice, trace, exact)
    if strict:
        _require_no_host(draft)
    steps = _Steps(draft)
    for one in chosen:
        steps.add(one)
    program = GpuProgram(
        device.name,
        precision,
        tuple(steps.kernels),
        tuple(steps.steps),
        steps.buffers(),
        tuple(steps.port(port) for port in draft.inputs),
        tuple(steps.port(port) for port in draft.outputs),
        groups=len(partition.groups),
        opsets=(("", draft.graph.opset), *draft.graph.opsets),
        objects=tuple(_objects(draft).items()),
        accounts=accounts(draft.graph, draft.lowered.groups),
    )
    program = planned(program)
    check_program(program)
    return program


def _require_inputs(graph: Graph) -> None:
    if graph.growth is not None:
        raise UnsupportedModel("a program for a GPU grows no caches: leave out what grows")
    kinds = ((name, graph.types[name]) for name in graph.inputs)
    shapes = {name: kind.shape for name, kind in kinds if isinstance(kind, TensorType)}
    free = {
        name: shape for name, shape in shapes.items() if shape is None or not all(type(dim) is int for dim in shape)
    }
    if free:
        listed = ", ".join(f"{name}[{'...' if shape is None else _dims(shape)}]" for name, shape in free.items())
        raise UnsupportedModel(
            f"a program for a GPU is made for known sizes, and some are free: {listed}; give each a size"
        )
    for name in graph.inputs:
        if in_memory(graph.types[name]) is None:
            raise UnsupportedModel(f"input {name!r} is {graph.types[name]}, which no memory of a GPU holds")


def _dims(shape: Sequence[object]) -> str:
    return ",".join("?" if dim is None else str(dim) for dim in shape)


# --- work and kernels -----------------------------------------------------------------------------------------------------


def _lowered(
    partition: Partition, choice: GpuChoice, trace: Trace, exact: bool
) -> tuple[ProgramDraft, list[ChosenKernel | HostWork]]:
    """All work, in order, and by which kernel each; what has none is taken apart, and then left to the host."""
    refused: dict[int, str] = {}
    while True:
        trial = replace(trace, events=[])  # which goes on counting decisions where this one is
        lowered = lower_partition(partition, trial, exact=exact, refused=refused, anywhere=True)
        draft = first_draft(lowered, {})
        chosen: list[ChosenKernel | HostWork] = []
        without: dict[int, str] = {}
        for work in draft.work:
            try:
                chosen.append(work if isinstance(work, HostWork) else choice.of(work, trial))
            except NoKernel as reason:
                assert isinstance(work, TaskWork)
                without[work.group] = str(reason)
        if not without:
            trace.events.extend(trial.events)
            trace.gates = trial.gates
            return draft, chosen
        partition, more = _taken_apart(lowered, without)
        refused |= more


def _taken_apart(lowered: Lowered, without: Mapping[int, str]) -> tuple[Partition, dict[int, str]]:
    """Groups without a kernel, by number and with a reason: as groups of a node each, or those that are, as refused nodes."""
    groups: list[Group] = []
    refused: dict[int, str] = {}
    for number, group in enumerate(lowered.groups):
        if number not in without:
            groups.append(group)
        elif len(group.nodes) > 1:
            groups.extend(Group((node,)) for node in group.nodes)
        else:
            groups.append(group)
            refused[group.nodes[0]] = f"no kernel for a GPU ({without[number]})"
    copies = [reason for number, reason in without.items() if number >= len(lowered.groups)]
    if copies:
        raise UnsupportedModel(f"an output of the model cannot be copied on a GPU: {copies[0]}")
    return Partition.ordered(lowered.graph, groups), refused


def _require_no_host(draft: ProgramDraft) -> None:
    on_host = [work for work in draft.work if isinstance(work, HostWork)]
    nodes = [pair for work in on_host for pair in zip(work.nodes, work.reasons, strict=True)]
    if nodes:
        listed = "; ".join(f"{node.label} ({node.op}: {reason})" for node, reason in nodes)
        raise UnsupportedModel(f"{len(nodes)} nodes have no kernel for a GPU: {listed}; compile without --strict")


def _objects(draft: ProgramDraft) -> dict[str, np.ndarray]:
    """Constants that are outputs or that host steps read."""
    read = (value for work in draft.work if isinstance(work, HostWork) for value in work.reads)
    names = [*(port.name for port in draft.outputs if port.area is None), *read]
    found = {name: draft.graph.constants[name] for name in names if name in draft.graph.constants}
    return {name: one.array for name, one in found.items() if not isinstance(one, SizesConstant)}


# --- steps ----------------------------------------------------------------------------------------------------------------


@record(frozen=True, slots=True)
class _Argument:
    """Where an argument points, which of its area's bytes a kernel may touch (`ByteRange`), and whether it writes them."""

    area: Area
    offset: int
    low: int
    high: int
    writes: bool
    period: int = 0
    width: int = 0


class _Steps:
    """Steps in the making: memory by name gets its number, and kernels that are alike become one."""

    def __init__(self, draft: ProgramDraft) -> None:
        self.steps: list[GpuStep | HostStep] = []
        self._draft = draft
        self._numbers: dict[Area, int] = {
            area: number for number, area in enumerate(dict.fromkeys(draft.ports.values()))
        }
        self._kernels: dict[GpuKernel, int] = {}
        self._fault_bytes = 0

    @property
    def kernels(self) -> Sequence[GpuKernel]:
        return tuple(self._kernels)

    def add(self, one: ChosenKernel | HostWork) -> None:
        """Append what does some work."""
        if isinstance(one, HostWork):
            self.steps.append(self._host(one))
        else:
            self.steps.extend(self._launches(one))

    def port(self, port: PortDraft) -> Port:
        """An input or output."""
        return Port(port.name, self._draft.graph.types[port.name], -1 if port.area is None else self._number(port.area))

    def buffers(self) -> tuple[GpuBuffer, ...]:
        """All memory; planned memory that no kernel touches is the host's."""
        launched = {place.buffer for step in self.steps if isinstance(step, GpuStep) for place in step.arguments}
        return tuple(self._buffer(area, number in launched) for area, number in self._numbers.items())

    def _buffer(self, area: Area, is_launched: bool) -> GpuBuffer:
        one = area.buffer
        if one.kind == "fault":
            return GpuBuffer("fault", self._fault_bytes)
        kind = "host" if one.kind == "arena" and not is_launched else one.kind
        return GpuBuffer(kind, one.nbytes, value=one.value or area.root, data=one.data, packing=one.packing)

    def _number(self, area: Area) -> int:
        return self._numbers.setdefault(area, len(self._numbers))

    def _launches(self, one: ChosenKernel) -> Iterator[GpuStep]:
        """The kernel's launches. Those of no blocks are left out."""
        work, sites = one.work, one.work.bound.sites
        known = {operand.name: self._operand(work, operand, one.kernel) for operand in work.bound.task.operands}
        if any(FAULT in kernel.arguments for kernel in (one.kernel, *one.kernel.then)):
            begin = self._fault_bytes
            self._fault_bytes += SITE_BYTES * len(sites)
            known[FAULT] = _Argument(_FAULTS, begin, begin, self._fault_bytes, writes=True)
        if one.kernel.scratch_bytes:
            scratch = Area(("scratch", len(self.steps)), Buffer("arena", one.kernel.scratch_bytes))
            known[SCRATCH] = _Argument(scratch, 0, 0, one.kernel.scratch_bytes, writes=True)
        for name, constant in one.kernel.tables:
            table = Area(("table", constant.digest), Buffer("constant", constant.type.nbytes, data=constant))
            known[name] = _Argument(table, 0, 0, constant.type.nbytes, writes=False)
        for kernel in (one.kernel, *one.kernel.then):
            if STEP in kernel.arguments:  # in the working memory, whose bytes are told of already
                known[STEP] = _Argument(known[SCRATCH].area, STEP_BYTES * kernel.step, 0, 0, writes=False)
            if 0 not in kernel.grid:
                arguments = [known[name] for name in kernel.arguments]
                yield self._launch(kernel, arguments, one, sites if FAULT in kernel.arguments else ())
                sites = () if FAULT in kernel.arguments else sites

    def _launch(self, kernel: GpuKernel, arguments: Sequence[_Argument], of: ChosenKernel, sites: tuple) -> GpuStep:
        alone = replace(kernel, then=(), packed=(), tables=(), step=0, family=of.family)
        touched = [
            (ByteRange(self._number(one.area), one.low, one.high, one.period, one.width), one.writes)
            for one in arguments
        ]
        return GpuStep(
            self._kernels.setdefault(alone, len(self._kernels)),
            tuple(Place(self._number(one.area), one.offset) for one in arguments),
            tuple(one for one, writes in touched if not writes and one.low < one.high),
            tuple(one for one, writes in touched if writes and one.low < one.high),
            of.work.label,
            of.work.group,
            sites,
        )

    def _operand(self, work: TaskWork, operand: Operand, kernel: GpuKernel) -> _Argument:
        value, itemsize = work.bound.values[operand.name], operand.dtype.itemsize
        writes = any(store.operand == operand.name for store in work.bound.task.stores)
        packing = next((found for name, found in kernel.packed if name == operand.name), None)
        if packing is not None:
            area = _packed(self._draft, value, packing)
            return _Argument(area, 0, 0, area.buffer.nbytes, writes=False)
        begin = 0
        if operand.constant:
            area = constant_area(self._draft, value, None)
        else:
            root, offset = work.places[operand.name]
            area, begin = value_area(self._draft, root, value), offset * itemsize
        if 0 in operand.shape:
            return _Argument(area, begin, begin, begin, writes)
        low, high = operand.span
        ends, teeth = (begin + low * itemsize, begin + (high + 1) * itemsize), _period(operand)
        return _Argument(area, begin, *ends, writes, *(size * itemsize for size in teeth))

    def _host(self, work: HostWork) -> HostStep:
        draft = self._draft
        reads = tuple(self._told(host_read(draft, work, value)) for value in work.reads)
        writes = tuple(self._told(host_write(draft, value)) for value in work.writes)
        return HostStep(work.nodes, draft.graph.opset, reads, writes, work.reasons, work.group)

    def _told(self, one: tuple[str, Pointer | None, ValueType | None]) -> tuple[str, Place | None, ValueType | None]:
        value, pointer, kind = one
        if pointer is None:
            return value, None, kind
        return value, Place(self._number(pointer.area), pointer.offset, pointer.strides), kind


def _period(operand: Operand) -> tuple[int, int]:
    """Every how many elements an operand has how many that lie side by side; zeros where it has all, or lies otherwise.

    Of 8 channels of 24 of a 5x5 image, channels last, strides (600, 1, 120, 24): (24, 8).
    """
    axes = sorted((stride, extent) for stride, extent in zip(operand.strides, operand.shape, strict=True) if extent > 1)
    width = 1
    while axes and axes[0][0] == width:
        width *= axes.pop(0)[1]
    period = axes[0][0] if axes else 0
    if period <= width or any(stride % period for stride, _ in axes):
        return 0, 0
    return period, width


_FAULTS = Area(("fault",), Buffer("fault", 0))
"""Where all kernels say what is wrong with their data; how large it is follows when all are known."""


def _packed(draft: ProgramDraft, value: str, packing: Packing) -> Area:
    area = constant_area(draft, value, packing)
    nbytes = packing.nbytes or area.buffer.nbytes if packing.parts is None else packing.parts.nbytes
    return replace(area, buffer=replace(area.buffer, nbytes=nbytes))
