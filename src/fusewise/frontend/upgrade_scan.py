"""Scan of opset 8, which runs once per element of a batch: a Scan over the batch around a Scan over the sequence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import onnx

from fusewise.errors import InvalidModel, UnsupportedModel
from fusewise.frontend.bodies import bodies_of, subgraph_of
from fusewise.ir.graph import Node, attributes_of

__all__ = ["scan_8"]


def scan_8(node: Node, version: int, site: Any) -> list[Node]:
    """Initial states and scan inputs have the batch first; their elements are what an outer Scan hands to its body.

    The outer Scan stacks the final states and the scan outputs of the inner one, which puts the batch first again.
    """
    if node.inputs and node.inputs[0]:
        raise UnsupportedModel(
            f"node {node.label!r} (Scan, opset 8) has sequence lengths; export with opset 9 or newer"
        )
    (_, body, captured), *_ = bodies_of(node)
    inner = onnx.NodeProto(op_type="Scan", domain="", name=f"{node.label}_sequence")
    inner.input.extend(site.fresh(f"{name}_element") for name in node.inputs[1:])
    inner.output.extend(site.fresh(f"{name}_element") for name in node.outputs)
    count = node.attribute("num_scan_inputs")
    inner.attribute.append(onnx.helper.make_attribute("body", onnx.GraphProto.FromString(body.body)))
    inner.attribute.append(onnx.helper.make_attribute("num_scan_inputs", count))
    if node.attribute("directions"):
        inner.attribute.append(onnx.helper.make_attribute("scan_input_directions", list(node.attribute("directions"))))
    states = len(node.inputs) - 1 - count
    step = onnx.GraphProto(name=f"{node.label}_batch", node=[inner])
    step.input.extend(onnx.ValueInfoProto(name=name) for name in inner.input)
    step.output.extend(onnx.ValueInfoProto(name=name) for name in inner.output)
    declared = onnx.GraphProto.FromString(body.body)
    if len(declared.input) != len(step.input) or len(declared.output) != len(step.output) or states < 0:
        raise InvalidModel(
            f"node {node.label!r} (Scan, opset 8) has {len(step.input)} operands and {len(step.output)} outputs, its body "
            f"{len(declared.input)} and {len(declared.output)}"
        )
    for mine, its in zip((*step.input, *step.output), (*declared.input, *declared.output), strict=True):
        if its.type.tensor_type.elem_type:
            mine.type.tensor_type.elem_type = its.type.tensor_type.elem_type
    outer = subgraph_of(step)
    names = dict(zip(body.captures, captured, strict=True))
    batch = replace(
        node,
        inputs=node.inputs[1:],
        attributes=attributes_of(body=outer, num_scan_inputs=states + count),
        captured=tuple(names[name] for name in outer.captures),
    )
    return [batch]
