"""A program for a GPU as a model holds it: with its cubins, whether or not there is a GPU, and loaded where one is wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from fusewise.codegen.gpu.device import DeviceChoice
from fusewise.codegen.gpu.program import GpuBuffer, GpuProgram
from fusewise.errors import ResourceLimit, UsageError
from fusewise.ir.graph import Constant
from fusewise.lower.program import Port
from fusewise.records import record
from fusewise.runtime.feeds import PortInfo, port_info
from fusewise.runtime.gpu.dlpack import DeviceArray
from fusewise.runtime.gpu.driver import Cubin, Driver, NoDevice, NoDriver, WrongArchitecture
from fusewise.runtime.gpu.executable import GpuExecutable, figures_of
from fusewise.runtime.gpu.memory import device_sizes
from fusewise.runtime.gpu.packing import packed_bytes

__all__ = ["GpuContents", "GpuRunner", "check_limit", "packed"]


@record(frozen=True)
class GpuContents:
    """What is compiled: a program whose constants are as kernels want them, and a cubin of each kernel; None for a program that
    is run from the kernels' sources, without a GPU."""

    program: GpuProgram
    cubins: tuple[Cubin, ...] | None


def packed(program: GpuProgram, known: dict[str, Constant] | None = None) -> GpuProgram:
    """The program with its constants packed: what they were made from is not needed any more. Those that are byte for byte one of
    the `known`, by their digests, are that one; others become known."""
    return replace(program, buffers=tuple(_packed(one, known) for one in program.buffers))


def _packed(buffer: GpuBuffer, known: dict[str, Constant] | None) -> GpuBuffer:
    if buffer.kind != "constant":
        return buffer
    made = Constant(packed_bytes(buffer))
    if known is not None:
        made = known.setdefault(made.digest, made)
    return replace(buffer, data=made, packing=None)


def check_limit(taken: int, limit: int) -> None:
    """Raise `ResourceLimit` where a model takes more bytes of its device's memory than are allowed."""
    if taken > limit:
        raise ResourceLimit(
            f"the model takes {taken:,} bytes of the device's memory, more than the {limit:,} allowed: use a higher "
            "limit of memory, or smaller input shapes"
        )


class GpuRunner:
    """Runs `contents` on a GPU, which is opened, and the program loaded there, by `load`, or else by the first run.

    `run` may be called from any number of threads, which take turns. `close` gives the device's memory back.
    """

    workers = 1
    """Of the CPU, that a run uses."""

    specialized = None
    """It has one program, whatever the sizes."""

    def __init__(self, contents: GpuContents, open_driver: Callable[[], Driver]) -> None:
        self.contents = contents
        self.program = contents.program
        self.figures = figures_of(contents.program)
        self.memory_limit: int | None = None
        self._open = open_driver
        self._turn = threading.Lock()
        self._closed = False
        self._driver: Driver | None = None
        self._loaded: GpuExecutable | None = None

    @property
    def device(self) -> str:
        """What it was compiled for, as users write it: `cuda:sm_90`."""
        return DeviceChoice(is_gpu=True, architecture=self.program.device).text

    @property
    def usual(self) -> GpuContents:
        """What is compiled for the sizes to plan for: all there is."""
        return self.contents

    def load_usual(self) -> GpuExecutable:
        """See `load`."""
        return self.load()

    def load(self) -> GpuExecutable:
        """The program on its device. Raises the errors of `runtime.gpu.driver`, and `UsageError` once it is closed."""
        with self._turn:
            if self._closed:
                raise UsageError("the model is closed: compile it or open it again")
            if self._loaded is None:
                driver = self._open()
                try:
                    self._loaded = GpuExecutable(self.program, driver, self.contents.cubins)
                except BaseException:
                    driver.close()
                    raise
                self._driver = driver
            return self._loaded

    def load_if_there(self) -> None:
        """As `load`, where there is a GPU that it runs on; else the first run says what is missing."""
        with suppress(NoDriver, NoDevice, WrongArchitecture):
            self.load()

    def limit_memory(self, nbytes: int | None) -> None:
        """Allow no more than so many bytes of the device's memory. `ResourceLimit` where that is too little."""
        if nbytes is not None:
            check_limit(sum(device_sizes(self.program)), nbytes)
            self.memory_limit = nbytes

    def get_inputs(self) -> list[PortInfo]:
        """Name, shape and type of each input."""
        return [port_info(port) for port in self.program.inputs]

    def get_outputs(self) -> list[PortInfo]:
        """Name, shape and type of each output."""
        return [port_info(port) for port in self.program.outputs]

    def outputs_for(self, feeds: Mapping[str, Any]) -> tuple[Port, ...]:
        """The outputs of a run on these inputs: those of any."""
        return self.program.outputs

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """See `GpuExecutable.run`."""
        return self.load().run(output_names, feeds)

    def run_into(self, feeds: Mapping[str, Any], into: Mapping[str, Any]) -> list[Any]:
        """See `GpuExecutable.run_into`."""
        return self.load().run_into(feeds, into)

    def run_on_device(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[DeviceArray]:
        """See `GpuExecutable.run_on_device`."""
        return self.load().run_on_device(output_names, feeds)

    def close(self) -> None:
        """Give the device's memory back, once runs that are under way are over. Twice is no error."""
        with self._turn:
            self._closed = True
            if self._loaded is not None:
                self._loaded.close()
            if self._driver is not None:
                self._driver.close()
            self._loaded = self._driver = None
