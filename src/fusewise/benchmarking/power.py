"""Power and temperature as the machine tells them, of the processor and of GPUs. Nothing where nothing is told.

Linux has them as files: powercap (RAPL) and hwmon count energy or tell power, hwmon and thermal zones tell temperatures. NVIDIA's
GPUs tell theirs through a library (`benchmarking.nvml`). Energy counters run on by themselves and wrap; a reading is a difference.
Where there is only power, it is read over and over meanwhile. Virtual machines mostly have none of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from fusewise.benchmarking.nvml import Gpu, nvidia_gpu_at, nvidia_gpus

__all__ = [
    "GPU",
    "NOT_HERE",
    "PROCESSOR",
    "Energy",
    "GpuTold",
    "Meter",
    "Told",
    "energies",
    "energy_meters",
    "gpu_told_of",
    "temperatures",
    "told_of",
]

NOT_HERE = "not available here"
SYSFS = Path("/sys/class")
PROCESSOR, GPU = "processor", "GPU"

_MONITORS = {
    **dict.fromkeys(("coretemp", "k10temp", "zenpower", "fam15h_power", "cpu_thermal", "soc_thermal"), PROCESSOR),
    **dict.fromkeys(("amdgpu", "nouveau"), GPU),
}
"""Whose sensors a monitor of hwmon has, by its name."""

_ZONES = ("x86_pkg_temp", "cpu", "soc", "cluster")
"""Words in the type of a thermal zone that is the processor's."""

_PAUSE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Told:
    """A metric of the processor and of all GPUs; None where nothing is told."""

    processor: float | None = None
    gpu: float | None = None


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules of a device while something ran, and the seconds that took."""

    joules: float
    seconds: float

    @property
    def watts(self) -> float:
        return self.joules / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class GpuTold:
    """What one GPU told while something ran: joules and the seconds that took, the mean share of time in which it worked, the most
    memory that was taken of it by anybody, and how hot it was right after. None where it does not tell."""

    energy: Energy | None = None
    utilisation: float | None = None
    memory_bytes: float | None = None
    celsius: float | None = None


@dataclass(frozen=True, slots=True)
class Meter:
    """How a device tells its power: joules that add up, from 0 again at `wraps_at`, or the watts of the moment.

    `read` gives None where the device does not answer.
    """

    device: str
    read: Callable[[], float | None]
    adds_up: bool
    wraps_at: float = inf


def energy_meters(root: Path = SYSFS, gpus: Sequence[Gpu] = ()) -> tuple[Meter, ...]:
    """Those meters of a machine that answer. `root` is the folder of classes of sysfs."""
    packages = _packages(root / "powercap")
    if len(_answering(packages)) < len(packages):
        packages = []  # the sum of some would be too little
    monitors = _answering(_monitored(root / "hwmon"))
    found = [*packages, *(meter for meter in monitors if not packages or meter.device != PROCESSOR)]
    return (*found, *(meter for gpu in gpus for meter in _gpu_meters(gpu)))


def _gpu_meters(gpu: Gpu) -> list[Meter]:
    """Its counter of energy, or else its power."""
    return _answering([Meter(GPU, gpu.joules, True)]) or _answering([Meter(GPU, gpu.watts, False)])


def _answering(meters: Iterable[Meter]) -> list[Meter]:
    return [meter for meter in meters if meter.read() is not None]


def _packages(folder: Path) -> list[Meter]:
    """The processor's packages; their parts, which have two numbers, are in them already."""
    zones = [zone for zone in sorted(folder.glob("intel-rapl:*")) if zone.name.count(":") == 1]
    return [
        Meter(PROCESSOR, _reader(zone / "energy_uj"), True, (_number(zone / "max_energy_range_uj") or inf) / 1e6)
        for zone in zones
    ]


def _monitored(folder: Path) -> list[Meter]:
    """Power sensors of hwmon; of two files for one sensor the averaged one."""
    found = []
    for monitor, device in _monitors(folder):
        inputs = {path.name.partition("_")[0]: path for path in sorted(monitor.glob("power*_input"))}
        averages = {path.name.partition("_")[0]: path for path in sorted(monitor.glob("power*_average"))}
        found += [Meter(device, _reader(path), False) for path in (inputs | averages).values()]
    return found


def energies(work: Callable[[], object], meters: Sequence[Meter]) -> dict[str, Energy]:
    """Run `work` and say what energy each device used meanwhile. Where there is no meter it is not run."""
    if not meters:
        return {}
    counters = [meter for meter in meters if meter.adds_up]
    first = [meter.read() for meter in counters]
    with _Sampled([meter for meter in meters if not meter.adds_up]) as sampled:
        begin = time.perf_counter()
        work()
        seconds = time.perf_counter() - begin
    last = [meter.read() for meter in counters]
    joules = [
        (meter.device, None if before is None or after is None else _used(before, after, meter.wraps_at))
        for meter, before, after in zip(counters, first, last, strict=True)
    ]
    joules += [(device, None if watts is None else watts * seconds) for device, watts in sampled.means]
    silent = {device for device, used in joules if used is None}  # a sum that lacks a part would be too little
    found: dict[str, Energy] = {}
    for device, used in joules:
        if used is not None and device not in silent:
            before = found[device].joules if device in found else 0.0
            found[device] = Energy(before + used, seconds)
    return found


def _used(before: float, after: float, wraps_at: float) -> float:
    """What a counter counted; one that wrapped and does not say where counts from 0."""
    return after - before if after >= before else after - before + wraps_at if wraps_at < inf else after


class _Sampled:
    """Reads meters that tell the watts of the moment until it is left; at the beginning and at the end in any case."""

    def __init__(self, meters: Sequence[Meter]) -> None:
        self._meters = meters
        self._samples: list[list[float]] = [[] for _ in meters]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> _Sampled:
        self._read()
        if self._meters:
            self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._over.set()
        if self._meters:
            self._thread.join()
            self._read()

    @property
    def means(self) -> list[tuple[str, float | None]]:
        """The mean watts of each meter, None for one that no longer answers."""
        pairs = zip(self._meters, self._samples, strict=True)
        return [(meter.device, sum(watts) / len(watts) if watts else None) for meter, watts in pairs]

    @property
    def most(self) -> dict[str, float | None]:
        """The highest reading of each meter by name, None for one that does not answer."""
        pairs = zip(self._meters, self._samples, strict=True)
        return {meter.device: max(samples, default=None) for meter, samples in pairs}

    def _follow(self) -> None:
        while not self._over.wait(_PAUSE_SECONDS):
            self._read()

    def _read(self) -> None:
        for meter, samples in zip(self._meters, self._samples, strict=True):
            watts = meter.read()
            if watts is not None:
                samples.append(watts)


def temperatures(root: Path = SYSFS, gpus: Sequence[Gpu] = ()) -> Told:
    """The highest sensor of each device in degrees Celsius: of hwmon, of thermal zones where it has none of the processor."""
    found: dict[str, list[float]] = {PROCESSOR: [], GPU: []}
    for monitor, device in _monitors(root / "hwmon"):
        found[device] += _degrees(monitor.glob("temp*_input"))
    if not found[PROCESSOR]:
        zones = [zone for zone in (root / "thermal").glob("thermal_zone*") if _is_processor(_text(zone / "type"))]
        found[PROCESSOR] += _degrees(zone / "temp" for zone in zones)
    found[GPU] += [degrees for gpu in gpus if (degrees := gpu.celsius()) is not None]
    return Told(*(max(found[device], default=None) for device in (PROCESSOR, GPU)))


def _degrees(paths: Iterable[Path]) -> list[float]:
    return [reading / 1000 for path in paths if (reading := _number(path)) is not None]


def _is_processor(zone: str) -> bool:
    return any(word in zone.lower() for word in _ZONES)


def _monitors(folder: Path) -> list[tuple[Path, str]]:
    """Monitors of hwmon that are a processor's or a GPU's, and whose."""
    found = [(monitor, _MONITORS.get(_text(monitor / "name"))) for monitor in sorted(folder.glob("hwmon*"))]
    return [(monitor, device) for monitor, device in found if device is not None]


def told_of(work: Callable[[], object], root: Path = SYSFS, nvml: Any = None) -> tuple[dict[str, Energy], Told]:
    """Run `work` once: what energy each device used meanwhile, and how hot it is right after.

    `nvml` is the library for NVIDIA's GPUs in the place of the installed one. Where nothing tells energy nothing is run.
    """
    with nvidia_gpus(nvml) as gpus:
        return energies(work, energy_meters(root, gpus)), temperatures(root, gpus)


def gpu_told_of(work: Callable[[], object], bus: str, nvml: Any = None) -> GpuTold:
    """Run `work` once, and ask the GPU at `bus` (`nvml.nvidia_gpu_at`) meanwhile. Where there is none nothing is run."""
    with nvidia_gpu_at(bus, nvml) as gpu:
        if gpu is None:
            return GpuTold()
        others = {"utilisation": gpu.utilisation, "memory": gpu.memory_bytes}
        used: dict[str, Energy] = {}
        with _Sampled([Meter(name, read, False) for name, read in others.items()]) as sampled:
            meters = _gpu_meters(gpu)
            used = energies(work, meters)
            if not meters:
                work()
        means, most = dict(sampled.means), sampled.most
        return GpuTold(used.get(GPU), means["utilisation"], most["memory"], gpu.celsius())


def _reader(path: Path) -> Callable[[], float | None]:
    """Reads a file of millionths."""

    def read() -> float | None:
        number = _number(path)
        return None if number is None else number / 1e6

    return read


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _number(path: Path) -> float | None:
    text = _text(path)
    return float(text) if text.removeprefix("-").isdecimal() else None
