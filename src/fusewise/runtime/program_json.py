"""A lowered program as JSON and back: ports, buffers, steps, and the nodes of host steps.

Machine code and constants lie elsewhere; steps name kernels by number. A program without host steps is read without ONNX, whose
import would take longer than all else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fusewise.ir.dtypes import dtype_named
from fusewise.ir.types import MapType, OptionalType, SequenceType, TensorType, ValueType
from fusewise.lower.program import Account, Buffer, DataPosition, Extent, HostStep, NativeStep, Place, Port, Program

__all__ = ["program_from_json", "program_to_json", "type_from_json", "type_to_json"]

Json = dict[str, Any]


def program_to_json(program: Program) -> Json:
    """Everything but kernels and the data of constants."""
    return {
        "inputs": [_port(port) for port in program.inputs],
        "outputs": [_port(port) for port in program.outputs],
        "buffers": [[buffer.kind, buffer.nbytes, buffer.offset, buffer.value] for buffer in program.buffers],
        "steps": [_native(step) if isinstance(step, NativeStep) else _host(step) for step in program.steps],
        "arena_bytes": program.arena_bytes,
        "groups": program.groups,
        "opsets": [list(pair) for pair in program.opsets],
        "objects": _objects(program),
        "workers": program.workers,
        "is_checked": program.is_checked,
        "exact": program.exact,
        "disabled": list(program.disabled),
        "accounts": [[a.operators, list(a.nodes), a.flops, a.nbytes] for a in program.accounts],
    }


def program_from_json(found: Json) -> Program:
    """The program without kernels. `KeyError`, `TypeError` or `ValueError` when `found` is not one."""
    return Program(
        inputs=tuple(_port_from(port) for port in found["inputs"]),
        outputs=tuple(_port_from(port) for port in found["outputs"]),
        buffers=tuple(Buffer(kind, nbytes, offset, value) for kind, nbytes, offset, value in found["buffers"]),
        kernels=(),
        steps=tuple(_native_from(step) if "kernel" in step else _host_from(step) for step in found["steps"]),
        arena_bytes=found["arena_bytes"],
        groups=found["groups"],
        opsets=tuple((domain, version) for domain, version in found["opsets"]),
        objects=_objects_from(found["objects"]),
        workers=found["workers"],
        is_checked=found["is_checked"],
        exact=found["exact"],
        disabled=tuple(found["disabled"]),
        accounts=tuple(Account(what, tuple(nodes), flops, nbytes) for what, nodes, flops, nbytes in found["accounts"]),
    )


def _objects(program: Program) -> Json:
    if not program.objects:
        return {}
    from fusewise.runtime.node_json import array_to_json

    return {name: array_to_json(array) for name, array in program.objects}


def _objects_from(found: Json) -> tuple[tuple[str, np.ndarray], ...]:
    if not found:
        return ()
    from fusewise.runtime.node_json import array_from_json

    return tuple((name, array_from_json(array)) for name, array in found.items())


def type_to_json(kind: ValueType) -> Json:
    if isinstance(kind, SequenceType):
        return {"sequence": type_to_json(kind.element)}
    if isinstance(kind, OptionalType):
        return {"optional": type_to_json(kind.element)}
    if isinstance(kind, MapType):
        return {"key": kind.key.name, "map": type_to_json(kind.element)}
    return {"dtype": kind.dtype.name, "shape": None if kind.shape is None else list(kind.shape)}


def type_from_json(found: Json) -> ValueType:
    if "sequence" in found:
        return SequenceType(type_from_json(found["sequence"]))
    if "optional" in found:
        return OptionalType(type_from_json(found["optional"]))
    if "map" in found:
        return MapType(dtype_named(found["key"]), type_from_json(found["map"]))
    shape = found["shape"]
    return TensorType(dtype_named(found["dtype"]), None if shape is None else tuple(shape))


def _port(port: Port) -> Json:
    return {"name": port.name, "type": type_to_json(port.type), "buffer": port.buffer}


def _port_from(found: Json) -> Port:
    return Port(found["name"], type_from_json(found["type"]), found["buffer"])


def _native(step: NativeStep) -> Json:
    places = [[place.buffer, place.offset] for place in step.arguments]
    return {
        "kernel": step.kernel,
        "arguments": places,
        "label": step.label,
        "group": step.group,
        "barrier": step.barrier,
        "way": step.way,
        "strips": step.strips,
        "pieces": step.pieces,
        "sites": [[s.node, s.op, s.operand, s.low, s.high, s.wraps] for s in step.sites],
        "extents": [[e.argument, e.value, e.low, e.high, e.writes] for e in step.extents],
    }


def _native_from(found: Json) -> NativeStep:
    places = tuple(Place(buffer, offset) for buffer, offset in found["arguments"])
    named = {name: found[name] for name in ("label", "group", "barrier", "way", "strips", "pieces")}
    sites, extents = (DataPosition(*site) for site in found["sites"]), (Extent(*extent) for extent in found["extents"])
    return NativeStep(found["kernel"], places, sites=tuple(sites), extents=tuple(extents), **named)


Operand = tuple[str, Place | None, ValueType | None]


def _host(step: HostStep) -> Json:
    from fusewise.runtime.node_json import node_to_json

    return {
        "nodes": [node_to_json(node) for node in step.nodes],
        "opset": step.opset,
        "reads": [_operand(read) for read in step.reads],
        "writes": [_operand(write) for write in step.writes],
        "reasons": list(step.reasons),
        "group": step.group,
    }


def _host_from(found: Json) -> HostStep:
    from fusewise.runtime.node_json import node_from_json

    nodes = tuple(node_from_json(node) for node in found["nodes"])
    reads = tuple(_operand_from(read) for read in found["reads"])
    writes = tuple(_operand_from(write) for write in found["writes"])
    return HostStep(nodes, found["opset"], reads, writes, tuple(found["reasons"]), found["group"])


def _operand(operand: Operand) -> list[Any]:
    name, place, kind = operand
    return [
        name,
        None if place is None else [place.buffer, place.offset, place.strides],
        None if kind is None else type_to_json(kind),
    ]


def _operand_from(found: list[Any]) -> Operand:
    name, place, kind = found
    return name, None if place is None else _place_from(*place), None if kind is None else type_from_json(kind)


def _place_from(buffer: int, offset: int, strides: list[int] | None = None) -> Place:
    return Place(buffer, offset, None if strides is None else tuple(strides))
