"""Winograd's convolutions F(4x4, 3x3) and F(2x2, 3x3): 4 or 2.25 times fewer multiplications for 3x3 filters of unit stride.

Takes Conv tasks in float32 with channels last; gives a kernel. Tiles of outputs are numbered over batch, rows and columns, and
cut into strips. Filters are transformed on the way: they are read from memory as they are, a quarter of their transformed
size, which for large ones takes longer than all arithmetic. Everything else lies in scratch memory:

    for strip:  transform its inputs                              [position][tile][input channel]
      for group of panels of output channels:
        for block of input channels:
          transform the filters                                   [position][panel][input channel][output channel]
          for position, panel:  add to the products               [position][tile][output channel]
        transform back, add the bias, run the stores

Work is dealt out as (strip, panel) pairs, so few tiles are still shared evenly; a strip that workers share has its inputs
transformed by each of them.

On random data the difference from the exact result is at most 5e-6 of the largest output for up to 512 input channels, with
either scheme. The transforms add inputs that one output alone does not read: an infinity or NaN spreads to all outputs of its
tile, and inputs above a hundredth of the largest float32 may overflow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fusewise.codegen.kernel import Argument, Kernel, Params
from fusewise.codegen.llvm.conv_shape import Convolution, convolution_of
from fusewise.codegen.llvm.emit import Function, Int, Value
from fusewise.codegen.llvm.gemm_entry import enter, initial, operand_arguments, scratch_of
from fusewise.codegen.llvm.gemm_finish import Finish, finisher, is_heavy
from fusewise.codegen.llvm.gemm_product import deal, tile_of, unravel
from fusewise.codegen.llvm.gemm_tile import Level, Panel, Tile, accumulate, favourite_tiles
from fusewise.codegen.llvm.winograd_transform import (
    BLOCK,
    SCHEMES,
    Arithmetic,
    Scheme,
    emit_filter,
    emit_input_tile,
    emit_sides,
    tile_counts,
)
from fusewise.codegen.packing import packed, panels, panels_of
from fusewise.codegen.target import Target
from fusewise.ir.dtypes import FLOAT32
from fusewise.lower.task import Reason, Task

__all__ = ["WINOGRAD", "applies"]

LEAST_CHANNELS = 8
"""Fewer channels on either side, and the transforms cost more than the products save."""

LEAST_TILES, MOST_TILES = 16, 112
"""Tiles of a strip: with more, its transformed inputs leave the caches; with fewer, filters are transformed too often."""

MOST_DEPTH = 64
"""Input channels of a block, at most: more, and the transformed filters leave the second cache level."""

FETCHED_AHEAD = 8
"""Input channels ahead of the one whose filters are transformed that filters are fetched from memory."""

LINE = 64
"""Bytes of a cache line."""

DIRECT_SHARE, PRODUCT_SHARE = 0.87, 0.85
"""Share of a core's multiply-adds that the direct form and the products here reach; measured, as are the next."""

INPUT_CYCLES, OUTPUT_CYCLES, FILTER_CYCLES = 4.8, 4.4, 2.4
"""Cycles to transform a vector of channels, per position: mostly stores beyond the first cache level."""

APART = 16
"""Elements between the ends of positions in scratch memory, so that they do not meet in the same cache sets."""


def applies(task: Task, target: Target) -> Reason | None:
    """None when the kernel computes this task, whether or not that is fast; else the reason why not."""
    shape = convolution_of(task)
    if isinstance(shape, Reason):
        return shape
    if task.exact:
        return Reason("the order of operations must be kept")
    if shape.dtype != FLOAT32:
        return Reason("Winograd convolution is in float32", shape.dtype.name)
    if shape.computed is not None:
        return Reason("operand is computed on the way in", "0")
    if [(axis.kernel, axis.stride, axis.dilation) for axis in shape.spatial] != [(3, 1, 1)] * 2 or shape.groups > 1:
        return Reason("not an ungrouped 3x3 convolution of unit stride")
    if shape.data.strides[1] != 1:
        return Reason("input channels are not side by side")
    if min(shape.inputs, shape.outputs) < max(LEAST_CHANNELS, target.lanes):
        return Reason("too few channels for a transform", f"{shape.inputs} to {shape.outputs}")
    if 0 in (shape.batch, *(axis.out for axis in shape.spatial)):
        return Reason("no outputs")
    return None


def _accepts(task: Task, target: Target) -> Reason | None:
    reason = applies(task, target)
    if reason is not None:
        return reason
    shape = _understood(task)
    direct = _direct_cycles(shape, target)
    least = min(_cycles(shape, scheme, target) for scheme in SCHEMES)
    return (
        Reason("direct convolution is estimated faster", f"{direct:.0f} cycles to {least:.0f}")
        if direct <= least
        else None
    )


def _direct_cycles(shape: Convolution, target: Target) -> float:
    """Cycles of the direct form on one core; two multiply-adds a cycle, an eighth lost."""
    pixels = shape.batch * math.prod(axis.out for axis in shape.spatial)
    return pixels * shape.taps * shape.inputs * shape.outputs / target.lanes / 2 / DIRECT_SHARE


def _cycles(shape: Convolution, scheme: Scheme, target: Target) -> float:
    """Cycles of a scheme on one core: products, and per vector of channels the transforms of inputs, outputs and filters."""
    tiles = math.prod(tile_counts(shape, scheme))
    rows = min((4, 5, 6), key=lambda rows: -(-tiles // rows) * rows)
    inputs, outputs = shape.inputs / target.lanes, shape.outputs / target.lanes
    products = -(-tiles // rows) * rows * scheme.positions * shape.inputs * outputs / 2 / PRODUCT_SHARE
    filters = _strips(shape, scheme, target) * shape.inputs * outputs * FILTER_CYCLES
    return products + scheme.positions * (filters + tiles * (inputs * INPUT_CYCLES + outputs * OUTPUT_CYCLES))


def _strips(shape: Convolution, scheme: Scheme, target: Target) -> int:
    """As few strips as the caches allow: in each, all filters are transformed."""
    each = scheme.positions * shape.inputs * 4
    most = max(LEAST_TILES, min(MOST_TILES, target.l3_bytes // 4 // each))
    return -(-math.prod(tile_counts(shape, scheme)) // most)


@dataclass(frozen=True)
class _Plan:
    """Sizes of one convolution: `per_strip` row tiles to a strip, `together` panels to a group, `depth` channels to a block."""

    shape: Convolution
    scheme: Scheme
    tile: Tile
    per_strip: int
    together: int
    depth: int

    @property
    def tiles(self) -> int:
        """Winograd tiles of the whole output."""
        return math.prod(tile_counts(self.shape, self.scheme))

    @property
    def steps(self) -> int:
        """Register tiles that cover them; the last is moved back to end at the last."""
        return -(-self.tiles // self.tile.rows)

    @property
    def strips(self) -> int:
        return -(-self.steps // self.per_strip)

    @property
    def panels(self) -> int:
        return -(-self.shape.outputs // self.tile.width)

    @property
    def group_width(self) -> int:
        """Output channels of a group."""
        return self.together * self.tile.width

    @property
    def input_pitch(self) -> int:
        """Elements of one position of the transformed inputs."""
        return self.per_strip * self.tile.rows * self.shape.inputs + APART

    @property
    def filter_pitch(self) -> int:
        """Elements of one position of the transformed filters."""
        return self.depth * self.group_width + APART

    @property
    def product_pitch(self) -> int:
        """Elements of one position of the products."""
        return self.per_strip * self.tile.rows * self.group_width + APART

    @property
    def scratch(self) -> int:
        """Elements of scratch memory."""
        return self.scheme.positions * (self.input_pitch + self.filter_pitch + self.product_pitch)


def _plan(shape: Convolution, params: Params) -> _Plan:
    tile = tile_of(params)
    scheme = next(scheme for scheme in SCHEMES if scheme.tile == params["outputs"])
    tiles = math.prod(tile_counts(shape, scheme))
    tile = Tile(min(tile.rows, tiles), tile.vectors, tile.lanes, tile.element)
    together = min(int(params["panels"]), -(-shape.outputs // tile.width))
    steps = -(-tiles // tile.rows)
    return _Plan(
        shape, scheme, tile, min(int(params["tiles"]), steps), together, min(int(params["depth"]), shape.inputs)
    )


def _understood(task: Task) -> Convolution:
    shape = convolution_of(task)
    assert not isinstance(shape, Reason), shape
    return shape


def _space(task: Task, target: Target) -> Iterable[Params]:
    shape = _understood(task)
    depth = -(-shape.inputs // -(-shape.inputs // MOST_DEPTH))
    for scheme in sorted(SCHEMES, key=lambda scheme: _cycles(shape, scheme, target)):
        tiles = math.prod(tile_counts(shape, scheme))
        found = favourite_tiles(target, tiles, shape.outputs, depth, target.lanes)
        # two vectors fill whole cache lines, so that transformed filters are written line by line
        even = [tile for tile in found if tile[1] == 2] or found
        for rows, vectors in even[:3]:
            steps = -(-tiles // rows)
            yield {
                "outputs": scheme.tile,
                "rows": rows,
                "vectors": vectors,
                "lanes": target.lanes,
                "tiles": -(-steps // _strips(shape, scheme, target)),
                "panels": 2,
                "depth": depth,
            }


def _arguments(task: Task, target: Target, params: Params) -> tuple[Argument, ...]:
    plan = _plan(_understood(task), params)
    shape, tile = plan.shape, plan.tile

    def pack(weight: np.ndarray) -> np.ndarray:
        # [outputs, inputs, 3, 3] to [panel, inputs, taps, columns of the panel]
        return panels(weight.reshape(shape.outputs, -1).T, tile.lanes, tile.vectors)

    first, inputs, row, column = shape.weight.strides
    depth = ((shape.inputs, inputs), (3, row), (3, column))
    data = panels_of(shape.weight, (), depth, (shape.outputs, first), tile.lanes, tile.vectors)
    recipe = f"winograd panels {tile.vectors}x{tile.lanes}"
    return operand_arguments(
        task,
        [
            Argument(shape.weight.operand.name, packed(shape.weight, recipe, pack, data)),
            Argument("scratch", nbytes=-(-plan.scratch * 4 // 64) * 64, per_worker=True),
        ],
    )


def _build(task: Task, target: Target, params: Params, symbol: str) -> str:
    plan = _plan(_understood(task), params)
    arguments = _arguments(task, target, params)
    module, f, pointers, worker, workers = enter(symbol, arguments)
    inputs = scratch_of(f, pointers, arguments, worker)
    filters = f.at(inputs, plan.scheme.positions * plan.input_pitch)
    products = f.at(filters, plan.scheme.positions * plan.filter_pitch)
    zeros = module.zeros(f"{symbol}_zeros", plan.shape.inputs * 4)
    strip = _Strip(
        f,
        target,
        plan,
        pointers,
        inputs,
        filters,
        products,
        zeros,
        f.alloca(plan.tile.kind, plan.scheme.positions * BLOCK // plan.tile.lanes),
        finisher(f, task, target, pointers),
        is_heavy(task),
    )
    deal(f, worker, workers, plan.strips, plan.panels, False, lambda *which: _emit_strip(strip, *which))
    f.give_back()
    return module.text()


@dataclass(frozen=True)
class _Strip:
    """The code of one strip being written."""

    f: Function
    target: Target
    plan: _Plan
    pointers: Mapping[str, Value]
    inputs: Value
    filters: Value
    products: Value
    zeros: Value
    between: Value
    finish: Finish
    heavy: bool

    @property
    def arithmetic(self) -> Arithmetic:
        return Arithmetic(self.f, self.target.fma)


def _emit_strip(s: _Strip, strip: Int, low: Int, high: Int) -> None:
    """Panels low..high of one strip."""
    f, plan = s.f, s.plan
    rows, tiles = plan.tile.rows, plan.tiles
    step = f.mul(strip, plan.per_strip)
    first = f.mul(step, rows)
    count = f.sub(f.minimum(f.mul(f.add(step, plan.per_strip), rows), tiles), first)
    # rows of the last register tile beyond the last tile repeat that one
    covered = f.mul(f.udiv(f.add(count, rows - 1), rows), rows)

    def transform(t: Value, _: Sequence[Value]) -> None:
        shape = plan.shape
        where = f.at(s.inputs, f.mul(t, shape.inputs))
        source = s.pointers[shape.data.operand.name]
        tile = f.minimum(f.add(first, t), tiles - 1)
        emit_input_tile(
            s.arithmetic,
            plan.scheme,
            shape,
            source,
            s.zeros,
            tile,
            plan.tile.lanes,
            s.between,
            where,
            plan.input_pitch,
        )

    f.loop(0, covered, 1, transform, rolled=True)

    def group(panel: Value, _: Sequence[Value]) -> None:
        beyond: Int = f.minimum(f.add(panel, plan.together), high) if plan.together > 1 else f.add(panel, 1)
        _reduce(s, count, panel, beyond)
        _outputs(s, first, count, panel, beyond)

    f.loop(low, high, plan.together, group, rolled=True)


def _reduce(s: _Strip, count: Int, low: Int, high: Int) -> None:
    """The products of the strip's tiles and some panels, all positions."""
    f, plan = s.f, s.plan
    depth, inputs = plan.depth, plan.shape.inputs

    def block(start: Int, extent: int) -> None:
        f.loop(low, high, 1, lambda p, _: _filters(s, p, f.sub(p, low), start, extent), rolled=True)
        beside = f.sub(high, low)
        positions = plan.scheme.positions
        f.loop(0, positions, 1, lambda e, _: _products(s, e, count, beside, start, extent), rolled=True)

    if depth == inputs:
        block(0, inputs)
        return
    whole = inputs // depth * depth
    f.loop(0, whole, depth, lambda start, _: block(start, depth), rolled=True)
    if whole < inputs:
        block(whole, inputs - whole)


def _filters(s: _Strip, panel: Int, beside: Int, start: Int, extent: int) -> None:
    """Transform `extent` input channels of a panel's filters, from channel `start` on."""
    f, plan, tile = s.f, s.plan, s.plan.tile
    weights = s.pointers[plan.shape.weight.operand.name]
    source = f.at(weights, f.mul(f.add(f.mul(panel, plan.shape.inputs), start), 9 * tile.width))
    target = f.at(s.filters, f.mul(beside, plan.depth * tile.width))

    def channel(k: Value, _: Sequence[Value]) -> None:
        taps, there = f.at(source, f.mul(k, 9 * tile.width)), f.at(target, f.mul(k, tile.width))
        for element in range(0, 9 * tile.width, LINE // 4):
            f.prefetch(f.at(taps, FETCHED_AHEAD * 9 * tile.width + element))

        def one(v: Value, _: Sequence[Value]) -> None:
            skip = f.mul(v, tile.lanes)
            emit_filter(
                s.arithmetic,
                plan.scheme,
                tile.kind,
                s.between,
                f.at(taps, skip),
                tile.width,
                f.at(there, skip),
                plan.filter_pitch,
            )

        f.loop(0, tile.vectors, 1, one, rolled=True)

    f.loop(0, extent, 1, channel, rolled=True)


def _products(s: _Strip, position: Value, count: Int, beside: Int, start: Int, extent: int) -> None:
    """One position's product of the strip's tiles and the columns of some panels, over a block of input channels."""
    f, plan, tile = s.f, s.plan, s.plan.tile
    left = f.at(s.inputs, f.add(f.mul(position, plan.input_pitch), start))
    right = f.at(s.filters, f.mul(position, plan.filter_pitch))
    result = f.at(s.products, f.mul(position, plan.product_pitch))
    zero = f.constant(0.0, tile.kind)

    def panel(p: Value, _: Sequence[Value]) -> None:
        first = f.at(right, f.mul(p, plan.depth * tile.width))
        columns = tuple(f.at(first, v * tile.lanes) for v in range(tile.vectors))

        def one(t: Value, _: Sequence[Value]) -> None:
            origin = f.at(left, f.mul(t, plan.shape.inputs))
            rows = [f.at(origin, r * plan.shape.inputs) for r in range(tile.rows)]
            begin = [zero] * (tile.rows * tile.vectors)
            there = f.at(result, f.add(f.mul(t, plan.group_width), f.mul(p, tile.width)))
            sums = accumulate(f, s.target, tile, rows, Panel(columns, tile.width), (Level(extent, 1),), begin)
            places = [
                f.at(there, r * plan.group_width + v * tile.lanes)
                for r in range(tile.rows)
                for v in range(tile.vectors)
            ]

            def store() -> None:
                for place, value in zip(places, sums, strict=True):
                    f.store(value, place)

            def add() -> None:
                for place, value in zip(places, sums, strict=True):
                    f.store(f.fadd(f.load(tile.kind, place), value), place)

            if plan.depth == plan.shape.inputs:
                store()
            else:
                f.when(f.compare("icmp eq", start, 0), store, add)

        f.loop(0, count, tile.rows, one, rolled=True)

    f.loop(0, beside, 1, panel, rolled=True)


def _outputs(s: _Strip, first: Int, count: Int, low: Int, high: Int) -> None:
    """Transform the products of some panels back, add the bias and run the stores."""
    f, plan, tile, scheme = s.f, s.plan, s.plan.tile, s.plan.scheme
    vectors = f.mul(f.sub(high, low), tile.vectors)
    kept = f.alloca(tile.kind, scheme.tile) if s.heavy else None

    def one(t: Value, _: Sequence[Value]) -> None:
        n, *at = unravel(f, f.add(first, t), tile_counts(plan.shape, scheme))
        top, left = (f.mul(k, scheme.tile) for k in at)
        start = f.at(s.products, f.mul(t, plan.group_width))

        def channels(v: Value, _: Sequence[Value]) -> None:
            column = f.add(f.mul(low, tile.width), f.mul(v, tile.lanes))
            column = f.minimum(column, plan.shape.outputs - tile.lanes)
            here = f.at(start, f.mul(v, tile.lanes))
            bias = plan.shape.bias
            given = None
            if bias is not None:
                given = initial(f, s.target, s.pointers, bias, [column], tile.lanes, tile.lanes, tile.element)[0]

            def read(i: int, j: Value) -> Value:
                return f.load(tile.kind, f.at(here, f.mul(f.add(j, i * scheme.span), plan.product_pitch)))

            def write(i: Value, values: Sequence[Value]) -> None:
                row = f.add(top, i)
                found = values if given is None else [f.fadd(value, given) for value in values]
                if kept is None:
                    for j, value in enumerate(found):
                        _pixel(s, n, column, row, f.add(left, j), j, value)
                    return
                for j, value in enumerate(found):
                    f.store(value, f.at(kept, j, tile.kind))

                def later(j: Value, _: Sequence[Value]) -> None:
                    value = f.load(tile.kind, f.at(kept, j, tile.kind))
                    _pixel(s, n, column, row, f.add(left, j), scheme.tile - 1, value)

                f.loop(0, scheme.tile, 1, later, rolled=True)

            extents = (scheme.span, scheme.tile)
            emit_sides(s.arithmetic, scheme.outputs, tile.kind, extents, s.between, read, write)

        f.loop(0, vectors, 1, channels, rolled=True)

    f.loop(0, count, 1, one, rolled=True)


def _pixel(s: _Strip, n: Int, column: Int, row: Int, line: Int, place: int, value: Value) -> None:
    """Run the stores of one output pixel if it exists; at an edge, the last ones of a tile may not."""
    f = s.f
    tests = [
        f.compare("icmp slt", at, axis.out)
        for at, axis, k in zip((row, line), s.plan.shape.spatial, (s.plan.scheme.tile - 1, place), strict=True)
        if 0 < axis.out % s.plan.scheme.tile <= k
    ]

    def store() -> None:
        s.finish({"i0": n, "i1": column, "i2": row, "i3": line}, "i1", value, value.lanes)

    if not tests:
        store()
        return
    f.when(tests[0] if len(tests) == 1 else f.binary("and", tests[0], tests[1]), store)


WINOGRAD = Kernel("winograd-convolution", _accepts, _space, _arguments, _build)
