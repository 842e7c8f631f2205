"""Operators that only move elements: reshapes, transposes, slices, joins, pads, repeats."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np

from fusewise.ir.deciding import known_below, known_equal, known_one
from fusewise.ir.dtypes import INT64
from fusewise.ir.size import greatest, least
from fusewise.ops.cost import free
from fusewise.ops.edges import data_then, every
from fusewise.ops.expr import Expr, Index, binary, bounded, cast, compare, const, select
from fusewise.ops.indexing import (
    aligned,
    clamped,
    data_axis,
    dims,
    integers,
    known_integers,
    output_dims,
    reshaped,
    within,
)
from fusewise.ops.slices import slice_start
from fusewise.ops.spec import Call, Mapping, NotDefined, OpSpec, Sample
from fusewise.ops.window import inside

__all__ = ["MOVEMENT", "permutation", "slice_bounds", "split_offset"]

Define = Callable[[Call, int, Index], Expr]
_ONE = Mapping.ONE_TO_ONE


def row(
    name: str,
    define: Define,
    mapping: Callable[[Call], tuple[Mapping, ...]],
    samples: tuple[Sample, ...],
    shaped_by: tuple[int, ...] = (),
) -> OpSpec:
    """A copy: no arithmetic, linear in its data."""
    flags = frozenset({"linear", "copy"})
    return OpSpec(name, mapping=mapping, flops=free, define=define, flags=flags, samples=samples, shaped_by=shaped_by)


# -- one element, one place -------------------------------------------------------------------------------------------------


def _reshape(call: Call, output: int, at: Index) -> Expr:
    return call.at(0, *reshaped(at, output_dims(call), dims(call)))


def _reshape_kind(call: Call) -> Mapping:
    return _ONE if call.input(0).shape == call.output().shape else Mapping.REORGANIZE


def permutation(call: Call) -> tuple[int, ...]:
    """Output axis k of a Transpose is operand axis `permutation[k]`."""
    found = call.attribute("perm")
    return tuple(int(p) for p in found) if found else tuple(reversed(range(call.input(0).rank)))


def _transpose(call: Call, output: int, at: Index) -> Expr:
    order = permutation(call)
    return call.at(0, *(at[order.index(axis)] for axis in range(len(order))))


def _transpose_kind(call: Call) -> Mapping:
    """Moving only unit dimensions leaves the elements in their order: that is a reshape."""
    order = permutation(call)
    moved = [axis for axis in order if dims(call)[axis] != 1]
    if moved != sorted(moved):
        return Mapping.SHUFFLE
    return _reshape_kind(call)


def _depth_to_space(call: Call, output: int, at: Index) -> Expr:
    """A channel block of side b becomes a b x b square; DCR: the block index is the outer channel digit, CRD: the inner."""
    b = int(call.attribute("blocksize"))
    channels = output_dims(call)[1]
    inner = (at[2] % b) * b + at[3] % b
    outer_first = call.attribute("mode", "DCR") == "DCR"
    channel = inner * channels + at[1] if outer_first else at[1] * (b * b) + inner
    return call.at(0, at[0], channel, at[2] // b, at[3] // b)


def _space_to_depth(call: Call, output: int, at: Index) -> Expr:
    b = int(call.attribute("blocksize"))
    channels = dims(call)[1]
    if call.attribute("mode", "DCR") == "DCR":
        block, channel = at[1] // channels, at[1] % channels
    else:
        block, channel = at[1] % (b * b), at[1] // (b * b)
    return call.at(0, at[0], channel, at[2] * b + block // b, at[3] * b + block % b)


def _block_kind(call: Call) -> Mapping:
    return _ONE if int(call.attribute("blocksize")) == 1 else Mapping.SHUFFLE


def _reverse_sequence(call: Call, output: int, at: Index) -> Expr:
    time, batch = int(call.attribute("time_axis", 0)), int(call.attribute("batch_axis", 1))
    size = dims(call)[time]
    length = bounded(cast(call.at(1, at[batch]), INT64), 0, size, 1)
    back = clamped(select(compare("lt", at[time], length), length - 1 - at[time], at[time]), size)
    return call.at(0, *(back if axis == time else place for axis, place in enumerate(at)))


def _trilu(call: Call, output: int, at: Index) -> Expr:
    """The upper or lower triangle of the last two axes; the rest is zero."""
    x = call.at(0, *at)
    k = cast(call.at(1, *(0,) * call.input(1).rank), INT64) if call.has(1) else const(0)
    if call.is_known(1):
        k = const(call.known(1).reshape(-1).tolist()[0])
    keep = compare("ge" if call.attribute("upper", 1) else "le", at[-1] - at[-2], k)
    return select(keep, x, const(0, x.dtype))


# -- part of the elements ---------------------------------------------------------------------------------------------------


def slice_bounds(call: Call) -> tuple[tuple[int, int], ...]:
    """Start and step along every axis of a Slice; operands (or, in old models, attributes) must be known."""
    shape = dims(call)
    starts = known_integers(call, 1, "starts")
    axes = integers(call, 3, "axes")
    steps = integers(call, 4, "steps")
    bounds = [(0, 1)] * len(shape)
    places = range(len(starts)) if axes is None else axes
    for n, axis in enumerate(places):
        step = 1 if steps is None else steps[n]
        start = slice_start(starts[n], step, shape[axis])
        bounds[axis % len(shape)] = (start, step)
    return tuple(bounds)


def _slice(call: Call, output: int, at: Index) -> Expr:
    return call.at(0, *(place * step + start for place, (start, step) in zip(at, slice_bounds(call), strict=True)))


def _slice_kind(call: Call) -> Mapping:
    """Turning whole axes around keeps every element: a shuffle. Any other slice reads a part in order."""
    if call.input(0).shape != call.output().shape:
        return _ONE
    turned = any(
        step < 0 and not known_below(size, 2) for (_, step), size in zip(slice_bounds(call), dims(call), strict=True)
    )
    return Mapping.SHUFFLE if turned else _ONE


def split_offset(call: Call, output: int) -> int:
    """Where an output of a Split begins along its axis."""
    given = call.constant(1)
    if given is not None:
        return sum(given.tolist()[:output])
    sizes = integers(call, 1, "split")
    if sizes is not None:
        return sum(sizes[:output])
    size = dims(call)[data_axis(call, 0)]
    begin: int = least(size, output * -(-size // int(call.attribute("num_outputs", len(call.outputs)))))
    return begin


def _split(call: Call, output: int, at: Index) -> Expr:
    axis, offset = data_axis(call, 0), split_offset(call, output)
    return call.at(0, *(place + offset if d == axis else place for d, place in enumerate(at)))


def _concat(call: Call, output: int, at: Index) -> Expr:
    """A chain of selections: the first operand whose end lies beyond the index."""
    axis = data_axis(call, 0)
    ends = tuple(accumulate(dims(call, i)[axis] for i in range(len(call.inputs))))
    found: Expr | None = None
    for i in reversed(range(len(call.inputs))):
        size = dims(call, i)[axis]
        if known_equal(size, 0):
            continue
        begin = ends[i] - size
        whole, own = output_dims(call), dims(call, i)
        part = call.at(i, *(at[d] - begin if d == axis else within(at[d], own[d], whole[d]) for d in range(len(at))))
        found = part if found is None else select(compare("lt", at[axis], ends[i]), part, found)
    return const(0, call.output().dtype) if found is None else found


def _crop_or_pad(call: Call, output: int, at: Index) -> Expr:
    """Crops or zero-pads around the centre; the odd element goes to the end."""
    shape, target = dims(call), output_dims(call)
    condition: Expr | None = None
    position: list[Expr] = []
    for place, have, want in zip(at, shape, target, strict=True):
        if known_below(want, have + 1):
            position.append(place + (have - want) // 2)
            continue
        shifted = place - (greatest(want - have, 0) // 2 - greatest(have - want, 0) // 2)
        test = inside(shifted, have)
        condition = test if condition is None else binary("and", condition, test)
        position.append(shifted)
    x = call.at(0, *position)
    return x if condition is None else select(condition, x, const(0, x.dtype))


# -- one element, many places -----------------------------------------------------------------------------------------------


def _expand(call: Call, output: int, at: Index) -> Expr:
    return call.at(0, *aligned(call, 0, at))


def _expand_kind(call: Call) -> Mapping:
    return _reshape_kind(call) if call.input(0).size == call.output().size else Mapping.ONE_TO_MANY


def _tile(call: Call, output: int, at: Index) -> Expr:
    position = (
        place if known_equal(n, m) else place % n for place, n, m in zip(at, dims(call), output_dims(call), strict=True)
    )
    return call.at(0, *position)


def _tile_kind(call: Call) -> Mapping:
    return _ONE if call.input(0).shape == call.output().shape else Mapping.ONE_TO_MANY


def _pads(call: Call) -> tuple[tuple[int, int], ...]:
    """Elements added (or, negative, removed) before and after every axis."""
    rank = call.input(0).rank
    given = known_integers(call, 1, "pads")
    axes = integers(call, 3, "axes")
    places = tuple(range(rank)) if axes is None else tuple(axis % rank for axis in axes)
    found = [(0, 0)] * rank
    for n, axis in enumerate(places):
        found[axis] = (given[n], given[n + len(places)])
    return tuple(found)


def _pad(call: Call, output: int, at: Index) -> Expr:
    mode = call.attribute("mode", "constant")
    shape, pads = dims(call), _pads(call)
    shifted = [place - before for place, (before, _) in zip(at, pads, strict=True)]
    if mode != "constant":
        inner = (_repeated(mode, place, n, p) for place, n, p in zip(at, shape, pads, strict=True))
        return call.at(0, *inner)
    condition: Expr | None = None
    for place, size, (before, after) in zip(shifted, shape, pads, strict=True):
        tests = [compare("ge", place, 0)] * (not known_below(before, 1))
        tests += [compare("lt", place, size)] * (not known_below(after, 1))
        for test in tests:
            condition = test if condition is None else binary("and", condition, test)
    x = call.at(0, *shifted)
    return x if condition is None else select(condition, x, _fill(call))


def _fill(call: Call) -> Expr:
    dtype = call.input(0).dtype
    if not call.has(2):
        return const(call.attribute("value", 0), dtype)
    known = call.constant(2)
    if known is not None:
        return const(known.reshape(-1).tolist()[0], dtype)
    return call.at(2, *(0,) * call.input(2).rank)


def _repeated(mode: str, place: Expr, size: int, pads: tuple[int, int]) -> Expr:
    """The element at `place` of an axis padded by itself: negative pads cut off first, and what is left repeats."""
    if all(known_equal(pad, 0) for pad in pads):
        return place
    before: int = greatest(-pads[0], 0)
    after: int = greatest(-pads[1], 0)
    added: int = greatest(pads[0], 0)
    return _mirrored(mode, place - added, greatest(size - before - after, 1)) + before


def _mirrored(mode: str, place: Expr, size: int) -> Expr:
    if mode == "edge":
        return clamped(place, size)
    if mode == "wrap":
        return place % size
    if mode != "reflect":
        raise NotDefined(f"Pad in mode {mode!r}")
    if known_one(size):
        return const(0)
    period = 2 * (size - 1) if known_below(1, size) else greatest(2 * (size - 1), 1)
    folded = place % period
    return binary("min", folded, const(period) - folded)


def _pad_kind(call: Call) -> Mapping:
    padded = not all(known_below(pad, 1) for both in _pads(call) for pad in both)
    repeats = padded and call.attribute("mode", "constant") != "constant"
    return Mapping.ONE_TO_MANY if repeats else _ONE


def _i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _f32(*shape: int) -> tuple[str, tuple[int, ...]]:
    return "float32", shape


def _many(inputs: tuple[Any, ...], *attributes: dict[str, Any]) -> tuple[Sample, ...]:
    return tuple(Sample(inputs, a) for a in attributes)


_BLOCKS = ({"blocksize": 2}, {"blocksize": 2, "mode": "CRD"})

MOVEMENT: tuple[OpSpec, ...] = (
    row(
        "Reshape",
        _reshape,
        data_then(_reshape_kind, (1,)),
        (
            Sample((_f32(2, 3, 4), _i64(4, -1))),
            Sample((_f32(2, 3, 4), _i64(2, 12))),
            Sample((_f32(4, 6), _i64(2, 2, 3, 2))),
            Sample((_f32(0, 3), _i64(3, 0)), {"allowzero": 1}),
            Sample((("float16", (2, 3)), _i64(2, 3))),
            Sample((_f32(1), _i64())),
        ),
        shaped_by=(1,),
    ),
    row("Flatten", _reshape, data_then(_reshape_kind), _many((_f32(2, 3, 4),), {}, {"axis": 2}, {"axis": 0})),
    row(
        "Squeeze",
        _reshape,
        data_then(_reshape_kind, (1,)),
        (Sample((_f32(2, 1, 3, 1), _i64(1))), Sample((_f32(1, 3, 1),))),
        shaped_by=(1,),
    ),
    row(
        "Unsqueeze",
        _reshape,
        data_then(_reshape_kind, (1,)),
        (Sample((_f32(2, 3), _i64(0, -1))), Sample((_f32(3), _i64(1)))),
        shaped_by=(1,),
    ),
    row(
        "Transpose",
        _transpose,
        data_then(_transpose_kind),
        (
            Sample((_f32(2, 3, 4),)),
            Sample((_f32(2, 3, 4),), {"perm": (1, 2, 0)}),
            Sample((_f32(2, 1, 3),), {"perm": (1, 0, 2)}),
            Sample((("int64", (2, 3)),), {"perm": (0, 1)}),
        ),
    ),
    row("DepthToSpace", _depth_to_space, data_then(_block_kind), _many((_f32(1, 8, 2, 3),), *_BLOCKS)),
    row("SpaceToDepth", _space_to_depth, data_then(_block_kind), _many((_f32(1, 2, 4, 6),), *_BLOCKS)),
    row(
        "ReverseSequence",
        _reverse_sequence,
        data_then(Mapping.SHUFFLE),
        (Sample((_f32(4, 3), _i64(4, 2, 3))), Sample((_f32(2, 4), _i64(4, 3)), {"time_axis": 1, "batch_axis": 0})),
    ),
    row(
        "Trilu",
        _trilu,
        data_then(_ONE),
        (
            Sample((_f32(3, 4),)),
            Sample((_f32(2, 3, 3), np.array(-1, np.int64)), {"upper": 0}),
            Sample((("int32", (4, 4)), np.array(1, np.int64))),
        ),
    ),
    row(
        "Slice",
        _slice,
        data_then(_slice_kind, (1, 2, 3, 4)),
        (
            Sample((_f32(4, 5), _i64(1, 0), _i64(3, -1), _i64(0, 1))),
            Sample(
                (
                    _f32(
                        6,
                    ),
                    _i64(-1),
                    _i64(-100),
                    _i64(0),
                    _i64(-1),
                )
            ),
            Sample((_f32(4, 6), _i64(1), _i64(100), _i64(-1), _i64(2))),
            Sample((_f32(4, 3), _i64(2), _i64(1))),
        ),
    ),
    row(
        "Concat",
        _concat,
        every(_ONE),
        (
            Sample((_f32(2, 3), _f32(1, 3), _f32(2, 3)), {"axis": 0}),
            Sample((_f32(2, 0), _f32(2, 3)), {"axis": -1}),
            Sample((("int64", (2,)), ("int64", (1,))), {"axis": 0}),
        ),
    ),
    row(
        "Split",
        _split,
        data_then(_ONE, (1,)),
        (Sample((_f32(5, 2), _i64(2, 3)), outputs=2), Sample((_f32(2, 7),), {"axis": -1, "num_outputs": 3}, outputs=3)),
        shaped_by=(1,),
    ),
    row(
        "CenterCropPad",
        _crop_or_pad,
        data_then(_ONE, (1,)),
        (Sample((_f32(5, 4), _i64(2, 7))), Sample((_f32(3, 6), _i64(3)), {"axes": (1,)})),
        shaped_by=(1,),
    ),
    row(
        "Pad",
        _pad,
        data_then(_pad_kind, (1, 3)),
        (
            Sample((_f32(2, 3), _i64(1, 0, 0, 2))),
            Sample((_f32(2, 3), _i64(1, 2), np.array(1.5, np.float32), _i64(1))),
            Sample((_f32(2, 4), _i64(1, 2, 1, 5)), {"mode": "reflect"}),
            Sample((_f32(2, 3), _i64(1, 2, 0, 1)), {"mode": "edge"}),
            Sample((_f32(2, 3), _i64(1, 2, 0, 4)), {"mode": "wrap"}),
            Sample((_f32(2, 3), _i64(1, 1, 1, 1), _f32())),
        ),
    ),
    row(
        "Expand",
        _expand,
        data_then(_expand_kind, (1,)),
        (
            Sample((_f32(3, 1), _i64(2, 1, 4))),
            Sample((_f32(3), _i64(1, 3))),
            Sample((_f32(), _i64(2, 2))),
            Sample((_f32(1, 3), _i64(0, 3))),
        ),
        shaped_by=(1,),
    ),
    row(
        "Tile",
        _tile,
        data_then(_tile_kind, (1,)),
        (Sample((_f32(2, 3), _i64(2, 1))), Sample((_f32(2, 1), _i64(1, 1)))),
        (1,),
    ),
)
