"""States of a Loop or Scan that every round hands on as they are: values from outside. For `fold_constants`; exact."""

from __future__ import annotations

from dataclasses import replace

import onnx

from fusewise.frontend.bodies import bodies_of, subgraph_of
from fusewise.frontend.order import node_reads
from fusewise.ir.graph import Node
from fusewise.passes.edit import Change, Edit, LocalRule

__all__ = ["STEADY_STATES"]

_SCAN = 9


def _captured(edit: Edit, node: Node) -> Change | None:
    """y, z = Loop(n, c, x, w), whose body gives w for w   ->   y = Loop(n, c, x), whose body reads w; z = w

    A round then copies nothing of it, and what is constant is known to be.
    """
    if node.op == "Scan" and edit.opset < _SCAN:
        return None
    ((name, subgraph, captured),) = bodies_of(node)
    body = onnx.GraphProto.FromString(subgraph.body)
    first, skipped = (2, 1) if node.op == "Loop" else (0, 0)
    count = len(body.input) - (2 if node.op == "Loop" else node.attribute("num_scan_inputs"))
    if len(node.inputs) < first + count or len(node.outputs) < count or len(body.output) < skipped + count:
        return None
    steady = [k for k in range(count) if node.inputs[first + k] and _is_steady(body, first + k, skipped + k)]
    if not steady:
        return None
    names = dict(zip(subgraph.captures, captured, strict=True))
    names |= {body.input[first + k].name: node.inputs[first + k] for k in steady}
    for k in reversed(steady):
        del body.input[first + k]
        del body.output[skipped + k]
    _drop_unread(body)
    inner = subgraph_of(body)
    new = replace(
        node.with_attributes(**{name: inner}),
        inputs=tuple(value for place, value in enumerate(node.inputs) if place - first not in steady),
        outputs=tuple(value for place, value in enumerate(node.outputs) if place not in steady),
        captured=tuple(names[value] for value in inner.captures),
    )
    same = {node.outputs[k]: node.inputs[first + k] for k in steady if node.outputs[k]}
    return Change((node,), "every round hands it on", (new,) if any(new.outputs) else (), same)


def _is_steady(body: onnx.GraphProto, place: int, result: int) -> bool:
    """Is an output of the body one of its inputs?"""
    makers = {node.output[0]: node.input[0] for node in body.node if _is_identity(node)}
    value = body.output[result].name
    while value in makers:
        value = makers[value]
    return bool(value == body.input[place].name)


def _is_identity(node: onnx.NodeProto) -> bool:
    return bool(node.op_type == "Identity") and node.domain in ("", "ai.onnx")


def _drop_unread(body: onnx.GraphProto) -> None:
    """Remove what handed values on, in place."""
    read = {value.name for value in body.output}
    kept = []
    for node in reversed(body.node):
        if not _is_identity(node) or node.output[0] in read:
            kept.append(node)
            read.update(node_reads(node))
    del body.node[:]
    body.node.extend(reversed(kept))


STEADY_STATES = LocalRule("steady-states", ("Loop", "Scan"), _captured)
