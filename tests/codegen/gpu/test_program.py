"""Programs for a GPU as data: who waits for whom, where the arena's buffers lie, what a broken one is told."""

from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.codegen.gpu.program import (
    ALIGNMENT,
    ByteRange,
    GpuBuffer,
    GpuProgram,
    GpuStep,
    check_program,
    edges,
    planned,
    reads_of,
    stretches,
    writes_of,
)
from fusewise.errors import BrokenPlan
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Node
from fusewise.ir.types import TensorType
from fusewise.lower.program import HostStep, Place

BUFFERS = (
    GpuBuffer("arena", 8, 0),
    GpuBuffer("arena", 8, 4),  # shares bytes with both neighbours
    GpuBuffer("arena", 8, 8),
    GpuBuffer("input", 6),
    GpuBuffer("output", 6),
)


@st.composite
def ranges(draw):
    buffer = draw(st.integers(0, len(BUFFERS) - 1))
    low, high = sorted(draw(st.tuples(*[st.integers(0, BUFFERS[buffer].nbytes)] * 2)))
    return ByteRange(buffer, low, high)


@st.composite
def ranges_with_gaps(draw):
    period = draw(st.sampled_from([2, 3, 4]))
    return replace(draw(ranges()), period=period, width=draw(st.integers(1, period - 1)))


def programs_of(one):
    some = st.lists(one, max_size=3).map(tuple)
    return st.lists(st.builds(GpuStep, st.just(0), st.just(()), some, some), max_size=12)


programs = programs_of(ranges())
programs_with_gaps = programs_of(st.one_of(ranges(), ranges_with_gaps()))


def touched(one: ByteRange) -> set[tuple[object, int]]:
    """Every byte by itself: another way to say where ranges lie."""
    buffer = BUFFERS[one.buffer]
    space, start = ("arena", buffer.offset) if buffer.kind == "arena" else (one.buffer, 0)
    within = (at for at in range(one.low, one.high) if not one.period or (at - one.low) % one.period < one.width)
    return {(space, start + at) for at in within}


def all_touched(parts) -> set[tuple[object, int]]:
    return set().union(*map(touched, parts))


def run(steps, order) -> dict[tuple[object, int], object]:
    """Memory after steps that write what depends on all they read and on who they are."""
    memory: dict[tuple[object, int], object] = {}
    for number in order:
        step = steps[number]
        seen = hash((number, *((at, memory.get(at)) for at in sorted(all_touched(step.reads), key=str))))
        memory.update({at: (seen, at) for at in all_touched(step.writes)})
    return memory


def an_order(count, found, choose) -> list[int]:
    sorter = TopologicalSorter({number: [] for number in range(count)})
    for first, second in found:
        sorter.add(second, first)
    sorter.prepare()
    ready, order = list[int](), list[int]()
    while sorter.is_active():
        ready += sorter.get_ready()
        order.append(ready.pop(choose.randrange(len(ready))))
        sorter.done(order[-1])
    return order


@given(st.one_of(programs, programs_with_gaps), st.randoms(use_true_random=False))
def test_every_order_that_keeps_to_the_edges_gives_the_same(steps, choose):
    found = edges(steps, BUFFERS)
    assert run(steps, an_order(len(steps), found, choose)) == run(steps, range(len(steps)))


def closure(count, pairs) -> set[tuple[int, int]]:
    behind = [set() for _ in range(count)]
    for first, second in sorted(pairs, key=lambda pair: pair[1]):
        behind[second] |= behind[first] | {first}
    return {(first, second) for second, found in enumerate(behind) for first in found}


@given(programs)
def test_edges_are_what_conflicts_ask_for_and_no_more(steps):
    reads, writes = ([all_touched(part(step)) for step in steps] for part in (reads_of, writes_of))
    conflicts = [
        (a, b)
        for a, b in combinations(range(len(steps)), 2)
        if writes[a] & (reads[b] | writes[b]) or reads[a] & writes[b]
    ]
    found = edges(steps, BUFFERS)
    wanted = closure(len(steps), conflicts)
    assert closure(len(steps), found) == wanted
    for one in found:
        assert one not in closure(len(steps), set(found) - {one}), "it follows from others"


def test_the_three_reasons_to_wait():
    whole, other = ByteRange(0, 0, 4), ByteRange(4, 0, 4)

    def step(reads, writes):
        return GpuStep(0, (), reads, writes)

    assert edges([step((), (whole,)), step((whole,), ())], BUFFERS) == ((0, 1),)
    assert edges([step((whole,), ()), step((), (whole,))], BUFFERS) == ((0, 1),)
    assert edges([step((), (whole,)), step((), (whole,))], BUFFERS) == ((0, 1),)
    assert edges([step((whole,), ()), step((whole,), ())], BUFFERS) == ()
    assert edges([step((), (whole,)), step((), (other,))], BUFFERS) == ()


def test_runs_of_a_period_that_lie_beside_each_other_do_not_wait():
    """Channels of every pixel: two steps write 4 and 2 of 6, one reads the first, one all, and one overwrites some of both."""
    buffers = (GpuBuffer("arena", 60),)

    def step(reads, *writes):
        return GpuStep(0, (), reads, writes)

    first, second, across = (ByteRange(0, low, 60 + low - 6 + n, 6, n) for low, n in ((0, 4), (4, 2), (3, 2)))
    steps = [step((), first), step((), second), step((first,)), step((ByteRange(0, 0, 60),)), step((), across)]
    assert edges(steps, buffers) == ((0, 2), (1, 3), (0, 3), (3, 4), (2, 4))


def test_memory_is_not_shared_by_what_may_run_side_by_side():
    """Two chains from one input: their steps come in turn, by level, and wait for nobody of the other."""
    buffers = (
        GpuBuffer("input", 8),
        *(GpuBuffer("arena", 8) for _ in range(6)),
        *(GpuBuffer("output", 8) for _ in range(2)),
    )
    chains = ((0, 1, 2, 3, 7), (0, 4, 5, 6, 8))
    steps = tuple(
        GpuStep(0, (Place(a), Place(b)), (ByteRange(a, 0, 8),), (ByteRange(b, 0, 8),), f"{a} to {b}")
        for links in chains
        for a, b in pairwise(links)
    )
    program = planned(GpuProgram("sm_90", "float32", (KERNEL,), steps, buffers, (), ()))
    assert [step.label for step in program.steps][:4] == ["0 to 1", "0 to 4", "1 to 2", "4 to 5"]
    assert program.edges == ((0, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 7))
    assert program.arena_bytes == 4 * ALIGNMENT


KERNEL = GpuKernel("k", "", ("x", "out"), ("fp32", "fp32"), (16, 4), (1,))


def chain(sizes) -> GpuProgram:
    """Every buffer is read by the step that writes the next one."""
    buffers = (
        GpuBuffer("input", sizes[0]),
        *(GpuBuffer("arena", size) for size in sizes[1:-1]),
        GpuBuffer("output", sizes[-1]),
    )
    steps = tuple(
        GpuStep(0, (Place(k), Place(k + 1)), (ByteRange(k, 0, sizes[k]),), (ByteRange(k + 1, 0, sizes[k + 1]),))
        for k in range(len(sizes) - 1)
    )
    return GpuProgram("sm_90", "float32", (KERNEL,), steps, buffers, (), ())


@given(st.lists(st.integers(1, 5000), min_size=2, max_size=12))
def test_buffers_that_live_at_the_same_time_lie_apart(sizes):
    program = planned(chain(sizes))
    check_program(program)
    arena = [number for number, buffer in enumerate(program.buffers) if buffer.kind == "arena"]
    for number in arena:
        one = program.buffers[number]
        assert one.offset % ALIGNMENT == 0
        assert one.offset + one.nbytes <= program.arena_bytes
        if number + 1 in arena:
            two = program.buffers[number + 1]
            assert one.offset + one.nbytes <= two.offset or two.offset + two.nbytes <= one.offset
    if len(arena) > 4:
        assert program.arena_bytes < sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes[1:-1])


def test_host_steps_cut_a_program_and_wait_as_launches_do():
    node = Node("Relu", ("a",), ("b",))
    kind = TensorType(FLOAT32, (2,))
    host = HostStep((node,), 22, (("a", Place(1), kind),), (("b", Place(2), kind),))
    program = chain([8, 8, 8, 8])
    steps = (program.steps[0], host, program.steps[2])
    assert list(stretches(steps)) == [(True, (0,)), (False, (1,)), (True, (2,))]
    assert edges(steps, program.buffers) == ((0, 1), (1, 2))
    assert edges(steps, program.buffers, (2,)) == ()


def test_an_operand_by_strides_covers_what_lies_between():
    kind = TensorType(FLOAT32, (2, 3))
    host = HostStep((), 22, (("a", Place(0, 40, (-1, 2)), kind),), ())
    assert reads_of(host) == [ByteRange(0, 36, 60)]


GOOD = planned(chain([8, 8, 8]))
STEP = GOOD.steps[0]


@pytest.mark.parametrize(
    "broken, words",
    [
        (replace(GOOD, buffers=(replace(GOOD.buffers[0], kind="heap"), *GOOD.buffers[1:])), "unknown kind 'heap'"),
        (replace(GOOD, arena_bytes=0), "does not lie in the arena"),
        (replace(GOOD, steps=(replace(STEP, kernel=1),)), "kernel 1"),
        (replace(GOOD, steps=(replace(STEP, arguments=()),)), "number of arguments"),
        (replace(GOOD, kernels=(replace(KERNEL, grid=(0,)),)), r"over \(0,\) blocks"),
        (replace(GOOD, kernels=(replace(KERNEL, grid=(1, 1 << 16)),)), r"over \(1, 65536\) blocks"),
        (replace(GOOD, steps=(replace(STEP, arguments=(Place(0, 4), Place(1))),)), "crooked x"),
        (replace(GOOD, steps=(replace(STEP, arguments=(Place(0), Place(1, 12))),)), "bytes 12 to 12 of buffer 1"),
        (replace(GOOD, steps=(replace(STEP, reads=(ByteRange(9, 0, 1),)),)), "buffer 9"),
        (replace(GOOD, steps=(replace(STEP, reads=(ByteRange(0, -1, 1),)),)), "bytes -1 to 1"),
        (replace(GOOD, steps=(replace(STEP, reads=(ByteRange(0, 0, 9),)),)), "bytes 0 to 9"),
        (replace(GOOD, steps=(replace(STEP, reads=(ByteRange(0, 0, 8, 4, 5),)),)), "5 of every 4 bytes"),
        (replace(GOOD, steps=(replace(STEP, reads=(ByteRange(0, 0, 8, 4, 0),)),)), "0 of every 4 bytes"),
        (replace(GOOD, steps=(replace(STEP, writes=(ByteRange(0, 0, 8),)),)), "may only be read"),
    ],
)
def test_a_broken_program_is_told_where(broken, words):
    check_program(GOOD)
    with pytest.raises(BrokenPlan, match=words):
        check_program(broken)
