"""Energy counters and sensors, as files of a folder."""

from __future__ import annotations

from pathlib import Path

from fusewise.bench.power import Energy, energy_of, temperature_c


def zone(folder: Path, name: str, microjoules: int) -> Path:
    made = folder / name
    made.mkdir(parents=True)
    (made / "energy_uj").write_text(f"{microjoules}\n")
    (made / "max_energy_range_uj").write_text("10000000\n")
    return made


def test_energy_is_a_difference_and_counters_wrap(tmp_path: Path) -> None:
    first, second = zone(tmp_path, "intel-rapl:0", 1_000_000), zone(tmp_path, "intel-rapl:1", 9_000_000)
    zone(tmp_path, "intel-rapl:0:0", 5)  # a part of the first, which counts it already

    def work() -> None:
        (first / "energy_uj").write_text("3000000\n")
        (second / "energy_uj").write_text("1000000\n")

    found = energy_of(work, tmp_path)
    assert found is not None
    assert found.joules == 2 + 2
    assert found.seconds > 0
    assert Energy(6.0, 2.0).watts == 3.0


def test_nothing_where_nothing_is_told(tmp_path: Path) -> None:
    ran: list[int] = []
    assert energy_of(lambda: ran.append(1), tmp_path) is None
    assert not ran
    assert temperature_c(tmp_path) is None


def test_the_hottest_sensor_of_the_processor(tmp_path: Path) -> None:
    for number, (name, readings) in enumerate({"k10temp": (41000, 52500), "nvme": (70000,)}.items()):
        monitor = tmp_path / f"hwmon{number}"
        monitor.mkdir()
        (monitor / "name").write_text(name + "\n")
        for k, reading in enumerate(readings):
            (monitor / f"temp{k}_input").write_text(f"{reading}\n")
    assert temperature_c(tmp_path) == 52.5
