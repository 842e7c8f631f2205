"""Run one node on arrays with ONNX's reference evaluator, corrected: what host steps, constant folding and tests stand on.

Slow, and right because of a sweep over the options of every operator, by which it was corrected (`corrections`). Nothing of
`onnx.reference` is imported before the first evaluator is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from fusewise.errors import UnsupportedModel
from fusewise.ir.dtypes import dtype_of
from fusewise.ir.graph import Node, Subgraph
from fusewise.ir.types import TensorType
from fusewise.ops.corrections import corrected_operators
from fusewise.ops.plain.row import Evaluator
from fusewise.ops.proto import node_to_proto, type_to_proto

__all__ = ["evaluate", "evaluator"]


def evaluator(node: Node, opset: int, opsets: tuple[tuple[str, int], ...] = ()) -> Evaluator:
    """A function that runs `node`; build it once and keep it.

    `opset` is the ai.onnx version, `opsets` those of other domains. Operands are given in the order of `node.reads`
    (`node.inputs` without the absent, then `node.captured`), duplicates included. When several bodies capture values,
    `node.captured` lists them body after body in the order of the attributes, or once if they share one list. Raises
    `UnsupportedModel` when ONNX has no evaluator for the operator.
    """
    captures = tuple(name for _, value in node.attributes if isinstance(value, Subgraph) for name in value.captures)
    inner = tuple(dict.fromkeys(captures))
    shared = len(node.captured) == len(inner)
    positions = tuple(range(len(inner))) if shared else tuple(captures.index(name) for name in inner)
    inputs = tuple(f"operand:{i}" if name else "" for i, name in enumerate(node.inputs))
    outputs = tuple(f"result:{i}" if name else "" for i, name in enumerate(node.outputs))
    alone = Node(node.op, inputs, outputs, node.attributes, node.domain, node.label)
    names = [name for name in inputs if name] + list(inner)
    asked = [name for name in outputs if name]
    versions = {"": opset} | dict(opsets)
    versions.setdefault(node.domain, 1)
    # such operators are expanded to a function whose body depends on the operands' types
    by_type = _expands_by_type(node, versions[node.domain])
    sessions: dict[Any, Any] = {}
    if not by_type:
        sessions[None] = _session(alone, names, asked, versions, {})

    def run(*operands: Any) -> list[Any]:
        present = len(names) - len(inner)
        feeds = dict(zip(names, (*operands[:present], *(operands[present:][p] for p in positions)), strict=True))
        key = tuple(_type_of(x) for x in feeds.values()) if by_type else None
        if key not in sessions:
            sessions[key] = _session(alone, names, asked, versions, dict(zip(names, key or (), strict=False)))
        found = dict(zip(asked, sessions[key].run(asked, feeds), strict=True))
        return [_array(found.get(name)) for name in outputs]

    return run


def evaluate(
    node: Node, feeds: Mapping[str, Any], opset: int, opsets: tuple[tuple[str, int], ...] = ()
) -> tuple[Any, ...]:
    """The outputs of `node`, given its operands by value name."""
    return tuple(evaluator(node, opset, opsets)(*(feeds[name] for name in node.reads)))


def _expands_by_type(node: Node, version: int) -> bool:
    try:
        schema = onnx.defs.get_schema(node.op, version, node.domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_context_dependent_function)  # type: ignore[attr-defined]  # missing in onnx's stubs


def _session(
    node: Node,
    names: list[str],
    asked: list[str],
    versions: Mapping[str, int],
    types: Mapping[str, TensorType | None],
) -> Any:
    from onnx.reference import ReferenceEvaluator

    graph = onnx.GraphProto(name="node", node=[node_to_proto(node)])
    for name in names:
        kind = types.get(name)
        graph.input.append(onnx.ValueInfoProto(name=name, type=None if kind is None else type_to_proto(kind)))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in asked)
    model = onnx.ModelProto(graph=graph, ir_version=10)
    model.opset_import.extend(onnx.helper.make_opsetid(domain, version) for domain, version in versions.items())
    try:
        return ReferenceEvaluator(model, new_ops=list(corrected_operators()))
    except (NotImplementedError, onnx.defs.SchemaError, RuntimeError, TypeError, ValueError) as error:
        if not any(schema.domain == node.domain for schema in onnx.defs.get_all_schemas()):
            raise UnsupportedModel(
                f"node {node.label!r}: the operator {node.domain}.{node.op} is none of this program's; what computes it has to be "
                "registered in this process too (`fusewise.register_domain`)"
            ) from error
        raise UnsupportedModel(
            f"node {node.label!r}: operator {node.op} of domain {node.domain!r} has no reference implementation, "
            "or none for these attributes"
        ) from error


def _type_of(value: Any) -> TensorType | None:
    if not isinstance(value, np.ndarray):
        return None
    return TensorType(dtype_of(value), tuple(value.shape))


def _array(value: Any) -> Any:
    """The evaluator hands back NumPy scalars for tensors without dimensions."""
    return np.asarray(value) if isinstance(value, np.generic) else value
