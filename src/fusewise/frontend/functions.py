"""Model-local functions: one call replaced by the nodes of its definition."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import onnx

from fusewise.errors import ResourceLimit
from fusewise.frontend.bodies import defined_names, rename_node
from fusewise.frontend.limits import ModelLimits
from fusewise.frontend.order import node_label

__all__ = [
    "UNUSED",
    "FunctionKey",
    "bodies",
    "check_expansion",
    "defaults",
    "defaults_of",
    "expanded",
    "function_key",
    "noted",
    "unused",
    "without_notes",
    "without_unused",
]

FunctionKey = tuple[str, str, str]
"""Domain, name and overload."""

UNUSED = "fusewise.unused_functions"
"""The key of a graph's metadata for the functions of its file that nothing calls, a JSON list of names. Those that are called are
expanded where they are; what is written has neither, nor this note."""


_FIRST_WITH_DEFAULTS = 4  # the first version of the format whose weights need not be inputs

DEFAULTS = "fusewise.inputs_with_a_default"
"""The same for inputs that have a default: they are constants here."""


def function_key(item: onnx.FunctionProto | onnx.NodeProto) -> FunctionKey:
    """How calls and definitions find each other."""
    name = item.name if isinstance(item, onnx.FunctionProto) else item.op_type
    return ("" if item.domain == "ai.onnx" else item.domain, name, item.overload)


def check_expansion(
    nodes: Iterable[onnx.NodeProto], functions: Mapping[FunctionKey, onnx.FunctionProto], limits: ModelLimits
) -> None:
    """Refuse a model that would have too many nodes with all its calls replaced, before any is: ten functions that call the next
    ten times each make ten thousand million nodes of a hundred."""
    sizes: dict[FunctionKey, int] = {}
    under_way: list[FunctionKey] = []

    def size_of(call: onnx.NodeProto, depth: int) -> int:
        key = function_key(call)
        function = functions.get(key)
        if function is not None and key not in sizes:
            if key in under_way or len(under_way) >= limits.function_depth:
                raise ResourceLimit(
                    f"function {function.name!r} nests deeper than {limits.function_depth} calls, or calls itself"
                )
            under_way.append(key)
            sizes[key] = size_of_all(function.node, depth)
            under_way.pop()
        return 1 + sizes.get(key, 0)

    def size_of_all(found: Iterable[onnx.NodeProto], depth: int) -> int:
        if depth > limits.subgraph_depth:
            raise ResourceLimit(f"bodies of control flow nest deeper than {limits.subgraph_depth}")
        return sum(
            size_of(node, depth) + sum(size_of_all(body.node, depth + 1) for body in bodies(node)) for node in found
        )

    total = size_of_all(nodes, 0)
    if total > limits.nodes:
        raise ResourceLimit(
            f"the model has {total:,} nodes after its functions are inlined; the limit is {limits.nodes:,}"
        )


def unused(
    nodes: Iterable[onnx.NodeProto], functions: Mapping[FunctionKey, onnx.FunctionProto]
) -> tuple[FunctionKey, ...]:
    """The functions that nothing calls, be it from within bodies of control flow and other functions, in the order of the file."""
    called: set[FunctionKey] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        key = function_key(node)
        if key in functions and key not in called:
            called.add(key)
            waiting.extend(functions[key].node)
        for body in bodies(node):
            waiting.extend(body.node)
    return tuple(key for key in functions if key not in called)


def noted(
    metadata: Iterable[tuple[str, str]], keys: Iterable[FunctionKey], defaults: Sequence[str] = ()
) -> tuple[tuple[str, str], ...]:
    """Metadata with a note of the functions that nothing calls, one of the inputs that have a default, and no older ones."""
    names = [
        ".".join(filter(None, (domain, name))) + (f":{overload}" if overload else "") for domain, name, overload in keys
    ]
    told = [(key, json.dumps(found)) for key, found in ((UNUSED, names), (DEFAULTS, list(defaults))) if found]
    return (*without_notes(metadata), *told)


def defaults(model: onnx.ModelProto) -> list[str]:
    """Inputs with a default, which are taken as constants. Early versions of the format have every weight among the inputs."""
    if model.ir_version < _FIRST_WITH_DEFAULTS:
        return []
    stored = {tensor.name for tensor in model.graph.initializer}
    return [value.name for value in model.graph.input if value.name in stored]


def defaults_of(metadata: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The inputs that have a default, which are constants."""
    return tuple(json.loads(dict(metadata).get(DEFAULTS, "[]")))


def without_notes(metadata: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Metadata without the notes."""
    return tuple(entry for entry in metadata if entry[0] not in (UNUSED, DEFAULTS))


def without_unused(metadata: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Metadata without the note of functions."""
    return tuple(entry for entry in metadata if entry[0] != UNUSED)


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that are attributes of a node."""
    return (attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH)


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
        for body in bodies(node):
            inner |= defined_names(body)
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
