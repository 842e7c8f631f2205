"""Operators by NumPy alone, against ONNX's evaluator: results, types, and who answers what is not for NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.ir.graph import Node, attributes_of
from fusewise.ops.evaluate import evaluator
from fusewise.ops.plain.table import PLAIN, plain_evaluator

OPSET = 21
KINDS = (np.float32, np.float64, np.float16, np.int64, np.int32, np.int8, np.uint8, np.bool_)


def nobody(*_: Any) -> list[Any]:
    pytest.fail("left to the evaluator")


def same(node: Node, operands: list[np.ndarray], opset: int = OPSET, reference: Any = nobody) -> None:
    run = plain_evaluator(node, opset, reference)
    assert run is not None
    found, expected = run(*operands), evaluator(node, opset)(*operands)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)


def of(op: str, count: int, **attributes: Any) -> Node:
    outputs = ("v", "i") if op == "TopK" else ("y",)
    return Node(op, tuple(f"x{k}" for k in range(count)), outputs, attributes_of(**attributes))


@st.composite
def arrays(draw: st.DrawFn, least: int = 0, most: int = 4, kinds: tuple[Any, ...] = KINDS) -> np.ndarray:
    shape = draw(st.lists(st.integers(0, 5), min_size=least, max_size=most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = rng.integers(0, 4, shape) if draw(st.booleans()) else rng.integers(-9, 9, shape) / 2
    kind = draw(st.sampled_from(kinds))
    return np.asarray(values if np.dtype(kind).kind in "bf" else np.abs(values)).astype(kind)


numbers = arrays(kinds=KINDS[:-1])


@given(numbers, st.sampled_from(("Add", "Mul", "Sub", "GreaterOrEqual")), st.data())
def test_of_two(data: np.ndarray, op: str, draw: st.DataObject) -> None:
    dropped = draw.draw(st.integers(0, data.ndim))
    other = np.ones(tuple(draw.draw(st.sampled_from((1, n))) for n in data.shape[dropped:]), data.dtype)
    same(of(op, 2), [data, other])
    same(of(op, 2), [other, data])


@given(arrays(kinds=(np.bool_,)))
def test_and(data: np.ndarray) -> None:
    same(of("And", 2), [data, ~data])
    same(of("And", 2), [data, np.array(True)])


@given(arrays(least=1), st.data())
def test_gather(data: np.ndarray, draw: st.DataObject) -> None:
    axis = draw.draw(st.integers(-data.ndim, data.ndim - 1))
    extent = data.shape[axis]
    shape = draw.draw(st.lists(st.integers(0, 4), max_size=2)) if extent else [0]
    rng = np.random.default_rng(draw.draw(st.integers(0, 99)))
    same(of("Gather", 2, axis=axis), [data, rng.integers(-extent, max(1, extent), shape)])


@given(arrays(most=3), st.data())
def test_axes_put_in_and_taken_out(data: np.ndarray, draw: st.DataObject) -> None:
    count = draw.draw(st.integers(1, 2))
    rank = data.ndim + count
    axes = draw.draw(st.lists(st.integers(0, rank - 1), min_size=count, max_size=count, unique=True))
    axes = [axis - rank if draw.draw(st.booleans()) else axis for axis in axes]
    wide = np.expand_dims(data, tuple(axes))
    for op, given_data, expected in (("Unsqueeze", data, wide), ("Squeeze", wide, data)):
        for node, operands, opset in (
            (of(op, 2), [given_data, np.array(axes)], OPSET),
            (of(op, 1, axes=axes), [given_data], 11),
        ):
            run = plain_evaluator(node, opset, nobody)
            assert run is not None
            np.testing.assert_array_equal(run(*operands)[0], expected, strict=True)
            if len(axes) == 1:  # the evaluator does one after the other, and several not always in the right order
                same(node, operands, opset)
    same(of("Squeeze", 1), [wide])


@given(arrays(least=1))
def test_nonzero(data: np.ndarray) -> None:
    same(of("NonZero", 1), [data])


@given(arrays(least=1, kinds=(np.float32, np.int64, np.uint8)), st.data())
def test_topk(data: np.ndarray, draw: st.DataObject) -> None:
    axis = draw.draw(st.integers(-data.ndim, data.ndim - 1))
    count = draw.draw(st.integers(0, data.shape[axis]))
    same(of("TopK", 2, axis=axis, largest=draw.draw(st.integers(0, 1))), [data, np.array([count])])


@given(arrays(least=1, kinds=KINDS[:-1]), st.data())
def test_pad(data: np.ndarray, draw: st.DataObject) -> None:
    pads = np.array(draw.draw(st.lists(st.integers(0, 3), min_size=2 * data.ndim, max_size=2 * data.ndim)), np.int64)
    same(of("Pad", 2), [data, pads])
    same(of("Pad", 3, mode="constant"), [data, pads, np.array(3, data.dtype)])


@given(arrays(), st.sampled_from((1, 2, 3, 6, 7, 9, 10, 11, 12)))
def test_cast(data: np.ndarray, to: int) -> None:
    same(of("Cast", 1, to=to), [data])


@given(numbers, st.booleans(), st.data())
def test_reduce_max(data: np.ndarray, kept: bool, draw: st.DataObject) -> None:
    data = np.concatenate([data.reshape(-1), np.ones(1, data.dtype)]) if not data.size else data
    places = st.integers(0, max(0, data.ndim - 1))
    axes = draw.draw(st.lists(places, max_size=data.ndim, unique=True)) if data.ndim else []
    same(of("ReduceMax", 2, keepdims=int(kept)), [data, np.array(axes, np.int64)])
    same(of("ReduceMax", 1, keepdims=int(kept)), [data])
    if axes:
        same(of("ReduceMax", 1, axes=axes, keepdims=int(kept)), [data], 13)


@given(arrays(least=1), st.integers(1, 3), st.data())
def test_concat(data: np.ndarray, count: int, draw: st.DataObject) -> None:
    axis = draw.draw(st.integers(-data.ndim, data.ndim - 1))
    same(of("Concat", count, axis=axis), [data] * count)


@given(arrays(least=1), st.data())
def test_slice(data: np.ndarray, draw: st.DataObject) -> None:
    axes = draw.draw(st.lists(st.integers(0, data.ndim - 1), min_size=1, max_size=data.ndim, unique=True))
    bound = st.one_of(st.integers(-7, 7), st.sampled_from((-(1 << 63), (1 << 63) - 1)))
    starts, ends = (np.array([draw.draw(bound) for _ in axes], np.int64) for _ in range(2))
    steps = np.array([draw.draw(st.sampled_from((1, 2, -1, -3))) for _ in axes], np.int64)
    same(of("Slice", 5), [data, starts, ends, np.array(axes, np.int64), steps])
    same(of("Slice", 4), [data, starts, ends, np.array(axes, np.int64)])
    same(of("Slice", 3), [data, starts[:1], ends[:1]])


@given(arrays(least=1), st.data())
def test_reshape(data: np.ndarray, draw: st.DataObject) -> None:
    same(of("Reshape", 2, allowzero=1), [data, np.array([data.size])])
    same(of("Reshape", 2), [data, np.array([0] * data.ndim)])
    same(of("Reshape", 2, allowzero=1), [data, np.array(data.shape)])
    if data.size:
        same(of("Reshape", 2), [data, np.array([0, -1, 1][: data.ndim + 1])])


integers = arrays(kinds=(np.int64, np.int32, np.int8, np.uint8, np.uint64))


@given(integers, st.booleans(), st.sampled_from((0, -(2**62), 2**63 - 1)))
def test_unique(data: np.ndarray, ordered: bool, far: int) -> None:
    """Also of numbers so far apart that they and their places do not fit one number."""
    if data.size and data.dtype == np.int64:
        data.reshape(-1)[-1] = far
    node = Node("Unique", ("x",), ("y", "first", "which", "counts"), attributes_of(sorted=int(ordered)))
    run = plain_evaluator(node, OPSET, nobody)
    assert run is not None
    found, first, which, counts = run(data)
    values = data.reshape(-1).tolist()
    expected = sorted(set(values)) if ordered else list(dict.fromkeys(values))
    assert (found.dtype, found.tolist()) == (data.dtype, expected)
    assert first.tolist() == [values.index(value) for value in expected]
    assert which.tolist() == [expected.index(value) for value in values]
    assert counts.tolist() == [values.count(value) for value in expected]


@given(st.integers(0, 6), st.integers(0, 3), st.sampled_from((np.float32, np.float64, np.float16)))
def test_determinant(rows: int, count: int, kind: type) -> None:
    data = np.random.default_rng(rows).integers(-3, 3, (count, rows, rows)).astype(kind)
    run = plain_evaluator(of("Det", 1), OPSET, nobody)
    assert run is not None
    (found,) = run(data)
    assert (found.dtype, found.shape) == (data.dtype, (count,))
    np.testing.assert_allclose(found, [np.linalg.det(one.astype(np.float64)) for one in data], rtol=1e-3, atol=1e-6)


@settings(max_examples=50)
@given(arrays(least=1), st.data())
def test_scatter(data: np.ndarray, draw: st.DataObject) -> None:
    if not data.size:
        return
    depth = draw.draw(st.integers(1, data.ndim))
    rng = np.random.default_rng(draw.draw(st.integers(0, 99)))
    indices = np.stack([rng.integers(0, n, 3) for n in data.shape[:depth]], -1)
    same(of("ScatterND", 3), [data, indices, np.ones((3, *data.shape[depth:]), data.dtype)])


BY_THE_EVALUATOR = frozenset(
    (
        "AffineGrid Attention BitCast BlackmanWindow CausalConvWithState Celu CenterCropPad Col2Im Constant"
        " ConvInteger DeformConv DequantizeLinear Dropout DynamicQuantizeLinear GRU GlobalLpPool GlobalMaxPool"
        " GridSample GroupNormalization HammingWindow HannWindow Hardmax If ImageDecoder LRN LSTM LinearAttention Loop"
        " LpNormalization LpPool MatMulInteger MaxRoiPool MaxUnpool MeanVarianceNormalization MelWeightMatrix"
        " NegativeLogLikelihoodLoss NonMaxSuppression QLinearConv QLinearMatMul QuantizeLinear RMSNormalization RNN"
        " Resize RoiAlign RotaryEmbedding Scan Selu"
        " SequenceMap Shrink SoftmaxCrossEntropyLoss SpaceToDepth SwiGLU TensorScatter"
    ).split()
)
"""Operators that a host step asks ONNX's evaluator for, where they have no native code and no routine."""


def test_what_is_left_to_the_evaluator_is_known() -> None:
    schemas = onnx.defs.get_all_schemas()
    names = {schema.name for schema in schemas if not schema.domain and not schema.deprecated}
    assert names - {op for domain, op in PLAIN if not domain} == BY_THE_EVALUATOR


WORDS = np.array(["a", "b"], object)


@pytest.mark.parametrize(
    "node, operands",
    [
        (of("Neg", 1), [WORDS]),
        (of("Gather", 2), [np.ones(3), np.array([3])]),
        (of("Pad", 2, mode="reflect"), [np.ones(3), np.array([1, 1])]),
        (of("Pad", 2), [np.ones(3), np.array([-1, 1])]),
        (of("Pad", 4), [np.ones((3, 2)), np.array([1, 1]), np.array(1.0), np.array([1])]),
        (of("TopK", 2), [np.ones(3), np.array([4])]),
        (of("Cast", 1, to=7), [np.array([np.nan])]),
        (of("Cast", 1, to=16), [np.ones(3, np.float32)]),
        (of("Cast", 1, to=19), [np.full(3, 1e6, np.float32)]),
        (of("Cast", 1, to=1), [np.ones(3, ml_dtypes.float8_e5m2)]),
        (of("Cast", 1, to=8), [np.ones(3, np.float32)]),
        (of("NonZero", 1), [np.array(1)]),
        (of("ReduceMax", 2, noop_with_empty_axes=1), [np.ones(3), np.zeros(0, np.int64)]),
        (of("ReduceMax", 1), [np.zeros(0)]),
        (of("Reshape", 2), [np.ones(3), np.array([2])]),
        (of("Squeeze", 2), [np.ones(3), np.array([0])]),
        (of("Slice", 3), [np.ones(3), np.array([0, 1]), np.array([1])]),
        (of("Concat", 2, axis=0), [np.ones(3), np.ones((1, 3))]),
        (of("ScatterND", 3, reduction="add"), [np.ones(3), np.array([[1]]), np.ones(1)]),
        (of("Add", 2), [np.ones(3), np.ones(2)]),
    ],
)
def test_what_is_not_for_numpy_is_asked_of_the_evaluator(node: Node, operands: list[Any]) -> None:
    run = plain_evaluator(node, OPSET, lambda *given: [given])
    assert run is not None
    assert [*run(*operands)[0]] == operands


@pytest.mark.parametrize(
    "node, opset", [(of("LSTM", 1), OPSET), (of("Slice", 1), 9), (Node("Add", ("a", "b"), ("c",), (), "other"), OPSET)]
)
def test_other_operators(node: Node, opset: int) -> None:
    assert plain_evaluator(node, opset, nobody) is None


def test_operands_that_are_absent() -> None:
    node = Node("Slice", ("x", "b", "e", "", "s"), ("y",))
    data = np.arange(9)
    same(node, [data, np.array([0]), np.array([8]), np.array([3])])
