"""Figures found by timing: each names what it was tried on, and decides something there; the command that measures them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from benchmarks import figures
from benchmarks.figures import FIGURES, QUANTIZED, digest, graphs, scaled, value_of, with_value

from fusewise.codegen.assemble import generate
from fusewise.codegen.machine.figures import OverheadFigures
from fusewise.codegen.machine.processors import PROCESSORS
from fusewise.codegen.target import TARGETS, Target
from fusewise.ir.partition import Partition
from fusewise.trace import Trace

WIDE, AVX2 = (next(target for target in TARGETS if target.name == name) for name in ("avx512", "avx2"))

MACHINES = (
    replace(WIDE, multiply_bits=PROCESSORS["znver4"].multiply_bits, l3_bytes=32 << 20),
    WIDE,
    AVX2,
    replace(WIDE, adds_apart=False).with_figures(overhead=PROCESSORS["emeraldrapids"].overhead),
)
"""Those that figures were measured on are like one of these."""


@cache
def partitions(subject: str) -> list[Partition]:
    return [groups for _, groups in graphs(subject, WIDE)]


def programs(subject: str, machine: Target) -> list[str]:
    return [digest(generate(groups, machine, Trace(), workers=2)) for groups in partitions(subject)]


@cache
def usual(subject: str, machine: int) -> list[str]:
    return programs(subject, MACHINES[machine])


def by_effort(name: str) -> Any:
    """A model takes seconds to be quantised."""
    is_slow = any(QUANTIZED in subject for subject in FIGURES[name])
    return pytest.param(name, marks=pytest.mark.slow) if is_slow else name


@pytest.mark.parametrize("name", [by_effort(name) for name in FIGURES])
def test_every_figure_decides_something(name: str) -> None:
    """With four times as much or a quarter of it a program of one of its subjects is another, on some machine."""

    def changes(subject: str, number: int, factor: float) -> bool:
        machine = MACHINES[number]
        value = scaled(value_of(machine, name), factor) or factor  # of what is lost nowhere but on one processor
        return programs(subject, with_value(machine, name, value)) != usual(subject, number)

    tried = ((s, n, factor) for s in FIGURES[name] for n in range(len(MACHINES)) for factor in (4, 0.25))
    assert any(changes(*one) for one in tried)


def test_known_processors_have_figures_of_their_own() -> None:
    machine = MACHINES[0].with_figures(overhead=OverheadFigures(load=0.5))
    assert value_of(machine, "overhead.load") == 0.5 != value_of(MACHINES[0], "overhead.load")
    assert replace(machine, figures=MACHINES[0].figures) == MACHINES[0] != machine


def test_numbers_of_a_figure_are_scaled_as_what_they_are() -> None:
    assert scaled(3, 0.25) == 1 and scaled(0.5, 2) == 1.0 and scaled((7, 8), 2) == (14, 16)
    sums = value_of(WIDE, "strassen.once")
    assert scaled(sums, 2) == replace(sums, **{name: 2 * value for name, value in vars(sums).items()})


def test_the_command_lists_figures_and_refuses_what_is_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["figures"])
    assert figures.main() == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == set(FIGURES)
    for given in (["tile.nothing"], ["tile.load", "--values", "many"], ["tile.load", "--on", "nothing"]):
        monkeypatch.setattr("sys.argv", ["figures", *given])
        assert figures.main() == 2
        assert given[-1] in capsys.readouterr().err


def test_the_command_compares_programs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["sharing.units", "--values", "1,128,32", "--on", "Conv", "--seconds", "0.01", "--threads", "2"]
    monkeypatch.setattr("sys.argv", ["figures", *given])
    assert figures.main() == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith("sharing.units = 32 on ")
    assert any(line.split()[0] == "32," and line.endswith("1.000") for line in lines), lines
