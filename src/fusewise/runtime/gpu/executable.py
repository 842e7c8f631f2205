"""A program for a GPU that runs: memory, loaded kernels, a graph for each stretch of launches, host steps between them.

All memory is allocated when it is made. A run copies the inputs, launches the graphs, and copies the outputs; arrays that lie
on the device already are read and written where they are, by pointing the launches to them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import field
from types import TracebackType
from typing import Any

import numpy as np

from fusewise.codegen.gpu.program import GpuProgram, GpuStep, check_program, edges, reads_of, stretches, writes_of
from fusewise.errors import FusewiseError, UsageError
from fusewise.ir.types import TensorType
from fusewise.lower.program import DataPosition, Port
from fusewise.records import record
from fusewise.runtime.arena import RunMemory
from fusewise.runtime.faults import Faults
from fusewise.runtime.feeds import Inputs, PortInfo, chosen_outputs, numbers_by_name, port_info
from fusewise.runtime.gpu.constants import DeviceConstants
from fusewise.runtime.gpu.dlpack import DeviceArray, Foreign, taken
from fusewise.runtime.gpu.driver import Cubin, DeviceLost, Driver, Launch, LaunchGraph, Span
from fusewise.runtime.gpu.host_steps import HostSteps
from fusewise.runtime.gpu.memory import GpuMemory, device_sizes
from fusewise.runtime.written_into import copied_into, writable_in_place

__all__ = ["Beside", "GpuExecutable", "GpuFigures", "figures_of"]


_NOWHERE = -1
"""No address."""


@record(frozen=True, slots=True)
class GpuFigures:
    """What a program amounts to on its device: kernels, launches and graphs of a run, and bytes of the device's memory."""

    kernels: int
    launches: int
    graphs: int
    host_steps: int
    constant_bytes: int
    arena_bytes: int


def figures_of(program: GpuProgram) -> GpuFigures:
    """What a program amounts to; no device is asked."""
    constant_bytes, arena_bytes = device_sizes(program)
    return GpuFigures(
        kernels=len(program.kernels),
        launches=program.launches,
        graphs=sum(is_launches for is_launches, _ in stretches(program.steps)),
        host_steps=len(program.steps) - program.launches,
        constant_bytes=constant_bytes,
        arena_bytes=arena_bytes,
    )


@record(frozen=True)
class Beside:
    """What programs on one device share: constants, and the `turn` that each run waits for, as a driver serves one at a time.
    Whoever has it may have it again, since a program may be closed, as nobody has it any more, in the midst of another one's
    run."""

    constants: DeviceConstants
    turn: AbstractContextManager[Any] = field(default_factory=threading.RLock)


@record(slots=True)
class _Stretch:
    """Launches that are one graph: their steps, and what it runs now."""

    steps: tuple[GpuStep, ...]
    launches: list[Launch]
    graph: LaunchGraph


class GpuExecutable:
    """A model on a device. `run` may be called from any number of threads, which take turns. `close` gives the device's
    memory back."""

    def __init__(
        self,
        program: GpuProgram,
        driver: Driver,
        cubins: Sequence[Cubin | None] | None = None,
        beside: Beside | None = None,
    ) -> None:
        """`cubins` has one for each kernel; a driver that runs sources does without. `beside` is what other programs on the device
        share with this one. Raises the errors of `runtime.gpu.driver`, and `BrokenPlan` for a program that breaks its own rules."""
        check_program(program)
        self.program, self._driver = program, driver
        self._inputs = Inputs(program.inputs)
        self._numbers = numbers_by_name(program.outputs)
        beside = Beside(DeviceConstants(driver)) if beside is None else beside
        self._turn = beside.turn
        self._closed = False
        images = [None] * len(program.kernels) if cubins is None else cubins
        self._parts: list[_Stretch | tuple[int, ...]] = []
        self._held = ExitStack()
        functions: list[Any] = []
        try:
            for kernel, cubin in zip(program.kernels, images, strict=True):
                functions.append(driver.load(kernel, cubin))
                self._held.callback(driver.unload, functions[-1])
            self._memory = GpuMemory(program, driver, beside.constants)
            self._held.callback(self._memory.close)
            self._where = list(self._memory.addresses)
            for is_launches, numbers in stretches(program.steps):
                self._parts.append(self._stretch(numbers, functions) if is_launches else numbers)
            self._host = HostSteps(program, [part for part in self._parts if isinstance(part, tuple)])
        except BaseException:
            self.close()
            raise
        self._faults = _faults_of(program, self._memory)
        self.figures = figures_of(program)

    def __enter__(self) -> GpuExecutable:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(Exception):
            self.close()

    def close(self) -> None:
        """Give back all memory of the device: what was got by `run_on_device` is gone. Twice is no error."""
        with self._turn, suppress(FusewiseError):  # a device that is lost has nothing to be given back
            self._closed = True
            self._held.close()

    @property
    def is_closed(self) -> bool:
        """Is what lay on the device gone?"""
        return self._closed

    def get_inputs(self) -> list[PortInfo]:
        """Name, shape and type of each input."""
        return [port_info(port) for port in self.program.inputs]

    def get_outputs(self) -> list[PortInfo]:
        """Name, shape and type of each output."""
        return [port_info(port) for port in self.program.outputs]

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """The named outputs (all for None) for the given inputs; arrays are the caller's for as long as they are held.

        Inputs may be anything NumPy can read, and arrays on the device that know DLPack. Raises `UsageError` for names,
        dtypes or shapes that do not fit, `InvalidData` for indices that are out of bounds, `DeviceLost` when the device was
        lost.
        """
        wanted = self._chosen(output_names)
        with self._turn:
            objects = self._run(feeds, {}, wanted)
            return [self._result(self.program.outputs[number], objects) for number in wanted]

    def run_on_device(
        self, output_names: Sequence[str] | None, feeds: Mapping[str, Any], owner: object = None
    ) -> list[DeviceArray]:
        """As `run`, and outputs stay on the device: they lie in the program's memory, so the next run overwrites them. They
        keep their `owner`, or else this program, for as long as somebody has them."""
        wanted = self._chosen(output_names)
        for number in wanted:
            self._lies_there(self.program.outputs[number])
        with self._turn:
            self._run(feeds, {}, ())
            return [self._array(self.program.outputs[number], owner or self) for number in wanted]

    def run_into(self, feeds: Mapping[str, Any], into: Mapping[str, Any]) -> list[Any]:
        """As `run`, of the outputs that `into` names, each written into the array given for it, which is returned; None for a
        new one. Arrays lie on the device, by DLPack, or are NumPy's. `UsageError` for one that lies elsewhere, or is of another
        shape or type."""
        wanted = chosen_outputs(self._numbers, tuple(into))
        with self._turn:
            targets: dict[int, Foreign] = {}
            for number, value in zip(wanted, into.values(), strict=True):
                if value is None or isinstance(value, np.ndarray):
                    continue
                targets[number] = self._target(self.program.outputs[number], value)
            fetched = [number for number in wanted if number not in targets]
            own = {self.program.outputs[number].name: into[self.program.outputs[number].name] for number in fetched}
            self._check_writable(fetched, own)
            objects = self._run(feeds, targets, fetched)
            copied = iter(copied_into([self._result(self.program.outputs[number], objects) for number in fetched], own))
            return [
                value if number in targets else next(copied)
                for number, value in zip(wanted, into.values(), strict=True)
            ]

    def _check_writable(self, numbers: Sequence[int], into: Mapping[str, np.ndarray | None]) -> None:
        """Raise `UsageError` unless outputs can be written into the host's arrays."""
        outputs = [(number, self.program.outputs[number]) for number in numbers]
        writable_in_place(outputs, tuple(into.values()), ())
        for (_, port), array in zip(outputs, into.values(), strict=True):
            if array is not None and isinstance(port.type, TensorType) and array.shape != port.type.dims:
                shapes = f"{list(port.type.dims)}, and the array that it is to be written into {list(array.shape)}"
                raise UsageError(f"output {port.name!r} has the shape {shapes}")

    def _target(self, port: Port, value: Any) -> Foreign:
        """The array on the device that an output is to be written into."""
        self._lies_there(port)
        where = f"the array for output {port.name!r}"
        found = self._on_device(where, value)
        if found is None:
            raise UsageError(f"{where} does not lie on {self._driver.name}: give one that does, or one of NumPy's")
        _check(where, port, found)
        if self._memory.owns(found.address) and found.address != self._memory.addresses[port.buffer]:
            raise UsageError(f"{where} is memory of the model itself, where its runs write: give one of your own")
        return found

    # --- for who measures ---------------------------------------------------------------------------------------------------

    @property
    def driver(self) -> Driver:
        """The device that it runs on."""
        return self._driver

    @property
    def launches(self) -> Mapping[int, Launch]:
        """By the number of its step each launch, as the last run made it."""
        parts = (part for part in self._parts if isinstance(part, _Stretch))
        of_step = {id(step): launch for part in parts for step, launch in zip(part.steps, part.launches, strict=True)}
        return {number: of_step[id(step)] for number, step in enumerate(self.program.steps) if id(step) in of_step}

    def replay(self) -> None:
        """Run all steps once more on the inputs of the last run. Nothing is copied for it or given back, and no launch waited
        for."""
        with self._turn:
            self._check_open()
            self._steps()

    def _chosen(self, names: Sequence[str] | None) -> list[int]:
        """Outputs by number; all for None, one that there is twice also twice."""
        return list(range(len(self.program.outputs))) if names is None else chosen_outputs(self._numbers, names)

    # --- one run ----------------------------------------------------------------------------------------------------------

    def _run(self, feeds: Mapping[str, Any], targets: Mapping[int, Foreign], wanted: Sequence[int]) -> dict[str, Any]:
        """Run everything; outputs that are `wanted` are in the blocks they are staged in, others where they were computed."""
        self._check_open()
        given = self._given(feeds)
        try:
            after = self._point(given, targets)
            self._feed(given)
            objects = self._steps()
            for number, target in after.items():
                port = self.program.outputs[number]
                self._driver.copy_within(target.address, self._where[port.buffer], _nbytes(port))
            for number in wanted:
                self._fetch(self.program.outputs[number])
            for words in self._fault_words():
                self._driver.copy_out(*words)
            self._driver.synchronise()
        except DeviceLost:
            raise
        except BaseException:
            with suppress(FusewiseError):
                self._driver.synchronise()  # nothing of this run is under way when the next one begins
            raise
        if self._faults is not None:
            self._faults.check()
        return objects

    def _steps(self) -> dict[str, Any]:
        """Give all steps to the device, host steps between them; the objects that these made."""
        objects: dict[str, Any] = dict(self.program.objects)
        for part in self._parts:
            if isinstance(part, _Stretch):
                part.graph.launch()
            else:
                self._host_stretch(part, objects)
        return objects

    def _given(self, feeds: Mapping[str, Any]) -> list[Any]:
        """For each input an array of NumPy's, or what lies on the device."""
        if not isinstance(feeds, Mapping) or all(isinstance(value, np.ndarray) for value in feeds.values()):
            return self._inputs.accepted(feeds)
        there: dict[str, Foreign] = {}
        for name, value in feeds.items():
            found = self._on_device(f"input {name!r}", value)
            if found is not None:
                there[name] = found
        ports = [port for port in self.program.inputs if port.name not in there]
        rest = iter(Inputs(ports).accepted({name: value for name, value in feeds.items() if name not in there}))
        found_ones = [there.get(port.name) for port in self.program.inputs]
        unknown = set(there) - {port.name for port in self.program.inputs}
        if unknown:
            self._inputs.accepted(dict.fromkeys(feeds))  # which says what the inputs are
        for port, one in zip(self.program.inputs, found_ones, strict=True):
            if one is not None:
                _check(f"input {port.name!r}", port, one)
        return [next(rest) if one is None else one for one in found_ones]

    def _on_device(self, where: str, value: Any) -> Foreign | None:
        """What `value` hands over by DLPack, if it lies on this device."""
        if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
            return None
        device = value.__dlpack_device__()
        if tuple(map(int, device)) != self._driver.place:
            return None
        found = taken(value, where, self._driver.stream)
        return found if 0 in found.shape or self._driver.holds(found.address, 1) else None  # of nothing it may be null

    def _point(self, given: Sequence[Any], targets: Mapping[int, Foreign]) -> Mapping[int, Foreign]:
        """Point the launches to the arrays that this run reads and writes; what an earlier run left in the model's own memory is
        copied, as this one writes there. Those of `targets` are given back that have to be copied to afterwards."""
        where = list(self._memory.addresses)
        read = []
        for port, value in zip(self.program.inputs, given, strict=True):
            if isinstance(value, Foreign):
                read.append(Span(value.address, _nbytes(port)))
                if self._fits(port.buffer, value.address) and not self._memory.owns(value.address):
                    where[port.buffer] = value.address
        after, written = {}, list[Span]()
        for number, target in targets.items():
            port = self.program.outputs[number]
            span = Span(target.address, _nbytes(port))
            alone = not any(_meet(span, other) for other in (*read, *written)) or target.address == where[port.buffer]
            is_output = self.program.buffers[port.buffer].kind == "output" and not self._memory.on_host[port.buffer]
            if alone and is_output and self._fits(port.buffer, target.address):
                where[port.buffer] = target.address
                written.append(span)
            else:
                after[number] = target
        changed = {number for number, (old, new) in enumerate(zip(self._where, where, strict=True)) if old != new}
        if changed:
            self._where = where
            try:
                for part in self._parts:
                    if isinstance(part, _Stretch):
                        self._point_stretch(part, changed)
            except BaseException:
                self._where = [_NOWHERE] * len(where)  # some launches point there: the next run points all of them
                raise
        return after

    def _point_stretch(self, part: _Stretch, changed: set[int]) -> None:
        for number, step in enumerate(part.steps):
            if changed & {place.buffer for place in step.arguments}:
                part.launches[number] = self._launch(step, part.launches[number].function)
                part.graph.point(number, part.launches[number])

    def _fits(self, buffer: int, address: int) -> bool:
        """May kernels read or write that buffer's contents at this address? They were compiled for pointers of some
        alignment."""
        return all(
            (address + place.offset) % boundary == 0
            for step in self.program.steps
            if isinstance(step, GpuStep)
            for place, boundary in zip(step.arguments, self.program.kernels[step.kernel].alignments, strict=True)
            if place.buffer == buffer
        )

    def _feed(self, given: Sequence[Any]) -> None:
        """Have the inputs where they are read, and no faults."""
        memory, driver = self._memory, self._driver
        for port, value in zip(self.program.inputs, given, strict=True):
            number = port.buffer
            staged, copy = memory.staged[number], memory.copies[number]
            if isinstance(value, Foreign):
                if memory.on_device[number] and self._where[number] != value.address:
                    driver.copy_within(self._where[number], value.address, _nbytes(port))
                if copy is not None:
                    driver.copy_out(copy, value.address)
                continue
            flat = value.reshape(-1).view(np.uint8)
            if copy is not None:
                copy[:] = flat
            if staged is not None:
                staged[:] = flat
                driver.copy_in(self._where[number], staged)
        for words, address in self._fault_words():
            words.fill(0)
            driver.copy_in(address, words)

    def _host_stretch(self, numbers: tuple[int, ...], objects: dict[str, Any]) -> None:
        steps = [self.program.steps[number] for number in numbers]
        self._memory.fetch(one for step in steps for one in reads_of(step))
        self._driver.synchronise()
        self._host.run(numbers, RunMemory(self._memory.copies, {}), objects)
        self._memory.send(one for step in steps for one in writes_of(step))

    def _fetch(self, port: Port) -> None:
        if port.buffer >= 0 and self._memory.on_device[port.buffer]:
            block = self._memory.staged[port.buffer]
            assert block is not None
            self._driver.copy_out(block[: _nbytes(port)], self._where[port.buffer])

    def _result(self, port: Port, objects: Mapping[str, Any]) -> Any:
        """The caller's own array of an output that was fetched, or the object that host steps made."""
        if port.buffer < 0:
            return objects[port.name]
        kind = port.type
        assert isinstance(kind, TensorType)
        staged, copy = self._memory.staged[port.buffer], self._memory.copies[port.buffer]
        block = staged if staged is not None else copy
        assert block is not None
        made = np.empty(kind.dims, kind.dtype.numpy)
        made.reshape(-1).view(np.uint8)[:] = block[: made.nbytes]
        return made

    def _array(self, port: Port, owner: object) -> DeviceArray:
        kind = port.type
        assert isinstance(kind, TensorType)
        address = self._where[port.buffer]

        def read() -> np.ndarray:
            made = np.empty(kind.dims, kind.dtype.numpy)
            with self._turn:
                self._check_open()
                self._driver.copy_out(made.reshape(-1).view(np.uint8), address)
                self._driver.synchronise()
            return made

        return DeviceArray(address, kind.dims, kind.dtype, self._driver.place, owner=owner, read=read)

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the model was closed, and its memory given back: load it again")
        self._driver.check()

    def _lies_there(self, port: Port) -> None:
        if port.buffer < 0 or not self._memory.on_device[port.buffer]:
            raise UsageError(f"output {port.name!r} is computed by the host, so it lies on no device: call run")

    # --- what is made once ------------------------------------------------------------------------------------------------

    def _stretch(self, numbers: tuple[int, ...], functions: Sequence[Any]) -> _Stretch:
        steps = tuple(step for number in numbers if isinstance(step := self.program.steps[number], GpuStep))
        launches = [self._launch(step, functions[step.kernel]) for step in steps]
        begin = numbers[0]
        waits = edges(self.program.steps, self.program.buffers, numbers)
        graph = self._driver.graph(launches, [(first - begin, second - begin) for first, second in waits])
        self._held.callback(graph.close)
        return _Stretch(steps, launches, graph)

    def _launch(self, step: GpuStep, function: Any) -> Launch:
        where = self._where
        return Launch(
            function,
            self.program.kernels[step.kernel].grid,
            tuple(where[place.buffer] + place.offset for place in step.arguments),
            tuple(Span(where[one.buffer] + one.low, one.high - one.low) for one in step.reads),
            tuple(Span(where[one.buffer] + one.low, one.high - one.low) for one in step.writes),
            step.label,
        )

    def _fault_words(self) -> list[tuple[np.ndarray, int]]:
        """What kernels report faults in, in the host's memory and on the device."""
        found = []
        for number, buffer in enumerate(self.program.buffers):
            block = self._memory.staged[number]
            if buffer.kind == "fault" and block is not None:
                found.append((block, self._where[number]))
        return found


def _faults_of(program: GpuProgram, memory: GpuMemory) -> Faults | None:
    number = next((k for k, buffer in enumerate(program.buffers) if buffer.kind == "fault"), None)
    block = None if number is None else memory.staged[number]
    if block is None:
        return None
    sites: list[tuple[int, DataPosition]] = []
    for step in program.steps:
        if isinstance(step, GpuStep) and step.sites:
            start = next(place.offset // 8 for place in step.arguments if place.buffer == number)
            sites.extend((start + 2 * k, site) for k, site in enumerate(step.sites))
    return Faults(block.view(np.int64), tuple(sites))


def _check(where: str, port: Port, found: Foreign) -> None:
    """Raise `UsageError` unless an array on the device is of the port's type and lies in C order."""
    kind = port.type
    assert isinstance(kind, TensorType)
    if found.dtype != kind.dtype.name:
        raise UsageError(f"{where}: expected {kind.dtype.name}, found {found.dtype or 'elements of another sort'}")
    if found.shape != kind.dims:
        dims = "x".join(map(str, kind.dims)) or "() (a scalar)"
        raise UsageError(f"{where}: expected shape {dims}, found {'x'.join(map(str, found.shape)) or '() (a scalar)'}")
    if not found.is_plain:
        raise UsageError(f"{where}: its elements do not lie side by side in C order; make a contiguous copy of it")


def _nbytes(port: Port) -> int:
    assert isinstance(port.type, TensorType)
    return int(port.type.nbytes)


def _meet(one: Span, other: Span) -> bool:
    return one.address < other.address + other.nbytes and other.address < one.address + one.nbytes
