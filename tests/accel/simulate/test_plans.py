"""The optimal plan of a whole network, executed."""

from __future__ import annotations

import pytest
from benchmarks.simulate_plans import TOLERANCE, planned


@pytest.mark.slow
def test_every_group_of_a_plan() -> None:
    rows = list(planned(["squeezenet1_1"], 128, 1500, 5.0))
    assert {row["scheme"] for row in rows} == {"lbdf", "brr"} and all(row["optimal"] for row in rows)
    assert all(row["buffer_equal"] and row["traffic_equal"] and row.get("fits", True) for row in rows)
    errors = [row["error"] for row in rows if "error" in row]
    assert errors and max(errors) < TOLERANCE
