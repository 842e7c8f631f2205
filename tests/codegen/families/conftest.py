"""Which machines a test of a kernel runs for: all that this one can stand for, or where it has many cases some in turn."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from tests.machines import runnable

MANY = 6
"""Cases of a test, from which on each of them runs for this machine and for one of the generic ones."""


EMULATED = frozenset({"test_attention_tiles.py", "test_convolution_tiled.py", "test_matrix_unit.py"})
"""Tests of a matrix unit, whose instructions are emulated. Code for that is much alike, so it runs for this machine and for the
last, whose vectors are the shortest."""


def dealt(cases: Collection[str], machines: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """For each case the first machine and another, which are dealt out evenly, in an order that goes along with no parameter."""
    here, *others = machines
    mixed = sorted(set(cases), key=lambda case: (zlib.crc32(case.encode()), case))
    return {case: (here, *others[number % max(1, len(others)) :][:1]) for number, case in enumerate(mixed)}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    machines = [target.name for target in runnable()]
    ends = {*machines[:1], *machines[-1:]}
    left, found = set[pytest.Item](), defaultdict[str, list[tuple[str, str, pytest.Item]]](list)
    for item in items:
        if Path(__file__).parent == item.path.parent and "target" in getattr(item, "fixturenames", ()):
            test, _, case = item.nodeid.partition("[")
            machine = item.callspec.params["target"].name  # type: ignore[attr-defined]
            if item.path.name not in EMULATED:
                found[test].append((case.replace(machine, "", 1), machine, item))
            elif machine in machines and machine not in ends:
                left.add(item)
    for each in found.values():
        taken = dealt([case for case, _, _ in each], machines)
        if len(taken) >= MANY and {machine for _, machine, _ in each} == set(machines):
            left |= {item for case, machine, item in each if machine not in taken[case]}
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]
