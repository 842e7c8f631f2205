"""Power and temperature as the operating system tells them: Linux's powercap (RAPL) and hwmon. Nothing where they are not.

Energy counters run on by themselves and wrap; a reading is a difference. Virtual machines mostly have neither.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NOT_HERE", "Energy", "energy_of", "temperature_c"]

NOT_HERE = "not available here"

_POWERCAP, _HWMON = Path("/sys/class/powercap"), Path("/sys/class/hwmon")
_PROCESSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules of the whole processor package while something ran, and the seconds that took."""

    joules: float
    seconds: float

    @property
    def watts(self) -> float:
        return self.joules / self.seconds if self.seconds else 0.0


def energy_of(work: Callable[[], object], folder: Path = _POWERCAP) -> Energy | None:
    """Run `work` and say what energy the packages used meanwhile; None when they do not tell, and then it is not run."""
    zones = [zone for zone in sorted(folder.glob("intel-rapl:*")) if zone.name.count(":") == 1]
    before = [_number(zone / "energy_uj") for zone in zones]
    if not zones or any(count is None for count in before):
        return None
    begin = time.perf_counter()
    work()
    seconds = time.perf_counter() - begin
    total = 0.0
    for zone, first in zip(zones, before, strict=True):
        last, most = _number(zone / "energy_uj"), _number(zone / "max_energy_range_uj")
        if first is None or last is None:
            return None
        used = last - first
        total += used if used >= 0 else used + (most or 0.0)
    return Energy(total / 1e6, seconds)


def temperature_c(folder: Path = _HWMON) -> float | None:
    """The processor's highest sensor in degrees Celsius; None when there is none."""
    sensors = [
        sensor
        for monitor in folder.glob("hwmon*")
        if _text(monitor / "name") in _PROCESSORS
        for sensor in monitor.glob("temp*_input")
    ]
    found = [reading for sensor in sensors if (reading := _number(sensor)) is not None]
    return max(found) / 1000 if found else None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(path: Path) -> float | None:
    text = _text(path)
    return float(text) if text.lstrip("-").isdecimal() else None
