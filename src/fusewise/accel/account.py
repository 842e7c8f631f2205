"""Where the buffer of a group goes: weights, the lines or rows that are held of each tensor, and why they are held."""

from __future__ import annotations

from dataclasses import dataclass

from fusewise.accel.bits import bits_of
from fusewise.accel.network import Network
from fusewise.accel.problem import Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.lbdf import LBDF, Line
from fusewise.accel.schemes.scheme import bytes_for, weights_of

__all__ = ["Entry", "account"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A part of the buffer: what is held, how many bytes, and why so much."""

    what: str
    nbytes: int
    why: str


def account(problem: Problem, group: int) -> tuple[Entry, ...]:
    """What the group keeps in the buffer, largest first. Under LBDF the entries add up to its need (but for rounding to bytes)."""
    scheme = problem.scheme
    if scheme.refusal(problem.network, group) is not None:
        return ()
    found = _lines(problem.network, scheme, group) if isinstance(scheme, LBDF) else []
    if isinstance(scheme, BRR):
        found = _tiles(problem, scheme, group)
    return tuple(sorted(found, key=lambda entry: -entry.nbytes))


def _lines(network: Network, scheme: LBDF, group: int) -> list[Entry]:
    found = [
        Entry(
            f"weights of {network.operators[v].name}",
            bytes_for(network.operators[v].form.weights, scheme.bits),
            "all weights stay in the buffer",
        )
        for v in bits_of(group)
        if network.operators[v].form.weights
    ]
    for line in scheme.lines(network, group):
        tensor = network.tensors[line.tensor]
        size = bytes_for(line.live * tensor.channels, scheme.bits)
        found.append(Entry(f"lines of {tensor.name}", size, _held(network, group, line)))
    sums = scheme.accumulators(network, group)
    if sums:
        found.append(Entry("sums of global pools", bytes_for(sums, scheme.bits), "one for each channel"))
    return found


def _held(network: Network, group: int, line: Line) -> str:
    """Why so many pixels of a tensor are live: who reads it last, and how much of the map that is."""
    tensor = network.tensors[line.tensor]
    readers = list(bits_of(tensor.consumers & group))
    reads = [
        read for v in readers for read in network.operators[v].reads if read.tensor == line.tensor and not read.whole
    ]
    wide = max(((read.back_rows + read.lag_rows) // network.row_pitch[line.tensor] + 1 for read in reads), default=1)
    names = ", ".join(network.operators[v].name for v in readers[:3])
    share = f"{line.live:,} of {tensor.pixels:,} pixels x {tensor.channels} channels"
    if line.live >= tensor.pixels > 1:
        return f"{share}: the whole map waits for {names}"
    if line.live > wide * tensor.width:
        return f"{share}: it waits for {names}, which another branch holds up"
    return f"{share}: the window of {names}" if wide > 1 else f"{share}: passed on to {names}"


def _tiles(problem: Problem, scheme: BRR, group: int) -> list[Entry]:
    network = problem.network
    held = scheme.buffer_bytes(network, group)
    largest = max(network.operators[v].form.filter_weights for v in bits_of(group))
    filters = bytes_for(largest, scheme.bits)
    weights = bytes_for(weights_of(network, group), scheme.bits)
    found = [
        Entry("rows of a one-row tile", held - filters, "what its windows reach, for the better of the two phases"),
        Entry(
            "one filter in flight", filters, f"the largest; all weights are {weights:,} bytes and stream in once a tile"
        ),
    ]
    for tiling in scheme.tilings(network, group, problem.capacity, problem.excluded)[:1]:
        rest = "all weights stay" if tiling.weights_once else f"weights stream in {tiling.tiles} times"
        found.append(Entry("more rows", 0, f"tiles of {tiling.rows} rows, {tiling.tiles} of them; {rest}"))
    return found
