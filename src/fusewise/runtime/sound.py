"""Is the program that a compiled file states consistent with itself and with what else the file holds?

Every number of a buffer, every offset and length, every kernel and name is looked at before any of it is used, so that a
damaged or careless file is an error. What its machine code does with the memory it is given nobody can check: that is what
signatures are for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fusewise.codegen.target import LINE_BYTES
from fusewise.ir.types import TensorType, ValueType
from fusewise.lower.program import Buffer, HostStep, NativeStep, Place, Port, Program, StepVersions
from fusewise.runtime.host import MAXIMUM_WORKERS

__all__ = ["check_notes", "check_program"]

_LEAST_STRIPS, _MOST_STRIPS = 4, 1 << 16
_MOST_PIECES = 1 << 16
_MOST_BYTES = 1 << 62
_WRITABLE = ("arena", "host", "output")
_VALUES = frozenset({*_WRITABLE, "input", "constant"})
_KINDS = _VALUES | {"fault"}
_FAULT_BYTES = 16
"""Of each site: two words of 64 bits."""

_Operand = tuple[str, Place | None, ValueType | None]


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
        if bound is not None and not _is_count(bound):
            raise ValueError(f"the indexes of input {name!r} have no bound like {bound!r}")


def _problems(program: Program, symbols: Sequence[str], constants: Mapping[int, int]) -> Iterator[str]:
    if len(set(symbols)) != len(symbols) or not all(isinstance(symbol, str) and symbol for symbol in symbols):
        yield "its kernels are not called by different names"
    if not _is_count(program.arena_bytes) or not _is_count(program.groups):
        yield f"an arena of {program.arena_bytes!r} bytes for {program.groups!r} groups cannot be"
    if not _is_count(program.workers) or not 1 <= program.workers <= MAXIMUM_WORKERS:
        yield f"it is made for {program.workers!r} workers"
    if not all(isinstance(domain, str) and _is_count(version) for domain, version in program.opsets):
        yield "its opsets have no versions"
    if not isinstance(program.exact, bool) or not all(isinstance(name, str) for name in program.disabled):
        yield "how it was compiled is not stated"
    for number, buffer in enumerate(program.buffers):
        yield from _of_buffer(number, buffer, program.arena_bytes, constants)
    for number in constants:
        if not _is_index(number, program.buffers) or program.buffers[number].kind != "constant":
            yield f"it has a constant for buffer {number!r}, which is none"
    if sum(buffer.kind == "fault" for buffer in program.buffers) > 1:
        yield "it has several places for what is wrong with data"
    for port in program.inputs:
        yield from _of_port(f"input {port.name!r}", port, program.buffers, {"input"})
    for port in program.outputs:
        yield from _of_port(f"output {port.name!r}", port, program.buffers, _VALUES)
    yield from _of_steps(program, len(symbols))


def _is_count(value: Any) -> bool:
    """A plain number from 0 on (`True` is none) that no sum of a few passes 64 bits with."""
    return type(value) is int and 0 <= value < _MOST_BYTES


def _is_index(value: Any, of: Sequence[Any]) -> bool:
    return type(value) is int and 0 <= value < len(of)


def _of_buffer(number: int, buffer: Buffer, arena_bytes: int, constants: Mapping[int, int]) -> Iterator[str]:
    where = f"buffer {number}"
    if buffer.kind not in _KINDS or not isinstance(buffer.value, str):
        yield f"{where} is of no kind there is"
    elif not _is_count(buffer.nbytes) or not _is_count(buffer.offset):
        yield f"{where} cannot have {buffer.nbytes!r} bytes at {buffer.offset!r}"
    elif buffer.kind == "arena" and (buffer.offset + buffer.nbytes > arena_bytes or buffer.offset % LINE_BYTES):
        yield f"{where} of {buffer.nbytes:,} bytes at {buffer.offset:,} is not inside the arena of {arena_bytes:,}"
    elif buffer.kind == "fault" and buffer.nbytes % (_FAULT_BYTES // 2):
        yield f"{where} does not hold whole words"
    elif buffer.kind == "constant" and constants.get(number) != buffer.nbytes:
        yield f"{where} is a constant of {buffer.nbytes:,} bytes, and the file has {constants.get(number, 0):,}"


def _of_port(where: str, port: Port, buffers: Sequence[Buffer], kinds: Collection[str]) -> Iterator[str]:
    if not isinstance(port.name, str):
        yield f"{where} has no name"
    if isinstance(port.type, TensorType) and not _is_shape(port.type.shape):
        yield f"{where} has no shape like {port.type.shape!r}"
    elif port.buffer != -1 or type(port.buffer) is not int:
        if not _is_index(port.buffer, buffers) or buffers[port.buffer].kind not in kinds:
            yield f"{where} is in buffer {port.buffer!r}, which is not for it"
        elif not isinstance(port.type, TensorType) or not port.type.is_static:
            yield f"{where} is in a buffer, but its size is not known"
        elif port.type.nbytes > buffers[port.buffer].nbytes:
            yield f"{where} needs {port.type.nbytes:,} bytes, and its buffer has {buffers[port.buffer].nbytes:,}"


def _is_shape(shape: Iterable[Any] | None) -> bool:
    return shape is None or all(dim is None or isinstance(dim, str) or _is_count(dim) for dim in shape)


def _of_steps(program: Program, kernels: int) -> Iterator[str]:
    known = {name for name, _ in program.objects} | {port.name for port in program.inputs if port.buffer < 0}
    for number, step in enumerate(program.steps):
        where = f"step {number}"
        if not isinstance(step.group, int) or step.group < -1:
            yield f"{where} belongs to no group"
        if isinstance(step, StepVersions):
            for _, one in step.versions:
                yield from _of_native(where, one, program, number, kernels)
        elif isinstance(step, NativeStep):
            yield from _of_native(where, step, program, number, kernels)
        else:
            yield from _of_host(where, step, program.buffers, known)
            known.update(name for name, place, _ in step.writes if place is None)
    for port in program.outputs:
        if port.buffer < 0 and port.name not in known:
            yield f"output {port.name!r} is made by no step"


def _of_native(where: str, step: NativeStep, program: Program, number: int, kernels: int) -> Iterator[str]:
    if type(step.kernel) is not int or not 0 <= step.kernel < kernels:
        yield f"{where} calls kernel {step.kernel!r} of {kernels}"
    if type(step.barrier) is not bool or not _is_count(step.pieces) or not 1 <= step.pieces <= _MOST_PIECES:
        yield f"{where} is done in {step.pieces!r} pieces"
    follower = program.steps[number + 1] if number + 1 < len(program.steps) else None
    if step.strips != 0 and (
        not _is_count(step.strips)
        or not _LEAST_STRIPS <= step.strips <= _MOST_STRIPS
        or not isinstance(follower, NativeStep)
        or follower.strips
    ):
        yield f"{where} goes in {step.strips!r} strips with the next"
    if not isinstance(step.label, str) or not isinstance(step.way, str):
        yield f"{where} has no name"
    for place in step.arguments:
        yield from _of_place(where, place, None, program.buffers, _KINDS)
    yield from _of_sites(where, step, program.buffers)
    if len(step.extents) != (len(step.arguments) if program.is_checked else 0):
        yield f"{where} says of {len(step.extents)} of its {len(step.arguments)} arguments what may be touched of them"
    for extent in step.extents:
        whole = all(type(end) is int and abs(end) < _MOST_BYTES for end in (extent.low, extent.high))
        if not whole or type(extent.writes) is not bool:
            yield f"{where} may touch {extent.low!r} to {extent.high!r} of {extent.argument!r}"


def _of_sites(where: str, step: NativeStep, buffers: Sequence[Buffer]) -> Iterator[str]:
    """What a kernel finds wrong with its data has room, in whole words."""
    for site in step.sites:
        texts, bounds = (site.node, site.op, site.operand), (site.low, site.high)
        plain = all(isinstance(text, str) for text in texts) and all(type(bound) is int for bound in bounds)
        if not plain or type(site.wraps) is not bool:
            yield f"{where} reads positions from data nowhere"
    places = [place for place in step.arguments if buffers[place.buffer].kind == "fault"]
    if not step.sites and not places:
        return
    if len(places) != 1 or places[0].offset % (_FAULT_BYTES // 2):
        yield f"{where} has {len(places)} places for what is wrong with its data"
    elif places[0].offset + _FAULT_BYTES * len(step.sites) > buffers[places[0].buffer].nbytes:
        yield f"{where} has no room for what is wrong with its data"


def _of_host(where: str, step: HostStep, buffers: Sequence[Buffer], known: Collection[str]) -> Iterator[str]:
    if not _is_count(step.opset) or not step.nodes:
        yield f"{where} has no nodes of an opset"
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
    where: str, place: Place, kind: TensorType | None, buffers: Sequence[Buffer], kinds: Collection[str]
) -> Iterator[str]:
    """A place, and the tensor of type `kind` that lies there, are inside a buffer of these kinds."""
    if not _is_index(place.buffer, buffers) or buffers[place.buffer].kind not in kinds:
        yield f"{where} is in buffer {place.buffer!r}, which is not for it"
        return
    nbytes = buffers[place.buffer].nbytes
    if not _is_count(place.offset) or place.offset > nbytes:
        yield f"{where} is at byte {place.offset!r} of a buffer of {nbytes:,}"
    elif kind is not None:
        if not _is_shape(kind.shape) or not kind.is_static:
            yield f"{where} has no size"
            return
        first, last = _reach(kind, place.strides)
        if place.offset + first < 0 or place.offset + last > nbytes:
            yield f"{where} reaches from byte {place.offset + first:,} to {place.offset + last:,} of {nbytes:,}"


def _reach(kind: TensorType, strides: tuple[int, ...] | None) -> tuple[int, int]:
    """The first byte of a tensor, and the one behind its last, counted from its first element."""
    if strides is None or not kind.nbytes:
        return 0, kind.nbytes
    if len(strides) != len(kind.dims) or not all(type(stride) is int for stride in strides):
        raise ValueError(f"strides {strides!r} do not fit the shape {list(kind.dims)}")
    steps = [(extent - 1) * stride for extent, stride in zip(kind.dims, strides, strict=True)]
    size = kind.dtype.itemsize
    return size * sum(min(0, step) for step in steps), size * (1 + sum(max(0, step) for step in steps))
