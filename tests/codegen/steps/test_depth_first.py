"""Pairs of steps in strips: every row is there when it is read, whichever worker is ahead."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from itertools import groupby
from typing import Any
from unittest.mock import patch

import numpy as np
import onnxruntime
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.codegen.steps.drafts import MACHINE, draft_before, native

from fusewise import api
from fusewise.codegen.kernel import Sharing
from fusewise.codegen.steps import depth_first
from fusewise.codegen.steps.depth_first import LEAST_STRIPS, strips_of, tile_depth_first
from fusewise.codegen.target import TARGETS, Target
from fusewise.compiled import open_compiled
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.runtime.threads import Pool, StepTable
from fusewise.trace import Trace

AVX512 = TARGETS[0]


def block(
    rng: np.random.Generator, rows: int, columns: int, channels: tuple[int, int], kernel: int, stride: int, shape: str
) -> Graph:
    """An expansion and the depthwise convolution behind it, as MobileNetV2 has them."""

    def constant(*dims: int) -> str:
        return b.constant((rng.standard_normal(dims) / 4).astype(np.float32))

    inside, wide = channels
    b = GraphBuilder("block")
    x = b.input("x", (1, inside, rows, columns))
    before = b.op("Relu", b.op("Conv", x, constant(inside, inside, 1, 1)))
    y = b.op("Relu", b.op("Conv", before, constant(wide, inside, 1, 1), constant(wide)))
    pads, dilation = (kernel // 2,) * 4, 2 if shape == "dilated" else 1
    around = [dilation * p for p in pads]
    options: dict[str, Any] = {"strides": (stride, stride), "pads": around, "dilations": (dilation,) * 2, "group": wide}
    z = b.op("Conv", y, constant(wide, 1, kernel, kernel), constant(wide), **options)
    if shape == "gated":
        z = b.op("Mul", z, b.op("Sigmoid", z))
    after = b.op("Conv", z, constant(inside, wide, 1, 1))
    return b.finish(after, y) if shape == "read again" else b.finish(after)


def one_after_the_other(order: int) -> Any:
    """In place of `Pool.run`: all calls of one worker up to where they meet, then those of the next; or the last one first."""

    def run(self: Pool, steps: StepTable, workers: int, timings: np.ndarray | None = None) -> None:
        lines, met = [tuple(map(int, line)) for line in steps.words], 0
        parts = []
        for function, arguments, barrier, strip in lines:
            parts.append((met, function, arguments, strip >> 32, strip & 0xFFFFFFFF))
            met += barrier & 0xFFFFFFFF
        for _, calls in groupby(parts, key=lambda part: part[0]):
            together = list(calls)
            for worker in range(workers)[::order]:
                for _, function, arguments, count, part in together:
                    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 5)(function)
                    share = worker * count + part
                    call(arguments, share, share + 1, workers * count, worker, 0)

    return run


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.integers(20, 90),
    columns=st.integers(5, 40),
    channels=st.sampled_from(((16, 96), (24, 144), (16, 64), (32, 40))),
    kernel=st.sampled_from((3, 5)),
    stride=st.sampled_from((1, 2)),
    shape=st.sampled_from(("plain", "dilated", "gated", "read again")),
    workers=st.integers(1, 4),
)
def test_no_row_is_read_before_it_is_written(
    rows: int, columns: int, channels: tuple[int, int], kernel: int, stride: int, shape: str, workers: int
) -> None:
    rng = np.random.default_rng(0)
    graph = block(rng, rows, columns, channels, kernel, stride, shape)

    def often(first: Sharing, second: Sharing, workers: int, target: Target) -> int:
        return strips_of(first, second, workers, replace(target, l2_bytes=16 * 1024))

    with patch.object(depth_first, "strips_of", often):
        model = api.compile(graph, threads=workers, cache=False)
    program = model.executable.contents.program
    assume(any(getattr(step, "strips", 0) for step in program.steps))
    feeds = {"x": rng.standard_normal((1, channels[0], rows, columns), dtype=np.float32)}
    session = onnxruntime.InferenceSession(api.to_onnx(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, feeds)
    for order in (1, -1):
        for number, buffer in enumerate(program.buffers):
            if buffer.kind == "arena":
                model.executable._lane.plan.memory[number].fill(255)  # no number
        with patch.object(Pool, "run", one_after_the_other(order)):
            found = model.run(None, feeds)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max())
    for a, b in zip(model.run(None, feeds), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max())


def evenly(rows: int, nbytes: int, reach: int = 0) -> Sharing:
    """Rows in equal runs; each share reads its own and so many around them."""
    return Sharing(
        nbytes,
        lambda number, shares: number * rows // shares,
        lambda number, shares: number * rows // shares,
        lambda number, shares: (
            max(0, number * rows // shares - reach),
            min(rows, (number + 1) * rows // shares + reach),
        ),
    )


def test_as_many_strips_as_the_cache_wants_and_the_rows_allow() -> None:
    large = 8 * AVX512.l2_bytes
    assert strips_of(evenly(1000, large), evenly(1000, large, 1), 2, AVX512) == 16
    assert strips_of(evenly(40, large), evenly(40, large, 3), 2, AVX512) == 6
    assert strips_of(evenly(40, large), evenly(40, large, 9), 2, AVX512) == 0
    assert strips_of(evenly(1000, AVX512.l2_bytes), evenly(1000, large, 1), 2, AVX512) == 0


def test_the_pass_pairs_steps_and_no_step_twice() -> None:
    graph = block(np.random.default_rng(0), 112, 112, (16, 96), 3, 2, "plain")
    draft, trace = draft_before(tile_depth_first, graph), Trace()
    with patch.object(depth_first, "strips_of", lambda *_: LEAST_STRIPS):
        found = native(tile_depth_first(draft, MACHINE, trace))
        limited = tile_depth_first(draft, MACHINE, Trace(limit=0))
    above = [number for number, step in enumerate(found) if step.strips]
    names = [step.work.nodes for step in found]
    assert [event.where for event in trace.events] == [names[at] + names[at + 1] for at in above] != []
    assert not {at + 1 for at in above} & set(above)
    assert all(found[at].pieces == found[at + 1].pieces == 1 and found[at].strips == LEAST_STRIPS for at in above)
    assert not any(step.strips for step in native(limited))


def test_steps_in_strips_are_timed_and_may_be_refused() -> None:
    graph = block(np.random.default_rng(0), 112, 112, (16, 96), 3, 2, "plain")
    with patch.object(depth_first, "strips_of", lambda *_: LEAST_STRIPS):
        model = api.compile(graph, threads=2, cache=False)
        refused = api.compile(graph, threads=2, cache=False, disable=("strips",))
    assert not any(getattr(step, "strips", 0) for step in refused.executable.contents.program.steps)
    feeds = model.random_inputs()
    found, timings = model.executable.run_with_timings(None, feeds)
    np.testing.assert_array_equal(found[0], refused.run(None, feeds)[0])
    assert [timing.step for timing in timings] == list(range(len(model.executable.contents.program.steps)))
    assert all(begin <= end for timing in timings for begin, end in timing.shares)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_artefact_keeps_its_strips(tmp_path: Any, threads: int) -> None:
    graph = block(np.random.default_rng(0), 112, 112, (16, 96), 3, 1, "plain")
    with patch.object(depth_first, "strips_of", lambda *_: LEAST_STRIPS):
        model = api.compile(graph, threads=threads, cache=False)
    model.save(tmp_path / "m.fw")
    opened = open_compiled(tmp_path / "m.fw")
    feeds = model.random_inputs()
    np.testing.assert_array_equal(opened.run(None, feeds)[0], model.run(None, feeds)[0])
    assert [getattr(s, "strips", 0) for s in opened.executable.contents.program.steps] == [
        getattr(s, "strips", 0) for s in model.executable.contents.program.steps
    ]
