"""A cache that holds a window of the keys: the newest ones at the front, in their order, older ones dropped several at a time.

With room for C rows and a window of W, `G = C - W + 1` rows are dropped whenever there are more than C: of T keys so far there stay
`T - G ceil((T - C) / G)` (GroupQueryAttention, `sliding_window_cache`).
"""

from __future__ import annotations

from fusewise.frontend.domains.microsoft.scores import counted
from fusewise.frontend.domains.writer import DomainValue, DomainWriter
from fusewise.ir.dtypes import INT64
from fusewise.records import record

__all__ = ["SlidingCache", "sliding_cache"]

_NEVER = 2**62


@record(frozen=True)
class SlidingCache:
    """`positions` (batch, 1, 1, room + new ones): of the rows of the cache and the new ones behind them, beyond all keys for rows
    that hold none. `rows` (batch, 1, room, 1): which of those the cache holds afterwards."""

    positions: DomainValue
    rows: DomainValue

    def after(self, g: DomainWriter, past: DomainValue, joined: DomainValue) -> DomainValue:
        """The cache afterwards; `joined` are its rows and the new ones behind them."""
        return g.GatherElements(joined, g.Expand(self.rows, g.sizes(past)), axis=2)


def sliding_cache(
    g: DomainWriter, past: DomainValue, new: DomainValue, total: DomainValue, first: DomainValue, window: int
) -> SlidingCache:
    """Where things are for `total` keys (batch), of which those from `first` (batch) on are new."""
    room = past.extent(2)
    if room is not None and room < window:
        raise g.invalid(f"its cache has room for {room} rows; it must have room for the window, which is {window}")
    rest = g.Pad(past, [0] * 6 + [-window, 0])  # a cache without room for the window is refused by its shape
    dropped = g.scalar(g.dim(rest, 2)) + 1
    places = g.scalar(g.dim(past, 2))
    total, first = g.Unsqueeze(total, [1]), g.Unsqueeze(first, [1])
    had, has = (_kept(g, count, places, dropped) for count in (first, total))
    row = counted(g, g.dim(past, 2))
    never = g.number(_NEVER, INT64)
    old = g.Where(g.Less(row, had), row + (first - had), never)
    both = g.Concat(old, counted(g, g.dim(new, 2)) + first, axis=1)
    position = row + (total - has)
    chosen = g.Where(g.Less(position, first), position - (first - had), position - first + places)
    last = places + g.scalar(g.dim(new, 2)) - 1
    return SlidingCache(g.Unsqueeze(both, [1, 2]), g.Unsqueeze(g.Min(chosen, last), [1, 3]))


def _kept(g: DomainWriter, count: DomainValue, room: DomainValue, dropped: DomainValue) -> DomainValue:
    over = g.Max(count - room, g.number(0, INT64))
    return count - (over + (dropped - 1)) // dropped * dropped
