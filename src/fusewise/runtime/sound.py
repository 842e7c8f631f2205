"""Is the program that a compiled file states consistent with itself and with what else the file holds?

Every number of a buffer, every offset and length, every kernel and name is looked at before any of it is used, so that a
damaged or careless file is an error. What its machine code does with the memory it is given nobody can check: that is what
signatures are for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusewise.codegen.target import LINE_BYTES
from fusewise.ir.deciding import Condition, known_equal
from fusewise.ir.size import LARGEST, Size
from fusewise.ir.types import TensorType
from fusewise.lower.program import SIZES, Buffer, HostStep, NativeStep, Place, Port, Program, StepVersions
from fusewise.runtime.host import MAXIMUM_WORKERS
from fusewise.runtime.plan_code import PLAN

if TYPE_CHECKING:
    from fusewise.codegen.gpu.program import GpuBuffer, GpuStep

__all__ = [
    "check_notes",
    "check_program",
    "host_step_problems",
    "is_count",
    "place_fault",
    "site_problems",
    "symbol_problems",
]

_LEAST_STRIPS, _MOST_STRIPS = 4, 1 << 16
_MOST_PIECES = 1 << 16
_MOST_BYTES = 1 << 62
_WRITABLE = ("arena", "host", "output")
_VALUES = frozenset({*_WRITABLE, "input", "constant", "sizes"})
_KINDS = _VALUES | {"fault"}
_SIZED = frozenset({"arena", "host", "input", "output"})
"""Whose size may depend on symbols."""

_FAULT_BYTES = 16
"""Of each site: two words of 64 bits."""


def check_program(program: Program, symbols: Sequence[str], constants: Mapping[int, int]) -> None:
    """Raise `ValueError` with a sentence on the first thing that does not fit.

    `symbols` are the kernels' names, `constants` the bytes of each constant in the file, by the number of its buffer.
    """
    for problem in _problems(program, symbols, constants):
        raise ValueError(problem)


def check_notes(notes: Any) -> None:
    """The same for what a file says beside the program."""
    if not isinstance(notes, dict) or not isinstance(notes["summary"], dict) or not isinstance(notes["bounds"], dict):
        raise ValueError("its notes are not those of a model")
    for name, bound in notes["bounds"].items():
        if bound is not None and not is_count(bound):
            raise ValueError(f"the indexes of input {name!r} have no bound like {bound!r}")


def _problems(program: Program, symbols: Sequence[str], constants: Mapping[int, int]) -> Iterator[str]:
    yield from _of_symbols(program, symbols)
    if len(set(symbols)) != len(symbols) or not all(isinstance(symbol, str) and symbol for symbol in symbols):
        yield "its kernels are not called by different names"
    if not is_count(program.arena_bytes) or not is_count(program.groups):
        yield f"an arena of {program.arena_bytes!r} bytes for {program.groups!r} groups cannot be"
    if not is_count(program.workers) or not 1 <= program.workers <= MAXIMUM_WORKERS:
        yield f"it is made for {program.workers!r} workers"
    if not all(isinstance(domain, str) and is_count(version) for domain, version in program.opsets):
        yield "its opsets have no versions"
    if not isinstance(program.exact, bool) or not all(isinstance(name, str) for name in program.disabled):
        yield "how it was compiled is not stated"
    for number, buffer in enumerate(program.buffers):
        yield from _of_buffer(number, buffer, program, constants)
    for number in constants:
        if not _is_index(number, program.buffers) or program.buffers[number].kind != "constant":
            yield f"it has a constant for buffer {number!r}, which is none"
    if sum(buffer.kind == "fault" for buffer in program.buffers) > 1:
        yield "it has several places for what is wrong with data"
    for port in program.inputs:
        yield from _of_port(f"input {port.name!r}", port, program.buffers, {"input"})
    for port in program.outputs:
        yield from _of_port(f"output {port.name!r}", port, program.buffers, _VALUES)
    yield from _of_growth(program)
    yield from _of_steps(program, len(symbols) - bool(program.symbols))


def _of_growth(program: Program) -> Iterator[str]:
    """Which inputs grow, and what says how many elements they have."""
    growth, ports = program.growth, {port.name: port for port in program.inputs}
    if growth is None:
        return
    counts = ports.get(growth.counts)
    if (
        counts is None
        or len(counts.contents) != 2
        or not all(isinstance(one, Size) and one.symbol for one in counts.contents)
    ):
        yield f"it grows, but input {growth.counts!r} does not say by how much"
    for name, _, axis in growth.pairs:
        kind = None if name not in ports else ports[name].type
        if not isinstance(kind, TensorType) or not kind.is_static or not _is_index(axis, kind.dims):
            yield f"input {name!r} cannot grow along axis {axis!r}"
    if not _is_number(growth.after):
        yield f"it grows to {growth.after!r} elements"


def _of_symbols(program: Program, symbols: Sequence[str]) -> Iterator[str]:
    """Free dimensions, and the code for them."""
    yield from symbol_problems(program)
    if program.symbols and list(symbols[-1:]) != [PLAN]:
        yield "it has no code for its sizes"


def symbol_problems(program: Program) -> Iterator[str]:
    """What is wrong with a program's free dimensions, and with what must hold of them."""
    names = [symbol.name for symbol in program.symbols]
    if len(set(names)) != len(names):
        yield "its free dimensions are not called by different names"
    for symbol in program.symbols:
        if not 0 <= symbol.low < symbol.high <= LARGEST:
            yield f"its dimension {symbol.name!r} cannot be {symbol.low:,} to {symbol.high:,}"
    if not program.symbols and program.checks:
        yield "it checks sizes, and has none"
    for check in program.checks:
        if not isinstance(check.sentence, str) or not _is_condition(check.condition):
            yield f"it asks whether {check.condition!r}"
    arena = [buffer for buffer in program.buffers if buffer.kind == "arena"]
    places = {buffer.place for buffer in arena} if program.symbols else set()
    if program.symbols and places != set(range(len(places))):
        yield "its places in the arena are not counted from 0"


def _is_condition(found: Condition) -> bool:
    return found.relation in ("zero", "nonzero", "nonnegative") and _is_number(found.size)


def _is_number(value: Any) -> bool:
    """A plain number of either sign, or a size of such."""
    if isinstance(value, Size):
        return abs(value.constant) < _MOST_BYTES and all(abs(c) < _MOST_BYTES for _, c in value.terms)
    return type(value) is int and abs(value) < _MOST_BYTES


def _is_size(value: Any) -> bool:
    """A plain number from 0 on, or a size, which is looked at when it is known."""
    return _is_number(value) if isinstance(value, Size) else is_count(value)


def is_count(value: Any) -> bool:
    """A plain number from 0 on (`True` is none) that no sum of a few passes 64 bits with."""
    return type(value) is int and 0 <= value < _MOST_BYTES


def _is_index(value: Any, of: Sequence[Any]) -> bool:
    return type(value) is int and 0 <= value < len(of)


def _of_buffer(number: int, buffer: Buffer, program: Program, constants: Mapping[int, int]) -> Iterator[str]:
    where, arena_bytes = f"buffer {number}", program.arena_bytes
    if buffer.kind not in _KINDS or not isinstance(buffer.value, str):
        yield f"{where} is of no kind there is"
    elif type(buffer.place) is not int or (buffer.place >= 0) != (bool(program.symbols) and buffer.kind == "arena"):
        yield f"{where} cannot have place {buffer.place!r}"
    elif buffer.kind == "sizes" or buffer.contents:
        yield from _of_contents(where, buffer, program)
    elif isinstance(buffer.nbytes, Size):
        if (
            buffer.kind not in _SIZED
            or buffer.offset != 0
            or type(buffer.offset) is not int
            or not _is_size(buffer.nbytes)
        ):
            yield f"{where} cannot have {buffer.nbytes} bytes"
    elif not is_count(buffer.nbytes) or not is_count(buffer.offset):
        yield f"{where} cannot have {buffer.nbytes!r} bytes at {buffer.offset!r}"
    elif (
        buffer.kind == "arena"
        and not program.symbols
        and (buffer.offset + buffer.nbytes > arena_bytes or buffer.offset % LINE_BYTES)
    ):
        yield f"{where} of {buffer.nbytes:,} bytes at {buffer.offset:,} is not inside the arena of {arena_bytes:,}"
    elif buffer.kind == "fault" and buffer.nbytes % (_FAULT_BYTES // 2):
        yield f"{where} does not hold whole words"
    elif buffer.kind == "constant" and constants.get(number) != buffer.nbytes:
        yield f"{where} is a constant of {buffer.nbytes:,} bytes, and the file has {constants.get(number, 0):,}"


def _of_contents(where: str, buffer: Buffer, program: Program) -> Iterator[str]:
    """A constant in terms of sizes."""
    if buffer.kind != "sizes" or not program.symbols or not all(map(_is_number, buffer.contents)):
        yield f"{where} has contents that are no sizes"
    elif buffer.nbytes not in (4 * len(buffer.contents), 8 * len(buffer.contents)) or isinstance(buffer.nbytes, Size):
        yield f"{where} of {buffer.nbytes!r} bytes does not hold {len(buffer.contents)} integers"


def _of_port(where: str, port: Port, buffers: Sequence[Buffer], kinds: Collection[str]) -> Iterator[str]:
    if not isinstance(port.name, str):
        yield f"{where} has no name"
    if port.contents and not _is_read(port, kinds):
        yield f"{where} has no elements like {port.contents!r}"
    if isinstance(port.type, TensorType) and not _is_shape(port.type.shape):
        yield f"{where} has no shape like {port.type.shape!r}"
    elif port.buffer != -1 or type(port.buffer) is not int:
        if not _is_index(port.buffer, buffers) or buffers[port.buffer].kind not in kinds:
            yield f"{where} is in buffer {port.buffer!r}, which is not for it"
        elif not isinstance(port.type, TensorType) or not port.type.is_static:
            yield f"{where} is in a buffer, but its size is not known"
        elif not _fits(port.type.nbytes, buffers[port.buffer].nbytes):
            yield f"{where} needs {port.type.nbytes} bytes, and its buffer has {buffers[port.buffer].nbytes}"


def _is_read(port: Port, kinds: Collection[str]) -> bool:
    """Is it an input of as many integers as are read?"""
    kind = port.type
    if not isinstance(kind, TensorType) or kind.dtype.name not in ("int64", "int32") or "input" not in kinds:
        return False
    return kind.is_fixed and kind.size == len(port.contents) and all(map(_is_number, port.contents))


def _fits(nbytes: int, room: int) -> bool:
    """Numbers, or the same size: what else may be is not known."""
    if isinstance(nbytes, Size) or isinstance(room, Size):
        return known_equal(nbytes, room)
    return nbytes <= room


def _is_shape(shape: Iterable[Any] | None) -> bool:
    return shape is None or all(dim is None or isinstance(dim, str) or _is_size(dim) for dim in shape)


def _of_steps(program: Program, kernels: int) -> Iterator[str]:
    known = {name for name, _ in program.objects} | {port.name for port in program.inputs if port.buffer < 0}
    for number, step in enumerate(program.steps):
        where = f"step {number}"
        if not isinstance(step.group, int) or step.group < -1:
            yield f"{where} belongs to no group"
        if isinstance(step, StepVersions):
            yield from _of_versions(where, step, program, number, kernels)
        elif isinstance(step, NativeStep):
            yield from _of_native(where, step, program, number, kernels)
        else:
            yield from host_step_problems(where, step, program.buffers, known)
            known.update(name for name, place, _ in step.writes if place is None)
    for port in program.outputs:
        if port.buffer < 0 and port.name not in known:
            yield f"output {port.name!r} is made by no step"


def _of_versions(where: str, step: StepVersions, program: Program, number: int, kernels: int) -> Iterator[str]:
    if not program.symbols or not _is_size(step.extent) or not step.versions or step.versions[-1][0]:
        yield f"{where} has no version for all sizes"
    for conditions, one in step.versions:
        if not all(map(_is_condition, conditions)) or one.strips:
            yield f"{where} has a version for {conditions!r}"
        yield from _of_native(where, one, program, number, kernels)


def _of_native(where: str, step: NativeStep, program: Program, number: int, kernels: int) -> Iterator[str]:
    if type(step.kernel) is not int or not 0 <= step.kernel < kernels:
        yield f"{where} calls kernel {step.kernel!r} of {kernels}"
    if type(step.barrier) is not bool or not is_count(step.pieces) or not 1 <= step.pieces <= _MOST_PIECES:
        yield f"{where} is done in {step.pieces!r} pieces"
    follower = program.steps[number + 1] if number + 1 < len(program.steps) else None
    if step.strips != 0 and (
        not is_count(step.strips)
        or not _LEAST_STRIPS <= step.strips <= _MOST_STRIPS
        or not isinstance(follower, NativeStep)
        or follower.strips
    ):
        yield f"{where} goes in {step.strips!r} strips with the next"
    if not isinstance(step.label, str) or not isinstance(step.way, str):
        yield f"{where} has no name"
    if not all(map(_is_number, step.sizes)) or (step.sizes and not program.symbols):
        yield f"{where} is called with {step.sizes!r}"
    for place in step.arguments:
        if place.buffer == SIZES and step.sizes:
            if not is_count(place.offset) or place.offset >= 8 * len(step.sizes):
                yield f"{where} has no sizes at byte {place.offset!r}"
            continue
        yield from _of_place(where, place, None, program.buffers, _KINDS)
    yield from site_problems(where, step, program.buffers)
    if len(step.extents) != (len(step.arguments) if program.is_checked else 0):
        yield f"{where} says of {len(step.extents)} of its {len(step.arguments)} arguments what may be touched of them"
    for extent in step.extents:
        whole = all(map(_is_number, (extent.low, extent.high)))
        if not whole or type(extent.writes) is not bool:
            yield f"{where} may touch {extent.low!r} to {extent.high!r} of {extent.argument!r}"


def site_problems(where: str, step: NativeStep | GpuStep, buffers: Sequence[Buffer | GpuBuffer]) -> Iterator[str]:
    """What a kernel finds wrong with its data has room, in whole words."""
    for site in step.sites:
        texts, bounds = (site.node, site.op, site.operand), (site.low, site.high)
        plain = all(isinstance(text, str) for text in texts) and all(map(_is_number, bounds))
        if not plain or type(site.wraps) is not bool:
            yield f"{where} reads positions from data nowhere"
    places = [p for p in step.arguments if p.buffer != SIZES and buffers[p.buffer].kind == "fault"]
    if not step.sites and not places:
        return
    if len(places) != 1 or isinstance(places[0].offset, Size) or places[0].offset % (_FAULT_BYTES // 2):
        yield f"{where} has {len(places)} places for what is wrong with its data"
    elif places[0].offset + _FAULT_BYTES * len(step.sites) > buffers[places[0].buffer].nbytes:
        yield f"{where} has no room for what is wrong with its data"


def host_step_problems(
    where: str, step: HostStep, buffers: Sequence[Buffer | GpuBuffer], known: Collection[str]
) -> Iterator[str]:
    """What does not fit in a host step; values that are `known` by name are objects of the host."""
    if not is_count(step.opset) or not step.nodes:
        yield f"{where} has no nodes of an opset"
    if not all(isinstance(reason, str) for reason in step.reasons):
        yield f"{where} runs on the host for no reason"
    for name, place, kind in step.reads:
        if place is None or not isinstance(kind, TensorType):
            if name not in known:
                yield f"{where} reads {name!r}, which nothing has made"
        else:
            yield from _of_place(f"{where}, operand {name!r}", place, kind, buffers, _VALUES)
    made = {name for name, _, _ in step.reads}
    for node in step.nodes:
        if not all(isinstance(text, str) for text in (node.op, node.domain, node.name, *node.inputs, *node.outputs)):
            yield f"{where} has a node that is none"
        if missing := [name for name in node.reads if name not in made]:
            yield f"{where}: node {node.label!r} reads {missing[0]!r}, which nothing has made"
        made.update(node.outputs)
    results = {name for node in step.nodes for name in node.outputs if name}
    for name, place, kind in step.writes:
        if name not in results:
            yield f"{where} gives {name!r}, which none of its nodes makes"
        elif place is not None and isinstance(kind, TensorType):
            yield from _of_place(f"{where}, result {name!r}", place, kind, buffers, _WRITABLE)


def _of_place(
    where: str,
    place: Place,
    kind: TensorType | None,
    buffers: Sequence[Buffer | GpuBuffer],
    kinds: Collection[str],
) -> Iterator[str]:
    """A place, and the tensor of type `kind` that lies there, are inside a buffer of these kinds."""
    if not _is_index(place.buffer, buffers) or buffers[place.buffer].kind not in kinds:
        yield f"{where} is in buffer {place.buffer!r}, which is not for it"
        return
    nbytes, strides = buffers[place.buffer].nbytes, place.strides or ()
    if not all(map(_is_number, strides)):
        yield f"{where} cannot have the strides {strides!r}"
    elif isinstance(place.offset, Size) or (isinstance(nbytes, Size) and is_count(place.offset)):
        if not _is_number(place.offset):  # where it lies is looked at when it is known
            yield f"{where} is at byte {place.offset!r}"
    elif not is_count(place.offset) or place.offset > nbytes:
        yield f"{where} is at byte {place.offset!r} of a buffer of {nbytes}"
    if kind is None:
        return
    if not _is_shape(kind.shape) or not kind.is_static:
        yield f"{where} has no size"
    elif kind.is_fixed and not any(isinstance(one, Size) for one in (place.offset, nbytes, *strides)):
        first, last = _reach(kind, place.strides)
        if place.offset + first < 0 or place.offset + last > nbytes:
            yield f"{where} reaches from byte {place.offset + first:,} to {place.offset + last:,} of {nbytes:,}"


def place_fault(name: str, place: Place, kind: TensorType, nbytes: int) -> str:
    """What is wrong with where an operand lies, whose size is known by now; empty when it lies inside its buffer."""
    first, last = _reach(kind, place.strides)
    if place.offset + first >= 0 and place.offset + last <= nbytes:
        return ""
    return f"{name!r} reaches from byte {place.offset + first:,} to {place.offset + last:,} of {nbytes:,}"


def _reach(kind: TensorType, strides: tuple[int, ...] | None) -> tuple[int, int]:
    """The first byte of a tensor, and the one behind its last, counted from its first element."""
    if strides is None or not kind.nbytes:
        return 0, kind.nbytes
    if len(strides) != len(kind.dims) or not all(type(stride) is int for stride in strides):
        raise ValueError(f"strides {strides!r} do not fit the shape {list(kind.dims)}")
    steps = [(extent - 1) * stride for extent, stride in zip(kind.dims, strides, strict=True)]
    size = kind.dtype.itemsize
    return size * sum(min(0, step) for step in steps), size * (1 + sum(max(0, step) for step in steps))
