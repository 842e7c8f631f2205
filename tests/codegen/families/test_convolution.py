"""Convolutions of random geometry against PyTorch, through every kernel that accepts them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.codegen.subjects import UNIT_KERNELS
from tests.codegen.ways import refusal, scheduled, text_of, way, ways
from tests.machines import runnable

from fusewise.codegen.candidates import CONV
from fusewise.codegen.families.convolution.direct import DIRECT
from fusewise.codegen.families.convolution.plan import Directs, DirectSchedule
from fusewise.codegen.families.convolution.scaled import SCALED
from fusewise.codegen.families.convolution.transposed import CONV_TRANSPOSE
from fusewise.codegen.families.product.plan import ProductSchedule, prefetched
from fusewise.codegen.kernel import Kernel
from fusewise.codegen.machine.figures import OverheadFigures
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.target import TARGETS, Target
from fusewise.ir.dtypes import FLOAT16, FLOAT32, FLOAT64, INT64, DType
from fusewise.ir.types import TensorType
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.ops.expr import Expr, binary, const, index, load, unary
from fusewise.runtime.jit import compile_assembly

TOLERANCE = 1e-5
"""Largest difference, relative to the largest value, between two orders of float32 summation."""


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides))


def strides_of(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Strides of a logical N, C, ... tensor stored channels last or as it is."""
    if layout == "planar":
        return dense(shape)
    stored = dense((shape[0], *shape[2:], shape[1]))
    return (stored[0], stored[-1], *stored[1:-1])


def buffer_of(array: np.ndarray, layout: str) -> np.ndarray:
    return np.ascontiguousarray(array if layout == "planar" else np.moveaxis(array, 1, -1))


def bare(name: str, dtype: DType, rank: int, prefix: str = "p") -> Expr:
    return load(name, dtype, tuple(index(f"{prefix}{k}") for k in range(rank)))


def convolution(
    op: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    out: tuple[int, ...],
    attributes: dict[str, Any],
    *,
    bias: bool = True,
    layout: str = "last",
    out_layout: str = "last",
    epilogue: str = "none",
    prologue: str = "none",
    dtype: DType = FLOAT32,
) -> Task:
    """A task with a convolution at its anchor: in0 data, in2 their gate, const0 weights, const1 bias, in1 residual, out0 result."""
    rank = len(x)
    operands = [
        Operand("in0", dtype, x, strides_of(x, layout)),
        Operand("const0", dtype, w, dense(w), constant=True),
    ]
    kinds: list[TensorType | None] = [TensorType(dtype, x), TensorType(dtype, w)]
    first = bare("in0", dtype, rank)
    if prologue == "relu":
        first = binary("max", first, const(0.0, dtype))
    if prologue == "gate":
        operands.append(
            Operand("in2", dtype, (*x[:2], *(1,) * (rank - 2)), strides_of((*x[:2], *(1,) * (rank - 2)), "last"))
        )
        nowhere = (const(0, INT64),) * (rank - 2)
        first = first * load("in2", dtype, (index("p0"), index("p1"), *nowhere))
    elements: list[Expr | None] = [first, bare("const0", dtype, rank)]
    channels = out[1]
    if bias:
        operands.append(Operand("const1", dtype, (channels,), (1,), constant=True))
        kinds.append(TensorType(dtype, (channels,)))
        elements.append(bare("const1", dtype, 1))
    at = tuple(index(f"i{k}") for k in range(rank))
    value = load(ACC, dtype, at)
    if epilogue == "residual":
        operands.append(Operand("in1", dtype, out, strides_of(out, out_layout)))
        value = binary("max", value + load("in1", dtype, at), const(0.0, dtype))
    if epilogue == "swish":
        value = value * unary("sigmoid", value)
        value = value * unary("sigmoid", value)
    operands.append(Operand("out0", dtype, out, strides_of(out, out_layout)))
    anchor = Anchor(op, "conv", tuple(attributes.items()), tuple(kinds), tuple(elements), TensorType(dtype, out))
    return Task(out, tuple(operands), (Store("out0", at, value),), anchor)


def finished(value: np.ndarray, epilogue: str, residual: np.ndarray) -> np.ndarray:
    if epilogue == "residual":
        return np.maximum(value + residual, 0)
    if epilogue == "swish":
        once = value / (1 + np.exp(-value))
        return once / (1 + np.exp(-once))
    return value


def check(
    run_kernel: Any,
    kernels: tuple[Kernel, ...],
    target: Target,
    op: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    attributes: dict[str, Any],
    reference: Any,
    *,
    workers: int = 2,
    dtype: DType = FLOAT32,
    tolerance: float = TOLERANCE,
    most: int = 1,
    **options: Any,
) -> None:
    """Run every kernel that accepts, by so many of its schedules, and compare with `reference(data, weights, bias)`."""
    import torch

    rng = np.random.default_rng(7)
    data = rng.standard_normal(x).astype(dtype.numpy)
    weights = (rng.standard_normal(w) / max(1, np.prod(w[1:])) ** 0.5).astype(dtype.numpy)
    groups = attributes.get("group", 1)
    channels = w[0] if op == "Conv" else w[1] * groups
    bias = rng.standard_normal(channels).astype(dtype.numpy)
    gate = rng.uniform(0, 1, (*x[:2], *(1,) * (len(x) - 2))).astype(dtype.numpy)
    before = {"relu": lambda: np.maximum(data, 0), "gate": lambda: data * gate}
    seen = before.get(options.get("prologue", "none"), lambda: data)()
    wanted = [torch.from_numpy(a.astype(np.float64)) for a in (seen, weights, bias)]
    expected = reference(wanted[0], wanted[1], wanted[2] if options.get("bias", True) else None).numpy()
    residual = rng.standard_normal(expected.shape).astype(dtype.numpy)
    expected = finished(expected, options.get("epilogue", "none"), residual)
    task = convolution(op, x, w, expected.shape, attributes, dtype=dtype, **options)
    out_layout = options.get("out_layout", "last")
    accepted = [kernel for kernel in kernels if refusal(kernel, task, target) is None]
    assert accepted, [str(refusal(kernel, task, target)) for kernel in kernels]
    for one in (one for kernel in accepted for one in ways(kernel, task, target, most)):
        arrays = {
            "in0": buffer_of(data, options.get("layout", "last")),
            "const0": weights,
            "const1": bias,
            "in1": buffer_of(residual, out_layout),
            "in2": buffer_of(gate, "last"),
            "out0": np.full(buffer_of(expected, out_layout).shape, np.nan, dtype.numpy),
        }
        for argument in one.arguments:
            if argument.packing is not None:
                arrays[argument.name] = argument.packing.pack(arrays[argument.name])
        run_kernel(one.kernel, task, arrays, workers=workers, schedule=one.schedule, machine=target)
        found = arrays["out0"] if out_layout == "planar" else np.moveaxis(arrays["out0"], -1, 1)
        scale = max(float(np.abs(expected).max(initial=0)), 1e-30)
        error = float(np.abs(found - expected).max(initial=0)) / scale
        assert error <= tolerance, (one.kernel.name, one.schedule, error)


def correlate(attributes: dict[str, Any]) -> Any:
    """PyTorch's convolution with ONNX's attributes, uneven padding included."""

    def run(data: Any, weights: Any, bias: Any) -> Any:
        import torch
        from torch.nn import functional

        rank = data.ndim - 2
        pads = attributes["pads"]
        uneven = [p for d in reversed(range(rank)) for p in (pads[d], pads[rank + d])]
        convolve = (torch.conv1d, torch.conv2d, torch.conv3d)[rank - 1]
        return convolve(
            functional.pad(data, uneven),
            weights,
            bias,
            attributes["strides"],
            0,
            attributes["dilations"],
            attributes["group"],
        )

    return run


@st.composite
def geometries(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    rank = draw(st.integers(1, 3))
    groups = draw(st.sampled_from((1, 1, 1, 2, 3, 8, 16)))
    inputs = draw(st.sampled_from((1, 2, 3, 4, 5, 8)))
    outputs = draw(st.sampled_from((1, 2, 3, 4, 7, 8, 9, 17)))
    if groups > 3:
        outputs = draw(st.sampled_from((inputs, inputs, 1, 3)))
    axis = st.tuples(
        st.integers(1, 11 if rank < 3 else 6),
        st.integers(1, 4),
        st.integers(1, 3),
        st.integers(1, 3),
        st.integers(0, 3),
        st.integers(0, 3),
    )
    axes = [draw(axis) for _ in range(rank)]
    for extent, kernel, _, dilation, before, after in axes:
        assume(extent + before + after >= (kernel - 1) * dilation + 1)
    attributes = {
        "strides": tuple(a[2] for a in axes),
        "dilations": tuple(a[3] for a in axes),
        "pads": (*(a[4] for a in axes), *(a[5] for a in axes)),
        "group": groups,
    }
    batch = draw(st.integers(0, 2))
    extents, kernel = tuple(a[0] for a in axes), tuple(a[1] for a in axes)
    return (batch, groups * inputs, *extents), (groups * outputs, inputs, *kernel), attributes


FEW = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much, HealthCheck.too_slow],
)


@FEW
@given(
    geometry=geometries(),
    layout=st.sampled_from(("last", "last", "planar")),
    out_layout=st.sampled_from(("last", "last", "planar")),
    epilogue=st.sampled_from(("none", "residual", "swish")),
    prologue=st.sampled_from(("none", "none", "none", "relu", "gate")),
    bias=st.booleans(),
    workers=st.integers(1, 5),
)
def test_random_geometry_agrees_with_torch(
    run_kernel: Any, target: Target, geometry: Any, workers: int, **options: Any
) -> None:
    x, w, attributes = geometry
    check(run_kernel, CONV, target, "Conv", x, w, attributes, correlate(attributes), workers=workers, **options)


@FEW
@given(
    geometry=geometries(),
    layout=st.sampled_from(("last", "planar")),
    out_layout=st.sampled_from(("last", "planar")),
    workers=st.integers(1, 5),
)
def test_a_residual_that_is_fetched(
    run_kernel: Any, target: Target, geometry: Any, workers: int, **options: Any
) -> None:
    x, w, attributes = geometry
    small, reference = replace(target, l2_bytes=256), correlate(attributes)
    check(run_kernel, CONV, small, "Conv", x, w, attributes, reference, workers=workers, epilogue="residual", **options)


def test_residuals_beyond_the_second_level_are_fetched(target: Target) -> None:
    attributes = {"strides": (1, 1), "dilations": (1, 1), "pads": (0,) * 4, "group": 1}
    task = convolution("Conv", (1, 32, 8, 8), (32, 32, 1, 1), (1, 32, 8, 8), attributes, epilogue="residual")
    plain = convolution("Conv", (1, 32, 8, 8), (32, 32, 1, 1), (1, 32, 8, 8), attributes)

    def fetches(task: Task, l2_bytes: int) -> int:
        machine = replace(target, l2_bytes=l2_bytes)
        text = text_of(way(DIRECT, task, machine), machine.instructions, "k")
        return text.count("call void @llvm.prefetch")

    assert fetches(task, 4096) > fetches(plain, 4096)
    assert fetches(task, 8192) == fetches(plain, 8192), "8 KB of residual fit"


def test_pixels_of_a_large_map_are_fetched_by_the_tile_before(target: Target) -> None:
    """Where all channels of a pixel, and then the next one's, follow each other."""

    def mapped(stride: int) -> Task:
        attributes = {"strides": (stride,) * 2, "dilations": (1, 1), "pads": (0,) * 4, "group": 1}
        return convolution("Conv", (1, 32, *(8 * stride,) * 2), (32, 32, 1, 1), (1, 32, 8, 8), attributes)

    def machine(l2_bytes: int) -> Target:
        return replace(target, l2_bytes=l2_bytes, workers=64)

    cut = way(DIRECT, mapped(1), target).schedule

    def fetches(l2_bytes: int, stride: int = 1) -> int:
        """Of the map cut as for the target, where so much is near."""
        task = mapped(stride)
        one = scheduled(DIRECT, task, target, cut)
        product = prefetched(cut.product, one.understood[0].product, task, machine(l2_bytes))
        text = text_of(replace(one, schedule=replace(cut, product=product)), target.instructions, "k")
        return text.count("call void @llvm.prefetch")

    nbytes = 32 * 8 * 8 * 4
    own = [way(DIRECT, mapped(1), machine(l2_bytes)).schedule.product for l2_bytes in (8 * nbytes - 1, 8 * nbytes)]
    assert [schedule.next_rows for schedule in own] == [True, False]
    assert fetches(8 * nbytes - 1) > fetches(8 * nbytes)
    assert fetches(8 * nbytes - 1, stride=2) == fetches(8 * nbytes, stride=2)


@FEW
@given(
    channels=st.integers(1, 70),
    outputs=st.integers(1, 40),
    side=st.integers(8, 15),
    stride=st.integers(1, 2),
    rank=st.integers(1, 2),
    epilogue=st.sampled_from(("none", "residual", "swish")),
    workers=st.integers(1, 5),
)
def test_maps_times_a_number_for_each_channel(
    run_kernel: Any, target: Target, channels: int, outputs: int, side: int, stride: int, rank: int, **options: Any
) -> None:
    """Weights are scaled in place of the map, where there are fewer, for one sample, and where a rounding may change."""
    sides, strides = ((side, side), (stride, stride)) if rank == 2 else ((side * side,), (stride * stride,))
    attributes = {"strides": strides, "dilations": (1,) * rank, "pads": (0,) * 2 * rank, "group": 1}
    x, w = (1, channels, *sides), (outputs, channels, *(1,) * rank)
    check(run_kernel, CONV, target, "Conv", x, w, attributes, correlate(attributes), prologue="gate", **options)
    out = (1, outputs, *(-(-extent // step) for extent, step in zip(sides, strides, strict=True)))
    task = convolution("Conv", x, w, out, attributes, prologue="gate")
    few = np.prod(out[2:]) < target.figures.ways.scaled_pixels * outputs
    assert (refusal(SCALED, task, target) is not None) == few
    assert refusal(SCALED, replace(task, exact=True), target) is not None
    two = convolution("Conv", (2, *x[1:]), w, (2, *out[1:]), attributes, prologue="gate")
    assert refusal(SCALED, two, target) is not None


ONE_A_CYCLE = [
    replace(machine, multiply_bits=machine.vector_bits).with_figures(overhead=OverheadFigures())
    for machine in runnable()
    if machine.fma
]
"""Machines with fused multiply-adds, if they began one of their widest vectors in a cycle and loads cost what they mostly do."""


@pytest.mark.parametrize("target", ONE_A_CYCLE, ids=lambda target: f"{target.name} one a cycle")
@pytest.mark.parametrize(("halves", "groups", "side"), [(3, 1, 9), (5, 1, 7), (1, 4, 9), (3, 2, 6)])
@pytest.mark.parametrize("epilogue", ["none", "residual", "swish"])
def test_half_vectors_where_they_multiply_as_fast(
    run_kernel: Any, target: Target, halves: int, groups: int, side: int, epilogue: str
) -> None:
    """Channels of an odd number of half vectors, in groups or not."""
    half = target.lanes // 2
    channels = halves * half
    attributes = {"strides": (1, 1), "dilations": (1, 1), "pads": (1, 1, 1, 1), "group": groups}
    x, w = (2, groups * channels, side, side), (groups * channels, channels, 3, 3)
    task = convolution("Conv", x, w, x, attributes)
    assert way(DIRECT, task, target).schedule.product.tile.lanes == half
    check(run_kernel, (DIRECT,), target, "Conv", x, w, attributes, correlate(attributes), epilogue=epilogue)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("layout", ["last", "planar"])
@pytest.mark.parametrize("more", [0, 1])
def test_every_way_stays_inside_its_operands(
    run_kernel: Any, target: Target, groups: int, layout: str, more: int
) -> None:
    """Whichever tile a machine does best with: as many channels as fill an odd number of vectors, and one more."""
    attributes = {"strides": (1, 1), "dilations": (1, 1), "pads": (1, 0, 1, 2), "group": groups}
    x, w = (1, groups * 3, 5, 6), (groups * (3 * target.lanes + more), 3, 3, 2)
    check(run_kernel, CONV, target, "Conv", x, w, attributes, correlate(attributes), layout=layout, most=4)


def test_slices_of_padding_read_no_input(run_kernel: Any, target: Target) -> None:
    """One tap along the first of three axes, which is padded, and several along the last."""
    attributes = {"strides": (1, 1, 1), "dilations": (1, 1, 1), "pads": (1, 0, 0, 2, 0, 2), "group": 1}
    x, w = (1, 1, 2, 3, 4), (1, 1, 1, 1, 2)
    check(run_kernel, CONV, target, "Conv", x, w, attributes, correlate(attributes), bias=False)


@FEW
@given(geometry=geometries(), layout=st.sampled_from(("last", "planar")), data=st.data(), workers=st.integers(1, 3))
def test_random_transposed_geometry_agrees_with_torch(
    run_kernel: Any, target: Target, geometry: Any, layout: str, data: st.DataObject, workers: int
) -> None:
    x, w, attributes = geometry
    rank, groups = len(x) - 2, attributes["group"]
    pads = tuple(
        min(p, (k - 1) * d) for p, k, d in zip(attributes["pads"], w[2:], attributes["dilations"], strict=False)
    )
    dilations = tuple(1 if s > 1 else d for s, d in zip(attributes["strides"], attributes["dilations"], strict=True))
    pads = tuple(min(p, (k - 1) * d) for p, k, d in zip(pads, w[2:], dilations, strict=True))
    extra = tuple(data.draw(st.integers(0, s - 1)) for s in attributes["strides"])
    extents = [
        (e - 1) * s + (k - 1) * d + 1 + a - 2 * p
        for e, s, k, d, a, p in zip(x[2:], attributes["strides"], w[2:], dilations, extra, pads, strict=True)
    ]
    assume(all(extent > 0 for extent in extents))
    weights = (x[1], w[0] // groups, *w[2:])
    given_attributes = {
        "strides": attributes["strides"],
        "dilations": dilations,
        "pads": (*pads, *pads),
        "output_padding": extra,
        "group": groups,
    }

    def reference(values: Any, kernel: Any, bias: Any) -> Any:
        import torch

        if values.shape[0] == 0:
            return torch.zeros((0, weights[1] * groups, *extents), dtype=values.dtype)
        spread = (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)[rank - 1]
        return spread(values, kernel, bias, attributes["strides"], pads, extra, groups, dilations)

    check(
        run_kernel,
        CONV_TRANSPOSE,
        target,
        "ConvTranspose",
        x,
        weights,
        given_attributes,
        reference,
        layout=layout,
        workers=workers,
    )


LARGE = [
    ((1, 24, 30, 30), (40, 24, 3, 3), 1, 1, 1, "last"),
    ((1, 3, 61, 47), (33, 3, 7, 7), 2, 3, 1, "planar"),
    ((2, 16, 9, 9), (64, 16, 1, 1), 2, 0, 1, "last"),
    ((1, 64, 14, 14), (64, 4, 3, 3), 1, 1, 16, "last"),
    ((1, 48, 23, 23), (48, 1, 5, 5), 2, 2, 48, "last"),
    ((1, 20, 33, 33), (20, 1, 7, 7), 1, 3, 20, "last"),
]


@pytest.mark.parametrize("x, w, stride, pad, groups, layout", LARGE)
@pytest.mark.parametrize("workers", [1, 3])
def test_blocks_strips_and_panels_meet(
    run_kernel: Any, target: Target, x: Any, w: Any, stride: int, pad: int, groups: int, layout: str, workers: int
) -> None:
    attributes = {"strides": (stride,) * 2, "dilations": (1, 1), "pads": (pad,) * 4, "group": groups}
    reference = correlate(attributes)
    check(run_kernel, CONV, target, "Conv", x, w, attributes, reference, layout=layout, workers=workers)


SPARSE = [
    ((2, 20, 9, 11), (24, 20, 3, 3), (1, 1), (6, 5), (6, 5), 1),
    ((1, 16, 5, 5), (9, 16, 3, 3), (2, 1), (9, 7), (8, 7), 1),
    ((1, 32, 6, 6), (32, 16, 3, 3), (1, 1), (7, 7), (7, 7), 2),
    ((1, 16, 30), (8, 16, 3), (1,), (40,), (40,), 1),
    ((2, 8, 5, 4, 4), (16, 8, 3, 1, 1), (1, 1, 1), (1, 0, 0), (1, 1, 1), 1),
    ((1, 8, 7, 4, 4), (16, 8, 3, 2, 2), (2, 1, 1), (4, 0, 0), (2, 1, 1), 1),
    ((1, 16, 2, 5, 5), (16, 16, 3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), 1),
]


@pytest.mark.parametrize("x, w, strides, pads, dilations, groups", SPARSE)
def test_taps_outside_the_input_are_skipped(
    run_kernel: Any, target: Target, x: Any, w: Any, strides: Any, pads: Any, dilations: Any, groups: int
) -> None:
    attributes = {"strides": strides, "dilations": dilations, "pads": (*pads, *pads), "group": groups}
    for workers in (1, 3):
        check(run_kernel, CONV, target, "Conv", x, w, attributes, correlate(attributes), workers=workers)


@pytest.mark.parametrize("dtype, tolerance", [(FLOAT64, 1e-13), (FLOAT16, 2e-3)])
def test_other_float_types(run_kernel: Any, target: Target, dtype: DType, tolerance: float) -> None:
    attributes = {"strides": (1, 1), "dilations": (1, 1), "pads": (1, 1, 1, 1), "group": 1}
    x, w = (1, 12, 8, 9), (10, 12, 3, 3)
    check(
        run_kernel,
        CONV,
        target,
        "Conv",
        x,
        w,
        attributes,
        correlate(attributes),
        dtype=dtype,
        tolerance=tolerance,
        epilogue="residual",
    )


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("tiles", [2, 3, 7])
@pytest.mark.parametrize("pads", [0, 1])
def test_every_tile_has_one_worker(run_kernel: Any, target: Target, workers: int, tiles: int, pads: int) -> None:
    """Blocks of two sizes, panels cut between workers, and more workers than tiles."""
    attributes = {"strides": (1, 1), "dilations": (1, 1), "pads": (pads,) * 4, "group": 1}
    kernel = 1 + 2 * pads
    x, w = (2, 5, 10, 10), (5 * target.lanes, 5, kernel, kernel)

    def schedules(directs: Directs, task: Task, target: Target) -> list[DirectSchedule]:
        schedule = ProductSchedule(Tile(5, 1, target.lanes), per_block=tiles, by_columns=False)
        return [DirectSchedule(prefetched(schedule, directs[0].product, task, target))]

    chosen = replace(DIRECT, schedules=schedules)
    check(run_kernel, (chosen,), target, "Conv", x, w, attributes, correlate(attributes), workers=workers)


@settings(max_examples=7, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    extents=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    taps=st.tuples(st.integers(2, 5), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    inputs=st.integers(1, 9),
    outputs=st.integers(1, 70),
    split=st.sampled_from(("columns", "blocks")),
    prologue=st.sampled_from(("none", "relu")),
    epilogue=st.sampled_from(("none", "residual", "swish")),
    workers=st.integers(1, 5),
)
def test_reduction_in_chunks(
    run_kernel: Any,
    target: Target,
    extents: tuple[int, int],
    taps: tuple[int, int],
    strides: tuple[int, int],
    inputs: int,
    outputs: int,
    split: str,
    **options: Any,
) -> None:
    """A row of taps at a time; the padded rows are prepared once, and the sums wait in memory."""
    attributes = {"strides": strides, "dilations": (1, 1), "pads": (taps[0], 1, taps[0], 2), "group": 1}

    def schedules(directs: Directs, task: Task, target: Target) -> list[DirectSchedule]:
        plain = next(schedule for schedule in DIRECT.schedules(directs, task, target) if not schedule.sliding)
        tiles = math.ceil(math.prod(task.extents[2:]) / plain.product.tile.rows)
        product = replace(plain.product, per_block=tiles, by_columns=split == "columns", chunk=inputs * taps[1])
        return [replace(plain, product=prefetched(product, directs[0].product, task, target))]

    chosen = replace(DIRECT, schedules=schedules)
    x, w = (1, inputs, *extents), (outputs, inputs, *taps)
    check(run_kernel, (chosen,), target, "Conv", x, w, attributes, correlate(attributes), **options)


@settings(max_examples=13, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    extents=st.tuples(st.integers(1, 9), st.sampled_from((4, 6, 7, 8, 14))),
    taps=st.tuples(st.integers(1, 4), st.integers(2, 4)),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    group=st.sampled_from(((4, 4), (8, 8), (16, 16), (32, 32), (24, 20), (16, 3))),
    groups=st.sampled_from((1, 2, 4, 8)),
    batch=st.integers(1, 2),
    split=st.sampled_from(("columns", "blocks")),
    prologue=st.sampled_from(("none", "relu")),
    epilogue=st.sampled_from(("none", "residual", "swish")),
    workers=st.integers(1, 3),
)
def test_tiles_that_slide_along_a_row(
    run_kernel: Any,
    target: Target,
    extents: tuple[int, int],
    taps: tuple[int, int],
    dilations: tuple[int, int],
    group: tuple[int, int],
    groups: int,
    batch: int,
    split: str,
    **options: Any,
) -> None:
    """Each input is read once for all taps of a row, by groups that fill a vector alone or side by side, or by the only one."""
    (inputs, outputs), reach = group, (taps[1] - 1) * dilations[1]
    attributes = {
        "strides": (1, 1),
        "dilations": dilations,
        "pads": (1, reach, (taps[0] - 1) * dilations[0], 0),
        "group": groups,
    }

    def schedules(directs: Directs, task: Task, target: Target) -> list[DirectSchedule]:
        every = list(DIRECT.schedules(directs, task, target))
        by_columns = split == "columns"
        found = [replace(s, product=replace(s.product, by_columns=by_columns)) for s in every if s.sliding]
        return found or every

    x, w = (batch, groups * inputs, *extents), (groups * outputs, inputs, *taps)
    check(
        run_kernel,
        (replace(DIRECT, schedules=schedules),),
        target,
        "Conv",
        x,
        w,
        attributes,
        correlate(attributes),
        **options,
    )


@pytest.mark.parametrize(
    "name, inputs, outputs, groups",
    [
        ("avx2", 4, 4, 32),
        ("avx2", 8, 8, 32),
        ("avx2", 24, 8, 1),
        ("avx512", 4, 4, 32),
        ("avx512", 8, 8, 32),
        ("avx512", 16, 16, 32),
        ("avx512", 24, 8, 1),
    ],
)
def test_narrow_convolutions_slide(name: str, inputs: int, outputs: int, groups: int) -> None:
    machine = next(other for other in TARGETS if other.name == name)
    attributes = {"strides": (1, 1), "dilations": (1, 1), "pads": (1, 1, 1, 1), "group": groups}
    x, w, y = (1, groups * inputs, 14, 14), (groups * outputs, inputs, 3, 3), (1, groups * outputs, 14, 14)
    assert way(DIRECT, convolution("Conv", x, w, y, attributes), machine).schedule.sliding
    halved = {**attributes, "strides": (2, 2)}
    task = convolution("Conv", x, w, (1, groups * outputs, 7, 7), halved)
    assert not way(DIRECT, task, machine).schedule.sliding


@pytest.mark.parametrize("outputs, depth", [(512, 1536), (128, 0)])
def test_long_panels_that_all_tiles_share_are_reduced_in_chunks(outputs: int, depth: int) -> None:
    wide = next(other for other in TARGETS if other.name == "avx512")
    wide = wide.with_figures(overhead=OverheadFigures(0.24, 0.2, 0.0))
    attributes = {"strides": (2, 2), "dilations": (1, 1), "pads": (1, 1, 1, 1), "group": 1}
    task = convolution("Conv", (1, outputs, 14, 14), (outputs, outputs, 3, 3), (1, outputs, 7, 7), attributes)
    assert way(DIRECT, task, wide).schedule.product.chunk == depth


def test_every_schedule_gives_the_same_answer(run_kernel: Any, target: Target) -> None:
    attributes = {"strides": (1, 1), "dilations": (1, 1), "pads": (1, 1, 1, 1), "group": 1}
    x, w = (1, 10, 11, 13), (26, 10, 3, 3)
    task = convolution("Conv", x, w, (1, 26, 11, 13), attributes)
    for one in ways(DIRECT, task, target):
        chosen = Kernel(DIRECT.name, DIRECT.understand, lambda *_, s=one.schedule: [s], DIRECT.arguments, DIRECT.build)
        check(run_kernel, (chosen,), target, "Conv", x, w, attributes, correlate(attributes))


@pytest.mark.parametrize("other", TARGETS, ids=lambda t: t.name)
def test_code_for_every_machine_is_valid(other: Target) -> None:
    for x, w, groups in (
        ((1, 24, 9, 9), (40, 24, 3, 3), 1),
        ((1, 32, 9, 9), (32, 1, 3, 3), 32),
        ((1, 32, 9, 9), (32, 4, 3, 3), 8),
    ):
        attributes = {"strides": (1, 1), "dilations": (1, 1), "pads": (1, 1, 1, 1), "group": groups}
        task = convolution("Conv", x, w, (1, w[0], 9, 9), attributes, epilogue="residual")
        one = way(next(kernel for kernel in CONV if refusal(kernel, task, other) is None), task, other)
        text = compile_assembly(text_of(one, other.instructions, "kernel"), other, one.level)
        fused = "fmla" if other.name == "neon" else "vfmadd"
        assert (fused in text) == other.fma


def test_refusals_say_why(target: Target) -> None:
    attributes = {"strides": (1, 1), "dilations": (1, 1), "pads": (1, 1, 1, 1), "group": 1}
    task = convolution("Conv", (1, 4, 5, 5), (4, 4, 3, 3), (1, 4, 5, 5), attributes)
    varying = Task(
        task.extents,
        tuple(Operand(o.name, o.dtype, o.shape, o.strides) for o in task.operands),
        task.stores,
        task.anchor,
    )
    kernels = [kernel for kernel in CONV if kernel not in UNIT_KERNELS]
    assert {str(refusal(kernel, varying, target)) for kernel in kernels} == {"weights are not constant (const0)"}
