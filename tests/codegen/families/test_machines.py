"""How cases are shared out among machines."""

from __future__ import annotations

import pytest
from tests.codegen.families.conftest import MANY, machines_of
from tests.machines import runnable

from fusewise.codegen.target import Target


def test_every_case_runs_here_and_for_some_other_machine() -> None:
    machines = ("host", "avx512", "avx2", "sse2")
    taken = [machines_of(f"a test[-{number}]", machines) for number in range(MANY)]
    assert {one[0] for one in taken} == {"host"}
    assert {other for _, other in taken} == set(machines[1:])
    assert taken == [machines_of(f"a test[-{number}]", machines) for number in range(MANY)]
    assert machines_of("a case", ("host", "neon")) == ("host", "neon")
    assert machines_of("a case", ("host",)) == ("host",)


@pytest.mark.parametrize("case", range(MANY))
def test_what_is_left_is_as_it_says(request: pytest.FixtureRequest, target: Target, case: int) -> None:
    name = f"{request.node.nodeid.partition('[')[0]}[-{case}]"
    assert target.name in machines_of(name, [one.name for one in runnable()])
