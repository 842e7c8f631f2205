"""Run one node on arrays with ONNX's reference evaluator: what host steps, constant folding and tests stand on.

Slow and always right by definition; nothing of `onnx.reference` is imported before the first evaluator is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnx

from fusewise.errors import UnsupportedModel
from fusewise.ir.graph import Node, Subgraph
from fusewise.ops.proto import node_to_proto

__all__ = ["Evaluator", "evaluate", "evaluator"]

Evaluator = Callable[..., list[Any]]
"""Takes the node's present operands, then its captured values, in order; gives its outputs, None for absent ones.

Tensors are arrays, sequences lists, and an empty optional is None."""


def evaluator(node: Node, opset: int, opsets: tuple[tuple[str, int], ...] = ()) -> Evaluator:
    """A function that runs `node`; build it once and keep it.

    `opset` is the ai.onnx version, `opsets` those of other domains. Operands are given in the order of `node.reads`
    (`node.inputs` without the absent, then `node.captured`), duplicates included. Raises `UnsupportedModel` when ONNX
    has no evaluator for the operator.
    """
    from onnx.reference import ReferenceEvaluator

    captures = tuple(name for _, value in node.attributes if isinstance(value, Subgraph) for name in value.captures)
    inner, positions = _distinct(captures)
    if len(node.captured) == len(inner):  # bodies that share one list of captures
        positions = tuple(range(len(inner)))
    inputs = tuple(f"operand:{i}" if name else "" for i, name in enumerate(node.inputs))
    outputs = tuple(f"result:{i}" if name else "" for i, name in enumerate(node.outputs))
    alone = Node(node.op, inputs, outputs, node.attributes, node.domain, node.name)
    names = [name for name in inputs if name] + list(inner)
    asked = [name for name in outputs if name]
    graph = onnx.GraphProto(name="node", node=[node_to_proto(alone)])
    graph.input.extend(onnx.ValueInfoProto(name=name) for name in names)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in asked)
    versions = {"": opset} | dict(opsets)
    versions.setdefault(node.domain, 1)
    model = onnx.ModelProto(graph=graph, ir_version=10)
    model.opset_import.extend(onnx.helper.make_opsetid(domain, version) for domain, version in versions.items())
    try:
        session = ReferenceEvaluator(model)
    except (NotImplementedError, onnx.defs.SchemaError, RuntimeError) as error:
        raise UnsupportedModel(
            f"node {node.label!r}: operator {node.op} of domain {node.domain!r} has no reference implementation"
        ) from error
    present = sum(1 for name in inputs if name)

    def run(*operands: Any) -> list[Any]:
        captured = operands[present:]
        feeds = dict(zip(names, (*operands[:present], *(captured[p] for p in positions)), strict=True))
        found = dict(zip(asked, session.run(asked, feeds), strict=True))
        return [found.get(name) for name in outputs]

    return run


def _distinct(captures: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Names that several bodies of one node capture are fed once."""
    first: dict[str, int] = {}
    for position, name in enumerate(captures):
        first.setdefault(name, position)
    return tuple(first), tuple(first.values())


def evaluate(
    node: Node, feeds: Mapping[str, Any], opset: int, opsets: tuple[tuple[str, int], ...] = ()
) -> tuple[Any, ...]:
    """The outputs of `node`, given its operands by value name."""
    return tuple(evaluator(node, opset, opsets)(*(feeds[name] for name in node.reads)))
