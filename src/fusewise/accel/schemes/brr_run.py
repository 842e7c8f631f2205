"""Buffer need and traffic of row tiles (BRR) as running them takes, to the element.

    F_beta = regions for one-row tiles (see `tiles`) + the largest piece of a filter in flight
    F_D    = rows read, once for each time they are, + results + weights once for each tile

The piece in flight is a filter where all input channels are there, and a few channels of it where they flow. Tiles are as
high as the buffer allows; when all weights fit beside them, those stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from fusewise.accel.bits import bits_of
from fusewise.accel.network import Network
from fusewise.accel.schemes.scheme import bytes_for, traffic, weights_of
from fusewise.accel.schemes.tiles import Spread, TileLayout

__all__ = ["GroupPhase", "Way", "in_flight", "need_as_run", "ways_as_run"]

Spreads = Callable[[int], dict[int, Spread]]
"""The rows of every tensor that each tile needs, by the height of the tiles (see `rows_of`)."""


class BrrOptions(Protocol):
    """What of the scheme matters here."""

    @property
    def partial_channels(self) -> int: ...
    @property
    def bits(self) -> int: ...
    @property
    def network_io(self) -> bool: ...
    @property
    def excluded_traffic(self) -> bool: ...


class Way(NamedTuple):
    """The fields of `BrrTiling` after the phase."""

    rows: int
    tiles: int
    weights_once: bool
    buffer_bytes: int
    dram_bytes: int
    parts: int = 1


def need_as_run(network: Network, group: int, options: BrrOptions, layout: TileLayout, spread: Spreads) -> int:
    """Bytes of buffer for one-row tiles."""
    held = _held(network, layout, spread(1), options)
    return bytes_for(held + in_flight(network, group, layout, options.partial_channels), options.bits)


class GroupPhase(NamedTuple):
    """A group whose first convolutions are in one phase: how it lies, its rows, and the height of its coarsest result."""

    full_first: bool
    layout: TileLayout
    spread: Spreads
    height: int


def ways_as_run(
    network: Network, group: int, options: BrrOptions, phase: GroupPhase, capacity: int, excluded: int
) -> Iterator[Way]:
    """How the group runs in one phase in a buffer of `capacity` bytes; none when it does not fit and has several operators."""
    full_first, layout, spread, height = phase
    bits = options.bits
    weights, flight = weights_of(network, group), in_flight(network, group, layout, options.partial_channels)
    single = not group & (group - 1)
    _, written = traffic(
        network, group, excluded, network_io=options.network_io, excluded_traffic=options.excluded_traffic
    )

    def held(rows: int) -> int:
        return _held(network, layout, spread(rows), options)

    def read(rows: int) -> int:
        return _read(network, layout, spread(rows), options, excluded)

    one, room = held(1), capacity * 8 // bits
    need = bytes_for(one + flight, bits)
    if need >= capacity and not single:
        return
    rows = _highest(held, room - flight, height)
    tiles = -(-height // rows)
    yield Way(rows, tiles, False, need, bytes_for(read(rows) + written + tiles * weights, bits))
    if bytes_for(one + weights, bits) <= capacity:
        rows = _highest(held, room - weights, height)
        tiles = -(-height // rows)
        yield Way(rows, tiles, True, need, bytes_for(read(rows) + written + weights, bits))
    elif single and weights:
        operator = network.operators[group.bit_length() - 1]
        channels = network.tensors[operator.writes[0]].channels
        each, free = weights // channels, room - one
        if operator.form.kind == "conv" and not full_first and each * channels == weights and free >= each:
            parts = -(-channels // (free // each))
            yield Way(1, height, True, need, bytes_for(parts * read(1) + written + weights, bits), parts)


def in_flight(network: Network, group: int, layout: TileLayout, partial_channels: int) -> int:
    """Elements of the largest piece of a filter that is in the buffer at a time."""
    most = 0
    for v in bits_of(group):
        operator = network.operators[v]
        form, flows = operator.form, operator.writes[0] in layout.whole
        channels = min(form.filter_channels, partial_channels) if flows else form.filter_channels
        most = max(most, form.filter_weights // form.filter_channels * channels)
    return most


def _highest(held: Callable[[int], int], most: int, height: int) -> int:
    """The most rows that hold no more than `most`; one at least. Need grows nearly evenly with rows until windows reach the edges,
    which tells where to look: from there in ever longer steps, then by halves."""
    if height == 1 or held(2) > most:
        return 1
    low, high = 2, height + 1  # `low` fits, `high` does not
    guess, step = 1 + (most - held(1)) // max(1, held(2) - held(1)), 1
    while low + 1 < high:
        middle = min(max(guess, low + 1), high - 1)
        if held(middle) <= most:
            low = middle
        else:
            high, step = middle, 0
        guess, step = (low + step, 2 * step) if step else ((low + high) // 2, 0)
    return low


def _held(network: Network, layout: TileLayout, rows: dict[int, Spread], options: BrrOptions) -> int:
    total = 0
    most: dict[int, int] = {}  # maps read pixel by pixel have the same rows
    for t, whole in layout.regions:
        tensor, spread = network.tensors[t], rows[t]
        high = most.get(id(spread))
        if high is None:
            first, last = spread
            high = most[id(spread)] = int((last - first).max()) + 1
        channels = tensor.channels if whole else layout.at_once(t, tensor.channels, options.partial_channels)
        total += channels * high * tensor.width
    return total


def _read(network: Network, layout: TileLayout, rows: dict[int, Spread], options: BrrOptions, excluded: int) -> int:
    """Elements of activations that come from DRAM. Rows between tiles that no window needs pass by with the others."""
    total = 0
    for t, times in layout.loads.items():
        tensor, (first, last) = network.tensors[t], rows[t]
        counts = options.network_io if tensor.producer < 0 else True
        if tensor.producer >= 0 and not options.excluded_traffic and excluded >> tensor.producer & 1:
            counts = False
        if counts:
            again = 0 if t in layout.whole else int((last[:-1] - first[1:] + 1).clip(min=0).sum())
            total += times * (tensor.height + again) * tensor.width * tensor.channels
    return total
