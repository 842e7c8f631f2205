"""Which machines a test of a kernel runs for: all that this one can stand for, or where it has many cases some in turn."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.machines import runnable

MANY = 12
"""Cases of a test, from which on each of them runs for this machine and for one of the generic ones."""


def machines_of(case: str, machines: Sequence[str]) -> tuple[str, ...]:
    """The first machine, and another one, which is drawn by the case, so that it goes along with no parameter."""
    here, *others = machines
    return (here, others[zlib.crc32(case.encode()) % len(others)]) if others else (here,)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    machines = [target.name for target in runnable()]
    found: dict[str, list[tuple[str, str, pytest.Item]]] = defaultdict(list)
    for item in items:
        if Path(__file__).parent == item.path.parent and "target" in getattr(item, "fixturenames", ()):
            test, _, case = item.nodeid.partition("[")
            machine = item.callspec.params["target"].name  # type: ignore[attr-defined]
            found[test].append((machine, f"{test}[{case}".replace(machine, "", 1), item))
    left = {
        item
        for each in found.values()
        if {machine for machine, _, _ in each} == set(machines) and len({case for _, case, _ in each}) >= MANY
        for machine, case, item in each
        if machine not in machines_of(case, machines)
    }
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]
