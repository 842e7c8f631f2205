"""Runs a nest on NumPy arrays: slow, plain, and with every access looked at.

Loops, conditions and addresses are what the nest says; a reduction of a register tile and the stores of a task are computed from
what they mean (`tile.Accumulate`, the task's expressions), not from how code is written for them: this is a witness for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from fusewise.codegen.nest.build import Function, Module
from fusewise.codegen.nest.opcodes import (
    INTRINSICS,
    bits_of,
    constant,
    converted,
    from_bits,
    numpy_type,
    operation,
    saturated,
    signed,
)
from fusewise.codegen.nest.spelling import element_bytes
from fusewise.codegen.nest.tile import Accumulate, AccumulateTiles, Reduction, ReductionLoop, Tile, WithTiles
from fusewise.codegen.nest.tree import Block, For, Int, Node, Operation, Repeat, Stage, StoreAccumulator, Value, When
from fusewise.codegen.nest.types import memory_type
from fusewise.ir.dtypes import DType
from fusewise.lower.task import ACC, Operand, Store
from fusewise.ops.expr import Expr, binary, const, index, substitute, substitute_indices, walk
from fusewise.ops.interpret import evaluate_expression

__all__ = ["Address", "Memory", "OutOfBounds", "TooLong", "interpret"]


class OutOfBounds(AssertionError):
    """An access outside its memory."""


class TooLong(AssertionError):
    """More operations than were allowed."""


class Memory(NamedTuple):
    """Bytes with a name."""

    name: str
    data: np.ndarray


class Address(NamedTuple):
    """A place in a memory, in bytes."""

    memory: Memory
    offset: int

    def bytes(self, count: int) -> np.ndarray:
        """So many bytes from here on."""
        if self.offset < 0 or self.offset + count > self.memory.data.size:
            where = f"bytes {self.offset} to {self.offset + count} of {self.memory.data.size}"
            raise OutOfBounds(f"{where} of {self.memory.name!r} are asked for")
        return self.memory.data[self.offset : self.offset + count]

    def after(self, count: int) -> Address:
        """The place so many bytes on."""
        return Address(self.memory, self.offset + count)


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
        self.run.spend(len(nodes))
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

    def control(self, node: Node) -> None:
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
            self.name(node.results, _accumulated(self, node))
        elif isinstance(node, AccumulateTiles):
            _accumulate_tiles(self, node)
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


def _read(pointer: Address, kind: Value) -> Any:
    """A value of a type from memory."""
    element, lanes = kind.element, kind.lanes
    data = pointer.bytes(lanes * element_bytes(element))
    if element == "ptr":
        raise OutOfBounds(f"an address is read from {pointer.memory.name!r}")
    if element.startswith("i") and element != "i1" and not kind.type.startswith("<"):
        return from_bits(data.tobytes(), kind)
    found = np.frombuffer(data.tobytes(), np.uint8 if element == "i1" else numpy_type(element))
    if kind.type.startswith("<"):
        return found.astype(bool) if element == "i1" else found.copy()
    return bool(found[0]) if element == "i1" else found[0]


def _write(pointer: Address, value: Any, kind: Value) -> None:
    if isinstance(value, int):
        data = np.frombuffer(bits_of(value, kind.element), np.uint8)
    else:
        data = np.asarray(value, numpy_type(kind.element)).reshape(-1).view(np.uint8)
    pointer.bytes(data.nbytes)[:] = data


def _lanes(pointer: Address, kind: Value) -> list[Address]:
    size = element_bytes(kind.element)
    return [pointer.after(k * size) for k in range(kind.lanes)]


def _load(frame: _Frame, node: Operation) -> Any:
    assert node.result is not None
    return _read(frame.of(node.operands[0]), node.result)


def _store(frame: _Frame, node: Operation) -> None:
    value, pointer = node.operands
    _write(frame.of(pointer), frame.of(value), value)


def _masked_load(frame: _Frame, node: Operation) -> Any:
    assert node.result is not None
    pointer, mask, other = (frame.of(one) for one in node.operands)
    found, one = np.array(other), Value("", node.result.element)
    for k, place in enumerate(_lanes(pointer, node.result)):
        if mask[k]:
            found[k] = _read(place, one)
    return found


def _masked_store(frame: _Frame, node: Operation) -> None:
    value, pointer, mask = (frame.of(one) for one in node.operands)
    kind, one = node.operands[0], Value("", node.operands[0].element)
    for k, place in enumerate(_lanes(pointer, kind)):
        if mask[k]:
            _write(place, value[k], one)


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


# --- the reduction of a register tile ---------------------------------------------------------------------------------


def _accumulated(frame: _Frame, node: Accumulate) -> list[np.ndarray]:
    """The accumulators from what they mean: sums of products, in the wider type, over all positions of the loops."""
    tile, reduction = node.tile, node.reduction
    starts = np.stack([np.atleast_1d(frame.of(one)) for one in node.start])
    if reduction.meanwhile is not None:
        for part in range(reduction.meanwhile.parts):
            frame.known[reduction.meanwhile.index.text] = part
            frame.block(reduction.meanwhile.body)
        if not frame.of(reduction.meanwhile.reduces):
            return list(starts)
    wide = np.int64 if tile.instruction.is_exact else np.float64
    total = starts.astype(wide).reshape(tile.rows, tile.vectors, tile.lanes)
    positions = _positions(frame, reduction.levels)
    frame.run.spend(20 * len(positions))
    for at, position in positions:
        left = _left(frame, tile, reduction, at)  # [rows, lanes, terms]
        right = _right(frame, tile, reduction, position)  # [vectors, lanes, terms]
        total += np.einsum("rlt,vlt->rvl", left.astype(wide), right.astype(wide))
    kind = numpy_type(tile.element)
    found = total.reshape(-1, tile.lanes).astype(kind)
    return list(found if tile.lanes > 1 else found[:, 0])


def _accumulate_tiles(frame: _Frame, node: AccumulateTiles) -> None:
    """The same of tiles, all products of the parts of both operands."""
    tile, instruction, form = node.tile, node.tile.instruction, node.tile.instruction.matrix
    assert form is not None
    kind, wide = Value("", tile.kind), np.int64 if instruction.is_exact else np.float64
    places = [
        frame.of(node.sums).after(k * tile.lanes * element_bytes(tile.element)) for k in range(tile.rows * tile.vectors)
    ]
    sums = np.stack([_read(place, kind) for place in places]).astype(wide).reshape(tile.rows, -1, tile.lanes)
    pitch, lane = frame.of(node.left_pitch), instruction.lane.itemsize
    positions = _positions(frame, node.levels)[:: instruction.steps]
    frame.run.spend(20 * len(positions) * instruction.steps)

    def terms(pointer: Address, lanes: int, dtype: DType) -> np.ndarray:
        return np.frombuffer(pointer.bytes(lanes * lane).tobytes(), dtype.numpy).reshape(lanes, -1).astype(wide)

    for at, position in positions:
        for left_part, right_part in form.products:
            rows = [
                frame.of(node.left).after((r * pitch + at + left_part * form.steps) * lane) for r in range(tile.rows)
            ]
            first = position + right_part * form.steps
            steps = [frame.of(node.right).after((first + s) * node.right_pitch * lane) for s in range(form.steps)]
            left = np.stack([terms(row, form.steps, instruction.left) for row in rows])
            right = np.stack([terms(step, tile.width, instruction.right) for step in steps])
            sums += np.einsum("rst,slt->rl", left, right).reshape(sums.shape)
    for place, found in zip(places, sums.reshape(-1, tile.lanes).astype(numpy_type(tile.element)), strict=True):
        _write(place, found, kind)


def _positions(frame: _Frame, levels: Sequence[ReductionLoop]) -> list[tuple[int, int]]:
    """Of every step, where it is in the left operand's rows and which step of the panel it is."""
    ranges = [range(frame.of(one.low), one.extent if one.high is None else frame.of(one.high)) for one in levels]
    found = []
    for indices in product(*ranges):
        at = position = 0
        for k, level in zip(indices, levels, strict=True):
            at, position = at + k * level.stride, position * level.extent + k
        found.append((at, position))
    return found


def _terms(tile: Tile, data: np.ndarray, dtype: DType) -> np.ndarray:
    """Elements as the numbers that the instruction multiplies, a lane's terms last."""
    numbers = data.view(np.uint8).view(dtype.numpy)
    return numbers.reshape(*data.shape, tile.instruction.terms)


def _element(frame: _Frame, pointer: Address, at: int, dtype: DType) -> np.ndarray:
    size = numpy_type(memory_type(dtype)).itemsize
    return np.frombuffer(pointer.after(at * size).bytes(size).tobytes(), numpy_type(memory_type(dtype)))


def _left(frame: _Frame, tile: Tile, reduction: Reduction, at: int) -> np.ndarray:
    """What each row gives to each lane at a step: of groups side by side, lanes have channels of their own."""
    per, group = tile.lanes // reduction.together, reduction.levels[-1].extent
    offsets = [at + lane // per * group for lane in range(tile.lanes)] if reduction.together > 1 else [at] * tile.lanes
    rows = []
    for row in reduction.rows:
        lanes = [_element(frame, frame.of(row), offset, reduction.dtype) for offset in dict.fromkeys(offsets)]
        where = {offset: k for k, offset in enumerate(dict.fromkeys(offsets))}
        rows.append(np.concatenate(lanes)[[where[offset] for offset in offsets]])
    data = np.stack(rows)
    own = tile.instruction.left if tile.instruction.terms > 1 else reduction.dtype
    return _terms(tile, data, own)


def _right(frame: _Frame, tile: Tile, reduction: Reduction, position: int) -> np.ndarray:
    panel = reduction.panel
    element = tile.element if panel.dtype is None else memory_type(panel.dtype)
    kind = Value("", f"<{tile.lanes} x {element}>")
    step = position * panel.pitch * element_bytes(element)
    found = np.stack([_read(frame.of(column).after(step), kind) for column in panel.columns])
    if panel.minus is not None:
        for v in range(tile.vectors):
            there = step + v * tile.lanes * element_bytes(element)
            found[v] -= _read(frame.of(panel.minus.other).after(there), kind)
            _write(frame.of(panel.minus.made).after(there), found[v], kind)
    if tile.instruction.terms > 1:
        return _terms(tile, found, tile.instruction.right)
    return found[..., None] if panel.dtype is None else _terms(tile, found, panel.dtype)


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
