"""Convolutions by a matrix unit, which is emulated, against PyTorch: any stride, padding, dilation, rank and number of workers."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.codegen.families import test_convolution, test_convolution_free
from tests.codegen.families.test_convolution_integer import convolved
from tests.codegen.families.test_matrix_unit import BOUND, FEW, PARTS, WHOLE, machine_with_unit
from tests.codegen.free import versions_of
from tests.codegen.ways import way

from fusewise.codegen.choose import alternatives
from fusewise.codegen.families.convolution.direct import DIRECT
from fusewise.codegen.families.convolution.tiled import byte_tile_convolution, tile_convolution
from fusewise.codegen.instructions.table import AMX_INT8, AMX_PARTS
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.target import Target
from fusewise.ir.dtypes import BFLOAT16, FLOAT32, INT8, INT32, UINT8, DType
from fusewise.ir.types import TensorType
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.ops.expr import index, load


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


@pytest.mark.parametrize("signed", list(itertools.product((False, True), repeat=2)), ids=str)
@FEW
@given(
    batch=st.integers(1, 2),
    sides=st.tuples(st.integers(4, 6), st.integers(4, 7)),
    taps=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    inputs=st.sampled_from((1, 3, 16, 64, 70)),
    outputs=st.sampled_from((1, 16, 17)),
    stride=st.integers(1, 2),
    pads=st.one_of(st.just((0,) * 4), st.tuples(*[st.integers(0, 2)] * 4)),
    workers=st.integers(1, 3),
)
def test_windows_of_bytes_are_summed_exactly(
    run_kernel: Any,
    target: Target,
    signed: tuple[bool, bool],
    batch: int,
    sides: tuple[int, int],
    taps: tuple[int, int],
    inputs: int,
    outputs: int,
    stride: int,
    pads: tuple[int, ...],
    workers: int,
) -> None:
    """Around a zero point, which is what is outside, too."""
    kinds = [INT8 if is_signed else UINT8 for is_signed in signed]
    rng = np.random.default_rng(0)
    axes = zip(sides, taps, strict=True)
    x_shape = (batch, inputs, *((side - 1) * stride + kernel for side, kernel in axes))
    x, w = (
        rng.integers(np.iinfo(kind.numpy).min, np.iinfo(kind.numpy).max + 1, shape).astype(kind.numpy)
        for kind, shape in zip(kinds, (x_shape, (outputs, inputs, *taps)), strict=True)
    )
    zero = np.array(rng.integers(1, 100), kinds[0].numpy)
    attributes = {"strides": (stride, stride), "dilations": (1, 1), "pads": pads, "group": 1}
    around = (x.astype(np.int64) - int(zero)).astype(np.int64)
    expected = convolved(around, w.astype(np.int64), [stride] * 2, list(pads), [1, 1], 1)
    types = [TensorType(dtype, array.shape) for dtype, array in zip((*kinds, kinds[0]), (x, w, zero), strict=True)]
    operands = [
        Operand("in0", kinds[0], x.shape, test_convolution.strides_of(x.shape, "last")),
        Operand("const0", kinds[1], w.shape, test_convolution.dense(w.shape), constant=True),
        Operand("in1", kinds[0], (), ()),
        Operand("out0", INT32, expected.shape, test_convolution.strides_of(expected.shape, "last")),
    ]
    elements = (
        test_convolution.bare("in0", kinds[0], 4),
        test_convolution.bare("const0", kinds[1], 4),
        load("in1", kinds[0], ()),
    )
    kind = TensorType(INT32, expected.shape)
    anchor = Anchor("ConvInteger", "conv_integer", tuple(attributes.items()), tuple(types), elements, kind)
    at = tuple(index(f"i{k}") for k in range(4))
    task = Task(expected.shape, tuple(operands), (Store("out0", at, load(ACC, INT32, at)),), anchor)
    kernel = replace(byte_tile_convolution("tiles", AMX_INT8), declines=lambda m, task, target: None)
    one = way(kernel, task, target)
    (packing,) = (argument.packing for argument in one.arguments if argument.packing is not None)
    found = np.full((batch, *expected.shape[2:], outputs), -1, np.int32)
    buffers = {
        "in0": test_convolution.buffer_of(x, "last"),
        "const0": packing.pack(w),
        "in1": zero.reshape(1),
        "out0": found,
    }
    run_kernel(kernel, task, buffers, workers=workers, schedule=one.schedule)
    np.testing.assert_array_equal(np.moveaxis(found, -1, 1), expected)


@pytest.mark.parametrize("name", ["pointwise", "pointwise apart", "square", "square apart", "dilated", "computed"])
def test_windows_of_images_of_every_size(target: Target, name: str) -> None:
    """Where there are rows enough for the unit; elsewhere by what every machine has."""
    case = test_convolution_free.CASES[name]
    kernels = by(PARTS), DIRECT
    task = test_convolution_free.free_convolution(case)
    versions = versions_of(kernels, task, test_convolution_free.SYMBOLS, target, workers=2)
    assert [version.kernel for version in versions][:1] == ["by toy-parts"]
    for sizes in test_convolution_free.SIZES:
        if test_convolution_free.fits(case, sizes):
            names = test_convolution_free.check(versions, case, sizes, 2 * BOUND)
            assert names, f"no version is for {sizes}"
