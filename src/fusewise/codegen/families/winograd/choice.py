"""Which of Winograd's forms computes a convolution, and where its filters are transformed: what each is estimated to cost.

Transformed filters lie in memory, for many tiles to use; or they are transformed again for every few tiles and never leave the
registers (`winograd.few`), which costs loads and additions beside the multiply-adds. A core that begins two of these in a cycle
has no room for that unless the tiles are few; one that begins a single one, of vectors this wide, has. Between the two, filters
are transformed along their columns in memory and along their rows in registers (`winograd.lines`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from functools import lru_cache
from typing import NamedTuple

from fusewise.codegen.cost import bound
from fusewise.codegen.families.product.tiles import SLIM_ROWS, TiledProduct, favourite_tiles
from fusewise.codegen.families.winograd.plan import (
    FreeWinogradSchedule,
    Planes,
    WinogradPlan,
    WinogradSchedule,
    plan_of,
)
from fusewise.codegen.families.winograd.transform import LONG_FORM, PlaneForm
from fusewise.codegen.instructions.table import DPBF16
from fusewise.codegen.llvm.stores import far_of
from fusewise.codegen.machine.figures import OverheadFigures
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.target import LINE_BYTES, Target
from fusewise.ir.dtypes import BFLOAT16
from fusewise.lower.task import Task
from fusewise.records import record

__all__ = ["WinogradChoice", "choices", "direct_cycles", "schedules"]

NARROW = 64
"""Up to how many output channels the long forms of 3x3, which err most, are left alone: such convolutions stand next to a model's
pixels, where nothing averages their error. On a Zen 4 held to AVX2 YOLO-V4 differs from ONNX Runtime by 6.9 to 10.2e-6 with F(5, 3)
there, by 7.0 to 8.8e-6 so (six inputs), and takes 1.01 to 1.02 times as long, U-Net 1.01 to 1.03. U-Net errs by 7 to 11e-6 with
F(6, 3) everywhere, by 5 to 8e-6 without it there."""

MOST_ROUNDS = 4
"""Up to how many strips for each worker are tried so that transformed inputs fit the second level."""

TIMES = (2, 4, 8)
"""How many times as many samples are asked about, where it is not known how many there are."""

MANY_TILES = 16
"""Fewer tiles are not what a version is made for that gives way to another for many."""

LOADS = 2
"""Loads that a core begins in a cycle, as taken."""

SMALL_TILES = ((3, 4), (5, 2), (6, 2), (4, 2), (3, 2), (2, 2))
"""Register tiles tried where registers are few: rows and vectors. The first is for 9 and 36 tiles, of which 5 rows waste some."""

SLIM_TILES = tuple((rows, 1) for rows in SLIM_ROWS)
"""And where a single multiply-add begins in a cycle."""

RUNS = 4
"""In how many runs a block of channels is added up there for long forms: YOLO-V4 differs from ONNX Runtime by 5.7 to 7.5e-6 for 6.9
to 9.7e-6 (six inputs, one thread and two), U-Net by 4.6 to 5.9e-6 for 5.1 to 6.8, and takes 1.01 to 1.02 times as long."""

BESIDE_SUMS = 8
"""Registers that a filter being transformed takes, beside the sums of a row of positions."""

LINE_VECTORS, LINE_TILES = 2, ((4, 3), (5, 2), (3, 4))
"""Vectors of outputs, and tiles and positions of a row, that are reduced at once with filters in lines: 18 to 24 sums. Six tiles by
two positions are slower than they should be."""


@record(frozen=True)
class WinogradChoice:
    """A form; where its filters are, `short` and `abreast` as `WinogradSchedule` has them; estimated cycles of a core; and, unless
    filters are in memory, how many tiles share one in registers, and the register tiles of a strip."""

    form: PlaneForm
    filters: str
    cycles: float
    rows: int = 0
    per_strip: int = 1
    abreast: int = 0
    short: bool = False


@lru_cache(maxsize=16)  # asked whether it is worth it, and then for schedules
def choices(planes: Planes, target: Target) -> tuple[WinogradChoice, ...]:
    """Forms with filters in memory and, where there are registers for them, in lines and in registers; best first."""
    found, figures = [], target.figures.winograd
    for form in _forms(planes, target):
        most = (target.registers - BESIDE_SUMS) // form.columns.span
        tiles = planes.grid(form).tiles
        if most and tiles:
            rows = -(-tiles // -(-tiles // most))
            products, short = _few_cycles(planes, form, rows, target)
            per_strip = _together(planes, target)
            spent = _in_registers(planes, form, -(-tiles // (rows * per_strip)), products, target)
            found.append(WinogradChoice(form, "registers", spent, rows, per_strip, short=short))
        found.append(WinogradChoice(form, "memory", _cycles(planes, form, target)))
        if tiles and not planes.free and _has_lines(planes, form, target):
            found.append(_in_lines(planes, form, target))
    odd, even = (1.0 if _loads_dear(target) else figures.margin), 1.0
    if planes.is_phased:
        odd, even = 1.0, figures.phased

    def cycles(choice: WinogradChoice) -> float:
        margin = figures.margin if choice.filters == "lines" else 1.0
        return choice.cycles * margin * (odd if choice.form.is_odd and not choice.form.is_long else even)

    return tuple(sorted(found, key=cycles))


def _forms(planes: Planes, target: Target) -> list[PlaneForm]:
    """Forms worth an estimate. For two multiply-adds of the widest vectors in a cycle long ones of 3 taps were not measured; for a
    single one F(6, 3) alone is of 3x3: F(5, 3) took 0.94 to 1.1 times as long as F(4, 3) in five models."""
    if not (target.has_few_registers or target.multiplies_once):
        return [form for form in planes.forms if 3 not in (form.rows.taps, form.columns.taps) or form.tile < LONG_FORM]
    is_narrow = planes.shape.outputs <= NARROW

    def is_left_out(form: PlaneForm) -> bool:
        return is_narrow or (form.is_odd and target.multiplies_once)

    return [form for form in planes.forms if not (form.is_long and is_left_out(form))]


def direct_cycles(planes: Planes, target: Target) -> float:
    """Estimated cycles of the direct form on one core."""
    shape = planes.shape
    in_pairs = shape.dtype == BFLOAT16 and shape.inputs % 2 == 0 and DPBF16.is_native(target)
    figures = target.figures.winograd
    share = 2 * figures.direct if in_pairs else figures.direct
    pixels = shape.batch * math.prod(axis.out for axis in shape.spatial)
    cycles = pixels * shape.taps * shape.inputs * shape.outputs / target.lanes / _multiplies(target) / share
    if shape.is_sparse:  # tap by tap, those outside left out as far as whole tiles lack them
        cycles *= math.prod(axis.present for axis in shape.spatial) / figures.taps
    return cycles


def schedules(planes: Planes, task: Task, target: Target) -> Iterable[WinogradSchedule]:
    """Schedules worth trying, the analytic favourite first."""
    far = far_of(task, target)
    for choice in choices(planes, target):
        for schedule in _cut(planes, choice, target):
            found = replace(schedule, fetches_inputs=_fetches_inputs(planes, schedule, target), far=far)
            yield _free(planes, choice, found, target) if planes.free else found


def _free(planes: Planes, choice: WinogradChoice, schedule: WinogradSchedule, target: Target) -> FreeWinogradSchedule:
    """A schedule for sizes that are not known: up to so many tiles that filters had better lie in memory."""
    known = {one.name: getattr(schedule, one.name) for one in fields(schedule)}
    grid = planes.grid(choice.form)
    shorter = all(t.count * t.size - t.axis.out < t.count for t in (grid.rows, grid.columns))
    known["trims"] = shorter and (choice.filters != "registers" or choice.short)
    if choice.filters != "registers" or grid.tiles < MANY_TILES:
        return FreeWinogradSchedule(**known)
    for times in TIMES:
        more = replace(planes, shape=replace(planes.shape, batch=planes.shape.batch * times))
        if choices(more, target)[0].filters != choice.filters:
            return FreeWinogradSchedule(**known, most=planes.grid(choice.form).tiles * times * 3 // 4)
    return FreeWinogradSchedule(**known)


def _cut(planes: Planes, choice: WinogradChoice, target: Target) -> Iterator[WinogradSchedule]:
    """Schedules of a choice."""
    form = choice.form
    if choice.filters != "memory":
        # a phase has a few taps of each
        widened = 2 if choice.filters == "registers" and planes.is_phased else 1
        tile = Tile(choice.rows, LINE_VECTORS if choice.abreast else 1, target.lanes)
        yield WinogradSchedule(
            form.tile,
            tile,
            choice.per_strip,
            _depth(planes, form, target, widened),
            filters=choice.filters,
            abreast=choice.abreast,
            short=choice.short,
        )
        return
    depth = _depth(planes, form, target)
    # tiles of one vector leave registers for several runs
    runs = RUNS if form.is_long and target.multiplies_once else 1
    soon = target.has_few_registers or target.multiplies_once
    for number, (tile, per_strip) in enumerate(_tiles(planes, form, depth, target)[:3]):
        plain = WinogradSchedule(form.tile, tile, per_strip, depth, runs=runs)
        # where register tiles are soon done, the next position's inputs are fetched meanwhile, filters made two rows at a time
        where = "memory" if planes.is_in_line or planes.is_phased else "pairs"
        ahead = replace(plain, ahead=True, filters=where)
        yield ahead if soon else plain
        if number == 0:  # the other way, for who measures
            yield plain if soon else ahead


def _fetches_inputs(planes: Planes, schedule: WinogradSchedule, target: Target) -> bool:
    """Is memory for transformed inputs likely to be far: written once by a worker, or with outputs of many pixels in between?
    What is fetched for filters in registers costs as much as it gains, and other targets were not measured."""
    if not target.multiplies_once or schedule.filters not in ("memory", "pairs"):
        return False
    return planes.is_staged or plan_of(planes, schedule).strips <= target.workers


def _tiles(planes: Planes, form: PlaneForm, depth: int, target: Target) -> list[tuple[Tile, int]]:
    """Register tiles for filters in memory, the favourite first, and how many of each make a strip."""
    tiles, outputs = planes.grid(form).tiles, planes.shape.outputs
    if _tiles_tried(planes, target):
        estimates = {tile: _in_memory(planes, form, tile, target) for tile in _tried(planes, form, target)}
        return [(tile, estimates[tile].each) for tile in sorted(estimates, key=lambda tile: estimates[tile].cycles)]

    def waiting(tile: Tile) -> float:
        """Strips and panels are dealt out, and not all tiles have all values."""
        taken = _covered(planes, form, tile.rows) / (form.positions * -(-tiles // tile.rows) * tile.rows)
        return taken * _in_memory(planes, form, tile, target).waiting

    found = favourite_tiles(target, TiledProduct(tiles, outputs, depth), (target.lanes,), waiting)
    # an even number of vectors fills whole cache lines, so that transformed filters are written line by line
    widest = 4 if _loads_dear(target) else 2
    even = [tile for tile in found if tile.vectors in (2, widest)] or found
    return [(tile, _in_memory(planes, form, tile, target).each) for tile in even]


class _Strips(NamedTuple):
    """Estimated cycles of all workers, outputs left out; register tiles of a strip; what the longest share is times their mean."""

    cycles: float
    each: int
    waiting: float


def _in_strips(
    planes: Planes, form: PlaneForm, rows: int, panels: int, products: float, filters: float, target: Target
) -> _Strips:
    """One strip for all workers, each of which transforms all inputs, or one for each, which transform all filters; or more, where
    the caches want it. `products` and `filters` are the cycles of all products and of transforming all filters once."""
    steps, fewest, found = max(1, -(-planes.grid(form).tiles // rows)), _strips(planes, form, target), []
    rounds = -(-fewest // target.workers)
    most = rounds + (1 if planes.is_phased else MOST_ROUNDS)
    for wanted in sorted({fewest, *(n * target.workers for n in range(rounds, most))}):
        each = -(-steps // wanted)
        strips = -(-steps // each)
        waiting = -(-strips * panels // target.workers) * each * target.workers / (steps * panels)
        inputs = _input_cycles(planes, form, strips, target) + _spilled_cycles(
            planes, form, strips, each * rows, target
        )
        found.append(_Strips(products * waiting + filters * strips + inputs, each, waiting))
    return min(found)


def _depth(planes: Planes, form: PlaneForm, target: Target, widened: int = 1) -> int:
    """Input channels of a block. Where registers are few twice as many are one block: it has no sums to add to."""
    usual = target.figures.winograd.depth
    most = max(target.lanes, usual * widened)
    if planes.is_phased:  # a block belongs to one phase
        fitting = range(target.lanes, most + 1, target.lanes)
        return max(depth for depth in fitting if planes.shape.inputs % depth == 0)
    if planes.channels <= 2 * usual and target.has_few_registers and not form.is_long:
        return planes.channels
    depth = -(-planes.channels // -(-planes.channels // most))
    return min(planes.channels, -(-depth // target.lanes) * target.lanes)


def _loads_dear(target: Target) -> bool:
    """Does a load cost more beside the multiply-adds than usual? Panels of four vectors, whose tiles load less, were measured there
    alone."""
    return target.figures.overhead.load > 2 * OverheadFigures().load


def _multiplies(target: Target) -> int:
    return target.multiplies(target.vector_bits)


def _cycles(planes: Planes, form: PlaneForm, target: Target) -> float:
    """With filters in memory: products, and per vector of channels the transforms."""
    outputs = -(-planes.shape.outputs // target.lanes)
    tried = (_in_memory(planes, form, tile, target).cycles for tile in _tried(planes, form, target))
    return _output_cycles(planes, form, outputs, target) + min(tried)


def _output_cycles(planes: Planes, form: PlaneForm, vectors: int, target: Target) -> float:
    """Cycles to transform so many vectors of outputs of all tiles."""
    return form.positions * planes.grid(form).tiles * vectors * target.figures.winograd.outputs


def _filter_bytes(planes: Planes, target: Target) -> int:
    """Bytes of all taps."""
    return -(-planes.shape.outputs // target.lanes) * planes.taps * target.vector_bits // 8


def _together(planes: Planes, target: Target) -> int:
    """How many register tiles make a strip, with filters in registers."""
    together = target.figures.winograd.together
    return together if _filter_bytes(planes, target) > together * target.l2_bytes else 1


def _in_registers(planes: Planes, form: PlaneForm, strips: int, each: float, target: Target) -> float:
    """With filters in registers and so many strips, if the products of a vector of filters take `each` cycles."""
    outputs, filters = -(-planes.shape.outputs // target.lanes), _filter_bytes(planes, target)
    figures = target.figures.winograd
    again = figures.again[filters > target.l3_bytes] if filters > target.l2_bytes else 0.0
    products = each * planes.channels * outputs * _multiplied(planes, form) / figures.product
    transforms = _input_cycles(planes, form, strips, target) + (strips - 1) * filters / LINE_BYTES * again
    return _output_cycles(planes, form, outputs, target) + transforms + max(products, _fetched(planes, outputs, target))


def _tiles_tried(planes: Planes, target: Target) -> tuple[tuple[int, int], ...]:
    """Rows and vectors of register tiles, where these are chosen by what the products take; where registers are few, with longer
    filters, or those of one axis, tiles of eight sums do better than estimated."""
    if target.multiplies_once:
        return SLIM_TILES
    is_small = target.has_few_registers and not planes.is_in_line and max(planes.sides) <= 3
    return SMALL_TILES if is_small else ()


def _tried(planes: Planes, form: PlaneForm, target: Target) -> list[Tile]:
    """Register tiles worth an estimate."""
    tiles, vectors = planes.grid(form).tiles, -(-planes.shape.outputs // target.lanes)
    tried = _tiles_tried(planes, target)
    if not tried:
        return [Tile(rows, min(vectors, 2), target.lanes) for rows in (4, 5, 6)]
    fitting = [(min(rows, tiles), min(v, vectors)) for rows, v in tried if v <= max(vectors, 2)]
    return [Tile(rows, v, target.lanes) for rows, v in dict.fromkeys(fitting)]


def _paced(tile: Tile, target: Target) -> float:
    """How many times as long as its multiply-adds a step of a register tile takes."""
    adding = tile.rows * tile.vectors / _multiplies(target)
    return bound(adding, tile.rows + tile.vectors, target.figures.tile) / adding


def _few_cycles(planes: Planes, form: PlaneForm, rows: int, target: Target) -> tuple[float, bool]:
    """Cycles of the products of all tiles with one vector of filters in registers; and whether tiles are shorter for it, if there
    are several strips."""
    (high, wide), grid = (form.rows.span, form.columns.span), planes.grid(form)
    short = wide if planes.is_phased else wide - 1  # see `WinogradPlan.skips_columns`
    whole, without = (_row_cycles(planes, form, columns * rows, target) for columns in (wide, short))
    strips = -(-grid.tiles // rows)
    if strips == 1:
        return high * whole * _covered(planes, form, 1) / (form.positions * grid.tiles), False
    long = [grid.is_long(first, first + rows) for first in range(0, grid.tiles, rows)]
    shorter = sum((high - (not row)) * (whole if column else without) for row, column in long)
    return min((strips * high * whole, False), (shorter, True))


def _in_memory(planes: Planes, form: PlaneForm, tile: Tile, target: Target) -> _Strips:
    """The strips of register tiles with filters in memory."""
    panels, figures = -(-planes.shape.outputs // tile.width), target.figures.winograd
    pairs = planes.channels * panels * tile.vectors
    share = _multiplied(planes, form) / _multiplies(target) / figures.product
    if _tiles_tried(planes, target):
        share *= _paced(tile, target)
    if target.multiplies_once:
        share *= 1 + figures.turn / (tile.rows * _depth(planes, form, target))
    products = max(_covered(planes, form, tile.rows) * pairs * share, _fetched(planes, panels * tile.vectors, target))
    deep = figures.deep if _depth(planes, form, target) > figures.depth else 1.0
    return _in_strips(planes, form, tile.rows, panels, products, pairs * _filter_cycles(form, target) * deep, target)


def _filter_cycles(form: PlaneForm, target: Target) -> float:
    """Cycles to transform a vector of filters: to write its positions, or where that is more, for arithmetic."""
    (down, sums_down), (along, sums_along) = form.rows.filter_steps, form.columns.filter_steps
    lines, rows, figures = form.columns.taps, form.rows.span, target.figures.winograd
    arithmetic = figures.factor * (down * lines + along * rows) + figures.sum * (sums_down * lines + sums_along * rows)
    return max(form.positions * figures.filters * target.vector_bits / 8 / LINE_BYTES, arithmetic)


def _fetched(planes: Planes, vectors: int, target: Target) -> float:
    """Cycles that the filters of so many vectors of outputs take to come from memory."""
    return vectors * planes.taps * target.vector_bits // 8 / target.figures.prefetch.rate


def _has_lines(planes: Planes, form: PlaneForm, target: Target) -> bool:
    """Are filters in lines worth an estimate? Additions want units of their own; with longer filters, shorter vectors or a single
    multiply-add a cycle it was not measured."""
    room = target.vector_bits >= 512 and target.adds_apart and _multiplies(target) > 1
    return room and all(1 < side <= 3 for side in planes.sides) and planes.shape.outputs > target.lanes


def _in_lines(planes: Planes, form: PlaneForm, target: Target) -> WinogradChoice:
    """The best register tile for filters in lines, and its strips."""
    tiles, panels = planes.grid(form).tiles, -(-planes.shape.outputs // (LINE_VECTORS * target.lanes))
    fetched, figures = _fetched(planes, panels * LINE_VECTORS, target), target.figures.winograd
    outputs = _output_cycles(planes, form, panels * LINE_VECTORS, target)
    found: list[WinogradChoice] = []
    plans = [_line_plan(planes, form, min(rows, tiles), abreast, target) for rows, abreast in LINE_TILES]
    vectors = panels * LINE_VECTORS * planes.channels // len(_phases(planes))
    lines = sum(len(plans[0].line_rows(phase)) * planes.taps_of(phase)[1] for phase in _phases(planes)) * vectors
    for plan in plans:
        products, rows = max(_line_cycles(plan, target) * vectors / figures.product, fetched), plan.tile.rows
        best = _in_strips(planes, form, rows, panels, products, lines * figures.line, target)
        found.append(WinogradChoice(form, "lines", best.cycles + outputs, rows, best.each, plan.schedule.abreast))
    return min(found, key=lambda choice: choice.cycles)


def _phases(planes: Planes) -> range:
    """Phases that are transformed one after the other."""
    return range(planes.phases if planes.is_phased else 1)


def _line_plan(planes: Planes, form: PlaneForm, rows: int, abreast: int, target: Target) -> WinogradPlan:
    tile = Tile(rows, LINE_VECTORS, target.lanes)
    return plan_of(
        planes, WinogradSchedule(form.tile, tile, 1, target.figures.winograd.depth, filters="lines", abreast=abreast)
    )


def _line_cycles(plan: WinogradPlan, target: Target) -> float:
    """Cycles of the products of all tiles with one vector of filters in lines, of a channel of every phase."""
    cycles, grid, rows, planes = 0.0, plan.grid, plan.tile.rows, plan.planes
    with_row, whole = ([grid.with_values(last, column).length for column in (False, True)] for last in (True, False))
    for phase in _phases(planes):
        (high, _), (_, wide) = plan.kept(phase), planes.taps_of(phase)
        lasts = plan.form.rows.last_finite < high
        for positions, which in plan.line_parts(phase):
            sums, loads = len(positions) * rows * LINE_VECTORS, len(positions) * rows + wide * LINE_VECTORS + 1
            step = max(sums / _multiplies(target), loads / LOADS) / LINE_VECTORS
            for (every, some), number in ((whole, high - lasts), (with_row, lasts)):
                tiles = every if which is None else some if which else every - some
                cycles += number * step * -(-tiles // rows)
    return cycles


def _covered(planes: Planes, form: PlaneForm, rows: int) -> int:
    """Products of a filter and register tiles of so many rows, some of which are for nothing at the end of a run."""
    grid, (high, wide) = planes.grid(form), (form.rows.span, form.columns.span)
    (a, b) = (1 if tiling.short else 0 for tiling in (grid.rows, grid.columns))
    runs = [
        (number, grid.with_values(*which).length)
        for number, which in (
            ((high - a) * (wide - b), (False, False)),
            (a * (wide - b), (True, False)),
            ((high - a) * b, (False, True)),
            (a * b, (True, True)),
        )
    ]
    return sum(number * math.ceil(tiles / rows) * rows for number, tiles in runs)


def _multiplied(planes: Planes, form: PlaneForm) -> float:
    """The share of products that is not zero for want of a tap."""
    missing = [[a - b for a, b in zip(planes.sides, planes.taps_of(k), strict=True)] for k in range(planes.phases)]
    kept = sum((form.rows.span - high) * (form.columns.span - wide) for high, wide in missing)
    return kept / (planes.phases * form.positions)


def _row_cycles(planes: Planes, form: PlaneForm, products: int, target: Target) -> float:
    """Cycles for so many products of a row of positions with a filter in registers: multiply-adds, loads or sums, which overlap."""
    # a row of positions takes both halves of a pair of points again
    down, along = form.rows.filter_steps, form.columns.filter_steps
    multiplies, sums = (form.columns.taps * 2 * a / form.rows.span + b for a, b in zip(down, along, strict=True))
    rate, loads = _multiplies(target), products + planes.taps / planes.channels
    arithmetic = max(products + multiplies, sums) if target.adds_apart else products + multiplies + sums
    return max(arithmetic / rate, loads / LOADS, target.figures.winograd.turn)


def _input_cycles(planes: Planes, form: PlaneForm, strips: int, target: Target) -> float:
    """Cycles to transform all inputs by every worker that shares a strip, and to read what the others have written of them."""
    grid, shape, figures = planes.grid(form), planes.shape, target.figures.winograd
    vectors = form.positions * grid.tiles * planes.channels / target.lanes
    sharing = max(1.0, target.workers / strips)
    lines = shape.batch * math.prod(axis.extent for axis in shape.spatial) * shape.inputs * 4 / LINE_BYTES
    return vectors * figures.inputs * sharing + lines * figures.crossed * (sharing - 1)


def _spilled_cycles(planes: Planes, form: PlaneForm, strips: int, tiles: int, target: Target) -> float:
    """Cycles lost for transformed inputs of so many tiles to a strip that the second level does not hold, of all strips; none of
    phases, where more strips gained nothing, as their filters take longer."""
    if planes.is_phased:
        return 0.0
    spilled = max(0, form.positions * tiles * planes.channels * 4 - target.l2_bytes)
    return spilled / LINE_BYTES * target.figures.winograd.spilled * max(strips, target.workers)


def _strips(planes: Planes, form: PlaneForm, target: Target) -> int:
    """As few strips as the caches allow: in each, all filters are transformed."""
    each, products = form.positions * planes.channels * 4, form.positions * 2 * target.lanes * 4
    most = min(target.figures.winograd.most_tiles, target.l3_bytes // 4 // each, target.l2_bytes // 2 // products)
    return -(-planes.grid(form).tiles // max(1, most))
