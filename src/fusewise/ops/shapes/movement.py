"""Shapes of what is moved: reshaped, cut, joined, repeated, padded, gathered."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from fusewise.ir.deciding import known_below, known_equal
from fusewise.ir.size import Size, greatest, least
from fusewise.ops.shapes.operands import Operands, Row, Shape, Unknown, ceiling, keep, nonnegative, position, share
from fusewise.ops.slices import slice_along

__all__ = ["MOVEMENT"]

_TO_THE_END = 2**31 - 1
"""Bounds of a slice from here on are the end, however long the axis is."""


def _reshaped(case: Operands) -> tuple[Shape, ...]:
    wanted = case.ints(1)
    source = case.shapes[0]
    zero = case.attribute("allowzero", 0)
    dims: list[int] = []
    for i, dim in enumerate(wanted):
        if known_equal(dim, 0) and not zero:
            if source is None or i >= len(source):
                raise Unknown
            dim = source[i]
        dims.append(dim)
    holes = [i for i, dim in enumerate(wanted) if known_equal(dim, -1)]
    if len(holes) > 1 or (holes and source is None):
        raise Unknown
    if holes:
        rest = dims[: holes[0]] + dims[holes[0] + 1 :]
        dims[holes[0]] = share(case, source or (), rest)
    elif source is not None:
        case.equal(math.prod(source), math.prod(dims), "numbers of elements")
    return (tuple(dims),)


def _flattened(case: Operands) -> tuple[Shape, ...]:
    data = case.shape()
    axis = case.attribute("axis", 1)
    at = axis + len(data) if axis < 0 else axis
    return ((math.prod(data[:at]), math.prod(data[at:])),)


def _squeezed(case: Operands) -> tuple[Shape, ...]:
    data = case.shape()
    axes = case.axes(1, len(data))
    if axes is None:
        if any(isinstance(dim, Size) and not known_below(1, dim) for dim in data):
            raise Unknown
        axes = tuple(d for d, dim in enumerate(data) if known_equal(dim, 1))
    for axis in axes:
        case.equal(data[axis], 1, f"the size along axis {axis}, which is dropped, and 1")
    return (tuple(dim for d, dim in enumerate(data) if d not in axes),)


def _unsqueezed(case: Operands) -> tuple[Shape, ...]:
    data = list(case.shape())
    given = case.numbers(1)
    for axis in sorted(position(axis, len(data) + len(given)) for axis in given):
        data.insert(axis, 1)
    return (tuple(data),)


def _transposed(case: Operands) -> tuple[Shape, ...]:
    data = case.shape()
    return (tuple(data[d] for d in case.attribute("perm") or reversed(range(len(data)))),)


def _depth_to_space(case: Operands) -> tuple[Shape, ...]:
    samples, channels, *spatial = case.shape()
    block = case.attribute("blocksize")
    return ((samples, share(case, (channels,), (block,) * 2), *(dim * block for dim in spatial)),)


def _space_to_depth(case: Operands) -> tuple[Shape, ...]:
    samples, channels, *spatial = case.shape()
    block = case.attribute("blocksize")
    return ((samples, channels * block**2, *(share(case, (dim,), (block,)) for dim in spatial)),)


def _sliced(case: Operands) -> tuple[Shape, ...]:
    dims = list(case.shape())
    starts, ends = case.ints(1), case.ints(2)
    axes = case.axes(3, len(dims), "") or tuple(range(len(starts)))
    steps = case.numbers(4) if case.has(4) else [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        dims[axis] = sliced_extent(case, dims[axis], start, end, step)
    return (tuple(dims),)


def sliced_extent(case: Operands, extent: int, start: int, end: int, step: int) -> int:
    """How many elements a slice of an axis has (ONNX, Slice)."""
    if not any(isinstance(one, Size) for one in (extent, start, end)):
        return len(range(extent)[slice_along(start, end, step, extent)])
    if any(known_equal(bound, one) for bound in (start, end) for one in (-1, 1)):
        case.at_least(extent, 1, "a size whose first or last element is meant")
    start, end = (_from_front(case, bound, extent) for bound in (start, end))
    if step > 0:
        return nonnegative(ceiling(_at_most(end, extent) - greatest(start, 0), step))
    last = _at_most(greatest(start, 0), extent - 1)
    return nonnegative(ceiling(last - greatest(end, -1), -step))


def _from_front(case: Operands, bound: int, extent: int) -> int:
    if known_below(bound, 0):
        return bound if not isinstance(bound, Size) and bound <= -_TO_THE_END else bound + extent
    if known_below(-1, bound):
        return bound
    if known_below(bound, 1):  # -n is meant to count from the end, which 0 would not
        case.at_least(-bound, 1, "a bound of a slice that counts from the end, without its sign,")
        return bound + extent
    case.at_least(bound, 0, "a bound of a slice that is taken to count from the front")
    return bound


def _at_most(bound: int, extent: int) -> int:
    if not isinstance(bound, Size) and bound >= _TO_THE_END:
        return extent
    found: int = least(bound, extent)
    return found


def _concatenated(case: Operands) -> tuple[Shape, ...]:
    shapes = [case.shape(i) for i in range(len(case.node.inputs))]
    first = list(shapes[0])
    axis = case.axis("axis", 0, len(first))
    for shape in shapes[1:]:
        if len(shape) != len(first):
            raise Unknown
        for d, (a, b) in enumerate(zip(first, shape, strict=True)):
            if d != axis:
                first[d] = case.equal(a, b, f"the sizes along axis {d} of the operands")
    return (keep(first, axis, sum(shape[axis] for shape in shapes)),)


def _split(case: Operands) -> tuple[Shape, ...]:
    data = case.shape()
    axis = case.axis("axis", 0, len(data))
    count = len(case.node.outputs)
    if case.has(1):
        sizes = case.ints(1)
        case.equal(sum(sizes), data[axis], "the sum of the parts and the size that is split")
    else:
        each = ceiling(data[axis], count)
        last = data[axis] - each * (count - 1)
        case.at_least(last, 0, "the last part's size")
        sizes = [each] * (count - 1) + [last]
    return tuple(keep(data, axis, size) for size in sizes)


def _padded(case: Operands) -> tuple[Shape, ...]:
    dims = list(case.shape())
    pads = case.ints(1)
    axes = case.axes(3, len(dims), "")
    if axes is None:
        axes = tuple(range(len(dims)))
    for d, axis in enumerate(axes):
        dims[axis] = dims[axis] + pads[d] + pads[d + len(axes)]
        case.at_least(dims[axis], 0, "the size of what padding leaves")
    return (tuple(dims),)


def _cropped(case: Operands) -> tuple[Shape, ...]:
    dims = list(case.shape())
    wanted = case.ints(1)
    axes = case.attribute("axes")
    for axis, size in zip(range(len(dims)) if axes is None else axes, wanted, strict=True):
        dims[position(axis, len(dims))] = size
    return (tuple(dims),)


def _expanded(case: Operands) -> tuple[Shape, ...]:
    return (case.broadcast(case.shape(), tuple(case.ints(1))),)


def _tiled(case: Operands) -> tuple[Shape, ...]:
    return (tuple(dim * times for dim, times in zip(case.shape(), case.ints(1), strict=True)),)


def _gathered(case: Operands) -> tuple[Shape, ...]:
    data, indices = case.shape(), case.shape(1)
    axis = case.axis("axis", 0, len(data))
    places = case.values[1] if isinstance(data[axis], Size) else None
    for place in places.reshape(-1).tolist() if places is not None and places.dtype != object else ():
        case.at_least(
            data[axis], place + 1 if place >= 0 else -place, f"the size along axis {axis}, of which {place} is taken,"
        )
    return ((*data[:axis], *indices, *data[axis + 1 :]),)


def _like_indices(case: Operands) -> tuple[Shape, ...]:
    data, indices = case.shape(), case.shape(1)
    axis = case.axis("axis", 0, len(data))
    for d, (size, wanted) in enumerate(zip(data, indices, strict=False)):
        if d != axis:
            case.at_least(size, wanted, f"the size along axis {d} of what elements are taken of")
    return (indices,)


def _extracted(case: Operands) -> tuple[Shape, ...]:
    """As many features as there are places; a vector is one row."""
    data = case.shape()
    if not data:
        raise Unknown
    return ((*(data[:-1] or (1,)), math.prod(case.shape(1))),)


def _gathered_nd(case: Operands) -> tuple[Shape, ...]:
    data, indices = case.shape(), case.shape(1)
    depth = indices[-1]
    if isinstance(depth, Size):
        raise Unknown
    return ((*indices[:-1], *data[case.attribute("batch_dims", 0) + depth :]),)


def _one_hot(case: Operands) -> tuple[Shape, ...]:
    indices, depth = list(case.shape()), case.ints(1)
    axis = case.axis("axis", -1, len(indices) + 1)
    return ((*indices[:axis], depth[0], *indices[axis:]),)


MOVEMENT: Mapping[str, Row] = MappingProxyType(
    {
        "CenterCropPad": _cropped,
        "Concat": _concatenated,
        "DepthToSpace": _depth_to_space,
        "Expand": _expanded,
        "Flatten": _flattened,
        "ai.onnx.ml.ArrayFeatureExtractor": _extracted,
        "Gather": _gathered,
        "GatherElements": _like_indices,
        "GatherND": _gathered_nd,
        "OneHot": _one_hot,
        "Pad": _padded,
        "Reshape": _reshaped,
        "Slice": _sliced,
        "SpaceToDepth": _space_to_depth,
        "Split": _split,
        "Squeeze": _squeezed,
        "Tile": _tiled,
        "Transpose": _transposed,
        "Unsqueeze": _unsqueezed,
    }
)
"""Rows by operator."""
