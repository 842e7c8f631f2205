"""Reductions by a matrix unit as code: by what stands for it everywhere, and as text for a machine that has one."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codegen.nest.tiles import OnTiles
from tests.codegen.ways import machine_code

from fusewise.codegen.instructions.table import AMX_BF16, AMX_FP16, AMX_INT8, AMX_PARTS, MATRIX_INSTRUCTIONS
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.target import MATRIX_TARGET, Target
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import compile_assembly


def run(case: OnTiles, target: Target, operands: tuple[np.ndarray, ...]) -> None:
    machine_code(case.program(), target)(*(array.ctypes.data for array in operands))


@pytest.mark.parametrize("row", MATRIX_INSTRUCTIONS, ids=repr)
@settings(deadline=None, max_examples=5)
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.sampled_from((0, 1, 7))),
    st.booleans(),
    st.integers(1, 2),
)
def test_what_stands_for_the_unit(row: Instruction, shape: tuple[int, ...], from_zero: bool, phases: int) -> None:
    case = OnTiles(row, *shape, from_zero=from_zero, phases=phases)
    operands = case.operands(sum(shape))
    expected = case.expected(operands)
    run(case, host_target(), operands)
    np.testing.assert_array_equal(operands[0], expected)


def test_it_runs_everywhere(target: Target) -> None:
    for row in (AMX_PARTS, AMX_INT8[2]):
        case = OnTiles(row, 2, 2, 2, 2, 3)
        for machine in (target, replace(target, sanitize=True)):
            operands = case.operands(5)
            expected = case.expected(operands)
            run(case, machine, operands)
            np.testing.assert_array_equal(operands[0], expected)


# --- the unit's own instructions --------------------------------------------------------------------------------------


def assembly(row: Instruction, rows: int, vectors: int, outer: int = 3, inner: int = 4) -> list[str]:
    machine = replace(MATRIX_TARGET, features=MATRIX_TARGET.features + ",+amx-fp16")
    assert row.is_native(machine)
    text = compile_assembly(llvm_text(OnTiles(row, rows, vectors, outer, inner, 8).program(), machine), machine)
    return [line.strip() for line in text.splitlines()]


def in_the_loop(lines: list[str]) -> Counter[str]:
    """Instructions of the innermost loop: between a label and the jump back to it, with no other label."""
    for end, line in enumerate(lines):
        if re.match(r"j\w+\s+\.L", line):
            label = line.split()[-1] + ":"
            block = lines[: end + 1]
            if label in block:
                body = block[block.index(label) + 1 :]
                if not any(one.endswith(":") for one in body if one.startswith(".LBB")):
                    return Counter(one.split()[0] for one in body if one and one[0].isalpha())
    raise AssertionError("there is no loop")


SHAPES = [(2, 2), (1, 1), (1, 4), (3, 1), (1, 5)]
"""The last has one register for all its columns."""


@pytest.mark.parametrize("rows, vectors", SHAPES)
@pytest.mark.parametrize("row", [AMX_BF16, AMX_FP16, AMX_INT8[1]], ids=repr)
def test_operands_are_loaded_once_and_nothing_is_spilled(row: Instruction, rows: int, vectors: int) -> None:
    lines = assembly(row, rows, vectors)
    every, inner = (Counter(line.split()[0] for line in lines if line and line[0].isalpha()), in_the_loop(lines))
    assert inner[row.name] == every[row.name] == rows * vectors
    assert inner["tileloadd"] == rows + vectors
    assert every["tileloadd"] == rows + vectors + rows * vectors
    assert inner["tilestored"] == 0 and every["tilestored"] == rows * vectors
    assert every["ldtilecfg"] == every["tilerelease"] == 1
    assert not any("%rsp" in line or "%rbp" in line for line in lines if line.startswith("tile"))


def test_sums_from_zero_are_not_loaded() -> None:
    case = OnTiles(AMX_BF16, 2, 2, 1, 2, 0, from_zero=True)
    lines = compile_assembly(llvm_text(case.program(), MATRIX_TARGET), MATRIX_TARGET).splitlines()
    every = Counter(line.split()[0] for line in lines if line.strip())
    assert (every["tilezero"], every["tileloadd"], every["tilestored"]) == (4, 4, 4)


def test_parts_are_loaded_once_each() -> None:
    lines = assembly(AMX_PARTS, 2, 2)
    inner = in_the_loop(lines)
    assert inner["tdpbf16ps"] == 3 * 4 and inner["tileloadd"] == 2 * (2 + 2) and inner["tilestored"] == 0
    assert Counter(line.split()[0] for line in lines if line.startswith("ldtile"))["ldtilecfg"] == 1


def test_registers_are_the_sums_then_the_operands() -> None:
    """The order of the operands is that of the instruction: rows, then columns."""
    (line,) = {line for line in assembly(AMX_INT8[1], 1, 1) if line.startswith("tdpbsud")}
    assert line.split(maxsplit=1)[1] == "%tmm2, %tmm1, %tmm0"


def test_stretches_share_what_they_are_configured_by() -> None:
    module = OnTiles(AMX_BF16, 1, 1, 1, 1, 0).program()
    (function,) = module.functions
    *nodes, last = function.taken()
    function.include((*nodes, *nodes, last))
    text = llvm_text(module, MATRIX_TARGET)
    assert text.count("@tile_configuration = ") == 1 and text.count("@llvm.x86.ldtilecfg(ptr @tile_configuration)") == 2
    (table,) = re.findall(r'@tile_configuration = .* c"(.*?)"', text)
    configuration = bytes.fromhex(table.replace("\\", ""))
    assert len(configuration) == 64 and configuration[0] == 1
    assert np.frombuffer(configuration[16:32], "<u2").tolist() == [64] * 8
    assert configuration[48:56] == bytes([16] * 8) and not any(configuration[1:16] + configuration[32:48])


def test_machines_without_permission_or_unit_do_without() -> None:
    """Checked builds too, which look at every access."""
    lacking = MATRIX_TARGET.features.replace("+amx-tile", "-amx-tile")
    for machine in (replace(MATRIX_TARGET, features=lacking), replace(MATRIX_TARGET, sanitize=True)):
        assert not any(row.is_native(machine) for row in MATRIX_INSTRUCTIONS)
        text = llvm_text(OnTiles(AMX_BF16, 1, 1, 1, 1, 0).program(), machine)
        assert "llvm.x86.t" not in text and "ldtilecfg" not in text
    assert [row.is_native(MATRIX_TARGET) for row in (AMX_BF16, AMX_PARTS, *AMX_INT8, AMX_FP16)] == [True] * 6 + [False]
