"""Instance and group normalisation with channels last: statistics of all channels of a share at once, then the result.

Channels are dealt out in units, runs of whole groups and whole vectors. A share goes over its channels of every pixel twice. First
every block of a few pixels gives, for each channel, its mean and the sum of squares about it, which are merged with those of the
blocks before (Chan, Golub and LeVeque, 1983), so that memory is read once and nothing cancels. Where there are fewer units than
workers want, those of one unit divide its rows among them, and each computes the statistics for itself.

How many samples and pixels there are need not be known: what blocks leave of a row is then taken one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from fusewise.codegen.families.generic.any_nest import unsupported
from fusewise.codegen.families.product.places import unravel
from fusewise.codegen.kernel import Argument, Kernel, working_memory
from fusewise.codegen.llvm.elements import Elements, unwritten
from fusewise.codegen.llvm.entry import OpenFunction, operand_arguments, written
from fusewise.codegen.llvm.memory import access_of
from fusewise.codegen.llvm.plain import read_operand
from fusewise.codegen.llvm.point import Point
from fusewise.codegen.llvm.reduction import across_lanes, pairwise
from fusewise.codegen.llvm.share import LEAST_PIECES
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import multiply_add
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.target import InstructionSet, Target
from fusewise.ir.deciding import hint, known_zero
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.size import Size
from fusewise.lower.task import RefusalReason, Task
from fusewise.ops.expr import Expr, index, walk
from fusewise.records import record

__all__ = ["CHANNEL_NORM"]

LEAST_LANES = 4
"""Fewest channels to a vector."""


@record(frozen=True)
class ChannelNorm:
    """`channels` of `samples` in groups of `size`; `rows` of `width` pixels each, the rows over the axes `above`.

    `lanes` channels to a vector; `unit` channels are whole groups and whole vectors. `x`, `scale` and `bias` are elements at
    i0, i1, ...
    """

    samples: int
    channels: int
    size: int
    above: tuple[int, ...]
    width: int
    lanes: int
    unit: int
    epsilon: float
    x: Expr
    scale: Expr
    bias: Expr

    @property
    def rows(self) -> int:
        return math.prod(self.above)

    @property
    def units(self) -> int:
        """Of one sample."""
        return self.channels // self.unit


@record(frozen=True)
class ChannelNormSchedule:
    """In how many `pieces` the rows of a unit of channels are dealt out."""

    pieces: int


def understand(task: Task, instructions: InstructionSet) -> ChannelNorm | RefusalReason:
    """The task as a normalisation over pixels, or why it is none."""
    anchor = task.anchor
    if anchor is None or anchor.family not in ("instance_norm", "group_norm"):
        return RefusalReason(
            "the anchor is not an instance or group normalisation", "" if anchor is None else anchor.op
        )
    if len(task.extents) < 3 or any(map(known_zero, task.extents)) or anchor.output.dtype != FLOAT32:
        return RefusalReason("not float32 of three or more axes", anchor.op)
    (samples, channels), pixels = task.extents[:2], task.extents[2:]
    if isinstance(channels, Size):
        return RefusalReason("how many channels there are is not known", anchor.op)
    scales = anchor.inputs[1]
    if scales is None or scales.dims != (channels,):
        return RefusalReason("its scales are not per channel", anchor.op)
    size = channels // int(anchor.attribute("num_groups", channels))
    at = tuple(index(f"i{k}") for k in range(len(task.extents)))
    x, scale, bias = (read_operand(anchor, k, place) for k, place in enumerate((at, at[1:2], at[1:2])))
    if any(node.op == "reduce" for node in walk(x)):
        return RefusalReason("what is read is itself a reduction", anchor.op)
    lanes = next((n for n in _powers(instructions.lanes) if channels % math.lcm(size, n) == 0), 0)
    if lanes < LEAST_LANES:
        return RefusalReason("too few channels for a vector", str(channels))
    point = unwritten(task, instructions).at(dict.fromkeys(task.ranges, 0), "i1", 2)
    steps = [access_of(point, task.operand(n.value), n.args).step for n in walk(x) if n.op == "load"]
    if 1 not in steps or any(step not in (0, 1) for step in steps):
        return RefusalReason("channels are not the fastest axis", anchor.op)
    epsilon = float(anchor.attribute("epsilon", 1e-5))
    unit = math.lcm(size, lanes)
    reason = unsupported(task)
    found = ChannelNorm(samples, channels, size, pixels[:-1], pixels[-1], lanes, unit, epsilon, x, scale, bias)
    return found if reason is None else reason


def _powers(most: int) -> Iterable[int]:
    while most >= LEAST_LANES:
        yield most
        most //= 2


def _schedules(d: ChannelNorm, task: Task, target: Target) -> Iterable[ChannelNormSchedule]:
    whole = d.samples * d.units
    is_even = whole >= LEAST_PIECES * target.workers or whole % target.workers == 0
    yield ChannelNormSchedule(1 if is_even or d.rows == 1 else min(target.figures.sharing.units // 2, d.rows))


def _arguments(d: ChannelNorm, task: Task, schedule: ChannelNormSchedule) -> tuple[Argument, ...]:
    return operand_arguments(task, [working_memory(2 * 4 * d.channels)])


def _write(o: OpenFunction, d: ChannelNorm, schedule: ChannelNormSchedule) -> None:
    f, means, pieces = o.f, o.scratch(), schedule.pieces
    e = _Emitter(f, d, o.elements, means, f.at(means, d.channels))
    each = d.units * pieces
    low, high = o.share.run(f, d.samples * each)

    def sample(n: Value, _: Sequence[Value]) -> None:
        first = f.mul(n, each)
        begin = f.maximum(f.sub(low, first), 0)
        end = f.minimum(f.sub(high, first), each)
        units = f.udiv(begin, pieces), f.udiv(f.add(end, pieces - 1), pieces)
        e.statistics(n, *units)
        if pieces == 1:
            e.results(n, *units, 0, d.rows)
            return

        def divided(u: Value, _: Sequence[Value]) -> None:
            mine = f.mul(u, pieces)
            top, bottom = f.maximum(f.sub(begin, mine), 0), f.minimum(f.sub(end, mine), pieces)
            e.results(n, u, f.add(u, 1), *(f.udiv(f.mul(piece, d.rows), pieces) for piece in (top, bottom)))

        f.loop(*units, 1, divided, rolled=True)

    f.loop(f.udiv(low, each), f.udiv(f.add(high, each - 1), each), 1, sample, rolled=True)


@record(frozen=True)
class _Emitter:
    """`means` and `spreads` point to a number for each channel: the mean, and the sum of squares about it, later the slope."""

    f: Function
    d: ChannelNorm
    elements: Elements
    means: Value
    spreads: Value

    @property
    def kind(self) -> str:
        return vector("float", self.d.lanes)

    def multiply_add(self, a: Value, b: Value, c: Value) -> Value:
        return multiply_add(self.f, self.elements.instructions, a, b, c)

    def statistics(self, n: Int, low: Int, high: Int) -> None:
        """Of units `low` to `high` of a sample."""
        f, d = self.f, self.d
        begin, end = f.mul(low, d.unit), f.mul(high, d.unit)
        for numbers in (self.means, self.spreads):
            f.clear(f.at(numbers, begin), f.mul(f.sub(end, begin), 4))

        def block(row: Int, start: Int, width: int) -> None:
            before = f.convert("sitofp", f.i64(f.add(f.mul(row, d.width), start)), "float")
            share = f.binary(
                "fdiv", f.constant(float(width), "float"), f.fadd(before, f.constant(float(width), "float"))
            )
            apart = f.fmul(before, share)

            def channels(c: Value, _: Sequence[Value]) -> None:
                values = [self.point(n, c, row, f.add(start, k)).value(d.x) for k in range(width)]
                self.merge(c, values, share, apart)

            f.loop(begin, end, d.lanes, channels, rolled=True)

        self.blocks(0, d.rows, block)
        if d.size > 1:
            f.loop(begin, end, d.size, lambda c, _: self.group(c), rolled=True)
        f.loop(begin, end, d.lanes, lambda c, _: self.slope(c), rolled=True)

    def results(self, n: Int, low: Int, high: Int, top: Int, bottom: Int) -> None:
        """Of units `low` to `high` of a sample, and rows `top` to `bottom`."""
        f, d = self.f, self.d

        def block(row: Int, start: Int, width: int) -> None:
            def channels(c: Value, _: Sequence[Value]) -> None:
                mean, slope = (f.load(self.kind, f.at(numbers, c)) for numbers in (self.means, self.spreads))
                bias = self.point(n, c, row, start).value(d.bias)
                for k in range(width):
                    x = self.point(n, c, row, f.add(start, k)).value(d.x)
                    found = self.multiply_add(f.fsub(x, mean), slope, bias)
                    point = self.point(n, c, row, f.add(start, k), found)
                    for store in self.elements.task.stores:
                        point.store(store)

            f.loop(f.mul(low, d.unit), f.mul(high, d.unit), d.lanes, channels, rolled=True)

        self.blocks(top, bottom, block)

    def blocks(self, top: Int, bottom: Int, block: Callable[[Int, Int, int], None]) -> None:
        """`block(row, first, width)` for blocks of pixels of rows `top` to `bottom`, as even as the registers allow."""
        f, width = self.f, self.d.width
        most = self.elements.instructions.registers // 2
        usual = hint(width)
        each = -(-usual // -(-usual // most))

        def row(r: Value, _: Sequence[Value]) -> None:
            f.loop(0, width // each * each, each, lambda start, _: block(r, start, each), rolled=True)
            if isinstance(width, Size):
                f.loop(width // each * each, width, 1, lambda start, _: block(r, start, 1), rolled=True)
            elif width % each:
                block(r, width // each * each, width % each)

        f.loop(top, bottom, 1, row, rolled=True)

    def merge(self, c: Int, values: Sequence[Value], share: Value, apart: Value) -> None:
        """Take a block of pixels into the statistics of the channels from `c` on.

        Of m pixels, after n others, `share` is m / (n + m), and `apart` n m / (n + m).
        """
        f, lanes = self.f, self.d.lanes
        own = f.fmul(self.sum(values), f.constant(1 / len(values), self.kind))
        spread = f.constant(0.0, self.kind)
        for value in values:
            away = f.fsub(value, own)
            spread = self.multiply_add(away, away, spread)
        mean, before = (f.load(self.kind, f.at(numbers, c)) for numbers in (self.means, self.spreads))
        away = f.fsub(own, mean)
        f.store(self.multiply_add(away, f.splat(share, lanes), mean), f.at(self.means, c))
        between = f.fmul(f.fmul(away, away), f.splat(apart, lanes))
        f.store(f.fadd(before, f.fadd(spread, between)), f.at(self.spreads, c))

    def sum(self, values: Sequence[Value]) -> Value:
        return pairwise(values, self.f.fadd)

    def group(self, first: Int) -> None:
        """The mean of a group in place of those of its channels, and its sum of squares over its size in place of theirs."""
        f, size = self.f, self.d.size
        lanes = self.d.lanes if size % self.d.lanes == 0 else 1
        kind = vector("float", lanes)

        def total(term: Callable[[Value], Value]) -> Value:
            def add(k: Value, carried: Sequence[Value]) -> Sequence[Value]:
                return (f.fadd(carried[0], term(f.add(first, k))),)  # type: ignore[arg-type]

            (found,) = f.loop(0, size, lanes, add, (f.constant(0.0, kind),), rolled=True)
            whole = across_lanes(f, self.elements.instructions, "sum", found, FLOAT32)
            return f.fmul(whole, f.constant(1 / size, "float"))

        def spread(c: Value) -> Value:
            away = f.fsub(f.load(kind, f.at(self.means, c)), f.splat(mean, lanes))
            return f.fadd(f.load(kind, f.at(self.spreads, c)), f.fmul(f.fmul(away, away), self.pixels(kind)))

        mean = total(lambda c: f.load(kind, f.at(self.means, c)))
        found = total(spread)

        def put(k: Value, _: Sequence[Value]) -> None:
            for value, numbers in ((mean, self.means), (found, self.spreads)):
                f.store(f.splat(value, lanes), f.at(numbers, f.add(first, k)))

        f.loop(0, size, lanes, put, rolled=True)

    def pixels(self, kind: str) -> Value:
        """How many there are, as a float in every lane."""
        f, pixels = self.f, self.d.rows * self.d.width
        if not isinstance(pixels, Size):
            return f.constant(float(pixels), kind)
        return f.splat(f.convert("sitofp", f.i64(pixels), "float"), Value("", kind).lanes)

    def slope(self, c: Int) -> None:
        """What channels from `c` on are multiplied by, in place of their sums of squares."""
        f, d = self.f, self.d
        spread = f.load(self.kind, f.at(self.spreads, c))
        if isinstance(d.rows * d.width, Size):
            variance = f.binary("fdiv", spread, self.pixels(self.kind))
        else:
            variance = f.fmul(spread, f.constant(1 / (d.rows * d.width), self.kind))
        deviation = f.intrinsic("sqrt", f.fadd(variance, f.constant(d.epsilon, self.kind)))
        scale = self.elements.at({"i1": c}, "i1", d.lanes).value(d.scale)
        f.store(f.binary("fdiv", scale, deviation), f.at(self.spreads, c))

    def point(self, n: Int, c: Int, row: Int, column: Int, acc: Value | None = None) -> Point:
        """A vector of channels of a pixel."""
        place = [n, c, *unravel(self.f, row, self.d.above), column]
        return self.elements.at({f"i{k}": i for k, i in enumerate(place)}, "i1", self.d.lanes, acc=acc)


CHANNEL_NORM = Kernel("channel-norm", understand, _schedules, _arguments, written(_arguments, _write))
