"""NaN and infinities in every place of every operand of attention, in Triton's interpreter, against the operator's definition.

Each sample of a batch has one of them in a place of its own, so that one launch has all places.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.codegen.gpu.interpreting import compare, expected, launch
from tests.codegen.gpu.test_attention import attention_task, contents
from tests.codegen.gpu.test_nests import dense
from tests.runtime.gpu.kernels import needs_triton

from fusewise.codegen.gpu import attention_plan
from fusewise.codegen.gpu.attention import attention
from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.llvm.plain import plain_task
from fusewise.ir.dtypes import BOOL, FLOAT32
from fusewise.lower.task import Task

pytestmark = needs_triton

SPECIAL = (np.nan, np.inf, -np.inf)
SIZE, KEYS = 2, 20
"""Elements of a head, and keys, which are more than a block goes over at a time."""
SM_90 = device_named("sm_90")


def problem(queries: int, mask: str, causal: bool) -> tuple[Task, dict[str, np.ndarray], list[tuple[int, int]]]:
    """A task, its operands, and the operand and row of each sample's special number. Two heads share keys."""
    shapes = [(2, queries, SIZE), (1, KEYS, SIZE), (1, KEYS, SIZE), (1, queries, KEYS)][: 4 if mask == "float32" else 3]
    places = [
        (k, np.unravel_index(n, shape), SPECIAL[n % len(SPECIAL)])
        for k, shape in enumerate(shapes)
        for n in range(math.prod(shape))
    ]
    count = len(places)
    operands = [dense(f"in{k}", FLOAT32, (count, *shape)) for k, shape in enumerate(shapes)]
    if mask == "bool":
        operands.append(dense("in3", BOOL, (count, 1, queries, KEYS)))
    task = attention_task(operands, dense("out0", FLOAT32, (count, 2, queries, SIZE)), is_causal=int(causal))
    given = contents(task)
    for number, (k, place, value) in enumerate(places):
        given[f"in{k}"].reshape(count, *shapes[k])[(number, *place)] = value
    return task, given, [(k, int(place[1])) for k, place, _ in places]


def answers(task: Task, given: dict[str, np.ndarray], precision: str) -> tuple[np.ndarray, np.ndarray]:
    """The kernel's, and those of the definition."""
    plain = plain_task(task)
    assert plain is not None
    found, _ = launch(attention(task, SM_90, precision), task, given)
    return found["out0"], expected(plain, given)["out0"]


@pytest.mark.parametrize(("queries", "mask", "parts"), [(1, "bool", True), (3, "", False), (2, "float32", True)])
def test_every_place(queries: int, mask: str, parts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if parts:
        monkeypatch.setattr(attention_plan, "_WORTH_BYTES", 0)
        monkeypatch.setattr(attention_plan, "_PART_KEYS", 16)
    task, given, _ = problem(queries, mask, causal=False)
    compare(*answers(task, given, "float32"), 4.0)


def test_exact_code_reads_what_causality_masks() -> None:
    task, given, _ = problem(3, "bool", causal=True)
    compare(*answers(task, given, "exact"), 4.0)


def test_values_behind_a_block_of_queries_are_as_if_they_were_not_there() -> None:
    """What docs/accuracy.md says of causality: only values behind all queries of a block, and only in code that is not exact."""
    task, given, places = problem(3, "", causal=True)
    found, wanted = answers(task, given, "float32")
    is_behind = np.array([operand == 2 and row >= 3 for operand, row in places])
    compare(found[~is_behind], wanted[~is_behind], 4.0)
    assert np.isnan(wanted[is_behind]).any(axis=(1, 2, 3)).all()
    without = dict(given) | {"in2": np.nan_to_num(given["in2"], nan=0, posinf=0, neginf=0)}
    plain = plain_task(task)
    assert plain is not None
    left_out = expected(plain, without)["out0"]
    as_if_not_there = np.isfinite(found[is_behind])
    compare(np.where(as_if_not_there, found[is_behind], 0), np.where(as_if_not_there, left_out[is_behind], 0), 4.0)
    read = attention_plan.planned(attention_plan.understood(task), SM_90, "float32").keys
    rows = np.array([row for operand, row in places if operand == 2 and row >= 3])
    assert read < KEYS
    assert np.array_equal(as_if_not_there.all(axis=(1, 2, 3)), rows >= read)
