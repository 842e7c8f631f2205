"""How much a node may ask for when data decide it, on the host: rounds of a loop, elements of a list, memory of a result.

What shapes decide is known before a model runs, and refused then; a number in a tensor may be anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from fusewise.errors import ResourceLimit
from fusewise.ir.graph import Node

__all__ = ["MOST_ROUNDS", "check_held", "check_rounds", "check_work", "is_limited", "result_bytes"]

MOST_ROUNDS = 200_000
"""Rounds of a Loop or Scan, and elements of a sequence: each takes Python some 50 microseconds and more."""

_MOST_HELD_BYTES = 1 << 32
"""What a Loop carries and has gathered."""

_MOST_SAMPLES = 1 << 36
"""Samples that a RoiAlign takes of its features, all boxes and channels together."""

_WORKING = frozenset({"SplitToSequence", "RoiAlign"})
"""Operators whose work is counted, whatever their results are."""

_Elements = Callable[[Node, Sequence[Any]], Any]
"""A number, mostly a whole one without end."""


def check_rounds(what: str, count: int) -> None:
    """Refuse more rounds than are let be."""
    if count > MOST_ROUNDS:
        raise ResourceLimit(f"{what} goes on for more than {MOST_ROUNDS:,} rounds, which is the limit on the host")


def check_held(what: str, nbytes: int) -> None:
    """Refuse what grows from round to round beyond what is let be."""
    if nbytes > _MOST_HELD_BYTES:
        raise ResourceLimit(f"{what} holds {nbytes:,} bytes; the limit is {_MOST_HELD_BYTES:,} on the host")


def is_limited(node: Node) -> bool:
    """May data make the node take all day, or all memory?"""
    return node.op in _WORKING or (not node.domain and node.op in _ELEMENTS)


def check_work(node: Node, operands: Sequence[Any]) -> None:
    """Refuse what would take all day: operands by place, None for absent ones."""
    if node.op not in _WORKING:
        return
    what = f"node {node.label!r} ({node.op})"
    if node.op == "SplitToSequence" and _is_array(operands[0]):
        check_rounds(what, _pieces(node, operands))
    if node.op == "RoiAlign" and all(map(_is_array, operands[:2])) and operands[1].ndim == 2:
        samples = _samples(node, *operands[:2])
        if samples > _MOST_SAMPLES:
            raise ResourceLimit(f"{what} would take {samples:,.0f} samples; the limit is {_MOST_SAMPLES:,}")


def result_bytes(node: Node, operands: Sequence[Any]) -> float:
    """The bytes of the largest result whose size data decide, from operands by place; 0 for other nodes, and where they fit
    nothing, which the evaluator then says."""
    rule = _ELEMENTS.get(node.op) if not node.domain else None
    if rule is None:
        return 0
    try:
        elements = rule(node, operands)
    except (ValueError, TypeError, IndexError, AttributeError, ArithmeticError):
        return 0
    sizes = [one.dtype.itemsize for one in operands if _is_array(one)]
    return float(elements * max(sizes, default=4))


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _given(operands: Sequence[Any], place: int) -> Any:
    return operands[place] if place < len(operands) else None


def _numbers(value: Any) -> list[Any]:
    """The elements of a tensor of numbers as Python's, which have no end."""
    found: list[Any] = np.asarray(value).reshape(-1).tolist()
    return found


def _pieces(node: Node, operands: Sequence[Any]) -> int:
    data, split = operands[0], _given(operands, 1)
    extent = data.shape[node.attribute("axis", 0)] if data.ndim else 0
    if split is None:
        return int(extent)
    return int(split.size) if split.ndim else -(-extent // max(1, int(split)))


def _samples(node: Node, features: np.ndarray, boxes: np.ndarray) -> float:
    """Along each axis as many as are asked for, or as a cell has pixels."""
    cells = np.array([node.attribute("output_width", 1), node.attribute("output_height", 1)], np.float64)
    ratio = node.attribute("sampling_ratio", 0)
    scaled = boxes.astype(np.float64) * node.attribute("spatial_scale", 1.0)
    with np.errstate(all="ignore"):
        extents = np.nan_to_num(np.abs(scaled[:, 2:] - scaled[:, :2]), posinf=0)  # what is not finite has none
    each = np.full_like(extents, ratio) if ratio > 0 else np.maximum(1, np.ceil(extents / cells))
    return float(features.shape[1] * math.prod(cells.tolist()) * np.sum(each[:, 0] * each[:, 1]))


# --- elements of results ------------------------------------------------------------------------------------------------


def _in_shape(place: int, times: Callable[[Sequence[Any]], float] = lambda operands: 1) -> _Elements:
    """The operand at `place` is a shape, of `times` as many elements."""
    return lambda node, operands: math.prod(_numbers(operands[place])) * times(operands)


def _range(node: Node, operands: Sequence[Any]) -> float:
    start, limit, delta = (_numbers(one)[0] for one in operands[:3])
    return max(0.0, float(limit - start) / float(delta))


def _expand(node: Node, operands: Sequence[Any]) -> int:
    return _broadcast_of([list(operands[0].shape), _numbers(operands[1])])


def _broadcast(node: Node, operands: Sequence[Any]) -> int:
    shape = operands[0].shape
    if all(one.shape == shape for one in operands):  # the usual case
        return int(operands[0].size)
    return _broadcast_of([list(one.shape) for one in operands if _is_array(one)])


def _broadcast_of(shapes: Sequence[list[int]]) -> int:
    rank = max(map(len, shapes))
    aligned = [[1] * (rank - len(shape)) + shape for shape in shapes]
    return int(math.prod(0 if 0 in dims else max(dims) for dims in zip(*aligned, strict=True)))


def _pad(node: Node, operands: Sequence[Any]) -> float:
    shape, pads = list(operands[0].shape), _numbers(operands[1])
    axes = _given(operands, 3)
    places = range(len(shape)) if axes is None else _numbers(axes)
    for number, axis in enumerate(places):
        shape[axis] += pads[number] + pads[number + len(pads) // 2]
    return float(math.prod(max(0, extent) for extent in shape))


def _resize(node: Node, operands: Sequence[Any]) -> float:
    shape, scales, sizes = list(operands[0].shape), _given(operands, 2), _given(operands, 3)
    places = node.attribute("axes") or range(len(shape))
    if sizes is not None and sizes.size:
        for axis, size in zip(places, _numbers(sizes), strict=True):
            shape[axis] = size
    elif scales is not None:
        for axis, scale in zip(places, _numbers(scales), strict=True):
            shape[axis] = shape[axis] * scale
    return float(math.prod(shape))


def _crop(node: Node, operands: Sequence[Any]) -> float:
    shape = list(operands[0].shape)
    for axis, size in zip(node.attribute("axes") or range(len(shape)), _numbers(operands[1]), strict=True):
        shape[axis] = size
    return float(math.prod(shape))


def _transformed(node: Node, operands: Sequence[Any]) -> float:
    """Of a signal that is padded to a length; a complex number has two elements."""
    length = _given(operands, 1)
    longest = max(_numbers(length)[0] if length is not None else 0, 1)
    return float(4 * operands[0].size * longest / max(1, min(operands[0].shape[1:-1], default=1)))


def _mel(node: Node, operands: Sequence[Any]) -> int:
    return int(_numbers(operands[0])[0] * (_numbers(operands[1])[0] // 2 + 1))


_WITH_BROADCAST = (
    "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or Pow"
    " PRelu Sub Sum Where Xor"
)

_ELEMENTS: Mapping[str, _Elements] = MappingProxyType(
    {
        **dict.fromkeys(_WITH_BROADCAST.split(), _broadcast),
        **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow", "ConstantOfShape"), _in_shape(0)),
        "AffineGrid": _in_shape(1, lambda operands: 6),
        "CenterCropPad": _crop,
        "Col2Im": _in_shape(1, lambda operands: math.prod(operands[0].shape[:2])),
        "Concat": lambda node, operands: sum(one.size for one in operands),
        "DFT": _transformed,
        "Expand": _expand,
        "MaxUnpool": _in_shape(2),
        "MelWeightMatrix": _mel,
        "OneHot": lambda node, operands: operands[0].size * _numbers(operands[1])[0],
        "Pad": _pad,
        "Range": _range,
        "Resize": _resize,
        "Tile": _in_shape(1, lambda operands: operands[0].size),
    }
)
"""By operator, how many elements its largest result has."""
