"""Rows about a program's steps: figures of kernels beside what follows from the program."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from tests.runtime.gpu.programs import DIAMOND, KERNELS, KIND, program_of, vectors

from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.estimate import launch_estimate, operations_per_second
from fusewise.codegen.gpu.listing import described_steps, family_of, program_totals
from fusewise.lower.program import Account

DEVICE = device_named("sm_90")
NBYTES = KIND.nbytes


@dataclass(frozen=True)
class Figures:
    registers: int = 32
    shared_bytes: int = 0
    stack_bytes: int = 0
    tensor_instructions: int = 0
    threads: int = 128


@pytest.fixture
def diamond():
    return program_of(DIAMOND, ("x", "y"), ("f",), vectors("w"))


def figures(program, **special):
    return [special.get(kernel.symbol, Figures()) for kernel in program.kernels]


def test_totals_and_bytes(diamond):
    rows = described_steps(diamond, DEVICE, figures(diamond, mul=Figures(stack_bytes=8)))
    assert [row["label"] for row in rows] == list("abcdef")
    assert [row["bytes"] for row in rows] == [3 * NBYTES, 2 * NBYTES, *[3 * NBYTES] * 4]
    assert {row["limit"] for row in rows} == {"launch"}
    assert (rows[0]["blocks_per_sm"], rows[0]["occupancy"], rows[0]["waves"]) == (16, 1.0, 2 / (132 * 16))
    totals = program_totals(diamond, rows)
    assert (totals["launches"], totals["kernels"], totals["graphs"], totals["host_steps"]) == (6, 3, 1, 0)
    assert totals["edges"] == len(diamond.edges)
    assert totals["constant_bytes"] == 512, "70 floats, on boundaries of 256 bytes"
    assert totals["spilling"] == 2
    assert 6 * DEVICE.launch_us < totals["estimate_us"] == pytest.approx(sum(row["estimate_us"] for row in rows))


def test_bytes_that_two_operands_share_count_once():
    program = program_of([("a", "add", ("x", "x"))], ("x",), ("a",))
    assert described_steps(program, DEVICE, figures(program))[0]["bytes"] == 2 * NBYTES


def test_host_steps_say_why():
    program = program_of([("a", "neg", ("x",)), ("b", "Relu", ("a",)), ("c", "neg", ("b",))], ("x",), ("c",))
    rows = described_steps(program, DEVICE, figures(program))
    assert rows[1]["host"] == [{"node": program.steps[1].nodes[0].label, "op": "Relu", "reason": "a test"}]
    totals = program_totals(program, rows)
    assert (totals["graphs"], totals["host_steps"], totals["launches"]) == (2, 1, 2)


@pytest.mark.parametrize(
    "text, precision",
    [
        ('tl.dot(a, b, input_precision="tf32x3")', "float32"),
        ('tl.dot(a, b, input_precision="tf32")', "tf32"),
        ("tl.dot(a, b)", "float16"),
    ],
)
def test_operations_are_those_of_the_group_at_the_rate_of_its_product(diamond, text, precision):
    """Of a group of two launches the one that multiplies tiles does all of them."""
    steps = tuple(replace(step, group=min(number, 1)) for number, step in enumerate(diamond.steps[:3]))
    kernels = tuple(
        replace(kernel, source=text) if kernel.symbol == "mul" else kernel
        for kernel in (KERNELS[n] for n in ("add", "neg", "mul"))
    )
    accounts = (Account("Add", (), 10, 77), Account("MatMul+Neg", (), 10**12, 99))
    program = replace(diamond, steps=steps, kernels=kernels, accounts=accounts)
    rows = described_steps(program, DEVICE, figures(program, mul=Figures(tensor_instructions=4)), {1: ["rows: why"]})
    assert [row["operations"] for row in rows] == [10, 0, 10**12]
    assert [row["bytes"] for row in rows] == [77, 2 * NBYTES, 3 * NBYTES], "that of the group where it is one launch"
    assert [row["refused"] for row in rows] == [[], ["rows: why"], ["rows: why"]]
    assert rows[2]["limit"] == "tensor cores"
    told = launch_estimate(DEVICE, (2,), 3 * NBYTES, 10**12, operations_per_second(DEVICE, precision))
    assert rows[2]["estimate_us"] == pytest.approx(told.us)


def test_families_are_in_symbols():
    assert [family_of(kernel) for kernel in KERNELS.values()] == ["add", "mul", "neg"]
