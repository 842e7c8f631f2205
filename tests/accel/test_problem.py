"""Groups that are the same but for their place in the network."""

from __future__ import annotations

import pytest
from tests.accel.pinned import pinned

from fusewise.accel.bits import is_connected
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.schemes.scheme import Scheme


@pytest.mark.parametrize("scheme", [LBDF(), BRR()], ids=["lbdf", "brr"])
@pytest.mark.parametrize("name, least", [("resnet50", 30), ("efficientnet_b0", 10), ("inception_v3", 10)])
def test_groups_alike_need_and_move_as_much(name: str, least: int, scheme: Scheme) -> None:
    network = pinned(name)
    problem = Problem(network, scheme, 256 << 10)
    costs, known, places = GroupCosts(problem), dict[tuple[int, ...], tuple[int, int]](), 0
    for size in (1, 3, 6):
        for first in range(len(network) - size):
            group = ((1 << size) - 1) << first
            if group & problem.excluded or not is_connected(network.neighbours, group):
                continue
            need, moved = (
                scheme.buffer_bytes(network, group),
                scheme.dram_bytes(network, group, problem.capacity, problem.excluded),
            )
            places += problem.likeness(group) in known
            assert known.setdefault(problem.likeness(group), (need, moved)) == (need, moved)
            assert (costs.buffer_bytes(group), costs.dram_bytes(group)) == (need, moved)
    assert places >= least, "many are alike"
