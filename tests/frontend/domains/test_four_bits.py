"""Weights of four bits as places in a table, and in blocks with their scales, against ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.frontend.domains.one_node import Case, agree

import fusewise
from fusewise.errors import FusewiseError, InvalidModel, UnsupportedModel
from fusewise.trace import Trace

RNG = np.random.default_rng(5)


def of_table(kind: int, n: int, k: int, block: int, rows: tuple[int, ...] = (2, 3), **attributes: Any) -> Case:
    operands = (
        RNG.standard_normal((*rows, k)).astype(np.float32),
        RNG.integers(0, 256, -(-n * k // 2), dtype=np.uint8),
        RNG.uniform(0.1, 1, -(-n * k // block)).astype(np.float32),
    )
    given = {"N": n, "K": k, "block_size": block, "quant_type": kind, **attributes}
    return Case("MatMulBnb4", operands, given, constant=(1, 2))


def in_blocks(n: int, k: int, kind: int | None = None, rows: tuple[int, ...] = (2, 3), zero: int = 16) -> Case:
    """A scale of four bytes, a zero point where there are any, and two numbers in each of 16 bytes."""
    blob = RNG.integers(0, 256, (n, -(-k // 32), 20 if kind == 0 else 21), dtype=np.uint8)
    blob[..., :4] = RNG.uniform(-0.1, 0.1, (*blob.shape[:2], 1)).astype(np.float32).view(np.uint8)
    if kind != 0:
        blob[..., 4] = RNG.integers(0, zero, blob.shape[:2])
    operands = RNG.standard_normal((*rows, k)).astype(np.float32), blob.reshape(-1), np.array([k, n])
    return Case("MatMulFpQ4", operands, {} if kind is None else {"blk_quant_type": kind}, constant=(1, 2))


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("n, k, block", [(24, 64, 32), (264, 512, 64), (264, 48, 16)])
def test_numbers_of_a_table(kind: int, n: int, k: int, block: int) -> None:
    agree(of_table(kind, n, k, block), tolerance=1e-5)


def test_blocks_that_begin_in_one_row_and_end_in_the_next() -> None:
    agree(of_table(1, 24, 40, 32), tolerance=1e-5)
    agree(of_table(0, 3, 15, 16), tolerance=1e-5)  # half a byte is left over


def test_a_table_serves_every_length() -> None:
    one = of_table(1, 300, 128, 32, rows=(1, 3))
    longer = RNG.standard_normal((2, 17, 128)).astype(np.float32)
    agree(one, replace(one, operands=(longer, *one.operands[1:])), free={0: {0: "batch", 1: "length"}}, tolerance=1e-5)


@pytest.mark.parametrize("kind", [None, 0, 1, 2])
@pytest.mark.parametrize("n, k", [(24, 96), (264, 512), (5, 70)])
def test_blocks_that_begin_with_their_scale(n: int, k: int, kind: int | None) -> None:
    agree(in_blocks(n, k, kind), tolerance=1e-5)


@pytest.mark.parametrize("case", [of_table(1, 264, 512, 64), in_blocks(264, 512)], ids=["table", "blocks"])
@pytest.mark.parametrize("settings", [{}, {"fusion": "none"}, {"precision": "bfloat16"}], ids=str)
def test_they_stay_packed(case: Case, settings: dict[str, Any]) -> None:
    trace = Trace()
    model = fusewise.compile(case.model(), trace=trace, cache=False, **settings)
    names = [event.what for event in trace.events if event.kind == "kernel"]
    assert names[-1] == "quantised-product" and (len(names) == 1 or "precision" in settings)
    other = fusewise.compile(case.model(), cache=False, disable=("quantised-product",)).run(None, case.feeds)[0]
    error = np.abs(model.run(None, case.feeds)[0] - other).max() / np.abs(other).max()
    assert error <= (1e-2 if settings.get("precision") else 1e-6)


@pytest.mark.parametrize(
    "case, kind, text",
    [
        (of_table(2, 24, 64, 32), InvalidModel, "quant_type is 2"),
        (of_table(0, 24, 64, 24), InvalidModel, "block_size is 24"),
        (in_blocks(24, 64, zero=256), UnsupportedModel, "zero point is more than 15"),
        (replace(in_blocks(24, 64), attributes={"blk_quant_type": 0}), InvalidModel, "input 'B' has the shape"),
        (
            replace(in_blocks(24, 64), operands=(*in_blocks(24, 64).operands[:2], np.array([0, 24]))),
            InvalidModel,
            "0 and 24",
        ),
        (replace(in_blocks(24, 64), constant=(1,)), UnsupportedModel, "'B_shape' must be a constant"),
    ],
)
def test_what_does_not_fit_is_one_sentence(case: Case, kind: type[FusewiseError], text: str) -> None:
    with pytest.raises(kind, match=text):
        fusewise.compile(case.model(), cache=False)
