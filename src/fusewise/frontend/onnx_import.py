"""ONNX in: a file, bytes or a `ModelProto` becomes a `Graph` at the pinned opset, typed, with its weights left in the file.

One walk over the nodes in topological order does it: calls of model-local functions are replaced by their nodes
(`functions`), bodies of control flow are imported the same way (`bodies`), old operators are rewritten (`upgrade`), those of
other domains are written in ONNX's (`domains`), and types are inferred as nodes are added (`infer_types`).
"""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import google.protobuf.message
import numpy as np
import onnx

from fusewise.errors import InvalidModel, ResourceLimit, UnsupportedModel, UsageError
from fusewise.frontend.bind import bind
from fusewise.frontend.bodies import node_with_bodies, subgraph_of
from fusewise.frontend.coverage import Coverage, check_node, domain_row, survey
from fusewise.frontend.declared import without_shape
from fusewise.frontend.external import ExternalData
from fusewise.frontend.functions import FunctionKey, check_expansion, defaults, expanded, function_key, noted, unused
from fusewise.frontend.infer_control import body_inputs
from fusewise.frontend.infer_types import Inference
from fusewise.frontend.initializers import replaced
from fusewise.frontend.limits import DEFAULT_LIMITS, ModelLimits
from fusewise.frontend.onnx_export import ORIGIN_KEY, default_origin, graph_to_proto
from fusewise.frontend.order import node_label, sorted_nodes
from fusewise.frontend.stored import Stored, StoredBytes
from fusewise.frontend.upgrade import PINNED_OPSET
from fusewise.frontend.upgrade_six import upgraded
from fusewise.frontend.weights import Weights, tensors_of
from fusewise.frontend.wire import Blob, cut
from fusewise.ir.graph import Constant, Graph, Node, Subgraph
from fusewise.ir.types import OptionalType, SequenceType, TensorType, ValueType
from fusewise.ops.proto import attribute_from_proto, type_from_proto

__all__ = ["PINNED_OPSET", "bind", "external_names", "load", "may_name", "message"]


def load(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto,
    limits: ModelLimits = DEFAULT_LIMITS,
    initializers: Mapping[str, np.ndarray | None] | None = None,
) -> Graph:
    """The model as a graph.

    Weights of a file are read when they are first needed, those of bytes are read-only views, possibly unaligned. Of a path or
    bytes, `initializers` take the place of the model's own; those of None are inputs, if the model lists them as such. Raises
    `InvalidModel` for a broken model, `UnsupportedModel` naming every unknown operator, `ResourceLimit` past `limits`.
    """
    model, raw, folder, alone = _read(source, limits)
    if initializers:
        raw = replaced(model.graph, raw, initializers)
    if not model.HasField("graph"):
        raise InvalidModel(f"{_name(source)} is not an ONNX model: it holds no graph")
    coverage = survey(model, limits)
    weights = Weights(ExternalData(folder, limits), limits)
    for tensor in () if alone else tensors_of(model):  # also where nothing reads it, but other programs may
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            weights.external.stretch(tensor, tensor.name)
    if coverage.newest > PINNED_OPSET:
        try:
            if coverage.fits_pinned:
                return _Import(model, raw, weights, coverage, PINNED_OPSET, limits).graph()
        except InvalidModel:
            pass  # an operator has an element type that it learned later
        return _Import(model, raw, weights, coverage, coverage.newest, limits).graph()
    return _Import(model, raw, weights, coverage, PINNED_OPSET, limits).graph()


def message(source: str | os.PathLike[str] | bytes, limits: ModelLimits = DEFAULT_LIMITS) -> onnx.ModelProto:
    """What a model says of itself: its message without the data of big initializers. Raises what `load` raises when it cannot be
    read."""
    return _read(source, limits)[0]


def external_names(path: Path) -> frozenset[str]:
    """The files with external data that the model in `path` names.

    Raises what `load` raises when the file cannot be read.
    """
    rest, _ = cut(_opened(path), str(path))
    if _is_alone(rest):
        return frozenset()
    external = (
        tensor
        for tensor in tensors_of(onnx.ModelProto.FromString(rest))
        if tensor.data_location == onnx.TensorProto.EXTERNAL
    )
    return frozenset(entry.value for tensor in external for entry in tensor.external_data if entry.key == "location")


def _is_alone(rest: bytes) -> bool:
    return b"location" not in rest  # the key under which external data names its file


def _name(source: object) -> str:
    return str(source) if isinstance(source, str | os.PathLike) else "the model"


def _read(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto, limits: ModelLimits
) -> tuple[onnx.ModelProto, Mapping[int, memoryview | StoredBytes], Path | None, bool]:
    """The message, the data of big initializers by position, the folder external data may lie in, and whether there are none."""
    if isinstance(source, onnx.ModelProto):
        return source, {}, None, False
    if not isinstance(source, str | os.PathLike | bytes | bytearray | memoryview):
        raise UsageError(
            f"a model is a path, bytes or a ModelProto, not a value of the type {type(source).__name__}; a PyTorch module is "
            "compiled with example_inputs=(...)"
        )
    data: memoryview | Stored
    if isinstance(source, bytes | bytearray | memoryview):
        data, folder = memoryview(source), None
    else:
        path = Path(source)
        data, folder = _opened(path), path.parent
    rest, blobs = cut(data, _name(source))
    if len(rest) >= limits.proto_bytes:
        raise ResourceLimit(
            f"{_name(source)} holds a message of {len(rest):,} bytes; the limit is {limits.proto_bytes:,}"
        )
    model = onnx.ModelProto()
    try:
        model.ParseFromString(rest)
    except (google.protobuf.message.DecodeError, RecursionError) as error:
        raise InvalidModel(
            f"{_name(source)} is not an ONNX model: its contents do not follow ONNX's message format"
        ) from error
    return model, {i: _part(data, blob) for i, blob in blobs.items()}, folder, _is_alone(rest)


def may_name(path: Path, words: Iterable[str]) -> bool:
    """Does the message in a file hold one of these words, such as the name of a domain? `UsageError` where it cannot be read."""
    rest, _ = cut(_opened(path), str(path))
    return any(word.encode() in rest for word in words)


def _part(data: memoryview | Stored, blob: Blob) -> memoryview | StoredBytes:
    if isinstance(data, Stored):
        return StoredBytes(data, blob.offset, blob.length)
    return data[blob.offset : blob.offset + blob.length]


def _opened(path: Path) -> Stored:
    try:
        # Without O_NONBLOCK opening a pipe would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    found = Stored(descriptor, str(path))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise UsageError(f"cannot read {path}: it is not an ordinary file")
    if not len(found):
        raise InvalidModel(f"{path} is not an ONNX model: it is empty")
    return found


class _Scope:
    """A graph or body while it is imported."""

    def __init__(self, importer: _Import, walk: Inference, outer: _Scope | None = None) -> None:
        self.importer = importer
        self.opset = importer.opset
        self.walk = walk
        self.outer = outer
        self.bodies: int = 0 if outer is None else outer.bodies + 1  # how many bodies this one is nested in
        self.nodes: list[Node] = []
        self.constants: dict[str, Constant] = {}

    def type_of(self, name: str) -> ValueType | None:
        return self.walk.type_of(name) if name else None

    def value_of(self, name: str) -> np.ndarray | None:
        return self.walk.value_of(name) if name else None

    def known_constant(self, name: str) -> Constant | None:
        found = self.constants.get(name)
        return found if found is not None or self.outer is None else self.outer.known_constant(name)

    def infer(self, node: Node) -> None:
        self.walk.add(node)

    def declared(self, name: str) -> ValueType | None:
        return self.walk.declared.get(name)

    def add(self, node: Node) -> None:
        """A node; its types are inferred, unless they were while it was written."""
        if not self.walk.types.keys() >= set(node.writes):
            self.walk.add(node)
        self.nodes.append(node)

    def fresh(self, stem: str) -> str:
        return self.importer.fresh(stem)

    def is_read(self, name: str) -> bool:
        return name in self.importer.coverage.reads

    def constant(self, array: np.ndarray, stem: str) -> str:
        name = self.fresh(stem)
        self.keep(name, Constant(array))
        return name

    def keep(self, name: str, constant: Constant) -> None:
        """A constant under its own name. Those of bodies are written into a message, which ends at 2 GiB."""
        if self.bodies:
            self.importer.body_bytes += constant.type.nbytes
            if self.importer.body_bytes > self.importer.limits.body_bytes:
                raise ResourceLimit(
                    f"bodies of control flow hold {self.importer.body_bytes:,} bytes of constants, with {name!r}; the limit is "
                    f"{self.importer.limits.body_bytes:,}"
                )
        self.constants[name] = constant
        self.walk.add_constant(name, constant)


class _Import:
    """One import: what stays the same while the model is walked, and the names handed out."""

    def __init__(
        self,
        model: onnx.ModelProto,
        raw: Mapping[int, memoryview | StoredBytes],
        weights: Weights,
        coverage: Coverage,
        opset: int,
        limits: ModelLimits,
    ) -> None:
        self.model = model
        self.raw = raw
        self.weights = weights
        self.coverage = coverage
        self.opset = opset
        self.limits = limits
        self.functions: dict[FunctionKey, onnx.FunctionProto] = {function_key(f): f for f in model.functions}
        self.names = set(coverage.names)
        self.body_bytes = 0
        if self.functions:
            check_expansion(model.graph.node, self.functions, limits)

    def fresh(self, stem: str) -> str:
        """A name not used anywhere in the model."""
        name, count = stem, 0
        while name in self.names:
            count += 1
            name = f"{stem}_{count}"
        self.names.add(name)
        return name

    def graph(self) -> Graph:
        """The whole model."""
        proto = self.model.graph
        walk = Inference(self.opset, self.coverage.other_opsets, _declared(proto), limits=self.limits)
        scope = _Scope(self, walk)
        for i, tensor in enumerate(proto.initializer):
            self._unique(scope, tensor.name)
            scope.keep(tensor.name, self.weights.constant(tensor, self.raw.get(i)))
        self._sparse(scope, proto)
        inputs = [value for value in proto.input if value.name not in scope.constants]
        for value in inputs:
            self._unique(scope, value.name)
            walk.types[value.name] = self._input_type(value)
        self._nodes(scope, proto.node, self.coverage.opsets, 0, f"graph {proto.name!r}")
        outputs = tuple(value.name for value in proto.output)
        for name in outputs:
            if name not in walk.types:
                raise InvalidModel(f"the model's output {name!r} is not defined anywhere")
        if walk.contradicted:
            first, *rest = walk.contradicted
            more = f" (and so for {len(rest)} more)" if rest else ""
            warnings.warn(f"what the model declares does not hold: {first}{more}", RuntimeWarning, stacklevel=3)
        return Graph(
            inputs=tuple(value.name for value in inputs),
            outputs=outputs,
            nodes=tuple(scope.nodes),
            types=walk.types,
            constants=scope.constants,
            name=proto.name or "graph",
            opset=self.opset,
            opsets=self.coverage.other_opsets,
            metadata=noted(
                ((entry.key, entry.value) for entry in self.model.metadata_props),
                unused(proto.node, self.functions),
                defaults(self.model),
            ),
        ).pruned()

    def _unique(self, scope: _Scope, name: str) -> None:
        if not name or name in scope.walk.types:
            raise InvalidModel(
                f"the value {name!r} is defined twice" if name else "an input or initializer has no name"
            )

    def _sparse(self, scope: _Scope, proto: onnx.GraphProto) -> None:
        for sparse in proto.sparse_initializer:
            self._unique(scope, sparse.values.name)
            scope.keep(sparse.values.name, self.weights.dense(sparse))

    def _input_type(self, value: onnx.ValueInfoProto) -> ValueType:
        kind = _type(value)
        if kind is None:
            held = value.type.WhichOneof("value")
            if held in (None, "tensor_type"):
                raise InvalidModel(f"the model's input {value.name!r} has no type")
            raise UnsupportedModel(f"the model's input {value.name!r} is of the kind {held}, which is not supported")
        if isinstance(kind, TensorType) and kind.shape is not None:
            known = tuple(dim for dim in kind.shape if isinstance(dim, int))
            self.limits.check_shape(f"the model's input {value.name!r}", known, kind.dtype.itemsize)
        return kind

    def _nodes(
        self, scope: _Scope, nodes: list[onnx.NodeProto], opsets: Mapping[str, int], calls: int, where: str
    ) -> None:
        """Import nodes in topological order; calls of functions are imported in their place."""
        for proto in sorted_nodes(nodes, scope.walk.types, where, scope.walk.outer):
            if len(scope.nodes) > self.limits.nodes:
                raise ResourceLimit(
                    f"the model has more than {self.limits.nodes:,} nodes after old operators are replaced"
                )
            function = self.functions.get(function_key(proto))
            row = None if function is not None else domain_row(proto, opsets[_domain(proto.domain)])
            if row is not None and row.expand is not None:
                inner = row.expanded(proto, opsets.get("", 0), self.fresh)
                self._nodes(scope, inner, opsets, calls + 1, f"node {node_label(proto)!r}")
                continue
            if function is None:
                self._node(scope, proto, opsets, calls)
                continue
            if calls >= self.limits.function_depth:
                raise ResourceLimit(
                    f"function {function.name!r} nests deeper than {self.limits.function_depth} calls, or calls itself"
                )
            inner = expanded(function, proto, self.fresh)
            versions = {_domain(entry.domain): entry.version for entry in function.opset_import}
            self._nodes(scope, inner, versions, calls + 1, f"function {function.name!r}")

    def _node(self, scope: _Scope, proto: onnx.NodeProto, opsets: Mapping[str, int], calls: int) -> None:
        for attribute in proto.attribute:
            if attribute.ref_attr_name:
                raise InvalidModel(
                    f"node {node_label(proto)!r} ({proto.op_type}): its attribute {attribute.name!r} is a function's, but "
                    "the node stands in none"
                )
        if calls:  # the call may have filled in attributes of any type
            check_node(proto, opsets[_domain(proto.domain)])
        if proto.op_type == "Constant" and _domain(proto.domain) == "":
            scope.keep(proto.output[0], self._constant(proto))
            return
        version = min(opsets[_domain(proto.domain)], self.opset if not _domain(proto.domain) else 2**31)
        bodies = {
            a.name: self._body(scope, proto, a.g, opsets, calls)
            for a in proto.attribute
            if a.type == onnx.AttributeProto.GRAPH
        }
        node = node_with_bodies(proto, bodies, _origin(proto), partial(self.weights.constant, where=node_label(proto)))
        row = domain_row(proto, version)
        for replacement in upgraded(node, version, scope) if row is None else row.written(node, scope):
            scope.add(replacement)

    def _constant(self, proto: onnx.NodeProto) -> Constant:
        label = node_label(proto)
        if len(proto.attribute) != 1:
            raise InvalidModel(f"node {label!r} (Constant) needs exactly one value")
        attribute = proto.attribute[0]
        if attribute.type == onnx.AttributeProto.TENSOR:
            return self.weights.constant(attribute.t, where=label)
        if attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
            return self.weights.dense(attribute.sparse_tensor, label)
        value = attribute_from_proto(attribute)
        kinds = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
        if attribute.name in ("value_string", "value_strings"):
            return Constant(np.array(value, dtype=object))
        if attribute.name not in kinds:
            raise InvalidModel(f"node {label!r} (Constant) has the unknown attribute {attribute.name!r}")
        return Constant(np.array(value, dtype=kinds[attribute.name]))

    def _body(
        self, outer: _Scope, node: onnx.NodeProto, proto: onnx.GraphProto, opsets: Mapping[str, int], calls: int
    ) -> Subgraph:
        """A body of control flow, imported like a model and written out again, so that it is at the same opset."""
        declared = {name: without_shape(kind) for name, kind in _declared(proto).items()}
        walk = Inference(self.opset, self.coverage.other_opsets, declared, outer.walk, self.limits)
        if outer.bodies >= self.limits.subgraph_depth:
            raise ResourceLimit(f"bodies of control flow nest deeper than {self.limits.subgraph_depth}")
        scope = _Scope(self, walk, outer)
        for tensor in proto.initializer:
            self._unique(scope, tensor.name)
            scope.keep(tensor.name, self.weights.constant(tensor))
        self._sparse(scope, proto)
        plain = node_with_bodies(_without_graphs(node), {}, ())
        if node.op_type == "Scan" and opsets.get("", 9) < 9:
            given: tuple[ValueType | None, ...] = ()
        else:
            given = body_inputs(plain, len(proto.input), outer.type_of)
        for i, value in enumerate(proto.input):
            self._unique(scope, value.name)
            best = _any_size(given[i]) if i < len(given) else None
            walk.types[value.name] = best or self._input_type(value)
        where = f"a body of node {node_label(node)!r}"
        self._nodes(scope, proto.node, opsets, calls, where)
        for value in proto.output:
            if walk.type_of(value.name) is None:
                raise InvalidModel(f"{where}: its output {value.name!r} is not defined anywhere")
        return _written_body(proto, scope, node.op_type == "Loop")


def _written_body(proto: onnx.GraphProto, scope: _Scope, loop: bool) -> Subgraph:
    """An imported body as ONNX again. Its ends have the types the model states, or at least their element types.

    The counter and the condition of a Loop are scalars even where the model does not say so.
    """
    ends = (*proto.input, *proto.output)
    types = {v.name: without_shape(scope.walk.types[v.name]) for v in ends if v.name in scope.walk.types}
    types |= {value.name: kind for value in ends if (kind := _type(value)) is not None}
    if loop:
        types |= {value.name: scope.walk.types[value.name] for value in proto.input[:2]}
    graph = Graph(
        inputs=tuple(value.name for value in proto.input),
        outputs=tuple(value.name for value in proto.output),
        nodes=tuple(scope.nodes),
        types=types,
        constants=scope.constants,
        name=proto.name or "body",
    )
    return subgraph_of(graph_to_proto(graph, inner_types=False))


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _type(value: onnx.ValueInfoProto) -> ValueType | None:
    """The declared type of a value; negative dimensions count as unknown."""
    try:
        kind = type_from_proto(value.type)
    except KeyError as error:
        raise InvalidModel(f"the value {value.name!r} has the unknown element type {error}") from None
    return _sized(kind)


def _sized(kind: ValueType | None) -> ValueType | None:
    if isinstance(kind, SequenceType | OptionalType):
        element = _sized(kind.element)
        return element and replace(kind, element=element)
    if isinstance(kind, TensorType) and kind.shape is not None:
        dims = tuple(None if isinstance(dim, int) and dim < 0 else dim for dim in kind.shape)
        return TensorType(kind.dtype, dims)
    return kind


def _declared(proto: onnx.GraphProto) -> dict[str, ValueType]:
    """What the model itself says of the types of its values."""
    found = {value.name: _type(value) for value in (*proto.value_info, *proto.output)}
    return {name: kind for name, kind in found.items() if kind is not None}


def _any_size(kind: ValueType | None) -> ValueType | None:
    """A type whose dimensions may differ on the next run of the body."""
    if isinstance(kind, TensorType) and kind.shape is not None:
        return TensorType(kind.dtype, (None,) * len(kind.shape))
    return kind


def _without_graphs(node: onnx.NodeProto) -> onnx.NodeProto:
    plain = onnx.NodeProto(op_type=node.op_type, domain=node.domain, input=node.input, output=node.output)
    plain.attribute.extend(a for a in node.attribute if a.type != onnx.AttributeProto.GRAPH)
    return plain


def _origin(proto: onnx.NodeProto) -> tuple[str, ...]:
    """The user's nodes this one comes from, when an earlier export of ours says so; otherwise the node itself."""
    import json

    for entry in proto.metadata_props:
        if entry.key == ORIGIN_KEY:
            try:
                names = json.loads(entry.value)
            except (ValueError, RecursionError):
                break
            if isinstance(names, list) and all(isinstance(name, str) for name in names):
                return tuple(names)
    return default_origin(proto)
