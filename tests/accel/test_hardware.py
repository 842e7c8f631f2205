"""Accelerators from TOML: presets, files, and errors that name the key; time and energy on them."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from tests.accel.pinned import pinned

from fusewise.accel.estimate import energy_mj, latency_ms, objective_named
from fusewise.accel.hardware import DEFAULT, Hardware, hardware_from, hardware_named, preset_names
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.catalogue import options_of, scheme_named
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.errors import UsageError

TEXT = (files("fusewise.accel") / "presets" / "edge-256k.toml").read_text()


def test_presets() -> None:
    names = preset_names()
    assert names == ("edge-128k", "edge-256k", "edge-512k", "edge-1m", "edge-2m")
    assert [hardware_named(name).buffer_bytes >> 10 for name in names] == [128, 256, 512, 1024, 2048]
    assert DEFAULT in names
    assert hardware_named("edge-128k").with_buffer(5000).buffer_bytes == 5000


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT.replace("bits = 16", "bits = 8").replace('"pixel"', '"row"') + "network_io = false\n")
    mine = hardware_named(str(path))
    assert (mine.name, mine.bits) == ("mine", 8)
    assert mine.scheme("lbdf") == LBDF("row", 8)
    assert mine.scheme("brr") == BRR(8, 8, network_io=False)
    assert mine.scheme("lbdf", {"granularity": "pixel", "bits": 16}) == LBDF()


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("clock_mhz = 500", "", r"key 'clock_mhz' is missing"),
        ("clock_mhz = 500", "clock_mhz = -1", r"'clock_mhz' must be above zero, not -1"),
        ("clock_mhz = 500", "clock_mhz = 0.0", r"'clock_mhz' must be above zero"),
        ("clock_mhz = 500", "clock_mhz = nan", r"'clock_mhz' must be above zero"),
        ("clock_mhz = 500", 'clock_mhz = "fast"', r"'clock_mhz' must be a number"),
        ("clock_mhz = 500", "clock_mhz = 500\nclok = 1", r"unknown key 'clok'"),
        ("buffer_bytes = ", "bufer_bytes = ", r"unknown key 'bufer_bytes'; did you mean 'buffer_bytes'\?"),
        ("buffer_bytes = 262144", "buffer_bytes = 1.5", r"'buffer_bytes' must be a whole number, not 1.5"),
        ("buffer_bytes = 262144", "buffer_bytes = true", r"'buffer_bytes' must be a whole number, not True"),
        ("bits = 16", "bits = 12", r"lbdf.bits is one of .*, not 12"),
        ('"pixel"', '"pixels"', r"lbdf.granularity is one of pixel, row, not 'pixels'"),
        (
            "partial_channels = 8",
            "partial_chanels = 8",
            r"no option 'partial_chanels'; did you mean 'partial_channels'\?",
        ),
        ("partial_channels = 8", "partial_channels = 0", r"brr.partial_channels must be a whole number of at least 1"),
        ("[brr]\npartial_channels = 8", "", ""),
        ("[lbdf]", "[lbdf", r"is not TOML"),
        ("summary = ", "name = 3\nsummary = ", r"'name' must be a text"),
    ],
)
def test_errors_name_the_key(old: str, new: str, message: str) -> None:
    assert old in TEXT
    text = TEXT.replace(old, new, 1)
    if message:
        with pytest.raises(UsageError, match=rf"hardware file mine.toml.*{message}"):
            hardware_from(text, "mine", "mine.toml")
    else:
        assert hardware_from(text, "mine", "mine.toml").scheme("brr") == BRR()


def test_unknown_names() -> None:
    with pytest.raises(UsageError, match="preset called 'edge-265k'; did you mean 'edge-256k'"):
        hardware_named("edge-265k")
    with pytest.raises(UsageError, match="cannot be read"):
        hardware_named("nowhere.toml")
    with pytest.raises(UsageError, match="no scheme called 'lbfd'; did you mean 'lbdf'"):
        scheme_named("lbfd")
    with pytest.raises(UsageError, match="no objective called 'latancy'; did you mean 'latency'"):
        objective_named("latancy", hardware_named(DEFAULT))
    assert options_of("brr") == ("partial_channels", "bits", "network_io", "excluded_traffic", "accounting")


def test_time_and_energy_by_hand() -> None:
    network = pinned("resnet18")
    chip = Hardware("toy", 1 << 18, 16, 100.0, 1.0, 1e6, 100.0, 10.0)
    conv = 1 << 3
    macs = network.operators[3].form.macs
    assert macs == 64 * 56 * 56 * 64 * 9
    assert latency_ms(chip, network, conv, 0) == pytest.approx(macs / 100e6 * 1e3)
    assert latency_ms(chip, network, conv, 1 << 40) == pytest.approx((1 << 40) / 1e6 * 1e3)
    moved = 2 * (2 * 64 * 56 * 56 + 64 * 64 * 9 + 64)
    assert energy_mj(chip, network, conv, 5000, 16) == pytest.approx((5000 * 100 + moved * 10) * 1e-9)


def test_objectives_add_up_over_groups() -> None:
    chip = hardware_named("edge-512k")
    problem = Problem(pinned("squeezenet1_1"), chip.scheme("lbdf"), chip.buffer_bytes)
    group = problem.singletons()[3] | problem.singletons()[4]
    moved = GroupCosts(problem).dram_bytes(group)
    figures = {
        name: GroupCosts(problem, objective_named(name, chip)).cost(group) for name in ("dram", "energy", "latency")
    }
    assert figures["dram"] == moved
    assert figures["energy"] == energy_mj(chip, problem.network, group, moved, 16)
    assert figures["latency"] == latency_ms(chip, problem.network, group, moved)
    assert GroupCosts(problem).total([group, group]) == 2 * moved
