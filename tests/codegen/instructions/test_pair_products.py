"""Kernels over pairs of bfloat16: one rounding of an exact sum, whatever the geometry; and the instruction where there is one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.machines import compiled

from fusewise.codegen.assemble import generate
from fusewise.codegen.nest.instruction import neighbours
from fusewise.codegen.target import TARGETS, Target
from fusewise.fusion.plan import partition
from fusewise.ir.dtypes import BFLOAT16, FLOAT32
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import compile_assembly
from fusewise.trace import Trace

AVX512, AVX2, NEON = (next(t for t in TARGETS if t.name == name) for name in ("avx512", "avx2", "neon"))


DIRECT = frozenset({"winograd-convolution"})
"""Not to be used here: it widens what it reads, and is often better than pairs."""


def numbers(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(BFLOAT16.numpy)


def convolution(x: tuple[int, ...], w: tuple[int, ...], given: str = "pooled", **attributes: object) -> Graph:
    """Of what a pooling writes, the convolution's input lies as it likes it; otherwise as `given`."""
    b = GraphBuilder("convolution")
    y = b.op("Conv", read(b, x, given), b.constant(numbers(1, w)), b.constant(numbers(2, w[:1])), **attributes)
    return b.finish(b.op("Cast", y, to=FLOAT32.onnx))


def read(b: GraphBuilder, shape: tuple[int, ...], given: str) -> str:
    """An input of bfloat16: `planar` as the model is given it, `pooled`, or `scaled` by its largest numbers."""
    data = b.op("Cast", b.input("x", shape), to=BFLOAT16.onnx)
    if given == "planar":
        return data
    data = b.op("MaxPool", data, kernel_shape=[1, 1])
    return data if given == "pooled" else b.op("Mul", data, b.op("ReduceMax", data, b.constant(np.array([2, 3]))))


def numbers_read(fed: np.ndarray, given: str) -> np.ndarray:
    """The same of numbers, in float64."""
    x = fed.astype(BFLOAT16.numpy)
    if given == "scaled":
        wide = x.astype(np.float32)
        x = (wide * wide.max((2, 3), keepdims=True)).astype(BFLOAT16.numpy)
    return x.astype(np.float64)


def product(rows: int, depth: int, columns: int, op: str = "Gemm", constant: bool = True) -> Graph:
    """A product and a bias, of Gemm in one; the right operand is an input unless it is `constant`."""
    b, right = GraphBuilder("product"), (depth, columns)
    x = b.op("Cast", b.input("x", (rows, depth)), to=BFLOAT16.onnx)
    w = b.constant(numbers(1, right)) if constant else b.op("Cast", b.input("w", right), to=BFLOAT16.onnx)
    bias = b.constant(numbers(2, (columns,)))
    y = b.op("Gemm", x, w, bias) if op == "Gemm" else b.op("Add", b.op(op, x, w), bias)
    return b.finish(b.op("Cast", y, to=FLOAT32.onnx))


def kernels(graph: Graph, target: Target) -> list[str]:
    """The assembly of every kernel of a graph."""
    trace = Trace(disabled=DIRECT)
    program = generate(partition(graph, trace), target, trace)
    return [compile_assembly(kernel.build(), target) for kernel in program.kernels]


def names(graph: Graph, target: Target) -> set[str]:
    """The kernels that a graph gets, by name."""
    trace = Trace(disabled=DIRECT)
    generate(partition(graph, trace), target, trace)
    return {event.what for event in trace if event.kind == "kernel" and event.applied}


def assert_one_rounding(found: np.ndarray, exact: np.ndarray, sizes: np.ndarray, terms: int) -> None:
    """Half a step of bfloat16, and what float32 loses in a sum of `terms` products whose sizes add up to `sizes`."""
    assert found.dtype == np.float32
    bound = 2.0**-8 * np.abs(exact) + (terms + 2) * 2.0**-24 * sizes * (1 + 2.0**-7)
    assert np.all(np.abs(found - exact) <= bound)


def correlated(x: np.ndarray, w: np.ndarray, bias: np.ndarray, stride: int, pads: list[int], group: int) -> np.ndarray:
    """A two-dimensional convolution by definition, in float64."""
    padded = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    parts = zip(np.split(windows, group, axis=1), np.split(w, group, axis=0), strict=True)
    sums = [np.einsum("nchwij,mcij->nmhw", part, weights) for part, weights in parts]
    return np.concatenate(sums, axis=1) + bias[:, None, None]


@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_a_convolution_rounds_once(target: Target, data: st.DataObject) -> None:
    draw = data.draw
    group = draw(st.sampled_from((1, 1, 1, 2)))
    inputs, outputs = draw(st.sampled_from((2, 4, 6, 7, 18))), draw(st.sampled_from((1, 5, 8, 17)))
    taps = [draw(st.integers(1, 3)) for _ in range(2)]
    stride, pads = draw(st.integers(1, 2)), [draw(st.integers(0, 2)) for _ in range(4)]
    shape = (draw(st.integers(1, 2)), group * inputs, *(draw(st.integers(k, k + 7)) for k in taps))
    w = (group * outputs, inputs, *taps)
    given = draw(st.sampled_from(("pooled", "planar", "scaled")))
    graph = convolution(shape, w, given, strides=[stride] * 2, pads=pads, group=group)
    fed = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    _, model = compiled(graph, target, draw(st.integers(1, 2)), Trace(disabled=DIRECT))
    (found,) = model.run(None, {"x": fed})
    x, weights, bias = (numbers_read(fed, given), *(a.astype(np.float64) for a in (numbers(1, w), numbers(2, w[:1]))))
    exact = correlated(x, weights, bias, stride, pads, group)
    sizes = correlated(np.abs(x), np.abs(weights), np.abs(bias), stride, pads, group)
    assert_one_rounding(found, exact, sizes, inputs * taps[0] * taps[1])


@pytest.mark.parametrize("given", ["pooled", "scaled"])
def test_weights_that_are_widened_are_packed_whole(target: Target, given: str) -> None:
    """An odd number of channels is multiplied in float32, and so are the weights of bfloat16, by panels as wide as they fill."""
    shape, w = (1, 7, 2, 2), (17, 7, 1, 1)
    fed = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    _, model = compiled(convolution(shape, w, given), target, 1, Trace(disabled=DIRECT))
    (found,) = model.run(None, {"x": fed})
    x, weights, bias = (numbers_read(fed, given), *(a.astype(np.float64) for a in (numbers(1, w), numbers(2, w[:1]))))
    exact = correlated(x, weights, bias, 1, [0] * 4, 1)
    assert_one_rounding(found, exact, correlated(np.abs(x), np.abs(weights), np.abs(bias), 1, [0] * 4, 1), 7)


@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_a_depthwise_convolution_rounds_once(target: Target, data: st.DataObject) -> None:
    draw = data.draw
    channels, stride = draw(st.sampled_from((4, 17, 32, 35, 48, 70))), draw(st.integers(1, 2))
    taps, pads = [draw(st.integers(1, 5)) for _ in range(2)], [draw(st.integers(0, 2)) for _ in range(4)]
    shape, w = (1, channels, *(draw(st.integers(k, k + 19)) for k in taps)), (channels, 1, *taps)
    graph = convolution(shape, w, strides=[stride] * 2, pads=pads, group=channels)
    fed = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    trace = Trace(disabled=DIRECT)
    (found,) = compiled(graph, target, draw(st.integers(1, 2)), trace)[1].run(None, {"x": fed})
    x, weights, bias = (a.astype(np.float64) for a in (fed.astype(BFLOAT16.numpy), numbers(1, w), numbers(2, w[:1])))
    exact = correlated(x, weights, bias, stride, pads, channels)
    sizes = correlated(np.abs(x), np.abs(weights), np.abs(bias), stride, pads, channels)
    assert_one_rounding(found, exact, sizes, taps[0] * taps[1])


def spread(x: np.ndarray, w: np.ndarray, stride: int, group: int) -> np.ndarray:
    """A two-dimensional transposed convolution by definition, in float64."""
    (batch, inputs, *extents), (_, outputs, *taps) = x.shape, w.shape
    found = np.zeros((batch, group * outputs, *((n - 1) * stride + k for n, k in zip(extents, taps, strict=True))))
    for g in range(group):
        own = slice(g * inputs // group, (g + 1) * inputs // group)
        for i, j in np.ndindex(*extents):
            to = found[
                :, g * outputs : (g + 1) * outputs, i * stride : i * stride + taps[0], j * stride : j * stride + taps[1]
            ]
            to += np.einsum("nc,cmab->nmab", x[:, own, i, j], w[own])
    return found


@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_a_transposed_convolution_rounds_once(target: Target, data: st.DataObject) -> None:
    draw = data.draw
    group, stride, side = draw(st.sampled_from((1, 1, 2))), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    inputs, outputs = draw(st.sampled_from((2, 3, 8, 17))), draw(st.sampled_from((1, 5, 16)))
    shape, w = (1, group * inputs, 4, 5), (group * inputs, outputs, side, side)
    given = draw(st.sampled_from(("pooled", "planar", "scaled")))
    b = GraphBuilder("transposed")
    y = b.op("ConvTranspose", read(b, shape, given), b.constant(numbers(1, w)), strides=[stride] * 2, group=group)
    fed = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (found,) = compiled(b.finish(b.op("Cast", y, to=FLOAT32.onnx)), target)[1].run(None, {"x": fed})
    x, weights = numbers_read(fed, given), numbers(1, w).astype(np.float64)
    sizes = spread(np.abs(x), np.abs(weights), stride, group)
    assert_one_rounding(found, spread(x, weights, stride, group), sizes, inputs * side * side)


@settings(max_examples=4, deadline=None)
@given(
    rows=st.sampled_from((1, 3, 9)), depth=st.sampled_from((2, 6, 7, 34, 1100)), columns=st.sampled_from((1, 5, 16, 33))
)
def test_a_product_rounds_once(target: Target, rows: int, depth: int, columns: int) -> None:
    fed = np.random.default_rng(0).standard_normal((rows, depth)).astype(np.float32)
    (found,) = compiled(product(rows, depth, columns), target)[1].run(None, {"x": fed})
    x, w, bias = (
        a.astype(np.float64) for a in (fed.astype(BFLOAT16.numpy), numbers(1, (depth, columns)), numbers(2, (columns,)))
    )
    assert_one_rounding(found, x @ w + bias, np.abs(x) @ np.abs(w) + np.abs(bias), depth)


@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_a_product_of_any_operands_rounds_once(target: Target, data: st.DataObject) -> None:
    draw = data.draw
    rows, depth, columns = (draw(st.sampled_from(n)) for n in ((1, 8, 9, 33), (1, 2, 7, 34, 65), (1, 5, 16, 33)))
    lead, other = draw(
        st.sampled_from((((), ()), ((2,), (2,)), ((3,), (1,)), ((1,), (3,)), ((2, 3), (3,)), ((2,), ())))
    )
    turned, constant = draw(st.booleans()), draw(st.booleans())
    left, right = (*lead, rows, depth), (*other, columns, depth) if turned else (*other, depth, columns)
    b, values = GraphBuilder("product"), numbers(1, right)
    y = b.constant(values) if constant else b.op("Cast", b.input("y", right), to=BFLOAT16.onnx)
    if turned:
        y = b.op("Transpose", y, perm=[*range(len(other)), len(other) + 1, len(other)])
        values = np.swapaxes(values, -1, -2)
    found = b.op("MatMul", b.op("Cast", b.input("x", left), to=BFLOAT16.onnx), y)
    graph = b.finish(b.op("Cast", b.op("Relu", found), to=FLOAT32.onnx))
    fed = {"x": np.random.default_rng(0).standard_normal(left).astype(np.float32)}
    if not constant:
        fed["y"] = numbers(1, right).astype(np.float32)
    (found,) = compiled(graph, target, draw(st.integers(1, 2)))[1].run(None, fed)
    x, w = fed["x"].astype(BFLOAT16.numpy).astype(np.float64), values.astype(np.float64)
    assert_one_rounding(found, np.maximum(x @ w, 0), np.abs(x) @ np.abs(w), depth)


GRAPHS = {
    "single pixels": convolution((1, 32, 7, 7), (64, 32, 1, 1)),
    "windows": convolution((1, 32, 7, 7), (64, 32, 3, 3), pads=[1, 1, 1, 1]),
    "odd channels": convolution((1, 33, 7, 7), (64, 33, 1, 1)),
    "few channels": convolution((1, 3, 9, 9), (32, 3, 3, 3), "planar", strides=[2, 2]),
    "scaled channels": convolution((1, 32, 7, 7), (64, 32, 1, 1), "scaled"),
    "product": product(12, 64, 96),
    "odd depth": product(12, 63, 96, "MatMul"),
    "two inputs": product(12, 64, 96, "MatMul", constant=False),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_instruction_is_used_where_there_is_one(name: str) -> None:
    capable = replace(AVX512, features="+avx512bf16")
    wide, emulated = ("\n".join(kernels(GRAPHS[name], target)) for target in (capable, AVX512))
    assert "vdpbf16ps" in wide and "%zmm" in wide
    assert "scaled" in name or "vfmadd" not in wide, "no product is left to float32"
    assert "vdpbf16ps" not in emulated and "vfmadd" in emulated


@pytest.mark.parametrize("target", [AVX2, NEON, host_target()], ids=["avx2", "neon", "host"])
def test_other_machines_take_pairs_apart(target: Target) -> None:
    texts = kernels(GRAPHS["windows"], target)
    assert any("vfmadd" in text or "fmla" in text or "vdpbf16ps" in text for text in texts)


def test_pairs_are_taken_where_channels_come_in_pairs() -> None:
    assert "bfloat16-convolution" in names(GRAPHS["windows"], AVX512)
    assert "bfloat16-product" in names(GRAPHS["product"], AVX512)
    assert "direct-convolution" in names(convolution((1, 14, 5, 5), (32, 7, 1, 1), group=2), AVX512)
    assert "product" in names(product(12, 63, 8), AVX512)
    assert "product" in names(product(1, 64, 8, "MatMul", constant=False), replace(AVX512, features="+avx512bf16"))


@given(st.integers(1, 4), st.integers(0, 7), st.integers(1, 3), st.integers(0, 2))
def test_pairs_hold_neighbours(a: int, b: int, c: int, axis: int) -> None:
    array = np.random.default_rng(0).integers(-(2**15), 2**15, (a, b, c)).astype(np.int16)
    found = np.moveaxis(neighbours(array, axis, 2), axis, -1)
    moved = np.moveaxis(array, axis, -1).astype(np.int64)
    if moved.shape[-1] % 2:
        moved = np.concatenate([moved, np.zeros((*moved.shape[:-1], 1), np.int64)], axis=-1)
    np.testing.assert_array_equal(found, (moved[..., ::2] & 0xFFFF) + (moved[..., 1::2] << 16))
