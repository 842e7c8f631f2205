"""Rows of the strip that are computed: what was fused in front of a convolution, or neighbouring channels in lanes.

Takes the element of the input as an expression; gives what writes a row of the strip, with its padding (`convolution.strip`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fusewise.codegen.families.convolution.shape import Convolution
from fusewise.codegen.families.convolution.strip import BlockCopy, padded_row
from fusewise.codegen.families.product.lanes import in_runs
from fusewise.codegen.families.product.places import unravel
from fusewise.codegen.families.product.tiles import lanes_for
from fusewise.codegen.llvm.elements import Elements
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tails import each_part
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import memory_type
from fusewise.ir.deciding import known_zero

__all__ = ["Fill", "computed_rows"]

Fill = Callable[[Int], Callable[[Value, Int, Int], None]]
"""`fill(batch)(target, slice, row)` writes one row of the strip."""

Line = Callable[[Mapping[str, Int], Value, int], None]
"""`line(indices, target, width)` writes the pixels of a row."""


def computed_rows(shape: Convolution, strip: BlockCopy, elements: Elements, pad: Value | None) -> Fill:
    """Writes padded rows of the strip by evaluating the element of the input; padding is bytes of 0, or `pad`."""
    line = _line(shape, elements) if shape.instruction.terms == 1 else _lane_line(shape, elements)
    return _padded_rows(elements.function, shape, strip, line, pad)


def _line(shape: Convolution, elements: Elements) -> Line:
    element = shape.computed
    assert element is not None
    f = elements.function
    lanes = lanes_for(elements.instructions, shape.channels)
    lanes = lanes if shape.channels >= lanes else 1

    along = f"p{len(shape.spatial) + 1}"

    def line(indices: Mapping[str, Int], at: Value, width: int) -> None:
        def pixel(w: Value, _: Sequence[Value]) -> None:
            def channels(channel: Int) -> None:
                value = elements.at({along: w, **indices, "p1": channel}, "p1", lanes).value(element)
                f.store(value, f.at(at, f.add(f.mul(w, shape.channels), channel)))

            each_part(f, shape.channels, lanes, channels)

        f.loop(0, width, 1, pixel, rolled=True)

    return line


def _lane_line(shape: Convolution, elements: Elements) -> Line:
    """Writes the channels of pixels as the narrow numbers that `computed` gives, with zeros where a lane is not full."""
    f, element, rank = elements.function, shape.computed, len(shape.spatial)
    assert element is not None
    narrow, bits = memory_type(element.dtype), element.dtype.bits
    names = [f"p{k + 2}" for k in range(len(shape.pixels))]
    channels = elements.task.anchored.operand_type(0).dims[1]
    pitch = shape.instruction.lane.bits // bits * shape.channels

    def placed(indices: Mapping[str, Int]) -> dict[str, Int]:
        """The indices of the input, from those of the pixels that are used."""
        at = [indices[f"p{k + 2}"] for k in range(rank)]
        if rank < len(names):
            at = unravel(f, at[0], [extent for extent, _ in shape.pixels])
        used = zip(names, at, shape.pixels, strict=True)
        return {"p0": indices["p0"], **{name: f.mul(place, step) for name, place, (_, step) in used}}

    def pixel(indices: Mapping[str, Int], at: Value) -> None:
        where = placed(indices)
        for absent in range(channels, pitch):
            f.store(f.constant(0, narrow), f.at(at, absent, narrow))

        def some(channel: Int, lanes: int) -> None:
            value = elements.at({**where, "p1": channel}, "p1", lanes).value(element)
            f.store(value, f.at(at, channel, narrow))

        in_runs(f, elements.instructions, channels, bits, some)

    def across(indices: Mapping[str, Int], at: Value, width: int) -> None:
        """Few channels: many pixels at once, whose channels are then laid side by side."""
        along = names[-1]

        def some(first: Int, lanes: int) -> None:
            where = placed({along: first, **indices})
            zero = f.constant(0, vector(narrow, lanes))
            each = [elements.at({**where, "p1": c}, along, lanes).value(element) for c in range(channels)]
            each += [zero] * (pitch - channels)
            f.store(_interleaved(f, each), f.at(at, f.mul(first, pitch), narrow))

        in_runs(f, elements.instructions, width, bits, some)

    def line(indices: Mapping[str, Int], at: Value, width: int) -> None:
        if pitch in (2, 4, 8) and shape.pixels[-1][1] == 1 and rank == len(names) and width > 1:
            across(indices, at, width)
            return
        along = f"p{rank + 1}"
        f.loop(0, width, 1, lambda w, _: pixel({along: w, **indices}, f.at(at, f.mul(w, pitch), narrow)), rolled=True)

    return line


def _interleaved(f: Function, parts: Sequence[Value]) -> Value:
    """The first lanes of all parts, then the second ones, ...; as many parts as a power of two."""
    if len(parts) == 1:
        return parts[0]
    even, odd = _interleaved(f, parts[::2]), _interleaved(f, parts[1::2])
    lanes = even.lanes
    return f.shuffle(even, odd, [k // 2 + lanes * (k % 2) for k in range(2 * lanes)])


def _padded_rows(f: Function, shape: Convolution, strip: BlockCopy, line: Line, pad: Value | None) -> Fill:
    """Writes rows of the strip with their padding; `line(indices, at, width)` writes all channels of `width` input pixels.

    The pixels run along the last of p0, p2, ..., which is missing from the indices where it is the width. Padding is bytes of 0
    or `pad`.
    """
    left, width, right = padded_row(strip.columns)
    names = [f"p{k + 2}" for k in range(len(shape.spatial))]

    def fill(batch: Int) -> Callable[[Value, Int, Int], None]:
        def row(at: Value, depth: Int, height: Int) -> None:
            inner = f.at(at, left * shape.channels)
            if not known_zero(left):
                f.clear(at, left * shape.channels * 4, byte=pad)
            if not known_zero(right):
                f.clear(f.at(inner, width * shape.channels), right * shape.channels * 4, byte=pad)
            # a signal lies along the rows of the strip, see `strip_of`
            known = [height] if strip.row_names[1] is None else [depth, height][3 - len(names) :]
            line({"p0": batch, **dict(zip(names, known, strict=False))}, inner, width)

        return row

    return fill
