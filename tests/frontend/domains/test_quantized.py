"""Operators of 8-bit numbers of Microsoft's domain against ONNX Runtime: one step of the result's quantiser at most."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.frontend.domains.one_node import Case, agree

from fusewise.errors import InvalidModel
from fusewise.frontend.onnx_import import load

RNG = np.random.default_rng(0)
KINDS = (np.uint8, np.int8)


def bytes_of(kind: Any, *shape: int) -> np.ndarray:
    info = np.iinfo(kind)
    return RNG.integers(info.min, info.max + 1, shape).astype(kind)


def scale(x: float, *shape: int) -> np.ndarray:
    return np.full(shape, x, np.float32)


def zero(kind: Any, place: float, *shape: int) -> np.ndarray:
    """A zero point: 0 is the least number, 1 the greatest."""
    info = np.iinfo(kind)
    return np.full(shape, round(info.min + place * 255), kind)


@settings(max_examples=16, deadline=None)
@given(data=st.data())
def test_elementwise(data: st.DataObject) -> None:
    """Either type, zero points or none, scalars or vectors of one, constants or not, operands that broadcast, free dimensions."""
    draw = data.draw
    kind = draw(st.sampled_from(KINDS))
    op = draw(st.sampled_from(("QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu")))
    pair = op in ("QLinearAdd", "QLinearMul")
    one = () if pair else draw(st.sampled_from(((), (1,))))
    other = draw(st.sampled_from(((3, 20), (1, 20), (3, 1), (1,))))

    def quantiser(x: float) -> list[np.ndarray | None]:
        given = draw(st.booleans()) or pair  # ONNX Runtime refuses pairs without
        return [scale(x, *one), zero(kind, draw(st.sampled_from((0.0, 0.5, 0.9))), *one) if given else None]

    first, second, result = quantiser(0.03), quantiser(0.05), quantiser(0.07 if pair else 0.01)

    def case(rows: int) -> Case:
        a, b = bytes_of(kind, rows, 20), bytes_of(kind, *(rows if n == 3 else n for n in other))
        operands = (a, *first, *((b, *second) if pair else ()), *result)
        quantisers = tuple(k for k in range(len(operands)) if k not in ((0, 3) if pair else (0,)))
        attributes = {"alpha": 0.2} if op == "QLinearLeakyRelu" else {}
        return Case(op, operands, attributes, constant=quantisers if known else ())

    known = draw(st.booleans())
    free = {0: {0: "n"}} | ({3: {0: "n"}} if pair and other[0] == 3 else {})
    agree(case(3), case(5), free=free if draw(st.booleans()) else {}, steps=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("opset, axis", [(13, -1), (13, 1), (12, 1), (12, 2)])
def test_softmax(kind: Any, opset: int, axis: int) -> None:
    def case(n: int) -> Case:
        operands = (bytes_of(kind, n, 4, 9), scale(0.04), zero(kind, 0.4), scale(1 / 256), zero(kind, 0.0))
        return Case("QLinearSoftmax", operands, {"opset": opset, "axis": axis}, constant=(1, 2, 3, 4))

    agree(case(2), case(3), free={0: {0: "n"}}, steps=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("channels_last", [0, 1])
def test_pools(kind: Any, channels_last: int) -> None:
    quantisers = (scale(0.04), zero(kind, 0.4), scale(0.03), zero(kind, 0.5))
    x = bytes_of(kind, *((2, 9, 11, 6) if channels_last else (2, 6, 9, 11)))
    agree(Case("QLinearGlobalAveragePool", (x, *quantisers), {"channels_last": channels_last}), steps=1)
    attributes = {
        "kernel_shape": (3, 2),
        "strides": (2, 1),
        "pads": (1, 0, 1, 1),
        "count_include_pad": 1 - channels_last,
    }
    agree(Case("QLinearAveragePool", (x, *quantisers), {"channels_last": channels_last, **attributes}), steps=1)


@pytest.mark.parametrize("kind", KINDS)
def test_movement(kind: Any) -> None:
    """Tensors by the quantiser of the result, and by others."""

    def quantiser(x: float, place: float) -> tuple[np.ndarray, np.ndarray]:
        return scale(x), zero(kind, place)

    a, b, c = bytes_of(kind, 2, 3), bytes_of(kind, 2, 5), bytes_of(kind, 2, 1)
    to, same, other = quantiser(0.05, 0.5), quantiser(0.05, 0.5), quantiser(0.02, 0.3)
    agree(
        Case("QLinearConcat", (*to, a, *same, b, *other, c, *other), {"axis": 1}, constant=(0, 1, 3, 4, 6, 7)), steps=1
    )
    chosen = RNG.integers(0, 2, (2, 1)).astype(bool)
    agree(Case("QLinearWhere", (chosen, a, *same, b[:, :3], *other, *to), constant=(2, 3, 5, 6, 7, 8)), steps=1)


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.uint16, np.int16])
def test_quantisers(kind: Any) -> None:
    def case(n: int) -> list[Case]:
        x, y = RNG.normal(0, 3, (n, 4)).astype(np.float32), RNG.integers(0, 99, (n, 4)).astype(kind)
        by_column, points = np.linspace(0.02, 0.05, 4).astype(np.float32), np.arange(4).astype(kind)
        return [
            Case("QuantizeLinear", (x, by_column, points), {"axis": 1}),
            Case("DequantizeLinear", (y, by_column, points), {"axis": 1}),
            Case("QuantizeLinear", (x, by_column[:1], points[1:2])),
            Case("DequantizeLinear", (y, by_column[:1].reshape(()), points[3:].reshape(()))),
        ]

    for fixed, other in zip(case(3), case(5), strict=True):
        agree(fixed, other, free={0: {0: "n"}}, steps=1)


X, SCALE, ZERO = bytes_of(np.uint8, 2, 3), scale(0.1), zero(np.uint8, 0.5)


@pytest.mark.parametrize(
    "case, words",
    [
        (Case("QLinearConcat", (SCALE, ZERO, X, SCALE), {"axis": 1}), "2 inputs behind those of the result"),
        (
            Case("QLinearAdd", (X, scale(0.1, 3), ZERO, X, SCALE, ZERO, SCALE)),
            r"input 1 \(A_scale\) has the shape \[3\]",
        ),
        (Case("QLinearSoftmax", (X, SCALE, ZERO, SCALE, ZERO)), "opset"),
        (Case("QLinearSigmoid", (X.astype(np.float32), SCALE, ZERO, SCALE, ZERO)), "'here.*unsupported type"),
        (Case("QLinearGlobalAveragePool", (X, SCALE, ZERO, SCALE, ZERO), {"channels_last": 2}), "channels_last is 2"),
    ],
)
def test_what_does_not_fit(case: Case, words: str) -> None:
    with pytest.raises(InvalidModel, match=words):
        load(case.model())
