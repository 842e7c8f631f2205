"""Input rows of a convolution, copied with their padding into scratch memory that stays in the second cache level.

The copy costs a percent or two of the arithmetic it feeds, and after it no tap needs a bounds check. Three layouts:

    channels last  [tap slice][row][column][channel]            the taps of a row and the channels are one run of memory
    by groups      [tap slice][row][group][column][channel]     the same for each group, or for those that share a vector
    planar         [tap slice][row][channel][column]            for inputs stored so, such as the image a network begins with

By groups, the pixels that a tile reads lie next to each other. Otherwise they are all channels apart, often a power of two, and
then compete for a few places of the first cache level.

Rows outside the input, and columns left and right of it, are zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewise.codegen.families.convolution.shape import ABSENT, Convolution, Spatial
from fusewise.codegen.families.product.plan import RowAxis
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tile import ReductionLoop
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.nest.types import memory_type
from fusewise.ir.deciding import known_below, known_equal, known_zero
from fusewise.ir.dtypes import DType
from fusewise.ir.size import greatest, least
from fusewise.records import record

__all__ = ["BlockCopy", "CopiedRows", "emit_strip", "existing_taps", "joined_levels", "padded_row", "strip_of"]


@record(frozen=True)
class BlockCopy:
    """The copy of one block: geometry in three axes (absent ones have extent 1) and strides in elements.

    `together` channels lie side by side: all of them, those of a group or of some groups, or one (planar). `row_names` are the
    output indices of the row and column axes, `slice_name` that of the outermost of three.
    """

    dtype: DType
    channels: int
    together: int
    planar: bool
    slices: Spatial
    rows: Spatial
    columns: Spatial
    slice_name: str | None
    row_names: tuple[str | None, str | None]
    source_strides: tuple[int, int, int]
    channel_stride: int

    @property
    def pixel_pitch(self) -> int:
        return self.together

    @property
    def channel_pitch(self) -> int:
        """Elements from a channel to the next of the same group."""
        return self.columns.covered if self.planar else 1

    @property
    def plane_pitch(self) -> int:
        """Elements from `together` channels to the next."""
        return self.columns.covered * self.together

    @property
    def row_pitch(self) -> int:
        return self.columns.covered * self.channels

    def axes(self) -> tuple[RowAxis, ...]:
        """The row axes of the product, as they lie in the strip."""
        found = []
        for name, spatial, pitch in zip(
            self.row_names, (self.rows, self.columns), (self.row_pitch, self.pixel_pitch), strict=True
        ):
            if name is not None:
                found.append(RowAxis(name, spatial.out, spatial.stride * pitch))
        return tuple(found)

    def height(self, pixels: int) -> int:
        """Input rows that `pixels` consecutive outputs may span, wherever they begin."""
        spanned: int = least(self.rows.out, (pixels + self.columns.out - 2) // self.columns.out + 1)
        return (spanned - 1) * self.rows.stride + self.rows.reach

    def elements(self, pixels: int) -> int:
        """Size of the strip for blocks of `pixels` outputs."""
        return self.slices.kernel * self.height(pixels) * self.row_pitch

    def levels(self, inputs: int, slice_pitch: int, low: Int = 0, high: Int | None = None) -> tuple[ReductionLoop, ...]:
        """The reduction over taps and the `inputs` channels of a group, outermost first."""
        channel = ReductionLoop(inputs, self.channel_pitch)
        tap = ReductionLoop(self.columns.kernel, self.columns.dilation * self.pixel_pitch)
        found = [
            ReductionLoop(self.slices.kernel, slice_pitch, low, high),
            ReductionLoop(self.rows.kernel, self.rows.dilation * self.row_pitch),
            *((channel, tap) if self.planar else (tap, channel)),
        ]
        return joined_levels(found)


def joined_levels(levels: Sequence[ReductionLoop]) -> tuple[ReductionLoop, ...]:
    """Loops of one step dropped, and neighbours joined where their strides continue each other."""
    found: list[ReductionLoop] = []
    for level in levels:
        if level.extent == 1 and level.high is None:
            continue
        last = found[-1] if found else None
        if last is not None and last.high is None and known_equal(last.stride, level.extent * level.stride):
            found[-1] = ReductionLoop(last.extent * level.extent, level.stride)
        else:
            found.append(level)
    return tuple(found) if found else (ReductionLoop(1, 0),)


def strip_of(shape: Convolution, groups: int | None = None) -> BlockCopy:
    """The layout of the strip that suits how the input is stored; by so many groups each, if given."""
    strides = shape.data.strides
    planar = shape.planar
    axes = list(zip(shape.spatial, shape.out_axes, strides[2:], strict=True))
    if len(axes) == 1 and not planar:
        # a signal with channels last is a column of rows, so that blocks cut it along its length
        axes.append((ABSENT, "", 0))
    while len(axes) < 3:
        axes.insert(0, (ABSENT, "", 0))
    (slices, slice_name, s), (rows, row_name, r), (columns, column_name, c) = axes
    return BlockCopy(
        shape.dtype,
        shape.channels,
        1 if planar else shape.channels if groups is None else groups * shape.inputs,
        planar,
        slices,
        rows,
        columns,
        slice_name or None,
        (row_name or None, column_name or None),
        (s, r, c),
        strides[1],
    )


@record(frozen=True)
class CopiedRows:
    """Where rows of a strip come from and go to: a batch element begins `offset` elements after `source`, tap slices lie
    `slice_pitch` apart after `target`.

    `fill(target, slice, row)` writes one row when it must be computed; by default it is copied. Rows that do not exist are bytes
    of 0, or `pad`.
    """

    source: Value
    offset: Int
    target: Value
    slice_pitch: int
    fill: Callable[[Value, Int, Int], None] | None = None
    pad: Value | None = None


def emit_strip(f: Function, strip: BlockCopy, copied: CopiedRows, slice_at: Int, first: Int, last: Int) -> None:
    """Copy what output rows first..last of one output slice need."""
    size = strip.dtype.itemsize
    stored = memory_type(strip.dtype)
    low, high = existing_taps(f, strip.slices, slice_at)
    top = f.sub(f.mul(first, strip.rows.stride), strip.rows.before)
    count = f.add(f.mul(f.sub(last, first), strip.rows.stride), strip.rows.reach)

    def row(tap: Int, r: Int) -> None:
        at = f.at(copied.target, f.add(f.mul(tap, copied.slice_pitch), f.mul(r, strip.row_pitch)), stored)
        height = f.add(top, r)
        depth = f.sub(
            f.add(f.mul(slice_at, strip.slices.stride), f.mul(tap, strip.slices.dilation)), strip.slices.before
        )
        from_row = f.add(
            copied.offset, f.add(f.mul(depth, strip.source_strides[0]), f.mul(height, strip.source_strides[1]))
        )

        def present() -> None:
            if copied.fill is None:
                _copy_row(f, strip, copied.source, from_row, at)
            else:
                copied.fill(at, depth, height)

        inside = f.compare("icmp ult", height, strip.rows.extent)
        f.when(inside, present, lambda: f.clear(at, strip.row_pitch * size, byte=copied.pad))

    def slice_rows(tap: Int) -> None:
        f.loop(0, count, 1, lambda r, _: row(tap, r), rolled=True)

    if strip.slices.kernel == 1 and strip.slices.is_inside:
        slice_rows(0)
        return
    f.loop(low, high, 1, lambda tap, _: slice_rows(tap), rolled=True)


def existing_taps(f: Function, axis: Spatial, at: Int) -> tuple[Int, Int]:
    """The taps of an output position that lie in the input."""
    if axis.is_inside:
        return 0, axis.kernel
    start = f.sub(axis.before, f.mul(at, axis.stride))
    low = f.udiv(f.add(f.maximum(start, 0), axis.dilation - 1), axis.dilation)
    room = f.maximum(f.add(start, axis.extent), 0)
    high = f.minimum(f.udiv(f.add(room, axis.dilation - 1), axis.dilation), axis.kernel)
    return low, high


def padded_row(columns: Spatial) -> tuple[int, int, int]:
    """Positions of a row of the strip: padding, what is in the input, padding."""
    left = least(columns.before, columns.covered)
    width = greatest(0, least(columns.extent, columns.covered - left))
    return left, width, columns.covered - left - width


def _copy_row(f: Function, strip: BlockCopy, source: Value, from_row: Int, at: Value) -> None:
    """One input row with its left and right padding."""
    stored, size = memory_type(strip.dtype), strip.dtype.itemsize
    columns = strip.columns
    left, width, right = padded_row(columns)
    lines, unit = strip.channels // strip.together, strip.together
    step = strip.source_strides[2]

    def line(c: Int) -> None:
        start = f.at(at, f.mul(c, strip.plane_pitch), stored)
        origin = f.add(from_row, f.mul(c, unit * strip.channel_stride))
        inner = f.at(start, left * unit, stored)
        if not known_zero(left):
            f.clear(start, left * unit * size)
        if not known_zero(right):
            f.clear(f.at(start, (left + width) * unit, stored), right * unit * size)
        if known_equal(step, unit) or known_below(width, 2):
            if not known_zero(width):
                f.copy(inner, f.at(source, origin, stored), width * unit * size)
            return

        def pixel(w: Value, _: Sequence[Value]) -> None:
            here = f.at(source, f.add(origin, f.mul(w, step)), stored)
            there = f.at(inner, f.mul(w, unit), stored)
            if unit == 1:
                f.store(f.load(stored, here), there)
            else:
                f.copy(there, here, unit * size)

        f.loop(0, width, 1, pixel, rolled=True)

    if lines == 1:
        line(0)
    else:
        f.loop(0, lines, 1, lambda c, _: line(c), rolled=True)
