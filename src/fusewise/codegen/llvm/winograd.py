"""Winograd's convolution F(2x2, 3x3): 2.25 times fewer multiplications for 3x3 filters of unit stride.

Takes Conv tasks in float32 with channels last; gives a kernel. Tiles of 2x2 outputs are numbered over batch, rows and
columns, and cut into strips; a strip is worked on in scratch memory that stays in cache:

    for strip:  transform its inputs                         [16][tile][input channel]
      for group of panels:
        for each of 16 positions:  for panel:  product       [16][tile][channel of the group]
        transform back, add the bias, run the stores

Work is dealt out as (strip, panel) pairs, so few tiles are still shared evenly; a strip that workers share has its inputs
transformed by each of them.

On random data the difference from the exact result is at most 5e-6 of the largest output for up to 512 input channels. The
transforms add inputs that one output alone does not read: an infinity or NaN spreads to all four outputs of its tile, and
inputs above a quarter of the largest float32 may overflow.
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
    POSITIONS,
    TILE,
    emit_input_tile,
    output_tile,
    tile_counts,
    transformed_weights,
)
from fusewise.codegen.packing import packed, panels, panels_of
from fusewise.codegen.target import Target
from fusewise.ir.dtypes import FLOAT32
from fusewise.lower.task import Reason, Task

__all__ = ["WINOGRAD", "applies"]

LEAST_CHANNELS = 32
"""Fewer channels on either side, and the transforms cost more than the products save."""

GROUP = 4
"""Panels whose products are transformed back at once."""

MANY_TILES = 96
"""Tiles of a strip that use weights from memory often enough to hide the time they take to arrive; measured."""

LEAST_TILES = 32
"""Fewer tiles than this over the whole output, and reading the weights, 16/9 as large as the filters, decides."""

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
    if math.prod(tile_counts(shape)) == 0:
        return Reason("no outputs")
    return None


def _accepts(task: Task, target: Target) -> Reason | None:
    reason = applies(task, target)
    return _unprofitable(_understood(task), target) if reason is None else reason


def _unprofitable(shape: Convolution, target: Target) -> Reason | None:
    """Why the direct form is faster, measured: few tiles, for which weights come from beyond the second cache level."""
    weights = POSITIONS * 4 * shape.inputs * shape.outputs
    if math.prod(tile_counts(shape)) < LEAST_TILES and weights > target.l2_bytes:
        return Reason("direct convolution reads fewer weights for so few outputs")
    return None


@dataclass(frozen=True)
class _Plan:
    """Sizes of one convolution: `per_strip` row tiles to a strip, `together` panels to a group."""

    shape: Convolution
    tile: Tile
    per_strip: int
    together: int

    @property
    def tiles(self) -> int:
        """Winograd tiles of the whole output."""
        return math.prod(tile_counts(self.shape))

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
    def input_pitch(self) -> int:
        """Elements of one position of the transformed inputs."""
        return self.per_strip * self.tile.rows * self.shape.inputs + APART

    @property
    def product_pitch(self) -> int:
        """Elements of one position of the products."""
        return self.per_strip * self.tile.rows * self.together * self.tile.width + APART


def _plan(shape: Convolution, params: Params) -> _Plan:
    return _Plan(shape, tile_of(params), int(params["tiles"]), int(params["panels"]))


def _understood(task: Task) -> Convolution:
    shape = convolution_of(task)
    assert not isinstance(shape, Reason), shape
    return shape


def _space(task: Task, target: Target) -> Iterable[Params]:
    shape = _understood(task)
    tiles = math.prod(tile_counts(shape))
    for rows, vectors in favourite_tiles(target, tiles, shape.outputs, shape.inputs, target.lanes)[:4]:
        width = vectors * target.lanes
        together = min(GROUP, -(-shape.outputs // width))
        steps = -(-tiles // rows)
        most = _longest_strip(shape, target, rows, together * width)
        strips = -(-steps // most)
        yield {
            "rows": rows,
            "vectors": vectors,
            "lanes": target.lanes,
            "tiles": -(-steps // strips),
            "panels": together,
        }


def _longest_strip(shape: Convolution, target: Target, rows: int, columns: int) -> int:
    """Row tiles to a strip: as many as the second cache level holds, more when large weights are read for each strip.

    The weights of a strip come from the third level; the larger they are, the more tiles should use them.
    """
    weights = POSITIONS * 4 * shape.inputs * shape.outputs
    each = POSITIONS * 4 * rows * (shape.inputs + columns)
    wanted = -(-min(MANY_TILES, 4 * MANY_TILES * weights // target.l3_bytes) // rows)
    return max(1, target.l2_bytes * 3 // 4 // each, min(wanted, target.l3_bytes // 8 // each))


def _arguments(task: Task, target: Target, params: Params) -> tuple[Argument, ...]:
    plan = _plan(_understood(task), params)
    tile = plan.tile

    def pack(weight: np.ndarray) -> np.ndarray:
        return panels(transformed_weights(weight), tile.lanes, tile.vectors)

    nbytes = POSITIONS * (plan.input_pitch + plan.product_pitch) * 4
    weight = plan.shape.weight
    first, inputs, row, column = weight.strides
    channels, outputs = (plan.shape.inputs, inputs), (plan.shape.outputs, first)
    data = panels_of(weight, (), (channels,), outputs, tile.lanes, tile.vectors, (row, column))
    return operand_arguments(
        task,
        [
            Argument(
                weight.operand.name, packed(weight, f"winograd 2x2 panels {tile.vectors}x{tile.lanes}", pack, data)
            ),
            Argument("scratch", nbytes=-(-nbytes // 64) * 64, per_worker=True),
        ],
    )


def _build(task: Task, target: Target, params: Params, symbol: str) -> str:
    plan = _plan(_understood(task), params)
    arguments = _arguments(task, target, params)
    module, f, pointers, worker, workers = enter(symbol, arguments)
    inputs = scratch_of(f, pointers, arguments, worker)
    zeros = module.zeros(f"{symbol}_zeros", plan.shape.inputs * 4)
    products = f.at(inputs, POSITIONS * plan.input_pitch)
    strip = _Strip(
        f, target, plan, pointers, inputs, products, zeros, finisher(f, task, target, pointers), is_heavy(task)
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
    products: Value
    zeros: Value
    finish: Finish
    heavy: bool


def _emit_strip(s: _Strip, strip: Int, low: Int, high: Int) -> None:
    """Panels low..high of one strip."""
    f, plan = s.f, s.plan
    rows, tiles = plan.tile.rows, plan.tiles
    step = f.mul(strip, plan.per_strip)
    first = f.minimum(f.mul(step, rows), tiles - rows)
    count = f.sub(f.minimum(f.mul(f.add(step, plan.per_strip), rows), tiles), first)

    def transform(t: Value, _: Sequence[Value]) -> None:
        shape = plan.shape
        where = f.at(s.inputs, f.mul(t, shape.inputs))
        source = s.pointers[shape.data.operand.name]
        emit_input_tile(f, shape, source, s.zeros, f.add(first, t), plan.tile.lanes, where, plan.input_pitch)

    f.loop(0, count, 1, transform, rolled=True)

    def group(panel: Value, _: Sequence[Value]) -> None:
        beyond: Int = f.minimum(f.add(panel, plan.together), high) if plan.together > 1 else f.add(panel, 1)
        f.loop(0, POSITIONS, 1, lambda e, _: _products(s, e, count, panel, beyond), rolled=True)
        _outputs(s, first, count, panel, beyond)

    f.loop(low, high, plan.together, group, rolled=True)


def _products(s: _Strip, position: Value, count: Int, low: Int, high: Int) -> None:
    """One position's product of the strip's tiles and the columns of some panels."""
    f, plan, tile = s.f, s.plan, s.plan.tile
    depth = plan.shape.inputs
    weights = s.pointers[plan.shape.weight.operand.name]
    left = f.at(s.inputs, f.mul(position, plan.input_pitch))
    result = f.at(s.products, f.mul(position, plan.product_pitch))
    zero = f.constant(0.0, tile.kind)

    def panel(p: Value, _: Sequence[Value]) -> None:
        number = f.add(f.mul(position, plan.panels), p)
        first = f.at(weights, f.mul(number, depth * tile.width))
        columns = tuple(f.at(first, v * tile.lanes) for v in range(tile.vectors))
        beside = f.mul(f.sub(p, low), tile.width)

        def one(t: Value, _: Sequence[Value]) -> None:
            row = f.minimum(t, f.sub(count, tile.rows))
            start = f.at(left, f.mul(row, depth))
            rows = [f.at(start, r * depth) for r in range(tile.rows)]
            begin = [zero] * (tile.rows * tile.vectors)
            sums = accumulate(f, s.target, tile, rows, Panel(columns, tile.width), (Level(depth, 1),), begin)
            there = f.at(result, f.add(f.mul(row, plan.together * tile.width), beside))
            for k, value in enumerate(sums):
                r, v = divmod(k, tile.vectors)
                f.store(value, f.at(there, r * plan.together * tile.width + v * tile.lanes))

        f.loop(0, count, tile.rows, one, rolled=True)

    f.loop(low, high, 1, panel, rolled=True)


def _outputs(s: _Strip, first: Int, count: Int, low: Int, high: Int) -> None:
    """Transform the products of some panels back, add the bias and run the stores."""
    f, plan, tile = s.f, s.plan, s.plan.tile
    vectors = f.mul(f.sub(high, low), tile.vectors)
    kept = f.alloca(tile.kind, TILE * TILE) if s.heavy else None

    def one(t: Value, _: Sequence[Value]) -> None:
        n, *at = unravel(f, f.add(first, t), tile_counts(plan.shape))
        top, left = (f.mul(k, TILE) for k in at)
        start = f.at(s.products, f.mul(t, plan.together * tile.width))

        def channels(v: Value, _: Sequence[Value]) -> None:
            column = f.add(f.mul(low, tile.width), f.mul(v, tile.lanes))
            column = f.minimum(column, plan.shape.outputs - tile.lanes)
            here = f.at(start, f.mul(v, tile.lanes))
            found = output_tile(f, [f.load(tile.kind, f.at(here, e * plan.product_pitch)) for e in range(POSITIONS)])
            bias = plan.shape.bias
            if bias is not None:
                given = initial(f, s.target, s.pointers, bias, [column], tile.lanes, tile.lanes, tile.element)[0]
                found = [[f.fadd(value, given) for value in row] for row in found]
            if kept is None:
                for i, row in enumerate(found):
                    for j, value in enumerate(row):
                        _pixel(s, n, column, f.add(top, i), f.add(left, j), (i, j), value)
                return
            for k, value in enumerate([value for row in found for value in row]):
                f.store(value, f.at(kept, k, tile.kind))

            def later(k: Value, _: Sequence[Value]) -> None:
                i, j = unravel(f, k, (TILE, TILE))
                value = f.load(tile.kind, f.at(kept, k, tile.kind))
                _pixel(s, n, column, f.add(top, i), f.add(left, j), (1, 1), value)

            f.loop(0, TILE * TILE, 1, later, rolled=True)

        f.loop(0, vectors, 1, channels, rolled=True)

    f.loop(0, count, 1, one, rolled=True)


def _pixel(s: _Strip, n: Int, column: Int, row: Int, line: Int, place: tuple[int, int], value: Value) -> None:
    """Run the stores of one output pixel if it exists; at an odd edge, the second of a tile does not."""
    f = s.f
    tests = [
        f.compare("icmp slt", at, axis.out)
        for at, axis, k in zip((row, line), s.plan.shape.spatial, place, strict=True)
        if k and axis.out % TILE
    ]

    def store() -> None:
        s.finish({"i0": n, "i1": column, "i2": row, "i3": line}, "i1", value, value.lanes)

    if not tests:
        store()
        return
    f.when(tests[0] if len(tests) == 1 else f.binary("and", tests[0], tests[1]), store)


WINOGRAD = Kernel("winograd-convolution", _accepts, _space, _arguments, _build)
