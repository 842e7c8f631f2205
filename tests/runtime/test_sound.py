"""What a compiled file states is checked before it is used: each number, name and kind, by itself and against the others."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import fusewise
from fusewise.lower.program import DataPosition, Place
from fusewise.runtime.program_json import program_from_json, program_to_json
from fusewise.runtime.sound import check_notes, check_program


def model() -> fusewise.Model:
    """A convolution and a product, with text and a sequence on the host."""
    value = helper.make_tensor_value_info
    weights = np.random.default_rng(0).standard_normal
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["product"]),
        helper.make_node("Gather", ["table", "row"], ["chosen"]),
        helper.make_node("Add", ["product", "chosen"], ["y"]),
        helper.make_node("NonZero", ["y"], ["n"]),
        helper.make_node("StringConcat", ["s", "s"], ["t"]),
        helper.make_node("SequenceConstruct", ["y", "y"], ["q"]),
    ]
    constants = [("w", weights((8, 4, 3, 3))), ("m", weights((8, 5))), ("table", weights((9, 5)))]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            value("x", TensorProto.FLOAT, [1, 4, 6, 6]),
            value("s", TensorProto.STRING, [1]),
            value("row", TensorProto.INT64, [1]),
        ],
        [
            value("y", TensorProto.FLOAT, [1, 5]),
            value("n", TensorProto.INT64, [2, None]),
            value("t", TensorProto.STRING, [1]),
            helper.make_tensor_sequence_value_info("q", TensorProto.FLOAT, None),
        ],
        [helper.make_tensor(name, TensorProto.FLOAT, a.shape, a.reshape(-1).tolist()) for name, a in constants],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return fusewise.compile(made, cache=False, threads=2)


CONTENTS = model().executable.contents
STATED = program_to_json(CONTENTS.program)
SIZES = {number: block.nbytes for number, block in CONTENTS.constants.items()}
PROGRAM = program_from_json(copy.deepcopy(STATED))


def check(program: Any) -> None:
    check_program(program, CONTENTS.symbols, SIZES)


def test_what_was_made_here_is_sound() -> None:
    check(PROGRAM)
    check_notes({"summary": {}, "bounds": {"x": None, "y": 4}})


def of_kind(kind: str) -> int:
    return next(k for k, buffer in enumerate(PROGRAM.buffers) if buffer.kind == kind)


def with_buffer(kind: str, /, **changes: Any) -> Any:
    number = of_kind(kind)
    changed = replace(PROGRAM.buffers[number], **changes)
    return replace(PROGRAM, buffers=(*PROGRAM.buffers[:number], changed, *PROGRAM.buffers[number + 1 :]))


def with_step(native: bool, change: Callable[[Any], Any]) -> Any:
    number = next(k for k, step in enumerate(PROGRAM.steps) if hasattr(step, "kernel") == native)
    steps = (*PROGRAM.steps[:number], change(PROGRAM.steps[number]), *PROGRAM.steps[number + 1 :])
    return replace(PROGRAM, steps=steps)


def first_argument(place: Any) -> Callable[[Any], Any]:
    return lambda step: replace(step, arguments=(place, *step.arguments[1:]))


def read_at(place: Place) -> Callable[[Any], Any]:
    def change(step: Any) -> Any:
        ((name, _, kind), *rest) = step.reads
        return replace(step, reads=((name, place, kind), *rest))

    return change


def with_sites(**changes: Any) -> Any:
    steps = tuple(replace(step, **changes) if getattr(step, "sites", ()) else step for step in PROGRAM.steps)
    return replace(PROGRAM, steps=steps)


UNSOUND: dict[str, Callable[[], Any]] = {
    "not inside the arena": lambda: with_buffer("arena", offset=PROGRAM.arena_bytes),
    "inside the arena": lambda: with_buffer("arena", nbytes=1 << 50),
    "is not inside": lambda: with_buffer("arena", offset=1),
    "cannot have": lambda: with_buffer("arena", nbytes=-1),
    "bytes at 0.5": lambda: with_buffer("arena", offset=0.5),
    "at True": lambda: with_buffer("arena", offset=True),
    "no kind": lambda: with_buffer("arena", kind="heap"),
    "the file has": lambda: with_buffer("constant", nbytes=1),
    "for buffer": lambda: with_buffer("constant", kind="host"),
    "needs 576 bytes": lambda: with_buffer("input", nbytes=8),
    "needs 20 bytes": lambda: with_buffer("output", nbytes=8),
    "an arena of -5": lambda: replace(PROGRAM, arena_bytes=-5),
    "an arena of 'x'": lambda: replace(PROGRAM, arena_bytes="x"),
    "how it was compiled": lambda: replace(PROGRAM, exact="yes"),
    "how it was compiled is not stated": lambda: replace(PROGRAM, disabled=(1,)),
    "for 0 workers": lambda: replace(PROGRAM, workers=0),
    "for 100000 workers": lambda: replace(PROGRAM, workers=100_000),
    "at byte 4611686018427387904": lambda: with_step(True, first_argument(Place(of_kind("arena"), 1 << 62))),
    "at byte 1099511627776": lambda: with_step(True, first_argument(Place(of_kind("arena"), 1 << 40))),
    "at byte -64": lambda: with_step(True, first_argument(Place(of_kind("arena"), -64))),
    "in buffer 77": lambda: with_step(True, first_argument(Place(77))),
    "in buffer -1": lambda: with_step(True, first_argument(Place(-1))),
    "calls kernel -1": lambda: with_step(True, lambda step: replace(step, kernel=-1)),
    "calls kernel 99": lambda: with_step(True, lambda step: replace(step, kernel=99)),
    "0 pieces": lambda: with_step(True, lambda step: replace(step, pieces=0)),
    "in 3 strips": lambda: with_step(True, lambda step: replace(step, strips=3)),
    "which none of its nodes makes": lambda: with_step(
        False, lambda step: replace(step, writes=(("ghost", None, None),))
    ),
    "which nothing has made": lambda: with_step(False, lambda step: replace(step, reads=())),
    "reaches from byte": lambda: with_step(False, read_at(Place(of_kind("output"), 4))),
    "reaches from byte -": lambda: with_step(False, read_at(Place(of_kind("output"), 0, (-5, -1)))),
    "do not fit the shape": lambda: with_step(False, read_at(Place(of_kind("output"), 0, (1,)))),
    "no room for what is wrong": lambda: with_buffer("fault", nbytes=8),
    "does not hold whole words": lambda: with_buffer("fault", nbytes=17),
    "has 0 places for what is wrong": lambda: with_sites(arguments=()),
    "has no place|has 0 places": lambda: with_buffer("fault", kind="host"),
    "positions from data nowhere": lambda: with_sites(sites=(DataPosition("n", "Gather", "i", "low", 4),)),
    "made by no step": lambda: replace(PROGRAM, steps=PROGRAM.steps[:-1]),
}


@pytest.mark.parametrize("sentence", UNSOUND)
def test_what_does_not_fit_is_told(sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        check(UNSOUND[sentence]())


def test_constants_and_kernels_are_those_of_the_file() -> None:
    for sizes in ({}, {**SIZES, 99: 4}, {**SIZES, -1: 4}, {number: size - 1 for number, size in SIZES.items()}):
        with pytest.raises(ValueError, match="constant"):
            check_program(PROGRAM, CONTENTS.symbols, sizes)
    for symbols in (CONTENTS.symbols[:1] * len(CONTENTS.symbols), (), (1, 2, 3)):
        with pytest.raises(ValueError, match="kernel"):
            check_program(PROGRAM, symbols, SIZES)


@pytest.mark.parametrize("notes", [None, [], {"summary": 4, "bounds": {}}, {"summary": {}, "bounds": {"x": "y"}}])
def test_notes(notes: Any) -> None:
    with pytest.raises(ValueError, match="its notes|no bound"):
        check_notes(notes)


def places(stated: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a JSON document."""
    yield way
    if isinstance(stated, dict | list):
        for key, value in stated.items() if isinstance(stated, dict) else enumerate(stated):
            yield from places(value, (*way, key))


WAYS = [way for way in places(STATED) if way]
VALUES = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        1,
        3,
        63,
        1 << 31,
        1 << 40,
        -(1 << 63),
        1 << 70,
        0.5,
        "",
        "arena",
        "x" * 9,
        [],
        {},
        [[]],
        [0, 0],
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(WAYS), VALUES), min_size=1, max_size=3))
def test_any_change_is_refused_or_keeps_every_place_inside_its_buffer(
    changes: list[tuple[tuple[Any, ...], Any]],
) -> None:
    stated = copy.deepcopy(STATED)
    for way, value in changes:
        *inner, last = way
        where = stated
        try:
            for key in inner:
                where = where[key]
            where[last] = value
        except (LookupError, TypeError):
            continue  # an earlier change took it away
    try:
        program = program_from_json(stated)
        check(program)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        return  # what `container.understood` turns into a sentence
    assert len(program.buffers) >= len(SIZES)
    for buffer in program.buffers:
        assert buffer.kind != "arena" or 0 <= buffer.offset <= buffer.offset + buffer.nbytes <= program.arena_bytes
    for step in program.steps:
        if hasattr(step, "kernel"):
            assert CONTENTS.symbols[step.kernel] and step.kernel >= 0
            for place in step.arguments:
                assert 0 <= place.offset <= program.buffers[place.buffer].nbytes and place.buffer >= 0
