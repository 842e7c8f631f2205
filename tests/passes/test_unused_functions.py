"""Functions of a model that nothing calls are known by name, removed by the pass, and not written."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from fusewise.frontend.onnx_export import to_model
from fusewise.frontend.onnx_import import load
from fusewise.ir.graph import Graph
from fusewise.passes.unused_functions import remove_unused_functions, unused_functions
from fusewise.trace import Trace

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]


def _function(name: str, op: str, domain: str = "") -> onnx.FunctionProto:
    return helper.make_function("d", name, ["a"], ["b"], [helper.make_node(op, ["a"], ["b"], domain=domain)], OPSETS)


def _model(*functions: onnx.FunctionProto, body: bool = False) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    call = helper.make_node("called", ["x"], ["y"], domain="d")
    if body:
        branch = [
            helper.make_graph(
                [helper.make_node("called", ["x"], [name], domain="d")],
                name,
                [],
                [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])],
            )
            for name in ("then", "other")
        ]
        truth = helper.make_tensor("c", TensorProto.BOOL, [], [True])
        call = helper.make_node("If", ["c"], ["y"], then_branch=branch[0], else_branch=branch[1])
        graph = helper.make_graph([call], "g", [x], [y], [truth])
    else:
        graph = helper.make_graph([call], "g", [x], [y])
    return helper.make_model(graph, functions=list(functions), opset_imports=OPSETS, ir_version=8)


def _names(graph: Graph) -> tuple[str, ...]:
    return unused_functions(graph)


def test_those_that_nothing_calls() -> None:
    chain = [
        _function("called", "inner", "d"),
        _function("inner", "Relu"),
        _function("left", "inner", "d"),
        _function("over", "left", "d"),
    ]
    for body in (False, True):
        assert _names(load(_model(*chain, body=body))) == ("d.left", "d.over")
    assert _names(load(_model(*chain[:2]))) == ()


def test_the_pass_removes_them() -> None:
    graph = load(_model(_function("called", "Relu"), _function("left", "Exp")))
    trace = Trace()
    after = remove_unused_functions(graph, trace)
    assert _names(after) == ()
    assert [(event.kind, event.where) for event in trace] == [("function", ("d.left",))]
    assert remove_unused_functions(after, Trace()) is after
    assert remove_unused_functions(graph, Trace(limit=0)) is graph
    assert after.nodes == graph.nodes


def test_what_is_written_has_none_and_says_nothing_of_them() -> None:
    graph = load(_model(_function("called", "Relu"), _function("left", "Exp")))
    model = to_model(graph)
    assert not model.functions
    assert not model.metadata_props
    claimed = _model(_function("called", "Relu"))
    claimed.metadata_props.add(key="fusewise.unused_functions", value="no list at all")
    assert _names(load(claimed)) == (), "what a file says of itself is not believed"
