"""What a session says of its model: inputs and outputs as ONNX Runtime describes them, and who made it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fusewise.runtime.feeds import PortInfo, type_name

if TYPE_CHECKING:
    import onnx

__all__ = ["ModelMetadata", "NodeArg", "described", "metadata", "node_arg", "overridable", "sizes_denoted"]


@dataclass(frozen=True)
class NodeArg:
    """An input or output. `shape` has a number for each dimension, the name of one that is free, or None for one without a name;
    it is empty for what is no tensor. `type` is `tensor(float)` and the like."""

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True)
class ModelMetadata:
    """Who made the model, and what they say of it."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


def metadata(model: onnx.ModelProto) -> ModelMetadata:
    """What a message says."""
    return ModelMetadata(
        model.producer_name,
        model.graph.name,
        model.domain,
        model.doc_string,
        model.graph.doc_string,
        model.model_version,
        {entry.key: entry.value for entry in model.metadata_props},
    )


def described(
    ports: Iterable[PortInfo], declared: Iterable[onnx.ValueInfoProto], model: onnx.ModelProto
) -> list[NodeArg]:
    """Ports of the compiled model with the names of dimensions that the message declares."""
    known = {one.name: _dimensions(one) for one in declared}
    names = {dim for each in model.graph.input for dim in _dimensions(each) or () if isinstance(dim, str)}
    return [NodeArg(port.name, port.type, _shape(port, known.get(port.name), names)) for port in ports]


def _shape(port: PortInfo, declared: Sequence[int | str | None] | None, names: set[str]) -> list[int | str | None]:
    """Numbers are those that were compiled for. A name is the declared one, or else the name of an input's dimension."""
    if not port.type.startswith("tensor"):
        return []
    if not port.shape and declared is not None:
        return list(declared)
    fits = declared if declared is not None and len(declared) == len(port.shape) else [None] * len(port.shape)
    return [
        dim if isinstance(dim, int) else (said if isinstance(said, str) else dim if dim in names else None)
        for dim, said in zip(port.shape, fits, strict=True)
    ]


def _dimensions(value: onnx.ValueInfoProto) -> list[int | str | None] | None:
    """The declared dimensions of a tensor; None where no shape is declared."""
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
        return None
    return [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim]


def node_arg(value: onnx.ValueInfoProto) -> NodeArg:
    """A tensor as the message declares it."""
    from fusewise.ops.proto import type_from_proto

    kind = type_from_proto(value.type)
    return NodeArg(value.name, "" if kind is None else type_name(kind), _dimensions(value) or [])


def overridable(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Inputs that have an initializer, which a caller may give another value."""
    constants = {one.name for one in model.graph.initializer}
    return {one.name: one for one in model.graph.input if one.name in constants}


def sizes_denoted(model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes of the named dimensions of inputs, given those by what dimensions denote."""
    dims = [dim for each in model.graph.input for dim in each.type.tensor_type.shape.dim]
    return {dim.dim_param: sizes[dim.denotation] for dim in dims if dim.dim_param and dim.denotation in sizes}
