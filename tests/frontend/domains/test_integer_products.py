"""Products of integers of Microsoft's domain against ONNX Runtime, and that they run as such."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.frontend.domains.one_node import Case, agree, agree_with
from tests.frontend.domains.test_quantized import KINDS, RNG, bytes_of, scale, zero

from fusewise.errors import InvalidModel
from fusewise.frontend.onnx_import import load


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_products_that_are_scaled(data: st.DataObject) -> None:
    """Weights of either type, per tensor or column, with and without zero points and bias; stacks of rows; free rows."""
    draw = data.draw
    dynamic, kind, columns = draw(st.booleans()), draw(st.sampled_from(KINDS)), draw(st.booleans())
    b, n = bytes_of(kind, 12, 40), (40,) if columns else draw(st.sampled_from(((), (1,))))
    b_scale = RNG.uniform(0.01, 0.02, n).astype(np.float32)
    b_zero = bytes_of(kind, *n) if draw(st.booleans()) else None
    bias, a_zero = (floats(40) if draw(st.booleans()) else None), draw(st.booleans())

    def case(rows: int) -> Case:
        if dynamic:
            return Case("DynamicQuantizeMatMul", (floats(2, rows, 12), b, b_scale, b_zero, bias), constant=(1, 2, 3, 4))
        a = bytes_of(np.uint8, 2, rows, 12)
        operands = (a, b, scale(0.03, 1), b_scale, zero(np.uint8, 0.4) if a_zero else None, b_zero, bias)
        return Case("MatMulIntegerToFloat", operands, constant=(1, 2, 3, 4, 5, 6))

    agree(case(3), case(6), free={0: {1: "rows"}} if draw(st.booleans()) else {}, tolerance=2e-5)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_gemm(data: st.DataObject) -> None:
    draw = data.draw
    trans_a, trans_b = draw(st.integers(0, 1)), draw(st.integers(0, 1))
    kind, n = draw(st.sampled_from(KINDS)), draw(st.sampled_from(((), (33,))))
    a_kind = np.uint8 if kind == np.uint8 else draw(st.sampled_from(KINDS))
    a, b = bytes_of(a_kind, 7, 20), bytes_of(kind, 20, 33)
    c = RNG.integers(-999, 999, draw(st.sampled_from(((33,), (7, 33), (1, 33))))).astype(np.int32)
    result = draw(st.sampled_from(((None, None), (scale(3), zero(a_kind, 0.5)))))
    operands = (
        *(a.T.copy() if trans_a else a, scale(0.1), zero(a_kind, 0.3)),
        *(b.T.copy() if trans_b else b, RNG.uniform(0.1, 0.2, n).astype(np.float32), bytes_of(kind, *n)),
        *(c if draw(st.booleans()) else None, *result),
    )
    attributes = {"alpha": draw(st.sampled_from((1.0, 0.5))), "transA": trans_a, "transB": trans_b}
    known = tuple(range(1, 9)) if draw(st.booleans()) else ()
    agree(Case("QGemm", operands, attributes, constant=known), tolerance=2e-5, steps=1)


@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("group", [1, 6])
def test_convolution(channels_last: int, group: int) -> None:
    x = bytes_of(np.uint8, *((2, 9, 10, 6) if channels_last else (2, 6, 9, 10)))
    w, w_scale = bytes_of(np.int8, 12, 6 // group, 3, 3), RNG.uniform(0.01, 0.02, 12).astype(np.float32)
    bias = RNG.integers(-999, 999, 12).astype(np.int32)
    operands = (
        x,
        scale(0.02),
        zero(np.uint8, 0.4),
        w,
        w_scale,
        np.zeros(12, np.int8),
        scale(0.05),
        zero(np.uint8, 0.5),
        bias,
    )
    attributes = {"channels_last": channels_last, "group": group, "pads": (1, 0, 1, 2), "strides": (2, 1)}
    agree(Case("QLinearConv", operands, attributes, constant=tuple(range(1, 9))), steps=1)


def test_wide_integers() -> None:
    a, b = (RNG.integers(-32768, 32768, shape).astype(np.int16) for shape in ((2, 3, 5), (5, 4)))
    agree(Case("MatMulInteger16", (a, b)), Case("MatMulInteger16", (a[:1], b)), free={0: {0: "n"}})


@pytest.mark.parametrize(
    "case, words",
    [
        (
            Case(
                "QGemm",
                (
                    bytes_of(np.uint8, 2, 3),
                    scale(1),
                    zero(np.uint8, 0),
                    bytes_of(np.uint8, 4, 5),
                    scale(1),
                    zero(np.uint8, 0),
                ),
            ),
            "here",
        ),
        (Case("DynamicQuantizeMatMul", (floats(2, 3), bytes_of(np.uint8, 3, 5), scale(1, 4))), r"input 2 \(b_scale\)"),
        (
            Case("MatMulIntegerToFloat", (bytes_of(np.uint8, 2, 3), bytes_of(np.uint8, 4, 5), scale(1), scale(1))),
            "here",
        ),
        (Case("ReduceSumInteger", (bytes_of(np.uint8, 2, 3),), {"axes": (0,), "keepdims": 3}), "keepdims is 3"),
    ],
)
def test_what_does_not_fit(case: Case, words: str) -> None:
    with pytest.raises(InvalidModel, match=words):
        load(case.model())


@pytest.mark.parametrize("kind", KINDS)
def test_sums_and_products_of_elements(kind: Any) -> None:
    """By their definitions, as ONNX Runtime has no kernels for them here."""
    a, b, one, other = bytes_of(kind, 3, 4), bytes_of(kind, 4), zero(kind, 0.4), zero(kind, 0.6)
    wide = np.uint32 if kind == np.uint8 else np.int32
    sums = a.sum(1, dtype=wide, keepdims=True)
    agree_with(Case("ReduceSumInteger", (a,), {"axes": (1,), "keepdims": 1}), sums, free={0: {0: "n"}})
    products = (a.astype(np.int32) - one) * (b.astype(np.int32) - other)
    agree_with(Case("MulInteger", (a, one, b, other)), products.astype(np.int32), free={0: {0: "n"}})
    means = np.rint((a.astype(np.float64) - one).mean(0) * 0.5 / 0.75) + other
    case = Case("QLinearReduceMean", (a, scale(0.5), one, scale(0.75), other), {"axes": (0,), "keepdims": 0})
    agree_with(case, np.clip(means, np.iinfo(kind).min, np.iinfo(kind).max).astype(kind))
