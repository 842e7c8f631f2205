"""Integer convolutions: every sum exact, whatever the geometry, the zero point, the layout and the machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from tests.machines import compiled

from fusewise import api
from fusewise.codegen.assemble import generate
from fusewise.codegen.instructions.table import for_bytes
from fusewise.codegen.target import TARGETS, Target
from fusewise.fusion.plan import partition
from fusewise.runtime.jit import compile_assembly
from fusewise.trace import Trace


def model(
    shape: tuple[int, ...], weights: np.ndarray, zero: np.ndarray, attributes: dict[str, object], after: bool = False
) -> onnx.ModelProto:
    """ConvInteger, alone or requantised; with `after` its operand is itself computed, so that it lies as kernels like it."""
    kind = helper.np_dtype_to_tensor_dtype(zero.dtype)
    nodes = [helper.make_node("ConvInteger", ["q", "w", "z"], ["y"], **attributes)]
    start = [helper.make_node("MaxPool", ["x"], ["q"], kernel_shape=[1] * (len(shape) - 2))] if after else []
    source = "x" if after else "q"
    graph = helper.make_graph(
        [*start, *nodes],
        "integers",
        [helper.make_tensor_value_info(source, kind, shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(zero, "z")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def convolved(
    x: np.ndarray, weights: np.ndarray, strides: list[int], pads: list[int], dilations: list[int], group: int
) -> np.ndarray:
    """The sums by definition, in 64 bits."""
    rank = x.ndim - 2
    padded = np.pad(x, ((0, 0), (0, 0), *((pads[k], pads[rank + k]) for k in range(rank))))
    taps = weights.shape[2:]
    out = tuple((padded.shape[2 + k] - (taps[k] - 1) * dilations[k] - 1) // strides[k] + 1 for k in range(rank))
    result = np.zeros((x.shape[0], weights.shape[0], *out), np.int64)
    inputs, outputs = weights.shape[1], weights.shape[0] // group
    for tap in np.ndindex(*taps):
        window = tuple(
            slice(tap[k] * dilations[k], tap[k] * dilations[k] + (out[k] - 1) * strides[k] + 1, strides[k])
            for k in range(rank)
        )
        for g in range(group):
            part = padded[(slice(None), slice(g * inputs, (g + 1) * inputs), *window)]
            rows = slice(g * outputs, (g + 1) * outputs)
            result[:, rows] += np.einsum("nc...,mc->nm...", part, weights[(rows, slice(None), *tap)])
    return result


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_sums_are_exact(target: Target, data: st.DataObject) -> None:
    draw = data.draw
    rank, group = draw(st.sampled_from((2, 2, 2, 1, 3))), draw(st.sampled_from((1, 1, 1, 2, 11, 24)))
    inputs = draw(st.integers(1, 9)) if group == 1 else 2 * draw(st.integers(1, 4)) if group == 2 else 1
    outputs = draw(st.integers(1, 19)) if group < 3 else 1
    taps = [draw(st.integers(1, 3)) for _ in range(rank)]
    strides, dilations = ([draw(st.integers(1, 2)) for _ in range(rank)] for _ in range(2))
    pads = [draw(st.integers(0, 2)) for _ in range(2 * rank)]
    extents = [draw(st.integers((k - 1) * d + 1, (k - 1) * d + 9)) for k, d in zip(taps, dilations, strict=True)]
    kind = draw(st.sampled_from((np.uint8, np.int8)))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    low, high = np.iinfo(kind).min, np.iinfo(kind).max + 1
    worst = draw(st.sampled_from(([-128, 127], [-128], [127, -127, 64])))
    weights = rng.choice([*worst, *rng.integers(-128, 128, 9)], (group * outputs, inputs, *taps)).astype(np.int8)
    x = rng.choice(
        [low, high - 1, *rng.integers(low, high, 5)], (draw(st.integers(1, 2)), group * inputs, *extents)
    ).astype(kind)
    zero = np.array(rng.integers(low, high), kind).reshape(draw(st.sampled_from(((), (1,)))))
    attributes = {"strides": strides, "dilations": dilations, "pads": pads, "group": group, "kernel_shape": taps}
    asked = model(x.shape, weights, zero, attributes, draw(st.booleans()))
    graph, disabled = api.load(asked), draw(st.sampled_from(((), (), (), ("byte-convolution",))))
    _, kernel = compiled(graph, target, draw(st.integers(1, 3)), Trace(disabled=frozenset(disabled)))
    (found,) = kernel.run(None, {graph.inputs[0]: x})
    np.testing.assert_array_equal(
        found, convolved(x.astype(np.int64) - zero.astype(np.int64), weights, strides, pads, dilations, group)
    )


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("disabled", [(), ("byte-convolution",)], ids=["", "without bytes"])
def test_the_instruction(target: Target, disabled: tuple[str, ...]) -> None:
    weights = np.ones((32, 64, 3, 3), np.int8)
    graph = api.load(model((1, 64, 14, 14), weights, np.array(3, np.uint8), {"pads": [1] * 4}))
    program = generate(partition(graph, Trace()), target, Trace(disabled=frozenset(disabled)))
    whole = target.vector_bits >= 256 and not disabled
    assert program.kernels[0].key.startswith("byte-convolution" if whole else "integer-convolution")
    code = compile_assembly(program.kernels[0].build(), target)
    assert ("pmaddwd" in code) == target.triple.startswith("x86") and ("pmaddubsw" in code) == whole
    if target.triple.startswith("aarch64"):
        assert "mla" in code or "mlal" in code


def test_the_instruction_that_sums_in_one() -> None:
    target = replace(next(target for target in TARGETS if target.name == "avx2"), features="+avxvnni")
    graph = api.load(model((1, 64, 14, 14), np.ones((32, 64, 1, 1), np.int8), np.array(3, np.uint8), {}))
    program = generate(partition(graph, Trace()), target, Trace())
    code = compile_assembly(program.kernels[0].build(), target)
    assert "vpdpbusd" in code and "pmadd" not in code


@pytest.mark.parametrize("value", [-128, -127, 127, None], ids=str)
def test_weights_whose_products_do_not_fit_16_bits(target: Target, value: int | None) -> None:
    """All of one number, or alternating between the ends, with inputs at theirs."""
    weights = np.full((24, 64, 3, 3), -128 if value is None else value, np.int8)
    if value is None:
        weights[:, 1::3], weights[1::2] = 127, ~weights[1::2]
    x = np.full((1, 64, 6, 7), 255, np.uint8)
    x[..., 2:4] = 0
    attributes = {"pads": [1, 0, 1, 2], "strides": [1, 2], "kernel_shape": [3, 3]}
    graph, trace = api.load(model(x.shape, weights, np.array(9, np.uint8), attributes, after=True)), Trace()
    _, kernel = compiled(graph, target, 1, trace)
    names = {event.what for event in trace if event.kind == "kernel" and event.applied}
    assert ("byte-convolution" in names) == (for_bytes(target) is not None)
    (found,) = kernel.run(None, {graph.inputs[0]: x})
    expected = convolved(x.astype(np.int64) - 9, weights, [1, 2], [1, 0, 1, 2], [1, 1], 1)
    np.testing.assert_array_equal(found, expected)
