"""Where every argument lies: values where lowering put them, packed constants, and memory that kernels ask for themselves."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from fusewise.codegen.kernel import Argument
from fusewise.codegen.steps.calls import CALL_BYTES, call_numbers
from fusewise.codegen.steps.draft import Area, HostDraft, Pointer, ProgramDraft, TaskDraft, Upcoming, in_memory
from fusewise.codegen.target import Target
from fusewise.ir.graph import Constant, SizesConstant
from fusewise.ir.size import greatest
from fusewise.ir.types import ValueType
from fusewise.lower.program import Buffer, Packing
from fusewise.lower.work import HostWork, TaskWork
from fusewise.trace import Trace

__all__ = ["SITE_BYTES", "STEP_SIZES", "constant_area", "host_read", "host_write", "place_arguments", "value_area"]

STEP_SIZES = Area(("sizes",), Buffer("sizes", 0))
"""The numbers of a step's own sizes, which are no buffer of the program."""

SITE_BYTES = 16
"""Of what a kernel says of a site: two int64."""


def place_arguments(draft: ProgramDraft, target: Target, trace: Trace) -> ProgramDraft:
    """The pass that says where arguments lie, and in how many pieces each share of a step is."""
    told = [_fault_bytes(step) for step in draft.steps]
    faults = Area(("fault",), Buffer("fault", sum(told)))
    before = accumulate(told, initial=0)

    def placed(number: int, fault: int, step: TaskDraft | HostDraft) -> TaskDraft | HostDraft:
        if isinstance(step, HostDraft):
            reads = tuple(host_read(draft, step.work, value) for value in step.work.reads)
            return replace(step, reads=reads, writes=tuple(host_write(draft, value) for value in step.work.writes))

        own = {"fault": Pointer(faults, fault), "scratch": _scratch(step, number, target.workers)}

        def found(one: TaskDraft) -> TaskDraft:
            pointers = tuple(own.get(argument.name) or _pointer(draft, one, argument) for argument in one.arguments)
            return replace(one, pointers=pointers, pieces=one.way.pieces(target))

        return replace(found(step), others=tuple(found(other) for other in step.others))

    steps = (placed(number, fault, step) for number, (fault, step) in enumerate(zip(before, draft.steps, strict=False)))
    return replace(draft, steps=tuple(steps))


def _fault_bytes(step: TaskDraft | HostDraft) -> int:
    """How much a step may say of its data."""
    if isinstance(step, HostDraft) or not any(argument.name == "fault" for argument in step.arguments):
        return 0
    return SITE_BYTES * len(step.work.bound.sites)


def _scratch(step: TaskDraft, number: int, workers: int) -> Pointer:
    """Working memory of a step: enough for any of its versions."""
    arguments = (argument for one in step.versions for argument in one.arguments if argument.name == "scratch")
    needed = [one.nbytes * (workers if one.per_worker else 1) for one in arguments]
    return Pointer(Area(("scratch", number), Buffer("arena", greatest(*needed) if needed else 0)))


def _pointer(draft: ProgramDraft, step: TaskDraft, argument: Argument) -> Pointer:
    """Where an argument of a step lies."""
    ahead = {"next": step.next, "later": step.later}.get(argument.name)
    if ahead is not None:
        return _weights(draft, ahead)
    if argument.name == "call":
        numbers = Buffer("constant", argument.nbytes, data=Constant(call_numbers(argument.nbytes)))
        return Pointer(Area(("calls", argument.nbytes), numbers), per_call=CALL_BYTES)
    if argument.name == "sizes":
        return Pointer(STEP_SIZES)
    return _operand(draft, step.work, argument)


def _weights(draft: ProgramDraft, ahead: Upcoming) -> Pointer:
    """Into the weights of a step."""
    step = draft.steps[ahead.step]
    assert isinstance(step, TaskDraft)
    return replace(_operand(draft, step.work, step.weights[0]), offset=ahead.offset)


def _operand(draft: ProgramDraft, work: TaskWork, argument: Argument) -> Pointer:
    """To an operand of the task."""
    operand = work.bound.task.operand(argument.name)
    value = work.bound.values[argument.name]
    if operand.constant:
        return Pointer(constant_area(draft, value, argument.packing))
    root, offset = work.places[argument.name]
    itemsize = operand.dtype.itemsize
    apart = 0 if any(root in found.single for found in draft.stretches) else work.between.get(argument.name, 0)
    return Pointer(value_area(draft, root, value), offset * itemsize, per_sample=apart * itemsize)


def value_area(draft: ProgramDraft, root: str, value: str) -> Area:
    """The memory of a root: the caller's, a constant's, or planned."""
    port = draft.ports.get(root)
    if port is not None:
        return port
    if root in draft.graph.constants:
        return constant_area(draft, root, None)
    return Area(("value", root), Buffer("arena", draft.root_bytes(root, value)))


def constant_area(draft: ProgramDraft, value: str, packing: Packing | None) -> Area:
    """A constant as it is, or packed."""
    constant = draft.graph.constants[value]
    if isinstance(constant, SizesConstant):
        contents = tuple(constant.array.reshape(-1).tolist())
        return Area(("sizes", value), Buffer("sizes", constant.type.nbytes, value=value, contents=contents))
    name = ("constant", value, packing.recipe if packing is not None else "")
    return Area(name, Buffer("constant", constant.type.nbytes, 0, value, constant, packing))


def host_read(draft: ProgramDraft, work: HostWork, value: str) -> tuple[str, Pointer | None, ValueType | None]:
    """What host nodes read, where that is in native memory, and its type."""
    found = work.reads[value]
    if found is None:
        return value, None, None
    kind = draft.graph.tensor(value)
    root, offset, strides = found
    return value, Pointer(value_area(draft, root, value), offset * kind.dtype.itemsize, strides=strides), kind


def host_write(draft: ProgramDraft, value: str) -> tuple[str, Pointer | None, ValueType | None]:
    """The same of what they write."""
    kind = in_memory(draft.graph.types.get(value))
    if kind is None or value not in draft.lowered.layout.storage:
        return value, None, None
    storage = draft.lowered.layout.storage[value]
    return value, Pointer(value_area(draft, storage.root, value), storage.offset * kind.dtype.itemsize), kind
