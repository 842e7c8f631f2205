"""How a model of one node would run, asked of the tables alone: nothing is compiled."""

from __future__ import annotations

import onnx

from fusewise import api
from fusewise.codegen.legalize import legalized
from fusewise.errors import FusewiseError, InvalidModel, UnsupportedModel
from fusewise.hosting import BODIES, EVALUATOR, LATER, NUMPY, ROUTINE, way_of
from fusewise.ir.graph import Graph, Node
from fusewise.lower.work import host_reason
from fusewise.ops.evaluate import evaluator
from fusewise.runtime.host import host_target
from fusewise.trace import Trace

__all__ = ["NATIVE", "WAYS", "planned_way", "worst"]

NATIVE, STAGE, REFUSED = "native", "stage", "refused"

WAYS = (NATIVE, STAGE, ROUTINE, BODIES, NUMPY, EVALUATOR, REFUSED)
"""From best to worst: code made when the model is compiled; made while it runs, once the data have decided shapes; a kernel that a
host step calls; the nodes of bodies by any of these; NumPy; ONNX's reference evaluator; not at all."""

_OF_DATA = ("depends on data", "is not constant", "without a static shape")
"""In reasons: native code waits for contents or shapes that only a run has."""


def planned_way(model: onnx.ModelProto) -> tuple[str, str]:
    """The worst way among the nodes of a model as they are compiled, and the reason why it is not `native`; `invalid` for
    what ONNX's text forbids."""
    try:
        graph, trace = api.load(model), Trace()
        graph = legalized(graph, host_target(), trace)
    except InvalidModel as error:
        return "invalid", str(error)
    except FusewiseError as error:
        return REFUSED, str(error).partition("\n")[0]
    found = [_way_of_node(graph, node) for node in graph.nodes]
    return max(found, key=lambda pair: WAYS.index(pair[0]), default=(NATIVE, ""))


def worst(host: list[dict[str, str]]) -> str:
    """The worst way among the nodes that a compiled model says it runs on the host."""
    found = (STAGE if _is_of_data(row["reason"]) else row["way"].removesuffix(LATER) for row in host)
    return max(found, key=WAYS.index, default=NATIVE)


def _is_of_data(reason: str) -> bool:
    return any(part in reason for part in _OF_DATA)


def _way_of_node(graph: Graph, node: Node) -> tuple[str, str]:
    reason = host_reason(graph, node)
    if not reason:
        return NATIVE, ""
    if _is_of_data(reason):
        return STAGE, reason
    way = way_of(node, dict(graph.opsets).get(node.domain, 1) if node.domain else graph.opset)
    if way == EVALUATOR:
        try:
            evaluator(node, graph.opset, graph.opsets)
        except UnsupportedModel:
            way = REFUSED
    return way, reason
