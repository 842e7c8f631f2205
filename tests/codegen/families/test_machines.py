"""How cases are dealt out to machines."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.codegen.families.conftest import MANY, dealt
from tests.machines import runnable

from fusewise.codegen.target import Target

MACHINES = ("host", "avx512", "avx2", "sse2")


def test_every_case_runs_here_and_for_some_other_machine() -> None:
    cases = [f"-{number}]" for number in range(3 * MANY)]
    taken = dealt([*cases, *cases], MACHINES)
    assert taken.keys() == set(cases)
    assert {one[0] for one in taken.values()} == {"host"}
    assert Counter(other for _, other in taken.values()) == dict.fromkeys(MACHINES[1:], MANY)
    assert dealt(cases[::-1], MACHINES) == taken
    assert dealt(["a"], ("host", "neon")) == {"a": ("host", "neon")}
    assert dealt(["a"], ("host",)) == {"a": ("host",)}


@pytest.mark.parametrize("case", range(MANY))
def test_what_runs_is_what_was_dealt(target: Target, case: int) -> None:
    names = [one.name for one in runnable()]
    assert target.name in dealt([f"-{number}]" for number in range(MANY)], names)[f"-{case}]"]
