"""A model with free dimensions on a GPU: a program for each sizes that come, kept while they come back.

A kernel for a GPU is written for sizes, so there is no program for all of them. Some are made beforehand; what makes others is
given, except to a model from a file, which has those in it alone. What programs pack alike lies on the device once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakSet

import numpy as np

from fusewise.codegen.gpu.device import DeviceChoice
from fusewise.codegen.gpu.program import aligned
from fusewise.errors import UsageError
from fusewise.ir.at_sizes import type_at
from fusewise.ir.dtypes import DType
from fusewise.ir.graph import Constant
from fusewise.ir.types import TensorType
from fusewise.lower.program import Port, Program
from fusewise.runtime.feeds import Inputs, PortInfo, chosen_outputs, numbers_by_name, port_info
from fusewise.runtime.gpu.constants import DeviceConstants
from fusewise.runtime.gpu.dlpack import DeviceArray
from fusewise.runtime.gpu.driver import DeviceMemoryFull, Driver, NoDevice, NoDriver, WrongArchitecture
from fusewise.runtime.gpu.executable import Beside, GpuExecutable, GpuFigures, figures_of
from fusewise.runtime.gpu.memory import constants_of, device_sizes
from fusewise.runtime.gpu.runner import GpuContents, check_limit
from fusewise.runtime.sizes import SymbolReader, divided_by_zero, named, negative_output, told

__all__ = ["MOST", "Make", "SizedPrograms", "Sizes"]

MOST = 8
"""Programs that are on the device at a time where nobody says how many may be: ONNX Runtime's CUDA graphs and `torch.compile` keep
about as many."""

_TOLD = 6
"""Of the sizes that a file has so many are named where it has not those asked for."""

Sizes = tuple[int, ...]
"""Of each symbol its value, in their order."""

Make = Callable[[Mapping[str, int], dict[str, Constant]], GpuContents]
"""Makes a program for values of symbols by name, of constants that are known by their digests where it has these."""


class _Outputs:
    """What owns the outputs that a run left on the device, and lives as long as somebody has one of them."""

    def __init__(self, executable: GpuExecutable) -> None:
        self._executable = executable

    @property
    def is_closed(self) -> bool:
        """Is what lay on the device gone?"""
        return self._executable.is_closed


class _Loaded:
    """A program on the device, how many runs want it now, and what they left there."""

    def __init__(self, executable: GpuExecutable) -> None:
        self.executable = executable
        self.users = 1
        self.outputs: WeakSet[_Outputs] = WeakSet()

    @property
    def is_idle(self) -> bool:
        """Does nobody have anything of it?"""
        return not self.users and not self.outputs


class SizedPrograms:
    """Runs a model by programs for sizes: `program` has its ports, in terms of symbols, and what must hold of these.

    At most `most` programs are on the device; the one used longest ago leaves, and if it was not there `beforehand` it is made anew
    when its sizes come again. One that somebody still has outputs of, by `run_on_device`, has its memory until they are let go of.
    `run` may be called from any number of threads, which take turns, and wait for each other's programs to be made only where they
    want one themselves. `close` gives the device's memory back.
    """

    workers = 1
    """Of the CPU, that a run uses."""

    def __init__(
        self,
        program: Program,
        beforehand: Mapping[Sizes, GpuContents],
        open_driver: Callable[[], Driver],
        most: int = MOST,
        make: Make | None = None,
    ) -> None:
        """`ValueError` for programs that do not fit the model's ports."""
        self.program, self.most, self.make = program, most, make
        self.made = self.failed = 0
        self.memory_limit: int | None = None
        self._reader = SymbolReader(program.symbols, program.inputs, program.checks)
        self._given, self._results = tuple(map(named, program.inputs)), tuple(map(named, program.outputs))
        self._inputs = Inputs(self._given, self._reader.shaped)
        self._numbers = numbers_by_name(program.outputs)
        self._open = open_driver
        self._driver: Driver | None = None
        self._beside: Beside | None = None
        self._closed = False
        self._lock, self._making, self._turn = threading.Lock(), threading.Lock(), threading.RLock()
        self._beforehand = dict(beforehand)
        self._others: dict[Sizes, GpuContents] = {}
        self._loaded: OrderedDict[Sizes, _Loaded] = OrderedDict()
        self._leaving: list[_Loaded] = []
        if not beforehand:
            raise ValueError("it has no program")
        for sizes, contents in beforehand.items():
            self._check_fit(sizes, contents)

    # --- what it is -------------------------------------------------------------------------------------------------------

    @property
    def device(self) -> str:
        """What it was compiled for, as users write it: `cuda:sm_90`."""
        return DeviceChoice(is_gpu=True, architecture=self.usual.program.device).text

    @property
    def contents(self) -> dict[Sizes, GpuContents]:
        """The programs that there are, on the device or not, those made beforehand first."""
        with self._lock:
            return self._beforehand | self._others

    @property
    def figures(self) -> GpuFigures:
        """Kernels and constants of all programs, each once, and the most memory that one takes; launches are those for the sizes to
        plan for."""
        programs = [one.program for one in self.contents.values()]
        constants = {id(one.data): aligned(one.nbytes) for each in programs for one in constants_of(each)}
        first = figures_of(self.usual.program)
        return GpuFigures(
            kernels=len({kernel.symbol for each in programs for kernel in each.kernels}),
            launches=first.launches,
            graphs=first.graphs,
            host_steps=first.host_steps,
            constant_bytes=sum(constants.values()),
            arena_bytes=max(device_sizes(each)[1] for each in programs),
        )

    @property
    def specialized(self) -> dict[str, Any]:
        """As plain JSON: the `sizes` that have a program, those made beforehand first; of these the `loaded`, which are on the
        device, used last at the end, and the `most` that may be; `bytes` that they take there of their own, and of constants that
        they share; how many were `made` beside those made beforehand, and how often that `failed`."""
        with self._lock:
            loaded = list(self._loaded)
            programs = [one.executable.program for one in self._loaded.values()]
        return {
            "most": self.most,
            "sizes": [self._by_name(one) for one in self.contents],
            "loaded": [self._by_name(one) for one in loaded],
            "bytes": sum(device_sizes(one)[1] for one in programs),
            "shared_bytes": 0 if self._beside is None else self._beside.constants.nbytes,
            "made": self.made,
            "failed": self.failed,
        }

    def get_inputs(self) -> list[PortInfo]:
        """Name, shape and type of each input; free dimensions have their names."""
        return [port_info(port) for port in self._given]

    def get_outputs(self) -> list[PortInfo]:
        """Name, shape and type of each output."""
        return [port_info(port) for port in self._results]

    def outputs_for(self, feeds: Mapping[str, Any]) -> tuple[Port, ...]:
        """The outputs of a run on these inputs."""
        with self._at(feeds) as (found, _):
            return found.executable.program.outputs

    def limit_memory(self, nbytes: int | None) -> None:
        """Allow no more than so many bytes of the device's memory, whatever the sizes of a run. `ResourceLimit` where that is
        too little for any program there is."""
        if nbytes is not None:
            check_limit(min(sum(device_sizes(one.program)) for one in self.contents.values()), nbytes)
            self.memory_limit = nbytes

    # --- running ----------------------------------------------------------------------------------------------------------

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """See `GpuExecutable.run`. `UsageError` also for sizes that contradict each other, and for those that a file has no program
        for."""
        chosen_outputs(self._numbers, output_names)
        with self._at(feeds) as (found, given):
            return found.executable.run(output_names, given)

    def run_into(self, feeds: Mapping[str, Any], into: Mapping[str, Any]) -> list[Any]:
        """See `GpuExecutable.run_into`, and `run`."""
        chosen_outputs(self._numbers, tuple(into))
        with self._at(feeds) as (found, given):
            return found.executable.run_into(given, into)

    def run_on_device(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[DeviceArray]:
        """See `GpuExecutable.run_on_device`, and `run`. The next run at the same sizes overwrites the outputs."""
        chosen_outputs(self._numbers, output_names)
        with self._at(feeds) as (found, given):
            outputs = _Outputs(found.executable)
            with self._lock:
                found.outputs.add(outputs)
            return found.executable.run_on_device(output_names, given, outputs)

    @property
    def usual(self) -> GpuContents:
        """What is compiled for the sizes to plan for: what was made first."""
        return next(iter(self._beforehand.values()))

    def load_usual(self) -> GpuExecutable:
        """That on the device, until other sizes want its place. Raises what `load` raises."""
        found = self._ready(next(iter(self._beforehand)))
        self._leave(found)
        return found.executable

    def load(self) -> None:
        """Open the device, and have the programs made beforehand there, as many as may be. Raises the errors of
        `runtime.gpu.driver`, and `UsageError` once it is closed."""
        for sizes in reversed(list(self._beforehand)[: self.most]):
            self._leave(self._ready(sizes))

    def load_if_there(self) -> None:
        """As `load`, where there is a GPU that it runs on; else the first run says what is missing."""
        with suppress(NoDriver, NoDevice, WrongArchitecture):
            self.load()

    def close(self) -> None:
        """Give the device's memory back, once runs that are under way are over. Twice is no error."""
        with self._lock:
            self._closed = True
            self._others, self.make = {}, None
        with self._turn:
            with self._lock:
                gone = [*self._loaded.values(), *self._leaving]
                self._loaded, self._leaving = OrderedDict(), []
            for one in gone:
                one.executable.close()
            if self._driver is not None:
                self._driver.close()
            self._driver = self._beside = None

    # --- which program ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _at(self, feeds: Mapping[str, Any]) -> Iterator[tuple[_Loaded, Mapping[str, Any]]]:
        """The program for the sizes of these inputs, which is not closed meanwhile, and the inputs as they fit it but for the
        device."""
        given = self._accepted(feeds)
        rows = self._reader.rows([given[port.name] for port in self._given])
        try:
            values = self._reader.values(rows)
            self._reader.check(values)
            negative = negative_output(self.program.outputs, values)
        except ZeroDivisionError:
            raise divided_by_zero(rows) from None
        if negative is not None:
            raise negative
        found = self._ready(tuple(values[symbol.name] for symbol in self.program.symbols))
        try:
            yield found, given
        finally:
            self._leave(found)

    def _accepted(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs by name. Of what is handed over by DLPack only the type is looked at here."""
        names = [port.name for port in self._given]
        if not isinstance(feeds, Mapping):
            self._inputs.accepted(feeds)
        if set(feeds) != set(names):
            self._inputs.accepted(dict.fromkeys(feeds))  # which says what the inputs are
        there = {name: value for name, value in feeds.items() if _is_foreign(value)}
        if not there:
            return dict(zip(names, self._inputs.accepted(feeds), strict=True))
        own = [port for port in self._given if port.name not in there]
        open_ones = range(len(own))
        values = Inputs(own, open_ones).accepted({port.name: feeds[port.name] for port in own})
        for port in self._given:
            if port.name in there:
                _check_type(port, there[port.name])
        return there | dict(zip([port.name for port in own], values, strict=True))

    def _ready(self, sizes: Sizes) -> _Loaded:
        """The program for these sizes on the device, for somebody who will `_leave` it."""
        found = self._there(sizes)
        if found is not None:
            return found
        with self._making:
            found = self._there(sizes)
            if found is not None:
                return found
            contents = self.contents.get(sizes)
            return self._load(sizes, self._new(sizes) if contents is None else contents)

    def _there(self, sizes: Sizes) -> _Loaded | None:
        """As `_ready`, if it is there already."""
        with self._lock:
            self._check_open()
            found = self._loaded.get(sizes)
            if found is not None:
                self._loaded.move_to_end(sizes)
                found.users += 1
            return found

    def _leave(self, one: _Loaded) -> None:
        with self._lock:
            one.users -= 1
            is_leaving = one in self._leaving
        if is_leaving:
            with self._turn:
                self._sweep()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the model is closed: compile it or open it again")

    def _new(self, sizes: Sizes) -> GpuContents:
        """A program made for these sizes now."""
        make = self.make
        if make is None:
            some = [told(self._by_name(one)) for one in list(self._beforehand)[:_TOLD]]
            more = len(self._beforehand) - len(some)
            others = f" and {more} more" if more else ""
            raise UsageError(
                f"the model has programs for {'; '.join(some)}{others}, not for {told(self._by_name(sizes))}: compile it for these "
                "sizes too"
            )
        known = {
            one.data.digest: one.data
            for contents in self.contents.values()
            for one in contents.program.buffers
            if one.kind == "constant" and one.data is not None
        }
        try:
            found = make(self._by_name(sizes), known)
            self._check_fit(sizes, found)
        except BaseException:
            self.failed += 1
            raise
        self.made += 1
        return found

    def _load(self, sizes: Sizes, contents: GpuContents) -> _Loaded:
        with self._turn:
            self._check_open()
            if self._driver is None:
                self._driver = self._open()
                self._beside = Beside(DeviceConstants(self._driver), self._turn)
            assert self._beside is not None
            self._make_room(contents)
            while True:
                try:
                    executable = GpuExecutable(contents.program, self._driver, contents.cubins, self._beside)
                    break
                except DeviceMemoryFull:
                    if not self._evict():
                        raise
            found = _Loaded(executable)
            with self._lock:
                self._loaded[sizes] = found
                if sizes not in self._beforehand:
                    self._others[sizes] = contents
            return found

    def _make_room(self, contents: GpuContents) -> None:
        """Have programs leave until this one may come."""
        self._sweep()
        while len(self._loaded) >= self.most:
            self._evict()
        if self.memory_limit is None:
            return
        while self._taken_with(contents) > self.memory_limit and self._evict():
            pass
        check_limit(self._taken_with(contents), self.memory_limit)

    def _taken_with(self, contents: GpuContents) -> int:
        """Bytes of the device's memory that are taken when this program has come."""
        assert self._beside is not None
        constants = self._beside.constants
        there = [*self._loaded.values(), *self._leaving]
        programs = [contents.program, *(one.executable.program for one in there)]
        own = sum(device_sizes(one)[1] for one in programs)
        return constants.nbytes + constants.missing(constants_of(contents.program)) + own

    def _evict(self) -> bool:
        """Let the program go that was used longest ago, if there is one. It is closed now, or when nobody has anything of it
        any more: a run of another thread, or what `run_on_device` gave."""
        with self._lock:
            if not self._loaded:
                return False
            sizes, one = self._loaded.popitem(last=False)
            self._others.pop(sizes, None)
            self._leaving.append(one)
        self._sweep()
        return True

    def _sweep(self) -> None:
        """Close those that have left and of which nobody has anything."""
        with self._lock:
            idle = [one for one in self._leaving if one.is_idle]
            self._leaving = [one for one in self._leaving if one not in idle]
        for one in idle:
            one.executable.close()

    def _check_fit(self, sizes: Sizes, contents: GpuContents) -> None:
        """Raise `ValueError` for a program that is none of this model at these sizes."""
        low_and_high = [(symbol.low, symbol.high) for symbol in self.program.symbols]
        if len(sizes) != len(low_and_high) or any(
            not a <= n <= b for n, (a, b) in zip(sizes, low_and_high, strict=True)
        ):
            raise ValueError(f"it has a program for sizes that cannot be: {sizes}")
        values, program = self._by_name(sizes), contents.program
        wanted = [(port.name, type_at(port.type, values)) for port in self.program.inputs]
        if [(port.name, port.type) for port in program.inputs] != wanted:
            raise ValueError(f"the program for {told(values)} has other inputs than the model")
        if [port.name for port in program.outputs] != [port.name for port in self.program.outputs]:
            raise ValueError(f"the program for {told(values)} has other outputs than the model")
        if program.device != self.usual.program.device:
            raise ValueError(f"the program for {told(values)} is for another device")

    def _by_name(self, sizes: Sizes) -> dict[str, int]:
        return {symbol.name: size for symbol, size in zip(self.program.symbols, sizes, strict=True)}


def _is_foreign(value: Any) -> bool:
    """Does something else than NumPy hand it over by DLPack, with a shape that can be looked at?"""
    return not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__") and hasattr(value, "shape")


def _check_type(port: Port, value: Any) -> None:
    """Raise `UsageError` for elements that are not the port's: before a program is made for it."""
    kind = port.type
    if not isinstance(kind, TensorType):
        raise UsageError(f"input {port.name!r}: expected {kind}, found an array")
    found: Any = getattr(value, "dtype", None)
    name = found.name if isinstance(found, DType | np.dtype) else str(found).rpartition(".")[2]
    if name != kind.dtype.name:
        raise UsageError(f"input {port.name!r}: expected {kind.dtype.name}, found {name}")
