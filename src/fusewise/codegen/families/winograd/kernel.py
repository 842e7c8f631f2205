"""Winograd's convolutions for filters of 3 or 5 taps a side, or 3, 5 or 7 taps on one side alone, dilated or not; or 3, 5 or 7 of
stride 2.

F(4x4, 3x3) has 4 times fewer multiplications than there are taps, F(5x5, 3x3) 4.6, F(6x6, 3x3) 5.1, F(4x4, 5x5) 6.25, F(4, 7) 2.8,
F(6, 7) 3.5; 3x3 of stride 2 has 1.9 times fewer with tiles of 5, 1.8 of 4, 1.65 of 3.

Takes Conv tasks with channels last, of two or three spatial axes, in float32 or shorter types, which are widened on the way
in; gives a kernel. Tiles of outputs are numbered and cut into strips. Filters are transformed on the way: they are read from
memory as they are, a quarter of their transformed size, which for large ones takes longer than all arithmetic. Everything else
lies in scratch memory:

    for strip:  transform its inputs                              [position][block][tile][input channel of the block]
      for group of panels of output channels:
        for block of input channels:
          transform the filters                                   [position][panel][input channel][output channel]
          for position, panel:  add to the products               [position][tile][output channel]
          (or both for two rows of positions after the other, which stay in the first cache level where registers are few;
          or both at once, a few tiles to a strip, see `winograd.few` and `winograd.lines`)
        transform back, add the bias, run the stores

Work is dealt out as (strip, panel) pairs, so few tiles are still shared evenly; each worker of a strip transforms its inputs.

On random data the difference from the exact result is at most 5e-6 of the largest output for up to 512 input channels; 1.5e-5
for F(4, 7), 2e-5 for F(5x5, 3x3) and F(6x6, 3x3), 3e-5 for F(6, 7), F(4x4, 5x5) and F(5x5, 4x4). The transforms add inputs that
one output alone does not read: an infinity or NaN spreads to all outputs of its tile, and inputs above a millionth of the largest
float32 may overflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from fusewise.codegen.families.convolution.shape import convolution_of
from fusewise.codegen.families.product.dealing import deal_weighted
from fusewise.codegen.families.winograd.choice import choices, direct_cycles, schedules
from fusewise.codegen.families.winograd.few import emit_few_products, keep_products
from fusewise.codegen.families.winograd.input import BLOCK, Transform, emit_input_tile
from fusewise.codegen.families.winograd.lines import FETCHED_AHEAD, emit_line_products
from fusewise.codegen.families.winograd.output import OUTPUT_LEVEL, OutputStrip, emit_outputs
from fusewise.codegen.families.winograd.plan import (
    ChannelBlock,
    FreeWinogradSchedule,
    Planes,
    WinogradSchedule,
    plan_of,
    planes_of,
)
from fusewise.codegen.families.winograd.stage import emit_staged_tile
from fusewise.codegen.families.winograd.transform import emit_filter
from fusewise.codegen.kernel import Argument, Kernel, working_memory
from fusewise.codegen.llvm.accumulate import accumulate_in_runs
from fusewise.codegen.llvm.entry import OpenFunction, operand_arguments, written
from fusewise.codegen.llvm.share import pieces_of
from fusewise.codegen.llvm.stores import is_heavy, output_fetcher
from fusewise.codegen.nest.tile import Ahead, Panel, Reduction, ReductionLoop
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.packing import packed, panels, panels_of
from fusewise.codegen.target import FIRST_LEVEL, LINE_BYTES, InstructionSet, Target
from fusewise.ir.deciding import known_below, known_one, known_zero
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32
from fusewise.ir.size import SizeNeeded
from fusewise.lower.task import RefusalReason, Task

__all__ = ["WINOGRAD"]

LEAST_CHANNELS = 8
"""Fewer channels on either side, and the transforms cost more than the products save."""


def understand(task: Task, instructions: InstructionSet) -> Planes | RefusalReason:
    """The planes of a task that the kernel computes, whether or not that is fast; else the reason why not."""
    shape = convolution_of(task)
    if isinstance(shape, RefusalReason):
        return shape
    if task.exact:
        return RefusalReason("the order of operations must be kept")
    if shape.dtype not in (FLOAT32, FLOAT16, BFLOAT16):
        return RefusalReason("Winograd convolution is in float32", shape.dtype.name)
    if shape.computed is not None:
        return RefusalReason("operand is computed on the way in", "0")
    planes = planes_of(shape)
    if planes is None:
        return RefusalReason(
            "not an ungrouped convolution with 3 or 5 taps a side, or 1 beside 3, 5 or 7; "
            "or of stride 2 with 3 taps a side, or 5 or 7 beside 1, of many channels, or 5 or 7 a side of few"
        )
    if planes.free and max(planes.rows.dilation, planes.columns.dilation) > 1:
        return RefusalReason("lattices of sizes that are not known")
    reason = _unstageable(planes, instructions) if planes.is_staged else _unsuitable(planes, instructions)
    if reason is not None:
        return reason
    if shape.outputs < instructions.lanes:
        return RefusalReason("too few channels for a transform", f"{shape.inputs} to {shape.outputs}")
    if any(map(known_zero, (shape.batch, *(axis.out for axis in shape.spatial)))):
        return RefusalReason("no outputs")
    return planes


def _unsuitable(planes: Planes, instructions: InstructionSet) -> RefusalReason | None:
    """Why inputs cannot be transformed from where they are."""
    shape = planes.shape
    if not known_one(shape.data.strides[1]):
        return RefusalReason("input channels are not side by side")
    if shape.inputs < max(LEAST_CHANNELS, instructions.lanes):
        return RefusalReason("too few channels for a transform", f"{shape.inputs} to {shape.outputs}")
    if planes.is_phased and (shape.inputs % instructions.lanes or not planes.forms):
        return RefusalReason("phases of these channels do not fill vectors, or filters no registers", str(shape.inputs))
    return None


def _unstageable(planes: Planes, instructions: InstructionSet) -> RefusalReason | None:
    """Why the phases of inputs cannot be set side by side."""
    shape, channels = planes.shape, planes.phases * planes.shape.inputs
    if planes.slices.kernel > 1 or not planes.slices.is_inside:
        return RefusalReason("a stride of 2 is for planes alone")
    if known_below(planes.strides[2], 1):
        return RefusalReason("input columns do not lie one after the other")
    if not LEAST_CHANNELS <= channels < 4 * instructions.lanes:
        return RefusalReason("too few or too many channels for a stride of 2", str(shape.inputs))
    return None


def _declines(planes: Planes, task: Task, target: Target) -> RefusalReason | None:
    """Why the direct convolution does better, if it does."""
    if planes.is_phased and not planes.is_in_line and not target.adds_apart:
        return RefusalReason(
            "where additions take the units that multiply, the phases of many channels take longer than they save"
        )
    direct, least = direct_cycles(planes, target), choices(planes, target)[0].cycles
    if direct <= least:
        return RefusalReason("direct convolution is estimated faster", f"{direct:.0f} cycles to {least:.0f}")
    return None


def _arguments(planes: Planes, task: Task, schedule: WinogradSchedule) -> tuple[Argument, ...]:
    plan = plan_of(planes, schedule)
    tile, weight = plan.tile, planes.shape.weight
    outputs, inputs = weight.shape[:2]
    factors = plan.form.packed_factors

    def pack(array: np.ndarray) -> np.ndarray:
        # [outputs, inputs, slice taps, taps] to [panel, phases, slice taps, inputs, taps, columns of the panel]
        ordered = array.astype(np.float32, copy=False).transpose(0, 1, *(k + 2 for k in planes.order))
        by_slice = ordered.reshape(outputs, inputs, planes.slices.kernel, planes.rows.kernel, planes.columns.kernel)
        (high, wide), (down, across) = planes.sides, (planes.rows.stride, planes.columns.stride)
        missing = ((0, high * down - planes.rows.kernel), (0, wide * across - planes.columns.kernel))
        whole = np.pad(by_slice, ((0, 0),) * 3 + missing)
        scaled = whole * np.array(factors, np.float32).reshape(high, wide).repeat(down, 0).repeat(across, 1)
        split = scaled.reshape(outputs, inputs, planes.slices.kernel, high, down, wide, across)
        by_phase = split.transpose(4, 6, 2, 1, 3, 5, 0).reshape(planes.phases, -1, high, wide, outputs)
        kept = [part[:, :h, :w].reshape(-1, outputs) for k, part in enumerate(by_phase) for h, w in [planes.taps_of(k)]]
        return panels(np.concatenate(kept), tile.lanes, tile.vectors)

    first, channel, *steps = weight.strides
    *between, row, column = (steps[k] for k in planes.order)
    slices = (planes.slices.kernel, between[0] if between else 0)
    depth = (slices, (inputs, channel), (planes.rows.kernel, row), (planes.columns.kernel, column))
    native = planes.shape.dtype == FLOAT32 and planes.phases == 1
    data = panels_of(weight, ((), depth, (outputs, first)), tile.lanes, tile.vectors, factors) if native else None
    phases = f"{planes.rows.stride}x{planes.columns.stride}"
    recipe = f"winograd panels {tile.vectors}x{tile.lanes} phases {phases} factors {factors}"
    return operand_arguments(
        task,
        [
            Argument(weight.operand.name, packed(weight, recipe, pack, data)),
            working_memory(plan.scratch * 4),
        ],
    )


def _write(o: OpenFunction, planes: Planes, schedule: WinogradSchedule) -> None:
    f, plan, inputs = o.f, plan_of(planes, schedule), o.scratch()
    if isinstance(schedule, FreeWinogradSchedule) and schedule.most and plan.tiles > schedule.most:
        raise SizeNeeded(f"filters in registers do not pay for {plan.tiles} tiles")
    filters = f.at(inputs, plan.form.positions * plan.input_pitch)
    products = f.at(filters, plan.filter_elements)
    stage = f.at(products, plan.form.positions * plan.product_pitch)
    if plan.planes.free and planes.is_staged:
        zeros = f.at(stage, plan.stage)
    else:
        longest = planes.columns.extent * planes.strides[2] if planes.is_staged else planes.shape.inputs
        zeros = f.module.table(f"{o.symbol}_zeros", "i8", bytes(longest * 4))
    if planes.is_staged:
        f.clear(stage, (plan.stage + plan.zeros) * 4)
    strip = OutputStrip(
        o,
        plan,
        inputs,
        filters,
        products,
        stage,
        zeros,
        f.alloca(plan.tile.kind, plan.form.positions * BLOCK // plan.tile.lanes),
        o.finish,
        is_heavy(o.task),
        output_fetcher(o.elements, OUTPUT_LEVEL, schedule.far),
        o.tag(),
    )
    deal_weighted(f, o.share, plan.weights, plan.panels, lambda *which: _emit_strip(strip, *which))


def _emit_strip(s: OutputStrip, strip: Int, low: Int, high: Int) -> None:
    """Panels low..high of one strip."""
    f, plan = s.f, s.plan
    rows, tiles, together = plan.tile.rows, plan.tiles, plan.schedule.together
    step = f.mul(strip, plan.schedule.per_strip)
    first = f.mul(step, rows)
    count = f.sub(f.minimum(f.mul(f.add(step, plan.schedule.per_strip), rows), tiles), first)
    # rows of the last register tile beyond the last tile repeat that one
    covered = f.mul(f.udiv(f.add(count, rows - 1), rows), rows)

    def place(channel: Int) -> Int:
        if not plan.in_blocks:
            return channel
        return f.add(channel, f.mul(f.udiv(channel, plan.depth), plan.depth * (plan.block_step - 1)))

    inputs = Transform(s.arithmetic, plan, s.between, s.pointers[plan.planes.shape.data.operand.name], s.zeros)

    def transform(t: Value, _: Sequence[Value]) -> None:
        where = f.at(s.inputs, f.mul(t, plan.row_pitch))
        tile = f.minimum(f.add(first, t), tiles - 1)
        if plan.planes.is_staged:
            emit_staged_tile(inputs, s.stage, tile, f.compare("icmp eq", t, 0), where)
        else:
            emit_input_tile(inputs, tile, where, place)

    f.stage(s.tag, strip, lambda: f.loop(0, covered, 1, transform, rolled=True))

    def group(panel: Value, _: Sequence[Value]) -> None:
        beyond: Int = f.minimum(f.add(panel, together), high) if together > 1 else f.add(panel, 1)
        _reduce(s, first, count, panel, beyond)
        emit_outputs(s, first, count, panel, beyond)

    f.loop(low, high, together, group, rolled=True)


def _reduce(s: OutputStrip, first: Int, count: Int, low: Int, high: Int) -> None:
    """The products of the strip's tiles, `count` from `first` on, and some panels, all positions."""
    f, plan = s.f, s.plan
    depth, inputs = plan.depth, plan.planes.channels

    def reduce(block: ChannelBlock) -> None:
        if plan.in_registers:

            def taps(channel: Int) -> Value:
                return _taps(s, low, channel, block.phase)

            def few(t: Value, _: Sequence[Value]) -> None:
                own = f.at(s.inputs, f.mul(t, plan.row_pitch)), f.at(s.products, f.mul(t, plan.group_width))
                emit_few_products(s.arithmetic, plan, *own, taps, f.add(first, t), block)

            f.loop(0, count, plan.tile.rows, few, rolled=True)
            return
        if plan.schedule.filters == "lines":
            scratch = s.inputs, s.filters, s.products
            given = _taps(s, low, block.start, block.phase)
            emit_line_products(s.arithmetic, plan, scratch, given, (first, count), block)
            return
        _reduce_in_memory(s, block, first, count, low, high)

    def blocks(phase: int, first: int, beyond: int) -> None:
        whole = first + (beyond - first) // depth * depth
        f.loop(first, whole, depth, lambda start, _: reduce(ChannelBlock(start, depth, phase)), rolled=True)
        if whole < beyond:
            reduce(ChannelBlock(whole, beyond - whole, phase))

    if depth == inputs:
        reduce(ChannelBlock(0, inputs))
        return
    parts = plan.planes.phases if plan.planes.is_phased else 1
    for phase in range(parts):
        blocks(phase, inputs // parts * phase, inputs // parts * (phase + 1))


def _reduce_in_memory(s: OutputStrip, block: ChannelBlock, first: Int, count: Int, low: Int, high: Int) -> None:
    """The same of one block, its filters transformed in memory: all at once, or two rows of positions at a time."""
    f, plan = s.f, s.plan
    beside, across = f.sub(high, low), plan.form.columns.span
    rows, columns = plan.kept(block.phase)

    def products(begin: Int, end: Int) -> None:
        """Of the rows of positions whose filters are there."""

        def one(e: Value, _: Sequence[Value]) -> None:
            among = f.sub(e, f.mul(begin, across))
            _products(s, block, e, among, _run(s, e, first, count), (low, beside))

        def some(first: Int, beyond: Int) -> None:
            f.loop(first, beyond, 1, one, rolled=True)

        if columns == across:
            some(f.mul(begin, across), f.mul(end, across))
        else:
            f.loop(begin, end, 1, lambda i, _: some(f.mul(i, across), f.add(f.mul(i, across), columns)), rolled=True)

    def pair(k: Value, _: Sequence[Value]) -> None:
        for number in range(rows // 2 + 1):
            those = range(max(2 * number - 1, 0), min(2 * number + 1, rows))
            this = f.compare("icmp eq", k, number)
            f.when(this, lambda those=those: _filters_of_rows(s, block, low, those))  # type: ignore[misc]
        after = f.mul(k, 2)
        products(f.maximum(f.sub(after, 1), 0), f.minimum(f.add(after, 1), rows))

    if plan.schedule.filters == "pairs":
        f.loop(0, rows // 2 + 1, 1, pair, rolled=True)
    else:
        f.loop(low, high, 1, lambda p, _: _filters(s, block, p, f.sub(p, low)), rolled=True)
        products(0, rows)


def _taps(s: OutputStrip, panel: Int, channel: Int, phase: int) -> Value:
    """Where a panel's taps of an input channel of a phase lie; those of later channels and panels follow."""
    f, planes, width = s.f, s.plan.planes, s.plan.tile.width
    each, first = math.prod(planes.taps_of(phase)), planes.channels // planes.phases * phase if planes.is_phased else 0
    before = planes.taps_before(phase) if planes.is_phased else 0
    here = f.add(f.mul(f.sub(channel, first), each), before)
    return f.at(s.pointers[planes.shape.weight.operand.name], f.mul(f.add(f.mul(panel, planes.taps), here), width))


def _fetch(s: OutputStrip, first: Value, lines: int) -> None:
    """Fetch so many cache lines."""
    for line in range(lines):
        s.f.prefetch(s.f.at(first, line * LINE_BYTES // 4))


def _filters(s: OutputStrip, block: ChannelBlock, panel: Int, beside: Int) -> None:
    """Transform a block of a panel's filters."""
    plan, tile = s.plan, s.plan.tile

    def transform(given: Value, made: Value) -> None:
        taps = plan.planes.taps_of(block.phase)
        there = (given, tile.width), (made, plan.filter_pitch)
        emit_filter(s.arithmetic, plan.form, taps, tile.kind, s.between, *there)

    _each_filter(s, block, panel, beside, True, transform)


def _filters_of_rows(s: OutputStrip, block: ChannelBlock, panel: Int, places: Sequence[int]) -> None:
    """The same for some rows of positions of one panel; taps come from memory for the first of them."""
    f, plan, tile = s.f, s.plan, s.plan.tile
    (high, wide), (rows, columns) = plan.planes.taps_of(block.phase), plan.form

    def transform(given: Value, made: Value) -> None:
        across = [
            [f.load(tile.kind, f.at(given, (i * wide + j) * tile.width)) for i in range(high)] for j in range(wide)
        ]
        lines = [rows.filters(s.arithmetic, column) for column in across]
        for number, place in enumerate(places):
            for position, value in columns.filter_values(s.arithmetic, [line[place] for line in lines]):
                f.store(value, f.at(made, (number * columns.span + position) * plan.filter_pitch))

    _each_filter(s, block, panel, 0, places[0] == 0, transform)


def _each_filter(
    s: OutputStrip,
    block: ChannelBlock,
    panel: Int,
    beside: Int,
    fetched: bool,
    transform: Callable[[Value, Value], None],
) -> None:
    """`transform(given, made)` for every channel of a block and vector of a panel: where its taps lie and its values go, behind
    those of `beside` panels. Taps of later channels are `fetched` meanwhile."""
    f, plan, tile = s.f, s.plan, s.plan.tile
    source, size = _taps(s, panel, block.start, block.phase), math.prod(plan.planes.taps_of(block.phase)) * tile.width
    target = f.at(s.filters, f.mul(beside, plan.depth * tile.width))

    def channel(k: Value, _: Sequence[Value]) -> None:
        taps, there = f.at(source, f.mul(k, size)), f.at(target, f.mul(k, tile.width))
        if fetched:
            _fetch(s, f.at(taps, FETCHED_AHEAD * size), size * 4 // LINE_BYTES)

        def vector(v: Value, _: Sequence[Value]) -> None:
            skip = f.mul(v, tile.lanes)
            transform(f.at(taps, skip), f.at(there, skip))

        f.loop(0, tile.vectors, 1, vector, rolled=True)

    f.loop(0, block.extent, 1, channel, rolled=True)


def _run(s: OutputStrip, position: Value, first: Int, count: Int) -> tuple[Int, Int]:
    """First and last of the strip's tiles that have a value at a position."""
    f, grid, (rows, columns) = s.f, s.plan.grid, s.plan.form
    if len(grid.regions) <= 1:
        return 0, count
    low, high = f.i64(0), f.i64(grid.tiles)
    row, column = (
        f.compare("icmp eq", place, scheme.last_finite)
        for place, scheme in zip(
            (f.udiv(position, columns.span), f.urem(position, columns.span)), (rows, columns), strict=True
        )
    )
    for condition, which in (
        (row, (True, False)),
        (column, (False, True)),
        (f.binary("and", row, column), (True, True)),
    ):
        having = grid.with_values(*which)
        low, high = (f.select(condition, f.i64(a), b) for a, b in ((having.start, low), (having.stop, high)))
    return f.maximum(f.sub(low, first), 0), f.minimum(f.sub(high, first), count)


def _products(
    s: OutputStrip, block: ChannelBlock, position: Value, among: Int, run: tuple[Int, Int], panels: tuple[Int, Int]
) -> None:
    """One position's product of a run of the strip's tiles and the columns of some panels (the first, and how many), over a block.
    `among` is the position's number among those whose filters are there.

    Meanwhile the filters of the next block are fetched, a share of them at each position: the memory would rest else. The tiles'
    inputs at the next position, which are far from those at this one, are fetched too if the plan has it.
    """
    f, plan, tile, (start, extent, phase), (low, beside) = s.f, s.plan, s.plan.tile, block, panels
    left = f.at(s.inputs, f.add(f.mul(position, plan.input_pitch), f.mul(start, plan.block_step)))
    right = f.at(s.filters, f.mul(among, plan.filter_pitch))
    result = f.at(s.products, f.mul(position, plan.product_pitch))
    runs = plan.schedule.runs if extent % plan.schedule.runs == 0 else 1
    taps = extent * math.prod(plan.planes.taps_of(phase)) * tile.width
    lines = -(-taps * 4 // (math.prod(plan.kept(phase)) * LINE_BYTES))
    fetching = plan.schedule.ahead and plan.row_pitch == extent

    def panel(p: Value, _: Sequence[Value]) -> None:
        _fetch(
            s,
            f.at(_taps(s, f.add(low, p), f.add(start, extent), phase), f.mul(position, lines * LINE_BYTES // 4)),
            lines,
        )
        first = f.at(right, f.mul(p, plan.depth * tile.width))
        columns = tuple(f.at(first, v * tile.lanes) for v in range(tile.vectors))

        def one(t: Value, _: Sequence[Value]) -> None:
            origin = f.at(left, f.mul(t, plan.row_pitch))
            rows = tuple(f.at(origin, r * plan.row_pitch) for r in range(tile.rows))
            there = f.at(result, f.add(f.mul(t, plan.group_width), f.mul(p, tile.width)))
            coming = (Ahead(f.at(origin, plan.input_pitch), tile.rows * 4, FIRST_LEVEL),) if fetching else ()
            reduction = Reduction(rows, Panel(columns, tile.width), (ReductionLoop(extent // runs, 1),), ahead=coming)
            sums = accumulate_in_runs(f, tile, reduction, runs)
            places = [
                f.at(there, r * plan.group_width + v * tile.lanes)
                for r in range(tile.rows)
                for v in range(tile.vectors)
            ]
            keep_products(f, plan, places, sums, block)

        f.loop(*run, tile.rows, one, rolled=True, tight=True)

    f.loop(0, beside, 1, panel, rolled=True)


MOST_GAINED = 4
"""No fewer cycles than the direct form's by so much, for an estimate of the least."""


def _pieces(planes: Planes, target: Target, schedule: WinogradSchedule) -> int:
    plan = plan_of(planes, schedule)
    units = plan.panels // plan.schedule.together * sum(count for count, _ in plan.weights)
    return pieces_of(units, direct_cycles(planes, target) / MOST_GAINED, target)


def _saves(planes: Planes, schedule: WinogradSchedule) -> float:
    """Taps that a tile of outputs has, by the places where its inputs and filters are multiplied, along each axis with taps."""
    outputs, found = schedule.outputs, 1.0
    for axis in (planes.rows, planes.columns):
        if axis.kernel > 1:
            phases = (-(-(axis.kernel - phase) // axis.stride) for phase in range(axis.stride))
            found *= axis.kernel * outputs / sum(outputs + taps - 1 for taps in phases)
    return found


def _level(schedule: WinogradSchedule) -> str:
    return "bare" if schedule.filters == "registers" else "tidy"  # with filters in memory 1 to 5 % slower


WINOGRAD = Kernel(
    "winograd-convolution",
    understand,
    schedules,
    _arguments,
    written(_arguments, _write, hides_counters=True, overwrites=True),
    declines=_declines,
    pieces=_pieces,
    writes_once=lambda planes, schedule: plan_of(planes, schedule).is_written_once,
    saves=_saves,
    effort=4,
    level=_level,
)
