"""The benchmark of a matrix unit: says where there is none, and measures what it says it does."""

from __future__ import annotations

from collections import Counter

import pytest
from benchmarks import matrix_unit

from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.verify import verify
from fusewise.codegen.target import MATRIX_TARGET, TARGETS
from fusewise.runtime.jit import compile_assembly


def test_it_says_where_there_is_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(matrix_unit, "host_target", lambda: TARGETS[0])
    assert matrix_unit.main([]) == 0
    assert capsys.readouterr().out == f"No matrix unit here ({TARGETS[0].cpu}).\n"


@pytest.mark.parametrize("row", [matrix_unit.AMX_BF16, matrix_unit.BYTES], ids=repr)
def test_the_peak_is_of_products_alone(row: matrix_unit.Instruction) -> None:
    program = matrix_unit.peak_program(row)
    verify(program)
    lines = compile_assembly(llvm_text(program, MATRIX_TARGET), MATRIX_TARGET).splitlines()
    every = Counter(line.split()[0] for line in lines if line.strip())
    assert every[row.name] == every["tilezero"] == every["tilestored"] == 4 and every["tileloadd"] == 2
    inner = lines[next(k for k, line in enumerate(lines) if row.name in line) :]
    assert [line.split()[0] for line in inner[:4]] == [row.name] * 4


@pytest.mark.parametrize("kind", matrix_unit.KINDS)
def test_products_are_measured(kind: str) -> None:
    found = matrix_unit.measured(kind, 32, calls=2)
    assert found["gflops"] > 0 and found["kernels"]
