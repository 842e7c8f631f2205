"""What happens to the scores of an attention between its two products: the mask, and the exponentials with their sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fusewise.codegen.families.attention.shape import AttentionShape
from fusewise.codegen.llvm.entry import OpenFunction, widened
from fusewise.codegen.llvm.math import functions as mathfn
from fusewise.codegen.llvm.reduction import across_lanes
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import memory_type
from fusewise.codegen.target import InstructionSet
from fusewise.ir.deciding import known_equal
from fusewise.ir.dtypes import BOOL, FLOAT32
from fusewise.ir.size import Size, greatest
from fusewise.records import record

__all__ = ["ScoreRows", "bends", "end_row", "exponentials", "mask_columns", "masked"]

TOGETHER = (4, 2, 1)
"""Rows at a time, if they divide a strip: one alone waits for each of its sums."""

LOWEST = -3.4028234663852886e38  # the lowest finite float32


@record(frozen=True)
class ScoreRows:
    """Rows of scores in scratch memory, `pitch` elements apart, and a place for one number per row.

    A row has `keys` scores; the first `seen` of them are computed, a whole number of vectors or all. Where the number of keys is
    not known there is room for a vector, even of a row without any.
    """

    scores: Value
    sums: Value
    rows: int
    pitch: int
    keys: int
    seen: Int


def masked(o: OpenFunction, s: AttentionShape, at: tuple[Int, Int, Int, Int], score: Value) -> Value:
    """Scores of consecutive keys from `at` (batch, head, query, key) on, bent and masked; a key that takes no part has -inf."""
    f, (batch, head, query, key) = o.f, at
    lanes, never = score.lanes, f.constant(-math.inf, score.type)
    if s.softcap:
        bent = mathfn.call(f, o.instructions, "tanh", f.fmul(score, f.constant(1 / s.softcap, score.type)))
        score = f.fmul(bent, f.constant(s.softcap, score.type))
    if s.mask is not None:
        offset = f.add(s.mask.at(f, batch, head, query), f.mul(key, s.mask.element))
        start = f.at(o.pointers[s.mask.operand], offset, memory_type(s.mask_dtype))
        count = lanes if s.free_keys else min(lanes, s.keys)
        given = widened(f, o.instructions, start, s.mask.element, s.mask_dtype, lanes, count)
        if s.mask_dtype == BOOL:
            score = f.select(f.compare("icmp ne", given, f.constant(0, given.type)), score, never)
        else:
            score = f.fadd(score, given)
    if s.causal:
        own = f.i64(0) if lanes == 1 else f.constants(range(lanes), "i64")
        behind = f.splat(f.i64(f.sub(f.i64(query), f.i64(key))), lanes)
        score = f.select(f.compare("icmp sle", own, behind), score, never)
    return score


def bends(s: AttentionShape) -> bool:
    """Does anything happen to a score?"""
    return bool(s.softcap) or s.mask is not None or s.causal


def mask_columns(
    o: OpenFunction, s: AttentionShape, at: tuple[Int, Int, Int], row: Value, columns: tuple[Int, Int], lanes: int
) -> None:
    """Bend and mask, in place, the scores at `row` of a (batch, head, query) for the keys from and up to `columns`."""
    f, (low, high) = o.f, columns
    count = f.maximum(f.sub(high, low), 0)
    whole = f.add(low, f.mul(f.udiv(count, lanes), lanes))

    def some(lanes: int) -> Callable[[Value, Sequence[Value]], None]:
        def one(key: Value, _: Sequence[Value]) -> None:
            place = f.at(row, key)
            f.store(masked(o, s, (*at, key), f.load(vector("float", lanes), place)), place)

        return one

    f.loop(low, whole, lanes, some(lanes), rolled=True)
    if lanes > 1:
        f.loop(whole, high, 1, some(1), rolled=True)


def exponentials(f: Function, instructions: InstructionSet, strip: ScoreRows, lanes: int) -> None:
    """Every score becomes exp(score - the row's largest), in place; the row's number becomes one over their sum.

    A row whose keys all take no part gives zeros, as ONNX wants it.
    """
    kind = vector("float", lanes)
    end = strip.seen if isinstance(strip.seen, Value) else -(-strip.seen // lanes) * lanes

    def some(first: Value, together: int) -> None:
        numbers = [f.add(first, k) for k in range(together)]
        rows = [f.at(strip.scores, f.mul(r, strip.pitch)) for r in numbers]
        if not known_equal(strip.keys % lanes, 0):
            for row in rows:
                end_row(f, row, lanes, strip.keys)

        def largest(i: Value, peaks: Sequence[Value]) -> list[Value]:
            return [
                f.intrinsic("maxnum", peak, f.load(kind, f.at(row, i))) for peak, row in zip(peaks, rows, strict=True)
            ]

        # with a finite floor, -inf minus the largest is never NaN
        peaks = f.loop(0, end, lanes, largest, [f.constant(LOWEST, kind)] * together, rolled=True)
        shifts = [f.splat(across_lanes(f, instructions, "max", peak, FLOAT32), lanes) for peak in peaks]

        def power(i: Value, sums: Sequence[Value]) -> list[Value]:
            found = []
            for total, row, shift in zip(sums, rows, shifts, strict=True):
                place = f.at(row, i)
                result = mathfn.call(f, instructions, "exp_below", f.fsub(f.load(kind, place), shift))
                f.store(result, place)
                found.append(f.fadd(total, result))
            return found

        sums = f.loop(0, end, lanes, power, [f.constant(0.0, kind)] * together, rolled=True)
        for number, vector_sum in zip(numbers, sums, strict=True):
            f.store(_inverse(f, across_lanes(f, instructions, "sum", vector_sum, FLOAT32)), f.at(strip.sums, number))

    most = next(n for n in TOGETHER if isinstance(strip.rows, Size) or strip.rows % n == 0)
    whole = strip.rows // most * most
    f.loop(0, whole, most, lambda first, _: some(first, most), rolled=True)
    if not known_equal(whole, strip.rows):
        f.loop(whole, strip.rows, 1, lambda first, _: some(first, 1), rolled=True)


def _inverse(f: Function, total: Value) -> Value:
    """One over a row's sum; 0 where nothing was added."""
    zero = f.constant(0.0, "float")
    inverse = f.binary("fdiv", f.constant(1.0, "float"), total)
    return f.select(f.compare("fcmp oeq", total, zero), zero, inverse)


def end_row(f: Function, row: Value, lanes: int, keys: int) -> None:
    """Fill the last vector of a row, which `keys` do not fill, with keys that take no part."""
    if lanes == 1:
        return
    kind, place = vector("float", lanes), f.at(row, greatest((keys - 1) // lanes * lanes, 0))
    if isinstance(keys, Size):
        known = f.mask(keys - greatest((keys - 1) // lanes * lanes, 0), lanes)
    else:
        known = f.constants([k < keys % lanes for k in range(lanes)], "i1")
    f.store(f.select(known, f.load(kind, place), f.constant(-math.inf, kind)), place)
