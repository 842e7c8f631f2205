"""Every definition equals ONNX's reference evaluator on the row's samples."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import pytest

from fusewise.ir.graph import Constant, Node, attributes_of
from fusewise.ops.corrected_definitions import BY_DEFINITION
from fusewise.ops.evaluate import evaluator
from fusewise.ops.infer import infer_outputs
from fusewise.ops.interpret import interpret
from fusewise.ops.proto import node_to_proto, type_to_proto
from fusewise.ops.sampling import call_of_sample, opset_of
from fusewise.ops.spec import Call, NotDefined, OpSpec, Sample
from fusewise.ops.table import OPERATORS, spec_of

# relative and absolute, by output dtype; anything not listed must be equal
TOLERANCES = {
    "float64": (1e-12, 1e-13),
    "float32": (2e-6, 1e-6),
    "float16": (4e-3, 2e-3),
    "bfloat16": (2e-2, 1e-2),
}


def reference(spec: OpSpec, call: Call, arrays: tuple[np.ndarray | None, ...]) -> list[Any]:
    present = [a for a in arrays if a is not None]
    if spec.name == "GlobalLpPool":  # the one operator ONNX has no evaluator for
        x, p = present[0].astype(np.float64), call.attribute("p", 2)
        total = (np.abs(x) ** p).sum(axis=tuple(range(2, x.ndim)), keepdims=True)
        return [(total ** (1 / p)).astype(present[0].dtype)]
    if (
        spec.name in BY_DEFINITION
    ):  # what host steps use would be compared with itself; ONNX's own has these samples right
        return uncorrected(spec, call, arrays)
    return evaluator(call.node, opset_of(spec))(*present)


def uncorrected(spec: OpSpec, call: Call, arrays: tuple[np.ndarray | None, ...]) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    feeds = {name: array for name, array in zip(call.node.inputs, arrays, strict=True) if array is not None}
    inputs = [onnx.ValueInfoProto(name=name, type=type_to_proto(Constant(a).type)) for name, a in feeds.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in call.node.outputs]
    graph = onnx.helper.make_graph([node_to_proto(call.node)], "sample", inputs, outputs)
    opsets = [onnx.helper.make_opsetid("", opset_of(spec))]
    return list(ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)).run(None, feeds))


def described(spec: OpSpec, k: int, sample: Sample) -> str:
    return f"{spec.domain}{spec.name}-{k}"


SUMS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Compared in float64: in float32 the last digits depend on the order in which a machine's matrix products add, and where terms
cancel that is most of what is left."""


def precise(spec: OpSpec, sample: Sample) -> Sample:
    if spec.name not in SUMS:
        return sample
    wide = (("float64", one[1]) if isinstance(one, tuple) and one[0] == "float32" else one for one in sample.inputs)
    return dataclasses.replace(sample, inputs=tuple(wide))


CASES = [
    pytest.param(spec, k, precise(spec, sample), id=described(spec, k, sample))
    for spec in OPERATORS
    if spec.scalar is not None or spec.define is not None
    for k, sample in enumerate(spec.samples)
]


def assert_equal(found: np.ndarray, expected: np.ndarray) -> None:
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if expected.dtype.name in TOLERANCES:
        relative, absolute = TOLERANCES[expected.dtype.name]
        np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=relative, atol=absolute)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # the evaluator pads bytes with NaN
@pytest.mark.parametrize(("spec", "k", "sample"), CASES)
def test_definition_equals_reference(spec: OpSpec, k: int, sample: Sample) -> None:
    call, arrays = call_of_sample(spec, sample, np.random.default_rng(k))
    expected = reference(spec, call, arrays)
    for output in range(sample.outputs):
        assert_equal(interpret(spec, call, arrays, output), expected[output])


def test_every_defined_row_has_samples() -> None:
    missing = [spec.name for spec in OPERATORS if (spec.scalar or spec.define) and not spec.samples]
    assert not missing


def refusal(op: str, sample: Sample) -> str:
    spec = spec_of(op)
    assert spec is not None
    call, arrays = call_of_sample(spec, sample, np.random.default_rng(0))
    with pytest.raises(NotDefined) as caught:
        interpret(spec, call, arrays)
    return str(caught.value)


def test_refusals_name_the_case() -> None:
    vector = ("float32", (3,))
    assert "training" in refusal(
        "BatchNormalization", Sample((("float32", (2, 3)), vector, vector, vector, vector), {"training_mode": 1}, 3)
    )
    assert "no element definition" in refusal("TopK", Sample((vector, np.array([1])), outputs=2))
    assert "uint8" in refusal(
        "Resize", Sample((("uint8", (2,)), None, np.array([2], np.float32)), {"mode": "linear"}, low=0, high=9)
    )
    assert "string" in refusal("Identity", Sample((np.array(["a", "b"], object),)))


def test_a_parameter_that_is_not_constant_is_refused() -> None:
    spec = spec_of("ReduceSum")
    assert spec is not None
    call, arrays = call_of_sample(spec, Sample((("float32", (2, 3)), np.array([1]))), np.random.default_rng(0))
    unknown = dataclasses.replace(call, constants=(None, None))
    with pytest.raises(NotDefined, match="operand 1 of ReduceSum is not constant"):
        interpret(spec, unknown, arrays)


def test_negative_pads_crop() -> None:
    spec = spec_of("Pad")
    assert spec is not None
    call, arrays = call_of_sample(spec, Sample((("float32", (5,)), np.array([1, -2]))), np.random.default_rng(0))
    x = arrays[0]
    assert x is not None
    np.testing.assert_array_equal(interpret(spec, call, arrays), np.concatenate([np.zeros(1, np.float32), x[:3]]))


def test_attributes_of_older_opsets_are_read() -> None:
    """Axes, bounds, pads and starts were attributes once."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4) - 6
    cases = (
        ("ReduceSum", {"axes": (1,), "keepdims": 0}, 11, x.sum(axis=1)),
        ("Squeeze", {"axes": (0,)}, 11, None),
        ("Clip", {"min": -1.0, "max": 2.0}, 10, x.clip(-1, 2)),
        ("Slice", {"starts": (1,), "ends": (3,), "axes": (1,)}, 9, x[:, 1:3]),
        ("Pad", {"pads": (0, 1, 0, 0), "value": 2.0}, 10, np.pad(x, ((0, 0), (1, 0)), constant_values=2)),
        ("Split", {"split": (1, 3), "axis": 1}, 11, x[:, :1]),
    )
    for op, attributes, opset, expected in cases:
        operand = x if expected is not None else x[:1]
        expected = operand[0] if expected is None else expected
        outputs = ("y", "z") if op == "Split" else ("y",)
        node = Node(op, ("x",), outputs, attributes_of(**attributes))
        types = (Constant(operand).type,)
        call = Call(node, types, infer_outputs(node, types, (None,), opset), (None,))
        spec = spec_of(op)
        assert spec is not None
        np.testing.assert_array_equal(interpret(spec, call, (operand,)), expected)
