"""Positions in the operands of host nodes: every rule refuses what is just outside, and nothing that is inside."""

from __future__ import annotations

import numpy as np
import pytest

from fusewise.errors import InvalidData
from fusewise.ir.graph import Node, attributes_of
from fusewise.ops.positions import check_positions

DATA = np.zeros((4, 3, 2), np.float32)

CASES = {
    # operands, with None where the positions stand; attributes; the ends of what is allowed
    "Gather": ((DATA, None), {"axis": 1}, (-3, 2)),
    "GatherElements": ((DATA, None), {}, (-4, 3)),
    "ScatterElements": ((DATA, None, DATA), {"axis": -1}, (-2, 1)),
    "NegativeLogLikelihoodLoss": ((DATA, None), {}, (0, 2)),
    "SoftmaxCrossEntropyLoss": ((DATA, None), {"ignore_index": 9}, (0, 2)),
    "ReverseSequence": ((DATA, None), {"time_axis": 1}, (0, 3)),
    "RoiAlign": ((DATA, DATA, None), {}, (0, 3)),
    "RotaryEmbedding": ((DATA, DATA, DATA, None), {}, (0, 3)),
}


def check(op, positions):
    operands, attributes, _ = CASES[op]
    names = tuple(f"x{k}" for k in range(len(operands)))
    node = Node(op, names, ("y",), attributes_of(**attributes), name="one")
    check_positions(node, [positions if operand is None else operand for operand in operands])


@pytest.mark.parametrize("op", CASES)
def test_ends(op):
    low, high = CASES[op][2]
    check(op, np.array([[low, high], [high, low]]))
    check(op, np.zeros((0, 2), np.int64))
    for wrong in (low - 1, high + 1, 2**40):
        with pytest.raises(InvalidData, match=rf"'one' \({op}\) finds {wrong} in .* only {low} to {high} are allowed"):
            check(op, np.array([[low, high], [wrong, low]]))


def test_an_ignored_class():
    check("SoftmaxCrossEntropyLoss", np.array([0, 9, 2]))


@pytest.mark.parametrize(
    ("positions", "wrong"), [([[3, 2], [-4, -3]], None), ([[3, 3]], 3), ([[-5, 0]], -5), ([[4]], 4)]
)
def test_positions_in_several_axes(positions, wrong):
    node = Node("GatherND", ("x", "i"), ("y",), name="one")
    given = DATA, np.array(positions)
    if wrong is None:
        check_positions(node, given)
    else:
        with pytest.raises(InvalidData, match=f"finds {wrong} in its operand 'i'"):
            check_positions(node, given)


def test_other_nodes_and_operands_that_do_not_fit_are_left_alone():
    check_positions(Node("Gather", ("x", "i"), ("y",), domain="own"), (DATA, np.array([99])))
    check_positions(Node("Add", ("x", "i"), ("y",)), (DATA, np.array([99])))
    check_positions(Node("Gather", ("x", "i"), ("y",), attributes_of(axis=7)), (DATA, np.array([99])))


@pytest.mark.parametrize("place", [4, -5])
def test_one_position_by_itself(place):
    """A scalar of indices has no axes to say where it is."""
    node = Node("Gather", ("x", "i"), ("y",))
    check_positions(node, [np.zeros((4, 2), np.float32), np.array(3)])
    with pytest.raises(InvalidData, match=rf"finds {place} in its operand 'i', where only -4 to 3 are allowed"):
        check_positions(node, [np.zeros((4, 2), np.float32), np.array(place)])
