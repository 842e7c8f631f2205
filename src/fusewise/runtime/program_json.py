"""A lowered program as JSON and back: ports, buffers, steps, and the nodes of host steps.

Machine code and constants lie elsewhere; steps name kernels by number. Where a program with symbols has sizes, these are written as
`ir.size_json` has them. A program without host steps is read without ONNX, whose import would take longer than all else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from fusewise.ir.deciding import Condition
from fusewise.ir.dtypes import dtype_named
from fusewise.ir.graph import Check, Growing, SizesConstant
from fusewise.ir.size import Symbol
from fusewise.ir.size_json import from_json, to_json
from fusewise.ir.types import Dim, MapType, OptionalType, SequenceType, TensorType, ValueType
from fusewise.lower.program import (
    Account,
    Buffer,
    DataPosition,
    Extent,
    HostStep,
    HostValue,
    NativeStep,
    Place,
    Port,
    Program,
    StepVersions,
)
from fusewise.records import record

__all__ = [
    "ProgramReader",
    "host_to_json",
    "objects_to_json",
    "port_to_json",
    "program_from_json",
    "program_to_json",
    "sites_to_json",
    "type_from_json",
    "type_to_json",
]

Json = dict[str, Any]


def program_to_json(program: Program) -> Json:
    """Everything but kernels and the data of constants."""
    return {
        "inputs": [port_to_json(port) for port in program.inputs],
        "outputs": [port_to_json(port) for port in program.outputs],
        "buffers": [_buffer(buffer) for buffer in program.buffers],
        "steps": [_step(step) for step in program.steps],
        "arena_bytes": program.arena_bytes,
        "groups": program.groups,
        "opsets": [list(pair) for pair in program.opsets],
        "objects": objects_to_json(program.objects),
        "workers": program.workers,
        "is_checked": program.is_checked,
        "exact": program.exact,
        "disabled": list(program.disabled),
        "accounts": [[a.operators, list(a.nodes), to_json(a.flops), to_json(a.nbytes)] for a in program.accounts],
        "symbols": [[s.name, s.low, s.high, s.hint] for s in program.symbols],
        "checks": [[*_condition(check.condition), check.sentence] for check in program.checks],
        **_growth(program.growth),
    }


def program_from_json(found: Json) -> Program:
    """The program without kernels. `KeyError`, `TypeError` or `ValueError` when `found` is not one."""
    symbols = tuple(_symbol_from(*symbol) for symbol in found["symbols"])
    read = ProgramReader({symbol.name: symbol for symbol in symbols})
    return Program(
        inputs=tuple(read.port(port) for port in found["inputs"]),
        outputs=tuple(read.port(port) for port in found["outputs"]),
        buffers=tuple(read.buffer(*buffer) for buffer in found["buffers"]),
        kernels=(),
        steps=tuple(read.step(step) for step in found["steps"]),
        arena_bytes=found["arena_bytes"],
        groups=found["groups"],
        opsets=tuple((domain, version) for domain, version in found["opsets"]),
        objects=tuple((name, read.object(one)) for name, one in found["objects"].items()),
        workers=found["workers"],
        is_checked=found["is_checked"],
        exact=found["exact"],
        disabled=tuple(found["disabled"]),
        accounts=tuple(
            Account(what, tuple(nodes), read.size(flops), read.size(nbytes))
            for what, nodes, flops, nbytes in found["accounts"]
        ),
        symbols=symbols,
        checks=tuple(Check(read.condition(relation, size), sentence) for relation, size, sentence in found["checks"]),
        growth=read.growth(found.get("growth")),
    )


def _growth(growth: Growing | None) -> Json:
    if growth is None:
        return {}
    pairs = [list(pair) for pair in growth.pairs]
    return {"growth": [pairs, growth.counts, to_json(growth.after)]}


def objects_to_json(objects: Sequence[tuple[str, np.ndarray | SizesConstant]]) -> Json:
    """Constants that only host steps read, by name."""
    if not objects:
        return {}
    from fusewise.runtime.node_json import array_to_json

    return {name: array_to_json(one) if isinstance(one, np.ndarray) else _sizes_constant(one) for name, one in objects}


def _sizes_constant(constant: SizesConstant) -> Json:
    shape = list(constant.array.shape)
    return {"dtype": constant.dtype.name, "shape": shape, "sizes": [to_json(one) for one in constant.array.flat]}


def type_to_json(kind: ValueType) -> Json:
    if isinstance(kind, SequenceType):
        return {"sequence": type_to_json(kind.element)}
    if isinstance(kind, OptionalType):
        return {"optional": type_to_json(kind.element)}
    if isinstance(kind, MapType):
        return {"key": kind.key.name, "map": type_to_json(kind.element)}
    return {"dtype": kind.dtype.name, "shape": None if kind.shape is None else [_dim(dim) for dim in kind.shape]}


def type_from_json(found: Json, symbols: Mapping[str, Symbol] = MappingProxyType({})) -> ValueType:
    if "sequence" in found:
        return SequenceType(type_from_json(found["sequence"], symbols))
    if "optional" in found:
        return OptionalType(type_from_json(found["optional"], symbols))
    if "map" in found:
        return MapType(dtype_named(found["key"]), type_from_json(found["map"], symbols))
    shape = found["shape"]
    return TensorType(dtype_named(found["dtype"]), None if shape is None else tuple(_size(d, symbols) for d in shape))


def _dim(dim: Dim) -> Any:
    return dim if dim is None or isinstance(dim, str) else to_json(dim)


def _size(found: Any, symbols: Mapping[str, Symbol]) -> Any:
    """A size; anything but a list is left as it is, to be checked."""
    return from_json(found, symbols) if type(found) is list else found


def _condition(condition: Condition) -> list[Any]:
    return [condition.relation, to_json(condition.size)]


def _symbol_from(name: str, low: int, high: int, hint: int) -> Symbol:
    if type(name) is not str or not name or not all(type(number) is int for number in (low, high, hint)):
        raise ValueError(f"a dimension {name!r} from {low!r} to {high!r} cannot be")
    return Symbol(name, low, high, hint)


def port_to_json(port: Port) -> Json:
    """An input or output."""
    plain = {"name": port.name, "type": type_to_json(port.type), "buffer": port.buffer}
    return {**plain, "contents": [*map(to_json, port.contents)]} if port.contents else plain


def _buffer(buffer: Buffer) -> list[Any]:
    plain = [buffer.kind, to_json(buffer.nbytes), buffer.offset, buffer.value]
    return (
        plain if buffer.place < 0 and not buffer.contents else [*plain, [*map(to_json, buffer.contents)], buffer.place]
    )


def _step(step: NativeStep | StepVersions | HostStep) -> Json:
    if isinstance(step, HostStep):
        return host_to_json(step)
    if isinstance(step, NativeStep):
        return _native(step)
    versions = [[[_condition(each) for each in conditions], _native(one)] for conditions, one in step.versions]
    return {"extent": to_json(step.extent), "versions": versions}


def _native(step: NativeStep) -> Json:
    return {
        "kernel": step.kernel,
        "arguments": [[place.buffer, to_json(place.offset)] for place in step.arguments],
        "label": step.label,
        "group": step.group,
        "barrier": step.barrier,
        "way": step.way,
        "strips": step.strips,
        "pieces": step.pieces,
        "sites": sites_to_json(step.sites),
        "extents": [[e.argument, e.value, to_json(e.low), to_json(e.high), e.writes] for e in step.extents],
        "sizes": [to_json(size) for size in step.sizes],
    }


def sites_to_json(sites: Sequence[DataPosition]) -> list[Any]:
    """Where a step reads positions from data."""
    return [[s.node, s.op, s.operand, to_json(s.low), to_json(s.high), s.wraps] for s in sites]


def host_to_json(step: HostStep) -> Json:
    """A host step with its nodes."""
    from fusewise.runtime.node_json import node_to_json

    return {
        "nodes": [node_to_json(node) for node in step.nodes],
        "opset": step.opset,
        "reads": [_operand(read) for read in step.reads],
        "writes": [_operand(write) for write in step.writes],
        "reasons": list(step.reasons),
        "group": step.group,
    }


def _operand(operand: HostValue) -> list[Any]:
    name, place, kind = operand
    return [name, None if place is None else _place(place), None if kind is None else type_to_json(kind)]


def _place(place: Place) -> list[Any]:
    strides = None if place.strides is None else [to_json(stride) for stride in place.strides]
    return [place.buffer, to_json(place.offset), strides]


@record(frozen=True, slots=True)
class ProgramReader:
    """Reads parts of a program that has these symbols, by name."""

    symbols: Mapping[str, Symbol]

    def size(self, found: Any) -> Any:
        return from_json(found, self.symbols) if type(found) is list else found

    def sizes(self, found: list[Any]) -> tuple[Any, ...]:
        return tuple(self.size(one) for one in found)

    def object(self, found: Json) -> np.ndarray | SizesConstant:
        if "sizes" not in found:
            from fusewise.runtime.node_json import array_from_json

            return array_from_json(found)
        flat = np.empty(len(found["sizes"]), object)
        flat[:] = self.sizes(found["sizes"])
        return SizesConstant(flat.reshape(tuple(found["shape"])), dtype_named(found["dtype"]))

    def condition(self, relation: Any, size: Any) -> Condition:
        return Condition(relation, self.size(size))

    def growth(self, found: list[Any] | None) -> Growing | None:
        if found is None:
            return None
        pairs, counts, after = found
        return Growing(tuple((given, made, axis) for given, made, axis in pairs), counts, self.size(after))

    def port(self, found: Json) -> Port:
        kind = type_from_json(found["type"], self.symbols)
        return Port(found["name"], kind, found["buffer"], self.sizes(found.get("contents", [])))

    def buffer(self, kind: str, nbytes: Any, offset: int, value: str, contents: Any = (), place: int = -1) -> Buffer:
        return Buffer(kind, self.size(nbytes), offset, value, contents=self.sizes(contents), place=place)

    def step(self, found: Json) -> NativeStep | StepVersions | HostStep:
        if "versions" not in found:
            return self.native(found) if "kernel" in found else self.host(found)
        versions = [
            (tuple(self.condition(*each) for each in conditions), self.native(one))
            for conditions, one in found["versions"]
        ]
        return StepVersions(self.size(found["extent"]), tuple(versions))

    def native(self, found: Json) -> NativeStep:
        size = self.size
        return NativeStep(
            found["kernel"],
            tuple(Place(buffer, size(offset)) for buffer, offset in found["arguments"]),
            sites=self.sites(found["sites"]),
            extents=tuple(Extent(a, v, size(low), size(high), writes) for a, v, low, high, writes in found["extents"]),
            sizes=self.sizes(found["sizes"]),
            **{name: found[name] for name in ("label", "group", "barrier", "way", "strips", "pieces")},
        )

    def sites(self, found: list[Any]) -> tuple[DataPosition, ...]:
        return tuple(
            DataPosition(node, op, operand, self.size(low), self.size(high), wraps)
            for node, op, operand, low, high, wraps in found
        )

    def host(self, found: Json) -> HostStep:
        from fusewise.runtime.node_json import node_from_json

        nodes = tuple(node_from_json(node) for node in found["nodes"])
        reads = tuple(self.operand(*read) for read in found["reads"])
        writes = tuple(self.operand(*write) for write in found["writes"])
        return HostStep(nodes, found["opset"], reads, writes, tuple(found["reasons"]), found["group"])

    def operand(self, name: str, place: Any, kind: Json | None) -> HostValue:
        found = None if place is None else self.place(*place)
        return name, found, None if kind is None else type_from_json(kind, self.symbols)

    def place(self, buffer: int, offset: Any, strides: list[Any] | None = None) -> Place:
        return Place(buffer, self.size(offset), None if strides is None else self.sizes(strides))
