"""What programs do to memory, beside what can be counted by hand; and that a traced program computes what it did."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.emulated.graphs import CASES, feeds_of
from tests.machines import runnable

from fusewise.benchmarking.accesses import Accesses, accesses_of
from fusewise.benchmarking.caches import CacheLevel
from fusewise.benchmarking.inputs import random_feeds
from fusewise.codegen.assemble import generate
from fusewise.codegen.legalize import legalized
from fusewise.codegen.target import LINE_BYTES, Target
from fusewise.fusion.plan import partition
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Constant, Graph, Node
from fusewise.ir.types import TensorType
from fusewise.lower.program import NativeStep, Program
from fusewise.runtime.executable import build
from fusewise.runtime.host import host_target
from fusewise.trace import Trace

LEVELS = (CacheLevel("L1", 32 << 10, 8), CacheLevel("L2", 1 << 20, 8), CacheLevel("L3", 8 << 20, 16, shared=True))
ELEMENTS = 16 << 10
FEW = 24
"""Words beside the data: pointers to arguments."""


def chain(ops: tuple[str, ...], elements: int = ELEMENTS) -> Graph:
    """Elementwise operators one after the other."""
    names = [f"v{k}" for k in range(len(ops) + 1)]
    nodes = tuple(Node(op, (names[k],), (names[k + 1],)) for k, op in enumerate(ops))
    return Graph(
        (names[0],), (names[-1],), nodes, dict.fromkeys(names, TensorType(FLOAT32, (elements,))), {}, "chain", 21
    )


def product(rows: int, depth: int, columns: int) -> Graph:
    kinds = {"a": (rows, depth), "b": (depth, columns), "c": (rows, columns)}
    weights = np.random.default_rng(0).standard_normal((depth, columns), np.float32)
    types = {name: TensorType(FLOAT32, dims) for name, dims in kinds.items()}
    return Graph(("a",), ("c",), (Node("MatMul", ("a", "b"), ("c",)),), types, {"b": Constant(weights)}, "product", 21)


def program_of(graph: Graph, fusion: str = "dnnfusion", workers: int = 1, target: Target | None = None) -> Program:
    trace = Trace()
    return generate(partition(graph, trace, fusion), target or host_target(), trace, workers=workers)


def counted(graph: Graph, fusion: str = "dnnfusion", workers: int = 1, target: Target | None = None) -> Accesses:
    return accesses_of(program_of(graph, fusion, workers, target), random_feeds(graph, 0), LEVELS, target)


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
def test_a_map_is_read_once_and_written_once(target: Target) -> None:
    found = counted(chain(("Relu",)), target=target).whole
    instructions, nbytes, lines = ELEMENTS // target.lanes, 4 * ELEMENTS, 4 * ELEMENTS // LINE_BYTES
    assert instructions <= found.loads <= instructions + FEW
    assert found.stores == instructions
    assert nbytes <= found.bytes_loaded <= nbytes + 8 * FEW
    assert found.bytes_stored == nbytes
    # both arrays are 64 KB: of the first level nothing is left when they are read again, the second one holds both
    assert 2 * lines <= found.lines(0) <= 2 * lines + FEW
    assert found.lines(1) <= 2
    assert found.lines(2) == 0


def test_fusing_a_chain_saves_what_lies_between() -> None:
    ops = ("Relu", "Neg", "Abs")
    apart, together = counted(chain(ops), "none").whole, counted(chain(ops)).whole
    assert apart.bytes_stored == 3 * together.bytes_stored == 3 * 4 * ELEMENTS
    assert apart.loads > 2.9 * together.loads
    assert apart.lines(0) > 1.9 * together.lines(0)


@settings(deadline=None, max_examples=8)
@given(st.lists(st.sampled_from(["Relu", "Neg", "Abs", "Floor"]), min_size=1, max_size=4), st.integers(1, 5000))
def test_fusing_never_stores_more(ops: list[str], elements: int) -> None:
    graph = chain(tuple(ops), elements)
    apart, together = counted(graph, "none"), counted(graph)
    assert together.whole.bytes_stored <= apart.whole.bytes_stored
    assert together.whole.accesses <= apart.whole.accesses
    assert all(np.array_equal(a, b) for a, b in zip(apart.answers, together.answers, strict=True))


def test_answers_are_those_of_the_program() -> None:
    graph = product(37, 129, 65)
    feeds = random_feeds(graph, 0)
    wanted = build(program_of(graph), threads=1).run(None, feeds)
    assert np.array_equal(counted(graph).answers[0], wanted[0])


def test_a_product_reads_no_less_than_its_operands_and_no_more_than_without_registers() -> None:
    rows, depth, columns = 64, 256, 96
    found = counted(product(rows, depth, columns)).whole
    assert found.bytes_loaded >= 4 * (rows * depth + depth * columns)
    assert found.bytes_loaded < 4 * 2 * rows * depth * columns / 4
    assert found.bytes_stored >= 4 * rows * columns
    assert found.lines(1) <= 4 * (rows * depth + depth * columns + rows * columns) / LINE_BYTES + FEW


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_together_do_what_one_does(workers: int) -> None:
    one, many = counted(chain(("Relu", "Neg"))), counted(chain(("Relu", "Neg")), workers=workers)
    assert many.whole.bytes_stored == one.whole.bytes_stored
    assert one.whole.bytes_loaded <= many.whole.bytes_loaded <= one.whole.bytes_loaded + 8 * FEW * workers
    assert np.array_equal(one.answers[0], many.answers[0])


def test_the_steps_add_up_to_the_whole() -> None:
    found = counted(chain(("Relu", "Neg", "Abs")), "none")
    assert len(found.steps) == 3
    assert sum(step.accesses for step in found.steps.values()) == found.whole.accesses
    for level in range(len(LEVELS)):
        assert sum(step.lines(level) for step in found.steps.values()) == found.whole.lines(level)


def test_smaller_caches_miss_more() -> None:
    graph = product(64, 256, 96)
    small = tuple(CacheLevel(level.name, level.nbytes // 8, level.ways) for level in LEVELS)
    program, feeds = program_of(graph), random_feeds(graph, 0)
    few, many = accesses_of(program, feeds, LEVELS), accesses_of(program_of(graph), feeds, small)
    assert few.whole.loads == many.whole.loads
    assert all(few.whole.lines(level) <= many.whole.lines(level) for level in range(3))
    assert few.whole.lines(0) < many.whole.lines(0)


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("name", CASES)
def test_every_kernel_can_be_traced_and_computes_what_it_did(name: str, target: Target) -> None:
    case = CASES[name]
    graph = legalized(case.graph(), target, Trace())
    feeds, program = feeds_of(graph), program_of(graph, workers=case.threads, target=target)
    wanted = build(program, threads=case.threads, target=target).run(None, feeds)
    found = accesses_of(program, feeds, LEVELS, target)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(wanted, found.answers, strict=True))
    native = {number for number, step in enumerate(program.steps) if isinstance(step, NativeStep)}
    assert set(found.steps) == native
    if len(native) == len(program.steps):
        assert found.whole.bytes_stored >= sum(answer.nbytes for answer in found.answers)
