"""One simulated device for tests that open and close drivers: its interpreter takes most of a second to start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.runtime.gpu import drivers
from fusewise.runtime.gpu.compile import TritonCompiler
from fusewise.runtime.gpu.driver import Cubin, NoDevice, NoDriver
from fusewise.runtime.gpu.fake import FakeDriver


class SharedDriver:
    """A driver that stays open when it is closed; what was allocated since it was opened has to be given back by then."""

    def __init__(self, device: FakeDriver) -> None:
        self._device, self._before = device, device.allocations
        self.is_closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def close(self) -> None:
        self.is_closed = True


def share(
    monkeypatch: pytest.MonkeyPatch, device: FakeDriver | None, architecture: str = "sm_90"
) -> list[SharedDriver]:
    """Have machines of two GPUs of an `architecture`, both of them this device, or of none where it is None. Gives the drivers
    that are opened."""
    opened: list[SharedDriver] = []

    def numbered(number: int) -> SharedDriver:
        if device is None:
            raise NoDriver("there is no driver of NVIDIA's on this machine (a test)")
        if number > 1:
            raise NoDevice(f"there is no GPU {number} (a test)")
        opened.append(SharedDriver(device))
        opened[-1].architecture = architecture
        return opened[-1]

    monkeypatch.setattr(drivers, "numbered", numbered)
    return opened


def compile_nothing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have kernels not compiled, which the simulated device does without: it runs their sources. Gives how many would be, each
    time."""
    counts: list[int] = []

    def compile_none(
        self: TritonCompiler, kernels: Sequence[GpuKernel], device: Device, *, progress: Any = None, **how: Any
    ) -> list[Cubin]:
        counts.append(len(kernels))
        if progress is not None:
            progress(len(kernels), len(kernels))
        image, figures = b"\x7fELF", (32, 0, 0, 0, 128)
        return [Cubin(one.symbol, device.name, image, *figures, len(one.arguments), 2) for one in kernels]

    monkeypatch.setattr(TritonCompiler, "compile", compile_none)
    return counts
