"""The reduction of a register tile on NumPy arrays, from what it means: sums of products, not how code is written for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, Protocol

import numpy as np

from fusewise.codegen.nest.memory import Address, read, write
from fusewise.codegen.nest.opcodes import numpy_type
from fusewise.codegen.nest.spelling import element_bytes
from fusewise.codegen.nest.tile import Accumulate, AccumulateTiles, Reduction, ReductionLoop, Tile
from fusewise.codegen.nest.tree import Block, Int, Value
from fusewise.codegen.nest.types import memory_type
from fusewise.ir.dtypes import DType

__all__ = ["CallFrame", "accumulate_tiles", "accumulated"]


class CallFrame(Protocol):
    """The call that a reduction is part of: what names are in it, blocks run in it, and operations counted."""

    known: dict[str, Any]

    def of(self, value: Int) -> Any: ...

    def block(self, nodes: Block) -> Any: ...

    def spend(self, operations: int) -> None: ...


def accumulated(frame: CallFrame, node: Accumulate) -> list[np.ndarray]:
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
    frame.spend(20 * len(positions))
    for at, position in positions:
        left = _left(frame, tile, reduction, at)  # [rows, lanes, terms]
        right = _right(frame, tile, reduction, position)  # [vectors, lanes, terms]
        total += np.einsum("rlt,vlt->rvl", left.astype(wide), right.astype(wide))
    kind = numpy_type(tile.element)
    found = total.reshape(-1, tile.lanes).astype(kind)
    return list(found if tile.lanes > 1 else found[:, 0])


def accumulate_tiles(frame: CallFrame, node: AccumulateTiles) -> None:
    """The same of tiles, all products of the parts of both operands."""
    tile, instruction, form = node.tile, node.tile.instruction, node.tile.instruction.matrix
    assert form is not None
    kind, wide = Value("", tile.kind), np.int64 if instruction.is_exact else np.float64
    places = [
        frame.of(node.sums).after(k * tile.lanes * element_bytes(tile.element)) for k in range(tile.rows * tile.vectors)
    ]
    sums = np.stack([read(place, kind) for place in places]).astype(wide).reshape(tile.rows, -1, tile.lanes)
    if node.from_zero:
        sums[...] = 0
    pitch, lane = frame.of(node.left_pitch), instruction.lane.itemsize
    positions = _positions(frame, node.levels)[:: instruction.steps]
    frame.spend(20 * len(positions) * instruction.steps)

    def terms(pointer: Address, lanes: int, dtype: DType) -> np.ndarray:
        return np.frombuffer(pointer.bytes(lanes * lane).tobytes(), dtype.numpy).reshape(lanes, -1).astype(wide)

    for at, position in positions:
        for left_part, right_part in form.products:
            rows = [
                frame.of(node.left).after((r * pitch + at + left_part * form.steps) * lane) for r in range(tile.rows)
            ]
            first = position + right_part * form.steps
            steps = [frame.of(node.right).after((first + s) * node.right_pitch * lane) for s in range(form.steps)]
            left = np.stack([terms(row, form.steps, form.part or instruction.left) for row in rows])
            right = np.stack([terms(step, tile.width, form.part or instruction.right) for step in steps])
            sums += np.einsum("rst,slt->rl", left, right).reshape(sums.shape)
    for place, found in zip(places, sums.reshape(-1, tile.lanes).astype(numpy_type(tile.element)), strict=True):
        write(place, found, kind)


def _positions(frame: CallFrame, levels: Sequence[ReductionLoop]) -> list[tuple[int, int]]:
    """Of every step, where it is in the left operand's rows and which step of the panel it is."""
    ranges = [range(frame.of(one.low), one.extent if one.high is None else frame.of(one.high)) for one in levels]
    found = []
    for indices in product(*ranges):
        at = position = 0
        for k, level in zip(indices, levels, strict=True):
            whole, phase = divmod(k, level.phases)
            at, position = at + whole * level.stride + phase * level.phase_stride, position * level.extent + k
        found.append((at, position))
    return found


def _terms(tile: Tile, data: np.ndarray, dtype: DType) -> np.ndarray:
    """Elements as the numbers that the instruction multiplies, a lane's terms last."""
    numbers = data.view(np.uint8).view(dtype.numpy)
    return numbers.reshape(*data.shape, tile.instruction.terms)


def _element(frame: CallFrame, pointer: Address, at: int, dtype: DType) -> np.ndarray:
    size = numpy_type(memory_type(dtype)).itemsize
    return np.frombuffer(pointer.after(at * size).bytes(size).tobytes(), numpy_type(memory_type(dtype)))


def _left(frame: CallFrame, tile: Tile, reduction: Reduction, at: int) -> np.ndarray:
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


def _right(frame: CallFrame, tile: Tile, reduction: Reduction, position: int) -> np.ndarray:
    panel = reduction.panel
    element = tile.element if panel.dtype is None else memory_type(panel.dtype)
    kind = Value("", f"<{tile.lanes} x {element}>")
    step = position * panel.pitch * element_bytes(element)
    found = np.stack([read(frame.of(column).after(step), kind) for column in panel.columns])
    if panel.minus is not None:
        for v in range(tile.vectors):
            there = step + v * tile.lanes * element_bytes(element)
            found[v] -= read(frame.of(panel.minus.other).after(there), kind)
            write(frame.of(panel.minus.made).after(there), found[v], kind)
    if tile.instruction.terms > 1:
        return _terms(tile, found, tile.instruction.right)
    return found[..., None] if panel.dtype is None else _terms(tile, found, panel.dtype)
