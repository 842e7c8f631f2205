"""Runs a nest on NumPy arrays: slow, plain, and with every access looked at.

Loops, conditions and addresses are what the nest says; a reduction of a register tile and the stores of a task are computed from
what they mean (`tile.Accumulate`, the task's expressions), not from how code is written for them: this is a witness for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fusewise.codegen.nest.build import Function, Module
from fusewise.codegen.nest.interpret_tile import accumulate_tiles, accumulated
from fusewise.codegen.nest.memory import Address, Memory, read, write
from fusewise.codegen.nest.opcodes import (
    INTRINSICS,
    constant,
    converted,
    numpy_type,
    operation,
    saturated,
    signed,
)
from fusewise.codegen.nest.spelling import element_bytes
from fusewise.codegen.nest.tile import Accumulate, AccumulateTiles, WithTiles
from fusewise.codegen.nest.tree import (
    Block,
    For,
    Int,
    NestNode,
    Operation,
    Repeat,
    Stage,
    StoreAccumulator,
    Value,
    When,
)
from fusewise.lower.task import ACC, Operand, Store
from fusewise.ops.expr import Expr, binary, const, index, substitute, substitute_indices, walk
from fusewise.ops.interpret import evaluate_expression

__all__ = ["TooLong", "interpret"]


class TooLong(AssertionError):
    """More operations than were allowed."""


def interpret(module: Module, name: str, arguments: Sequence[Any], most: int | None = None) -> Any:
    """Call a function of a module with integers, scalars of NumPy, `Address`s or arrays, which it reads and writes.

    `OutOfBounds` where it touches what is none of these; `TooLong` after `most` operations."""
    tables = {}
    for table in module.tables:
        values, kind = table.values, numpy_type(table.element)
        if isinstance(values, bytes):
            data = np.frombuffer(values, np.uint8)
        else:
            data = np.array([signed(int(v), 64) if kind.kind == "i" else v for v in values]).astype(kind)
        tables[f"@{table.name}"] = Address(Memory(table.name, data.view(np.uint8)), 0)
    functions = {function.name: function for function in module.functions}
    given = [_pointer(one, f"argument {k}") if isinstance(one, np.ndarray) else one for k, one in enumerate(arguments)]
    with np.errstate(all="ignore"):
        return _Run(functions, tables, most).call(functions[name], given)


def _pointer(array: np.ndarray, name: str) -> Address:
    return Address(Memory(name, array.reshape(-1).view(np.uint8)), 0)


class _Run:
    """Functions, and what global names are."""

    def __init__(self, functions: Mapping[str, Function], tables: Mapping[str, Address], most: int | None) -> None:
        self.functions = functions
        self.tables = tables
        self.left = most

    def spend(self, operations: int) -> None:
        """Note that so many operations are done."""
        if self.left is not None:
            self.left -= operations
            if self.left < 0:
                raise TooLong("the nest takes more operations than were allowed")

    def call(self, function: Function, arguments: Sequence[Any]) -> Any:
        known = dict(zip((one.text for one in function.arguments), arguments, strict=True))
        return _Frame(self, {**self.tables, **known}).block(function.body)


class _Frame:
    """A call: what names are, and memory of its own by the name of its address."""

    def __init__(self, run: _Run, known: dict[str, Any]) -> None:
        self.run = run
        self.known = known

    def spend(self, operations: int) -> None:
        self.run.spend(operations)

    def of(self, value: Int) -> Any:
        if isinstance(value, int):
            return value
        if value.text in self.known:
            return self.known[value.text]
        return constant(value)

    def name(self, names: Sequence[Value], values: Sequence[Any]) -> None:
        self.known.update(zip((one.text for one in names), values, strict=True))

    def block(self, nodes: Block) -> Any:
        """Run nodes; what the function gives back, if it does there."""
        self.spend(len(nodes))
        for node in nodes:
            if isinstance(node, Operation):
                if node.opcode == "ret":
                    return self.of(node.operands[0]) if node.operands else None
                result = _run(self, node)
                if node.result is not None:
                    self.known[node.result.text] = result
            else:
                self.control(node)
        return None

    def control(self, node: NestNode) -> None:
        if isinstance(node, For):
            self.loop(node)
        elif isinstance(node, When):
            holds = bool(self.of(node.condition))
            self.block(node.then if holds else node.otherwise)
            values = node.then_values if holds else node.otherwise_values
            self.name(node.results, [self.of(value) for value in values])
        elif isinstance(node, Repeat):
            self.name(node.inside, [self.of(value) for value in node.carried])
            self.block(node.first)
            while self.of(node.condition):
                self.block(node.body)
                self.name(node.inside, [self.of(value) for value in node.after])
                self.block(node.first)
        elif isinstance(node, Stage):
            tag, unit = self.of(node.tag).bytes(8).view(np.int64), self.of(node.unit)
            if tag[0] != unit:
                self.block(node.body)
                tag[0] = unit
        elif isinstance(node, Accumulate):
            self.name(node.results, accumulated(self, node))
        elif isinstance(node, AccumulateTiles):
            accumulate_tiles(self, node)
        elif isinstance(node, WithTiles):
            self.block(node.body)
        else:
            assert isinstance(node, StoreAccumulator), node
            _stored(self, node)

    def loop(self, node: For) -> None:
        values = [self.of(value) for value in node.carried]
        for at in range(self.of(node.low), self.of(node.high), node.step):
            self.known[node.counter.text] = at
            self.name(node.inside, values)
            self.block(node.body)
            values = [self.of(value) for value in node.after]
        self.name(node.results, values)


# --- operations -------------------------------------------------------------------------------------------------------


def _lanes(pointer: Address, kind: Value) -> list[Address]:
    size = element_bytes(kind.element)
    return [pointer.after(k * size) for k in range(kind.lanes)]


def _load(frame: _Frame, node: Operation) -> Any:
    assert node.result is not None
    return read(frame.of(node.operands[0]), node.result)


def _store(frame: _Frame, node: Operation) -> None:
    value, pointer = node.operands
    write(frame.of(pointer), frame.of(value), value)


def _masked_load(frame: _Frame, node: Operation) -> Any:
    assert node.result is not None
    pointer, mask, other = (frame.of(one) for one in node.operands)
    found, one = np.array(other), Value("", node.result.element)
    for k, place in enumerate(_lanes(pointer, node.result)):
        if mask[k]:
            found[k] = read(place, one)
    return found


def _masked_store(frame: _Frame, node: Operation) -> None:
    value, pointer, mask = (frame.of(one) for one in node.operands)
    kind, one = node.operands[0], Value("", node.operands[0].element)
    for k, place in enumerate(_lanes(pointer, kind)):
        if mask[k]:
            write(place, value[k], one)


def _copy(frame: _Frame, node: Operation) -> None:
    target, source, count = (frame.of(one) for one in node.operands)
    target.bytes(count)[:] = source.bytes(count).copy()


def _fill(frame: _Frame, node: Operation) -> None:
    target, byte, count = (frame.of(one) for one in node.operands)
    target.bytes(count)[:] = byte & 255


def _address(frame: _Frame, node: Operation) -> Address:
    pointer, offset = (frame.of(one) for one in node.operands)
    kind = Value("", str(node.detail[0]))
    found: Address = pointer.after(offset * kind.lanes * element_bytes(kind.element))
    return found


def _alloca(frame: _Frame, node: Operation) -> Address:
    assert node.result is not None
    element, count, _ = node.detail
    kind, name = Value("", str(element)), node.result.text
    size = kind.lanes * element_bytes(kind.element) * int(count)
    found: Address = frame.known.get(name) or Address(Memory(name, np.zeros(size, np.uint8)), 0)
    return found


def _shuffled(frame: _Frame, node: Operation) -> Any:
    first, second = (frame.of(one) for one in node.operands)
    every = np.concatenate([np.atleast_1d(first), np.atleast_1d(second)])
    return every[[int(lane) for lane in node.detail]]


def _inserted(frame: _Frame, node: Operation) -> Any:
    into, value, lane = (frame.of(one) for one in node.operands)
    found = np.array(into)
    found[lane] = value
    return found


def _extracted(frame: _Frame, node: Operation) -> Any:
    vector, lane = (frame.of(one) for one in node.operands)
    found = vector[lane]
    return found if found.dtype.kind == "f" or found.dtype == np.uint16 else found.item()


def _selected(frame: _Frame, node: Operation) -> Any:
    condition, then, otherwise = (frame.of(one) for one in node.operands)
    if isinstance(condition, np.ndarray):
        return np.where(condition, then, otherwise)
    return then if condition else otherwise


def _called(frame: _Frame, node: Operation) -> Any:
    name, given = str(node.detail[0]), [frame.of(one) for one in node.operands]
    if node.opcode == "call" and name in frame.run.functions:
        return frame.run.call(frame.run.functions[name], given)
    return _intrinsic(name, given, node)


def _intrinsic(name: str, given: Sequence[Any], node: Operation) -> Any:
    assert node.result is not None
    if name.startswith(("llvm.fptosi.sat", "llvm.fptoui.sat")):
        return saturated(given[0], node.result.element, "fptosi" in name)
    for pattern, run in INTRINSICS:
        if pattern.match(name):
            found = run(*given)
            if node.result.type.startswith("<") or not node.result.element.startswith("i"):
                return np.asarray(found, numpy_type(node.result.element))[()]
            return found if isinstance(found, int) else found.item()
    raise NotImplementedError(f"nothing is known of {name}")


def _converted(frame: _Frame, node: Operation) -> Any:
    assert node.result is not None
    return converted(node.opcode, frame.of(node.operands[0]), node.operands[0], node.result)


def _run(frame: _Frame, node: Operation) -> Any:
    run = _OPERATIONS.get(node.opcode)
    if run is not None:
        return run(frame, node)
    if node.opcode.startswith("llvm."):
        return _intrinsic(node.opcode, [frame.of(one) for one in node.operands], node)
    first, second = node.operands
    return operation(node.opcode, frame.of(first), frame.of(second), first)


_OPERATIONS: Mapping[str, Callable[[_Frame, Operation], Any]] = {
    "load": _load,
    "store": _store,
    "masked.load": _masked_load,
    "masked.store": _masked_store,
    "memcpy": _copy,
    "memset": _fill,
    "alloca": _alloca,
    "prefetch": lambda frame, node: None,
    "getelementptr": _address,
    "getelementptr inbounds": _address,
    "shufflevector": _shuffled,
    "broadcast": lambda frame, node: np.repeat(frame.of(node.operands[0])[:1], len(frame.of(node.operands[0]))),
    "insertelement": _inserted,
    "extractelement": _extracted,
    "select": _selected,
    "call": _called,
    "intrinsic": _called,
    "fneg": lambda frame, node: -frame.of(node.operands[0]),
    "hidden": lambda frame, node: frame.of(node.operands[0]),
    "same": lambda frame, node: frame.of(node.operands[0]),
    **dict.fromkeys("sitofp uitofp fptosi fptoui sext zext trunc fpext fptrunc bitcast".split(), _converted),
}


# --- the stores of a task ---------------------------------------------------------------------------------------------


def _elements(frame: _Frame, node: StoreAccumulator, operand: Operand) -> np.ndarray:
    """The memory of an operand as elements, its first one at the beginning."""
    pointer: Address = frame.of(node.pointers[operand.name]).after(operand.offset * operand.dtype.itemsize)
    rest = pointer.bytes(pointer.memory.data.size - pointer.offset)
    whole = rest.size // operand.dtype.itemsize * operand.dtype.itemsize
    return np.frombuffer(rest[:whole].tobytes(), operand.dtype.numpy)


def _stored(frame: _Frame, node: StoreAccumulator) -> None:
    """Evaluate what a task stores of one accumulator, and write it."""
    value = np.atleast_1d(frame.of(node.value))[: node.count]
    at = {name: int(frame.of(position)) for name, position in node.indices}
    first = at.pop(node.lane, 0)
    operands = {operand.name: operand for operand in node.task.operands}
    for store in node.task.stores:
        _stored_one(frame, node, store, operands[store.operand], (value, first, at))


def _stored_one(
    frame: _Frame,
    node: StoreAccumulator,
    store: Store,
    target: Operand,
    place: tuple[np.ndarray, int, Mapping[str, int]],
) -> None:
    value, first, at = place
    lanes = {node.lane: len(value)}
    known = {name: const(position) for name, position in at.items()}

    def flat(expr: Expr) -> Expr | None:
        """Loads by one position: in the accumulator along its lanes, in an operand where strides lead. Axes that continue
        each other may be given as one, so positions along one may be beyond its extent."""
        if expr.op != "load":
            return None
        if expr.value == ACC:
            return Expr("load", expr.dtype, (binary("sub", index(node.lane), first),), ACC)
        strides = node.task.operand(expr.value).strides
        position = const(0)
        for along, stride in zip(expr.args, strides, strict=True):
            position = binary("add", position, binary("mul", along, stride))
        return Expr("load", expr.dtype, (position,), expr.value)

    def evaluated(expr: Expr) -> np.ndarray:
        here = substitute(substitute_indices(expr, known), flat)
        loads = {}
        for one in walk(here):
            if one.op == "load":
                mine = value.astype(one.dtype.numpy)
                loads[one.value] = mine if one.value == ACC else _elements(frame, node, node.task.operand(one.value))
        return evaluate_expression(here, lanes, loads, node.lane, first)[0]

    result = evaluated(store.value)
    offsets = sum(
        (evaluated(expr) * stride for expr, stride in zip(store.index, target.strides, strict=True)),
        np.zeros(len(value), np.int64),
    )
    pointer: Address = frame.of(node.pointers[target.name])
    size = target.dtype.itemsize
    for lane, element in enumerate(result.astype(target.dtype.numpy)):
        data = np.frombuffer(element.tobytes(), np.uint8)
        pointer.after((target.offset + int(offsets[lane])) * size).bytes(size)[:] = data
