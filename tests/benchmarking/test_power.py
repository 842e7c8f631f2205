"""Energy counters and sensors, as files of a folder like sysfs, and a library that stands in for NVIDIA's."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.nvml_stand_in import Library

from fusewise.benchmarking.nvml import Gpu, nvidia_gpus
from fusewise.benchmarking.power import (
    GPU,
    PROCESSOR,
    Energy,
    GpuTold,
    Meter,
    Told,
    energies,
    energy_meters,
    gpu_told_of,
    temperatures,
    told_of,
)


def files(folder: Path, **contents: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_text(f"{content}\n")
    return folder


def package(root: Path, name: str, microjoules: int) -> Path:
    return files(root / "powercap" / name, energy_uj=microjoules, max_energy_range_uj=10_000_000)


def nothing() -> None:
    """Work that takes no time."""


def test_energy_is_a_difference_and_counters_wrap(tmp_path: Path) -> None:
    first, second = package(tmp_path, "intel-rapl:0", 1_000_000), package(tmp_path, "intel-rapl:1", 9_000_000)
    package(tmp_path, "intel-rapl:0:0", 5)  # a part of the first, which counts it already

    def work() -> None:
        (first / "energy_uj").write_text("3000000\n")
        (second / "energy_uj").write_text("1000000\n")

    found = energies(work, energy_meters(tmp_path))
    assert set(found) == {PROCESSOR}
    assert found[PROCESSOR].joules == pytest.approx(2 + 2)
    assert found[PROCESSOR].seconds > 0
    assert Energy(6.0, 2.0).watts == 3.0


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 9_999), min_size=2, max_size=6))
def test_counters_add_up_over_any_number_of_runs(used: list[int]) -> None:
    total = 0

    def read() -> float:
        return total % 10_000 / 1e3

    counted = 0.0
    for more in used:

        def work(more: int = more) -> None:
            nonlocal total
            total += more

        counted += energies(work, [Meter(PROCESSOR, read, True, 10.0)])[PROCESSOR].joules
    assert counted == pytest.approx(sum(used) / 1e3)


def test_packages_that_do_not_all_answer_are_not_added_up(tmp_path: Path) -> None:
    package(tmp_path, "intel-rapl:0", 1)
    files(tmp_path / "powercap" / "intel-rapl:1", name="package-1")
    assert not energy_meters(tmp_path)


def test_power_of_the_moment_is_read_while_the_work_goes_on(tmp_path: Path) -> None:
    files(tmp_path / "hwmon" / "hwmon0", name="zenpower", power1_input=40_000_000, power2_input=20_000_000)
    files(tmp_path / "hwmon" / "hwmon1", name="amdgpu", power1_input=1, power1_average=25_000_000)
    files(tmp_path / "hwmon" / "hwmon2", name="nvme", power1_input=9_000_000)

    def work() -> None:
        time.sleep(0.1)
        (tmp_path / "hwmon/hwmon0/power1_input").write_text("60000000\n")

    found = energies(work, energy_meters(tmp_path))
    assert 60 < found[PROCESSOR].watts <= 70
    assert found[GPU].watts == pytest.approx(25)
    package(tmp_path, "intel-rapl:0", 0)
    told = energies(nothing, energy_meters(tmp_path))
    assert told[PROCESSOR].joules == 0, "the counter, and not the sensors beside it"
    assert GPU in told


def test_a_device_that_falls_silent_tells_nothing() -> None:
    readings = {"counter": iter([1.0, None]), "watts": iter([None, None, None, None])}
    counter = Meter(PROCESSOR, lambda: next(readings["counter"]), True)
    silent = Meter(GPU, lambda: next(readings["watts"]), False)
    fine = Meter(PROCESSOR, iter([1.0, 3.0]).__next__, True)
    assert energies(nothing, [counter, fine, silent]) == {}


def test_nothing_where_nothing_is_told(tmp_path: Path) -> None:
    ran: list[int] = []
    assert told_of(lambda: ran.append(1), tmp_path, Library("nvmlInit")) == ({}, Told())
    assert not ran


@pytest.mark.parametrize(
    "monitors, zones, hottest",
    [
        ({"k10temp": (41000, 52500), "nvme": (70000,)}, {"x86_pkg_temp": 90000}, 52.5),
        ({"nvme": (70000,)}, {"acpitz": 27800, "x86_pkg_temp": 61000}, 61.0),
        ({}, {"cpu0-thermal": 48000, "cpu1-thermal": 51000, "battery": 80000}, 51.0),
        ({"nvme": (70000,)}, {"acpitz": 27800}, None),
        ({"coretemp": ("unknown",)}, {}, None),
    ],
)
def test_the_hottest_sensor_of_the_processor(
    tmp_path: Path, monitors: dict[str, tuple[object, ...]], zones: dict[str, int], hottest: float | None
) -> None:
    for number, (name, readings) in enumerate(monitors.items()):
        sensors = {f"temp{k}_input": reading for k, reading in enumerate(readings)}
        files(tmp_path / "hwmon" / f"hwmon{number}", name=name, **sensors)
    for number, (kind, reading) in enumerate(zones.items()):
        files(tmp_path / "thermal" / f"thermal_zone{number}", type=kind, temp=reading)
    assert temperatures(tmp_path) == Told(hottest)


def test_gpus_tell_energy_power_and_temperature(tmp_path: Path) -> None:
    library = Library()

    def work() -> None:
        library.millijoules += 500

    used, hot = told_of(work, tmp_path, library)
    assert used[GPU].joules == pytest.approx(2 * 0.5), "two of them"
    assert hot == Told(None, 41.0)
    assert not library.open, "closed behind the last reading"


def test_gpus_without_a_counter_are_asked_for_power(tmp_path: Path) -> None:
    used, _ = told_of(lambda: time.sleep(0.05), tmp_path, Library("nvmlDeviceGetTotalEnergyConsumption"))
    assert used[GPU].watts == pytest.approx(30 + 50)


def test_gpus_that_tell_little(tmp_path: Path) -> None:
    mute = ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature")
    assert told_of(nothing, tmp_path, Library(*mute)) == ({}, Told())
    with nvidia_gpus(Library("nvmlDeviceGetCount")) as gpus:
        assert gpus == ()
    old = Library()
    gpu = Gpu(type("Old", (), {"NVMLError": old.NVMLError}), 0)
    assert gpu.watts() is None


def test_one_gpu_is_asked_where_it_is_plugged_in() -> None:
    library, ran = Library(), list[int]()

    def work() -> None:
        ran.append(1)
        library.millijoules += 500

    for bus, number in (("0000:3B:00.0", 0), ("0000:5E:00.0", 1)):
        told = gpu_told_of(work, bus, library)
        assert told.energy is not None and told.energy.joules == pytest.approx(0.5)
        assert told.utilisation == pytest.approx((80 + number) / 100)
        assert (told.memory_bytes, told.celsius) == (1000 + number, 40 + number)
    assert gpu_told_of(work, "", Library(count=1)).celsius == 40, "the only one"
    assert len(ran) == 3
    nobody = [gpu_told_of(work, "", library), gpu_told_of(work, "0000:99:00.0", Library(count=2))]
    nobody += [gpu_told_of(work, "0000:3B:00.0", Library("nvmlInit"))]
    assert nobody == [GpuTold()] * 3 and len(ran) == 3, "which of two, an unknown one, no driver"
    mute = Library("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetUtilizationRates")
    assert gpu_told_of(work, "0000:3B:00.0", mute) == GpuTold(None, None, 1000, 40)
    assert len(ran) == 4 and not library.open


def test_both_devices_beside_each_other(tmp_path: Path) -> None:
    counter = package(tmp_path, "intel-rapl:0", 0)
    files(tmp_path / "hwmon" / "hwmon0", name="coretemp", temp1_input=45000)
    library = Library()

    def work(write: Callable[[str], int] = (counter / "energy_uj").write_text) -> None:
        write("5000000\n")
        library.millijoules += 1000

    used, hot = told_of(work, tmp_path, library)
    assert (used[PROCESSOR].joules, used[GPU].joules) == (5.0, pytest.approx(2.0))
    assert hot == Told(45.0, 41.0)


def test_this_machine_is_asked_without_harm() -> None:
    used, hot = told_of(nothing)
    assert set(used) <= {PROCESSOR, GPU}
    assert all(value is None or -50 < value < 150 for value in (hot.processor, hot.gpu))
