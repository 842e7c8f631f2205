"""Native code for what host steps do with boxes: RoiAlign and NonMaxSuppression, each one function for all shapes.

How many boxes there are is only known while a model runs, so these functions take everything as data. They follow the kernels'
convention: they run on the same workers, and their code lies in the same cache and in the same files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from fusewise.codegen.box_routines import (
    ALIGN_ARGUMENTS,
    ALIGN_BOXES,
    ALIGN_HEADER,
    CHUNK,
    LANES,
    SUPPRESS_ARGUMENTS,
    SUPPRESS_BOXES,
    SUPPRESS_HEADER,
)
from fusewise.codegen.llvm.checked import checked_code
from fusewise.codegen.llvm.entry import routine
from fusewise.codegen.llvm.radix_sort import key_of, sort_keys
from fusewise.codegen.llvm.share import Share
from fusewise.codegen.llvm.square import transposed
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import multiply_add
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.target import InstructionSet
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Node
from fusewise.lower.program import KernelCode

__all__ = ["align_boxes", "routine_for", "suppress_boxes"]

_FLOATS = vector("float", LANES)

Pointers = Mapping[str, Value]

KEY_BITS = 32
"""Of a score that is sorted by."""


def routine_for(node: Node, instructions: InstructionSet) -> KernelCode | None:
    """The native code that helps a host step with this node, if there is any."""
    if node.domain or node.op not in ("RoiAlign", "NonMaxSuppression"):
        return None
    return align_boxes(instructions) if node.op == "RoiAlign" else suppress_boxes(instructions)


def align_boxes(instructions: InstructionSet) -> KernelCode:
    """Every cell's sum over its row taps and column taps of the pixel times both shares."""

    def write(f: Function, at: Pointers, words: Pointers, share: Share) -> None:
        cells = f.mul(words["rows"], words["columns"])
        scratch = f.at(at["scratch"], f.mul(share.worker, f.mul(cells, CHUNK)))
        low, high = share.run(f, words["boxes"])

        def box(number: Value, _: object) -> None:
            source = f.at(at["source"], _entry(f, at["images"], number))
            there = f.at(at["target"], f.mul(number, f.mul(words["channels"], cells)))
            done: Int = 0
            for width in (CHUNK, LANES, 1):
                end = f.mul(f.udiv(words["channels"], width), width)

                def chunk(channel: Value, _: object, width: int = width) -> None:
                    _cells(f, instructions, {**at, **words}, number, f.at(source, channel), scratch, width)
                    _turned(f, scratch, f.at(there, f.mul(channel, cells)), cells, width)

                f.loop(done, end, width, chunk, rolled=True)
                done = end

        f.loop(low, high, 1, box, rolled=True)

    recipe = f"{ALIGN_BOXES}|{LANES}|{CHUNK}|{instructions.key}"
    made = routine(ALIGN_BOXES, ALIGN_ARGUMENTS, ALIGN_HEADER, recipe, write)
    return checked_code(made) if instructions.sanitize else made


def _cells(
    f: Function,
    instructions: InstructionSet,
    at: Pointers,
    box: Value,
    source: Value,
    scratch: Value,
    width: int,
) -> None:
    """`width` channels from `source` on of all cells of a box: scratch[row, column, channel]. `at` has the words of the header,
    too."""
    lanes = min(width, LANES)
    kind = vector("float", lanes)
    row_taps, row_start = _entry(f, at["row_taps"], box), _entry(f, at["row_starts"], box)
    column_taps, column_start = _entry(f, at["column_taps"], box), _entry(f, at["column_starts"], box)

    def tap(share: Value, here: Value, k: Value, sums: tuple[Value, ...]) -> list[Value]:
        pixel = f.at(here, _entry(f, at["column_offsets"], k))
        both = f.splat(f.fmul(share, f.load("float", f.at(at["column_weights"], k))), lanes)
        loaded = [f.load(kind, f.at(pixel, number * lanes)) for number in range(len(sums))]
        return [multiply_add(f, instructions, both, value, total) for value, total in zip(loaded, sums, strict=True)]

    def row_tap(first: Int, last: Int, k: Value, sums: tuple[Value, ...]) -> tuple[Value, ...]:
        share = f.load("float", f.at(at["row_weights"], k))
        here = f.at(source, _entry(f, at["row_offsets"], k))
        return f.loop(first, last, 1, lambda column, inner: tap(share, here, column, inner), sums, rolled=True)

    def cell(row: Value, column: Value) -> None:
        upper, left = f.add(row_start, f.mul(row, row_taps)), f.add(column_start, f.mul(column, column_taps))
        lower, right = f.add(upper, row_taps), f.add(left, column_taps)
        zeros = [f.constant(0.0, kind)] * (width // lanes)
        sums = f.loop(upper, lower, 1, lambda k, sums: row_tap(left, right, k, sums), zeros, rolled=True)
        there = f.at(scratch, f.mul(f.add(f.mul(row, at["columns"]), column), width))
        for number, total in enumerate(sums):
            f.store(total, f.at(there, number * lanes))

    def row(number: Value, _: object) -> None:
        f.loop(0, at["columns"], 1, lambda column, _: cell(number, column), rolled=True)

    f.loop(0, at["rows"], 1, row, rolled=True)


def _turned(f: Function, scratch: Value, there: Value, cells: Int, width: int) -> None:
    """there[channel, cell] = scratch[cell, channel]: squares of `LANES` in registers, what is left one by one."""
    done: Int = 0
    if width >= LANES:
        done = f.mul(f.udiv(cells, LANES), LANES)

        def square(cell: Value, channel: Value) -> None:
            source = f.at(scratch, f.add(f.mul(cell, width), channel))
            rows = transposed(f, [f.load(_FLOATS, f.at(source, k * width)) for k in range(LANES)])
            target = f.at(there, f.add(f.mul(channel, cells), cell))
            for k, row in enumerate(rows):
                f.store(row, f.at(target, f.mul(cells, k)))

        def squares(channel: Value, _: object) -> None:
            f.loop(0, done, LANES, lambda cell, _: square(cell, channel), rolled=True)

        f.loop(0, width, LANES, squares, rolled=True)

    def channel(number: Value, _: object) -> None:
        source, line = f.at(scratch, number), f.at(there, f.mul(number, cells))

        def cell(k: Value, _: object) -> None:
            f.store(f.load("float", f.at(source, f.mul(k, width))), f.at(line, k))

        f.loop(done, cells, 1, cell)

    f.loop(0, width, 1, channel, rolled=True)


def suppress_boxes(instructions: InstructionSet) -> KernelCode:
    """Of every class boxes from the best on, of equal ones the first, unless one chosen before overlaps by more than the limit; one
    worker does it all.

    A box is compared with those chosen, not those chosen with all the rest: the same comparisons, and a box that is out is done
    with. Bounds that are no numbers overlap nothing, since their area is none either.
    """

    def write(f: Function, at: Pointers, words: Pointers, share: Share) -> None:
        limits = f.load("float", at["limits"]), f.load("float", f.at(at["limits"], 1))
        sides = (at["keys"], at["places"]), (at["other_keys"], at["other_places"])
        low, high = share.run(f, 1)

        def kind(number: Value, rows: tuple[Value, ...]) -> list[Value]:
            scores = f.at(at["scores"], f.mul(number, words["boxes"]))
            counting = _counting(f, at, words, scores, limits[1])
            sort_keys(f, KEY_BITS, sides, at["digits"], counting)
            return [_suppressed(f, at, words, number, counting, f.splat(limits[0], LANES), rows[0])]

        def all_of_them(_: Value, __: object) -> None:
            (rows,) = f.loop(0, words["classes"], 1, kind, [f.i64(0)], rolled=True)
            f.store(rows, at["count"])

        f.loop(low, high, 1, all_of_them, rolled=True)

    recipe = f"{SUPPRESS_BOXES}|{LANES}|{instructions.key}"
    made = routine(SUPPRESS_BOXES, SUPPRESS_ARGUMENTS, SUPPRESS_HEADER, recipe, write)
    return checked_code(made) if instructions.sanitize else made


def _counting(f: Function, at: Pointers, words: Pointers, scores: Value, least: Value) -> Value:
    """Keys and places of the boxes whose score counts; gives how many there are."""
    always = f.compare("icmp ne", words["all"], 0)

    def box(i: Value, kept: tuple[Value, ...]) -> list[Value]:
        raw = f.load("i32", f.at(scores, i))
        score = f.convert("bitcast", raw, "float")
        key = key_of(f, raw, FLOAT32, True, KEY_BITS)
        worst = f.select(f.compare("fcmp uno", score, score), f.constant(-1, "i32"), key)
        f.store(worst, f.at(at["keys"], kept[0], "i32"))
        f.store(f.convert("trunc", i, "i32"), f.at(at["places"], kept[0], "i32"))
        counts = f.binary("or", always, f.compare("fcmp ogt", score, least))
        return [f.i64(f.add(kept[0], f.convert("zext", counts, "i64")))]

    return f.loop(0, words["boxes"], 1, box, [f.i64(0)], rolled=True)[0]


def _suppressed(
    f: Function, at: Pointers, words: Pointers, number: Value, counting: Value, limit: Value, begin: Value
) -> Value:
    """The rows of one class, from row `begin` on; gives the row behind them."""
    image, kind = f.udiv(number, words["of_image"]), f.urem(number, words["of_image"])
    source = f.at(at["boxes"], f.mul(f.mul(image, words["boxes"]), 4))
    looked, count = f.alloca("i64"), f.alloca("i64")
    for pointer in (looked, count):
        f.store(f.i64(0), pointer)

    def emptied(i: Value, _: object) -> None:
        for k, value in enumerate((math.inf, -math.inf, math.inf, -math.inf, math.inf)):
            f.store(f.constant(value, _FLOATS), f.at(at["chosen"], f.add(f.mul(words["room"], k), i)))

    def goes_on() -> Value:
        more = f.compare("icmp slt", f.load("i64", looked), counting)
        return f.binary("and", more, f.compare("icmp slt", f.load("i64", count), words["most"]))

    def box() -> None:
        position, kept = f.load("i64", looked), f.load("i64", count)
        place = f.convert("zext", f.load("i32", f.at(at["places"], position, "i32")), "i64")
        ours = _bounds(f, f.at(source, f.mul(place, 4)), f.compare("icmp ne", words["centred"], 0))

        def keep() -> None:
            for k, value in enumerate(ours):
                f.store(value, f.at(at["chosen"], f.add(f.mul(words["room"], k), kept)))
            row = f.at(at["rows"], f.mul(f.add(begin, kept), 3), "i64")
            for k, part in enumerate((image, kind, place)):
                f.store(f.i64(part), f.at(row, k, "i64"))
            f.store(f.i64(f.add(kept, 1)), count)

        beaten = _beaten(f, at["chosen"], words["room"], kept, [f.splat(x, LANES) for x in ours], limit)
        f.when(beaten, lambda: None, keep)
        f.store(f.i64(f.add(position, 1)), looked)

    f.loop(0, words["room"], LANES, emptied, rolled=True)
    f.repeat(goes_on, box)
    return f.i64(f.add(begin, f.load("i64", count)))


def _bounds(f: Function, box: Value, centred: Value) -> list[Value]:
    """Of a box as the model gives it: lower and upper bound of either axis, and its area."""
    a, b, c, d = (f.load("float", f.at(box, k)) for k in range(4))
    half, less, more = f.constant(0.5, "float"), partial(_picked, f, "fcmp olt"), partial(_picked, f, "fcmp ogt")
    found: list[Value] = []
    for first, second, centre, extent in ((a, c, a, c), (b, d, b, d)):
        by = f.fmul(extent, half)
        ordered = less(first, second), more(first, second)
        around = f.fsub(centre, by), f.fadd(centre, by)
        found += [f.select(centred, one, other) for one, other in zip(around, ordered, strict=True)]
    low0, high0, low1, high1 = found
    return [*found, f.fmul(f.fsub(high0, low0), f.fsub(high1, low1))]


def _beaten(f: Function, chosen: Value, room: Value, count: Value, ours: list[Value], limit: Value) -> Value:
    """Does one of the first `count` chosen boxes overlap ours too much? Looks no further than the first that does."""

    def clear(at: Value) -> list[Value]:
        theirs = [f.load(_FLOATS, f.at(chosen, f.add(f.mul(room, k), at))) for k in range(5)]
        return [f.compare("icmp eq", f.any(_overlap(f, theirs, ours, limit)), f.constant(False, "i1"))]

    def goes_on(at: Value) -> Value:
        return f.when(f.compare("icmp slt", at, count), lambda: clear(at), lambda: [f.constant(False, "i1")])[0]

    (at,) = f.repeat(goes_on, lambda at: [f.i64(f.add(at, LANES))], [f.i64(0)])
    return f.compare("icmp slt", at, count)


def _overlap(f: Function, theirs: list[Value], ours: list[Value], limit: Value) -> Value:
    """Is what two boxes share, divided by what they cover together, more than the limit? Lane by lane."""
    zero = f.constant(0.0, _FLOATS)
    less, more = partial(_picked, f, "fcmp olt"), partial(_picked, f, "fcmp ogt")

    def side(low: int, high: int) -> Value:
        return more(f.fsub(less(theirs[high], ours[high]), more(theirs[low], ours[low])), zero)

    shared = f.fmul(side(0, 1), side(2, 3))
    joined = f.fsub(f.fadd(theirs[4], ours[4]), shared)
    part = f.compare("fcmp ogt", f.binary("fdiv", shared, joined), limit)
    return f.binary("and", f.compare("fcmp ogt", shared, zero), part)


def _picked(f: Function, predicate: str, a: Value, b: Value) -> Value:
    return f.select(f.compare(predicate, a, b), a, b)


def _entry(f: Function, table: Value, k: Int) -> Value:
    return f.load("i64", f.at(table, k, "i64"))
