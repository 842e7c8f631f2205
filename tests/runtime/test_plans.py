"""One program for every size: plans for each, kept while they come back; sizes that contradict each other, or are too large."""

from __future__ import annotations

import copy
import ctypes
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.free_programs import BATCH, COLUMNS, SEQUENCE, B, S, answers, feeds, free_program

from fusewise.codegen.llvm.checked import checked_code
from fusewise.errors import InvalidModel, ResourceLimit, UsageError
from fusewise.ir.deciding import Condition
from fusewise.ir.graph import Check
from fusewise.ir.size import LARGEST, evaluate, greatest, least
from fusewise.lower.fixed import fixed
from fusewise.lower.program import Extent, NativeStep, Place, Program, StepVersions
from fusewise.runtime import artefact
from fusewise.runtime.container import Container
from fusewise.runtime.executable import Executable, build, restored
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import compile_object, load
from fusewise.runtime.plan_code import FILL, IDLE, PLAN, PlanWriter
from fusewise.runtime.plan_tables import numbers_of, plan_kernel
from fusewise.runtime.program_json import program_from_json, program_to_json
from fusewise.runtime.sizes import SymbolReader
from fusewise.runtime.sound import check_program

SIZES = [(1, 1), (1, 8), (2, 9), (3, 7), (0, 5), (1, 17), (5, 101), (2, 64), (1, 1)]


def check(model: Executable, batch: int, sequence: int) -> None:
    fed = feeds(batch, sequence)
    for found, wanted in zip(model.run(None, fed), answers(fed), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("workers", [1, 2])
def test_every_size(threads: int, workers: int) -> None:
    model = build(free_program(workers=workers), threads=threads)
    for batch, sequence in SIZES:
        check(model, batch, sequence)


def test_ports_have_names_for_free_dimensions() -> None:
    model = build(free_program())
    assert [port.shape for port in model.get_inputs()] == [("batch", "sequence", 4), ("batch", "sequence")]
    assert model.get_outputs()[1].shape == ("batch*sequence - batch", 4)


@pytest.mark.parametrize(
    "x, mask, sentence",
    [
        ((2, 3, 4), (2, 5), "dimension 'sequence' is 3 in axis 1 of input 'x' and 5 in axis 1 of input 'mask'"),
        ((2, 3, 5), (2, 3), "input 'x': expected shape batchxsequencex4, found 2x3x5"),
        ((2, 3), (2, 3), "input 'x': expected shape batchxsequencex4, found 2x3"),
        (
            (2, 0, 4),
            (2, 0),
            "dimension 'sequence' is 0 in axis 1 of input 'x', and must be 1 to 4096",
        ),
        ((1, 13, 4), (1, 13), "cannot take 13 tokens"),
    ],
)
def test_sizes_that_do_not_fit(x: tuple[int, ...], mask: tuple[int, ...], sentence: str) -> None:
    model = build(free_program())
    with pytest.raises(UsageError) as error:
        model.run(None, {"x": np.zeros(x, np.float32), "mask": np.zeros(mask, np.float32)})
    assert sentence in str(error.value)
    check(model, 2, 3)


def test_many_threads_with_different_sizes() -> None:
    model = build(free_program())
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for k in range(30):
                check(model, 1 + (number + k) % 5, 1 + (number * 7 + k * 3) % 12)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_the_same_after_a_file() -> None:
    program = free_program()
    found = program_from_json(program_to_json(program))
    assert str(program_to_json(found)) == str(program_to_json(program))
    symbols = [*(kernel.symbol for kernel in program.kernels), PLAN]
    check_program(found, symbols, {4: 16})


def test_one_file_for_all_sizes(tmp_path: Path) -> None:
    path = tmp_path / "free.fw"
    artefact.write(path, build(free_program()), {"summary": {}, "bounds": {}}, "1")
    with Container(path, "1") as container:
        model = artefact.read(container).executable
    for batch, sequence in SIZES:
        check(model, batch, sequence)


@pytest.mark.parametrize(
    "change, sentence",
    [
        (lambda p: replace(p, symbols=()), "sizes, and has none|has a version|cannot have"),
        (lambda p: replace(p, symbols=(replace(BATCH, low=5, high=4), SEQUENCE)), "cannot be 5 to 4"),
        (lambda p: _with_buffer(p, 5, place=3), "not counted from 0"),
        (lambda p: _with_buffer(p, 5, place=-1), "not counted from 0"),
        (lambda p: _with_buffer(p, 0, nbytes=B * 8), "needs .* bytes"),
        (lambda p: _with_buffer(p, 6, nbytes=20), "does not hold 3 integers"),
        (lambda p: _with_step(p, 0, kernel=4), "calls kernel 4"),
        (lambda p: _with_step(p, 0, sizes=()), "in buffer -1"),
        (lambda p: replace(p, steps=(StepVersions(1, (((p.checks[0].condition,), p.steps[0]),)),)), "no version"),
    ],
)
def test_files_that_do_not_fit_themselves(change: Callable[[Program], Program], sentence: str) -> None:
    program = change(free_program())
    with pytest.raises(ValueError, match=sentence):
        check_program(program, ["a", "b", "c", "d", PLAN], {4: 16})


def _with_buffer(program: Program, number: int, **changes: object) -> Program:
    buffers = list(program.buffers)
    buffers[number] = replace(buffers[number], **changes)  # type: ignore[arg-type]
    return replace(program, buffers=tuple(buffers))


def _with_step(program: Program, number: int, **changes: object) -> Program:
    steps = list(program.steps)
    steps[number] = replace(steps[number], **changes)  # type: ignore[arg-type]
    return replace(program, steps=tuple(steps))


def test_a_division_by_zero_is_told() -> None:
    check_of = Check(Condition("nonnegative", S // B - 1), "node 'n' (Reshape) needs a token for each sample")
    model = build(free_program(checks=(check_of,)))
    check(model, 2, 5)
    with pytest.raises(UsageError, match="divides a size by 0 for inputs of the shapes 0x5x4, 0x5"):
        model.run(None, feeds(0, 5))
    check(model, 2, 5)


def test_an_argument_outside_its_buffer_is_refused_when_sizes_are_known() -> None:
    program = free_program()
    first = program.steps[0]
    assert isinstance(first, NativeStep)
    moved = (Place(0, S * 100), *first.arguments[1:])
    model = build(_with_step(program, 0, arguments=moved))
    with pytest.raises(UsageError, match="outside its buffer"):
        model.run(None, feeds(1, 5))


def test_a_size_beyond_what_memory_there_is() -> None:
    model = build(free_program(symbols=(replace(BATCH, high=LARGEST), replace(SEQUENCE, high=LARGEST))))
    check(model, 1, 4)
    plans = model._plans
    assert plans is not None
    for shape in ((1 << 20, 1 << 14), (1 << 30, 1 << 30), (LARGEST, LARGEST)):
        with pytest.raises(ResourceLimit, match=f"batch={shape[0]}, sequence={shape[1]}"):
            plans._planned(((*shape, 4), shape))
    check(model, 2, 5)


def test_equal_sizes_are_one_number_wherever_a_program_is_read() -> None:
    """Symbols that differ in what is planned for make no other numbers: code meets its layout again in a file."""
    program = free_program()
    again = program_from_json(program_to_json(program))
    planned = replace(again, symbols=tuple(replace(symbol, hint=symbol.hint + 1) for symbol in again.symbols))
    assert len({numbers_of(one).digest for one in (program, again, planned)}) == 1
    assert numbers_of(program).template.size < sum(1 for _ in places(program_to_json(program)))


def test_code_for_other_numbers_is_refused(tmp_path: Path) -> None:
    made = build(free_program())
    contents = made.contents
    *others, narrow = contents.program.buffers
    buffers = (*others, replace(narrow, contents=(B * S, B * S)))
    other = replace(contents, program=replace(contents.program, buffers=buffers))
    with pytest.raises(ValueError, match="was made for others"):
        restored(other)
    made.contents = other
    artefact.write(tmp_path / "other.fw", made, {"summary": {}, "bounds": {}}, "1")
    with pytest.raises(InvalidModel, match="was made for others"), Container(tmp_path / "other.fw", "1") as found:
        artefact.read(found)


MODEL = build(free_program())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 40)), min_size=1, max_size=60))
def test_sizes_in_any_order(sizes: list[tuple[int, int]]) -> None:
    """Plans are written where others were: none says anything of another, whether it was made or refused (13 tokens are)."""
    for batch, sequence in sizes:
        if sequence != 13:
            check(MODEL, batch, sequence)
            continue
        with pytest.raises(UsageError, match="cannot take 13 tokens"):
            MODEL.run(None, feeds(batch, sequence))


def test_the_arena_grows_and_plans_are_kept_within_bounds() -> None:
    model = build(free_program())
    plans = model._plans
    assert plans is not None
    for sequence in {*range(1, 60)} - {13}:
        check(model, 2, sequence)
    assert plans.arena_bytes <= 2 * 59 * 16 * 9 // 8 + 64
    for sequence in range(50, 60):
        check(model, 2, sequence)
    made, arena = plans.made, plans.arena_bytes
    for sequence in range(50, 60):
        check(model, 2, sequence)
    assert (plans.made, plans.arena_bytes) == (made, arena)
    assert len(plans._known) <= 16


def test_an_arena_is_let_go_before_a_larger_one_is_made() -> None:
    """Nothing else holds it: not what the last plan was, nor what plans are written into."""
    plans = build(free_program())._plans
    assert plans is not None

    def planned(sequence: int) -> None:
        shapes = (1000, sequence, COLUMNS), (1000, sequence)
        plans.plan([np.broadcast_to(np.float32(0), shape) for shape in shapes])

    for sequence in range(1000, 980, -1):  # so that there are plans to be written anew
        planned(sequence)
    tracemalloc.start()
    try:
        planned(1400)
        old = plans.arena_bytes
        tracemalloc.reset_peak()
        planned(1800)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert old < plans.arena_bytes <= peak < plans.arena_bytes + 1_000_000


def test_a_checked_build() -> None:
    """Memory of each plan is its own, between guards, and what kernels may touch follows from sizes."""
    program = free_program(workers=1)
    count = B * S * COLUMNS * 4
    extents = (
        Extent("a", "x", 0, count, False),
        Extent("b", "w", 0, 16, False),
        Extent("c", "y", 0, count, True),
        Extent("sizes", "", 0, 16, False),
    )
    kernels = tuple(checked_code(kernel) for kernel in program.kernels)
    steps = tuple(replace(step, extents=extents) for step in program.steps if isinstance(step, NativeStep))
    made = replace(program, kernels=kernels, steps=steps, is_checked=True, outputs=(program.outputs[0],))
    model = build(made)
    for batch, sequence in SIZES:
        fed = feeds(batch, sequence)
        np.testing.assert_array_equal(model.run(None, fed)[0], answers(fed)[0])


OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a // greatest(b, 1),
    "remainder": lambda a, b: a % greatest(b, 1),
    "least": least,
    "greatest": greatest,
}

SIZES_TO_TRY = st.recursive(
    st.one_of(st.integers(-9, 9), st.sampled_from([B, S])),
    lambda inner: st.builds(lambda op, a, b: OPERATIONS[op](a, b), st.sampled_from(sorted(OPERATIONS)), inner, inner),
    max_leaves=8,
)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(SIZES_TO_TRY, min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=1),
)
def test_native_code_computes_what_sizes_are(sizes: list[int], values: list[tuple[int, int]]) -> None:
    writer = PlanWriter({"batch": 0, "sequence": 1})
    for k, size in enumerate(sizes):
        writer.store(k + 1, writer.number(size))
    image = compile_object(writer.text(0), host_target(), "quick")
    library = load([image], [PLAN, FILL, IDLE])
    compute = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library.addresses[PLAN])
    for batch, sequence in values:
        dims, found = np.array([batch, sequence], np.int64), np.zeros(len(sizes) + 1, np.int64)
        compute(dims.ctypes.data, found.ctypes.data)
        wanted = [evaluate(size, {"batch": batch, "sequence": sequence}) for size in sizes]
        assert found.tolist() == [0, *wanted]


@pytest.mark.parametrize("batch, sequence", [(1, 5), (3, 9), (0, 4)])
def test_plans_say_what_the_program_is_at_these_sizes(batch: int, sequence: int) -> None:
    program = free_program()
    settled = fixed(program, {"batch": batch, "sequence": sequence})
    fed = feeds(batch, sequence)
    for a, b in zip(build(program).run(None, fed), build(settled).run(None, fed), strict=True):
        np.testing.assert_array_equal(a, b)


STATED = program_to_json(free_program())
KERNELS = [*(kernel.symbol for kernel in free_program().kernels), PLAN]


def places(stated: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a JSON document."""
    yield way
    if isinstance(stated, dict | list):
        for key, value in stated.items() if isinstance(stated, dict) else enumerate(stated):
            yield from places(value, (*way, key))


ODD_VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 1 << 31, -(1 << 63), 1 << 70, 0.5, "", "batch", [], {}, [[]], [0, 0]),
    *([0, [1, ["batch", 9]]], [0, [1, ["nobody", 1]]], [0, [1, [["floordiv", 1, 0], 1]]], [0, [-5, ["sequence", 2]]]),
    *([[], 1], [0, [1 << 80, ["batch", 1]]], [0, [1, [["sin", 1], 1]]], [0, [1, ["batch", 0]]]),
]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([way for way in places(STATED) if way]), st.sampled_from(ODD_VALUES)),
        min_size=1,
        max_size=3,
    )
)
def test_any_change_of_a_file_is_refused_or_understood(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    """A program that passes the checks has a layout and code for its plans, and means something at sizes that fit."""
    stated = copy.deepcopy(STATED)
    for (*inner, last), value in changes:
        where = stated
        try:
            for key in inner:
                where = where[key]
            where[last] = value
        except (LookupError, TypeError):
            continue  # an earlier change took it away
    try:
        program = program_from_json(stated)
        check_program(program, KERNELS if program.symbols else KERNELS[:-1], {4: 16})
        reader = SymbolReader(program.symbols, program.inputs, program.checks)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        return  # what `container.understood` turns into a sentence
    if not program.symbols:
        return
    assert numbers_of(program).template.dtype == np.int64
    assert plan_kernel(program)[0].build()
    sizes = {symbol.name: min(max(symbol.low, 5), symbol.high) for symbol in reader.symbols}
    for step in fixed(program, sizes).steps:
        assert not isinstance(step, StepVersions)
