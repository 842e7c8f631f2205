"""A partition written into an ONNX model: each group becomes a model-local function, called once.

The model computes what it did, in any runtime that inlines functions, and a viewer shows the groups as nodes that open.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from fusewise.frontend.onnx_export import to_model
from fusewise.ir.partition import Partition

__all__ = ["GROUP_DOMAIN", "model_with_functions", "with_functions"]

GROUP_DOMAIN = "fusewise.plan"
"""The operator domain that the functions live in."""


def model_with_functions(partition: Partition, names: Sequence[str | None]) -> onnx.ModelProto:
    """The graph of `partition` as a model in which group k is a call of a function called `names[k]`.

    Raises `ResourceLimit` above protobuf's 2 GiB.
    """
    return with_functions(to_model(partition.graph), partition, names, GROUP_DOMAIN)


def with_functions(
    model: onnx.ModelProto, partition: Partition, names: Sequence[str | None], domain: str
) -> onnx.ModelProto:
    """`model`, which is the graph of `partition`, changed such that group k is a call of a function `names[k]` of `domain`.

    A group without a name stays as it is, and so does one with a node that holds a subgraph, which could not see its outer values
    from within a function. Weights are arguments of the functions.
    """
    graph = partition.graph
    nodes = list(model.graph.node)
    del model.graph.node[:]
    opsets = list(model.opset_import)
    made = False
    for group, name in zip(partition.groups, names, strict=True):
        members = [nodes[k] for k in group.nodes]
        if name is None or any(graph.nodes[k].captured for k in group.nodes):
            model.graph.node.extend(members)
            continue
        inputs, outputs = group.inputs(graph), group.outputs(graph)
        function = onnx.helper.make_function(domain, name, inputs, outputs, members, opsets)
        model.functions.append(function)
        model.graph.node.append(onnx.helper.make_node(name, inputs, outputs, name=name, domain=domain))
        made = True
    if made:
        model.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    return model
