"""What a model asks for, before anything is imported: operators, opsets, names, nesting.

One pass over all nodes, those of bodies and of called functions included. It finds every unsupported operator at once,
and whether a model newer than the pinned opset uses anything that the pinned opset lacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import onnx

from fusewise.errors import InvalidModel, ResourceLimit, UnknownOperators, UnsupportedModel
from fusewise.frontend.functions import FunctionKey, function_key
from fusewise.frontend.limits import ModelLimits
from fusewise.frontend.order import node_label
from fusewise.frontend.upgrade import OLDEST_OPSET, PINNED_OPSET, UPGRADES
from fusewise.frontend.upgrade_six import SIX
from fusewise.ops.registered import REGISTERED
from fusewise.words import alike

if TYPE_CHECKING:
    from fusewise.frontend.domains.row import DomainRow

__all__ = ["Coverage", "check_node", "domain_row", "survey"]


_PLACES = 5
"""So many nodes of an unknown operator are named."""


@dataclass(frozen=True)
class Coverage:
    """What a model uses.

    `opsets` are its imports, `other_opsets` those of domains besides ONNX's own; `newest` is the newest ONNX opset that
    it or one of its functions imports. `fits_pinned`: every operator exists, with these attributes and operands, in the
    pinned opset (element types are not looked at). `names`: every name of a value or node; `reads`: every value that
    something reads.
    """

    opsets: Mapping[str, int]
    other_opsets: tuple[tuple[str, int], ...]
    newest: int
    fits_pinned: bool
    names: frozenset[str]
    reads: frozenset[str]


@dataclass
class _Findings:
    """What the pass over the nodes has found so far."""

    functions: Mapping[FunctionKey, onnx.FunctionProto]
    limits: ModelLimits
    names: set[str]
    reads: set[str]
    missing: dict[tuple[str, str, int], list[str]]
    imports: dict[FunctionKey, dict[str, int]]
    called: list[onnx.FunctionProto]
    opsets: dict[str, int]
    operators: Counter[str] = field(default_factory=Counter)
    nodes: int = 0
    fits_pinned: bool = True


def survey(model: onnx.ModelProto, limits: ModelLimits) -> Coverage:
    """Look through a model. Raises `UnknownOperators` that lists every one, and `UnsupportedModel` for an opset out of range."""
    for entry in (*model.opset_import, *(entry for function in model.functions for entry in function.opset_import)):
        limits.check_string("the name of an operator domain", entry.domain)
    for prop in model.metadata_props:
        limits.check_string("a metadata key", prop.key)
        limits.check_string("a metadata value", prop.value)
    for function in model.functions:
        for text in (function.name, function.domain, function.overload, *function.input, *function.output):
            limits.check_string("a name of a function", text)
    functions = {function_key(function): function for function in model.functions}
    opsets = _imports(model.opset_import, "the model")
    found = _Findings(functions, limits, set(), set(), {}, {}, [], dict(opsets))
    _graph(found, model.graph, opsets, 0)
    while found.called:
        function = found.called.pop()
        _nodes(found, function.node, found.imports[function_key(function)], 0, f" in function {function.name!r}")
    if found.missing:
        raise _unknown(model, found)
    newest = max(found.opsets.get("", PINNED_OPSET), OLDEST_OPSET)
    others = tuple(
        sorted(
            (domain, version)
            for domain, version in found.opsets.items()
            if domain and (_is_known(domain) or domain in REGISTERED.domains)
        )
    )
    return Coverage(opsets, others, newest, found.fits_pinned, frozenset(found.names), frozenset(found.reads))


def _unknown(model: onnx.ModelProto, found: _Findings) -> UnknownOperators:
    """The error for a model with operators that are not known, and what could be read of it."""
    missing = sorted(found.missing.items())
    rows = [
        f"{_printable(f'{domain}.{op}' if domain else op)} (opset {version}, {places[0]}{_hint(domain, op, version)})"
        for (domain, op, version), places in missing
    ]
    error = UnknownOperators(
        f"the model uses {len(rows)} unsupported operator{'s' * (len(rows) > 1)}: {', '.join(rows)}"
    )
    initialized = {tensor.name for tensor in model.graph.initializer}
    error.found = {
        "opsets": {domain or "ai.onnx": version for domain, version in sorted(found.opsets.items())},
        "inputs": [value.name for value in model.graph.input if value.name not in initialized],
        "outputs": [value.name for value in model.graph.output],
        "operators": dict(found.operators.most_common()),
        "unknown_operators": [
            {
                "domain": domain or "ai.onnx",
                "operator": op,
                "opset": version,
                "nodes": len(places),
                "nearest": "" if (reason := _reason(domain, op, version)) else _nearest(domain, op),
                "reason": reason,
                "where": places[:_PLACES],
            }
            for (domain, op, version), places in missing
        ],
    }
    return error


def _hint(domain: str, op: str, version: int) -> str:
    """Why an operator is not supported, or what else may have been meant."""
    reason, name = _reason(domain, op, version), _nearest(domain, op)
    if reason:
        return f": {reason}"
    return f", the nearest known name is {name}" if name else ""


def _reason(domain: str, op: str, version: int) -> str:
    from fusewise.frontend.domains.refused import why_refused

    if domain:
        return why_refused(domain, op)
    known = [schema for schema in onnx.defs.get_all_schemas_with_history() if schema.name == op and not schema.domain]
    newer = sorted(one.since_version for one in known if one.since_version > version and not one.deprecated)
    return f"it is of opset {newer[0]}" if newer else ""


def _nearest(domain: str, op: str) -> str:
    """The name of another known operator of the domain that is most like `op`; empty where none is."""
    from fusewise.frontend.domains.table import nearest

    if domain:
        return nearest(domain, op)
    names = sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain} - {op})
    return next(iter(alike(op, names)), "")


def _printable(name: str) -> str:
    """A name from a stranger's file, fit for a message of one line."""
    return name if name.isprintable() else repr(name)


def _imports(entries: Iterable[onnx.OperatorSetIdProto], where: str) -> dict[str, int]:
    """Opset versions by domain, ONNX's own checked."""
    opsets: dict[str, int] = {}
    for entry in entries:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if domain and not 0 <= entry.version < 2**31:
            raise InvalidModel(f"{where} imports version {entry.version} of the domain {domain!r}, which cannot be")
        opsets[domain] = max(entry.version, opsets.get(domain, 0))
    version = opsets.get("")
    if version is not None and not 1 <= version <= onnx.defs.onnx_opset_version():
        raise UnsupportedModel(
            f"{where} imports opset {version}; opsets {OLDEST_OPSET} to {onnx.defs.onnx_opset_version()} are supported"
        )
    return opsets


def _graph(found: _Findings, graph: onnx.GraphProto, opsets: Mapping[str, int], depth: int, where: str = "") -> None:
    """`where`: the function and bodies that the graph stands in, as the end of the name of a place."""
    if depth > found.limits.subgraph_depth:
        raise ResourceLimit(f"bodies of control flow nest deeper than {found.limits.subgraph_depth}")
    check = found.limits.check_string
    check("the name of a graph", graph.name)
    for value in (*graph.input, *graph.output, *graph.value_info):
        check("the name of a value", value.name)
        for dim in value.type.tensor_type.shape.dim:
            check(f"a dimension of the value {value.name!r}", dim.dim_param)
    for tensor in (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)):
        check("the name of a tensor", tensor.name)
        for entry in tensor.external_data:
            check(f"external data of the tensor {tensor.name!r}", entry.key)
            check(f"external data of the tensor {tensor.name!r}", entry.value)
        found.names.add(tensor.name)
    found.names.update(value.name for value in (*graph.input, *graph.output))
    found.reads.update(value.name for value in graph.output)
    _nodes(found, graph.node, opsets, depth, where)


def _nodes(
    found: _Findings, nodes: Iterable[onnx.NodeProto], opsets: Mapping[str, int], depth: int, where: str = ""
) -> None:
    for node in nodes:
        found.nodes += 1
        if found.nodes > found.limits.nodes:
            raise ResourceLimit(f"the model has more than {found.limits.nodes:,} nodes")
        for text in (node.name, node.op_type, node.domain, node.overload, *node.input, *node.output):
            found.limits.check_string("a name", text)
        found.names.add(node.name)
        found.names.update(node.output)
        found.reads.update(node.input)
        _operator(found, node, opsets, where)
        for attribute in node.attribute:
            found.limits.check_string("the name of an attribute", attribute.name)
            found.limits.check_string("the name of an attribute", attribute.ref_attr_name)
            if attribute.type == onnx.AttributeProto.GRAPH:
                inner = f" in {attribute.name} of node {node_label(node)!r}{where}"
                _graph(found, attribute.g, opsets, depth + 1, inner)
            elif attribute.graphs:
                raise InvalidModel(f"node {node_label(node)!r} has a list of graphs, which no operator takes")


def _operator(found: _Findings, node: onnx.NodeProto, opsets: Mapping[str, int], where: str) -> None:
    """Note the operator of one node; a function that is called for the first time is noted too."""
    key = function_key(node)
    function = found.functions.get(key)
    if function is not None:
        if key not in found.imports:
            inner = found.imports[key] = _imports(function.opset_import, f"function {function.name!r}")
            for domain, version in inner.items():
                found.opsets[domain] = max(version, found.opsets.get(domain, 0))
            found.called.append(function)
        return
    domain, op, _ = key
    if domain not in opsets:
        raise InvalidModel(
            f"node {node_label(node)!r} ({op}) is of the domain {domain or 'ai.onnx'!r}, whose opset version "
            "the model does not import"
        )
    version = opsets[domain]
    found.operators[f"{domain}.{op}" if domain else op] += 1
    check_node(node, version)
    row = domain_row(node, version)
    if row is not None:
        needed = row.opset_of({one.name: one.i for one in node.attribute})
        if needed > PINNED_OPSET:
            found.opsets[""] = max(needed, found.opsets.get("", 0))
            found.fits_pinned = False
        return
    schema = _schema(op, domain, version)
    if schema is None or (not domain and version < OLDEST_OPSET and _changed_before_oldest(op, version)):
        found.missing.setdefault((domain, op, version), []).append(f"node {node_label(node)!r}{where}")
    elif not domain and version > PINNED_OPSET and not _fits(node, version):
        found.fits_pinned = False


@cache
def _schema(op: str, domain: str, version: int) -> onnx.defs.OpSchema | None:
    """The operator's definition, None when it does not exist (or no longer, and we do not know a replacement)."""
    try:
        schema = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return None
    replaced = op in UPGRADES and not domain
    return None if schema.deprecated and not replaced else schema


def domain_row(node: onnx.NodeProto, version: int) -> DomainRow | None:
    """The row of an operator that ONNX does not have in opset `version` of its domain; None where there is none, too."""
    domain, op, _ = function_key(node)
    if _schema(op, domain, version) is not None:
        return None
    from fusewise.frontend.domains.table import row_of  # twenty files, which models of ONNX's operators do without

    return row_of(domain, op)


@dataclass(frozen=True)
class _Form:
    """What a node of one operator must look like."""

    attributes: Mapping[str, int]
    required: frozenset[str]
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    present: tuple[int, ...]


@cache
def _form(schema: onnx.defs.OpSchema) -> _Form:
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    return _Form(
        attributes={name: int(attribute.type.value) for name, attribute in schema.attributes.items()},  # type: ignore[attr-defined]  # missing in onnx's stubs
        required=frozenset(name for name, attribute in schema.attributes.items() if attribute.required),
        inputs=(schema.min_input, schema.max_input),
        outputs=(schema.min_output, schema.max_output),
        present=tuple(i for i, formal in enumerate(schema.inputs) if formal.option == single),
    )


@cache
def _form_of_row(row: DomainRow) -> _Form:
    return _Form(
        attributes={attribute.name: attribute.kind for attribute in row.attributes},
        required=frozenset(attribute.name for attribute in row.attributes if attribute.required),
        inputs=row.inputs_taken,
        outputs=row.outputs_given,
        present=tuple(i for i, name in enumerate(row.operands) if name[-1] not in "?*"),
    )


def check_node(node: onnx.NodeProto, version: int) -> None:
    """Refuse a node with operands, outputs or attributes that its operator does not take in opset `version`."""
    domain, op, _ = function_key(node)
    schema, row = _schema(op, domain, version), domain_row(node, version)
    if schema is None and row is None:
        return
    form = _form(schema) if row is None else _form_of_row(row)
    where = f"node {node_label(node)!r} ({node.op_type})"
    for what, names, (least, most) in (("inputs", node.input, form.inputs), ("outputs", node.output, form.outputs)):
        if not least <= len(names) <= most:
            raise InvalidModel(f"{where} has {len(names)} {what}; the operator takes {least} to {most}")
    for i in form.present:
        if i < len(node.input) and not node.input[i]:
            raise InvalidModel(f"{where} lacks its input {i}")
    twice = [name for name, count in Counter(attribute.name for attribute in node.attribute).items() if count > 1]
    if twice:
        raise InvalidModel(f"{where} has its attribute {twice[0]!r} more than once")
    for attribute in node.attribute:
        if form.attributes.get(attribute.name) != attribute.type:
            problem = "of the wrong type" if attribute.name in form.attributes else "that the operator does not take"
            raise InvalidModel(f"{where} has an attribute {attribute.name!r} {problem}")
    missing = form.required.difference(attribute.name for attribute in node.attribute)
    if missing:
        raise InvalidModel(f"{where} lacks the attribute {min(missing)!r}")


def _changed_before_oldest(op: str, version: int) -> bool:
    """Does an operator of a very old opset mean something we have no rewrite for?"""
    then, later = _schema(op, "", version), _schema(op, "", OLDEST_OPSET - 1 if op in SIX else OLDEST_OPSET)
    return then is None or later is None or then.since_version != later.since_version


@cache
def _is_known(domain: str) -> bool:
    return any(schema.domain == domain for schema in onnx.defs.get_all_schemas())


def _fits(node: onnx.NodeProto, version: int) -> bool:
    """Does a node of a newer opset mean the same in the pinned one, as far as attributes and operands tell?"""
    new, old = _schema(node.op_type, "", version), _schema(node.op_type, "", PINNED_OPSET)
    if old is None or new is None:
        return False
    if new.since_version == old.since_version:
        return True
    known = all(attribute.name in old.attributes for attribute in node.attribute)
    return known and len(node.input) <= old.max_input and len(node.output) <= old.max_output
