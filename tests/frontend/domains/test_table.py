"""Rows of other domains: they are what their maker says, stand wherever nodes do, and refuse what they do not know."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.frontend.domains.one_node import Case, expected, model_of

import fusewise
from fusewise.errors import InvalidModel, UnsupportedModel
from fusewise.frontend.domains.refused import REFUSED
from fusewise.frontend.domains.table import ROWS
from fusewise.frontend.onnx_import import load
from fusewise.ops.proto import attribute_from_proto

FLOAT, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL


def schemas() -> dict[tuple[str, str], Any]:
    """ONNX Runtime's definitions, the newest of each operator."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    found = sorted(get_all_operator_schema(), key=lambda schema: schema.since_version)
    return {(schema.domain, schema.name): schema for schema in found}


def test_rows_are_what_their_maker_says() -> None:
    known = schemas()
    assert len({(row.domain, row.op) for row in ROWS}) == len(ROWS), "each operator has one row"
    for row in ROWS:
        schema = known[row.domain, row.op]
        marks = ("", "?", "*")
        assert row.operands == tuple(f"{one.name}{marks[int(one.option)]}" for one in schema.inputs), row.op
        assert row.outputs == tuple(f"{one.name}{marks[int(one.option)]}" for one in schema.outputs), row.op
        assert {one.name for one in row.attributes} == set(schema.attributes), row.op
        for one in row.attributes:
            stated = schema.attributes[one.name]
            proto = onnx.AttributeProto.FromString(stated._default_value)
            default = attribute_from_proto(proto) if proto.type else None
            assert (one.kind, one.required) == (int(stated.type), stated.required), (row.op, one.name)
            assert one.default == (pytest.approx(default) if isinstance(default, float) else default), (
                row.op,
                one.name,
            )


def test_every_operator_has_a_row_or_a_reason() -> None:
    names = {name for domain, name in schemas() if domain == "com.microsoft"}
    rows = {row.op for row in ROWS if row.domain == "com.microsoft"}
    assert names - rows == set(REFUSED)
    assert not rows & set(REFUSED) and rows <= names


def test_unknown_operators_are_named_with_the_nearest() -> None:
    with pytest.raises(UnsupportedModel, match=r"com\.microsoft\.SkipLayerNorm .*the nearest known name is SkipLayer"):
        load(Case("SkipLayerNorm", (np.zeros(3, np.float32),)).model())
    with pytest.raises(UnsupportedModel, match=r"com\.microsoft\.Zzz \(opset 1, node 'here'\)$"):
        load(Case("Zzz", (np.zeros(3, np.float32),)).model())
    with pytest.raises(UnsupportedModel, match=r"Tokenizer \(opset 1, node 'here': it takes text apart"):
        load(Case("Tokenizer", (np.zeros(3, np.float32),)).model())


X = np.zeros((2, 3, 8), np.float32)


@pytest.mark.parametrize(
    "case, words",
    [
        (Case("SkipLayerNormalization", (X, X)), "2 inputs; the operator takes 3 to 5"),
        (Case("SkipLayerNormalization", (X, X, X[0, 0, :4])), r"input 2 \(gamma\) has the shape \[4\].*here \[8\]"),
        (Case("Gelu", (X,), {"alpha": 1.0}), "attribute 'alpha' that the operator does not take"),
        (Case("FusedMatMul", (X, X), {"transA": 2}), "transA is 2"),
        (Case("FusedMatMul", (X, X), {"alpha": 2}), "attribute 'alpha' of the wrong type"),
    ],
)
def test_nodes_are_checked_by_their_row(case: Case, words: str) -> None:
    with pytest.raises(InvalidModel, match=f"'here'.*{words}"):
        load(case.model())


def value(name: str, kind: int, shape: list[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def test_in_bodies_and_functions() -> None:
    """A branch that adds and normalises, a Loop over it, and a function that does so by an attribute of its own."""
    microsoft = {"domain": "com.microsoft"}
    norm = helper.make_node("SkipLayerNormalization", ["x", "x", "scale"], ["b"], epsilon=0.1, **microsoft)
    branch = helper.make_graph([norm], "yes", [], [value("b", FLOAT, ["n", 8])])
    other = helper.make_graph([helper.make_node("Gelu", ["x"], ["b"], **microsoft)], "no", [], branch.output)
    turn = helper.make_node("FusedMatMul", ["s", "s"], ["t"], transB=1, **microsoft)
    again = helper.make_node("FusedMatMul", ["t", "s"], ["u"], alpha=0.01, **microsoft)
    body = helper.make_graph(
        [turn, again, helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [value("i", onnx.TensorProto.INT64, []), value("c", BOOL, []), value("s", FLOAT, ["n", 8])],
        [value("d", BOOL, []), value("u", FLOAT, ["n", 8])],
    )
    nodes = [
        helper.make_node("If", ["yes"], ["h"], then_branch=branch, else_branch=other),
        helper.make_node("Loop", ["rounds", "", "h"], ["k"], body=body),
        helper.make_node("Twice", ["k", "scale"], ["y"], domain="local", epsilon=0.2),
    ]
    inner = helper.make_node("SkipLayerNormalization", ["a", "a", "g"], ["z"], **microsoft)
    inner.attribute.append(onnx.AttributeProto(name="epsilon", ref_attr_name="epsilon", type=onnx.AttributeProto.FLOAT))
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("local", 1)]
    function = helper.make_function("local", "Twice", ["a", "g"], ["z"], [inner], imports, ["epsilon"])
    inputs = [value("yes", BOOL, []), value("x", FLOAT, ["n", 8])]
    scale = helper.make_tensor("scale", FLOAT, [8], np.linspace(0.5, 2, 8))
    rounds = helper.make_tensor("rounds", onnx.TensorProto.INT64, [], [3])
    graph = helper.make_graph(nodes, "g", inputs, [value("y", FLOAT, ["n", 8])], [scale, rounds])
    model = model_of(graph)
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("local", 1))
    compiled = fusewise.compile(model, cache=False)
    x = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
    for yes in (True, False):
        feeds = {"yes": np.array(yes), "x": x}
        np.testing.assert_allclose(compiled.run(["y"], feeds)[0], expected(model, feeds)[0], rtol=2e-5, atol=2e-5)


def test_values_keep_the_names_that_the_model_gave_them() -> None:
    graph = load(Case("SkipLayerNormalization", (X, X, X[0, 0]), outputs=4, absent=(1, 2)).model())
    assert graph.outputs == ("y0", "y3")
    assert [node.op for node in graph.nodes] == ["Add", "LayerNormalization"]
    assert {node.origin for node in graph.nodes} == {("here",)}


def test_models_of_onnx_operators_load_no_rows() -> None:
    code = (
        "import sys, onnx; from onnx import helper as h; from fusewise.frontend.onnx_import import load;"
        "v = lambda n: h.make_tensor_value_info(n, 1, [2]);"
        "g = h.make_graph([h.make_node('Relu', ['x'], ['y'])], 'g', [v('x')], [v('y')]);"
        "load(h.make_model(g, opset_imports=[h.make_opsetid('', 21)], ir_version=10));"
        "assert not any('domains' in name for name in sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
