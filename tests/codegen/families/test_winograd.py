"""Winograd convolutions against PyTorch in float64: random geometry, epilogues, accuracy, refusals, other machines."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.codegen.ways import refusal, scheduled, text_of, way, ways

from fusewise.codegen.families.convolution.shape import convolution_of
from fusewise.codegen.families.product.tiles import SLIM_ROWS
from fusewise.codegen.families.winograd import choice as winograd_choice
from fusewise.codegen.families.winograd.kernel import WINOGRAD
from fusewise.codegen.families.winograd.plan import Planes, WinogradSchedule, planes_of
from fusewise.codegen.kernel import Kernel
from fusewise.codegen.llvm.stores import Far
from fusewise.codegen.machine.figures import OverheadFigures
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.target import TARGETS, Target
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, DType
from fusewise.ir.types import TensorType
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.ops.expr import Expr, binary, const, index, load, unary
from fusewise.runtime.jit import compile_assembly

TOLERANCE = 5e-6
"""Largest difference from the exact result, relative to the largest output: what the kernel promises for most forms."""

TOLERANCES = {(4, 5, 5): 3e-5, (4, 3, 5): 1.5e-5, (4, 1, 7): 1.5e-5, (6, 1, 7): 3e-5, (5, 3, 3): 2e-5, (6, 3, 3): 2e-5}
"""The same for those that promise less, by outputs along an axis and taps along both, the fewer first."""

STRIDED = {(5, 7): 3e-5}
"""The same at stride 2, by outputs along an axis and taps a side."""


def of_square(tile: int) -> float:
    """The largest difference for 3x3 filters and tiles of this many outputs a side."""
    return TOLERANCES.get((tile, 3, 3), TOLERANCE)


Winograd = Kernel[Planes, WinogradSchedule]

EVERYWHERE = replace(WINOGRAD, declines=lambda planes, task, target: None)
"""The kernel without its rule of where it is worth it, so that small shapes test it too."""

IN_MEMORY = ("memory", "pairs")
"""Where filters are in memory."""


def schedules_of(task: Task, target: Target) -> list[WinogradSchedule]:
    """What the kernel would try, whether or not it is worth it."""
    return [found.schedule for found in ways(EVERYWHERE, task, target)]


def by_schedule(task: Task, target: Target, schedule: WinogradSchedule) -> str:
    """The code by a schedule."""
    return text_of(scheduled(EVERYWHERE, task, target, schedule), target.instructions, "kernel")


def by(schedule: WinogradSchedule) -> Winograd:
    """The kernel with this schedule alone."""
    return replace(EVERYWHERE, schedules=lambda planes, task, target: [schedule])


def with_outputs(tile: int, filters: str | None = None) -> Winograd:
    """The kernel for tiles of this many outputs along an axis, with filters in "registers", "memory", "pairs" or anywhere; "short":
    in registers, tiles of several strips shorter."""

    def schedules(planes: Planes, task: Task, target: Target) -> list[WinogradSchedule]:
        every = schedules_of(task, target)
        fitting = [one for one in every if one.outputs == tile]
        if not fitting:  # a form that this machine does not choose
            fitting = [replace(next(one for one in every if one.filters in IN_MEMORY), outputs=tile)]
        if filters in IN_MEMORY:
            return [replace(one, filters=filters) for one in fitting if one.filters in IN_MEMORY]
        if filters == "short":
            return [replace(one, short=True) for one in fitting if one.filters == "registers"]
        return [one for one in fitting if filters in (None, one.filters)]

    return replace(EVERYWHERE, schedules=schedules)


def in_lines(tile: int, rows: int, **sizes: int) -> Winograd:
    """The same with filters in lines, of register tiles of so many rows, in these sizes, on every target."""

    def schedules(planes: Planes, task: Task, target: Target) -> list[WinogradSchedule]:
        memory = way(with_outputs(tile, "memory"), task, target).schedule
        return [replace(memory, filters="lines", tile=Tile(rows, 2, target.lanes), **sizes)]

    return replace(EVERYWHERE, schedules=schedules)


def planar(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))


def last(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a logical N, C, ... tensor stored channels last."""
    batch, *spatial, channel = planar((shape[0], *shape[2:], shape[1]))
    return (batch, channel, *spatial)


def element(name: str, dtype: DType, rank: int, prefix: str = "p") -> Expr:
    return load(name, dtype, tuple(index(f"{prefix}{k}") for k in range(rank)))


def convolution(
    x: tuple[int, ...],
    outputs: int,
    pads: tuple[int, ...] = (1, 1, 1, 1),
    *,
    taps: tuple[int, int] = (3, 3),
    stride: int = 1,
    dilation: int = 1,
    slices: tuple[int, int, int] = (1, 1, 1),
    group: int = 1,
    bias: bool = True,
    epilogue: str = "none",
    planar_output: bool = False,
    planar_input: bool = False,
    prologue: bool = False,
    dtype: DType = FLOAT32,
) -> Task:
    """in0 data, const0 weights, const1 bias, in1 residual, out0 result.

    `slices` has kernel, stride and dilation of the first of three axes, which is padded by half its kernel; `pads` and the
    other options are those of rows and columns.
    """
    rank = len(x)
    kernels, strides_of, dilations = taps, (stride,) * 2, (dilation,) * 2
    if rank == 5:
        kernels, strides_of, dilations = (
            (first, *rest) for first, rest in zip(slices, (kernels, strides_of, dilations), strict=True)
        )
        pads = (slices[0] // 2, *pads[:2], slices[0] // 2, *pads[2:])
    spatial = [
        (e + a + b - (k - 1) * d - 1) // t + 1
        for e, a, b, k, d, t in zip(
            x[2:], pads[: rank - 2], pads[rank - 2 :], kernels, dilations, strides_of, strict=True
        )
    ]
    w, out = (outputs, x[1] // group, *kernels), (x[0], outputs, *spatial)
    strides = planar(out) if planar_output else last(out)
    operands = [
        Operand("in0", dtype, x, planar(x) if planar_input else last(x)),
        Operand("const0", dtype, w, planar(w), constant=True),
    ]
    kinds = [TensorType(dtype, x), TensorType(dtype, w)]
    first = element("in0", dtype, rank)
    elements = [binary("max", first, const(0.0, dtype)) if prologue else first, element("const0", dtype, rank)]
    if bias:
        operands.append(Operand("const1", dtype, (outputs,), (1,), constant=True))
        kinds.append(TensorType(dtype, (outputs,)))
        elements.append(element("const1", dtype, 1))
    at = tuple(index(f"i{k}") for k in range(rank))
    value = load(ACC, dtype, at)
    if epilogue == "residual":
        operands.append(Operand("in1", dtype, out, strides))
        value = binary("max", value + load("in1", dtype, at), const(0.0, dtype))
    if epilogue == "relu":
        value = binary("max", value, const(0.0, dtype))
    if epilogue == "swish":
        value = value * unary("sigmoid", value)
        value = value * unary("sigmoid", value)
        value = value * unary("sigmoid", value)
    operands.append(Operand("out0", dtype, out, strides))
    attributes = {"strides": strides_of, "dilations": dilations, "pads": pads, "group": group}
    anchor = Anchor("Conv", "conv", tuple(attributes.items()), tuple(kinds), tuple(elements), TensorType(dtype, out))
    return Task(out, tuple(operands), (Store("out0", at, value),), anchor)


def finished(value: np.ndarray, epilogue: str, residual: np.ndarray) -> np.ndarray:
    if epilogue == "residual":
        return np.maximum(value + residual, 0)
    if epilogue == "relu":
        return np.maximum(value, 0)
    if epilogue == "swish":
        for _ in range(3):
            value = value / (1 + np.exp(-value))
    return value


def at_least(target: Target, channels: int) -> int:
    """So many channels, or as many as the kernel takes on this machine."""
    return max(channels, target.lanes)


def error_of(
    run_kernel: Any,
    target: Target,
    x: tuple[int, ...],
    outputs: int,
    pads: tuple[int, ...] = (1, 1, 1, 1),
    *,
    workers: int = 1,
    kernel: Winograd = EVERYWHERE,
    **options: Any,
) -> float:
    """The largest difference from PyTorch's convolution in float64, relative to the largest output."""
    import torch

    rng, kind = np.random.default_rng(11), options.get("dtype", FLOAT32).numpy
    data = rng.standard_normal(x).astype(kind)
    taps = (*(options["slices"][:1] if len(x) == 5 else ()), *options.get("taps", (3, 3)))
    weights = (rng.standard_normal((outputs, x[1], *taps)) / (math.prod(taps) * x[1]) ** 0.5).astype(kind)
    bias = rng.standard_normal(outputs).astype(kind)
    task = convolution(x, outputs, pads, **options)
    assert task.anchor is not None
    given = [torch.from_numpy(array.astype(np.float64)) for array in (data, weights, bias)]
    around = task.anchor.attribute("pads")
    sides = [side for pair in zip(around[: len(taps)], around[len(taps) :], strict=True) for side in reversed(pair)]
    given[0] = torch.nn.functional.pad(given[0], tuple(reversed(sides)))
    exact = (torch.conv3d if len(x) == 5 else torch.conv2d)(
        given[0],
        given[1],
        given[2] if options.get("bias", True) else None,
        task.anchor.attribute("strides"),
        0,
        task.anchor.attribute("dilations"),
    ).numpy()
    residual = rng.standard_normal(exact.shape).astype(kind)
    expected = finished(exact, options.get("epilogue", "none"), residual)

    def stored(array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array if options.get("planar_output") else np.moveaxis(array, 1, -1))

    chosen = way(kernel, task, target)
    arrays = {
        "in0": data if options.get("planar_input") else np.ascontiguousarray(np.moveaxis(data, 1, -1)),
        "const0": weights,
        "const1": bias,
        "in1": stored(residual),
        "out0": np.full(stored(expected).shape, np.nan, kind),
    }
    for argument in chosen.arguments:
        if argument.packing is not None:
            arrays[argument.name] = argument.packing.pack(arrays[argument.name])
    run_kernel(kernel, task, arrays, workers=workers, schedule=chosen.schedule, machine=target)
    largest = np.abs(expected).max() or 1.0  # where all inputs are padding
    return float(np.abs(arrays["out0"].astype(np.float64) - stored(expected)).max() / largest)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    tile=st.sampled_from((2, 3, 4, 5, 6)),
    batch=st.integers(1, 3),
    extents=st.tuples(st.integers(1, 19), st.integers(1, 19)),
    inputs=st.sampled_from((8, 16, 36, 57, 64, 72, 130, 192)),
    outputs=st.sampled_from((8, 21, 32, 49, 64, 72)),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    bias=st.booleans(),
    epilogue=st.sampled_from(("none", "relu", "residual", "swish")),
    planar_output=st.booleans(),
    workers=st.integers(1, 8),
)
def test_random_geometry(
    run_kernel: Any,
    target: Target,
    tile: int,
    batch: int,
    extents: tuple[int, int],
    inputs: int,
    outputs: int,
    pads: tuple[int, int, int, int],
    **options: Any,
) -> None:
    height, width = (max(e, 3 - a - b) for e, a, b in zip(extents, pads[:2], pads[2:], strict=True))
    x, outputs = (batch, at_least(target, inputs), height, width), at_least(target, outputs)
    assert error_of(run_kernel, target, x, outputs, pads, kernel=with_outputs(tile), **options) <= of_square(tile)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    tile=st.sampled_from((2, 3, 4, 5, 6)),
    dilation=st.integers(2, 14),
    batch=st.integers(1, 2),
    extents=st.tuples(st.integers(1, 33), st.integers(1, 33)),
    inputs=st.sampled_from((16, 36, 72)),
    pads=st.tuples(*[st.integers(0, 14)] * 4),
    epilogue=st.sampled_from(("none", "residual", "swish")),
    planar_output=st.booleans(),
    workers=st.integers(1, 3),
)
def test_dilations(
    run_kernel: Any,
    target: Target,
    tile: int,
    dilation: int,
    batch: int,
    extents: tuple[int, int],
    inputs: int,
    pads: tuple[int, int, int, int],
    **options: Any,
) -> None:
    """Lattices of unequal length, more of them than there are outputs, and tiles without any output."""
    reach = 2 * dilation + 1
    height, width = (max(e, reach - a - b) for e, a, b in zip(extents, pads[:2], pads[2:], strict=True))
    x, kernel = (batch, at_least(target, inputs), height, width), with_outputs(tile)
    assert error_of(run_kernel, target, x, 40, pads, kernel=kernel, dilation=dilation, **options) <= of_square(tile)


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    tile=st.sampled_from((2, 3, 4, 5, 6)),
    batch=st.integers(1, 2),
    extents=st.tuples(st.integers(5, 9), st.integers(1, 9), st.integers(1, 9)),
    slices=st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 2)),
    dilation=st.integers(1, 3),
    inputs=st.sampled_from((8, 36, 40, 70, 72)),
    pads=st.tuples(*[st.integers(1, 2)] * 4),
    workers=st.integers(1, 3),
)
def test_volumes(
    run_kernel: Any,
    target: Target,
    tile: int,
    batch: int,
    extents: tuple[int, int, int],
    dilation: int,
    inputs: int,
    pads: tuple[int, int, int, int],
    **options: Any,
) -> None:
    planes = (max(e, 2 * dilation + 1 - a - b) for e, a, b in zip(extents[1:], pads[:2], pads[2:], strict=True))
    x, kernel = (batch, at_least(target, inputs), extents[0], *planes), with_outputs(tile)
    assert error_of(run_kernel, target, x, 40, pads, kernel=kernel, dilation=dilation, **options) <= of_square(tile)


FORMS = [(1, 3), (1, 5), (1, 7), (3, 5), (5, 5)]
TILES = {(1, 7): (2, 4, 6), (1, 3): (2, 3, 4, 5, 6)}


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    choice=st.sampled_from([(tile, taps) for taps in FORMS for tile in TILES.get(taps, (2, 4))]),
    kept=st.sampled_from((None, "pairs")),
    upright=st.booleans(),
    batch=st.integers(1, 2),
    extents=st.tuples(st.integers(1, 15), st.integers(1, 15)),
    inputs=st.sampled_from((8, 36, 70)),
    pads=st.tuples(*[st.integers(0, 3)] * 4),
    epilogue=st.sampled_from(("none", "residual", "swish")),
    planar_output=st.booleans(),
    workers=st.integers(1, 3),
)
def test_other_filters(
    run_kernel: Any,
    target: Target,
    choice: tuple[int, tuple[int, int]],
    kept: str | None,
    upright: bool,
    batch: int,
    extents: tuple[int, int],
    inputs: int,
    pads: tuple[int, int, int, int],
    **options: Any,
) -> None:
    tile, taps = choice
    tolerance = TOLERANCES.get((tile, *taps), TOLERANCE)
    taps = (taps[1], taps[0]) if upright else taps
    height, width = (max(e, k - a - b) for e, k, a, b in zip(extents, taps, pads[:2], pads[2:], strict=True))
    x, kernel = (batch, at_least(target, inputs), height, width), with_outputs(tile, kept)
    assert error_of(run_kernel, target, x, 40, pads, kernel=kernel, taps=taps, **options) <= tolerance


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    tile=st.sampled_from((2, 4)),
    frames=st.sampled_from((3, 5)),
    batch=st.integers(1, 2),
    extents=st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(1, 5)),
    inputs=st.sampled_from((16, 36)),
    epilogue=st.sampled_from(("relu", "residual")),
    workers=st.integers(1, 3),
)
def test_filters_along_the_first_of_three_axes(
    run_kernel: Any,
    target: Target,
    tile: int,
    frames: int,
    batch: int,
    extents: tuple[int, int, int],
    inputs: int,
    **options: Any,
) -> None:
    x, slices = (batch, inputs, *extents), (frames, 1, 1)
    kernel = with_outputs(tile)
    error = error_of(run_kernel, target, x, 40, (0, 0, 0, 0), kernel=kernel, slices=slices, taps=(1, 1), **options)
    assert error <= TOLERANCE


ANY_STRIDED: dict[str, Any] = {
    "outputs": st.sampled_from((8, 21, 32, 49)),
    "bias": st.booleans(),
    "epilogue": st.sampled_from(("none", "residual", "swish")),
    "planar_output": st.booleans(),
    "workers": st.integers(1, 5),
}
"""What varies at stride 2, of few channels as of many."""


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    choice=st.sampled_from(((2, 5), (4, 5), (3, 7), (5, 7))),
    kept=st.sampled_from(("memory", "pairs")),
    batch=st.integers(1, 3),
    extents=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    inputs=st.sampled_from((2, 3, 4, 7)),
    planar_input=st.booleans(),
    pads=st.tuples(*[st.integers(0, 3)] * 4),
    **ANY_STRIDED,
)
def test_stride_two(
    run_kernel: Any,
    target: Target,
    choice: tuple[int, int],
    kept: str,
    batch: int,
    extents: tuple[int, int],
    inputs: int,
    outputs: int,
    pads: tuple[int, int, int, int],
    **options: Any,
) -> None:
    tile, taps = choice
    height, width = (max(e, taps - a - b) for e, a, b in zip(extents, pads[:2], pads[2:], strict=True))
    x, outputs = (batch, min(inputs, target.lanes - 1), height, width), at_least(target, outputs)
    options |= {"taps": (taps, taps), "stride": 2}
    error = error_of(run_kernel, target, x, outputs, pads, kernel=with_outputs(tile, kept), **options)
    assert error <= STRIDED.get((tile, taps), TOLERANCE)


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    choice=st.sampled_from(((2, 5), (4, 5), (3, 7), (5, 7))),
    kept=st.sampled_from(("memory", "pairs", "registers", "short")),
    extents=st.tuples(st.integers(1, 17), st.integers(1, 6), st.integers(1, 6)),
    channels=st.sampled_from((1, 2, 3, 5)),
    **ANY_STRIDED,
)
def test_stride_two_along_one_axis_alone(
    run_kernel: Any,
    target: Target,
    choice: tuple[int, int],
    kept: str,
    extents: tuple[int, int, int],
    channels: int,
    outputs: int,
    **options: Any,
) -> None:
    """Frames of a clip, with filters in memory and in registers."""
    tile, taps = choice
    x, outputs = (2, 16 * channels, *extents), at_least(target, outputs)
    options |= {"taps": (1, 1), "slices": (taps, 2, 1), "kernel": with_outputs(tile, kept)}
    assert error_of(run_kernel, target, x, outputs, (0, 0, 0, 0), **options) <= TOLERANCE


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    tile=st.sampled_from((3, 4, 5)),
    kept=st.sampled_from(("memory", "pairs", "registers", "short")),
    batch=st.integers(1, 3),
    extents=st.tuples(st.integers(3, 40), st.integers(3, 40)),
    inputs=st.sampled_from((1, 2, 3, 4)),
    frames=st.integers(1, 2),
    pads=st.tuples(*[st.integers(0, 1)] * 4),
    **ANY_STRIDED,
)
def test_stride_two_over_many_channels(
    run_kernel: Any,
    target: Target,
    tile: int,
    kept: str,
    batch: int,
    extents: tuple[int, int],
    inputs: int,
    frames: int,
    outputs: int,
    pads: tuple[int, int, int, int],
    **options: Any,
) -> None:
    x, outputs = (batch, inputs * max(16, target.lanes), *extents), at_least(target, outputs)
    if frames > 1:
        x, options["slices"] = (batch, inputs * max(16, target.lanes), 4, *extents), (frames, 1, 1)
    options |= {"taps": (3, 3), "stride": 2, "kernel": with_outputs(tile, kept)}
    assert error_of(run_kernel, target, x, outputs, pads, **options) <= TOLERANCE


@pytest.mark.parametrize("tile, taps", [(4, (5, 5)), (2, (5, 5)), (4, (1, 7)), (6, (7, 1)), (2, (1, 7)), (4, (3, 1))])
@pytest.mark.parametrize("channels", [48, 512])
def test_error_of_other_filters(
    run_kernel: Any, target: Target, channels: int, tile: int, taps: tuple[int, int]
) -> None:
    around = tuple(k // 2 for k in taps) * 2
    x, kernel = (1, channels, 17, 17), with_outputs(tile)
    error = error_of(run_kernel, target, x, 128, around, workers=2, kernel=kernel, taps=taps)
    assert 0 < error <= TOLERANCES.get((tile, min(taps), max(taps)), TOLERANCE)


@pytest.mark.parametrize("dtype, tolerance", [(BFLOAT16, 2**-8), (FLOAT16, 2**-11)], ids=["bfloat16", "float16"])
def test_short_floats_are_rounded_once(run_kernel: Any, target: Target, dtype: DType, tolerance: float) -> None:
    error = error_of(run_kernel, target, (1, 70, 9, 13), 40, dtype=dtype, epilogue="relu", workers=2)
    assert 0 < error <= tolerance + TOLERANCE
    around, stem = (3, 3, 3, 3), {"taps": (7, 7), "stride": 2, "planar_input": True, "kernel": with_outputs(5)}
    error = error_of(run_kernel, target, (1, 3, 23, 37), 40, around, dtype=dtype, workers=2, **stem)
    assert 0 < error <= tolerance + STRIDED.get((5, 7), TOLERANCE)


@pytest.mark.parametrize("tile", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("channels, extent", [(64, 56), (128, 28), (256, 14), (512, 7), (1024, 14)])
def test_error_stays_within_the_bound(run_kernel: Any, target: Target, channels: int, extent: int, tile: int) -> None:
    x = (1, channels, extent, extent)
    error = error_of(run_kernel, target, x, min(channels, 128), workers=2, kernel=with_outputs(tile))
    assert 0 < error <= of_square(tile)


def test_every_schedule_gives_the_same_answer(run_kernel: Any, target: Target) -> None:
    task = convolution((1, 40, 15, 13), 72)
    every = schedules_of(task, target)
    in_memory = next(one for one in every if one.filters in IN_MEMORY)
    for first in (every[0], *(replace(in_memory, filters=filters) for filters in IN_MEMORY)):
        every += [replace(first, per_strip=n, together=k, depth=depth) for n, k, depth in ((1, 1, 16), (2, 3, 20))]
        every += [replace(first, depth=depth, ahead=True) for depth in (8, 16, 40)]
    for schedule in every:
        error = error_of(run_kernel, target, (1, 40, 15, 13), 72, kernel=by(schedule), workers=3)
        assert error <= of_square(schedule.outputs), schedule


@pytest.mark.parametrize("channels, outputs, epilogue", [(70, 40, "swish"), (512, 72, "residual"), (24, 16, "none")])
def test_filters_of_few_tiles_stay_in_registers(
    run_kernel: Any, target: Target, channels: int, outputs: int, epilogue: str
) -> None:
    side = 7 if target.registers > 16 else 4  # four tiles, or one
    x, outputs = (1, at_least(target, channels), side, side), at_least(target, outputs)
    first, *others = [one for one in schedules_of(convolution(x, outputs), target) if one.outputs == 4]
    assert first.filters == "registers"
    wide = replace(first, tile=replace(first.tile, vectors=3))
    for schedule in (first, *others, replace(first, depth=8), wide):
        error = error_of(run_kernel, target, x, outputs, kernel=by(schedule), epilogue=epilogue, workers=3)
        assert error <= TOLERANCE, schedule


@pytest.mark.parametrize("extent, taps", [((9, 22), (3, 3)), ((17, 5), (1, 3)), ((23, 40), (3, 1)), ((30, 11), (5, 5))])
def test_filters_in_registers_are_used_by_strips_of_tiles(
    run_kernel: Any, target: Target, extent: tuple[int, int], taps: tuple[int, int]
) -> None:
    x, around = (2, at_least(target, 40), *extent), tuple(k // 2 for k in taps) * 2
    task = convolution(x, 72, around, taps=taps)
    every = [one for one in schedules_of(task, target) if one.filters == "registers"]
    assert every
    for schedule in (*every, *(replace(one, short=True) for one in every)):
        options = {"taps": taps, "kernel": by(schedule), "epilogue": "residual", "workers": 3}
        error = error_of(run_kernel, target, x, 72, around, **options)
        assert error <= TOLERANCES.get((schedule.outputs, min(taps), max(taps)), TOLERANCE), schedule


@pytest.mark.parametrize("filters", ["memory", "pairs", "short"])
@pytest.mark.parametrize("workers", [1, 3, 64])
@pytest.mark.parametrize(
    "batch, height, width, stride", [(1, 50, 46, 1), (5, 13, 19, 1), (1, 14, 14, 1), (3, 50, 41, 1), (2, 82, 58, 2)]
)
def test_short_tiles_in_several_strips(
    run_kernel: Any, target: Target, batch: int, height: int, width: int, stride: int, workers: int, filters: str
) -> None:
    """Strips that begin and end anywhere in the runs of short and long tiles."""
    x, kernel = (batch, at_least(target, 32), height, width), with_outputs(4, filters)
    planes = planes_of(convolution_of(convolution(x, 40, stride=stride)))  # type: ignore[arg-type]
    assert planes is not None
    form = next(form for form in planes.forms if form.tile == 4)
    assert len(planes.grid(form).regions) > 1
    error = error_of(run_kernel, target, x, 40, kernel=kernel, stride=stride, epilogue="residual", workers=workers)
    assert error <= TOLERANCE


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    choice=st.sampled_from(
        ((2, (3, 3)), (3, (3, 3)), (4, (3, 3)), (5, (3, 3)), (6, (3, 3)), (4, (5, 5)), (4, (3, 1)), (4, (1, 7)))
    ),
    batch=st.integers(1, 2),
    slices=st.integers(1, 3),
    extents=st.tuples(st.integers(7, 40), st.integers(7, 40)),
    inputs=st.sampled_from((16, 40, 72)),
    outputs=st.sampled_from((32, 49, 72)),
    rows=st.integers(1, 6),
    abreast=st.integers(1, 6),
    per_strip=st.integers(1, 9),
    depth=st.sampled_from((8, 16, 23, 32)),
    epilogue=st.sampled_from(("none", "residual", "swish")),
    workers=st.integers(1, 4),
)
def test_filters_in_lines(
    run_kernel: Any,
    target: Target,
    choice: tuple[int, tuple[int, int]],
    batch: int,
    slices: int,
    extents: tuple[int, int],
    inputs: int,
    outputs: int,
    rows: int,
    abreast: int,
    per_strip: int,
    depth: int,
    **options: Any,
) -> None:
    """Whatever the register tile: its tiles may end where those begin that lack a value, or between."""
    tile, taps = choice
    x, outputs, around = (batch, at_least(target, inputs), *extents), at_least(target, outputs), (1, taps[1] // 2) * 2
    if slices > 1:
        x, options["slices"] = (*x[:2], 3, *extents), (slices, 1, 1)
    kernel = in_lines(tile, rows, abreast=abreast, per_strip=per_strip, depth=depth)
    error = error_of(run_kernel, target, x, outputs, around, kernel=kernel, taps=taps, **options)
    assert error <= TOLERANCES.get((tile, min(taps), max(taps)), TOLERANCE)


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    tile=st.sampled_from((3, 4, 5)),
    extents=st.tuples(st.integers(3, 60), st.integers(3, 60)),
    inputs=st.integers(1, 4),
    rows=st.integers(1, 6),
    abreast=st.integers(1, 6),
    per_strip=st.integers(1, 9),
    pads=st.tuples(*[st.integers(0, 1)] * 4),
    workers=st.integers(1, 4),
)
def test_filters_in_lines_at_stride_two(
    run_kernel: Any,
    target: Target,
    tile: int,
    extents: tuple[int, int],
    inputs: int,
    rows: int,
    abreast: int,
    per_strip: int,
    pads: tuple[int, int, int, int],
    workers: int,
) -> None:
    x, kernel = (1, inputs * 16, *extents), in_lines(tile, rows, abreast=abreast, per_strip=per_strip)
    error = error_of(run_kernel, target, x, 40, pads, kernel=kernel, stride=2, epilogue="residual", workers=workers)
    assert error <= TOLERANCE


@pytest.mark.parametrize("rows, abreast", [(4, 3), (5, 2), (3, 4)])
@pytest.mark.parametrize("tile", [2, 3, 4])
def test_filters_in_lines_of_phases_side_by_side(
    run_kernel: Any, target: Target, tile: int, rows: int, abreast: int
) -> None:
    stem = {"taps": (5, 5), "stride": 2, "planar_input": True, "workers": 2}
    kernel = in_lines(tile, rows, abreast=abreast, per_strip=3)
    assert error_of(run_kernel, target, (1, 3, 43, 37), 40, (2, 2, 2, 2), kernel=kernel, **stem) <= TOLERANCE


def test_filters_in_lines_are_for_a_few_tiles() -> None:
    """There a filter is used too seldom for what it costs in memory; and where workers would share too few panels of outputs."""
    wide = next(other for other in TARGETS if other.name == "avx512")
    task = {n: convolution((1, channels, n, n), channels) for channels, n in ((512, 7), (256, 14), (64, 56))}
    found = {n: schedules_of(each, wide)[0].filters for n, each in task.items()}
    assert found == {7: "registers", 14: "lines", 56: "memory"}
    narrow = replace(wide, adds_apart=False)
    assert schedules_of(task[14], narrow)[0].filters == "memory"


def test_strips_are_cut_where_the_second_level_does_not_hold_their_inputs() -> None:
    narrow = next(other for other in TARGETS if other.name == "avx2")
    task = convolution((1, 128, 56, 56), 32)
    tiles = {}
    for kilobytes in (512, 2048):
        schedule = schedules_of(task, replace(narrow, l2_bytes=kilobytes * 1024))[0]
        tiles[kilobytes] = schedule.per_strip * schedule.tile.rows
    positions = (schedule.outputs + 2) ** 2
    assert positions * tiles[2048] * 128 * 4 <= 2048 * 1024
    assert tiles[512] < tiles[2048] / 2


def test_few_registers_have_the_next_inputs_fetched_and_filters_of_two_rows_at_a_time() -> None:
    few, many = (next(other for other in TARGETS if other.name == name) for name in ("avx2", "avx512"))
    for channels, tile, depth in ((64, 4, 64), (96, 5, 32), (256, 6, 32)):  # long forms add up fewer channels at once
        task = convolution((1, channels, 28, 28), channels)
        schedule = next(one for one in schedules_of(task, few) if one.outputs == tile)
        assert (schedule.ahead, schedule.depth, schedule.filters) == (True, depth, "pairs")
        first, *others = schedules_of(task, many)
        assert not first.ahead
        assert any(one.filters == "pairs" and one.ahead for one in others)  # for who measures
        fetching, plain = (
            by_schedule(task, few, replace(schedule, ahead=ahead)).count("@llvm.prefetch") for ahead in (True, False)
        )
        assert fetching > plain


def test_one_multiply_add_a_cycle_leaves_time_to_transform_filters_again() -> None:
    task = convolution((1, 64, 56, 56), 64)
    wide = next(other for other in TARGETS if other.name == "avx512")
    narrow = replace(wide, multiply_bits=512)
    assert schedules_of(task, wide)[0].filters == "memory"
    assert schedules_of(task, narrow)[0].filters == "registers"


@pytest.mark.parametrize(
    ("channels", "outputs", "extent", "form"), [(128, 128, 28, 6), (256, 256, 14, 4), (128, 64, 56, 4)]
)
def test_one_multiply_add_a_cycle_takes_long_tiles_where_filters_are_used_often(
    channels: int, outputs: int, extent: int, form: int
) -> None:
    """And where outputs are many: the form errs most. F(5, 3) saves little more than F(4, 3) and is slower."""
    target = replace(next(other for other in TARGETS if other.name == "avx512"), multiply_bits=512)
    every = schedules_of(convolution((1, channels, extent, extent), outputs), target)
    assert every[0].outputs == form
    assert 5 not in {one.outputs for one in every}
    in_pairs = [one for one in every if one.filters == "pairs"]
    assert in_pairs
    for schedule in in_pairs:
        assert (schedule.tile.vectors, schedule.tile.rows in SLIM_ROWS, schedule.ahead) == (1, True, True)


@pytest.mark.parametrize("extent", [28, 26, 32])
@pytest.mark.parametrize("filters", ["memory", "pairs"])
def test_one_multiply_add_a_cycle_computes_the_same(run_kernel: Any, target: Target, filters: str, extent: int) -> None:
    """Of 25 and 36 tiles, which are all whole or some of them shorter; with two workers to a strip."""
    target = replace(target, multiply_bits=target.vector_bits)
    kernel = with_outputs(6, filters)
    error = error_of(run_kernel, target, (1, 72, extent, extent), 80, kernel=kernel, workers=2)
    assert error <= of_square(6)


def test_long_forms_add_up_short_runs(run_kernel: Any, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where tiles leave registers for it; the fewer channels to a run, the less the sums round."""
    target = replace(target, multiply_bits=target.vector_bits, registers=32)
    errors = []
    for runs in (winograd_choice.RUNS, 1):
        monkeypatch.setattr(winograd_choice, "RUNS", runs)
        errors.append(error_of(run_kernel, target, (1, 256, 28, 28), 80, kernel=with_outputs(6, "pairs")))
    assert errors[0] < errors[1]


def test_dilations_pay_where_lattices_are_not_too_short() -> None:
    """On a map of 33 x 33, lattices of a dilation of 12 have three outputs a side, those of one of 24 mostly one."""
    wide = next(other for other in TARGETS if other.name == "avx512")
    near, far = (convolution((1, 256, 33, 33), 256, (d,) * 4, dilation=d) for d in (12, 24))
    assert schedules_of(near, wide)[0].outputs == 3
    assert refusal(WINOGRAD, near, wide) is None
    assert "direct" in str(refusal(WINOGRAD, far, wide))


def test_padding_alone_is_left_to_the_direct_kernel(run_kernel: Any, target: Target) -> None:
    """One pixel, and three taps a side around it that all miss it."""
    x, pads = (1, 64, 1, 1), (1, 1, 5, 5)
    assert "direct" in str(refusal(WINOGRAD, convolution(x, 64, pads, dilation=3), target))
    assert error_of(run_kernel, target, x, 64, pads, dilation=3) <= TOLERANCE


def test_dear_loads_take_wide_panels() -> None:
    plain = next(other for other in TARGETS if other.name == "avx512")
    dear = replace(plain, adds_apart=False)
    dear = dear.with_figures(overhead=OverheadFigures(load=0.24, line=0.2, finish=0.0))
    task = convolution((1, 64, 56, 56), 64)
    assert [schedules_of(task, target)[0].tile.vectors for target in (plain, dear)] == [2, 4]


def test_stride_two_over_many_channels_is_for_cores_that_add_apart() -> None:
    wide = next(other for other in TARGETS if other.name == "avx512")
    apart, together = (replace(wide, adds_apart=adds) for adds in (True, False))
    large, small = (convolution((1, 128, n, n), 128, stride=2) for n in (56, 8))
    assert refusal(WINOGRAD, large, apart) is None
    assert "direct" in str(refusal(WINOGRAD, small, apart))
    assert "units that multiply" in str(refusal(WINOGRAD, large, together))
    uneven = convolution((1, 72, 56, 56), 128, stride=2)
    assert "fill vectors" in str(refusal(WINOGRAD, uneven, apart))


@pytest.mark.parametrize("channels", [48, 512])
@pytest.mark.parametrize("tile", [3, 4, 5])
@pytest.mark.parametrize("kept", ["memory", "pairs", "registers"])
def test_error_of_stride_two(run_kernel: Any, target: Target, channels: int, tile: int, kept: str) -> None:
    assert (
        error_of(run_kernel, target, (1, channels, 17, 17), 40, stride=2, kernel=with_outputs(tile, kept)) <= TOLERANCE
    )


REFUSED = {
    "stride": ({"stride": 3}, "stride 2"),
    "many channels at stride 2": ({"stride": 2, "taps": (5, 5)}, "5 or 7 a side of few"),
    "dilation at stride 2": ({"dilation": 2, "stride": 2}, "taps a side"),
    "seven by seven": ({"taps": (7, 7)}, "taps a side"),
    "one tap": ({"taps": (1, 1)}, "taps a side"),
    "two taps": ({"taps": (2, 3)}, "taps a side"),
    "groups": ({"group": 2}, "ungrouped"),
    "planar": ({"planar_input": True}, "side by side"),
    "prologue": ({"prologue": True}, "on the way in"),
    "double": ({"dtype": FLOAT64}, "float32"),
}


@pytest.mark.parametrize("options, reason", REFUSED.values(), ids=REFUSED)
def test_refusals_say_why(target: Target, options: dict[str, Any], reason: str) -> None:
    assert reason in str(refusal(WINOGRAD, convolution((1, 64, 56, 56), 64, **options), target))


def test_accepts_where_it_pays(target: Target) -> None:
    task = convolution((1, 64, 56, 56), 64)
    assert refusal(WINOGRAD, task, target) is None
    assert "order" in str(refusal(WINOGRAD, replace(task, exact=True), target))
    assert "channels" in str(refusal(WINOGRAD, convolution((1, 3, 56, 56), 64), target))
    assert "direct" in str(refusal(WINOGRAD, convolution((1, 512, 2, 2), 512), target))


@pytest.mark.parametrize("name, sizes", [("avx2", {56: 6, 14: 5, 9: 3, 7: 4}), ("avx512", {56: 4, 9: 3, 7: 4})])
def test_the_scheme_suits_the_extent(name: str, sizes: dict[int, int]) -> None:
    machine = next(other for other in TARGETS if other.name == name)
    for extent, tile in sizes.items():
        assert schedules_of(convolution((1, 256, extent, extent), 256), machine)[0].outputs == tile, extent


def test_the_least_exact_forms_are_for_wide_convolutions() -> None:
    narrow = next(other for other in TARGETS if other.name == "avx2")
    for outputs, allowed in ((64, False), (72, True)):
        every = schedules_of(convolution((1, 64, 56, 56), outputs), narrow)
        assert any(one.outputs in (5, 6) for one in every) == allowed


def test_few_registers_have_wide_tiles_where_rows_would_be_wasted() -> None:
    """And their sums never leave the registers: no block of the reduction touches the stack."""
    narrow = next(other for other in TARGETS if other.name == "avx2")
    for extent, rows, vectors in ((14, 3, 4), (28, 5, 2)):  # 9 tiles of F(5, 3), 25 of F(6, 3)
        task = convolution((1, 256, extent, extent), 256)
        chosen = schedules_of(task, narrow)[0]
        assert (chosen.tile.rows, chosen.tile.vectors) == (rows, vectors)
        code = compile_assembly(by_schedule(task, narrow, chosen), narrow)
        blocks = [block for block in re.split(r"^\.L\w+:", code, flags=re.MULTILINE) if "prefetch" in block]
        sums = [
            block for block in blocks if block.count("vfmadd231ps") % (rows * vectors) == 0 and "vfmadd231ps" in block
        ]
        assert sums
        assert not any("ymm" in line and "%rsp" in line for block in sums for line in block.splitlines())


@pytest.mark.parametrize("step", [0, -1])
def test_refuses_columns_that_do_not_follow_each_other(target: Target, step: int) -> None:
    task = convolution((1, 3, 224, 224), 64, (3, 3, 3, 3), taps=(7, 7), stride=2, planar_input=True)
    assert refusal(WINOGRAD, task, target) is None
    data, *others = task.operands
    turned = replace(data, strides=(*data.strides[:3], step))
    assert "columns" in str(refusal(WINOGRAD, replace(task, operands=(turned, *others)), target))


def test_refuses_weights_that_vary(target: Target) -> None:
    task = convolution((1, 64, 56, 56), 64)
    varying = tuple(replace(operand, constant=False) for operand in task.operands)
    assert "constant" in str(refusal(WINOGRAD, replace(task, operands=varying), target))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("other", TARGETS, ids=lambda t: t.name)
def test_code_for_every_machine_is_valid(other: Target, stride: int) -> None:
    task = convolution((1, 64, 15, 15), 72, epilogue="residual", stride=stride)
    text = compile_assembly(text_of(way(EVERYWHERE, task, other), other.instructions, "kernel"), other)
    fused = "fmla" if other.name == "neon" else "vfmadd"
    assert (fused in text) == other.fma


def test_places_of_inputs_that_a_worker_transforms_once_are_fetched() -> None:
    """Where one multiply-add begins in a cycle, and filters are in memory."""
    wide = next(other for other in TARGETS if other.name == "avx512")
    task = convolution((1, 128, 28, 28), 128)

    narrow = replace(wide, multiply_bits=512)
    every = schedules_of(task, replace(narrow, workers=64))
    assert {one.filters for one in every if one.fetches_inputs} == {one.filters for one in every} & set(IN_MEMORY)
    assert {one.filters for one in every} > {"pairs", "registers"}
    assert not any(one.fetches_inputs for one in schedules_of(task, replace(wide, workers=64)))
    large = convolution((1, 128, 56, 56), 128)  # does not fit one strip
    assert not any(one.fetches_inputs for one in schedules_of(large, replace(narrow, workers=1)))
    for schedule in (one for one in every if one.filters in IN_MEMORY):
        fetching, plain = (
            by_schedule(task, narrow, replace(schedule, fetches_inputs=fetches)).count("call void @llvm.prefetch")
            for fetches in (True, False)
        )
        assert fetching > plain


@pytest.mark.parametrize("stride", [1, 2])
def test_outputs_that_leave_the_caches_are_fetched_before_they_are_written(
    run_kernel: Any, target: Target, stride: int
) -> None:
    x, pads, options = (1, 16, 210, 333), (1, 1, 1, 1), {}
    if stride > 1:
        x, pads, options = (1, 3, 419, 666), (3, 3, 3, 3), {"taps": (7, 7), "stride": 2, "planar_input": True}
    task = convolution(x, 64, pads, **options)
    schedule, roomy = schedules_of(task, target)[0], replace(target, l2_bytes=1 << 40)
    assert schedule.far.results
    assert not any(one.far.results for one in schedules_of(task, roomy))
    fetching, plain = (
        by_schedule(task, target, replace(schedule, far=far)).count("call void @llvm.prefetch")
        for far in (schedule.far, Far())
    )
    assert fetching > plain
    tolerance = STRIDED[5, 7] if stride > 1 else of_square(schedule.outputs)
    assert error_of(run_kernel, target, x, 64, pads, workers=3, **options) <= tolerance
