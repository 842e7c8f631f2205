"""Native code in host steps: against the same in NumPy, and in whole models against ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.guarded import guarded

import fusewise
from fusewise.codegen.box_routines import ALIGN_BOXES, SUPPRESS_BOXES
from fusewise.codegen.families.boxes import align_boxes, suppress_boxes
from fusewise.errors import InvalidData
from fusewise.ir.dtypes import INT64
from fusewise.ir.graph import Graph
from fusewise.lower.program import HostStep
from fusewise.ops.build import GraphBuilder
from fusewise.ops.rois import BoxSampling, non_max_suppression, roi_align
from fusewise.runtime.cache import KernelCache
from fusewise.runtime.compile import compile_many
from fusewise.runtime.host import host_target
from fusewise.runtime.host_native import Suppressor, aligned
from fusewise.runtime.jit import Library, load
from fusewise.runtime.routine import Routine


@pytest.fixture(scope="module")
def library() -> Library:
    """Both functions as they are in a checked build, so that nothing outside of the tables is touched."""
    target = replace(host_target(), sanitize=True)
    codes = (align_boxes(target), suppress_boxes(target))
    return load(compile_many(codes, target), [code.symbol for code in codes])


def routine(library: Library, symbol: str, workers: int = 1) -> Routine:
    return Routine(library.addresses[symbol], workers, is_checked=True)


def some_boxes(rng: np.random.Generator, count: int, side: float) -> np.ndarray:
    begin = rng.uniform(-0.2 * side, side, (count, 2))
    return np.concatenate((begin, begin + rng.uniform(0, side / 2, (count, 2))), axis=1).astype(np.float32)


# --- RoiAlign ---------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(0, 7),
    channels=st.sampled_from((1, 3, 16, 21, 64, 70, 150)),
    size=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    ratio=st.integers(0, 3),
    scale=st.sampled_from((1.0, 0.5, 0.25)),
    half_pixel=st.booleans(),
    lies=st.sampled_from(("channels last", "channels first", "inside")),
    workers=st.integers(1, 4),
    flush=st.sampled_from(("before", "behind")),
)
def test_roi_align(
    library: Library,
    seed: int,
    count: int,
    channels: int,
    size: tuple[int, int],
    ratio: int,
    scale: float,
    half_pixel: bool,
    lies: str,
    workers: int,
    flush: str,
) -> None:
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((2, channels, 9, 12), dtype=np.float32)
    order, back = ((0, 1, 2, 3), (0, 1, 2, 3)) if lies == "channels first" else ((0, 2, 3, 1), (0, 3, 1, 2))
    features = guarded(np.ascontiguousarray(features.transpose(order)), flush).array.transpose(back)
    if lies == "inside":
        features = features[:, :, 1:8, 2:]
    boxes = some_boxes(rng, count, 12 / scale)
    empty = rng.random(count) < 0.2
    boxes[empty, 2:] = boxes[empty, :2]
    images = rng.integers(0, 2, count)
    sampling = BoxSampling(size, ratio, scale, half_pixel)
    found = aligned(features, boxes, images, sampling, routine(library, ALIGN_BOXES, workers))
    np.testing.assert_allclose(found, roi_align(features, boxes, images, sampling), rtol=0, atol=1e-5)


def test_boxes_that_are_no_numbers_read_nothing(library: Library) -> None:
    features = np.ones((1, 4, 5, 6), np.float32)
    boxes = np.array([[np.nan, 0, 2, 2], [0, 0, np.inf, 2], [1, 1, 3, 3]], np.float32)
    for ratio in (0, 2):
        images, sampling = np.zeros(3, np.int64), BoxSampling((2, 2), ratio)
        found = aligned(features, boxes, images, sampling, routine(library, ALIGN_BOXES))
        assert not found[:2].any()
        np.testing.assert_allclose(found[2], 1, rtol=0, atol=1e-6)


# --- NonMaxSuppression ------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(0, 90),
    most=st.sampled_from((0, 1, 7, 16, 17, 2**63 - 1)),
    limit=st.sampled_from((0.0, 0.3, 0.5, 1.0)),
    least=st.sampled_from((None, 0.0, 0.4, -np.inf)),
    centred=st.booleans(),
    strange=st.booleans(),
)
def test_suppressed_boxes(
    library: Library,
    seed: int,
    count: int,
    most: int,
    limit: float,
    least: float | None,
    centred: bool,
    strange: bool,
) -> None:
    """Few different scores and bounds, so that many are equal; where it is strange some are infinite and some no numbers."""
    rng = np.random.default_rng(seed)
    boxes = rng.integers(0, 9, (2, count, 4)).astype(np.float32)
    scores = (rng.integers(-3, 9, (2, 3, count)) / 8).astype(np.float32)
    scores[scores == 0] *= -1
    if strange:
        for array in (boxes, scores):
            array[rng.random(array.shape) < 0.05] = np.nan
            array[rng.random(array.shape) < 0.05] = np.inf
            array[rng.random(array.shape) < 0.05] = -np.inf
    bounds = most, np.float32(limit), least, centred
    with np.errstate(invalid="ignore", over="ignore"):
        expected = non_max_suppression(boxes, scores, *bounds)
    suppress = Suppressor(routine(library, SUPPRESS_BOXES))
    for _ in range(2):  # the second time in what the first worked in
        np.testing.assert_array_equal(suppress(boxes, scores, *bounds), expected)


def test_many_boxes_in_a_row(library: Library) -> None:
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 300, (1, 2000, 2)).astype(np.float32)
    boxes = np.concatenate([low, low + rng.uniform(1, 40, low.shape).astype(np.float32)], 2)
    bounds = 2000, np.float32(0.4), None, False
    scores = rng.random((1, 1, 2000), np.float32)
    expected = non_max_suppression(boxes, scores, *bounds)
    assert 100 < len(expected) < 1900
    found = Suppressor(routine(library, SUPPRESS_BOXES))(boxes, scores, *bounds)
    np.testing.assert_array_equal(found, expected)


# --- in models --------------------------------------------------------------------------------------------------------


def detector() -> Graph:
    """Features by a convolution, boxes pooled from them, and those of the boxes that remain."""
    rng = np.random.default_rng(1)
    b = GraphBuilder("detector", 21)
    weights = b.constant(rng.standard_normal((24, 3, 3, 3), dtype=np.float32))
    features = b.op("Conv", b.input("image", (1, 3, 20, 20)), weights, pads=[1, 1, 1, 1])
    boxes, scores = b.input("boxes", (1, 12, 4)), b.input("scores", (1, 1, 12))
    kept = b.op("NonMaxSuppression", boxes, scores, b.constant([8]), b.constant(np.array([0.3], np.float32)))
    numbers = b.op("Squeeze", b.op("Slice", kept, b.constant([2]), b.constant([3]), b.constant([1])), b.constant([1]))
    best = b.op("Gather", b.op("Squeeze", boxes, b.constant([0])), numbers)
    images = b.op("Mul", numbers, b.constant(np.array([0])))
    pooled = b.op("RoiAlign", features, best, images, output_height=3, output_width=2, sampling_ratio=2)
    return b.finish(b.op("Relu", features), kept, pooled)


def feeds_of(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "image": rng.standard_normal((1, 3, 20, 20), dtype=np.float32),
        "boxes": some_boxes(rng, 12, 20.0)[None],
        "scores": rng.random((1, 1, 12), dtype=np.float32),
    }


def expected_of(graph: Graph, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(
        fusewise.to_onnx(graph).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, feeds))


def host_reads(model: fusewise.Model) -> dict[str, tuple[int, ...] | None]:
    """Strides of what host steps read from memory, by value; None for ONNX's own."""
    steps = model.executable.contents.program.steps
    return {
        name: place.strides
        for step in steps
        if isinstance(step, HostStep)
        for name, place, _ in step.reads
        if place is not None
    }


def test_a_detector(tmp_path: Path) -> None:
    """Channels are read where the convolution left them; a file needs no compiler; the cache has the routines."""
    graph = detector()
    model = fusewise.compile(graph, cache=tmp_path / "cache")
    assert {ALIGN_BOXES, SUPPRESS_BOXES} <= set(model.executable.contents.symbols)
    assert (9600, 1, 480, 24) in host_reads(model).values()
    model.save(tmp_path / "detector.fw")
    for other in (model, fusewise.open_compiled(tmp_path / "detector.fw")):
        results = []
        for seed in (1, 2):
            found, wanted = other.run(None, feeds_of(seed)), expected_of(graph, feeds_of(seed))
            np.testing.assert_array_equal(found[1], wanted[1])
            for ours, theirs in zip(found, wanted, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
            results.append((found[2], found[2].copy()))
        for kept, before in results:
            np.testing.assert_array_equal(kept, before)
    store = KernelCache(tmp_path / "cache")
    keys = [f"{code.symbol}\n{code.key}" for code in (align_boxes(host_target()), suppress_boxes(host_target()))]
    assert len(store.fetch(keys, host_target())) == 2


def test_an_image_that_is_not_there() -> None:
    b = GraphBuilder("one")
    features, boxes = b.input("features", (2, 3, 5, 5)), b.input("boxes", (1, 4))
    pooled = b.op("RoiAlign", features, boxes, b.input("images", (1,), INT64), sampling_ratio=1)
    model = fusewise.compile(b.finish(pooled), cache=False)
    feeds = {"features": np.zeros((2, 3, 5, 5), np.float32), "boxes": np.ones((1, 4), np.float32)}
    assert model.run(None, {**feeds, "images": np.array([1])})[0].shape == (1, 3, 1, 1)
    with pytest.raises(InvalidData, match="RoiAlign.*2 in its operand .images."):
        model.run(None, {**feeds, "images": np.array([2])})


@pytest.mark.parametrize("after", ["nothing", "the data", "a view of the data", "the data as output", "an input"])
def test_scatter_in_place(after: str) -> None:
    """A chain of ScatterND on the host changes one tensor where it lies, unless someone reads afterwards what it was before."""
    b = GraphBuilder("scatter")
    x, i, u = b.input("x", (6, 4)), b.input("i", (2, 1), INT64), b.input("u", (2, 4))
    data = x if after == "an input" else b.op("Exp", x)
    first = b.op("ScatterND", b.op("Reshape", data, b.constant([6, 4])) if after == "an input" else data, i, u)
    second = b.op("ScatterND", first, b.op("Add", i, b.constant([1])), u)
    outputs = [b.op("Neg", second)]
    if after == "the data":
        outputs.append(b.op("Add", second, data))
    if after == "a view of the data":
        view = b.op("Reshape", data, b.constant([3, 8]))
        outputs.append(b.op("Add", view, b.op("ReduceMax", second, keepdims=0)))
    if after == "the data as output":
        outputs.append(data)
    graph = b.finish(*outputs)
    model = fusewise.compile(graph, cache=False, disable=("scatter",))
    steps = [step for step in model.executable.contents.program.steps if isinstance(step, HostStep)]
    in_place = [step.writes[0][1] in [place for _, place, _ in step.reads] for step in steps]
    assert in_place == [after == "nothing", True]
    rng = np.random.default_rng(0)
    for places in ([[0], [3]], [[2], [2]]):
        x, u = rng.standard_normal((6, 4), dtype=np.float32), rng.standard_normal((2, 4), dtype=np.float32)
        feeds = {"x": x, "i": np.array(places), "u": u}
        for _ in range(2):
            for ours, theirs in zip(model.run(None, feeds), expected_of(graph, feeds), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-6)
