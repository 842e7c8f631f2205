"""How a model of one node would run, asked of the tables alone: nothing is compiled."""

from __future__ import annotations

from typing import Any

import onnx

from fusewise import api
from fusewise.errors import FusewiseError, InvalidModel, UnsupportedModel
from fusewise.ir.graph import Graph, Node
from fusewise.lower.work import host_reason
from fusewise.ops.evaluate import evaluator
from fusewise.ops.plain.table import plain_evaluator
from fusewise.passes.pipeline import CLEAN, run
from fusewise.passes.split_wide import split_wide
from fusewise.trace import Trace

__all__ = ["WAYS", "host_way", "planned_way", "way_of_node"]

WAYS = ("native", "routine", "plain", "reference", "refused")
"""From best to worst: generated code; a kernel that a host step calls, for shapes that come from data; NumPy on the host; ONNX's
reference evaluator; not at all."""


def planned_way(model: onnx.ModelProto) -> tuple[str, str]:
    """The worst way among the nodes of a model as they are compiled, and the reason why it is not `native`; `invalid` for
    what ONNX's text forbids."""
    try:
        graph = api.load(model)
        trace = Trace()
        graph = split_wide(run(graph, CLEAN, trace), trace)
    except InvalidModel as error:
        return "invalid", str(error)
    except FusewiseError as error:
        return "refused", str(error).partition("\n")[0]
    found = [(way_of_node(graph, node), host_reason(graph, node)) for node in graph.nodes]
    return max(found, key=lambda pair: WAYS.index(pair[0]), default=("native", ""))


def way_of_node(graph: Graph, node: Node) -> str:
    return host_way(graph, node) if host_reason(graph, node) else "native"


def host_way(graph: Graph, node: Node) -> str:
    """How a node runs that is left to the host."""
    if not node.domain and node.op in _ROUTINES and graph.opset >= _ROUTINES[node.op]:
        return "routine"
    never: Any = None
    if plain_evaluator(node, graph.opset, never) is not None:
        return "plain"
    try:
        evaluator(node, graph.opset, graph.opsets)
    except UnsupportedModel:
        return "refused"
    return "reference"


_ROUTINES = {"RoiAlign": 16, "NonMaxSuppression": 10}
"""Operators that host steps have native code for, and since which opset."""
