"""Elements as keys, unsigned integers of which smaller ones are better, and sorting by them.

Every dtype and either order is then one code. Keys are sorted by digits of eight bits from the last on, each pass keeping the order
that it finds, so that equal ones stay as they are.
"""

from __future__ import annotations

from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.ir.dtypes import DType

__all__ = ["LEAST_BITS", "digit_bytes", "key_of", "sort_keys"]

DIGIT, DIGITS = 8, 256
"""Bits by which a pass sorts, and how many different digits that makes."""

LANES = 16
"""Digits whose numbers are summed up together; LLVM splits them where registers are shorter."""

LEAST_BITS = 2 * DIGIT
"""Of a key: passes go from one place to another and back."""


def digit_bytes(bits: int) -> int:
    """Memory for how often each digit occurs in keys of so many bits."""
    return bits // DIGIT * DIGITS * 4


def key_of(f: Function, raw: Value, dtype: DType, largest: bool, bits: int) -> Value:
    """Elements, integers as memory has them, as keys of so many bits: equal numbers have one, and those that are none, which are
    larger than any."""
    have = int(raw.element[1:])

    def splat(number: int) -> Value:
        return f.constant(number, raw.type)

    sign = 1 << (have - 1)
    if dtype.is_float:
        magnitude = f.binary("and", raw, splat(sign - 1))
        flips = f.binary("or", f.binary("ashr", raw, splat(have - 1)), splat(sign))
        ordered = f.binary("xor", raw, flips)
        ordered = f.select(f.compare("icmp eq", magnitude, splat(0)), splat(sign), ordered)
        ordered = f.select(f.compare("icmp ugt", magnitude, splat(_infinity(dtype))), splat(-1), ordered)
    else:
        ordered = f.binary("xor", raw, splat(sign)) if dtype.kind == "int" else raw
    ordered = f.binary("xor", ordered, splat(-1)) if largest else ordered
    return ordered if have == bits else f.convert("zext", ordered, f"i{bits}")


def _infinity(dtype: DType) -> int:
    """The bits of infinity."""
    exponent, mantissa = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}[dtype.name]
    return ((1 << exponent) - 1) << mantissa


Pair = tuple[Value, Value]
"""Where keys lie, and the i32 that go with them."""


def sort_keys(f: Function, bits: int, sides: tuple[Pair, Pair], digits: Value, count: Int) -> None:
    """Sort `count` keys and what goes with them, which lie in the first of the sides, by way of the second; `digits` is memory to
    work in (`digit_bytes`)."""
    kind, passes = f"i{bits}", bits // DIGIT
    f.clear(digits, digit_bytes(bits))

    def digit(key: Value, number: int) -> Value:
        moved = f.binary("lshr", key, f.constant(number * DIGIT, kind)) if number else key
        low = f.binary("and", moved, f.constant(DIGITS - 1, kind))
        return low if bits == 64 else f.convert("zext", low, "i64")

    def slot(number: int, at: Int) -> Value:
        return f.at(digits, f.add(at, number * DIGITS), "i32")

    def counted(i: Value, _: object) -> None:
        key = f.load(kind, f.at(sides[0][0], i, kind))
        for number in range(passes):
            where = slot(number, digit(key, number))
            f.store(f.binary("add", f.load("i32", where), f.constant(1, "i32")), where)

    def summed(at: Value, totals: tuple[Value, ...]) -> list[Value]:
        return [_summed(f, slot(number, at), total) for number, total in enumerate(totals)]

    def passed(number: int, source: Pair, target: Pair) -> None:
        def moved(i: Value, _: object) -> None:
            key, place = f.load(kind, f.at(source[0], i, kind)), f.load("i32", f.at(source[1], i, "i32"))
            where = slot(number, digit(key, number))
            there = f.load("i32", where)
            f.store(f.binary("add", there, f.constant(1, "i32")), where)
            at = f.convert("zext", there, "i64")
            f.store(key, f.at(target[0], at, kind))
            f.store(place, f.at(target[1], at, "i32"))

        f.loop(0, count, 1, moved, rolled=True)

    f.loop(0, count, 1, counted, rolled=True)
    f.loop(0, DIGITS, LANES, summed, [f.constant(0, "i32")] * passes, rolled=True)
    for number in range(passes):
        passed(number, sides[number % 2], sides[1 - number % 2])


def _summed(f: Function, where: Value, total: Value) -> Value:
    """Each of `LANES` numbers in memory becomes the sum of `total` and of those before it; gives the sum of all."""
    numbers = f.load(vector("i32", LANES), where)
    zeros, sums, by = f.constant(0, numbers.type), numbers, 1
    while by < LANES:
        sums = f.binary("add", sums, f.shuffle(zeros, sums, range(LANES - by, 2 * LANES - by)))
        by *= 2
    sums = f.binary("add", sums, f.splat(total, LANES))
    f.store(f.binary("sub", sums, numbers), where)
    return f.extract(sums, LANES - 1)
