"""Joined tensors: read from the parts instead of from the whole, join constants beforehand.

Rules for `simplify_movement`; numeric class exact.
"""

from __future__ import annotations

import itertools

import numpy as np

from fusewise.ir.graph import Node, integer_array
from fusewise.ir.types import TensorType
from fusewise.passes.edit import Change, Edit, LocalRule, may_be_empty, rebuilt

__all__ = ["READ_PARTS", "axis_of"]

_MOST_JOINED = 1 << 16
"""Bytes of a constant that is made of others."""


def axis_of(edit: Edit, node: Node) -> int | None:
    """The axis of a node that names one, counted from the front; None where the rank is not known and it counts from the back."""
    axis = int(node.attribute("axis", 0))
    if axis >= 0:
        return axis
    kind = edit.types.get(node.inputs[0])
    return axis + kind.rank if isinstance(kind, TensorType) and kind.shape is not None else None


def _offsets(edit: Edit, concat: Node, axis: int) -> list[int] | None:
    """Where each part begins along the axis, and the end of the last; None where a shape is not known."""
    kinds = [edit.static(part) for part in concat.inputs]
    if any(kind is None or not isinstance(kind.dims[axis], int) for kind in kinds):
        return None
    return [0, *itertools.accumulate(kind.dims[axis] for kind in kinds if kind is not None)]


def _slice(edit: Edit, node: Node) -> Change | None:
    """Slice(Concat(a, b, c)) that meets some of the parts only."""
    concat = edit.made_by(node.inputs[0], "Concat")
    axis = None if concat is None else axis_of(edit, concat)
    offsets = None if concat is None or axis is None else _offsets(edit, concat, axis)
    bounds = None if axis is None else _bounds(edit, node, axis)
    if concat is None or axis is None or offsets is None or bounds is None:
        return None
    place, first, last = bounds
    ranges = itertools.pairwise(offsets)
    met = [k for k, (begin, end) in enumerate(ranges) if begin < end and begin <= last and first < end]
    if not met or len(met) == len(concat.inputs) or (len(met) > 1 and edit.sole(node.inputs[0], "Concat") is None):
        return None
    parts, offset = concat.inputs[met[0] : met[-1] + 1], offsets[met[0]]
    starts, ends = (np.array(edit.operand(node, i)) for i in (1, 2))
    starts[place], ends[place] = first - offset, last + 1 - offset
    names = tuple(edit.constant(array, f"{node.label}_{stem}") for array, stem in ((starts, "starts"), (ends, "ends")))
    if len(parts) == 1:
        return Change((concat, node), "meets one part", (node.with_inputs((parts[0], *names, *node.inputs[3:])),))
    joined = edit.fresh(f"{concat.outputs[0]}_met")
    again = Node("Concat", parts, (joined,), concat.attributes, name=joined)
    return Change(
        (concat, node), "meets some of the parts", (again, node.with_inputs((joined, *names, *node.inputs[3:])))
    )


def _bounds(edit: Edit, node: Node, axis: int) -> tuple[int, int, int] | None:
    """Which bound of the Slice is that of `axis`, and the first and the last position it reads there, forwards.

    None where a bound is not known, `axis` is not cut, is read backwards, or nothing is left of it.
    """
    kind = edit.static(node.inputs[0])
    starts, ends = edit.operand(node, 1), edit.operand(node, 2)
    if kind is None or starts is None or ends is None:
        return None
    axes = edit.operand(node, 3) if _has(node, 3) else np.arange(starts.size)
    steps = edit.operand(node, 4) if _has(node, 4) else np.ones(starts.size, np.int64)
    if axes is None or steps is None:
        return None
    found = [i for i, each in enumerate(axes) if each % kind.rank == axis]
    if len(found) != 1 or steps[found[0]] < 1:
        return None
    place, extent = found[0], kind.dims[axis]
    taken = range(*slice(int(starts[place]), int(ends[place]), int(steps[place])).indices(extent))
    return (place, taken[0], taken[-1]) if taken else None


def _has(node: Node, i: int) -> bool:
    return i < len(node.inputs) and bool(node.inputs[i])


def _gather(edit: Edit, node: Node) -> Change | None:
    """Gather(Concat(a, b, c), indices) that reads one part only."""
    concat, indices = edit.made_by(node.inputs[0], "Concat"), edit.operand(node, 1)
    axis = axis_of(edit, node)
    if concat is None or indices is None or not indices.size or axis is None or axis != axis_of(edit, concat):
        return None
    offsets = _offsets(edit, concat, axis)
    if offsets is None or indices.min() < -offsets[-1] or indices.max() >= offsets[-1]:
        return None
    positions = np.where(indices < 0, indices + offsets[-1], indices)
    for part, (begin, end) in zip(concat.inputs, itertools.pairwise(offsets), strict=True):
        if begin <= positions.min() and positions.max() < end:
            there = edit.constant(np.asarray(positions - begin, indices.dtype), f"{node.label}_indices")
            return Change((concat, node), "meets one part", (node.with_inputs((part, there)),))
    return None


def _gather_of_one(edit: Edit, node: Node) -> Change | None:
    """Gather of the only position along an axis, by a scalar."""
    given, made, index = edit.static(node.inputs[0]), edit.static(node.outputs[0]), edit.operand(node, 1)
    axis = axis_of(edit, node)
    if given is None or made is None or index is None or index.ndim or axis is None or given.dims[axis] != 1:
        return None
    if int(index) not in (0, -1) or 0 in made.dims:
        return None
    shape = edit.constant(integer_array(made.dims), f"{node.label}_shape")
    reshape = rebuilt(node, "Reshape", (node.inputs[0], shape), **may_be_empty(made.dims))
    return Change((node,), "the only position", (reshape,))


def _gather_of_all(edit: Edit, node: Node) -> Change | None:
    """Gather of every position along an axis, in order."""
    given, positions, axis = edit.static(node.inputs[0]), edit.operand(node, 1), axis_of(edit, node)
    if given is None or positions is None or positions.ndim != 1 or axis is None or given.dims[axis] != positions.size:
        return None
    forwards = np.where(positions < 0, positions + positions.size, positions)
    if not np.array_equal(forwards, np.arange(positions.size)):
        return None
    return Change((node,), "takes everything", same={node.outputs[0]: node.inputs[0]})


def _constants(edit: Edit, node: Node) -> Change | None:
    """Constants beside each other among the operands of a Concat."""
    for known, run in itertools.groupby(range(len(node.inputs)), lambda i: node.inputs[i] in edit.constants):
        places = list(run)
        kinds = [edit.static(node.inputs[i]) for i in places]
        if not known or len(places) < 2 or len(places) == len(node.inputs) or any(kind is None for kind in kinds):
            continue
        if sum(kind.size * kind.dtype.itemsize for kind in kinds if kind is not None) > _MOST_JOINED:
            continue
        arrays = [array for i in places if (array := edit.operand(node, i)) is not None]
        if len(arrays) < len(places):
            continue
        joined = edit.constant(np.concatenate(arrays, int(node.attribute("axis", 0))), f"{node.label}_joined")
        merged = node.with_inputs((*node.inputs[: places[0]], joined, *node.inputs[places[-1] + 1 :]))
        return Change((node,), "constants beside each other", (merged,))
    return None


READ_PARTS: tuple[LocalRule, ...] = (
    LocalRule("slice-of-concat", ("Slice",), _slice),
    LocalRule("gather-of-all", ("Gather",), _gather_of_all),
    LocalRule("gather-of-concat", ("Gather",), _gather),
    LocalRule("gather-of-one", ("Gather",), _gather_of_one),
    LocalRule("concat-of-constants", ("Concat",), _constants),
)
