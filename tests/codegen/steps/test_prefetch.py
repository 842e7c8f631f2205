"""Which steps fetch which weights."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.codegen.steps.drafts import MACHINE, chain, draft_before, native
from tests.machines import compiled

from fusewise import api
from fusewise.codegen.families.strassen import kernel as strassen
from fusewise.codegen.families.strassen import plan as strassen_plan
from fusewise.codegen.kernel import Prefetch
from fusewise.codegen.machine.figures import PrefetchFigures
from fusewise.codegen.steps import prefetch
from fusewise.codegen.steps.draft import Upcoming
from fusewise.codegen.steps.prefetch import (
    NEAR,
    Fetch,
    Load,
    fetch_ahead,
    fetches,
    followers,
    next_bytes,
)
from fusewise.codegen.target import Target
from fusewise.ir.graph import Graph
from fusewise.lower.program import NativeStep
from fusewise.ops.build import GraphBuilder
from fusewise.trace import Trace

MB = 1 << 20
FIGURES = PrefetchFigures()
CONVOLUTION, CLASSIFIER, UNKNOWN = Load(1_000_000, MB), Load(20_000, 4 * MB), Load(0, MB)
ROOM = 8 * MB


def test_the_nearest_convolutions_fetch_what_comes_beside_their_own_weights():
    found = fetches([CONVOLUTION, CONVOLUTION, UNKNOWN, CLASSIFIER], ROOM, FIGURES)
    assert sorted(found) == [0, 1]
    near, far = found[1], found[0]
    assert near.nbytes == CONVOLUTION.spare(FIGURES) and near.offset + near.nbytes == near.of == 4 * MB
    assert (far.offset, far.nbytes) == (0, near.offset)


def test_what_is_too_large_too_small_or_too_far_is_left():
    assert not fetches([CONVOLUTION, Load(20_000, 2 * ROOM)], ROOM, FIGURES)
    assert not fetches([CONVOLUTION, Load(10, FIGURES.least_bytes)], ROOM, FIGURES)
    busy = Load(3_000_000, 12_000_000)
    assert not fetches([CONVOLUTION, busy, CLASSIFIER], ROOM, FIGURES)


@given(st.lists(st.builds(Load, st.integers(0, 3_000_000), st.integers(0, 12 * MB)), max_size=12))
def test_parts_of_one_step_do_not_overlap_and_come_before_it(loads: list[Load]):
    parts: dict[int, list[tuple[int, int]]] = {}
    for number, fetch in fetches(loads, ROOM, FIGURES).items():
        assert (
            number < fetch.step and loads[fetch.step].waits(FIGURES) and fetch.of == loads[fetch.step].weights <= ROOM
        )
        assert 0 < fetch.nbytes <= loads[number].spare(FIGURES)
        parts.setdefault(fetch.step, []).append((fetch.offset, fetch.offset + fetch.nbytes))
    for number, ranges in parts.items():
        ends = sorted(ranges)
        assert ends[0][0] >= 0 and ends[-1][1] == loads[number].weights
        assert all(a[1] == b[0] for a, b in itertools.pairwise(ends))


def test_the_next_weights_of_few_bytes_follow():
    few, many, none = Load(1_000, 1_000), Load(1_000, 2 * MB), Load(0, 0)
    assert followers([few, few, none, few, many], MB) == [1, 3, 3, 3, 4]
    assert followers([few, *[none] * NEAR, few], MB)[0] == 0, "too far"
    assert followers([few, many, few], MB)[0] == 0, "others come between"
    assert followers([], MB) == []


def test_the_pass_tells_steps_whose_weights_they_fetch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prefetch, "fetches", lambda loads, room, figures: {0: Fetch(2, 128, 64, 256)})
    monkeypatch.setattr(prefetch, "followers", lambda loads, room: [1, 2, 2])
    draft = draft_before(fetch_ahead, chain(3))
    found = native(fetch_ahead(draft, MACHINE, Trace()))
    assert [step.next for step in found] == [Upcoming(1), Upcoming(2), Upcoming(2)]
    assert [step.later for step in found] == [Upcoming(2, 128 // MACHINE.workers), None, None], "each of its share"
    assert found[0].way == native(draft)[0].way.fetching(Prefetch(64, 256))
    assert [argument.name for argument in found[0].arguments] == [argument.name for argument in found[0].way.arguments]
    assert all(step.next is step.later is None for step in native(draft))


def wanted_of(graph: Graph, feeds: dict[str, np.ndarray]) -> np.ndarray:
    session = onnxruntime.InferenceSession(api.to_onnx(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, feeds)
    return np.asarray(found)


def halving(target: Target, monkeypatch: pytest.MonkeyPatch, worth: float, shortest: int = 48) -> Target:
    """The machine if it added with units of their own, had large caches, and Strassen's algorithm had to be worth so much."""
    monkeypatch.setattr(strassen_plan, "LEAST_SUMS", 1)
    uncached = strassen_plan.strassen_space.__wrapped__  # nothing kept from other tests, nor for them
    for module in (strassen, strassen_plan):
        monkeypatch.setattr(module, "strassen_space", uncached)
    halved = replace(target.figures.strassen, worth=worth, few_worth=worth, shortest=shortest)
    figures = replace(target.figures, strassen=halved)
    return replace(target, adds_apart=True, l2_bytes=1 << 20, l3_bytes=1 << 25, figures=figures)


def test_a_product_in_halves_is_given_the_next_weights(target: Target, monkeypatch: pytest.MonkeyPatch):
    machine = halving(target, monkeypatch, -math.inf, shortest=0)  # short depths pay, too
    rng = np.random.default_rng(0)
    b = GraphBuilder("chain")
    value = b.input("x", (128, 128))
    wide = next_bytes(machine) // (128 * 4)
    shapes = [(128, wide), (wide, 128), (128, 4 * wide), (4 * wide, 128)]
    for number, shape in enumerate(shapes):
        value = b.op("MatMul", value, b.constant(rng.standard_normal(shape, np.float32) / np.float32(16)))
        value = b.op("Relu", value) if number < 3 else value
    graph = b.finish(value)
    program, model = compiled(graph, machine, 2)
    steps = [step for step in program.steps if isinstance(step, NativeStep)]
    assert all("strassen" in step.way for step in steps) and len(steps) == 4
    weights = [[p for p in step.arguments if program.buffers[p.buffer].kind == "constant"] for step in steps]
    own = [found[0] for found in weights]
    assert weights[0] == [own[0], own[1]]
    assert weights[1] == [own[1], own[1]], "the next has more than find room"
    assert weights[2:] == [[own[2]], [own[3]]]
    feeds = {"x": rng.standard_normal((128, 128), dtype=np.float32)}
    wanted, (found,) = wanted_of(graph, feeds), model.run(None, feeds)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("kernel", ["direct-convolution", "scaled-convolution", "strassen-convolution"])
def test_a_convolution_that_fetches_a_classifier_still_computes_the_same(
    kernel: str, target: Target, monkeypatch: pytest.MonkeyPatch
):
    gated = kernel == "scaled-convolution"
    machine = halving(target, monkeypatch, -math.inf if kernel == "strassen-convolution" else math.inf)
    rng = np.random.default_rng(0)

    def constant(*shape: int) -> str:
        return b.constant((rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32))

    b = GraphBuilder("classifier")
    x = b.input("x", (1, 256, 14, 14))
    y = b.op("Relu", b.op("Conv", x, constant(512, 256, 1, 1)))
    if gated:  # this convolution has scratch memory beside what it fetches
        y = b.op("Mul", y, b.op("Sigmoid", b.op("GlobalAveragePool", y)))
    outputs = 40 if gated else 512
    z = b.op("Relu", b.op("Conv", y, constant(outputs, 512, 1, 1)))
    graph = b.finish(
        b.op("Gemm", b.op("Flatten", b.op("GlobalAveragePool", z)), constant(outputs, 30_000 if gated else 1024))
    )
    feeds = {"x": rng.standard_normal((1, 256, 14, 14), dtype=np.float32)}
    wanted = wanted_of(graph, feeds)
    for threads in (1, 2, 3):
        program, model = compiled(graph, machine, threads)
        assert any(kernel in step.way and " prefetch.nbytes=" in step.way for step in program.steps)
        for _ in range(2):  # what is only to be read must be there the second time
            (found,) = model.run(None, feeds)
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
