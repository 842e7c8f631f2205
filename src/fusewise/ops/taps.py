"""Sums of elements at places that come from data: what sampling operators read, and how much of each.

A tap says which element of operand 0 [n, channels, spatial..] is read, all channels alike, and its share. Places are proved to lie
inside whatever the data holds, and an element whose share is zero is not read at all, so that no infinity there does harm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewise.ops.expr import Expr, cast, compare, const, select
from fusewise.ops.indexing import compute_type, value
from fusewise.ops.spec import Call
from fusewise.records import record

__all__ = ["MOST_TAPS", "Tap", "Taps", "sum_of_taps"]

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


def sum_of_taps(call: Call, taps: Sequence[Tap], channel: Expr) -> Expr:
    """The shares of the elements of one channel, added up in the type arithmetic is done in."""
    dtype = compute_type(call.input(0).dtype)
    total: Expr | None = None
    for tap in taps:
        share = cast(tap.share, dtype)
        read = value(call, 0, tap.sample, channel, *tap.places)
        counts = compare("ne", share, 0)
        if share.op == "const":
            term = read if share.value == 1 else read * share
        else:
            term = select(counts, read, 0) * share
        total = term if total is None else total + term
    return const(0, dtype) if total is None else total
