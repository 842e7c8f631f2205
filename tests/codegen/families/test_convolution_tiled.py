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
from tests.codegen.families.test_matrix_unit import BOUND, FEW, ODD, PARTS, WHOLE, machine_with_unit
from tests.codegen.free import versions_of
from tests.codegen.ways import refusal
from tests.codegen.ways import way as one_way

from fusewise.codegen.choose import alternatives
from fusewise.codegen.families.convolution.direct import DIRECT
from fusewise.codegen.families.convolution.tiled import WAYS, Way, byte_tile_convolution, tile_convolution
from fusewise.codegen.families.convolution.windows import windows_apart, windows_shared
from fusewise.codegen.instructions.table import AMX_INT8, AMX_PARTS
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.target import Target
from fusewise.ir.dtypes import BFLOAT16, FLOAT32, INT8, INT16, INT32, UINT8, DType
from fusewise.ir.types import TensorType
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.ops.expr import index, load


def by(instruction: Instruction, *ways: Way) -> Any:
    """The kernel whatever it costs, of windows that are copied so."""
    kernel = tile_convolution(f"by {instruction!r}", instruction, ways or WAYS)
    return replace(kernel, declines=lambda m, task, target: None)


def whichever(shared: bool, stride: int, dilation: int) -> tuple[Way, ...]:
    """Windows share what is copied, if they can, or do not."""
    return (windows_shared,) if shared and 1 in (stride, dilation) else (windows_apart,)


@pytest.mark.parametrize("instruction", [WHOLE, PARTS, AMX_PARTS], ids=repr)
@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
@FEW
@given(
    batch=st.integers(1, 2),
    sides=st.tuples(st.integers(4, 7), st.integers(4, 9)),
    taps=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    inputs=st.sampled_from((1, 3, 8, 16, 20, 32)),
    outputs=st.sampled_from((1, 4, 17)),
    stride=st.integers(1, 3),
    pads=st.one_of(st.just((0,) * 4), st.tuples(*[st.integers(0, 2)] * 4)),
    dilation=st.sampled_from((1, 1, 2)),
    prologue=st.sampled_from(("none", "relu", "gate")),
    epilogue=st.sampled_from(("none", "residual", "swish")),
    workers=st.integers(1, 3),
)
def test_windows_of_any_geometry(
    run_kernel: Any,
    target: Target,
    shared: bool,
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
        (by(instruction, *whichever(shared, stride, dilation)),),
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


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("groups, inputs, outputs", [(3, 16, 17), (2, 32, 3), (5, 16, 1)])
def test_windows_in_groups(run_kernel: Any, target: Target, way: Way, groups: int, inputs: int, outputs: int) -> None:
    """Of channels that fill blocks, which others and those of parts do not."""
    attributes = {"strides": (1, 2), "dilations": (1, 1), "pads": (1, 0, 2, 1), "group": groups}
    shapes = (2, groups * inputs, 5, 9), (groups * outputs, inputs, 3, 3)
    kernel, reference = by(WHOLE, way), test_convolution.correlate(attributes)
    test_convolution.check(
        run_kernel,
        (kernel,),
        target,
        "Conv",
        *shapes,
        attributes,
        reference,
        dtype=BFLOAT16,
        tolerance=1.6e-2,
        workers=3,
    )
    for instruction, narrow in ((WHOLE, 1), (PARTS, 0)):
        weights = groups * outputs, inputs - narrow, 3, 3
        sizes = (2, groups * (inputs - narrow), 5, 9), weights, (2, groups * outputs, 6, 5)
        task = test_convolution.convolution("Conv", *sizes, attributes, dtype=instruction.left)
        assert "of a group do not fill blocks" in str(refusal(by(instruction, way), task, target))


@pytest.mark.parametrize(
    "batch, sides, taps, stride", [(3, (9,), (4,), 2), (1, (1, 9), (3, 2), 1), (2, (3, 4, 5), (2, 1, 3), 2)]
)
def test_windows_along_any_number_of_axes(
    run_kernel: Any, target: Target, batch: int, sides: tuple[int, ...], taps: tuple[int, ...], stride: int
) -> None:
    """Of which one may have a single window."""
    rank = len(sides)
    attributes = {"strides": (stride,) * rank, "dilations": (1,) * rank, "pads": (1,) * rank + (0,) * rank, "group": 1}
    extents = ((side - 1) * stride + tap - 1 for side, tap in zip(sides, taps, strict=True))
    kernel, reference = by(PARTS, windows_shared), test_convolution.correlate(attributes)
    shapes = (batch, 9, *extents), (6, 9, *taps)
    test_convolution.check(
        run_kernel, (kernel,), target, "Conv", *shapes, attributes, reference, tolerance=2 * BOUND, workers=3
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layout", ["planar", "last"])
def test_windows_of_channels_apart(run_kernel: Any, target: Target, way: Way, layout: str) -> None:
    attributes = {"strides": (1, 1), "dilations": (2, 1), "pads": (1, 1, 1, 1), "group": 1}
    shapes, reference = ((1, 18, 9, 6), (20, 18, 3, 2)), test_convolution.correlate(attributes)
    kernel = by(PARTS, way)
    test_convolution.check(
        run_kernel, (kernel,), target, "Conv", *shapes, attributes, reference, layout=layout, tolerance=2 * BOUND
    )


@pytest.mark.parametrize("way", WAYS)
@FEW
@given(odd=st.lists(ODD, min_size=1, max_size=3), weight=ODD | st.just(1.0), stride=st.integers(1, 2), data=st.data())
def test_windows_of_odd_numbers(
    run_kernel: Any, target: Target, way: Way, odd: list[float], weight: float, stride: int, data: st.DataObject
) -> None:
    """Are what they are as floats, whatever share of a window is odd."""
    import torch

    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    x = rng.standard_normal((1, 6, 7, 20)).astype(np.float32)
    w = rng.standard_normal((5, 20, 3, 2)).astype(np.float32)
    w[2, 3, 1, 1] = weight
    for number in odd:
        row, column, channel = (data.draw(st.integers(0, n - 1)) for n in x.shape[1:])
        x[0, row, column, data.draw(st.sampled_from((channel, slice(None))))] = number
    attributes = {"strides": (stride, stride), "dilations": (1, 1), "pads": (1, 1, 1, 0), "group": 1}
    planar = torch.from_numpy(np.moveaxis(x, -1, 1).astype(np.float64))
    run = test_convolution.correlate(attributes)
    expected = run(planar, torch.from_numpy(w.astype(np.float64)), None).numpy()
    sizes = [np.where(np.isfinite(a), np.abs(a), 0).astype(np.float64) for a in (planar.numpy(), w)]
    size = run(*(torch.from_numpy(a) for a in sizes), None).numpy()
    task = test_convolution.convolution("Conv", planar.shape, w.shape, expected.shape, attributes, bias=False)
    found = np.full((1, *expected.shape[2:], 5), 7, np.float32)
    buffers = {"in0": x, "const0": w, "out0": found}
    kernel = by(PARTS, way)
    for argument in one_way(kernel, task, target).arguments:
        if argument.packing is not None:
            buffers[argument.name] = argument.packing.pack(buffers[argument.name])
    run_kernel(kernel, task, buffers, workers=2)
    found, sure = np.moveaxis(found, -1, 1), size < 3e38
    np.testing.assert_array_equal(np.isnan(found)[sure], np.isnan(expected)[sure])
    finite = sure & np.isfinite(expected)
    np.testing.assert_array_equal(found[sure & np.isinf(expected)], expected[sure & np.isinf(expected)])
    assert np.all(np.abs(found[finite] - expected[finite]) <= BOUND * size[finite] + 1e-36)


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
    shared=st.booleans(),
    wide=st.booleans(),
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
    shared: bool,
    wide: bool,
    batch: int,
    sides: tuple[int, int],
    taps: tuple[int, int],
    inputs: int,
    outputs: int,
    stride: int,
    pads: tuple[int, ...],
    workers: int,
) -> None:
    """Around a zero point, which is what is outside, too; wide weights are what is left without their own."""
    kinds = [INT8 if is_signed else UINT8 for is_signed in signed]
    rng = np.random.default_rng(0)
    axes = zip(sides, taps, strict=True)
    x_shape = (batch, inputs, *((side - 1) * stride + kernel for side, kernel in axes))
    x, w = (
        rng.integers(np.iinfo(kind.numpy).min, np.iinfo(kind.numpy).max + 1, shape).astype(kind.numpy)
        for kind, shape in zip(kinds, (x_shape, (outputs, inputs, *taps)), strict=True)
    )
    zero = np.array(rng.integers(1, 100), kinds[0].numpy)
    if wide:
        kinds[1], w = INT16, w - rng.integers(-60, 60, (outputs, 1, 1, 1), dtype=np.int16)
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
    ways = whichever(shared, stride, 1)
    kernel = replace(byte_tile_convolution("tiles", AMX_INT8, ways), declines=lambda m, task, target: None)
    one = one_way(kernel, task, target)
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
