"""Instance and group normalisation with channels last, against ONNX's reference evaluator in float64."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.codegen.ways import refusal, text_of, way

from fusewise.codegen.families.normalization.pixels import CHANNEL_NORM
from fusewise.codegen.target import TARGETS, Target
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.ops.evaluate import evaluate
from fusewise.ops.expr import binary, index, load
from fusewise.runtime.jit import compile_assembly

Shape = tuple[int, ...]


def normalisation(shape: Shape, groups: int | None, channels_last: bool = True, fused: bool = False) -> Task:
    """Of x by scale s and bias b into y, of channels or of so many groups; fused with a sum before and a Relu behind."""
    rank, channels = len(shape), shape[1]
    order = (0, *range(2, rank), 1) if channels_last else tuple(range(rank))
    strides = [0] * rank
    for k, axis in enumerate(order):
        strides[axis] = math.prod(shape[other] for other in order[k + 1 :])
    images = [Operand(name, FLOAT32, shape, tuple(strides)) for name in "xy"]
    vectors = [Operand(name, FLOAT32, (channels,), (1,)) for name in "sb"]
    x = load("x", FLOAT32, tuple(index(f"p{k}") for k in range(rank)))
    reads = (binary("add", x, x) if fused else x, *(load(name, FLOAT32, (index("p0"),)) for name in "sb"))
    attributes = attributes_of(epsilon=1e-3) if groups is None else attributes_of(epsilon=1e-3, num_groups=groups)
    kinds = tuple(TensorType(FLOAT32, kind) for kind in (shape, (channels,), (channels,)))
    op, family = ("InstanceNormalization", "instance_norm") if groups is None else ("GroupNormalization", "group_norm")
    at = tuple(index(f"i{k}") for k in range(rank))
    acc = load(ACC, FLOAT32, at)
    store = Store("y", at, binary("max", acc, 0) if fused else acc)
    return Task(shape, (*images, *vectors), (store,), Anchor(op, family, attributes, kinds, reads, kinds[0]))


def difference(run_kernel: Any, task: Task, x: np.ndarray, workers: int, schedule: Any = None) -> float:
    """The largest, of the largest result."""
    assert task.anchor is not None
    rng = np.random.default_rng(1)
    s, b = (rng.standard_normal(x.shape[1]).astype(np.float32) for _ in range(2))
    is_fused = task.stores[0].value.op == "max"
    # The evaluator takes a group's statistics in float32 unless told otherwise, whatever it is given: of two channels to a group,
    # one pixel and a variance of 5e-4 it is then off by 1.6e-5, the kernel by 5e-7.
    precise = attributes_of(stash_type=11) if task.anchor.op == "GroupNormalization" else ()
    node = Node(task.anchor.op, ("x", "s", "b"), ("y",), (*task.anchor.attributes, *precise))
    feeds = {"x": x + x if is_fused else x, "s": s, "b": b}
    (expected,) = evaluate(node, {name: value.astype(np.float64) for name, value in feeds.items()}, 22)
    expected = np.maximum(expected, 0) if is_fused else expected
    y = np.full(x.size, np.nan, np.float32)
    buffers = {"x": np.ascontiguousarray(np.moveaxis(x, 1, -1)).reshape(-1), "s": s, "b": b, "y": y}
    run_kernel(CHANNEL_NORM, task, buffers, workers, schedule)
    found = np.moveaxis(y.reshape(np.moveaxis(expected, 1, -1).shape), -1, 1)
    return float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))


@settings(max_examples=13, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    samples=st.integers(1, 3),
    channels=st.sampled_from(((16, None), (48, None), (32, 4), (64, 32), (48, 16), (96, 1), (64, 2), (104, 8))),
    pixels=st.lists(st.integers(1, 19), min_size=1, max_size=3),
    fused=st.booleans(),
    workers=st.integers(1, 9),
    pieces=st.sampled_from((None, 1, 3)),
)
@example(samples=3, channels=(64, 32), pixels=[1], fused=True, workers=1, pieces=None)
def test_any_shape(
    run_kernel: Any,
    target: Target,
    samples: int,
    channels: tuple[int, int | None],
    pixels: list[int],
    fused: bool,
    workers: int,
    pieces: int | None,
) -> None:
    """Groups narrower and wider than a vector, rows of odd lengths, shares that cross samples, and rows that are divided."""
    shape = (samples, channels[0], *pixels)
    task = normalisation(shape, channels[1], fused=fused)
    schedule = None
    if pieces is not None:
        schedule = replace(way(CHANNEL_NORM, task, target).schedule, pieces=pieces)
    x = np.random.default_rng(0).normal(1, 2, shape).astype(np.float32)
    assert difference(run_kernel, task, x, workers, schedule) <= 1e-5


@pytest.mark.parametrize("groups", [None, 4])
def test_far_from_zero_nothing_cancels(run_kernel: Any, groups: int | None) -> None:
    """A mean of a thousand deviations, and one pixel far from all others, the first."""
    shape = (1, 32, 40, 40)
    x = np.random.default_rng(0).normal(1000, 1, shape).astype(np.float32)
    x[:, :, 0, 0] = -1000
    assert difference(run_kernel, normalisation(shape, groups), x, 2) <= 2e-5


def test_equal_pixels_give_the_bias(run_kernel: Any) -> None:
    """But for the rounding of the mean, over the root of epsilon."""
    shape = (2, 16, 5, 7)
    assert difference(run_kernel, normalisation(shape, 2), np.full(shape, 3.0, np.float32), 2) <= 1e-5


def test_refused(target: Target) -> None:
    def reason(*arguments: Any, **options: Any) -> str:
        return str(refusal(CHANNEL_NORM, normalisation(*arguments, **options), target))

    assert "fastest" in reason((1, 32, 5, 5), 4, channels_last=False)
    assert "too few" in reason((1, 6, 5, 5), 3)
    assert "three" in reason((4, 32), None)


@pytest.mark.parametrize("machine", TARGETS, ids=lambda target: target.name)
def test_every_target_gets_valid_code(machine: Target) -> None:
    task = normalisation((1, 64, 7, 9), 32)
    text = text_of(way(CHANNEL_NORM, task, machine), machine.instructions, "kernel")
    assert "kernel" in compile_assembly(text, machine)
