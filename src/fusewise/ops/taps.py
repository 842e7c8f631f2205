"""Sums of elements at places that come from data: what sampling operators read, and how much of each.

A tap says which element of operand 0 [n, channels, spatial..] is read, all channels alike, and its share. Places are proved to lie
inside whatever the data holds, and an element whose share is zero is not read at all, so that no infinity there does harm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from fusewise.ir.dtypes import INT32, INT64
from fusewise.ops.expr import Expr, binary, cast, compare, select
from fusewise.ops.indexing import compute_type, value
from fusewise.ops.spec import Call
from fusewise.records import record

__all__ = ["MOST_TAPS", "Tap", "Taps", "max_of_taps", "sum_of_taps", "whole"]

MOST_TAPS = 64
"""Elements that a definition adds up at most: cubic interpolation along three axes."""


@record(frozen=True)
class Tap:
    """One element of the image: its sample, its places along the spatial axes, and its share, a float."""

    sample: Expr
    places: tuple[Expr, ...]
    share: Expr


Taps = Callable[[Call, tuple[Expr, ...]], list[Tap]]
"""The taps of an output element, given its index; they are the same for all channels, which are its axis 1."""


def whole(position: Expr) -> Expr:
    """A float that is a whole number, of less than 32 bits, as a place along an axis: vectors convert to these at once."""
    return cast(cast(position, INT32), INT64)


def sum_of_taps(call: Call, taps: Sequence[Tap], channel: Expr) -> Expr:
    """The shares of the elements of one channel, added up in the type arithmetic is done in."""
    return _combined("add", call, taps, channel)


def max_of_taps(call: Call, taps: Sequence[Tap], channel: Expr) -> Expr:
    """The largest of the shares of the elements of one channel."""
    return _combined("max", call, taps, channel)


def _combined(op: str, call: Call, taps: Sequence[Tap], channel: Expr) -> Expr:
    dtype = compute_type(call.input(0).dtype)
    terms = []
    for tap in taps:
        share = cast(tap.share, dtype)
        read = value(call, 0, tap.sample, channel, *tap.places)
        if share.op != "const":
            read = select(compare("ne", share, 0), read, 0)
        terms.append(read if share.op == "const" and share.value == 1 else read * share)
    return reduce(lambda total, term: binary(op, total, term), terms)
