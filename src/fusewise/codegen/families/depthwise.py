"""Depthwise convolutions with channels last: every lane is a channel, and a run of output columns shares its input columns.

Takes a task whose anchor is a Conv with one input and one output channel per group; gives LLVM IR. For a run of `span` output
columns and one vector of channels, each input vector is loaded once per kernel row and feeds every output that it touches. Kernel
rows outside the input are skipped by loop bounds; which columns of a run lie outside is known now, because the runs are, so
each distinct border gets code of its own and nothing is tested or copied at run time. Where the width is known only then, the first
and the last run have such code, if what the last lacks is known, and all between them are whole; of few columns each is looked at.

A ConvInteger is computed in float32, whose whole numbers are exact up to 2^24: more than 500 taps of a signed byte each.

Of bfloat16 two vectors of channels are taken at a time: as pairs of 32 bits, of which even channels are the lower halves and odd
ones the upper, either is widened by one instruction, where a vector of bfloat16 takes two. Sums are set side by side at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

import numpy as np

from fusewise.codegen.families.convolution.shape import (
    ABSENT,
    Convolution,
    Spatial,
    convolution_of,
    integer_convolution_of,
)
from fusewise.codegen.families.convolution.strip import existing_taps
from fusewise.codegen.families.product.places import unravel
from fusewise.codegen.families.product.tiles import lanes_for
from fusewise.codegen.kernel import Argument, Kernel, Sharing
from fusewise.codegen.llvm.entry import OpenFunction, initial, operand_arguments, written
from fusewise.codegen.llvm.plain import zero_point
from fusewise.codegen.llvm.registers import splat, widen
from fusewise.codegen.llvm.share import pieces_of
from fusewise.codegen.llvm.stores import Finish, is_heavy
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import multiply_add
from fusewise.codegen.nest.tails import fitted
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import computed, memory_type
from fusewise.codegen.packing import packed
from fusewise.codegen.target import InstructionSet, Target
from fusewise.ir.deciding import hint, known_below, known_one, known_zero
from fusewise.ir.dtypes import BFLOAT16, FLOAT32, FLOAT64, INT8
from fusewise.ir.size import Size, SizeNeeded
from fusewise.lower.task import RefusalReason, Task
from fusewise.ops.expr import Expr, cast
from fusewise.records import record

__all__ = ["DEPTHWISE"]

MOST_TAPS, MOST_WIDE_TAPS = 500, 250
"""Taps whose products of a weight and a centred 8-bit number add up to less than 2^24, of a signed byte and of nine bits."""

LEAST_LANES = 4
"""Fewest channels to a vector; below it the direct convolution is taken, which was not measured against."""

MAX_BORDERS = 6
"""Distinct borders beyond which the code would grow too long; strongly dilated kernels go to the direct convolution."""


@record(frozen=True)
class Depthwise:
    """Geometry in three axes, the absent ones of extent 1, with strides of the input in elements; `lanes` channels at a time, in so
    many `halves`: two are the even and the odd ones. `free`: the width is not known, also where schedules are made for some."""

    shape: Convolution
    axes: tuple[Spatial, Spatial, Spatial]
    names: tuple[str | None, str | None, str]
    strides: tuple[int, int, int]
    lanes: int
    zero: Expr | None = None
    free: bool = False
    halves: int = 1

    @property
    def columns(self) -> Spatial:
        return self.axes[2]

    @property
    def element(self) -> str:
        """The LLVM type of the sums."""
        return "float" if self.shape.dtype.is_integer else computed(self.shape.dtype)


@record(frozen=True)
class DepthwiseSchedule:
    """`span` columns of output are computed at once; channels are cut into `chunks`. Workers share out chunks before rows
    (`by_channels`), or rows before chunks."""

    span: int
    chunks: int
    by_channels: bool


def understand(task: Task, instructions: InstructionSet) -> Depthwise | RefusalReason:
    """The task as a depthwise convolution, or why it is none."""
    integer = task.anchor is not None and task.anchor.op == "ConvInteger"
    shape = integer_convolution_of(task) if integer else convolution_of(task)
    if isinstance(shape, RefusalReason):
        return shape
    if shape.computed is not None:
        return RefusalReason("operand is computed on the way in", "0")
    if integer and shape.taps > (MOST_TAPS if shape.weight.operand.dtype == INT8 else MOST_WIDE_TAPS):
        return RefusalReason("too many taps for exact sums", str(shape.taps))
    if shape.groups == 1 or shape.inputs != 1 or shape.outputs != 1:
        return RefusalReason("not depthwise: a group has several channels")
    if not known_one(shape.data.strides[1]):
        return RefusalReason("channels are not the fastest axis")
    # a last vector is moved back to end at the last channel, so the first must be full
    lanes = min(
        lanes_for(instructions, shape.groups, 64 if shape.dtype == FLOAT64 else 32), 1 << shape.groups.bit_length() - 1
    )
    if lanes < LEAST_LANES:
        return RefusalReason("too few channels for a vector")
    halves = 2 if shape.dtype == BFLOAT16 and shape.groups >= 2 * lanes else 1
    missing = 3 - len(shape.spatial)
    axes = (*(ABSENT,) * missing, *shape.spatial)
    names = (*(None,) * missing, *shape.out_axes)
    strides = (*(0,) * missing, *shape.data.strides[2:])
    zero = zero_point(task.anchored) if integer else None
    free = isinstance(axes[2].extent, Size) or isinstance(axes[2].out, Size)
    places = (names[0], names[1], str(names[2]))
    d = Depthwise(shape, (axes[0], axes[1], axes[2]), places, strides, halves * lanes, zero, free, halves)  # type: ignore[arg-type]
    if free:
        return d
    span = _span(d, instructions)
    if len(runs(d.columns, span)) > MAX_BORDERS:
        return RefusalReason("too many different borders")
    return d


def _span(d: Depthwise, instructions: InstructionSet) -> int:
    """Output columns per run: as many as the registers hold beside one kernel row and a load, spread evenly."""
    most = max(2, min(14, instructions.registers // d.halves - d.columns.kernel - 2))
    count = -(-max(1, d.columns.out) // most)
    if d.halves > 1 and not d.free:
        # the last run is moved back: shorter ones may compute less twice, and widen more
        def cost(count: int) -> int:
            span = -(-d.columns.out // count)
            return count * (span * d.columns.kernel + (span - 1) * d.columns.stride + d.columns.kernel)

        count = min(range(count, min(count + 2, max(1, d.columns.out)) + 1), key=cost)
    if d.free:  # a row begins with a run and ends with another
        count = max(count, min(2, d.columns.out))
        return max(1, d.columns.out // count)
    return max(1, -(-d.columns.out // count))


def _schedules(d: Depthwise, task: Task, target: Target) -> Iterable[DepthwiseSchedule]:
    rows = d.shape.batch * d.axes[0].out * d.axes[1].out
    vectors = -(-d.shape.groups // d.lanes)
    chunks = max(1, min(vectors, target.figures.sharing.units // max(1, rows)))
    by_channels = d.shape.groups > target.figures.sharing.shared_by_rows * math.prod(axis.out for axis in d.axes)
    best = _span(d, target)
    for span in dict.fromkeys((best, max(1, best - 1), min(4, best))):
        if d.free or len(runs(d.columns, span)) <= MAX_BORDERS:
            yield DepthwiseSchedule(span, chunks, by_channels)


def _arguments(d: Depthwise, task: Task, schedule: DepthwiseSchedule) -> tuple[Argument, ...]:
    dtype = d.shape.dtype
    element = dtype.numpy if d.halves == 2 or dtype == FLOAT64 else np.dtype(np.float32)

    def arrange(weight: np.ndarray) -> np.ndarray:
        found = np.ascontiguousarray(np.moveaxis(weight[:, 0], 0, -1).astype(element))
        return found.view(np.int16) if d.halves == 2 else found

    weight = d.shape.weight
    return operand_arguments(
        task, [Argument(weight.operand.name, packed(weight, f"depthwise {element.name}", arrange))]
    )


Border = tuple[int, ...]
"""Offsets, from the first input column of a run, of the columns that exist."""


def runs(columns: Spatial, span: int) -> list[tuple[int, int, Border]]:
    """The runs of a row, as (first run, last run + 1, border), consecutive ones with equal borders together."""
    count = -(-columns.out // span)

    def border(number: int) -> Border:
        start = min(number * span, columns.out - span) * columns.stride - columns.before
        needed = {u * columns.stride + k * columns.dilation for u in range(span) for k in range(columns.kernel)}
        return tuple(sorted(offset for offset in needed if 0 <= start + offset < columns.extent))

    found = []
    for value, members in groupby(range(count), border):
        numbers = list(members)
        found.append((numbers[0], numbers[-1] + 1, value))
    return found


def _write(o: OpenFunction, d: Depthwise, schedule: DepthwiseSchedule) -> None:
    f, instructions, pointers, shape = o.f, o.instructions, o.pointers, d.shape
    span, chunks, by_channels = schedule.span, schedule.chunks, schedule.by_channels
    vectors = -(-shape.groups // d.lanes)
    kind = vector(d.element, d.lanes)
    buffer = f.alloca(d.element, span * d.lanes) if is_heavy(o.task) else None
    finish = o.finish
    if shape.dtype.is_integer:
        finish = _whole(f, finish)
    zero = None if d.zero is None else o.elements.at({}).value(cast(d.zero, FLOAT32))
    extents = [shape.batch, d.axes[0].out, d.axes[1].out]
    extents = [chunks, *extents] if by_channels else [*extents, chunks]
    units = math.prod(extents)

    def unit(number: Value, _: Sequence[Value]) -> None:
        found = unravel(f, number, extents)
        chunk, batch, depth, height = found if by_channels else (found[-1], *found[:-1])
        slices = existing_taps(f, d.axes[0], depth)
        rows = existing_taps(f, d.axes[1], height)
        low = f.udiv(f.mul(chunk, vectors), chunks)
        high = f.udiv(f.mul(f.add(chunk, 1), vectors), chunks)
        at: dict[str, Int] = {"i0": batch}
        at.update({name: index for name, index in zip(d.names, (depth, height), strict=False) if name is not None})
        base = f.add(shape.data.offset, f.mul(batch, shape.data.strides[0]))
        for axis, position, stride in zip(d.axes, (depth, height), d.strides, strict=False):
            base = f.add(base, f.mul(f.sub(f.mul(position, axis.stride), axis.before), stride))

        def some(first: Int, last: Int, border: Border, begin: Callable[[Value], Int], looks: bool = False) -> None:
            def run(r: Value, _: Sequence[Value]) -> None:
                start = begin(r)
                left = f.sub(f.mul(start, d.columns.stride), d.columns.before)
                looked = _looked(f, d, border, left) if looks else None
                origin = f.add(base, f.mul(left, d.strides[2])) if looked is None else base
                pixels = _PixelRun(border, origin, slices, rows, zero, looked)

                def channels(v: Value, _: Sequence[Value]) -> None:
                    channel = fitted(f, f.mul(v, d.lanes), d.lanes, shape.groups)
                    bias = _apart(f, d, initial(o, shape.bias, [channel], kind, d.lanes)[0])
                    sums = _reduce(f, instructions, d, pointers, pixels, channel, bias * span)
                    _finish(f, d, finish, {**at, "i1": channel}, start, _together(f, d, sums), buffer)

                f.loop(low, high, 1, channels, rolled=True)

            f.loop(first, last, 1, run, rolled=True)

        if d.free:
            _free_runs(f, d, span, some)
            return
        for first, last, border in runs(d.columns, span):
            some(first, last, border, lambda r: fitted(f, f.mul(r, span), span, d.columns.out))

    low, high = o.share.run(f, units)
    if not any(map(known_zero, (units, shape.groups, d.columns.out))):
        f.loop(low, high, 1, unit, rolled=True)


def _needed(columns: Spatial, span: int) -> Border:
    """Of a run all of whose columns exist."""
    return tuple(
        sorted({u * columns.stride + k * columns.dilation for u in range(span) for k in range(columns.kernel)})
    )


def _free_runs(f: Function, d: Depthwise, span: int, some: Callable[..., None]) -> None:
    """The runs of a row whose width is not known; those at the ends have borders of their own where there are two runs at least."""
    columns, border = d.columns, _needed(d.columns, span)
    beyond = (columns.out - 1) * columns.stride + columns.reach - columns.before - columns.extent
    low = -(
        -columns.before // columns.stride
    )  # outputs before this one lack inputs, as do the last ones; no run has both
    if low > span or not known_below(beyond, (span - low) * columns.stride + 1) or hint(columns.out) < 2 * span:
        some(0, -(-columns.out // span), border, _moved_back(f, columns.out, span), looks=True)
        return
    if columns.out < 2 * span:
        raise SizeNeeded(f"two runs of {span} outputs are none for {columns.out}")
    some(0, 1, tuple(offset for offset in border if offset >= columns.before), lambda r: 0)
    inner = columns.out - 2 * span
    some(0, -(-inner // span), border, lambda r: f.maximum(f.add(f.minimum(f.mul(r, span), inner - span), span), low))
    if isinstance(beyond, Size):
        some(0, 1, border, lambda r: columns.out - span, looks=True)
    else:
        some(0, 1, tuple(offset for offset in border if offset <= border[-1] - beyond), lambda r: columns.out - span)


def _moved_back(f: Function, out: int, span: int) -> Callable[[Value], Int]:
    """Where a run begins, of which the last ends where the row does."""
    if span > 1 and out < span:
        raise SizeNeeded(f"a run of {span} outputs is none for {out}")
    return lambda r: fitted(f, f.mul(r, span), span, out)


def _looked(f: Function, d: Depthwise, border: Border, left: Int) -> tuple[tuple[Int, Value], ...]:
    """Of each column of a run that begins at `left`: where it lies in a row of the input, and does it? Otherwise another does."""
    found = []
    for offset in border:
        at = f.add(left, offset)
        inside = f.compare("icmp ult", at, d.columns.extent)
        found.append((f.mul(f.select(inside, f.i64(at), f.i64(0)), d.strides[2]), inside))
    return tuple(found)


@record(frozen=True)
class _PixelRun:
    """A run of outputs: its inputs lie from `origin` on, of which those of the border exist, and only these slices and rows of
    taps. `zero` is taken from integers. What is known of each only when `looked` at is there: where it lies, and does it exist?"""

    border: Border
    origin: Int
    slices: tuple[Int, Int]
    rows: tuple[Int, Int]
    zero: Value | None
    looked: tuple[tuple[Int, Value], ...] | None = None


def _reduce(
    f: Function,
    instructions: InstructionSet,
    d: Depthwise,
    pointers: Mapping[str, Value],
    run: _PixelRun,
    channel: Int,
    start: Sequence[Value],
) -> tuple[Value, ...]:
    """Sums of a run over the kernel rows that exist, of each output all halves; the columns of a kernel row are written out."""
    shape, columns, zero = d.shape, d.columns, run.zero
    stored, element = memory_type(shape.dtype), d.element
    in_panel = stored if d.halves == 2 else element
    data, weights = pointers[shape.data.operand.name], pointers[shape.weight.operand.name]

    def kernel_row(z: Int, y: Int, sums: Sequence[Value]) -> list[Value]:
        result = list(sums)
        row = f.add(run.origin, channel)
        for axis, place, stride in zip(d.axes, (z, y), d.strides, strict=False):
            row = f.add(row, f.mul(place, axis.dilation * stride))
        first = f.at(data, row, stored)
        tap = f.mul(f.add(f.mul(z, d.axes[1].kernel), y), columns.kernel * shape.groups)
        panel = f.at(weights, f.add(tap, channel), in_panel)
        taps = [
            f.load(vector(in_panel, d.lanes), f.at(panel, k * shape.groups, in_panel)) for k in range(columns.kernel)
        ]
        factors = [_widened_halves(f, given) if d.halves == 2 else [given] for given in taps]
        for number, offset in enumerate(run.border):
            skip = offset * d.strides[2] if run.looked is None else run.looked[number][0]
            given = f.load(vector(stored, d.lanes), f.at(first, skip, stored))
            value = given if d.halves == 2 else widen(f, instructions, given, shape.dtype)
            if shape.dtype.is_integer:
                value = f.convert("sitofp" if shape.dtype.kind == "int" else "uitofp", value, element)
                value = value if zero is None else f.fsub(value, f.splat(zero, d.lanes))
            if run.looked is not None:
                value = f.select(run.looked[number][1], value, f.constant(0, value.type))
            values = _widened_halves(f, value) if d.halves == 2 else [value]
            for k, factor in enumerate(factors):
                u, rest = divmod(offset - k * columns.dilation, columns.stride)
                if rest == 0 and 0 <= u < len(start) // d.halves:
                    for at, (x, weight) in enumerate(zip(values, factor, strict=True), u * d.halves):
                        result[at] = multiply_add(f, instructions, x, weight, result[at])
        return result

    def kernel_slice(z: Int, sums: Sequence[Value]) -> Sequence[Value]:
        if d.axes[1].kernel == 1 and d.axes[1].is_inside:
            return kernel_row(z, 0, sums)
        return f.loop(
            run.rows[0], run.rows[1], 1, lambda y, carried: kernel_row(z, y, carried), tuple(sums), rolled=True
        )

    if d.axes[0].kernel == 1 and d.axes[0].is_inside:
        return tuple(kernel_slice(0, start))
    return f.loop(run.slices[0], run.slices[1], 1, kernel_slice, tuple(start), rolled=True)


def _widened_halves(f: Function, given: Value) -> list[Value]:
    """A vector of bfloat16 as floats: its even lanes, its odd ones."""
    pairs = f.bitcast(given, vector("i32", given.lanes // 2))
    even = f.binary("shl", pairs, splat(f, 16, pairs, "i32"))
    odd = f.binary("and", pairs, splat(f, 0xFFFF0000, pairs, "i32"))
    return [f.convert("bitcast", half, "float") for half in (even, odd)]


def _apart(f: Function, d: Depthwise, value: Value) -> list[Value]:
    """A vector as the halves that are computed."""
    return [f.shuffle(value, value, range(k, d.lanes, d.halves)) for k in range(d.halves)] if d.halves > 1 else [value]


def _together(f: Function, d: Depthwise, sums: Sequence[Value]) -> Sequence[Value]:
    """Sums of halves as those of whole vectors."""
    if d.halves == 1:
        return sums
    half = d.lanes // 2
    order = [k // 2 + half * (k % 2) for k in range(d.lanes)]
    return [f.shuffle(even, odd, order) for even, odd in zip(sums[::2], sums[1::2], strict=True)]


def _whole(f: Function, finish: Finish) -> Finish:
    """Stores of sums that are whole numbers, as the integers they are."""
    return lambda indices, lane, value, count: finish(indices, lane, f.convert("fptosi", value, "i32"), count)


def _finish(
    f: Function,
    d: Depthwise,
    finish: Finish,
    at: Mapping[str, Int],
    start: Int,
    sums: Sequence[Value],
    buffer: Value | None,
) -> None:
    """Run the stores for every output of a run, in a loop when there is a buffer."""
    name = d.names[2]
    if buffer is None:
        for u, value in enumerate(sums):
            finish({**at, name: f.add(start, u)}, "i1", value, d.lanes)
        return
    element = sums[0].element
    for u, value in enumerate(sums):
        f.store(value, f.at(buffer, u * d.lanes, element))

    def later(u: Value, _: Sequence[Value]) -> None:
        value = f.load(sums[0].type, f.at(buffer, f.mul(u, d.lanes), element))
        finish({**at, name: f.add(start, u)}, "i1", value, d.lanes)

    f.loop(0, len(sums), 1, later, rolled=True)


def _sharing(d: Depthwise, schedule: DepthwiseSchedule) -> Sharing | None:
    """Rows, as `_build` shares them out."""
    rows, chunks = d.axes[1], schedule.chunks
    if d.shape.is_free or d.shape.batch > 1 or d.axes[0] != ABSENT or schedule.by_channels:
        return None
    units = rows.out * chunks

    def done(number: int, shares: int) -> int:
        return number * units // shares // chunks

    def begun(number: int, shares: int) -> int:
        return -(-(number * units // shares) // chunks)

    def reads(number: int, shares: int) -> tuple[int, int]:
        low, high = done(number, shares), begun(number + 1, shares)
        reach = rows.dilation * (rows.kernel - 1)
        first, last = (row * rows.stride - rows.before for row in (low, high - 1))
        return max(0, first), min(rows.extent, last + reach + 1)

    nbytes = rows.out * d.columns.out * d.shape.groups * d.shape.dtype.itemsize
    return Sharing(nbytes, done, begun, reads)


def _pieces(d: Depthwise, target: Target, schedule: DepthwiseSchedule) -> int:
    rows = d.shape.batch * d.axes[0].out * d.axes[1].out
    cycles = rows * d.columns.out * -(-d.shape.groups // d.lanes) * d.shape.taps / 2
    return pieces_of(rows * schedule.chunks, cycles, target)


DEPTHWISE = Kernel(
    "depthwise-convolution",
    understand,
    _schedules,
    _arguments,
    written(_arguments, _write),
    sharing=_sharing,
    pieces=_pieces,
)
