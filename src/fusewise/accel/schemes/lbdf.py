"""Line-buffer depth-first execution (LBDF): a group runs pixel by pixel, with all its weights on the chip.

The window of every operator slides one pixel at a time; of each tensor only the pixels that some consumer still needs are kept,
so nothing is ever computed twice. What is kept follows from *lags*: by how far the newest pixel of a tensor trails the newest
pixel of the group's first input. Convolutions look ahead and so add to the lag; joins wait for their latest input, and the
early one waits in the buffer; a global pool answers after the last pixel. Positions in maps of different resolution are
compared in common integer units (`Network.unit_rows`), so every figure is exact.

The scheme is named in Mills et al., "Applying Graph Explanation to Operator Fusion", which gives no equations; these follow
from first principles (compare the fully cached corner of DeFiNES, and Alwani et al. 2016 for the pyramid of rows), and are what
running a group pixel by pixel takes (`accel.simulate`). A common simpler form rounds rows and columns up each by itself
(`waiting="ceiling"`): it differs where a tensor waits for no whole number of its rows, as at strided shortcuts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fusewise.accel.bits import bits_of
from fusewise.accel.network import Network, Operator, Read
from fusewise.accel.schemes.scheme import UNBOUNDED, bytes_for, traffic, weights_of

__all__ = ["LBDF", "Line", "lags"]


class Line(NamedTuple):
    """What the buffer holds of one tensor while a group runs: `live` pixels of all its channels.

    `lag_rows` and `lag_columns` are in the network's units; an external tensor's are when it is loaded.
    """

    tensor: int
    live: int
    lag_rows: int
    lag_columns: int


@dataclass(frozen=True, slots=True)
class LBDF:
    """Options: `granularity`, how far the window moves at a time; `bits` of an element; whether the network's own inputs and
    outputs (`network_io`) and tensors exchanged with excluded operators only (`excluded_traffic`) count as DRAM traffic;
    `waiting`, whether the pixels that wait are counted exactly, or rows and columns are rounded up apart."""

    granularity: Literal["pixel", "row"] = "pixel"
    bits: int = 16
    network_io: bool = True
    excluded_traffic: bool = True
    waiting: Literal["exact", "ceiling"] = "exact"

    name = "lbdf"
    singles_always_fit = False

    def refusal(self, network: Network, group: int) -> str | None:
        """Only an operator without a streaming form is refused."""
        return next((op.form.reason for op in _operators(network, group) if op.form.kind == "opaque"), None)

    def buffer_bytes(self, network: Network, group: int) -> int:
        """F_beta = weights + live pixels of every tensor read in the group + accumulators of global pools, in bytes."""
        if self.refusal(network, group) is not None:
            return UNBOUNDED
        tensors = network.tensors
        elements = weights_of(network, group) + self.accumulators(network, group)
        for line in self.lines(network, group):
            elements += line.live * tensors[line.tensor].channels
        return bytes_for(elements, self.bits)

    def dram_bytes(self, network: Network, group: int, capacity: int = 0, excluded: int = 0) -> int:
        """F_D = external tensors read + tensors needed outside + weights, each once, in bytes; the capacity plays no part."""
        read, written = traffic(
            network, group, excluded, network_io=self.network_io, excluded_traffic=self.excluded_traffic
        )
        return bytes_for(read + written + weights_of(network, group), self.bits)

    def fuseable(self, network: Network, node: int, capacity: int) -> bool:
        """An operator that does not fit alone fits in no group."""
        return self.buffer_bytes(network, 1 << node) < capacity

    def accumulators(self, network: Network, group: int) -> int:
        """Elements that global pools sum up in: one for each channel."""
        return sum(
            network.tensors[op.writes[0]].channels for op in _operators(network, group) if op.form.kind == "global_pool"
        )

    def lines(self, network: Network, group: int) -> list[Line]:
        """What the buffer holds of each tensor that the group reads, external ones included, in order of first use."""
        rows, columns = lags(network, group)
        tensors, operators = network.tensors, network.operators
        members = list(bits_of(group))
        loaded = _just_in_time(network, members, group, rows, columns)
        live: dict[int, int] = {}
        for node in members:
            lag_rows, lag_columns = rows[node], columns[node]
            for read in operators[node].reads:
                u = read.tensor
                before = tensors[u].producer
                inside = before >= 0 and group >> before & 1
                start_rows, start_columns = (rows[before], columns[before]) if inside else loaded[u]
                pixels = self.waiting_pixels(network, read, lag_rows - start_rows, lag_columns - start_columns)
                if pixels > live.get(u, 0):
                    live[u] = pixels
        found = []
        for u, pixels in live.items():
            before = tensors[u].producer
            inside = before >= 0 and group >> before & 1
            start = (rows[before], columns[before]) if inside else loaded[u]
            found.append(Line(u, pixels, *start))
        return found

    def waiting_pixels(self, network: Network, read: Read, rows: int, columns: int) -> int:
        """Pixels of a tensor that wait for a reader which trails it by so many units of height and width.

        From the first pixel of the reader's window to the newest one. When that begins between two rows, none of the newer row
        has come yet, so whole rows wait; the simpler form counts a part of a row beside them.
        """
        tensor = network.tensors[read.tensor]
        width = tensor.width
        if read.whole:
            return width if self.granularity == "row" else 1
        pitch = network.row_pitch[read.tensor]
        down, rest = divmod(rows + read.back_rows, pitch)
        if self.granularity == "row":
            return min(tensor.height, down + (rest > 0) + 1) * width
        across = columns + read.back_columns
        pitch = network.column_pitch[read.tensor]
        if self.waiting == "ceiling":
            return min(tensor.pixels, (down + (rest > 0)) * width + min(-(-across // pitch), width - 1) + 1)
        right = width - 1 if rest else across // pitch
        if not read.edge_rows and not read.edge_columns:
            return min(tensor.pixels, down * width + min(right, width - 1) + 1)
        found = 0
        for top, first_row in read.edge_rows or _CORNER:
            newest = first_row + down
            for left, first_column in read.edge_columns or _CORNER:
                column = width - 1 if rest else min(first_column + right, width - 1)
                last = min(tensor.pixels, newest * width + column + 1)
                found = max(found, last - top * width - left)
        return found


def lags(network: Network, group: int) -> tuple[dict[int, int], dict[int, int]]:
    """By how many units of height, and of width, each operator of the group trails.

    Operators that read external tensors only start a path. They are delayed to the latest lag their consumers in the group
    allow, so that their results do not wait in the buffer.
    """
    rows: dict[int, int] = {}
    columns: dict[int, int] = {}
    tensors, operators = network.tensors, network.operators
    starts = []
    for node in bits_of(group):
        row = column = -UNBOUNDED  # Pad is ahead of its input
        internal = False
        for read in operators[node].reads:
            down, right = read.lag_rows, read.lag_columns
            before = tensors[read.tensor].producer
            if before >= 0 and group >> before & 1:
                internal = True
                down += rows[before]
                right += columns[before]
            row, column = max(row, down), max(column, right)
        rows[node], columns[node] = row, column
        if not internal:
            starts.append(node)
    for node in starts:
        allowed = [
            (rows[after] - read.lag_rows, columns[after] - read.lag_columns)
            for u in operators[node].writes
            for after in bits_of(tensors[u].consumers & group)
            for read in operators[after].reads
            if read.tensor == u
        ]
        if allowed:
            rows[node], columns[node] = min(a for a, _ in allowed), min(b for _, b in allowed)
    return rows, columns


def _just_in_time(
    network: Network, members: list[int], group: int, rows: dict[int, int], columns: dict[int, int]
) -> dict[int, tuple[int, int]]:
    """When each external tensor is loaded: the latest lag that all its consumers in the group allow."""
    loaded: dict[int, tuple[int, int]] = {}
    for node in members:
        for read in network.operators[node].reads:
            before = network.tensors[read.tensor].producer
            if before < 0 or not group >> before & 1:
                down, right = rows[node] - read.lag_rows, columns[node] - read.lag_columns
                known = loaded.get(read.tensor)
                loaded[read.tensor] = (down, right) if known is None else (min(known[0], down), min(known[1], right))
    return loaded


_CORNER = ((0, 0),)


def _operators(network: Network, group: int) -> Iterator[Operator]:
    return (network.operators[node] for node in bits_of(group))
