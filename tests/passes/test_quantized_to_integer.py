"""Quantised convolutions run on integers: the same answers up to one quantisation step, and refusals."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import fusewise
from fusewise import api
from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.passes.pipeline import CLEAN, run
from fusewise.passes.quantized_to_integer import quantized_to_integer, to_integer_unless
from fusewise.trace import Trace

RNG = np.random.default_rng(7)
WEIGHTS = RNG.integers(-127, 128, (12, 6, 3, 3)).astype(np.int8)
SCALES = RNG.uniform(0.002, 0.02, 12).astype(np.float32)


def f32(value: object) -> np.ndarray:
    return np.array(value, np.float32)


def quantised(
    between: str = "Relu",
    shape: tuple[int, ...] = (2, 6, 9, 8),
    strides: tuple[int, ...] = (2, 1),
    **changed: np.ndarray | None,
) -> onnx.ModelProto:
    """x -> Q DQ -> Conv with quantised weights and bias -> Relu -> Q DQ -> + itself -> Q: as exporters write it."""
    constants: dict[str, np.ndarray | None] = {
        "w": WEIGHTS,
        "ws": SCALES,
        "wz": np.zeros(12, np.int8),
        "b": RNG.integers(-900, 900, 12).astype(np.int32),
        "bs": SCALES * f32(0.05),
        "xs": f32(0.05),
        "xz": np.array(117, np.uint8),
        "ys": f32(0.07),
        "yz": np.array(3, np.uint8),
    } | changed
    known = {name: array for name, array in constants.items() if array is not None}
    group = shape[1] // known["w"].shape[1]
    nodes = [
        ("QuantizeLinear", ["x", "xs", "xz"], "q", {}),
        ("DequantizeLinear", ["q", "xs", "xz"], "d", {}),
        ("DequantizeLinear", ["w", "ws", *(["wz"] if "wz" in known else [])], "dw", {"axis": 0}),
        *([("DequantizeLinear", ["b", "bs"], "db", {"axis": 0})] if "b" in known else []),
        (
            "Conv",
            ["d", "dw", *(["db"] if "b" in known else [])],
            "c",
            {"pads": [1, 1, 1, 1], "strides": strides, "group": group},
        ),
        (between, ["c"], "r", {}),
        ("QuantizeLinear", ["r", "ys", "yz"], "rq", {}),
        ("DequantizeLinear", ["rq", "ys", "yz"], "rd", {}),
        ("Add", ["rd", "rd"], "a", {}),
        ("QuantizeLinear", ["a", "ys", "yz"], "y", {}),
    ]
    graph = helper.make_graph(
        [helper.make_node(op, reads, [write], **attributes) for op, reads, write, attributes in nodes],
        "quantised",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(array, name) for name, array in known.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def operators(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def test_the_answers_of_a_quantised_model() -> None:
    model = quantised()
    compiled = fusewise.compile(model)
    x = RNG.standard_normal((2, 6, 9, 8)).astype(np.float32) * 3
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    (found,) = compiled.run(None, {"x": x})
    apart = np.abs(found.astype(int) - expected.astype(int))
    # a sum that another rounding takes across one boundary is doubled by the addition
    assert apart.max() <= 2 and (apart > 0).mean() < 0.01 and expected.std() > 20
    kernels = {event.what for event in compiled.trace if event.kind == "kernel" and event.applied}
    assert {"integer-convolution", "byte-convolution"} & kernels


def test_what_becomes_of_it() -> None:
    graph = run(api.load(quantised()), CLEAN, Trace())
    found = operators(graph)
    assert found.count("ConvInteger") == 1 and "Conv" not in found
    # of the dequantisations only that of the result is left, whose sum is one of floats
    assert found.count("DequantizeLinear") == 1
    exact = run(api.load(quantised()), CLEAN, Trace(), exact=True)
    assert "ConvInteger" not in operators(exact)


def test_a_scale_after_it_joins_the_factors() -> None:
    model = quantised("Identity")
    graph = run(api.load(model), CLEAN, Trace())
    scales = [graph.array(node.inputs[1]) for node in graph.nodes if node.op == "QuantizeLinear"]
    # one for the input; those of the convolution and of the sum are taken into what comes before
    assert sorted(float(scale.reshape(-1)[0]) for scale in scales if scale is not None) == [f32(0.05), 1.0, 1.0]
    x = RNG.standard_normal((2, 6, 9, 8)).astype(np.float32) * 3
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    (found,) = fusewise.compile(model).run(None, {"x": x})
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 2


@pytest.mark.parametrize(
    "changed",
    [
        {"wz": np.arange(12, dtype=np.int8)},
        {"w": WEIGHTS[:, :3].repeat(2, 0)[:12], "wz": None},
        {"xs": np.full(6, 0.05, np.float32), "xz": np.full(6, 117, np.uint8)},
    ],
    ids=["weights with a zero point per channel", "groups of three channels", "a scale per channel of the data"],
)
def test_refused(changed: dict[str, np.ndarray | None]) -> None:
    graph = api.load(quantised(**changed))
    assert "ConvInteger" not in operators(quantized_to_integer(graph, Trace()))


def test_weights_around_another_number_than_zero() -> None:
    model = quantised(
        w=(WEIGHTS.astype(int) + 128).astype(np.uint8), ws=f32(0.01), wz=np.array(140, np.uint8), bs=None, b=None
    )
    graph = quantized_to_integer(api.load(model), Trace())
    (node,) = (node for node in graph.nodes if node.op == "ConvInteger")
    assert graph.constants[node.inputs[3]].array == 140
    x = RNG.standard_normal((2, 6, 9, 8)).astype(np.float32) * 3
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    (found,) = fusewise.compile(model).run(None, {"x": x})
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 2


def test_a_convolution_stays_one_of_floats_where_that_is_said() -> None:
    wide = {
        "w": RNG.integers(-127, 128, (32, 32, 3, 3)).astype(np.int8),
        "ws": np.full(32, 0.01, np.float32),
        "wz": None,
        "b": np.zeros(32, np.int32),
        "bs": np.full(32, 0.01, np.float32) * f32(0.05),
    }
    graph = api.load(quantised(shape=(1, 32, 12, 12), strides=(1, 1), **wide))
    shapes = []

    def told(node: Node, weights: TensorType, result: TensorType) -> bool:
        shapes.append((node.op, weights.dims, result.dims))
        return True

    assert "ConvInteger" not in operators(to_integer_unless(told)(graph, Trace()))
    assert shapes == [("Conv", (32, 32, 3, 3), (1, 32, 12, 12))]
    assert "ConvInteger" in operators(quantized_to_integer(graph, Trace()))


def test_linear_convolution() -> None:
    constants = {
        "s": f32(0.05),
        "z": np.array(117, np.uint8),
        "w": WEIGHTS,
        "ws": SCALES,
        "wz": np.zeros(12, np.int8),
        "u": f32(0.06),
        "v": np.array(90, np.uint8),
        "b": RNG.integers(-900, 900, 12).astype(np.int32),
    }
    reads = ["x", "s", "z", "w", "ws", "wz", "u", "v", "b"]
    graph = helper.make_graph(
        [helper.make_node("QLinearConv", reads, ["y"], pads=[1] * 4)],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, (1, 6, 9, 8))],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    assert "ConvInteger" in operators(quantized_to_integer(api.load(model), Trace()))
    x = RNG.integers(0, 256, (1, 6, 9, 8)).astype(np.uint8)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    (found,) = fusewise.compile(model).run(None, {"x": x})
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1


def product(op: str = "Gemm", shape: tuple[int, ...] = (3, 14), **attributes: object) -> onnx.ModelProto:
    """q -> DQ -> Gemm or MatMul with quantised weights, the Gemm with a bias -> Q."""
    rng = np.random.default_rng(3)
    scales = rng.uniform(0.002, 0.02, 9).astype(np.float32)
    weights = rng.integers(-127, 128, (9, 14)).astype(np.int8)
    by_rows = bool(attributes.get("transB", 0))
    constants = {
        "xs": f32(0.05),
        "xz": np.array(117, np.uint8),
        "w": weights if by_rows else np.ascontiguousarray(weights.T),
        "ws": scales,
        **({"b": rng.integers(-900, 900, 9).astype(np.int32), "bs": scales * f32(0.05)} if op == "Gemm" else {}),
        "ys": f32(0.4),
        "yz": np.array(90, np.uint8),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws"], ["dw"], axis=0 if by_rows else 1),
        *([helper.make_node("DequantizeLinear", ["b", "bs"], ["db"], axis=0)] if op == "Gemm" else []),
        helper.make_node(op, ["d", "dw", "db"][: 3 if op == "Gemm" else 2], ["p"], **attributes),
        helper.make_node("QuantizeLinear", ["p", "ys", "yz"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("q", TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    "model",
    [product(transB=1), product(), product("MatMul"), product("MatMul", (2, 3, 14)), product("MatMul", (2, 1, 3, 14))],
    ids=["Gemm by rows", "Gemm", "MatMul", "a stack", "stacks"],
)
def test_a_product_of_matrices(model: onnx.ModelProto) -> None:
    found = operators(run(api.load(model), CLEAN, Trace()))
    assert "MatMulInteger" in found and "DequantizeLinear" not in found
    shape = tuple(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim)
    x = RNG.integers(0, 256, shape).astype(np.uint8)
    (expected,) = ReferenceEvaluator(model).run(None, {"q": x})
    compiled = fusewise.compile(model)
    (answer,) = compiled.run(None, {"q": x})
    assert np.abs(answer.astype(int) - expected.astype(int)).max() <= 1 and expected.std() > 10
    kernels = {event.what for event in compiled.trace if event.kind == "kernel" and event.applied}
    assert kernels <= {"byte-product", "integer-product"}


@pytest.mark.parametrize(
    "model",
    [product(alpha=0.5, transB=1), product(shape=(14, 3), transA=1), product("MatMul", (14,))],
    ids=["scaled", "by columns", "a vector"],
)
def test_products_that_stay_floats(model: onnx.ModelProto) -> None:
    assert "MatMulInteger" not in operators(quantized_to_integer(api.load(model), Trace()))


def between(left: tuple[int, ...], right: tuple[int, ...], of: str = "MatMul") -> onnx.ModelProto:
    """Both operands are computed: (q -> DQ) by (r -> Transpose -> DQ), around other numbers than 0."""
    numbers = {"s": f32(0.05), "z": np.array(117, np.uint8), "t": f32(0.03), "k": np.array(9, np.int8)}
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["dq"]),
        helper.make_node("Transpose", ["r"], ["rt"], perm=[*range(len(right) - 2), len(right) - 1, len(right) - 2]),
        helper.make_node("DequantizeLinear", ["rt", "t", "k"], ["dr"]),
        helper.make_node(of, ["dq", "dr"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "between",
        [
            helper.make_tensor_value_info("q", TensorProto.UINT8, left),
            helper.make_tensor_value_info("r", TensorProto.INT8, right),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in numbers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    "left, right, of, integers",
    [
        ((2, 3, 7, 16), (2, 3, 9, 16), "MatMul", True),
        ((6, 16), (9, 16), "Gemm", True),
        ((2, 6, 16), (9, 16), "MatMul", True),
        ((2, 4, 16), (2, 9, 16), "MatMul", False),  # few rows
    ],
)
def test_products_of_two_that_are_computed(
    left: tuple[int, ...], right: tuple[int, ...], of: str, integers: bool
) -> None:
    model = between(left, right, of)
    assert ("MatMulInteger" in operators(quantized_to_integer(api.load(model), Trace()))) == integers
    feeds = {"q": RNG.integers(0, 256, left).astype(np.uint8), "r": RNG.integers(-128, 128, right).astype(np.int8)}
    (found,) = fusewise.compile(model).run(None, feeds)
    exact = (feeds["q"].astype(int) - 117) @ (feeds["r"].astype(int) - 9).swapaxes(-1, -2)
    np.testing.assert_allclose(found, exact * (np.float64(f32(0.05)) * f32(0.03)), rtol=1e-5, atol=1e-4)
