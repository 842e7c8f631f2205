"""A group run as LBDF says, pixel by pixel on real data, with line buffers of a given size and weights on the chip.

Takes the maps the group reads; gives those that are needed outside, and what the run took: the elements of buffer it held and the
elements that crossed to and from DRAM. The cost model is right when these are what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fusewise.accel.bits import bits_of
from fusewise.accel.network import Network
from fusewise.accel.operators import image_of
from fusewise.accel.simulate.memory import Dram, LineBuffer
from fusewise.accel.simulate.pixels import Fire, Reader, accumulator_of, fire_of
from fusewise.accel.simulate.schedule import Schedule, Track, schedule_of, spans
from fusewise.ir.graph import Graph, Node

__all__ = ["Execution", "maps_of", "run_lbdf"]


@dataclass(frozen=True)
class Execution:
    """What a run of a group gave and took. `outputs` are float64[C, H, W] by tensor; the rest counts elements: `weights` on the
    chip, `held` for maps and sums, `read` and `written` through DRAM, weights included in `read`."""

    outputs: dict[int, np.ndarray]
    weights: int
    held: int
    read: int
    written: int

    @property
    def buffer(self) -> int:
        return self.weights + self.held


def run_lbdf(
    graph: Graph, network: Network, group: int, maps: Mapping[int, np.ndarray], sizes: Mapping[int, int] | None = None
) -> Execution:
    """Run a group of operators with streaming forms.

    `maps` has float[C, H, W] for every tensor it reads from outside. `sizes` are the pixels each line buffer holds, by tensor; by
    default as many as the schedule needs. `AssertionError` when a buffer turns out to be too small.
    """
    schedule = schedule_of(graph, network, group)
    lines = dict(spans(network, group, schedule) if sizes is None else sizes)
    run = _Run(graph, network, group, schedule, lines, Dram({t: np.asarray(a, np.float64) for t, a in maps.items()}))
    run.work()
    weights = sum(_weights(graph, graph.nodes[v]) for v in bits_of(group))
    held = sum(line.elements for line in run.lines.values()) + sum(total.size for total in run.sums.values())
    outputs = {t: run.dram.maps[t] for t in run.leaving}
    return Execution(outputs, weights, held, run.dram.read + weights, run.dram.written)


def _weights(graph: Graph, node: Node) -> int:
    """Elements of the constants an operator works with; a number alone is part of the instruction."""
    arrays = (graph.array(value) for value in node.inputs if value)
    return sum(a.size for a in arrays if a is not None and a.ndim > 0 and a.dtype.kind in "fV")


class _Stream(NamedTuple):
    """Something that happens for every pixel of a tensor when it is there; of what happens at once, the lowest rank is first."""

    track: Track
    rank: int
    act: Callable[[int, int], None]


@dataclass
class _Run:
    graph: Graph
    network: Network
    group: int
    schedule: Schedule
    sizes: dict[int, int]
    dram: Dram

    def __post_init__(self) -> None:
        tensors, operators = self.network.tensors, self.network.operators
        self.members = list(bits_of(self.group))
        self.lines = {t: LineBuffer(tensors[t].channels, tensors[t].width, size) for t, size in self.sizes.items()}
        made = [t for v in self.members for t in operators[v].writes]
        self.leaving = [t for t in made if tensors[t].is_output or tensors[t].consumers & ~self.group]
        for t in self.leaving:
            self.dram.expect(t, (tensors[t].channels, tensors[t].height, tensors[t].width))
        self.outside = [t for t in self.schedule.tracks if t not in made]
        self.sums: dict[int, np.ndarray] = {}

    def work(self) -> None:
        """Everything in order of time; at one moment what is loaded comes first, then operators as they depend on each other."""
        tracks = self.schedule.tracks
        streams = [_Stream(tracks[t], -1, self._loads(t)) for t in self.outside]
        for v in self.members:
            node, operator = self.graph.nodes[v], self.network.operators[v]
            result = tracks[operator.writes[0]]
            whole = [read.tensor for read in operator.reads if self.schedule.reaches[v, read.tensor].whole]
            if whole:
                take, answer = self._takes(v, node, whole[0])
                streams += [_Stream(tracks[whole[0]], 2 * v, take), _Stream(result, 2 * v + 1, answer)]
            else:
                streams.append(_Stream(result, 2 * v, self._fires(v, node)))
        self._in_order(streams)

    def _in_order(self, streams: Sequence[_Stream]) -> None:
        whose = np.concatenate([np.full(stream.track.size, k) for k, stream in enumerate(streams)])
        rank = np.array([stream.rank for stream in streams])[whose]
        grids = [np.indices(stream.track.shape).reshape(2, -1) for stream in streams]
        rows, columns = np.concatenate(grids, axis=1)
        row_time = np.concatenate([s.track.rows[grid[0]] for s, grid in zip(streams, grids, strict=True)])
        column_time = np.concatenate([s.track.columns[grid[1]] for s, grid in zip(streams, grids, strict=True)])
        for k in np.lexsort((rank, column_time, row_time)).tolist():
            streams[whose[k]].act(int(rows[k]), int(columns[k]))

    def _loads(self, t: int) -> Callable[[int, int], None]:
        line, dram = self.lines[t], self.dram
        return lambda row, column: line.push(row, column, dram.load(t, row, column))

    def _emits(self, t: int) -> Callable[[int, int, np.ndarray], None]:
        """What happens to a pixel that was made: it is kept for readers inside, and leaves for those outside."""
        line, leaves, dram = self.lines.get(t), t in self.leaving, self.dram

        def emit(row: int, column: int, pixel: np.ndarray) -> None:
            if line is not None:
                line.push(row, column, pixel)
            if leaves:
                dram.store(t, row, column, pixel)

        return emit

    def _fires(self, v: int, node: Node) -> Callable[[int, int], None]:
        tensors, operator = self.network.tensors, self.network.operators[v]
        names = {tensors[read.tensor].name: read.tensor for read in operator.reads}
        fire: Fire = fire_of(self.graph, node, {name: self.schedule.reaches[v, t] for name, t in names.items()})
        readers: dict[str, Reader] = {name: self.lines[t] for name, t in names.items()}
        emits = [self._emits(t) for t in operator.writes]

        def act(row: int, column: int) -> None:
            for emit, pixel in zip(emits, fire(readers, row, column), strict=True):
                emit(row, column, pixel)

        return act

    def _takes(self, v: int, node: Node, t: int) -> tuple[Callable[[int, int], None], Callable[[int, int], None]]:
        """An operator that takes a map pixel by pixel, and answers after the last one."""
        tensor, line = self.network.tensors[t], self.lines[t]
        emit = self._emits(self.network.operators[v].writes[0])
        if node.op in ("Reshape", "Flatten", "Squeeze", "Unsqueeze"):
            answer = np.full((tensor.channels, tensor.height, tensor.width), np.nan)  # the result itself, as it fills

            def keep(row: int, column: int) -> None:
                answer[:, row, column] = line(row, column)

            return keep, lambda row, column: emit(row, column, answer.reshape(-1))
        sums = accumulator_of(node, tensor.channels, tensor.pixels)
        self.sums[v] = sums.total
        return (
            lambda row, column: sums.take(sums.total, line(row, column)),
            lambda row, column: emit(row, column, sums.total * sums.share),
        )


def maps_of(graph: Graph, network: Network, values: Mapping[str, np.ndarray]) -> dict[int, np.ndarray]:
    """Values of the network's tensors, by name, as maps [C, H, W] by number."""
    found = {}
    for number, tensor in enumerate(network.tensors):
        if tensor.name in values and image_of(graph.types[tensor.name]) is not None:
            array = np.asarray(values[tensor.name])
            if array.ndim == 3:  # [1, length, channels]
                array = array.transpose(0, 2, 1)[..., None]
            found[number] = array.reshape(tensor.channels, tensor.height, tensor.width)
    return found
