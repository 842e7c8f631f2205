"""Results that take the place of what they are added to: which operands, in whole programs, and when not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.codegen.steps.drafts import MACHINE, draft_before

from fusewise import api
from fusewise.codegen.steps.overwrite import overwritable, overwrite_results, shared_pointers
from fusewise.ir.dtypes import BFLOAT16, FLOAT32
from fusewise.ir.graph import Graph
from fusewise.lower.program import NativeStep
from fusewise.lower.task import Operand, Store, Task
from fusewise.ops.build import GraphBuilder
from fusewise.ops.expr import Expr, binary, const, index, load
from fusewise.trace import Trace

SHAPE = (4, 6)
AT = (index("i0"), index("i1"))


def operand(name: str, **given: object) -> Operand:
    return replace(Operand(name, FLOAT32, SHAPE, (6, 1)), **given)  # type: ignore[arg-type]


def sum_of(*terms: Expr, read: Operand | None = None, written: Operand | None = None) -> Task:
    """A task that writes the sum of its terms to `y`; `x` is what may be overwritten."""
    value = terms[0]
    for term in terms[1:]:
        value = binary("add", value, term)
    given = read or operand("x")
    return Task(SHAPE, (given, operand("z"), written or operand("y")), (Store("y", AT, value),))


def x(*at: Expr) -> Expr:
    return load("x", FLOAT32, at or AT)


def test_an_operand_read_where_it_is_written_may_be_overwritten() -> None:
    assert sorted(overwritable(sum_of(x(), load("z", FLOAT32, AT)))) == ["x", "z"]
    assert shared_pointers(sum_of(x(), const(1.0, FLOAT32))) == ("x", "y")


@pytest.mark.parametrize(
    "task",
    [
        sum_of(x(), x(index("i1"), index("i0"))),
        sum_of(x(const(0, FLOAT32), index("i1"))),
        sum_of(x(), read=operand("x", strides=(1, 4))),
        sum_of(x(), read=operand("x", dtype=BFLOAT16)),
        sum_of(x(), read=operand("x", offset=6)),
        sum_of(x(), read=operand("x", constant=True)),
        sum_of(x(), written=operand("y", strides=(12, 2))),
        sum_of(x(*(const(0, FLOAT32),) * 2, *AT), read=operand("x", shape=(1, 1, *SHAPE), strides=(24, 24, 6, 1))),
    ],
    ids=[
        "elsewhere too",
        "one row",
        "transposed",
        "another type",
        "further on",
        "constant",
        "apart",
        "of another rank",
    ],
)
def test_an_operand_that_lies_or_is_read_otherwise_is_kept(task: Task) -> None:
    assert "x" not in overwritable(task)
    assert "x" not in shared_pointers(task)


def test_an_axis_of_one_is_read_at_its_only_place() -> None:
    alone = {"shape": (1, 6), "strides": (6, 1)}
    task = sum_of(x(const(0, FLOAT32), index("i1")), read=operand("x", **alone), written=operand("y", **alone))
    assert overwritable(task) == ("x",)


def residuals(rng: np.random.Generator, channels: int, size: int, blocks: int, kernel: int, read_later: bool) -> Graph:
    """Blocks of two convolutions, the second added to what the block is given."""
    b = GraphBuilder("residuals")

    def convolution(value: str, k: int) -> str:
        weight = rng.standard_normal((channels, channels, k, k), dtype=np.float32) / np.float32(channels * k) ** 0.5
        return b.op("Conv", value, b.constant(weight), pads=[k // 2] * 4)

    first = value = b.op("Relu", convolution(b.input("x", (1, channels, size, size)), 3))
    for _ in range(blocks):
        inner = convolution(b.op("Tanh", convolution(value, 1)), kernel)
        value = b.op("Relu", b.op("Add", inner, value))
    means = [b.op("GlobalAveragePool", each) for each in ([value, first] if read_later else [value])]
    return b.finish(*means)


def places(model: api.Model) -> list[tuple[int, int]]:
    """Where each native step writes, and how much."""
    program = model.executable.contents.program
    steps = [step for step in program.steps if isinstance(step, NativeStep)]
    buffers = [program.buffers[step.arguments[0].buffer] for step in steps]
    return [(buffer.offset, buffer.nbytes) for buffer in buffers if buffer.kind == "arena"]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    channels=st.sampled_from((16, 32, 48, 64, 72)),
    size=st.integers(4, 20),
    blocks=st.integers(1, 3),
    kernel=st.sampled_from((1, 3)),
    read_later=st.booleans(),
    threads=st.integers(1, 4),
)
def test_answers_are_the_same_bits(
    channels: int, size: int, blocks: int, kernel: int, read_later: bool, threads: int
) -> None:
    rng = np.random.default_rng(size)
    graph = residuals(rng, channels, size, blocks, kernel, read_later)
    feeds = {"x": rng.standard_normal((1, channels, size, size), dtype=np.float32)}
    over = api.compile(graph, threads=threads, cache=False)
    apart = api.compile(graph, threads=threads, cache=False, disable=("overwrite",))
    wanted = apart.run(None, feeds)
    for _ in range(2):  # nothing is left over from the run before
        for found, same in zip(over.run(None, feeds), wanted, strict=True):
            np.testing.assert_array_equal(found, same)
    session = onnxruntime.InferenceSession(api.to_onnx(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    for found, expected in zip(wanted, session.run(None, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


def test_the_pass_pairs_what_is_read_last_with_what_is_written_there() -> None:
    draft = draft_before(overwrite_results, residuals(np.random.default_rng(0), 64, 16, 3, 3, False))
    found = overwrite_results(draft, MACHINE, Trace()).overwrites
    assert len(found) == 3 and len({new for _, new in found}) == 3
    for old, new in found:
        assert old.buffer.nbytes == new.buffer.nbytes
        assert draft.lifetimes[old].last == draft.lifetimes[new].first
    assert overwrite_results(draft, MACHINE, Trace(limit=1)).overwrites == found[:1]
    longer = {area: replace(used, last=used.last + 1) for area, used in draft.lifetimes.items()}
    assert overwrite_results(replace(draft, lifetimes=longer), MACHINE, Trace()).overwrites == ()


def test_a_chain_of_residuals_has_one_place() -> None:
    graph = residuals(np.random.default_rng(0), 64, 16, 3, 3, False)
    over, apart = (api.compile(graph, threads=2, cache=False, disable=off) for off in ((), ("overwrite",)))
    events = [event for event in over.trace.events if event.what == "overwrite"]
    assert len(events) == 3
    assert all(event.applied and "bytes" in event.reason for event in events)
    assert len(set(places(over))) < len(set(places(apart)))
    assert over.executable.contents.program.arena_bytes < apart.executable.contents.program.arena_bytes


def test_what_is_read_later_is_kept() -> None:
    graph = residuals(np.random.default_rng(0), 64, 16, 1, 3, True)
    model = api.compile(graph, threads=2, cache=False)
    assert not [event for event in model.trace.events if event.what == "overwrite"]
