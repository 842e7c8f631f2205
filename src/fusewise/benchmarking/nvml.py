"""NVIDIA's GPUs as their management library (NVML) tells of them: energy, power, temperature, utilisation, memory.

The package `nvidia-ml-py` is asked where it is installed (extra `gpu`). Without it, a driver or a GPU there are none,
and a figure that a GPU does not tell is None.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

__all__ = ["Gpu", "nvidia_gpu_at", "nvidia_gpus"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU while the library is open."""

    library: Any
    handle: Any

    def joules(self) -> float | None:
        """Energy since the driver was loaded."""
        return self._told("nvmlDeviceGetTotalEnergyConsumption", 1e3)

    def watts(self) -> float | None:
        """Power now."""
        return self._told("nvmlDeviceGetPowerUsage", 1e3)

    def celsius(self) -> float | None:
        """Temperature of the chip in degrees."""
        return self._told("nvmlDeviceGetTemperature", 1.0, self.library.NVML_TEMPERATURE_GPU)

    def utilisation(self) -> float | None:
        """The share of the last moments, up to a second, in which some kernel ran."""
        return self._told("nvmlDeviceGetUtilizationRates", 100.0, field="gpu")

    def memory_bytes(self) -> float | None:
        """Memory of the device that is taken now, by all processes and the driver."""
        return self._told("nvmlDeviceGetMemoryInfo", 1.0, field="used")

    def _told(self, function: str, scale: float, *arguments: Any, field: str = "") -> float | None:
        try:
            told = getattr(self.library, function)(self.handle, *arguments)
            return float(getattr(told, field) if field else told) / scale
        except (self.library.NVMLError, AttributeError):  # an old library lacks functions
            return None


@contextmanager
def nvidia_gpus(library: Any = None) -> Iterator[tuple[Gpu, ...]]:
    """The GPUs of this machine, for as long as the context lasts. `library` stands in for the installed package."""
    nvml = _installed() if library is None else library
    if nvml is None or not _opened(nvml):
        yield ()
        return
    try:
        yield tuple(_listed(nvml))
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


@contextmanager
def nvidia_gpu_at(bus: str, library: Any = None) -> Iterator[Gpu | None]:
    """The GPU that is plugged in at `bus` (`0000:01:00.0`), or where that is empty the only one; None where there is none such."""
    with nvidia_gpus(library) as gpus:
        found = gpus[0] if len(gpus) == 1 and not bus else None
        if gpus and bus:
            nvml = gpus[0].library
            with suppress(nvml.NVMLError):
                found = Gpu(nvml, nvml.nvmlDeviceGetHandleByPciBusId(bus))
        yield found


def _installed() -> Any | None:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


def _opened(nvml: Any) -> bool:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:  # no driver
        return False
    return True


def _listed(nvml: Any) -> list[Gpu]:
    found = []
    with suppress(nvml.NVMLError):
        for number in range(nvml.nvmlDeviceGetCount()):
            found.append(Gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(number)))
    return found
