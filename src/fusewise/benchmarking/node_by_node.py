"""Where no single decision is to blame: the first node whose output differs from what another runtime makes of its operands.

The model is compiled with every value as an output. Each node then runs alone in ONNX Runtime without optimisations, else in
ONNX's evaluator, else by our own definition of its operator, on operands that are right; the first whose output here is another
is named, and what of the program computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from fusewise.benchmarking.accuracy import relative_error, tolerance_of
from fusewise.benchmarking.reference import answer, reference_answer
from fusewise.benchmarking.verification import Fault
from fusewise.errors import UnsupportedModel
from fusewise.frontend.lowest_opset import at_lowest_opset
from fusewise.frontend.onnx_export import to_model
from fusewise.ir.dtypes import dtype_of
from fusewise.ir.graph import Constant, Graph, Node
from fusewise.ir.types import TensorType, ValueType
from fusewise.ops.definition import call_of, flops_of
from fusewise.ops.interpret import interpret
from fusewise.ops.spec import NotDefined
from fusewise.ops.table import spec_of

__all__ = ["Compiled", "answers_by_nodes", "first_fault"]

DEFINITIONS = "our definitions"
_LARGEST = 10**8
"""Arithmetic operations of the largest node that is worked out by its definition, with an array element for each."""
_CHANCE = frozenset("Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split())
Values = dict[str, Any]


class Compiled(Protocol):
    """A compiled model: `summary["host"]` names the nodes that run on the host."""

    @property
    def summary(self) -> dict[str, Any]: ...

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]: ...


def answers_by_nodes(graph: Graph, feeds: Mapping[str, Any]) -> list[Any]:
    """All outputs of the graph, each node by whoever can run it; `UnsupportedModel` for a node that nobody can."""
    values = _known(graph, feeds)
    for node in graph.nodes:
        _, found = _witnessed(graph, node, values)
        values.update((value, right) for value, right in zip(node.outputs, found, strict=True) if value)
    return [values[name] for name in graph.outputs]


def first_fault(
    graph: Graph,
    feeds: Mapping[str, Any],
    build: Callable[[Graph], Compiled],
    right: Sequence[Any],
    reference: str,
    limit_of: Callable[[Any], float] = tolerance_of,
) -> Fault:
    """The first node that differs. `build` compiles a graph; `right` are the outputs of `reference` for the user's file, and
    `limit_of` gives the largest relative error of an answer."""
    kept = tuple(dict.fromkeys(value for node in graph.nodes for value in node.writes))
    compiled = build(graph.replace(outputs=kept))
    ours = {**_known(graph, feeds), **dict(zip(kept, compiled.run(None, feeds), strict=True))}
    values = _known(graph, feeds)
    for node in graph.nodes:
        try:
            witness, expected = _witnessed(graph, node, values)
        except UnsupportedModel:  # nobody else knows: ours is taken for right
            values.update((value, ours[value]) for value in node.writes)
            continue
        values.update((value, found) for value, found in zip(node.outputs, expected, strict=True) if value)
        for value in node.writes:
            error, limit = relative_error(ours[value], values[value]), limit_of(values[value])
            if error > limit:
                part = _part(graph, node, value, ours, values, compiled, limit)
                return Fault(node.label, node.op, value, part, witness, error, limit)
    for value, there in zip(graph.outputs, right, strict=True):
        error, limit = relative_error(values[value], there), limit_of(there)
        if error > limit:
            return Fault("", "", value, "import", reference, error, limit)
    return Fault("", "", "", "combination", reference, 0.0, 0.0)


def _known(graph: Graph, feeds: Mapping[str, Any]) -> Values:
    return {**feeds, **{name: constant.array for name, constant in graph.constants.items()}}


def _part(graph: Graph, node: Node, value: str, ours: Values, values: Values, compiled: Compiled, limit: float) -> str:
    """What of the program is at fault for a value of `ours` that is not as in `values`, where its operands are right."""
    position = node.outputs.index(value)
    if not _fits(graph.types.get(value), values[value]):
        return "shape"
    if any(relative_error(ours[name], values[name]) for name in node.reads):
        _, for_ours = _witnessed(graph, node, ours)
        if relative_error(ours[value], for_ours[position]) <= limit:
            return "rounding"
    if node.op in _CHANCE or (node.op == "Dropout" and len(node.inputs) == 3):
        return "chance"
    if _second(graph, node, values, position, ours[value]) <= limit:
        return "witness"
    if any(row["node"] == node.label for row in compiled.summary.get("host", ())):
        return "host step"
    if spec_of(node.op, node.domain) is None:
        return "native code"
    try:
        defined = _by_definition(graph, node, values)[position]
    except NotDefined:
        return "row"
    return "native code" if relative_error(defined, values[value]) <= limit else "definition"


def _fits(kind: ValueType | None, found: Any) -> bool:
    """Is the value of the type that was inferred?"""
    if not isinstance(kind, TensorType) or not isinstance(found, np.ndarray):
        return True
    dims = kind.shape
    if dims is None:
        return kind.dtype == dtype_of(found)
    alike = len(dims) == found.ndim and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(dims, found.shape, strict=False)
    )
    return alike and kind.dtype == dtype_of(found)


def _witnessed(graph: Graph, node: Node, values: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """The outputs of a node (None where absent) for these operands, and by whom; `UnsupportedModel` where nobody can run it."""
    try:
        witness, found = answer(to_model(at_lowest_opset(_alone(graph, node, values))), _fed(graph, node, values))
    except UnsupportedModel:
        try:
            return DEFINITIONS, _by_definition(graph, node, values)
        except NotDefined as reason:
            raise UnsupportedModel(f"node {node.label!r} ({node.op}): no reference can run it: {reason}") from None
    by_name = dict(zip(node.writes, found, strict=True))
    return witness, [by_name.get(value) for value in node.outputs]


def _second(graph: Graph, node: Node, values: Values, position: int, found: Any) -> float:
    """How far a value is from what ONNX's evaluator says, in float64 where it can; infinite where it says nothing."""
    name = node.outputs[position]
    for operands in (_widened(node, values), values):
        alone = _alone(graph, node, operands)
        constants = {read: Constant(operands[read]) for read in alone.constants}
        try:
            right = reference_answer(to_model(alone.replace(constants=constants)), _fed(graph, node, operands))
        except UnsupportedModel:
            continue
        answer_there = dict(zip(node.writes, right, strict=True))[name]
        if isinstance(found, np.ndarray) and isinstance(answer_there, np.ndarray):
            return relative_error(found.astype(answer_there.dtype), answer_there)
        return relative_error(found, answer_there)
    return float("inf")


def _widened(node: Node, values: Mapping[str, Any]) -> Values:
    """The operands of a node with all floats as float64."""
    operands = {name: values[name] for name in node.reads}
    return {
        name: x.astype(np.float64) if isinstance(x, np.ndarray) and dtype_of(x).is_float else x
        for name, x in operands.items()
    }


def _fed(graph: Graph, node: Node, values: Mapping[str, Any]) -> Values:
    return {name: values[name] for name in dict.fromkeys(node.reads) if name not in graph.constants}


def _alone(graph: Graph, node: Node, values: Mapping[str, Any]) -> Graph:
    """A graph of this node; inputs are of the types of their values, and those of outputs are left open."""
    reads = tuple(dict.fromkeys(node.reads))
    fed = tuple(name for name in reads if name not in graph.constants)
    types = {name: _type_of(values[name], graph.types[name]) for name in reads}
    constants = {name: graph.constants[name] for name in reads if name in graph.constants}
    return graph.replace(inputs=fed, outputs=node.writes, nodes=(node,), types=types, constants=constants, metadata=())


def _type_of(value: Any, kind: ValueType) -> ValueType:
    return TensorType(dtype_of(value), tuple(value.shape)) if isinstance(value, np.ndarray) else kind


def _by_definition(graph: Graph, node: Node, values: Mapping[str, Any]) -> list[Any]:
    """The outputs of a node by our own definition; `NotDefined` where there is none."""
    spec = spec_of(node.op, node.domain)
    if spec is None:
        raise NotDefined(f"there is no definition of {node.op}")
    call = call_of(graph, node)
    call = replace(
        call,
        inputs=tuple(_type_of(values[name], graph.types[name]) if name else None for name in node.inputs),
    )
    if flops_of(spec, call) > _LARGEST:
        raise NotDefined(f"{node.op} is too large to be worked out by its definition")
    operands = tuple(np.asarray(values[name]) if name else None for name in node.inputs)
    return [interpret(spec, call, operands, k) if value else None for k, value in enumerate(node.outputs)]
