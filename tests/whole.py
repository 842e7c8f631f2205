"""Nodes that are one task each at random, with every option, what NumPy makes of them, and their programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import fusewise
from fusewise.fusion.plan import partition
from fusewise.lower.task import Task
from fusewise.lower.work import TaskWork, lower_partition
from fusewise.ops.grids import max_roi_pool
from fusewise.ops.selection import top
from fusewise.trace import Trace

REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": np.maximum,
    "min": np.minimum,
}
KINDS = ("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "uint16", "bool")


@dataclass(frozen=True)
class Case:
    """One node: its operands by place, None for absent ones, those that are `constant`, and the results that it should have."""

    op: str
    operands: tuple[np.ndarray | None, ...]
    wanted: tuple[np.ndarray, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    constant: tuple[int, ...] = ()
    opset: int = 26
    domain: str = ""

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        return {f"x{k}": x for k, x in enumerate(self.operands) if x is not None and k not in self.constant}

    def model(self) -> onnx.ModelProto:
        given = {f"x{k}": x for k, x in enumerate(self.operands) if x is not None}
        inputs = [
            helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for k, x in given.items()
            if int(k[1:]) not in self.constant
        ]
        constants = [numpy_helper.from_array(self.operands[k], f"x{k}") for k in self.constant]  # type: ignore[arg-type]
        names = [f"x{k}" if x is not None else "" for k, x in enumerate(self.operands)]
        outputs = [f"y{k}" for k in range(len(self.wanted))]
        node = helper.make_node(self.op, names, outputs, domain=self.domain, **self.attributes)
        graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=y) for y in outputs], constants)
        versions = [helper.make_opsetid("", self.opset), helper.make_opsetid("ai.onnx.ml", 3)]
        return helper.make_model(graph, opset_imports=versions, ir_version=10)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], kind: str, spread: int = 9) -> np.ndarray:
    """Small numbers, many of them equal; in floats some that are none or infinite, and both zeros."""
    found = rng.integers(-spread, spread + 1, shape)
    if kind == "bool":
        return found > 0
    x = found.astype(kind)
    if x.dtype.kind == "f" and x.size:
        odd = rng.random(shape)
        x = np.where(odd < 0.05, np.array(-0.0, kind), x * np.array(0.25, kind))
    return x


def far(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """The same with NaN and infinities among the floats."""
    if x.dtype.kind != "f" or not x.size:
        return x
    odd = rng.random(x.shape)
    for below, value in ((0.06, -np.inf), (0.04, np.inf), (0.02, np.nan)):
        x = np.where(odd < below, np.array(value, x.dtype), x)
    return x


def scattered(
    data: np.ndarray, updates: np.ndarray, where: Callable[[tuple[int, ...]], tuple[Any, ...]], kind: str, rank: int
) -> np.ndarray:
    """Updates carried out one after another; the first `rank` dimensions of these are counted through."""
    found = data.copy()
    with np.errstate(all="ignore"):
        for at in np.ndindex(updates.shape[:rank]):
            found[where(at)] = REDUCTIONS[kind](found[where(at)], updates[at])
    return found


@st.composite
def scatter_elements(draw: st.DrawFn, most: int = 40) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    shape = tuple(draw(st.lists(st.sampled_from((1, 2, 5, 17, most)), min_size=1, max_size=3)))
    axis, kind = draw(st.integers(-len(shape), len(shape) - 1)), draw(st.sampled_from(KINDS))
    reduction = draw(st.sampled_from([k for k in REDUCTIONS if kind != "bool" or k == "none"]))
    size = tuple(
        draw(st.integers(0, 50)) if d == axis % len(shape) else draw(st.integers(1, n)) for d, n in enumerate(shape)
    )
    extent = shape[axis]
    places = rng.integers(-extent, extent, size).astype(draw(st.sampled_from(("int32", "int64"))))
    data, updates = numbers(rng, shape, kind), numbers(rng, size, kind)
    at = axis % len(shape)
    wanted = scattered(data, updates, lambda k: (*k[:at], int(places[k]) % extent, *k[at + 1 :]), reduction, len(shape))
    constant = draw(st.sampled_from(((), (1,))))
    return Case("ScatterElements", (data, places, updates), (wanted,), {"axis": axis, "reduction": reduction}, constant)


@st.composite
def scatter_nd(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    shape = tuple(draw(st.lists(st.sampled_from((1, 2, 5, 17, 150)), min_size=1, max_size=3)))
    depth, kind = draw(st.integers(1, len(shape))), draw(st.sampled_from(KINDS))
    reduction = draw(st.sampled_from([k for k in REDUCTIONS if kind != "bool" or k == "none"]))
    tuples = tuple(draw(st.lists(st.sampled_from((0, 1, 3, 20, 20)), max_size=2)))
    places = np.stack([rng.integers(-n, n, tuples) for n in shape[:depth]], -1)
    data, updates = numbers(rng, shape, kind), numbers(rng, (*tuples, *shape[depth:]), kind)

    def where(at: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(int(p) % n for p, n in zip(places[at], shape, strict=False))

    wanted = scattered(data, updates, where, reduction, len(tuples))
    constant = draw(st.sampled_from(((), (1,))))
    return Case("ScatterND", (data, places, updates), (wanted,), {"reduction": reduction}, constant)


@st.composite
def tensor_scatter(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    shape = (draw(st.integers(1, 4)), *draw(st.lists(st.sampled_from((1, 3, 7, 33)), min_size=1, max_size=3)))
    axis, mode = draw(st.integers(1, len(shape) - 1)), draw(st.sampled_from(("linear", "circular")))
    many, kind = draw(st.integers(0, shape[axis])), draw(st.sampled_from(KINDS))
    data = numbers(rng, shape, kind)
    updates = numbers(rng, (*shape[:axis], many, *shape[axis + 1 :]), kind)
    span = (-99, 100) if mode == "circular" else (0, shape[axis] - many + 1)
    first = rng.integers(*span, shape[0]) if draw(st.booleans()) else None

    def where(at: tuple[int, ...]) -> tuple[int, ...]:
        begin = 0 if first is None else int(first[at[0]])
        return (*at[:axis], (begin + at[axis]) % shape[axis], *at[axis + 1 :])

    wanted = scattered(data, updates, where, "none", len(shape))
    given = draw(st.sampled_from((axis, axis - len(shape))))
    return Case("TensorScatter", (data, updates, first), (wanted,), {"axis": given, "mode": mode})


@st.composite
def max_unpool(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    spatial = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    size = (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *spatial)
    kernel = tuple(draw(st.integers(1, 3)) for _ in spatial)
    strides = tuple(draw(st.integers(1, 3)) for _ in spatial)
    whole = (*size[:2], *((n - 1) * s + k for n, s, k in zip(spatial, strides, kernel, strict=True)))
    kind = draw(st.sampled_from(("float32", "float64", "float16")))
    x, places = numbers(rng, size, kind), rng.integers(0, int(np.prod(whole)), size)
    larger = draw(st.booleans())
    shape = (*whole[:2], *(n + draw(st.integers(0, 3)) for n in whole[2:])) if larger else whole
    found = np.zeros(whole, kind)
    for at in np.ndindex(size):
        found.reshape(-1)[places[at]] = x[at]
    wanted = np.zeros(shape, kind)
    wanted[tuple(map(slice, whole))] = found
    given = (x, places, np.array(shape)) if larger else (x, places)
    attributes = {"kernel_shape": kernel, "strides": strides}
    return Case("MaxUnpool", given, (wanted,), attributes, (2,) if larger else ())


@st.composite
def scans(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    shape = tuple(draw(st.lists(st.sampled_from((1, 2, 5, 17, 70)), min_size=1, max_size=3)))
    axis, kind = (
        draw(st.integers(-len(shape), len(shape) - 1)),
        draw(st.sampled_from(("float32", "float64", "int64", "uint32"))),
    )
    op = draw(st.sampled_from(("CumSum", "CumProd")))
    exclusive, reverse = draw(st.integers(0, 1)), draw(st.integers(0, 1))
    x = (
        numbers(rng, shape, kind)
        if op == "CumSum"
        else rng.choice([1, 2, 0.5] if kind[0] == "f" else [1, 3], shape).astype(kind)
    )
    turned = np.flip(x, axis) if reverse else x
    found = (np.cumsum if op == "CumSum" else np.cumprod)(turned, axis, dtype=kind)
    if exclusive:
        found = np.roll(found, 1, axis)
        found[(slice(None),) * (axis % len(shape)) + (0,)] = op == "CumProd"
    wanted = np.ascontiguousarray(np.flip(found, axis) if reverse else found)
    place = np.array(axis, draw(st.sampled_from(("int32", "int64"))))
    settings = {"exclusive": exclusive, "reverse": reverse}
    return Case(op, (x, place), (wanted,), settings, draw(st.sampled_from(((), (1,)))))


@st.composite
def tops(draw: st.DrawFn, kinds: tuple[str, ...] = KINDS[:-1]) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    shape = tuple(draw(st.lists(st.sampled_from((1, 3, 17, 600)), min_size=1, max_size=2)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    x = far(rng, numbers(rng, shape, draw(st.sampled_from(kinds)), draw(st.sampled_from((2, 100)))))
    count = draw(st.integers(1, shape[axis]))
    attributes = {"axis": axis, "largest": draw(st.integers(0, 1)), "sorted": 1}
    wanted = top(x, count, axis, bool(attributes["largest"]))
    return Case("TopK", (x, np.array([count])), wanted, attributes, (1,))


def task_and_arrays(one: Case) -> tuple[Task, dict[str, np.ndarray]]:
    """The task of a case, and a buffer for each of its operands; what a scatter changes has its first contents."""
    graph = fusewise.load(one.model())
    *_, work = lower_partition(partition(graph, Trace()), Trace()).work
    assert isinstance(work, TaskWork)
    arrays = {}
    for operand in work.bound.task.operands:
        place = int(operand.name[-1])
        if not operand.name.startswith("out"):
            given = one.operands[place]
            assert given is not None
            arrays[operand.name] = given.copy()
        elif one.op in ("ScatterElements", "ScatterND", "TensorScatter"):
            arrays[operand.name] = np.array(one.operands[0])
        else:
            arrays[operand.name] = np.zeros_like(one.wanted[place])
    return work.bound.task, arrays


def alike(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> bool:
    """Equal, but for the bits of what is no number; sums may differ by their rounding."""
    for a, b in zip(found, wanted, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        close = a.dtype.kind == "f" and np.allclose(a, b, rtol=1e-5, atol=1e-5, equal_nan=True)
        if not close and not np.array_equal(a, b):
            return False
    return True


@st.composite
def roi_pools(draw: st.DrawFn) -> Case:
    """Boxes near and far, and some that are none."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    samples, channels, count = (
        draw(st.integers(1, 3)),
        draw(st.sampled_from([1, 3, 16, 21, 70])),
        draw(st.integers(0, 6)),
    )
    extents, size = (tuple(draw(st.integers(1, 9)) for _ in range(2)) for _ in range(2))
    x = rng.integers(-9, 9, (samples, channels, *extents)).astype(draw(st.sampled_from(["float32", "float16"])))
    corners = rng.integers(-20, 40, (count, 4)) / 2
    odd = rng.choice([np.nan, np.inf, -np.inf, 1e30, -1e30], corners.shape)
    corners = np.where(rng.random(corners.shape) < 0.05, odd, corners)
    with np.errstate(over="ignore"):
        boxes = np.concatenate((rng.integers(0, samples, (count, 1)), corners), axis=1).astype(x.dtype)
    scale = draw(st.sampled_from([1.0, 0.5, 0.25]))
    wanted = max_roi_pool(x, boxes, size, scale)
    return Case("MaxRoiPool", (x, boxes), (wanted,), {"pooled_shape": list(size), "spatial_scale": scale}, opset=21)
