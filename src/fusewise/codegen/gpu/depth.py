"""How a block goes along the depth of a product, and constants in the order in which it does.

A step takes a block of lanes. Where one variable fills these (the channels of a convolution), the others (its taps) are one number
a step: conditions on them then are on rows alone. Else all variables are one, which lanes take apart (three channels of a first
layer).

    taps 3 x 3, 64 channels, blocks of 32      18 steps; ky, kx = step // 2 // 3, step // 2 % 3; c = step % 2 * 32 + lane
    taps 7 x 7, 3 channels, blocks of 32        5 steps; lane 0 ... 159 is c, ky, kx, of which 147 are
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fusewise.codegen.gpu.contraction import Axes, Contraction, extent_of, main_load, steps_of
from fusewise.codegen.gpu.source import TritonWriter
from fusewise.lower.program import Packing
from fusewise.lower.task import Operand
from fusewise.ops.expr import Expr, const, index, load, walk
from fusewise.records import record

__all__ = ["DEPTH", "DepthWalk", "repacked", "walked"]

DEPTH = "depth"
"""The variable that a repacked constant is read by: the number of a lane among those of all steps."""

_WASTED = 1.15
"""How many more lanes than one variable for all may take, if one of them is to fill blocks alone."""


@record(frozen=True)
class DepthWalk:
    """`steps` have one number at a step, the slowest first; `lanes` are taken apart from a lane's number, the fastest last."""

    steps: Axes
    lanes: Axes
    block: int

    @property
    def blocks(self) -> int:
        """Blocks of lanes."""
        return -(-extent_of(self.lanes) // self.block)

    @property
    def count(self) -> int:
        """Steps in all."""
        return extent_of(self.steps) * self.blocks

    @property
    def is_full(self) -> bool:
        """Is every lane an element?"""
        return extent_of(self.lanes) % self.block == 0


def walked(c: Contraction, block: int) -> DepthWalk:
    """The way along a contraction's depth in blocks of so many lanes."""
    if len(c.depth) < 2:
        return DepthWalk((), c.depth, block)
    writer = TritonWriter(c.task)
    sides = (c.left, c.right) if not _is_constant(c, c.right.value) else (c.left,)
    names = [name for side in sides for name, step in steps_of(writer, side.value).items() if abs(step) == 1]
    depth = dict(c.depth)
    fastest = next((name for name in names if name in depth), max(depth, key=lambda name: depth[name]))
    lanes = ((fastest, depth[fastest]),)
    others = tuple(axis for axis in c.depth if axis[0] != fastest)
    alone, flat = DepthWalk(others, lanes, block), DepthWalk((), (*others, *lanes), block)
    return alone if alone.count <= _WASTED * flat.count else flat


def _is_constant(c: Contraction, value: Expr) -> bool:
    found = main_load(value)
    return found is not None and c.task.operand(found.value).constant


def repacked(c: Contraction, walk_: DepthWalk, by_depth: bool) -> tuple[Contraction, tuple[tuple[str, Packing], ...]]:
    """The contraction with its right factor in the order of the steps, and how that is made of the constant that it is.

    As [batch][columns][depth] where `by_depth`, else [batch][depth][columns]; the depth is filled up with zeros. What is no
    constant, is read otherwise, too, or lies well as it is, stays.
    """
    strides = _strides(c)
    if strides is None or _lies_well(c, walk_, strides, by_depth):
        return c, ()
    depth, lanes = walk_.count * walk_.block, extent_of(walk_.lanes)
    source = main_load(c.right.value)
    assert source is not None
    axes = (*c.batch, *c.columns, *walk_.steps, *walk_.lanes)
    view = tuple((extent, strides.get(name, 0)) for name, extent in axes)
    start = strides[""]
    matrices, columns = extent_of(c.batch), extent_of(c.columns)
    padded = walk_.blocks * walk_.block - lanes

    def pack(array: np.ndarray) -> np.ndarray:
        flat = np.ascontiguousarray(array).reshape(-1)
        steps = [stride * flat.itemsize for _, stride in view]
        seen = np.lib.stride_tricks.as_strided(flat[start:], [extent for extent, _ in view], steps)
        rows = np.pad(seen.reshape(matrices, columns, -1, lanes), ((0, 0), (0, 0), (0, 0), (0, padded)))
        rows = rows.reshape(matrices, columns, depth)
        return np.ascontiguousarray(rows if by_depth else rows.transpose(0, 2, 1))

    name = source.value
    sides = f"{matrices} of {columns} columns"
    recipe = f"gpu {'columns' if by_depth else 'depth'} {view} at {start}, {sides}, by {lanes} in {walk_.block}"
    operand = c.task.operand(name)
    size = matrices * columns * depth
    packed = Operand(name, operand.dtype, (size,), (1,), constant=True, alignment=64)
    others = tuple(packed if o.name == name else o for o in c.task.operands)
    one = {**_numbers(c.batch, columns * depth), DEPTH: 1 if by_depth else columns}
    place: Expr = const(0)
    for variable, step in (one | _numbers(c.columns, depth if by_depth else 1)).items():
        place = place + index(variable) * step
    value = _with_load(c.right.value, load(name, operand.dtype, (place,)))
    right = replace(c.right, value=value)
    packing = Packing(recipe, pack, nbytes=size * operand.dtype.itemsize)
    return replace(c, task=replace(c.task, operands=others), right=right), ((name, packing),)


def _with_load(x: Expr, read: Expr) -> Expr:
    return read if x.op == "load" else Expr(x.op, x.dtype, (_with_load(x.args[0], read),), x.value)


def _numbers(axes: Axes, step: int) -> dict[str, int]:
    """How far apart neighbours along each axis lie, where the axes' elements lie `step` apart in their order."""
    found: dict[str, int] = {}
    for name, extent in reversed(axes):
        found[name] = step
        step *= extent
    return found


def _strides(c: Contraction) -> Mapping[str, int] | None:
    """Steps of a constant that is the right factor along its variables, and by no name where it begins; None where it is none."""
    source = main_load(c.right.value)
    if source is None or not c.task.operand(source.value).constant or c.right.guard is not None:
        return None
    reads = {node for store in c.task.stores for node in walk(store.value) if node.op == "load"}
    if sum(node.value == source.value for node in reads) != 1:
        return None
    writer = TritonWriter(c.task)
    form = writer.simplifier.linear(source.args[0])
    if any(atom.op != "index" for atom, _ in form.terms):
        return None
    found = {atom.value: step for atom, step in form.terms}
    known = {name for name, _ in (*c.batch, *c.columns, *c.depth)}
    if not found.keys() <= known or any(step < 0 for step in found.values()):
        return None
    return found | {"": form.constant + c.task.operand(source.value).offset}


def _lies_well(c: Contraction, walk_: DepthWalk, strides: Mapping[str, int], by_depth: bool) -> bool:
    """Do lanes of a step, or columns where the order is not given, lie beside each other already?"""
    beside = [name for name, _ in walk_.lanes[-1:] if len(walk_.lanes) == 1 and not walk_.steps]
    if not by_depth:
        beside += [name for name, extent in c.columns[-1:] if extent >= 16]
    return any(strides.get(name) == 1 for name in beside)
