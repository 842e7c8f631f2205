"""Equal keys mean equal code, whatever else a machine is: what its figures decide is in schedules, and these are in the keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

import pytest
from tests.codegen.subjects import groups_of, operators, tasks_of
from tests.codegen.ways import text_of

from fusewise.codegen.assemble import generate
from fusewise.codegen.choose import alternatives
from fusewise.codegen.machine.figures import MeasuredFigures, OverheadFigures
from fusewise.codegen.target import TARGETS, Target
from fusewise.ir.partition import Partition
from fusewise.trace import Trace
from fusewise.zoo.catalogue import build

FIGURES: Mapping[str, Mapping[str, Any]] = {
    "smaller first level": {"l1_bytes": 4 << 10},
    "smaller second level": {"l2_bytes": 64 << 10},
    "larger second level": {"l2_bytes": 4 << 20},
    "smaller third level": {"l3_bytes": 1 << 20},
    "one worker": {"workers": 1},
    "many workers": {"workers": 12},
    "more multiply-adds": {"multiply_bits": 0},
    "additions where it multiplies": {"adds_apart": False},
    "dear loads": {"figures": MeasuredFigures(overhead=OverheadFigures(0.24, 0.2, 0.0, 0.2))},
}
"""What a machine of the same instructions may have otherwise."""

NETWORKS = ("resnet50", "gpt2")

WAYS = 3
"""Of each task of an operator, how many ways are looked at."""

BASE = replace(next(target for target in TARGETS if target.name == "avx512"), multiply_bits=512)


@cache
def network(name: str) -> Partition:
    return groups_of(build(name))


def ways(groups: Partition, machine: Target) -> dict[str, str]:
    """The text of the first ways to run each task, by key."""
    found = (one for task in tasks_of(groups).values() for one in islice(alternatives(task, machine), WAYS))
    return {one.key: text_of(one, machine.instructions, "k") for one in found}


@cache
def of_network(name: str, machine: Target) -> dict[str, str]:
    """The text of every kernel of a program, by symbol."""
    program = generate(network(name), machine, Trace(), workers=machine.workers)
    return {kernel.symbol: kernel.build() for kernel in program.kernels}


@cache
def of_operators(machine: Target) -> dict[str, str]:
    found: dict[str, str] = {}
    for groups in operators():
        found |= ways(groups, machine)
    return found


def unequal(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Keys that both have, of texts that differ."""
    assert one.keys() & other.keys(), "nothing to compare"
    return [key for key in one.keys() & other.keys() if one[key] != other[key]]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("figures", FIGURES)
def test_kernels_of_one_symbol_are_one_text(name: str, figures: str) -> None:
    assert not unequal(of_network(name, BASE), of_network(name, replace(BASE, **FIGURES[figures])))


@pytest.mark.parametrize("figures", FIGURES)
def test_ways_of_one_key_are_one_text(figures: str) -> None:
    assert not unequal(of_operators(BASE), of_operators(replace(BASE, **FIGURES[figures])))


@pytest.mark.parametrize("figures", FIGURES)
def test_every_figure_decides_something(figures: str) -> None:
    """So that there is something to be wrong about."""
    machine = replace(BASE, **FIGURES[figures])
    assert of_operators(BASE).keys() != of_operators(machine).keys() or any(
        of_network(name, BASE).keys() != of_network(name, machine).keys() for name in NETWORKS
    )
