"""Every option of every operator: definitions, host steps, folded constants and native code against ONNX Runtime.

Where ONNX Runtime lacks the operator or refuses a case, our ways are compared with each other. `EXCEPTIONS` is what remains, with
the reason for each; an exception that no case needs any more fails.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import TypeVar, cast

import numpy as np
import onnx
import pytest
from tests.ops.options import ways
from tests.ops.options.case import Case
from tests.ops.options.elementwise import ELEMENTWISE
from tests.ops.options.movement import MOVEMENT
from tests.ops.options.numbers import NUMBERS
from tests.ops.options.old import OLD
from tests.ops.options.sequences import SEQUENCES
from tests.ops.options.ways import Answers, compiled, difference
from tests.ops.options.windows import WINDOWS

from fusewise.frontend.upgrade import PINNED_OPSET

CASES = (*ELEMENTWISE, *MOVEMENT, *WINDOWS, *NUMBERS, *SEQUENCES)

AT_ONCE = 40
"""Cases that are compiled as one model."""


def _absent_bound(case: Case) -> bool:
    return case.inputs[1] is None or case.inputs[2] is None


def _single(case: Case) -> bool:
    return case.inputs[0] is not None and int(case.inputs[0]) <= 2


def _rounds(case: Case) -> bool:
    """May a source coordinate that is a whole number, or half of one, become the one below by rounding?"""
    symmetric = case.attributes.get("coordinate_transformation_mode") == "half_pixel_symmetric"
    return case.attributes.get("mode") == "nearest" and (symmetric or case.inputs[2] is not None)


def _fractional(case: Case) -> bool:
    where = case.attributes.get("coordinate_transformation_mode")
    return where == "align_corners" and len(case.inputs) > 2 and case.inputs[2] is not None


def _far(case: Case) -> bool:
    floats = (x for x in case.inputs if isinstance(x, np.ndarray) and x.dtype.kind == "f")
    return not all(np.isfinite(x).all() for x in floats)


EXCEPTIONS: tuple[tuple[str, Callable[[Case], bool], str], ...] = (
    (
        "AffineGrid",
        lambda case: (
            bool(case.attributes.get("align_corners")) and case.inputs[1] is not None and 1 in case.inputs[1][2:]
        ),
        "PyTorch, which the text refers to, puts the one element of an axis at 0; ONNX Runtime at 1",
    ),
    (
        "Attention",
        lambda case: case.attributes.get("qk_matmul_output_mode") == 2 and bool(case.attributes.get("is_causal")),
        "scores that causality forbids are -inf (Attention, item 2); ONNX Runtime gives the lowest float",
    ),
    (
        "BlackmanWindow",
        _single,
        "0.42 - 0.5 + 0.08 is zero but for rounding, and ONNX Runtime rounds in float32",
    ),
    ("Cast", lambda case: case.attributes["to"] == 8, "how floats are written is open but for plain notation (Cast)"),
    (
        "Clip",
        lambda case: _absent_bound(case) and _far(case),
        "an absent bound leaves infinities alone here; ONNX Runtime makes them the largest float, so that Clip is no Relu",
    ),
    (
        "Clip",
        lambda case: any(
            x is not None and x.ndim == 0 and np.isnan(x)
            for x in case.inputs[1:]
            if x is not None and x.dtype.kind == "f"
        ),
        "nothing says what a bound that is not a number does",
    ),
    (
        "DynamicQuantizeLinear",
        lambda case: case.inputs[0] is not None and not case.inputs[0].any(),
        "the text divides by a scale of zero; ONNX Runtime takes 1, we 1/255 as ONNX's evaluator",
    ),
    ("GridSample", _far, "positions outside read padding; ONNX Runtime reads the first element at those beyond int32"),
    (
        "MaxUnpool",
        lambda case: len(case.inputs) > 2 and case.inputs[2] is not None,
        "indices are of the size without output_shape, as in ONNX's own test; ONNX Runtime takes them of that size",
    ),
    (
        "Mod",
        lambda case: case.inputs[0] is not None and case.inputs[0].dtype == np.uint64,
        "ONNX Runtime computes fmod of integers in double precision",
    ),
    (
        "ReduceMean",
        lambda case: case.inputs[0] is not None and 0 in case.inputs[0].shape,
        "the mean of nothing is undefined (ReduceMean); ours is not a number, ONNX Runtime's zero",
    ),
    ("Resize", _rounds, "a coordinate on a whole number is one in exact arithmetic; ONNX Runtime rounds it in float32"),
    ("Resize", _fractional, "ONNX's own tests take the length as a fraction; ONNX Runtime takes the whole number"),
)
"""Operator, which of its cases, and why ONNX Runtime's answer is not taken."""


ELSEWHERE = {
    "Constant": "is no node of a graph (frontend)",
    "GRU": "tests/ops/test_recurrence.py",
    "If": "tests/ops/test_evaluate.py",
    "ImageDecoder": "decodes files of images",
    "LSTM": "tests/ops/test_recurrence.py",
    "Loop": "tests/ops/test_corrections.py",
    "Optional": "tests/ops/test_corrections.py",
    "RNN": "tests/ops/test_recurrence.py",
    "Scan": "tests/ops/test_corrections.py",
    "SequenceEmpty": "has no operands",
    "SequenceMap": "tests/ops/test_corrections.py",
    **dict.fromkeys(
        "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split(), "is random"
    ),
}
"""Operators that are not tried here, and why, or where they are."""


def excused(case: Case) -> bool:
    return any(op == case.op and holds(case) for op, holds, _ in EXCEPTIONS)


Way = TypeVar("Way", bound=Callable[[Case], object])


def once(way: Way) -> Way:
    """A way that answers a case of the tables below once, whichever tests ask for it."""
    answers: dict[int, object] = {}

    @wraps(way)
    def answered(case: Case) -> object:
        if id(case) not in answers:  # the tables keep their cases
            answers[id(case)] = way(case)
        return answers[id(case)]

    return cast("Way", answered)


by_definition, by_numpy, by_onnx_runtime, on_the_host = map(
    once, (ways.by_definition, ways.by_numpy, ways.by_onnx_runtime, ways.on_the_host)
)


def pairs(every: int) -> list[tuple[Case, Answers]]:
    """Each `every`th case that ONNX Runtime has, and its answers, except those that are excused."""
    taken = [case for case in CASES[::every] if not excused(case)]
    return [(case, right) for case in taken if not isinstance(right := by_onnx_runtime(case), str)]


def wrong(found: Iterable[tuple[Case, Answers | str]], right: Iterable[Answers]) -> list[str]:
    """A line for each case whose answers differ."""
    return [
        f"{case.label}: {how}"
        for (case, answers), wanted in zip(found, right, strict=True)
        if (how := difference(answers, wanted)) is not None
    ]


def check(found: Sequence[tuple[Case, Answers | str]], right: Sequence[Answers]) -> None:
    lines = wrong(found, right)
    assert not lines, f"{len(lines)} of {len(right)}:\n" + "\n".join(lines[:20])


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_definitions_and_host_steps_agree_with_onnx_runtime(every: int) -> None:
    known = pairs(every)
    right = [answers for _, answers in known]
    assert len(right) > 4000 / every
    check([(case, on_the_host(case)) for case, _ in known], right)
    defined = [(case, answers, by_definition(case)) for case, answers in known]
    covered = [(c, a, d) for c, a, d in defined if not (isinstance(d, str) and d.startswith("NotDefined"))]
    assert len(covered) > 3500 / every
    check([(case, found) for case, _, found in covered], [answers for _, answers, _ in covered])


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_plain_numpy_agrees_with_onnx_runtime(every: int) -> None:
    known = pairs(every)
    found = [(case, answers, by_numpy(case)) for case, answers in known]
    mine = [(case, answers, own) for case, answers, own in found if own is not None]
    assert len(mine) > 2000 / every
    check([(case, own) for case, _, own in mine], [answers for _, answers, _ in mine])


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_definitions_and_host_steps_agree_where_onnx_runtime_has_nothing(every: int) -> None:
    alone = [case for case in CASES[::every] if excused(case) or isinstance(by_onnx_runtime(case), str)]
    ours = [(case, on_the_host(case), by_definition(case)) for case in alone]
    both = [(case, host, own) for case, host, own in ours if not isinstance(own, str) and not isinstance(host, str)]
    assert len(both) > 120 / every
    check([(case, host) for case, host, _ in both], [own for _, _, own in both])


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_earlier_opsets_mean_what_onnx_runtime_takes_them_for(every: int) -> None:
    batches: dict[int, list[Case]] = defaultdict(list)
    for case in OLD[::every]:
        batches[case.opset].append(case)
    lines: list[str] = []
    for batch in batches.values():
        right = [by_onnx_runtime(case) for case in batch]
        lines += [answers for answers in right if isinstance(answers, str)]
        lines += wrong(zip(batch, compiled(batch), strict=True), right)
    assert not lines, "\n".join(lines[:20])


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("every", [60, pytest.param(3, marks=pytest.mark.slow)])
def test_native_code_and_folded_constants_agree_with_onnx_runtime(every: int, folded: bool) -> None:
    batches: dict[tuple[str, int], list[tuple[Case, Answers]]] = defaultdict(list)
    for case, answers in pairs(every):
        if folded and any(isinstance(x, list) or (x is not None and x.dtype == object) for x in case.inputs):
            continue  # sequences are no constants, and no program gives out text that is one
        batches[case.op if every < 10 else "", case.opset].append((case, answers))
    assert sum(map(len, batches.values())) > 4000 / every
    lines: list[str] = []
    for batch in batches.values():
        for begin in range(0, len(batch), AT_ONCE):
            cases, right = zip(*batch[begin : begin + AT_ONCE], strict=True)
            lines += wrong(zip(cases, compiled(cases, folded), strict=True), right)
    assert not lines, "\n".join(lines[:20])


def test_every_exception_is_needed() -> None:
    needed: Counter[str] = Counter()
    for case in CASES:
        for op, holds, reason in EXCEPTIONS:
            if op == case.op and not needed[reason] and holds(case):
                right = by_onnx_runtime(case)
                if not isinstance(right, str) and difference(on_the_host(case), right) is not None:
                    needed[reason] += 1
    assert set(needed) == {reason for _, _, reason in EXCEPTIONS}


def test_every_operator_and_every_option_is_tried() -> None:
    """Each attribute with two values or more, absence being one, and each optional operand given and not."""
    newest: dict[str, onnx.defs.OpSchema] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain and schema.since_version <= PINNED_OPSET:
            best = newest.setdefault(schema.name, schema)
            newest[schema.name] = max(best, schema, key=lambda s: s.since_version)
    tried = {case.op for case in CASES}
    assert {name for name, schema in newest.items() if not schema.deprecated} == tried | set(ELSEWHERE)
    values: dict[tuple[str, str], set[str]] = defaultdict(set)
    given: dict[tuple[str, int], set[bool]] = defaultdict(set)
    for case in CASES:
        for name in newest[case.op].attributes:
            values[case.op, name].add(repr(case.attributes.get(name)))
        for i, operand in enumerate(newest[case.op].inputs):
            if operand.option == onnx.defs.OpSchema.FormalParameterOption.Optional:
                given[case.op, i].add(i < len(case.inputs) and case.inputs[i] is not None)
    assert not [key for key, found in values.items() if len(found) < 2]
    assert [key for key, found in given.items() if len(found) < 2] == [("OptionalHasElement", 0)]
