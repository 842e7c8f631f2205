"""What row tiles hold of each map (BRR, executed), as far as it is known before any group: the facts behind `exact_passes`."""

from __future__ import annotations

from typing import NamedTuple

from fusewise.accel.network import Network, Tensor
from fusewise.accel.problem import Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.search.exact_steps import Steps, moves_by

__all__ = ["HeldRegion", "MapExtent", "Slope", "extents_of", "held_by_higher", "loads_of", "regions_of"]


class MapExtent(NamedTuple):
    """A map's height; the rows of it that some one-row tile sees at least, of a window larger than that (`most`), and those that
    are needed at all (`every`)."""

    height: int
    most: int
    every: int

    def seen(self, rows: int) -> int:
        """Rows within the map that some tile sees when its window has `rows`."""
        return min(rows, self.most)


class HeldRegion(NamedTuple):
    """What a convolution holds: elements of one row of its result with all channels (`full`) and in a half block (`partial`)."""

    full: int
    partial: int
    result: MapExtent


class Slope(NamedTuple):
    """A region as tiles get higher: elements of a row of it; its `rows` in one-row tiles, of which some tile sees `most` if there
    are more; the map's `height`; and that for each `step` rows of the input a tile goes on by `across` rows."""

    row: int
    rows: int
    most: int
    height: int
    step: int
    across: int


def held_by_higher(slopes: list[Slope], more: int, coarsest: int) -> int:
    """Elements held by tiles that go on for `more` rows of the input, if the coarsest result's step is so much."""
    total = 0
    for row, rows, most, height, step, across in slopes:
        beyond = more // step * across
        # as `MapExtent.seen`, for the windows of all rows of a tile
        seen = min(rows + beyond, height - 2 * (beyond + coarsest // step * across) + 2)
        total += row * max(seen, beyond + 1, min(rows, most))
    return total


def regions_of(network: Network, scheme: BRR, steps: Steps) -> tuple[HeldRegion, ...]:
    """What each convolution holds; nothing for other operators."""
    found = []
    for v, operator in enumerate(network.operators):
        if operator.form.kind != "conv":
            found.append(HeldRegion(0, 0, MapExtent(1, 1, 1)))
            continue
        out = network.tensors[operator.writes[0]]
        block = -(-min(out.channels, scheme.partial_channels) // 2)
        found.append(HeldRegion(out.channels * out.width, block * out.width, extent(out, steps.moves[v])))
    return tuple(found)


def extents_of(network: Network, steps: Steps) -> dict[tuple[int, int], MapExtent]:
    """What each operator sees of each tensor that it reads, and what is seen of each that it writes."""
    found = {}
    for v, operator in enumerate(network.operators):
        for read in operator.reads:
            found[v, read.tensor] = extent(
                network.tensors[read.tensor], moves_by(network, v, read.tensor, steps.moves[v])
            )
        for t in operator.writes:
            found[v, t] = extent(network.tensors[t], steps.moves[v])
    return found


def loads_of(problem: Problem, scheme: BRR) -> tuple[int, ...]:
    """Elements that count each time a tensor is loaded."""
    found = []
    for tensor in problem.network.tensors:
        counts = scheme.network_io if tensor.producer < 0 else True
        if tensor.producer >= 0 and not scheme.excluded_traffic and problem.excluded >> tensor.producer & 1:
            counts = False
        found.append(tensor.elements if counts else 0)
    return tuple(found)


def extent(tensor: Tensor, moves: int) -> MapExtent:
    """Of a map on which one-row tiles move on by so many rows at most."""
    return MapExtent(tensor.height, max(1, tensor.height - 2 * moves + 2), max(1, tensor.height - moves + 1))
