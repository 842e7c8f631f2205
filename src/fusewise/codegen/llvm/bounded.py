"""Positions that come from data: kept within bounds, and reported where they were not.

A comparison, and a branch that is never taken, for each vector of them; no address is ever computed from what is out of bounds.
"""

from __future__ import annotations

from fusewise.codegen.llvm.point import Point
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Value
from fusewise.ir.deciding import known_below, known_zero
from fusewise.ir.size import Size
from fusewise.ops.expr import Expr

__all__ = ["bounded_element"]


def bounded_element(point: Point, expr: Expr) -> Value:
    """The value of a `bounded` node at a point, in lanes that exist and whose path is taken.

    A position out of bounds goes to the words of its site in the argument `fault`, which are 1 from then on and the position.
    """
    f = point.function
    low, high, site = expr.value
    position = point.minimal(expr.args[0])
    least = f.splat(f.i64(low), position.lanes) if isinstance(low, Size) else f.constant(low, position.type)
    if known_below(high, low):
        outside = f.constant(True, f"<{position.lanes} x i1>" if position.lanes > 1 else "i1")
    else:
        above = position if known_zero(low) else f.binary("sub", position, least)
        if isinstance(high - low, Size):
            there = f.splat(f.i64(f.maximum(high - low + 1, 0)), position.lanes)
            outside = f.compare("icmp uge", above, there)
        else:
            outside = f.compare("icmp ugt", above, f.constant(high - low, position.type))
    wrong = outside
    if position.lanes > 1:
        for present in (point.mask, None if point.count is None else f.mask(point.count, point.lanes)):
            wrong = wrong if present is None else f.binary("and", wrong, present)
    words = f.at(point.elements.pointers["fault"], 2 * site, "i64")
    any_wrong = wrong if wrong.lanes == 1 else f.intrinsic("vector.reduce.or", wrong, result="i1")
    f.when(any_wrong, lambda: _report(f, words, wrong, position), rarely=True)
    return f.select(outside, least, position)


def _report(f: Function, words: Value, wrong: Value, position: Value) -> None:
    """The first of the positions that are wrong."""
    if wrong.lanes > 1:
        bits = f.bitcast(wrong, f"i{wrong.lanes}")
        lane = f.convert("zext", f.intrinsic("cttz", bits), "i64")
        position = f.extract(position, lane)
    f.store(position, f.at(words, 1, "i64"))
    f.store(f.i64(1), words)
