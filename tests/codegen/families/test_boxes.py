"""Native code for boxes, as text and assembly; what it computes is tested with the host steps that call it."""

from __future__ import annotations

import pytest

from fusewise.codegen.box_routines import ALIGN_BOXES, SUPPRESS_BOXES
from fusewise.codegen.families.boxes import align_boxes, routine_for, suppress_boxes
from fusewise.codegen.target import TARGETS, Target
from fusewise.ir.graph import Node
from fusewise.runtime.jit import compile_assembly


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_machine_gets_vectors_and_calls_no_mathematics(target: Target) -> None:
    for code, instructions in (
        (align_boxes(target), ("fmla", "vfmadd", "mulps")),
        (suppress_boxes(target), ("fdiv", "divps")),
    ):
        text = compile_assembly(code.build(), target)
        assert any(word in text for word in instructions), code.symbol
        called = [line.split()[-1] for line in text.splitlines() if line.split()[:1] in (["call"], ["callq"], ["bl"])]
        assert all(name.startswith((code.symbol, "memcpy", "memset")) for name in called), called


def test_machines_do_not_share_code() -> None:
    for make in (align_boxes, suppress_boxes):
        assert len({make(target).key for target in TARGETS}) == len(TARGETS)
        assert len({make(target).symbol for target in TARGETS}) == 1


def test_which_nodes_have_a_routine() -> None:
    target = TARGETS[0]
    symbols = {
        node: None if (code := routine_for(Node(node, ("x",), ("y",), (), domain), target)) is None else code.symbol
        for node, domain in (("RoiAlign", ""), ("NonMaxSuppression", ""), ("TopK", ""))
    }
    assert symbols == {"RoiAlign": ALIGN_BOXES, "NonMaxSuppression": SUPPRESS_BOXES, "TopK": None}
    assert routine_for(Node("RoiAlign", ("x",), ("y",), (), "elsewhere"), target) is None
