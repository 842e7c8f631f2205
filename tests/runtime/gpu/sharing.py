"""One simulated device for tests that open and close drivers: its interpreter takes most of a second to start."""

from __future__ import annotations

from typing import Any

import pytest

from fusewise.runtime.gpu import drivers
from fusewise.runtime.gpu.driver import NoDevice, NoDriver
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
