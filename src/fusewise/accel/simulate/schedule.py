"""When every pixel of a group is made, loaded and read, if each operator works as soon as it can.

Time is a pair: row and column of the finest map, in the network's units. A result's pixel is made when the last pixel of its
window is there; padding arrives in step with the map it surrounds. What comes from outside is loaded, and operators that read only
what comes from outside run, as late as their readers allow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusewise.accel.bits import bits_of
from fusewise.accel.network import Network
from fusewise.accel.simulate.reach import AxisReach, Reach, reach_of
from fusewise.ir.graph import Graph

__all__ = ["Schedule", "Track", "schedule_of", "spans"]


@dataclass(frozen=True)
class Track:
    """When the rows and the columns of a tensor are there: pixel (y, x) at (`rows[y]`, `columns[x]`); int64."""

    rows: np.ndarray
    columns: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.columns)

    @property
    def size(self) -> int:
        return len(self.rows) * len(self.columns)


@dataclass(frozen=True)
class Schedule:
    """Tracks by tensor of the network, external ones included, and how each operator reads each operand."""

    tracks: dict[int, Track]
    reaches: dict[tuple[int, int], Reach]


def schedule_of(graph: Graph, network: Network, group: int) -> Schedule:
    """The schedule of a group of operators with streaming forms."""
    members = list(bits_of(group))
    reaches = {
        (v, read.tensor): reach_of(graph, graph.nodes[v], network.tensors[read.tensor].name)
        for v in members
        for read in network.operators[v].reads
    }
    tracks: dict[int, Track] = {}
    inside = {t for v in members for t in network.operators[v].writes}
    for v in members:
        for read in network.operators[v].reads:
            if read.tensor not in inside:
                tracks.setdefault(read.tensor, _as_it_comes(network, read.tensor))
        made = _made(network, v, tracks, reaches)
        tracks.update(dict.fromkeys(network.operators[v].writes, made))
    starts = [v for v in members if not any(read.tensor in inside for read in network.operators[v].reads)]
    for v in starts:
        for t in network.operators[v].writes:
            tracks[t] = _late(network, t, group, tracks, reaches)
    for t in [t for t in tracks if t not in inside]:
        tracks[t] = _late(network, t, group, tracks, reaches)
    return Schedule(tracks, reaches)


def _as_it_comes(network: Network, t: int) -> Track:
    tensor = network.tensors[t]
    return Track(
        np.arange(tensor.height, dtype=np.int64) * network.row_pitch[t],
        np.arange(tensor.width, dtype=np.int64) * network.column_pitch[t],
    )


def _made(network: Network, v: int, tracks: dict[int, Track], reaches: dict[tuple[int, int], Reach]) -> Track:
    """A result's pixel is there when the last pixel of every operand's window is.

    An operand that is a single pixel, such as a gate, delays the whole result; it goes on at the pace of the others, or of its
    own map when there are none. A map that grows is made at its own pace, not in bursts.
    """
    operator = network.operators[v]
    result = operator.writes[0]
    own = _as_it_comes(network, result)
    row_pitch, column_pitch = network.row_pitch[result], network.column_pitch[result]
    rows: list[np.ndarray] = []
    columns: list[np.ndarray] = []
    starts: list[tuple[int, int]] = []
    for read in operator.reads:
        t, reach = read.tensor, reaches[v, read.tensor]
        tensor = network.tensors[t]
        row = _at(tracks[t].rows, reach.rows.last, network.row_pitch[t])
        column = _at(tracks[t].columns, reach.columns.last, network.column_pitch[t])
        if tensor.pixels == 1 or reach.whole:
            starts.append((int(row[0]), int(column[0])))
        else:
            row = _paced(row, row_pitch) if network.row_pitch[t] > row_pitch else row
            column = _paced(column, column_pitch) if network.column_pitch[t] > column_pitch else column
            rows.append(row)
            columns.append(column)
    paced = Track(np.max(rows, axis=0), np.max(columns, axis=0)) if rows else own
    for row_start, column_start in starts:
        late_rows, late_columns = row_start - int(paced.rows[0]), column_start - int(paced.columns[0])
        paced = Track(paced.rows + max(0, late_rows), paced.columns + max(0, late_columns))
    return paced


def _paced(times: np.ndarray, pitch: int) -> np.ndarray:
    """No earlier than given, and never less than a step after the one before."""
    steps = np.arange(len(times)) * pitch
    return np.asarray(np.maximum.accumulate(times - steps) + steps)


def _at(times: np.ndarray, positions: np.ndarray, pitch: int) -> np.ndarray:
    """Times at positions; beyond either end time goes on in equal steps."""
    last = len(times) - 1
    beyond = np.minimum(positions, 0) + np.maximum(positions - last, 0)
    return np.asarray(times[np.clip(positions, 0, last)] + beyond * pitch)


def _late(
    network: Network, t: int, group: int, tracks: dict[int, Track], reaches: dict[tuple[int, int], Reach]
) -> Track:
    """The latest times that the readers of a tensor in the group allow."""
    rows: list[np.ndarray] = []
    columns: list[np.ndarray] = []
    for v in bits_of(network.tensors[t].consumers & group):
        made, reach = tracks[network.operators[v].writes[0]], reaches[v, t]
        if reach.whole:
            # each pixel is taken as it comes, the last of them when the answer is given
            rows.append(made.rows[0] - np.arange(reach.rows.extent)[::-1] * network.row_pitch[t])
            columns.append(made.columns[0] - np.arange(reach.columns.extent)[::-1] * network.column_pitch[t])
        else:
            rows.append(_needed(made.rows, reach.rows, network.row_pitch[t]))
            columns.append(_needed(made.columns, reach.columns, network.column_pitch[t]))
    if not rows:
        return tracks[t]
    return Track(np.min(rows, axis=0), np.min(columns, axis=0))


def _needed(made: np.ndarray, axis: AxisReach, pitch: int) -> np.ndarray:
    """When each position of an operand is first needed; those that no window ends at come evenly between those that one does."""
    need = np.full(axis.extent, np.iinfo(np.int64).max)
    # beyond the input time goes on in equal steps, so what lies inside was needed that much earlier or later
    early = made - (np.minimum(axis.last, 0) + np.maximum(axis.last - (axis.extent - 1), 0)) * pitch
    np.minimum.at(need, np.clip(axis.last, 0, axis.extent - 1), early)
    known = np.flatnonzero(need < np.iinfo(np.int64).max)
    positions = np.arange(axis.extent)
    found = np.interp(positions, known, need[known]).astype(np.int64)
    found += np.minimum(positions - known[0], 0) * pitch + np.maximum(positions - known[-1], 0) * pitch
    found[known] = need[known]
    return np.asarray(found)


def spans(network: Network, group: int, schedule: Schedule) -> dict[int, int]:
    """Of every tensor that the group reads, the most pixels between the oldest that is still to be read and the newest."""
    found: dict[int, int] = {}
    for v in bits_of(group):
        made = schedule.tracks[network.operators[v].writes[0]]
        for read in network.operators[v].reads:
            t, reach = read.tensor, schedule.reaches[v, read.tensor]
            span = 1 if reach.whole else _span(schedule.tracks[t], made, reach, network.tensors[t].width)
            found[t] = max(found.get(t, 0), span)
    return found


def _span(source: Track, made: Track, reach: Reach, width: int) -> int:
    """The most pixels from the first of a window to the newest one, over all windows of one reader."""
    row = np.searchsorted(source.rows, made.rows, side="left")
    begun = np.append(source.rows, -1)[row] == made.rows
    column = np.searchsorted(source.columns, made.columns, side="right")
    newest = row[:, None] * width + np.where(begun[:, None], column[None, :], 0) - 1
    oldest = np.maximum(reach.rows.first, 0)[:, None] * width + np.maximum(reach.columns.first, 0)[None, :]
    return int((newest - oldest).max()) + 1
