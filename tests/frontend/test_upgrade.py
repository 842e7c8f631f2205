"""Old operators: ONNX Runtime gives the same answers on the original file and on the graph we make of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from fusewise.errors import UnsupportedModel
from fusewise.frontend.onnx_export import to_model
from fusewise.frontend.onnx_import import PINNED_OPSET, load
from fusewise.frontend.upgrade import OLDEST_OPSET, UPGRADES

RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def i64(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@dataclass(frozen=True)
class Case:
    """One node as an old opset writes it. Operands that are arrays in `constants` are initializers, by position."""

    op: str
    opset: int
    inputs: tuple[np.ndarray | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    constants: tuple[int, ...] = ()
    outputs: int = 1
    symbolic: bool = False

    def __str__(self) -> str:
        return f"{self.op}-{self.opset}-{'-'.join(f'{k}={v}' for k, v in self.attributes.items())}"[:60].replace(
            " ", ""
        )

    def model(self) -> onnx.ModelProto:
        names = [f"x{i}" if x is not None else "" for i, x in enumerate(self.inputs)]
        outs = [f"y{i}" for i in range(self.outputs)]
        node = onnx.helper.make_node(self.op, names, outs, "it", **self.attributes)
        graph = onnx.GraphProto(name="case", node=[node])
        for i, x in enumerate(self.inputs):
            if x is None:
                continue
            if i in self.constants:
                graph.initializer.append(onnx.numpy_helper.from_array(x, names[i]))
            else:
                kind = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
                shape = [f"d{i}{k}" for k in range(x.ndim)] if self.symbolic else x.shape
                graph.input.append(onnx.helper.make_tensor_value_info(names[i], kind, shape))
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in outs)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", self.opset)], ir_version=7)
        inferred = onnx.shape_inference.infer_shapes(model)
        for out in inferred.graph.output:
            if not out.type.HasField("tensor_type"):
                out.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        return inferred

    def feeds(self) -> dict[str, np.ndarray]:
        return {f"x{i}": x for i, x in enumerate(self.inputs) if x is not None and i not in self.constants}


IMAGE = f32(2, 3, 6, 8)
SCALES_UP = np.array([1, 1, 2, 3], dtype=np.float32)
SCALES_DOWN = np.array([1, 1, 0.5, 0.4], dtype=np.float32)
SCALES_MIXED = np.array([1, 1, 0.6, 1.7], dtype=np.float32)
REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()
STATISTICS = (f32(3), f32(3), f32(3), np.abs(f32(3)) + 0.5)

CASES = (
    *(
        Case(op, opset, (IMAGE,), {"axis": axis})
        for op in ("Softmax", "LogSoftmax", "Hardmax")
        for opset, axis in ((7, 1), (9, 2), (11, -1), (11, 0))
    ),
    Case("Softmax", 8, (IMAGE,)),
    Case("Softmax", 12, (f32(2, 10, 1, 1),), {"axis": 1}),
    Case("LogSoftmax", 11, (IMAGE,), {"axis": 2}, symbolic=True),
    *(
        Case(f"Reduce{name}", opset, (np.abs(IMAGE) + 0.1,), {"axes": [1, 3], "keepdims": keep})
        for name in REDUCTIONS
        for opset, keep in ((7, 1), (11, 0))
    ),
    *(Case(f"Reduce{name}", 8, (np.abs(IMAGE) + 0.1,)) for name in ("Mean", "Sum", "Max")),
    Case("Upsample", 7, (IMAGE,), {"scales": [1.0, 1.0, 2.0, 2.0], "mode": "nearest"}),
    Case("Upsample", 8, (IMAGE,), {"scales": [1.0, 1.0, 2.0, 3.0], "mode": "linear"}),
    Case("Upsample", 9, (IMAGE, SCALES_UP), {"mode": "nearest"}, constants=(1,)),
    Case("Upsample", 9, (IMAGE, SCALES_UP), {"mode": "linear"}, constants=(1,)),
    *(
        Case("Resize", 10, (IMAGE, s), {"mode": mode}, constants=(1,))
        for s in (SCALES_UP, SCALES_DOWN, SCALES_MIXED)
        for mode in ("nearest", "linear")
    ),
    *(
        Case("Resize", 11, (IMAGE, f32(0), s), {"mode": mode, "coordinate_transformation_mode": c}, constants=(1, 2))
        for s, mode, c in (
            (SCALES_UP, "linear", "half_pixel"),
            (SCALES_UP, "cubic", "align_corners"),
            (SCALES_DOWN, "nearest", "asymmetric"),
        )
    ),
    Case(
        "Resize",
        11,
        (IMAGE, f32(0), f32(0), i64(2, 3, 9, 5)),
        {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
        constants=(1, 2, 3),
    ),
    Case(
        "Resize",
        11,
        (IMAGE, f32(0), SCALES_UP),
        {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "tf_half_pixel_for_nn"},
        constants=(1, 2),
    ),
    Case(
        "Resize",
        11,
        (IMAGE, f32(0), SCALES_DOWN),
        {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "tf_half_pixel_for_nn"},
        constants=(1, 2),
    ),
    Case("Slice", 7, (IMAGE,), {"starts": [1, -5], "ends": [3, -1], "axes": [1, 3]}),
    Case("Slice", 9, (IMAGE,), {"starts": [0, 1], "ends": [1, 2]}),
    Case("Slice", 10, (IMAGE, i64(1), i64(100), i64(3), i64(2)), constants=(1, 2, 3, 4)),
    Case("Pad", 7, (IMAGE,), {"pads": [0, 0, 1, 2, 0, 0, 3, 4], "value": 1.5}),
    Case("Pad", 10, (IMAGE,), {"pads": [0, 0, 1, 2, 0, 0, 3, 4], "mode": "reflect"}),
    Case("Pad", 8, (IMAGE,), {"pads": [0, 0, 1, 2, 0, 0, 3, 4], "mode": "edge"}),
    Case("Pad", 7, (IMAGE,), {"pads": [0, 0, -1, 2, 0, 0, 0, -2]}),
    Case("Clip", 7, (IMAGE,), {"min": 0.0, "max": 6.0}),
    Case("Clip", 10, (IMAGE,), {"min": -0.3}),
    Case("Clip", 6 + 4, (IMAGE,)),
    Case("Clip", 11, (IMAGE, None, np.float32(0.5)), constants=(2,)),
    Case("TopK", 7, (IMAGE,), {"k": 3}, outputs=2),
    Case("TopK", 9, (IMAGE,), {"k": 2, "axis": 1}, outputs=2),
    Case("TopK", 10, (IMAGE, i64(2)), {"axis": 2}, constants=(1,), outputs=2),
    Case("Squeeze", 7, (f32(1, 3, 1, 2),), {"axes": [0, 2]}),
    Case("Squeeze", 11, (f32(1, 3, 1, 2),), {"axes": [-2]}),
    Case("Squeeze", 8, (f32(1, 3, 1, 2),)),
    Case("Unsqueeze", 7, (f32(3, 2),), {"axes": [0, 3]}),
    Case("Unsqueeze", 11, (f32(3, 2),), {"axes": [-1]}),
    Case("Split", 7, (IMAGE,), {"axis": 3, "split": [1, 4, 3]}, outputs=3),
    Case("Split", 11, (IMAGE,), {"axis": -1}, outputs=2),
    Case("Split", 13, (IMAGE,), {"axis": 2}, outputs=3),
    Case("Dropout", 7, (IMAGE,), {"ratio": 0.3}),
    Case("Dropout", 10, (IMAGE,), outputs=2),
    Case("Dropout", 8, (IMAGE,), outputs=2),
    Case("BatchNormalization", 7, (IMAGE, *STATISTICS), {"epsilon": 1e-3, "momentum": 0.8}),
    Case("BatchNormalization", 8, (IMAGE, *STATISTICS), {"spatial": 1}, constants=(1, 2, 3, 4)),
    Case("BatchNormalization", 9, (IMAGE, *STATISTICS), constants=(1, 2, 3, 4)),
    Case(
        "BatchNormalization",
        7,
        (f32(2, 3, 4, 5), f32(3, 4, 5), f32(3, 4, 5), f32(3, 4, 5), np.abs(f32(3, 4, 5)) + 0.5),
        {"spatial": 0},
    ),
    Case("Scatter", 9, (f32(3, 4), np.array([[1, 0, 2], [2, 1, 3]]), f32(2, 3)), {"axis": 1}),
    Case(
        "RoiAlign",
        10,
        (IMAGE, np.array([[0, 0, 5, 4], [1, 1, 7, 5]], np.float32), i64(0, 1)),
        {"output_height": 2, "output_width": 3, "sampling_ratio": 2},
    ),
    Case("DFT", 17, (f32(2, 8, 5, 1),), {"axis": 2}),
    Case("DFT", 17, (f32(2, 8, 5, 1),), {"onesided": 1}),
    Case("GridSample", 16, (IMAGE, np.clip(f32(2, 4, 5, 2), -1, 1)), {"mode": "bicubic"}),
    Case("GridSample", 16, (IMAGE, np.clip(f32(2, 4, 5, 2), -1, 1)), {"padding_mode": "border"}),
    Case("GroupNormalization", 18, (f32(2, 6, 4, 4), f32(3), f32(3)), {"num_groups": 3}),
    Case(
        "LSTM",
        7,
        (f32(5, 2, 3), f32(1, 16, 3), f32(1, 16, 4), f32(1, 32)),
        {"hidden_size": 4},
        constants=(1, 2, 3),
        outputs=3,
    ),
    Case(
        "GRU",
        7,
        (f32(5, 2, 3), f32(2, 12, 3), f32(2, 12, 4), f32(2, 24)),
        {"hidden_size": 4, "direction": "bidirectional", "linear_before_reset": 1},
        constants=(1, 2, 3),
        outputs=2,
    ),
    Case(
        "RNN",
        7,
        (f32(5, 2, 3), f32(1, 4, 3), f32(1, 4, 4)),
        {"hidden_size": 4, "activations": ["Relu"]},
        constants=(1, 2),
        outputs=2,
    ),
    Case("Conv", 7, (IMAGE, f32(4, 3, 3, 3), f32(4)), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, constants=(1, 2)),
    Case("ConvTranspose", 7, (IMAGE, f32(3, 4, 3, 3)), {"strides": [2, 2], "output_padding": [1, 1]}, constants=(1,)),
    Case("MaxPool", 7, (IMAGE,), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    Case("MaxPool", 10, (IMAGE,), {"kernel_shape": [3, 3], "ceil_mode": 1, "strides": [2, 2]}),
    Case("AveragePool", 7, (IMAGE,), {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0], "count_include_pad": 1}),
    Case("AveragePool", 10, (IMAGE,), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    Case("LpPool", 7, (IMAGE,), {"kernel_shape": [2, 2], "p": 2}),
    Case("LRN", 7, (IMAGE,), {"size": 3}),
    Case("InstanceNormalization", 7, (IMAGE, f32(3), f32(3))),
    Case("LpNormalization", 7, (IMAGE,), {"axis": 1, "p": 2}),
    Case("MeanVarianceNormalization", 9, (IMAGE,), {"axes": [0, 2, 3]}),
    Case("Gemm", 7, (f32(3, 4), f32(5, 4), f32(5)), {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    Case("MatMul", 7, (f32(2, 3, 4), f32(4, 5))),
    Case("Flatten", 7, (IMAGE,), {"axis": 2}),
    Case("Reshape", 7, (IMAGE, i64(0, -1)), constants=(1,)),
    Case("Transpose", 7, (IMAGE,), {"perm": [0, 2, 3, 1]}),
    Case("Concat", 7, (IMAGE, IMAGE), {"axis": 1}),
    Case("Gather", 7, (IMAGE, i64(0, 2)), {"axis": 1}),
    Case("Tile", 7, (f32(2, 3), i64(2, 3)), constants=(1,)),
    Case("Expand", 8, (f32(3, 1), i64(2, 3, 4)), constants=(1,)),
    Case("Cast", 7, (IMAGE,), {"to": onnx.TensorProto.INT32}),
    Case("ArgMax", 7, (IMAGE,), {"axis": 1, "keepdims": 0}),
    Case("DepthToSpace", 7, (f32(1, 8, 2, 3),), {"blocksize": 2}),
    Case("SpaceToDepth", 7, (f32(1, 2, 4, 6),), {"blocksize": 2}),
    Case("PRelu", 7, (IMAGE, f32(3, 1, 1))),
    Case("LeakyRelu", 7, (IMAGE,), {"alpha": 0.2}),
    Case("Elu", 7, (IMAGE,)),
    Case("HardSigmoid", 7, (IMAGE,)),
    Case("Add", 7, (IMAGE, f32(8))),
    Case("Pow", 7, (np.abs(IMAGE), f32(1))),
    Case("Sum", 8, (IMAGE, f32(8), IMAGE)),
    Case("Max", 8, (IMAGE, f32(8))),
    Case("Mean", 8, (IMAGE, f32(8))),
    Case("Equal", 7, (np.arange(6, dtype=np.int32), np.array([3], np.int32))),
    Case(
        "OneHot",
        9,
        (i64(0, 2, 1), np.array(4, dtype=np.int64), np.array([0, 1], np.float32)),
        {"axis": -1},
        constants=(1, 2),
    ),
    Case("Where", 9, (IMAGE > 0, IMAGE, f32(1))),
    Case("ConstantOfShape", 9, (i64(2, 3),), constants=(0,)),
    Case("Shape", 7, (IMAGE,)),
    Case("CumSum", 11, (IMAGE, np.array(2)), {"reverse": 1}, constants=(1,)),
    Case("QuantizeLinear", 10, (IMAGE, np.float32(0.1), np.uint8(3)), constants=(1, 2)),
    Case("DequantizeLinear", 10, (np.arange(6, dtype=np.uint8), np.float32(0.1), np.uint8(3)), constants=(1, 2)),
    Case("ReverseSequence", 10, (f32(4, 3, 2), i64(2, 4, 1))),
    Case("ScatterElements", 11, (f32(3, 4), np.array([[1, 0, 2]]), f32(1, 3)), {"axis": 1}),
    Case("GatherND", 11, (IMAGE, np.array([[0, 1], [1, 2]]))),
    Case("Range", 11, (np.float32(1), np.float32(6), np.float32(1.5)), constants=(0, 1, 2)),
    Case("NonZero", 9, (IMAGE > 0.5,)),
    Case("Det", 11, (f32(2, 3, 3),)),
    Case("STFT", 17, (f32(2, 40), np.array(4), f32(8), np.array(8)), {"onesided": 1}, constants=(1, 3)),
)


def _run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)


NOT_IN_RUNTIME = {"RoiAlign"}
"""ONNX Runtime runs it in old opsets only."""


def _run_reference(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model).run(None, feeds)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_old_operator_gives_the_answers_of_onnxruntime(case: Case) -> None:
    model = case.model()
    graph = load(model)
    assert graph.opset == PINNED_OPSET
    converted = to_model(graph)
    onnx.checker.check_model(converted, full_check=True)
    expected = _run(model, case.feeds())
    found = _run_reference(converted, case.feeds()) if case.op in NOT_IN_RUNTIME else _run(converted, case.feeds())
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_every_row_of_the_table_has_a_case() -> None:
    tested = {case.op for case in CASES if UPGRADES.get(case.op) and _applies(case)}
    assert set(UPGRADES) - tested == {"Scan"}  # tested below: it needs a body


def _applies(case: Case) -> bool:
    before = UPGRADES[case.op].before
    return before is None or case.opset < before


def test_every_operator_that_changed_its_form_is_in_the_table() -> None:
    """Attributes that went away, operands that became required, and defaults that changed need a rewrite."""
    assert {name for name, _ in _changes()} - set(UPGRADES) <= {"Constant", "Gemm"}


def _changes() -> list[tuple[str, int]]:
    found = []
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain or not OLDEST_OPSET < schema.since_version <= PINNED_OPSET:
            continue
        try:
            older = onnx.defs.get_schema(schema.name, schema.since_version - 1, "")
        except onnx.defs.SchemaError:
            continue
        gone = set(older.attributes) - set(schema.attributes)
        defaults = {
            n for n in set(older.attributes) & set(schema.attributes) if _default(older, n) != _default(schema, n)
        }
        required = [
            sum(i.option == onnx.defs.OpSchema.FormalParameterOption.Single for i in s.inputs) for s in (older, schema)
        ]
        if gone or defaults or required[1] > required[0] or schema.deprecated:
            found.append((schema.name, schema.since_version))
    return found


def _default(schema: onnx.defs.OpSchema, name: str) -> bytes:
    return schema.attributes[name].default_value.SerializeToString(deterministic=True)


def test_scan_of_opset_8_runs_over_the_batch() -> None:
    body = onnx.parser.parse_graph(
        "body (float[3] state, float[3] x) => (float[3] next, float[3] y) { next = Add(state, x)  y = Mul(next, outer) }"
    )
    node = onnx.helper.make_node(
        "Scan", ["", "first", "xs"], ["last", "ys"], "scan", body=body, num_scan_inputs=1, directions=[1]
    )
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [
            onnx.helper.make_tensor_value_info("first", 1, [2, 3]),
            onnx.helper.make_tensor_value_info("xs", 1, [2, 5, 3]),
        ],
        [onnx.helper.make_tensor_value_info("last", 1, [2, 3]), onnx.helper.make_tensor_value_info("ys", 1, [2, 5, 3])],
        [onnx.numpy_helper.from_array(f32(3), "outer")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 8)], ir_version=7)
    feeds = {"first": f32(2, 3), "xs": f32(2, 5, 3)}
    converted = load(model)
    assert str(converted.types["ys"]) == "float32[2,5,3]"
    for a, b in zip(_run(to_model(converted), feeds), _run(model, feeds), strict=True):
        np.testing.assert_array_equal(a, b)


def test_operators_inside_a_body_are_upgraded_too() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 7, opset_import: ["": 9]> g (float[2,3,4] x, bool c) => (float[2,3,4] y) {'
        "y = If(c) <then_branch = t () => (float[2,3,4] a) { a = Softmax<axis = 1>(x) },"
        "else_branch = e () => (float[2,3,4] b) { b = Clip<min = 0.0>(x) }> }"
    )
    graph = load(model)
    for flag in (True, False):
        feeds = {"x": f32(2, 3, 4), "c": np.array(flag)}
        np.testing.assert_allclose(_run(to_model(graph), feeds)[0], _run(model, feeds)[0], rtol=1e-6)


def test_training_batch_normalization_is_refused() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 7, opset_import: ["": 9]> g (float[2,3] x, float[3] s, float[3] b, float[3] m, float[3] v)'
        " => (float[2,3] y, float[3] mean) { y, mean, var, sm, sv = BatchNormalization(x, s, b, m, v) }"
    )
    with pytest.raises(UnsupportedModel, match="training mode"):
        load(model)
