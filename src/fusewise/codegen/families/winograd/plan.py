"""What Winograd's convolutions work on, and in which sizes.

Takes the geometry of a convolution with two or three spatial axes, and a schedule; gives `Planes` and a `WinogradPlan`. Of three
axes the first, the slices, is reduced over as the channels are: taps and channels of a slice lie side by side, and each
transform sees planes only. Where the first axis alone has taps, it is the rows of a plane, and the second counts slices.

A convolution of stride 2 is one of stride 1 over its phases: every second row and column of the input is an input channel of
its own, with every second tap. Phases of few channels are set side by side to fill a vector (`winograd.stage`), those of many
follow each other. A phase that lacks the last tap of the others is zero at infinity, and nothing is multiplied there.

A dilated convolution is one without dilation on each lattice of its outputs (`winograd.tiles`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from fusewise.codegen.families.convolution.shape import ABSENT, Convolution, Spatial
from fusewise.codegen.families.winograd.tiles import AxisTiling, Grid
from fusewise.codegen.families.winograd.transform import PlaneForm, forms_of
from fusewise.codegen.llvm.stores import Far
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.nest.tree import Int
from fusewise.codegen.target import LINE_BYTES
from fusewise.records import record

__all__ = ["ChannelBlock", "FreeWinogradSchedule", "Planes", "WinogradPlan", "WinogradSchedule", "plan_of", "planes_of"]

LINE_ELEMENTS = LINE_BYTES // 4
"""float32 elements of a cache line."""

MANY_CHANNELS = 16
"""Input channels from which on the phases of a stride of 2 are transformed each by itself."""


@record(frozen=True)
class Planes:
    """A convolution in `rows` and `columns` of stride 1 or 2, or of stride 1 and any dilation; `slices` are as they like.
    `strides` are those of the data's axes.

    `order` says which spatial axes of the convolution these are, the slices left out where there are two. `free`: sizes are not
    known, also where schedules are made for some.
    """

    shape: Convolution
    slices: Spatial
    rows: Spatial
    columns: Spatial
    strides: tuple[int, int, int]
    order: tuple[int, ...]
    free: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Output indices of the axes, in their order here."""
        return tuple(self.shape.out_axes[k] for k in self.order)

    @property
    def phases(self) -> int:
        """Phases of a plane: rows first, then columns."""
        return self.rows.stride * self.columns.stride

    @property
    def channels(self) -> int:
        """What is reduced over beside the taps of a plane: for each phase, for each slice tap, the input channels."""
        return self.phases * self.slices.kernel * self.shape.inputs

    @property
    def sides(self) -> tuple[int, int]:
        """Taps along rows and columns that each phase has, the missing ones of odd phases included."""
        return -(-self.rows.kernel // self.rows.stride), -(-self.columns.kernel // self.columns.stride)

    def taps_of(self, phase: int) -> tuple[int, int]:
        """Taps along rows and columns of a phase, of those that are one after the other; of all channels where they are not."""
        short = self.is_short(phase) if self.is_phased else (False, False)
        rows, columns = (side - lacks for side, lacks in zip(self.sides, short, strict=True))
        return rows, columns

    def taps_before(self, phase: int) -> int:
        """Taps of all channels of the phases before one."""
        return sum(self.channels // self.phases * math.prod(self.taps_of(k)) for k in range(phase))

    @property
    def taps(self) -> int:
        """Taps of all channels: what is packed of one output's filter."""
        return self.taps_before(self.phases)

    @property
    def is_staged(self) -> bool:
        """Are phases set side by side before they are transformed?"""
        return self.phases > 1 and self.shape.inputs < MANY_CHANNELS

    def is_short(self, phase: int) -> tuple[bool, bool]:
        """Does a phase, of those that are one after the other, lack the last tap along rows, along columns?"""
        axes, which = (self.rows, self.columns), divmod(phase, self.columns.stride)
        high, wide = (
            k + axis.stride * (side - 1) >= axis.kernel for k, axis, side in zip(which, axes, self.sides, strict=True)
        )
        return high, wide

    @property
    def is_phased(self) -> bool:
        """Are phases transformed one after the other?"""
        return self.phases > 1 and not self.is_staged

    def grid(self, form: PlaneForm, trimmed: bool = True) -> Grid:
        """Its tiles; `trimmed`, the last ones of an axis may be shorter. The rows of a stage are those of one row of tiles."""
        rows, columns = (
            AxisTiling(axis, scheme.tile, trimmed and not self.is_staged and scheme.shorter is not None)
            for axis, scheme in ((self.rows, form.rows), (self.columns, form.columns))
        )
        return Grid(self.shape.batch, self.slices.out, rows, columns)

    @property
    def is_in_line(self) -> bool:
        """Has one axis alone taps?"""
        return 1 in (self.rows.kernel, self.columns.kernel)

    @property
    def forms(self) -> tuple[PlaneForm, ...]:
        """Winograd's forms for it."""
        return forms_of(*self.sides)


def planes_of(shape: Convolution) -> Planes | None:
    """The planes of an ungrouped convolution that has a Winograd form; None for others."""
    if len(shape.spatial) not in (2, 3) or shape.groups > 1:
        return None
    order = (0, 1, 2)[: len(shape.spatial)]
    if len(order) == 3 and all((axis.kernel, axis.stride, axis.dilation) == (1, 1, 1) for axis in shape.spatial[1:]):
        order = (1, 0, 2)
    axes, strides = [shape.spatial[k] for k in order], [shape.data.strides[2 + k] for k in order]
    if len(axes) == 2:
        axes.insert(0, ABSENT)
        strides.insert(0, 0)
    slices, rows, columns = axes
    rows, columns = (replace(axis, dilation=1) if axis.kernel == 1 else axis for axis in (rows, columns))
    if max(rows.stride, columns.stride) > 1 < max(rows.dilation, columns.dilation):
        return None
    found = sorted((axis.kernel, axis.stride) for axis in (rows, columns))
    if found not in _known(shape.inputs >= MANY_CHANNELS):
        return None
    return Planes(shape, slices, rows, columns, (strides[0], strides[1], strides[2]), order, shape.is_free)


def _known(many: bool) -> list[list[tuple[int, int]]]:
    """Taps and strides of both axes, the fewer taps first, that have a form, for many channels or few.

    At stride 1, two axes of 7 taps lose too much precision; at stride 2, one axis of 3 taps saves too little.
    """
    plain = [[(a, 1), (b, 1)] for a, b in ((1, 3), (1, 5), (1, 7), (3, 3), (3, 5), (5, 5))]
    if not many:
        return [*plain, [(5, 2), (5, 2)], [(7, 2), (7, 2)]]
    return [*plain, [(3, 2), (3, 2)], [(1, 1), (5, 2)], [(1, 1), (7, 2)]]


@record(frozen=True)
class WinogradSchedule:
    """Which form computes a convolution, how it is cut, where its filters are transformed, and what is fetched meanwhile.

    - `outputs`: of a tile of the form, along an axis that is transformed. `tile`: of accumulators in registers, whose rows are
      tiles of the form.
    - `per_strip`: register tiles to a strip. `depth`: input channels to a block. `together`: panels to a group.
    - `filters`: where transformed ones are: "memory"; "pairs", there too, two rows of positions at a time; "registers", again for
      every register tile; or "lines", transformed along the columns in memory and along the rows in registers, `abreast` positions
      of a row at a time.
    - `short`: may tiles be shorter with filters in registers and several register tiles? What a strip takes then depends on its
      tiles.
    - `runs`: in how many runs the channels of a block are added up, where these are a multiple of it and filters in memory.
    - `ahead`: are the inputs of the next position fetched during the products of one? `fetches_inputs`: is memory for transformed
      inputs fetched before it is written? `far`: what the stores touch that is fetched, too.
    """

    outputs: int
    tile: Tile
    per_strip: int
    depth: int
    together: int = 1
    filters: str = "memory"
    abreast: int = 0
    short: bool = False
    runs: int = 1
    ahead: bool = False
    fetches_inputs: bool = False
    far: Far = Far()


@record(frozen=True)
class FreeWinogradSchedule(WinogradSchedule):
    """The same where sizes are not known: for `most` tiles and fewer, where that is not 0. Is its grid such that `trims` tiles?
    Otherwise they are of one size, and of each output is asked whether it exists."""

    most: int = 0
    trims: bool = False


class ChannelBlock(NamedTuple):
    """Input channels of a phase that are reduced together: the first, and how many."""

    start: Int
    extent: int
    phase: int = 0


@record(frozen=True)
class WinogradPlan:
    """Sizes of one convolution by a schedule with no more rows, strips, panels and channels than there are."""

    planes: Planes
    form: PlaneForm
    schedule: WinogradSchedule

    @property
    def tile(self) -> Tile:
        return self.schedule.tile

    @property
    def depth(self) -> int:
        """Input channels of a block."""
        return self.schedule.depth

    @property
    def in_registers(self) -> bool:
        return self.schedule.filters == "registers"

    @cached_property
    def grid(self) -> Grid:
        """Winograd tiles of the whole output."""
        if isinstance(self.schedule, FreeWinogradSchedule):
            return self.planes.grid(self.form, self.schedule.trims)
        whole = self.planes.grid(self.form)
        trims = self.schedule.short or not self.in_registers or whole.tiles <= self.tile.rows
        return whole if trims else self.planes.grid(self.form, False)

    @property
    def tiles(self) -> int:
        return self.grid.tiles

    def kept(self, phase: int) -> tuple[int, int]:
        """Rows and columns of positions where the filters of a phase are not zero."""
        lacking = zip(self.form, self.planes.taps_of(phase), strict=True)
        high, wide = (scheme.span - scheme.taps + taps for scheme, taps in lacking)
        return high, wide

    @property
    def steps(self) -> int:
        """Register tiles that cover them."""
        return -(-self.tiles // self.tile.rows)

    @property
    def strips(self) -> int:
        return -(-self.steps // self.schedule.per_strip)

    @property
    def skips_columns(self) -> bool:
        """Have register tiles of short columns code of their own? Code of phases is there for each already: twice as much takes
        LLVM twice as long, for a twentieth of the products."""
        return not self.planes.is_phased

    @property
    def weights(self) -> list[tuple[int, int]]:
        """Numbers of strips one after the other, and the work of each of them: the positions that its register tiles take."""
        if not self.in_registers or self.planes.free or self.strips == 1:
            return [(self.strips, 1)]
        rows, columns = self.form
        each = [0] * self.strips
        for step in range(self.steps):
            long = self.grid.is_long(step * self.tile.rows, (step + 1) * self.tile.rows)
            wide = columns.span - (self.skips_columns and not long[1])
            each[step // self.schedule.per_strip] += (rows.span - (not long[0])) * wide
        return [(len(list(alike)), weight) for weight, alike in groupby(each)]

    @property
    def panels(self) -> int:
        return -(-self.planes.shape.outputs // self.tile.width)

    @property
    def is_written_once(self) -> bool:
        """Do panels fit, so that none is moved back over its neighbour? Of tiles only outputs that exist are written."""
        return self.planes.shape.outputs % self.tile.width == 0

    @property
    def group_width(self) -> int:
        """Output channels of a group."""
        return self.schedule.together * self.tile.width

    @property
    def places(self) -> int:
        """Tiles that a strip has memory for. A run of tiles that begins within a register tile ends beyond the last one."""
        within = not self.in_registers and len(self.grid.regions) > 1
        return (self.schedule.per_strip + within) * self.tile.rows

    @property
    def in_blocks(self) -> bool:
        """Whether the transformed inputs of a block lie together, those of all tiles; no vector then belongs to two blocks."""
        lanes = self.tile.lanes
        return self.depth < self.planes.channels and self.depth % lanes == self.planes.shape.inputs % lanes == 0

    @property
    def stage_columns(self) -> int:
        """Pixels of a row of the stage: as many as the tiles of a row span."""
        scheme = self.form.columns
        return (self.grid.columns.count - 1) * scheme.tile + scheme.span

    @property
    def stage(self) -> int:
        """Elements of the stage, of a pixel as many as of the transformed inputs of a tile."""
        return self.form.rows.span * self.stage_columns * self.row_pitch if self.planes.is_staged else 0

    @property
    def zeros(self) -> int:
        """Elements of zeros in scratch memory: a row of the input, where that is staged and how long it is is not known."""
        planes = self.planes
        return planes.columns.extent * planes.strides[2] if planes.free and planes.is_staged else 0

    @property
    def row_pitch(self) -> int:
        """Elements between the transformed inputs of one tile and the next."""
        if self.planes.is_staged:
            return -(-self.planes.channels // self.tile.lanes) * self.tile.lanes
        return self.depth if self.in_blocks else self.planes.channels

    @property
    def block_step(self) -> int:
        """Elements between the transformed inputs of one block and the next, for each of its channels."""
        return self.places if self.in_blocks else 1

    @property
    def input_pitch(self) -> int:
        """Elements of one position of the transformed inputs."""
        blocks = -(-self.planes.channels // self.row_pitch)
        return _spread(self.places * blocks * self.row_pitch)

    @property
    def filter_pitch(self) -> int:
        """Elements of one position of the transformed filters in memory."""
        return _spread(self.depth * self.group_width)

    @property
    def line_pitch(self) -> int:
        """Elements of one row of filters transformed along their columns."""
        return self.depth * self.planes.sides[1] * self.tile.width

    def line_rows(self, phase: int) -> range:
        """The rows of positions whose filters have to be transformed along the columns; the others are taps as they are."""
        scheme, (taps, _), (rows, _) = self.form.rows, self.planes.taps_of(phase), self.kept(phase)
        made = [row for row in range(rows) if scheme.tap_at(row, taps) is None]
        return range(made[0], made[-1] + 1) if made else range(0)

    def line_parts(self, phase: int) -> list[tuple[list[int], bool | None]]:
        """Positions of a row that are reduced at once, and for which tiles: those with a value at the last finite point, those
        without, or all (None). Where these do not fill register tiles, that point's position is on its own.
        """
        _, wide = self.kept(phase)
        columns, grid, rows = self.form.columns, self.grid, self.tile.rows
        last = columns.last_finite if grid.columns.short else wide
        runs = [(grid.with_values(row, False), grid.with_values(row, True)) for row in (False, True)]
        apart = any(some.start % rows or (some.stop % rows and some.stop < every.stop) for every, some in runs)
        found: list[tuple[list[int], bool | None]] = []
        positions = [place for place in range(wide) if not (apart and place == last)]
        if len(positions) % 2 == self.schedule.abreast % 2 == 0:  # pairs of opposite points together
            positions = [*positions[-1:], *positions[:-1]]
        times = -(-len(positions) // self.schedule.abreast)
        for k in range(times):
            part = positions[len(positions) * k // times : len(positions) * (k + 1) // times]
            if last in part:
                found += [(part, True), ([place for place in part if place != last], False)]
            else:
                found.append((part, None))
        if apart and last < wide:
            found.append(([last], True))
        return [(part, which) for part, which in found if part]

    @property
    def filter_elements(self) -> int:
        """Elements of scratch memory for filters."""
        if self.schedule.filters == "memory":
            return self.form.positions * self.filter_pitch
        if self.schedule.filters == "pairs":
            return 2 * self.form.columns.span * self.filter_pitch
        if self.in_registers:
            return 0
        return self.line_pitch * max(len(self.line_rows(phase)) for phase in range(self.planes.phases))

    @property
    def product_pitch(self) -> int:
        """Elements of one position of the products."""
        return _spread(self.places * self.group_width)

    @property
    def scratch(self) -> int:
        """Elements of scratch memory."""
        both = self.input_pitch + self.product_pitch
        return self.form.positions * both + self.filter_elements + self.stage + self.zeros


def _spread(elements: int) -> int:
    """So many elements and a few more: an odd number of cache lines, so that positions spread over all sets of the caches."""
    return (-(-elements // LINE_ELEMENTS) | 1) * LINE_ELEMENTS


def plan_of(planes: Planes, schedule: WinogradSchedule) -> WinogradPlan:
    """The sizes that a schedule gives a convolution."""
    form = next(form for form in planes.forms if form.tile == schedule.outputs)
    if planes.free:
        return WinogradPlan(planes, form, schedule)
    tiles = planes.grid(form).tiles
    tile = replace(schedule.tile, rows=min(schedule.tile.rows, tiles))
    in_memory = schedule.filters == "memory"
    fitting = replace(
        schedule,
        tile=tile,
        per_strip=min(schedule.per_strip, -(-tiles // tile.rows)),
        depth=min(schedule.depth, planes.channels),
        together=min(schedule.together if in_memory else 1, -(-planes.shape.outputs // tile.width)),
    )
    return WinogradPlan(planes, form, fitting)
