"""Samples one after another: the same answers, whatever lies between; and where it is done."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.codegen.steps.drafts import MACHINE, draft_before

from fusewise import api
from fusewise.codegen.steps import samples
from fusewise.codegen.steps.draft import SampleRange
from fusewise.compiled import Model, open_compiled
from fusewise.fusion.plan import partition
from fusewise.ir.graph import Graph
from fusewise.lower.samples import of_one_sample
from fusewise.lower.work import TaskWork, lower_partition
from fusewise.ops.build import GraphBuilder
from fusewise.trace import Trace
from fusewise.zoo import catalogue

CHANNELS = 8


class Network:
    """A network of random layers over maps of several samples; `maps` are those so far that still have their full size."""

    def __init__(self, count: int) -> None:
        self.rng = np.random.default_rng(count)
        self.b = GraphBuilder("network")
        self.size = (count, CHANNELS, 12, 10)
        self.maps = [self.b.input("x", self.size)]

    def weight(self, *dims: int) -> str:
        return self.b.constant((self.rng.standard_normal(dims) / np.sqrt(dims[-1] * 4)).astype(np.float32))

    def axes(self, *axes: int) -> str:
        return self.b.constant(np.array(axes, np.int64))

    def layer(self, kind: str, x: str, y: str) -> str:
        b, around = self.b, (1, 1, 1, 1)
        match kind:
            case "3x3":
                return b.op("Relu", b.op("Conv", x, self.weight(CHANNELS, CHANNELS, 3, 3), pads=around))
            case "1x1":
                return b.op("Conv", b.op("Sigmoid", x), self.weight(CHANNELS, CHANNELS, 1, 1), self.weight(CHANNELS))
            case "depthwise":
                return b.op("Conv", x, self.weight(CHANNELS, 1, 3, 3), pads=around, group=CHANNELS)
            case "transposed":
                return b.op("ConvTranspose", x, self.weight(CHANNELS, CHANNELS, 3, 3), pads=around)
            case "pool":
                return b.op("MaxPool", x, kernel_shape=(3, 3), pads=around)
            case "average":
                return b.op("AveragePool", x, kernel_shape=(3, 3), pads=around)
            case "add":
                return b.op("Relu", b.op("Add", x, y))
            case "concat":
                return b.op("Conv", b.op("Concat", x, y, axis=1), self.weight(CHANNELS, 2 * CHANNELS, 1, 1))
            case "gate":
                mean = b.op("ReduceMean", x, self.axes(2, 3), keepdims=1)
                return b.op("Mul", x, b.op("Sigmoid", b.op("Conv", mean, self.weight(CHANNELS, CHANNELS, 1, 1))))
            case "norm":
                # so large an epsilon that rounding of maps with hardly any variation is not multiplied
                return b.op("InstanceNormalization", x, self.weight(CHANNELS), self.weight(CHANNELS), epsilon=0.1)
            case "across":  # what has to do with several samples at once
                return b.op("Sub", x, b.op("ReduceMean", y, self.axes(0), keepdims=1))
            case "turned":
                return b.op("Add", x, b.op("Gather", y, self.axes(*range(self.size[0])[::-1]), axis=0))
            case "swapped" if self.size[0] == CHANNELS:  # of the same shape, but no sample is where it was
                return b.op("Transpose", x, perm=(1, 0, 2, 3))
            case _:
                return b.op("Softmax", x, axis=0)


KINDS = ("3x3", "1x1", "depthwise", "transposed", "pool", "average", "add", "concat", "gate", "norm")
ACROSS = ("across", "turned", "softmax", "swapped")


@st.composite
def networks(draw: st.DrawFn) -> Graph:
    network = Network(draw(st.sampled_from((2, 3, 5, CHANNELS))))
    for kind in draw(st.lists(st.sampled_from(2 * KINDS + ACROSS), min_size=2, max_size=9)):
        last, other = network.maps[-1], draw(st.sampled_from(network.maps))
        network.maps.append(network.layer(kind, last, other))
    again = draw(st.sampled_from(network.maps[1:]))
    return network.b.finish(*dict.fromkeys((network.maps[-1], again)))


def repeated(graph: Graph, threads: int = 2, **settings: Any) -> Model:
    """The model with every stretch run sample by sample that can be."""
    with patch.object(samples._Run, "_saved", lambda self, nbytes, one: 1e9):
        return api.compile(graph, threads=threads, cache=False, **settings)


def times(model: Model) -> int:
    """The most steps that a group has."""
    groups = [step.group for step in model.executable.contents.program.steps]
    return max(groups.count(group) for group in groups)


def assert_right(model: Model, graph: Graph) -> None:
    session = onnxruntime.InferenceSession(api.to_onnx(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    for seed in range(2):
        feeds = model.random_inputs(seed)
        wanted = session.run(None, feeds)
        for number, buffer in enumerate(model.executable.contents.program.buffers):
            if buffer.kind == "arena":
                model.executable._lane.plan.memory[number].fill(255)  # no number
        for a, b in zip(model.run(None, feeds), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * max(1.0, np.abs(b).max()))


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(graph=networks(), threads=st.integers(1, 3))
def test_the_same_answers(graph: Graph, threads: int) -> None:
    assert_right(repeated(graph, threads, exact=True), graph)


@pytest.mark.parametrize("kind", KINDS)
def test_each_layer_can_be_run_so(kind: str) -> None:
    network = Network(3)
    for each in ("3x3", kind, "3x3", kind):
        network.maps.append(network.layer(each, network.maps[-1], network.maps[0]))
    graph = network.b.finish(network.maps[-1])
    model = repeated(graph)
    assert times(model) >= 3
    assert_right(model, graph)


@pytest.mark.parametrize("kind", ACROSS)
def test_what_mixes_samples_is_not(kind: str) -> None:
    network = Network(3)
    for _ in range(3):
        network.maps.append(network.layer(kind, network.maps[-1], network.maps[-1]))
    graph = network.b.finish(network.maps[-1])
    model = repeated(graph)
    assert times(model) < 3
    assert_right(model, graph)


@pytest.mark.parametrize("kind", ACROSS)
@pytest.mark.parametrize("threads", [1, 3])
def test_what_mixes_samples_sees_all_of_a_map_made_before(kind: str, threads: int) -> None:
    """Also where it takes its own sample of one map and others of another, or its own lies where another was written."""
    network = Network(CHANNELS)
    gated = network.layer("gate", network.maps[0], network.maps[0])
    pooled = network.layer("pool", network.layer("pool", gated, gated), gated)
    after = network.layer(kind, network.layer("add", pooled, gated), pooled)
    graph = network.b.finish(network.layer("pool", after, after))
    model = repeated(graph, threads)
    assert times(model) >= CHANNELS, "nothing is run sample by sample"
    assert_right(model, graph)


@pytest.mark.parametrize("kind", KINDS)
def test_without_the_anchor_as_well(kind: str) -> None:
    """A kernel that takes the whole task need not take that of one sample; then its definition does."""
    network = Network(3)
    graph = network.b.finish(network.layer(kind, network.maps[0], network.maps[0]))
    found = [one for one in lower_partition(partition(graph, Trace()), Trace()).work if isinstance(one, TaskWork)]
    small = [one for work in found if (one := of_one_sample(work)) is not None]
    assert small
    for one in small:
        assert one.bound.task.extents[0] == 1
        plain = one.plain() if one.plain is not None else one
        assert plain.between.keys() == one.between.keys()


def test_steps_of_a_stretch_take_turns() -> None:
    found = samples.in_turn(6, [SampleRange(1, 3, 2, (), frozenset()), SampleRange(4, 5, 3, (), frozenset())])
    turns = [(visit.step, visit.sample) for visit in found]
    assert turns == [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (3, 0), (4, 0), (4, 1), (4, 2), (5, 0)]


def test_the_pass_puts_work_of_one_sample_in_the_place_of_all_or_is_refused() -> None:
    network = Network(3)
    for _ in range(2):
        network.maps.append(network.layer("pool", network.maps[-1], network.maps[-1]))
    with patch.object(samples._Run, "_saved", lambda self, nbytes, one: 1e9):
        draft = draft_before(samples.run_by_samples, network.b.finish(network.maps[-1]))
        small = samples.run_by_samples(draft, MACHINE, Trace())
        refused = samples.run_by_samples(draft, MACHINE, Trace(disabled=frozenset(("samples",))))
    assert [one.bound.task.extents[0] for one in small.work if isinstance(one, TaskWork)] == [1, 1]
    assert len(small.visits) == 6 and len(small.stretches) == 1
    assert (refused.work, refused.visits, refused.stretches) == (draft.work, draft.visits, ())


def test_by_sizes() -> None:
    """Large maps of all samples run so; one sample has nothing to come after."""
    graph = catalogue.build("mobilenet_v2", batch=8)
    whole, small = (api.compile(graph, threads=2, cache=False, disable=off) for off in (("samples",), ()))
    assert times(whole) < 8 <= times(small)
    arenas = [model.executable.contents.program.arena_bytes for model in (small, whole)]
    assert arenas[0] < arenas[1] / 2
    feeds = small.random_inputs()
    wanted = whole.run(None, feeds)[0]
    np.testing.assert_allclose(small.run(None, feeds)[0], wanted, rtol=0, atol=5e-5 * np.abs(wanted).max())
    assert times(api.compile(catalogue.build("mobilenet_v2"), threads=2, cache=False)) < 8


def test_a_trace_says_so_and_timings_are_of_every_sample() -> None:
    network = Network(4)
    for kind in ("3x3", "1x1", "depthwise"):
        network.maps.append(network.layer(kind, network.maps[-1], network.maps[-1]))
    trace = Trace()
    model = repeated(network.b.finish(network.maps[-1]), trace=trace)
    (event,) = [event for event in trace.events if event.what == "samples"]
    assert event.reason == "4 one after another"
    graph = model.graph
    assert set(event.where) == {node.label for node in graph.nodes} and event.where[0] == graph.nodes[0].label
    _, timings = model.executable.run_with_timings(None, model.random_inputs())
    assert [timing.step for timing in timings] == list(range(12))
    assert len({timing.group for timing in timings}) == 3


def test_an_artefact_runs_so(tmp_path: Any) -> None:
    network = Network(3)
    for kind in ("3x3", "concat", "gate", "pool"):
        network.maps.append(network.layer(kind, network.maps[-1], network.maps[0]))
    model = repeated(network.b.finish(network.maps[-1]))
    model.save(tmp_path / "m.fw")
    feeds = model.random_inputs()
    np.testing.assert_array_equal(open_compiled(tmp_path / "m.fw").run(None, feeds)[0], model.run(None, feeds)[0])
