"""What the rows refuse and what they let pass, on the cases that gave rise to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from fusewise.errors import InvalidModel
from fusewise.frontend.onnx_import import load
from fusewise.ir.dtypes import FLOAT32, INT64
from fusewise.ir.graph import Constant, Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.ops.validity.table import ROWS, fault
from fusewise.ops.validity.use import Use

OPSET = 23


def use(op: str, *shapes: tuple[Any, ...] | None, outputs: int = 1, **attributes: Any) -> Use:
    """A use of an operator whose operands have the given shapes; None is an absent one."""
    types = tuple(None if shape is None else TensorType(FLOAT32, shape) for shape in shapes)
    names = tuple("" if shape is None else f"i{k}" for k, shape in enumerate(shapes))
    node = Node(op, names, tuple(f"o{k}" for k in range(outputs)), attributes_of(**attributes))
    return Use(node, types, (None,) * len(types), OPSET)


EXTENTS = {
    "Conv": ([(1, 4, 8, 8), (16, 4, 3, 3), (16,)], {}),
    "ConvTranspose": ([(1, 4, 8, 8), (4, 8, 3, 3), (16,)], {"group": 2}),
    "LayerNormalization": ([(2, 4, 64), (64,), (4, 64)], {}),
    "InstanceNormalization": ([(2, 4, 3, 3), (4,), (4,)], {}),
    "BatchNormalization": ([(2, 4, 3, 3), (4,), (4,), (4,), (4,)], {}),
    "PRelu": ([(2, 4, 64), (4, 64)], {}),
    "Gemm": ([(8, 4), (4, 64), (8, 64)], {}),
    "Einsum": ([(8, 64), (4, 64)], {"equation": "ij,kj->ik"}),
    "MatMulInteger": ([(8, 4), (4, 64), (8,), (64,)], {}),
    "DequantizeLinear": ([(2, 64), (64,), (64,)], {}),
    "ReverseSequence": ([(5, 64), (64,)], {}),
    "GatherND": ([(3, 4), (3, 1)], {"batch_dims": 1}),
    "ScatterND": ([(3, 4), (5, 1), (5, 4)], {}),
    "LSTM": ([(5, 2, 3), (1, 16, 3), (1, 16, 4), (1, 32), (2,), (1, 2, 4), (1, 2, 4), (1, 12)], {"hidden_size": 4}),
    "GRU": ([(5, 2, 3), (2, 12, 3), (2, 12, 4), (2, 24)], {"hidden_size": 4, "direction": "bidirectional"}),
    "Attention": ([(2, 3, 4, 8), (2, 3, 6, 8), (2, 3, 6, 5), (4, 6)], {}),
    "RotaryEmbedding": ([(2, 3, 4, 8), (50, 4), (50, 4), (2, 4)], {}),
    "DeformConv": ([(1, 2, 4, 4), (6, 2, 3, 3), (1, 18, 2, 2), (6,), (1, 9, 2, 2)], {}),
    "RoiAlign": ([(1, 2, 8, 8), (7, 4), (7,)], {}),
    "GridSample": ([(2, 3, 8, 8), (2, 5, 5, 2)], {}),
}
"""By operator: operands that fit together, with the attributes that go with them; no extent may be another alone."""


@pytest.mark.parametrize("op", EXTENTS)
def test_an_operand_that_is_too_short_or_too_long_is_named(op: str) -> None:
    shapes, attributes = EXTENTS[op]
    assert fault(use(op, *shapes, **attributes)) == ""
    last = len(shapes) - 1
    for other in (shapes[last][-1] + 1, max(shapes[last][-1] - 1, 2)):
        wrong = [*shapes[:last], (*shapes[last][:-1], other)]
        if wrong != shapes:
            assert f"its input {last}" in fault(use(op, *wrong, **attributes))


@pytest.mark.parametrize("op", EXTENTS)
def test_extents_that_are_not_known_yet_fit(op: str) -> None:
    shapes, attributes = EXTENTS[op]
    symbols = [tuple(f"{k}_{i}" for i in range(len(shape))) for k, shape in enumerate(shapes)]
    assert fault(use(op, *symbols, **attributes)) == ""
    assert fault(Use(use(op, *shapes, **attributes).node, (None,) * len(shapes), (), OPSET)) == ""


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "words"),
    [
        ("GatherND", [(3, 4), (1,)], {"batch_dims": -11}, "batch_dims is -11"),
        ("GatherElements", [(3, 4), (7, 5)], {"axis": 0}, "off axis 0"),
        ("Softmax", [(3, 4)], {"axis": 2}, "axis is 2"),
        ("Flatten", [(3, 4)], {"axis": 3}, "axis is 3"),
        ("Transpose", [(3, 4)], {"perm": [0, 0]}, "perm"),
        ("DepthToSpace", [(1, 8, 2, 2)], {"blocksize": 10}, "blocksize is 10"),
        ("SpaceToDepth", [(1, 8, 2, 3)], {"blocksize": 2}, "blocksize is 2"),
        ("Split", [(4,)], {"num_outputs": 3}, "num_outputs is 3"),
        ("LSTM", [(5, 2, 3), (1, 16, 3), (1, 16, 4)], {"hidden_size": -4}, "hidden_size is -4"),
        ("LSTM", [(5, 2, 3), (1, 16, 3), (1, 16, 4)], {"hidden_size": 5}, "its input 1"),
        ("Conv", [(1, 4, 8, 8), (6, 2, 3, 3)], {"group": 4}, "divide"),
        ("Conv", [(1, 4, 8, 8), (6, 4, 3, 3)], {"kernel_shape": [2, 2]}, "kernel_shape"),
        ("Conv", [(1, 4, 2, 8), (6, 4, 3, 3)], {}, "reaches over 3"),
        ("Conv", [(1, 4, 8, 8), (6, 4, 3, 3)], {"strides": [0, 1]}, "strides"),
        ("MaxPool", [(1, 4, 8, 8)], {"kernel_shape": [2, 2], "pads": [2, 0, 0, 0]}, "pads"),
        ("MaxPool", [(1, 4, 8, 8)], {"kernel_shape": [9, 2]}, "reaches over 9"),
        ("GroupNormalization", [(1, 6, 8), (6,), (6,)], {"num_groups": 4}, "num_groups"),
        ("Cast", [(3,)], {"to": 99}, "no element type"),
        ("ConstantOfShape", [(3,)], {"value": Constant(np.zeros(2, np.float32))}, "2 elements"),
        ("SequenceEmpty", [], {"dtype": 99}, "no element type"),
        ("TensorScatter", [(2, 5, 3), (2, 1, 3), (4,)], {}, "its input 2"),
        ("Attention", [(1, 3, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)], {}, "heads"),
    ],
)
def test_attributes_out_of_range_are_named(op: str, shapes: list[Any], attributes: dict[str, Any], words: str) -> None:
    assert words in fault(use(op, *shapes, **attributes))


def model_of(op: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any]) -> onnx.ModelProto:
    names = [f"i{k}" for k in range(len(shapes))]
    ports = [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in zip(names, shapes, strict=True)]
    node = onnx.helper.make_node(op, names, ["y"], name="the node", **attributes)
    output = onnx.helper.make_tensor_value_info("y", 1, None)
    graph = onnx.helper.make_graph([node], "g", ports, [output])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=10)


def test_a_model_is_refused_by_node_and_operand() -> None:
    with pytest.raises(InvalidModel, match=r"node 'the node' \(Conv\): its input 2 \(B\) has the shape \[2\]"):
        load(model_of("Conv", [(1, 4, 8, 8), (16, 4, 3, 3), (2,)], {}))


def test_attributes_are_looked_at_in_bodies_that_may_never_run() -> None:
    inner = model_of("Softmax", [(3, 4)], {"axis": 1}).graph
    inner.node[0].CopyFrom(onnx.helper.make_node("GatherND", ["x", "n"], ["y"], name="inside", batch_dims=-11))
    del inner.input[:]
    node = onnx.helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner)
    ports = [
        onnx.helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []),
        onnx.helper.make_tensor_value_info("x", 1, [3, 4]),
        onnx.helper.make_tensor_value_info("n", onnx.TensorProto.INT64, [1]),
    ]
    graph = onnx.helper.make_graph([node], "g", ports, [onnx.helper.make_tensor_value_info("z", 1, None)])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=10)
    with pytest.raises(InvalidModel, match="'inside'"):
        load(model)


def test_every_row_is_of_an_operator_and_names_its_attributes() -> None:
    names = [(row.domain, row.op) for row in ROWS]
    assert len(names) == len(set(names))
    for domain, op in names:
        assert onnx.defs.has(op, domain)


def test_known_contents_are_looked_at() -> None:
    node = Node("Reshape", ("x", "s"), ("y",))
    types = (TensorType(FLOAT32, (2, 6)), TensorType(INT64, (2,)))
    assert fault(Use(node, types, (None, np.array([3, -1])), OPSET)) == ""
    assert "12 elements" in fault(Use(node, types, (None, np.array([5, 2])), OPSET))


TEXTS = [
    (schema.domain, schema.name, schema.since_version, name, attribute.type == onnx.defs.OpSchema.AttrType.STRINGS)
    for schema in onnx.defs.get_all_schemas()
    for name, attribute in schema.attributes.items()
    if attribute.type in (onnx.defs.OpSchema.AttrType.STRING, onnx.defs.OpSchema.AttrType.STRINGS)
]


@pytest.mark.parametrize("domain, op, version, name, several", TEXTS)
def test_text_is_utf8(domain: str, op: str, version: int, name: str, several: bool) -> None:
    value = ("word", b"\xff") if several else b"\xa4"
    found = fault(Use(Node(op, (), ("y",), ((name, value),), domain), (), (), version))
    assert name in found and "UTF-8" in found


def test_a_type_is_no_text() -> None:
    node = Node("Optional", (), ("y",), (("type", b"\xff"),))
    assert "UTF-8" not in fault(Use(node, (), (), 23))
