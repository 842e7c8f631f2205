"""Gradients of operators that move elements: what was taken from somewhere goes back there, and what was repeated is added up."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from fusewise.ir.dtypes import INT64
from fusewise.passes.gradient.row import Gradient, Reverse, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["MOVEMENT"]


def _back(g: Notation, at: Reverse) -> list[TensorValue | None]:
    """Another shape: the shape it had."""
    return [g.reshape(at.first, at.operand().dims), *[None] * (len(at.x) - 1)]


def _transpose(g: Notation, at: Reverse) -> list[TensorValue | None]:
    order = at.call.attribute("perm", tuple(range(at.operand().rank))[::-1])
    return [g.permute(at.first, [order.index(axis) for axis in range(len(order))])]


def _expand(g: Notation, at: Reverse) -> list[TensorValue | None]:
    return [at.first, None]


def _concat(g: Notation, at: Reverse) -> list[TensorValue | None]:
    axis = at.call.attribute("axis") % at.operand().rank
    ends = list(accumulate(x.dims[axis] for x in at.x if x is not None))
    return [
        g.slice(at.first, axis, end - x.dims[axis], end) for x, end in zip(at.x, ends, strict=True) if x is not None
    ]


def _split(g: Notation, at: Reverse) -> list[TensorValue | None]:
    axis = at.call.attribute("axis", 0) % at.operand().rank
    parts = [
        d if d is not None else g.fill(0, at.call.output(k).dims, at.operand().dtype)
        for k, d in enumerate(at.d)
        if at.call.outputs[k] is not None
    ]
    return [g.Concat(*parts, axis=axis), *[None] * (len(at.x) - 1)]


def _slice(g: Notation, at: Reverse) -> list[TensorValue | None] | None:
    """Back to where it was cut out, zeros elsewhere."""
    if not all(at.call.is_known(i) for i in range(1, len(at.x)) if at.call.has(i)):
        return None
    x, given = at.operand(), [at.call.known(i).tolist() if at.call.has(i) else None for i in range(1, len(at.x))]
    starts, ends, axes, steps = (*given, None, None)[:4]
    assert starts is not None and ends is not None
    part = at.first
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = (axes[k] if axes else k) % x.rank
        step = steps[k] if steps else 1
        places = range(x.dims[axis])[slice(start, _stop(end, step, x.dims[axis]), step)]
        part = _placed(g, part, axis, places, x.dims[axis])
    return [part, *[None] * (len(at.x) - 1)]


def _stop(end: int, step: int, size: int) -> int | None:
    """Where a range ends, as Python has it: an end far below the first element takes it along."""
    return None if step < 0 and end < -size else end


def _placed(g: Notation, d: TensorValue, axis: int, places: range, size: int) -> TensorValue:
    """Slices along one axis put where `places` says, among zeros."""
    if not places:
        return g.fill(0, [*d.dims[:axis], size, *d.dims[axis + 1 :]], d.dtype)
    if places.step < 0:
        d = g.slice(d, axis, d.dims[axis] - 1, -d.dims[axis] - 1, -1)
        places = places[::-1]
    if places.step > 1 and len(places) > 1:
        dims = d.dims
        apart = g.pad(g.reshape(d, [*dims[: axis + 1], 1, *dims[axis + 1 :]]), axis + 1, 0, places.step - 1)
        whole = g.reshape(apart, [*dims[:axis], dims[axis] * places.step, *dims[axis + 1 :]])
        d = g.slice(whole, axis, 0, (len(places) - 1) * places.step + 1)
    return g.pad(d, axis, places[0], size - 1 - places[-1])


def _pad(g: Notation, at: Reverse) -> list[TensorValue | None] | None:
    """What was added is cut off, and goes where it was copied from."""
    x = at.operand()
    mode, others = at.call.attribute("mode", "constant"), [None] * (len(at.x) - 1)
    axes = at.call.constant(3) if at.call.has(3) else np.arange(x.rank)
    if not at.call.is_known(1) or axes is None:
        return None
    pads = at.call.known(1).reshape(2, -1).tolist()
    if at.wanted[2:3] == (True,) or (mode != "constant" and min((*pads[0], *pads[1]), default=0) < 0):
        return None
    part = at.first
    for axis, before, after in zip((int(axis) % x.rank for axis in axes), *pads, strict=True):
        if mode == "constant":
            part = g.pad(part, axis, -before, -after)
        else:
            places = np.pad(np.arange(x.dims[axis]), (before, after), mode=mode)
            part = _added(g, part, axis, g.constant(places), x.dims[axis])
    return [part, *others]


def _added(g: Notation, d: TensorValue, axis: int, places: TensorValue, size: int) -> TensorValue:
    """Slices along one axis added up where `places` says; several may go to one place."""
    dims, order = d.dims, [axis, *(k for k in range(d.rank) if k != axis)]
    rows = g.permute(d, order)
    column = g.cast(g.reshape(places, [dims[axis], 1]), INT64)
    total = g.ScatterND(g.fill(0, [size, *rows.dims[1:]], d.dtype), column, rows, reduction="add")
    return g.permute(total, [order.index(k) for k in range(d.rank)])


def _gather(g: Notation, at: Reverse) -> list[TensorValue | None]:
    x, places = at.operand(0), at.operand(1)
    axis = at.call.attribute("axis", 0) % x.rank
    flat = g.reshape(at.first, [*x.dims[:axis], int(np.prod(places.dims, dtype=int)), *x.dims[axis + 1 :]])
    return [_added(g, flat, axis, places, x.dims[axis]), None]


def _gather_elements(g: Notation, at: Reverse) -> list[TensorValue | None]:
    x = at.operand()
    axis = at.call.attribute("axis", 0)
    return [g.ScatterElements(g.fill(0, x.dims, x.dtype), at.x[1], at.first, axis=axis, reduction="add"), None]


def _gather_nd(g: Notation, at: Reverse) -> list[TensorValue | None] | None:
    x = at.operand()
    if at.call.attribute("batch_dims", 0):
        return None
    return [g.ScatterND(g.fill(0, x.dims, x.dtype), at.x[1], at.first, reduction="add"), None]


def _scatter_elements(g: Notation, at: Reverse) -> list[TensorValue | None] | None:
    """What was written over gets nothing."""
    mode, axis, places = at.call.attribute("reduction", "none"), at.call.attribute("axis", 0), at.operand(1)
    if mode not in ("none", "add"):
        return None
    kept = at.first
    if mode == "none":
        kept = g.ScatterElements(at.first, places, g.fill(0, places.dims, at.first.dtype), axis=axis)
    return [kept, None, g.GatherElements(at.first, places, axis=axis)]


def _scatter_nd(g: Notation, at: Reverse) -> list[TensorValue | None] | None:
    mode, places, updates = at.call.attribute("reduction", "none"), at.operand(1), at.operand(2)
    if mode not in ("none", "add"):
        return None
    kept = at.first if mode == "add" else g.ScatterND(at.first, places, g.fill(0, updates.dims, updates.dtype))
    return [kept, None, g.GatherND(at.first, places)]


def _tile(g: Notation, at: Reverse) -> list[TensorValue | None] | None:
    if not at.call.is_known(1):
        return None
    repeats, dims = at.call.known(1).tolist(), at.operand().dims
    apart = g.reshape(at.first, [size for pair in zip(repeats, dims, strict=True) for size in pair])
    return [g.sum(apart, list(range(0, 2 * len(dims), 2)), keep=False), None]


def _largest(g: Notation, at: Reverse) -> list[TensorValue | None]:
    """TopK: the elements that were chosen."""
    x = at.operand()
    axis = at.call.attribute("axis", -1)
    return [g.ScatterElements(g.fill(0, x.dims, x.dtype), at.y[1], at.first, axis=axis), None]


MOVEMENT: tuple[Gradient, ...] = (
    *(row(op, _back) for op in ("Reshape", "Flatten", "Squeeze", "Unsqueeze")),
    row("Transpose", _transpose),
    row("Expand", _expand),
    row("Concat", _concat),
    row("Split", _split),
    row("Slice", _slice),
    row("Pad", _pad),
    row("Tile", _tile),
    row("Gather", _gather),
    row("GatherElements", _gather_elements),
    row("GatherND", _gather_nd),
    row("ScatterElements", _scatter_elements),
    row("ScatterND", _scatter_nd),
    row("TopK", _largest),
)
