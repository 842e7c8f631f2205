"""Convolutions by a matrix unit, which is emulated, against PyTorch: any stride, padding, dilation, rank and number of workers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.codegen.families import test_convolution
from tests.codegen.families.test_matrix_unit import BOUND, FEW, PARTS, WHOLE, machine_with_unit

from fusewise.codegen.choose import alternatives
from fusewise.codegen.families.convolution.tiled import tile_convolution
from fusewise.codegen.instructions.table import AMX_PARTS
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.target import Target
from fusewise.ir.dtypes import BFLOAT16, FLOAT32, DType


def by(instruction: Instruction) -> Any:
    """The kernel whatever it costs."""
    kernel = tile_convolution(f"by {instruction!r}", instruction)
    return replace(kernel, declines=lambda m, task, target: None)


@pytest.mark.parametrize("instruction", [WHOLE, PARTS, AMX_PARTS], ids=repr)
@FEW
@given(
    batch=st.integers(1, 2),
    sides=st.tuples(st.integers(4, 7), st.integers(4, 9)),
    taps=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    inputs=st.sampled_from((1, 3, 8, 16, 20, 32)),
    outputs=st.sampled_from((1, 4, 17)),
    stride=st.integers(1, 2),
    pads=st.one_of(st.just((0,) * 4), st.tuples(*[st.integers(0, 2)] * 4)),
    dilation=st.sampled_from((1, 1, 2)),
    prologue=st.sampled_from(("none", "relu", "gate")),
    epilogue=st.sampled_from(("none", "residual", "swish")),
    workers=st.integers(1, 3),
)
def test_windows_of_any_geometry(
    run_kernel: Any,
    target: Target,
    instruction: Instruction,
    batch: int,
    sides: tuple[int, int],
    taps: tuple[int, int],
    inputs: int,
    outputs: int,
    stride: int,
    pads: tuple[int, ...],
    dilation: int,
    prologue: str,
    epilogue: str,
    workers: int,
) -> None:
    axes = zip(sides, taps, strict=True)
    shape = (batch, inputs, *((side - 1) * stride + dilation * (kernel - 1) + 1 for side, kernel in axes))
    attributes = {"strides": (stride, stride), "dilations": (dilation, dilation), "pads": pads, "group": 1}
    is_whole = instruction is WHOLE
    test_convolution.check(
        run_kernel,
        (by(instruction),),
        target,
        "Conv",
        shape,
        (outputs, inputs, *taps),
        attributes,
        test_convolution.correlate(attributes),
        dtype=instruction.left,
        tolerance=1.6e-2 if is_whole else 2 * BOUND,
        prologue="none" if is_whole else prologue,
        epilogue=epilogue,
        workers=workers,
    )


@pytest.mark.parametrize(
    ("inputs", "outputs", "taps", "dtype", "first"),
    [
        (256, 256, 1, FLOAT32, "float32-in-parts"),
        (256, 256, 3, FLOAT32, "float32-in-parts"),
        (3, 64, 7, FLOAT32, "direct-convolution"),
        (64, 256, 1, BFLOAT16, "bfloat16-tiles-convolution"),
        (256, 256, 3, BFLOAT16, "bfloat16-tiles-convolution"),
    ],
    ids=str,
)
def test_the_unit_is_chosen_where_it_is_faster(inputs: int, outputs: int, taps: int, dtype: DType, first: str) -> None:
    attributes = {"strides": (1, 1), "dilations": (1, 1), "pads": (taps // 2,) * 4, "group": 1}
    sizes = (1, inputs, 14, 14), (outputs, inputs, taps, taps), (1, outputs, 14, 14)
    task = test_convolution.convolution("Conv", *sizes, attributes, dtype=dtype)
    assert next(iter(alternatives(task, machine_with_unit()))).kernel.name == first
    if dtype == FLOAT32:
        exact = next(iter(alternatives(replace(task, exact=True), machine_with_unit())))
        assert exact.kernel.name != "float32-in-parts"
