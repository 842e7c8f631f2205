"""Model-local functions: one call replaced by the nodes of its definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx

from fusewise.frontend.bodies import defined_names, rename_node
from fusewise.frontend.order import node_label

__all__ = ["FunctionKey", "expanded", "function_key"]

FunctionKey = tuple[str, str, str]
"""Domain, name and overload."""


def function_key(item: onnx.FunctionProto | onnx.NodeProto) -> FunctionKey:
    """How calls and definitions find each other."""
    name = item.name if isinstance(item, onnx.FunctionProto) else item.op_type
    return ("" if item.domain == "ai.onnx" else item.domain, name, item.overload)


def expanded(function: onnx.FunctionProto, call: onnx.NodeProto, fresh: Callable[[str], str]) -> list[onnx.NodeProto]:
    """The nodes of `function` with the names and attributes of one call.

    Parameters take the names of the call's operands; inner values and nodes get new ones below the call's name.
    """
    label = node_label(call)
    names = dict.fromkeys(function.input, "") | dict(zip(function.input, call.input, strict=False))
    for formal, actual in zip(function.output, call.output, strict=False):
        if formal not in names and actual:
            names[formal] = actual
    given = {a.name: a for a in function.attribute_proto} | {a.name: a for a in call.attribute}
    nodes: list[onnx.NodeProto] = []
    for original in function.node:
        node = onnx.NodeProto()
        node.CopyFrom(original)
        _fill_attributes(node, given)
        inner = set(node.output)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                inner |= defined_names(attribute.g)
        for name in sorted(inner - names.keys() - {""}):
            names[name] = fresh(f"{label}/{name}")
        node.name = f"{label}/{node_label(original)}"
        nodes.append(node)
    for node in nodes:
        rename_node(node, names)
    for formal, actual in zip(function.output, call.output, strict=False):
        if actual and names.get(formal) != actual:  # an output that is also a parameter, or is listed twice
            nodes.append(onnx.helper.make_node("Identity", [names.get(formal, formal)], [actual], f"{label}/{formal}"))
    return nodes


def _fill_attributes(node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]) -> None:
    """Replace references to the function's attributes by their values, in place; drop those nobody gave."""
    kept: list[onnx.AttributeProto] = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name not in given:
                continue
            value = onnx.AttributeProto()
            value.CopyFrom(given[attribute.ref_attr_name])
            value.name = attribute.name
            kept.append(value)
            continue
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                _fill_attributes(inner, given)
        kept.append(attribute)
    copies = [onnx.AttributeProto.FromString(a.SerializeToString()) for a in kept]
    del node.attribute[:]
    node.attribute.extend(copies)
