"""Fourier transforms written out: every length, option and kind of number against float64, and natively."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import fusewise
from fusewise import api
from fusewise.errors import InvalidModel
from fusewise.ir.verify import verify
from fusewise.passes.decompositions.transforms import PLAIN
from fusewise.passes.write_out import write_out
from fusewise.trace import Trace


def model(op: str, x: np.ndarray, operands: dict[str, np.ndarray | None], **attributes: int) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    known = {name: array for name, array in operands.items() if array is not None}
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *(name if name in known else "" for name in operands)], ["y"], **attributes)],
        "transform",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(array, name) for name, array in known.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def complex_of(x: np.ndarray) -> np.ndarray:
    """The numbers of a tensor whose last axis has one or two parts, in double precision."""
    wide = x.astype(np.float64)
    return wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]


def pairs(y: np.ndarray) -> np.ndarray:
    return np.stack([y.real, y.imag], -1)


def transformed(x: np.ndarray, length: int, axis: int, inverse: bool, onesided: bool) -> np.ndarray:
    z = complex_of(x)
    if inverse and onesided:
        return np.fft.irfft(z, length, axis)[..., None]
    return pairs((np.fft.rfft if onesided else np.fft.ifft if inverse else np.fft.fft)(z, length, axis))


def run(asked: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """The answer, by native code alone."""
    compiled = fusewise.compile(asked, threads=1, strict=True)
    (found,) = compiled.run(None, {"x": x})
    assert isinstance(found, np.ndarray)
    return found


def apart(found: np.ndarray, expected: np.ndarray) -> float:
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30))


def off(length: int) -> float:
    """What rounding may leave: of so many numbers added up one by one, where that is more than 1e-6."""
    return max(1e-6, math.sqrt(length) * 2.0**-24)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_length_axis_and_option(data: st.DataObject) -> None:
    draw = data.draw
    extent = draw(st.one_of(st.integers(1, 40), st.sampled_from((64, 65, 127, 240, 400, 521, 1042))))
    inverse, onesided = draw(st.booleans()), draw(st.booleans())
    parts = (2 if inverse else 1) if onesided else draw(st.sampled_from((1, 2)))
    lead, behind = (draw(st.lists(st.integers(1, 3), max_size=2)) for _ in range(2))
    axis = len(lead)
    default = 2 * (extent - 1) if inverse and onesided else extent
    length = draw(st.one_of(st.just(0), st.integers(1, 70))) or default
    if not length:
        return
    shape = (*lead, extent, *behind, parts)
    x = np.random.default_rng(draw(st.integers(0, 99))).standard_normal(shape).astype(np.float32)
    named = axis - len(shape) if draw(st.booleans()) else axis
    given_length = (
        None
        if length == default and draw(st.booleans())
        else np.array(length, draw(st.sampled_from((np.int32, np.int64))))
    )
    given_axis = None if named == -2 and draw(st.booleans()) else np.array(named)
    asked = model("DFT", x, {"n": given_length, "axis": given_axis}, inverse=int(inverse), onesided=int(onesided))
    assert apart(run(asked, x), transformed(x, length, axis, inverse, onesided)) < off(length)


@pytest.mark.parametrize("length", [1, 2, 3, 509, 521, 1024, 1031, 2 * 1031, 4096, 3**7])
@pytest.mark.parametrize("inverse, onesided", [(False, False), (True, False), (False, True), (True, True)])
def test_long_ones_and_large_primes(length: int, inverse: bool, onesided: bool) -> None:
    shape = (2, length // 2 + 1 if inverse and onesided else length, 1 if onesided and not inverse else 2)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    asked = model("DFT", x, {"n": np.array(length), "axis": None}, inverse=int(inverse), onesided=int(onesided))
    assert apart(run(asked, x), transformed(x, length, 1, inverse, onesided)) < 1e-6


@pytest.mark.parametrize("dtype, most", [("float64", 1e-14), ("float16", 1e-3)])
def test_other_floats(dtype: str, most: float) -> None:
    x = np.random.default_rng(1).standard_normal((2, 600, 2)).astype(dtype)
    found = run(model("DFT", x, {"n": None, "axis": None}), x)
    assert found.dtype == x.dtype
    assert apart(found, transformed(x, 600, 1, False, False)) < most


def test_no_product_is_longer_than_it_must_be() -> None:
    """The work of a long transform does not grow with the square of its length."""
    for length in (4096, 30030, 65536, PLAIN * 2 + 7):
        x = np.zeros((1, length, 2), np.float32)
        graph = write_out(api.load(model("DFT", x, {"n": None, "axis": None})), Trace())
        verify(graph)
        constants = sum(constant.array.size for constant in graph.constants.values())
        assert constants < 60 * length


@pytest.mark.parametrize("length", [0, -1])
def test_no_length(length: int) -> None:
    x = np.zeros((2, 4, 1), np.float32)
    with pytest.raises(InvalidModel, match="must be positive"):
        api.load(model("DFT", x, {"n": np.array(length), "axis": None}))


def windowed(x: np.ndarray, step: int, window: np.ndarray, onesided: bool) -> np.ndarray:
    length = len(window)
    count = (x.shape[1] - length) // step + 1
    frames = complex_of(x)[:, step * np.arange(count)[:, None] + np.arange(length)] * window.astype(np.float64)
    return pairs(np.fft.rfft(frames) if onesided else np.fft.fft(frames))


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_moving_windows(data: st.DataObject) -> None:
    draw = data.draw
    length = draw(st.one_of(st.integers(1, 40), st.sampled_from((128, 130, 200))))
    step, parts = draw(st.integers(1, length + 3)), draw(st.sampled_from((1, 2)))
    onesided = parts == 1 and draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = rng.standard_normal((draw(st.integers(1, 2)), length + draw(st.integers(0, 60)), parts)).astype(np.float32)
    window = rng.standard_normal(length).astype(np.float32)
    rectangle = draw(st.booleans())
    operands = {
        "step": np.array(step),
        "w": None if rectangle else window,
        "n": np.array(length) if rectangle else None,
    }
    asked = model("STFT", x, operands, onesided=int(onesided))
    assert apart(run(asked, x), windowed(x, step, np.ones(length) if rectangle else window, onesided)) < 1e-6


@pytest.mark.parametrize("length, step", [(16, 3), (200, 50), (200, 1)])
def test_a_window_that_comes_while_running(length: int, step: int) -> None:
    rng = np.random.default_rng(1)
    x, window = rng.standard_normal((2, 300, 1)).astype(np.float32), rng.standard_normal(length).astype(np.float32)
    asked = model("STFT", x, {"step": np.array(step), "w": window}, onesided=1)
    asked.graph.initializer.pop()
    asked.graph.input.append(helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [length]))
    compiled = fusewise.compile(asked, threads=1, strict=True)
    (found,) = compiled.run(None, {"x": x, "w": window})
    assert apart(found, windowed(x, step, window, True)) < 1e-6


@pytest.mark.parametrize("length, step, extent", [(200, 1, 9000), (600, 4, 700), (200, 1, 260)])
def test_windows_that_move_by_little_take_little_memory(length: int, step: int, extent: int) -> None:
    rng = np.random.default_rng(1)
    x, window = rng.standard_normal((1, extent, 1)).astype(np.float32), rng.standard_normal(length).astype(np.float32)
    asked = model("STFT", x, {"step": np.array(step), "w": window}, onesided=1)
    graph = write_out(api.load(asked), Trace())
    assert sum(constant.array.nbytes for constant in graph.constants.values()) < 1 << 21
    assert apart(run(asked, x), windowed(x, step, window, True)) < 1e-6


def test_a_window_that_comes_while_running_and_moves_by_little_stays() -> None:
    x = np.zeros((1, 20_000, 1), np.float32)
    asked = model("STFT", x, {"step": np.array(1), "w": np.ones(200, np.float32)}, onesided=1)
    asked.graph.initializer.pop()
    asked.graph.input.append(helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [200]))
    graph = api.load(asked)
    assert write_out(graph, Trace()) is graph
