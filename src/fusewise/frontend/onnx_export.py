"""A graph as an ONNX model: `to_model` in memory, `save` to a file.

Node names are kept, and the names of the user's nodes that a node comes from are written beside it as
`metadata_props["fusewise.origin"]`, a JSON list. Files appear whole or not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import numpy as np
import onnx

from fusewise.errors import ResourceLimit, UsageError
from fusewise.files import written_whole
from fusewise.frontend.bodies import bodies_of, defined_names, rename_body
from fusewise.frontend.functions import without_notes
from fusewise.frontend.lowest_opset import at_lowest_opset
from fusewise.frontend.order import node_label
from fusewise.frontend.written_sizes import with_written_sizes
from fusewise.ir.dtypes import STRING
from fusewise.ir.graph import Constant, Graph, Node
from fusewise.ir.types import ValueType
from fusewise.ops.proto import node_to_proto, tensor_to_proto, type_to_proto

__all__ = ["ORIGIN_KEY", "as_file", "default_origin", "graph_to_proto", "save", "to_model"]

ORIGIN_KEY = "fusewise.origin"
_IR_VERSION = 10  # the first with metadata on nodes; every runtime in use reads it
_IR_VERSION_BY_OPSET = ((25, 13), (24, 12), (23, 11))  # newer opsets need newer files
_EXTERNAL_ABOVE = 3 * 2**29  # bytes of weights; a protobuf message ends at 2 GiB
_EXTERNAL_TENSOR = 1024  # bytes; smaller tensors stay in the message, where shape inference can read them
_ALIGNMENT = 64


def to_model(graph: Graph) -> onnx.ModelProto:
    """The whole graph, weights included, as one message; `ResourceLimit` when it would pass protobuf's 2 GiB."""
    graph = with_written_sizes(graph)
    total = sum(constant.type.nbytes for constant in graph.constants.values())
    if total >= 2**31 - 2**20:
        raise ResourceLimit(f"the weights take {total:,} bytes, too many for one ONNX message; save to a file instead")
    return _model(graph, graph_to_proto(graph))


def save(
    graph: Graph,
    path: str | os.PathLike[str],
    external_data: str | None = None,
    finished: Callable[[onnx.ModelProto], onnx.ModelProto] = lambda model: model,
) -> None:
    """Write the graph to `path`; `finished` may change the message before it is written.

    Weights go to a second file named `external_data` in the same folder; without that name only when they take more than
    1.5 GiB, to `path` with `.data` appended. Raises `ResourceLimit` when the disk is full, and leaves nothing behind.
    """
    target = Path(path)
    graph = with_written_sizes(graph)
    total = sum(constant.type.nbytes for constant in graph.constants.values())
    if external_data is None and total > _EXTERNAL_ABOVE:
        external_data = target.name + ".data"
    if external_data is not None and (Path(external_data).name != external_data or external_data in ("", target.name)):
        raise UsageError(f"external data name {external_data!r} must be a plain file name other than {target.name!r}")
    if external_data is None:
        with written_whole(target) as (temporary,):
            temporary.write_bytes(finished(to_model(graph)).SerializeToString(deterministic=True))
        return
    with written_whole(target.with_name(external_data), target) as (beside, temporary):
        places = _write_weights(graph, beside)
        proto = graph_to_proto(graph, {name: (external_data, *place) for name, place in places.items()})
        temporary.write_bytes(finished(_model(graph, proto)).SerializeToString(deterministic=True))


def as_file(source: object, graph: Graph, folder: Path) -> Path:
    """A model as an ONNX file: the user's own where `source` names one, else written into `folder`, at the lowest opset."""
    if isinstance(source, str | Path):
        return Path(source)
    path = folder / "model.onnx"
    if isinstance(source, bytes):
        path.write_bytes(source)
    elif isinstance(source, onnx.ModelProto):
        path.write_bytes(source.SerializeToString())
    else:
        save(at_lowest_opset(graph), path)
    return path


def _model(graph: Graph, proto: onnx.GraphProto) -> onnx.ModelProto:
    version = next((ir for opset, ir in _IR_VERSION_BY_OPSET if graph.opset >= opset), _IR_VERSION)
    model = onnx.ModelProto(ir_version=version, producer_name="fusewise", graph=proto)
    for domain, opset in (("", graph.opset), *graph.opsets):
        model.opset_import.append(onnx.helper.make_opsetid(domain, opset))
    for key, value in without_notes(graph.metadata):
        model.metadata_props.add(key=key, value=value)
    return model


def graph_to_proto(
    graph: Graph, external: Mapping[str, tuple[str, int, int]] | None = None, *, inner_types: bool = True
) -> onnx.GraphProto:
    """The graph as a `GraphProto`.

    `external` says of constants that lie in a file: its name, the offset and the length in bytes. `inner_types` writes the
    types of intermediate values too.
    """
    proto = onnx.GraphProto(name=graph.name)
    proto.input.extend(_value_info(name, graph.types[name]) for name in graph.inputs)
    proto.output.extend(_value_info(name, graph.types.get(name)) for name in graph.outputs)
    places = external or {}
    for name, constant in graph.constants.items():
        if name in places:
            proto.initializer.append(_external_tensor(name, constant, *places[name]))
        else:
            proto.initializer.append(tensor_to_proto(constant.array, name))
    taken = set(graph.types) | set(graph.constants)
    for node in graph.nodes:
        proto.node.append(_node(node, taken))
    if inner_types:
        ends = {*graph.inputs, *graph.outputs, *graph.constants}
        proto.value_info.extend(_value_info(name, kind) for name, kind in graph.types.items() if name not in ends)
    return proto


def _value_info(name: str, kind: ValueType | None) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=name, type=None if kind is None else type_to_proto(kind))


def _node(node: Node, taken: Collection[str]) -> onnx.NodeProto:
    proto = node_to_proto(node)
    for attribute, (_, body, captured) in zip(
        (a for a in proto.attribute if a.type == onnx.AttributeProto.GRAPH), bodies_of(node), strict=True
    ):
        names = {inside: outside for inside, outside in zip(body.captures, captured, strict=True) if inside != outside}
        clashes = (defined_names(attribute.g) & set(taken)) - set(body.captures)
        fresh = _fresh_names(clashes, set(taken) | defined_names(attribute.g))
        if names or fresh:
            rename_body(attribute.g, names | fresh)
    if node.origin != default_origin(proto):
        proto.metadata_props.add(key=ORIGIN_KEY, value=json.dumps(node.origin))
    return proto


def default_origin(node: onnx.NodeProto) -> tuple[str, ...]:
    """The origin of a node that does not say where it comes from: itself."""
    return (node_label(node),)


def _fresh_names(names: Collection[str], taken: set[str]) -> dict[str, str]:
    fresh: dict[str, str] = {}
    for name in sorted(names):
        count = 1
        while f"{name}_{count}" in taken:
            count += 1
        fresh[name] = f"{name}_{count}"
        taken.add(fresh[name])
    return fresh


def _external_tensor(name: str, constant: Constant, location: str, offset: int, length: int) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=name, data_type=constant.dtype.onnx, dims=constant.array.shape)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    return tensor


def _write_weights(graph: Graph, path: Path) -> dict[str, tuple[int, int]]:
    """Write the larger constants one after the other, aligned; where each lies, as offset and length in bytes."""
    places: dict[str, tuple[int, int]] = {}
    with path.open("wb") as file:
        for name, constant in graph.constants.items():
            if constant.dtype == STRING or constant.type.nbytes < _EXTERNAL_TENSOR:
                continue
            offset = -(-file.tell() // _ALIGNMENT) * _ALIGNMENT
            file.write(b"\0" * (offset - file.tell()))
            data = _raw_bytes(constant)
            file.write(data)
            places[name] = offset, len(data)
    return places


def _raw_bytes(constant: Constant) -> memoryview | bytes:
    """The bytes ONNX stores for a tensor: little-endian, narrow types packed."""
    if constant.dtype.bits < 8:
        return tensor_to_proto(constant.array).raw_data
    flat = np.ascontiguousarray(constant.array).reshape(-1)
    return flat.view(np.uint8).data
