"""A stand-in for NVIDIA's management library."""

from __future__ import annotations

from types import SimpleNamespace


class Library:
    """GPUs of a library like `pynvml`, two or so many; what `missing` names is not supported by them."""

    class NVMLError(Exception):
        pass

    NVML_TEMPERATURE_GPU = 0

    def __init__(self, *missing: str, count: int = 2) -> None:
        self.missing, self.count, self.open, self.millijoules = missing, count, 0, 1_000_000

    def _checked(self, name: str) -> None:
        assert self.open or name == "nvmlInit"
        if name in self.missing:
            raise self.NVMLError("not supported")

    def nvmlInit(self) -> None:
        self._checked("nvmlInit")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        self._checked("nvmlDeviceGetCount")
        return self.count

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        return number

    def nvmlDeviceGetHandleByPciBusId(self, bus: str) -> int:
        if bus not in ("0000:3B:00.0", "0000:5E:00.0")[: self.count]:
            raise self.NVMLError("not found")
        return int(bus == "0000:5E:00.0")

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        self._checked("nvmlDeviceGetUtilizationRates")
        return SimpleNamespace(gpu=80 + handle, memory=7)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        self._checked("nvmlDeviceGetMemoryInfo")
        return SimpleNamespace(total=1 << 30, used=1000 + handle)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        self._checked("nvmlDeviceGetTotalEnergyConsumption")
        return self.millijoules

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        self._checked("nvmlDeviceGetPowerUsage")
        return 30_000 + 20_000 * handle

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        self._checked("nvmlDeviceGetTemperature")
        return 40 + handle
