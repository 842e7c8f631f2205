"""A group run as BRR says: row tiles pass through it on real data, some channels at a time, in regions of a scratchpad.

Takes the maps the group reads and the layout of the scheme; gives those that are needed outside and what the run took: the most
that each region held, and what crossed to and from DRAM. Which rows a tile needs comes from the operators' literal geometry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from fusewise.accel.bits import bits_of
from fusewise.accel.network import Network
from fusewise.accel.schemes.brr import BRR, BrrTiling, frame_of
from fusewise.accel.schemes.tiles import TileLayout, layout_of
from fusewise.accel.simulate.blocks import MapPart, blank, gathered, moved, pointwise, pooled, resized, scattered
from fusewise.accel.simulate.reach import Reach, reach_of
from fusewise.ir.graph import Graph, Node

__all__ = ["TileExecution", "run_brr"]


@dataclass(frozen=True)
class TileExecution:
    """What a run of a group gave and took. `outputs` are float64[C, H, W] by tensor; the rest counts elements: `held` in regions,
    `weights` in flight or resident, `read` and `written` through DRAM, weights included in `read`."""

    outputs: dict[int, np.ndarray]
    held: int
    weights: int
    read: int
    written: int

    @property
    def buffer(self) -> int:
        return self.weights + self.held


def run_brr(
    graph: Graph,
    network: Network,
    group: int,
    maps: Mapping[int, np.ndarray],
    scheme: BRR,
    tiling: BrrTiling,
    *,
    values: bool = True,
) -> TileExecution:
    """Run a group of images in the tiles that the scheme chose; `maps` has float[C, H, W] for every tensor it reads.

    Without `values`, operators give zeros: everything moves as it would, but the results mean nothing.
    `AssertionError` when something is needed that is not there.
    """
    frame = frame_of(network, group)
    assert not isinstance(frame, str), frame
    run = _Run(
        graph, network, group, maps, layout_of(network, group, tiling.full_first), scheme.partial_channels, values
    )
    ends, height = frame.ends, frame.height
    channels = max(network.tensors[t].channels for t, _ in ends)
    each = -(-channels // tiling.parts) if tiling.parts > 1 else channels
    for part in range(0, channels, each):
        run.passed = {}
        for start in range(0, height, tiling.rows):
            stop = start + tiling.rows
            run.fresh = not tiling.weights_once or start == 0
            run.last = stop >= height
            wanted = {}
            for t, scale in ends:
                top = network.tensors[t].height
                low, high = int(start * scale), top if run.last else int(stop * scale)
                wanted[t] = min(low, top - 1), max(0, min(high, top) - 1)
            run.tile(wanted, part, part + each if tiling.parts > 1 else None)
    for t, image in run.outputs.items():
        assert not np.isnan(image).any(), f"{network.tensors[t].name} was not written in full"
    resident = run.read_weights // tiling.parts if tiling.weights_once and tiling.parts == 1 else run.flight
    if tiling.parts > 1:
        resident = each * (run.read_weights // channels)
    held = sum(run.most.values())
    return TileExecution(run.outputs, held, resident, run.read + run.read_weights, run.written)


_Filters = tuple[np.ndarray, np.ndarray | None, int]
"""Weights, bias, groups."""


@dataclass
class _Run:
    graph: Graph
    network: Network
    group: int
    maps: Mapping[int, np.ndarray]
    layout: TileLayout
    block: int
    values: bool
    passed: dict[int, int] = field(default_factory=dict)
    fresh: bool = True
    last: bool = False
    read: int = 0
    written: int = 0
    read_weights: int = 0
    flight: int = 0
    filters: dict[str, _Filters] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tensors, operators = self.network.tensors, self.network.operators
        self.members = list(bits_of(self.group))
        self.reaches: dict[tuple[int, int], Reach] = {
            (v, read.tensor): reach_of(self.graph, self.graph.nodes[v], tensors[read.tensor].name)
            for v in self.members
            for read in operators[v].reads
        }
        self.maker = {t: v for v in self.members for t in operators[v].writes}
        self.leaving = [t for t in self.maker if tensors[t].is_output or tensors[t].consumers & ~self.group]
        self.outputs = {
            t: np.full((tensors[t].channels, tensors[t].height, tensors[t].width), np.nan) for t in self.leaving
        }
        self.most: dict[int, int] = {}
        self.regions: dict[int, np.ndarray] = {}

    def tile(self, wanted: Mapping[int, tuple[int, int]], low: int, high: int | None) -> None:
        """One tile, whose results are these rows; with `high`, only channels `low` to `high` of them."""
        tensors, layout = self.network.tensors, self.layout
        self.rows = self._needed(wanted)
        self.regions, self.sent = {}, wanted
        for t in layout.loads:
            if t in layout.whole:
                self._fill(t)
        results = list(layout.at)
        for number in sorted(set(layout.at.values())):
            made = [t for t in results if layout.at[t] == number and t in layout.whole]
            sent = [t for t in results if layout.at[t] == number and t not in layout.whole]
            sums = {t: self._empty(t) for t in made}
            depth = max([self._depth(t) for t in made] + [tensors[t].channels for t in sent])
            for c in range(low, depth if high is None else min(high, depth), self.block):
                self.memo: dict[tuple[int, int, int], np.ndarray] = {}
                for t in made:
                    if c < self._depth(t):
                        self._add(t, sums[t], c, min(c + self.block, self._depth(t)))
                for t in sent:
                    stop = min(c + self.block, tensors[t].channels if high is None else high, tensors[t].channels)
                    if c < stop:
                        self._send(t, c, self.value(t, c, stop))
            for t in made:
                self.regions[t] = sums[t]
                self.regions.pop(layout.shares.get(t, -1), None)  # overwritten
                if t in self.leaving:
                    self._send(t, 0, sums[t])
        for t in layout.loads:
            self.passed[t] = self.rows[t][1]

    def _needed(self, wanted: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """First and last row of every tensor, from what the operators read literally."""
        rows = dict(wanted)
        for v in reversed(self.members):
            made = [rows[t] for t in self.network.operators[v].writes if t in rows]
            if not made:
                continue
            first, last = min(a for a, _ in made), max(b for _, b in made)
            for t in self.network.operators[v].writes:
                rows[t] = first, last
            for read in self.network.operators[v].reads:
                axis = self.reaches[v, read.tensor].rows
                if self.reaches[v, read.tensor].whole:
                    low, high = 0, axis.extent - 1
                else:
                    low = int(np.clip(axis.first[first : last + 1].min(), 0, axis.extent - 1))
                    high = int(np.clip(axis.last[first : last + 1].max(), 0, axis.extent - 1))
                known = rows.get(read.tensor, (low, high))
                rows[read.tensor] = min(low, known[0]), max(high, known[1])
        return rows

    def _depth(self, t: int) -> int:
        """Channels that flow into the making of a whole result."""
        operator = self.network.operators[self.maker[t]]
        return max(self.network.tensors[read.tensor].channels for read in operator.reads)

    def _region(self, t: int, size: int) -> None:
        while t in self.layout.shares:
            t = self.layout.shares[t]
        self.most[t] = max(self.most.get(t, 0), size)

    def _fill(self, t: int) -> None:
        """A whole input: rows that the tile before had are still there."""
        first, last = self.rows[t]
        self._count(t, self.network.tensors[t].channels, again=False)
        self.regions[t] = np.asarray(self.maps[t][:, first : last + 1], np.float64)
        self._region(t, self.regions[t].size)

    def _count(self, t: int, channels: int, again: bool) -> None:
        """Rows that come from DRAM; those between tiles pass by."""
        tensor, (first, last) = self.network.tensors[t], self.rows[t]
        before = self.passed.get(t, -1) + 1
        start = min(first, before) if again else before
        stop = tensor.height if self.last else last + 1
        self.read += channels * tensor.width * max(0, stop - start)

    def _load_weights(self, elements: int, piece: int) -> None:
        if self.fresh:
            self.read_weights += elements
        self.flight = max(self.flight, piece)

    def _empty(self, t: int) -> np.ndarray:
        tensor, (first, last) = self.network.tensors[t], self.rows[t]
        found = np.zeros((tensor.channels, last - first + 1, tensor.width))
        self._region(t, found.size)
        return found

    def _send(self, t: int, channel: int, pixels: np.ndarray) -> None:
        """Rows that DRAM does not have yet."""
        first, _ = self.rows[t]
        low, high = self.sent[t]
        pixels = pixels[:, low - first : high - first + 1]
        there = self.outputs[t][channel : channel + len(pixels), low : high + 1]
        new = np.isnan(there[0, :, 0])
        there[:, new] = pixels[:, new]
        self.written += pixels[:, new].size

    def value(self, t: int, low: int, high: int) -> np.ndarray:
        """Channels `low` to `high` of a tensor, of the rows that the tile needs."""
        if t in self.regions:
            return self.regions[t][low:high]
        key = t, low, high
        if key not in self.memo:
            if t in self.layout.whole:
                raise AssertionError(f"{self.network.tensors[t].name} is needed before it is there")
            if t not in self.maker:
                self._count(t, high - low, again=True)
                first, last = self.rows[t]
                self.memo[key] = np.asarray(self.maps[t][low:high, first : last + 1], np.float64)
            else:
                self.memo[key] = self._made(t, low, high)
            if t in self.layout.blocks:
                self._region(t, self.memo[key].size)
        return self.memo[key]

    def _part(self, t: int, low: int, high: int) -> MapPart:
        return MapPart(self.value(t, low, high), self.rows[t][0])

    def _add(self, t: int, sums: np.ndarray, low: int, high: int) -> None:
        """Take some channels of the operands into a whole result."""
        v = self.maker[t]
        node, operator = self.graph.nodes[v], self.network.operators[v]
        if operator.form.kind != "conv":
            if _across(node):
                if low == 0:
                    sums[:] = self._made(t, 0, len(sums))
            elif low < len(sums):
                sums[low:high] = self._made(t, low, min(high, len(sums)))
            return
        u, form = operator.reads[0].tensor, operator.form
        weights, bias, groups = self._filters(node)
        added = self._convolved(v, u, weights[:, low:high], low, high)
        if self.values:
            sums += added
        taps, inputs = form.filter_weights // form.filter_channels, high - low
        self._load_weights(taps * inputs * len(sums) // groups, taps * min(inputs, form.filter_channels))
        if low == 0 and bias is not None:
            sums += bias[:, None, None]
            self._load_weights(len(bias), 0)

    def _filters(self, node: Node) -> _Filters:
        """Those of a node, arranged once: they are asked for again for every block of channels."""
        found = self.filters.get(node.outputs[0])
        if found is None:
            found = self.filters[node.outputs[0]] = self._arranged(node)
        return found

    def _arranged(self, node: Node) -> _Filters:
        """Weights as float64[outputs, inputs, row taps, column taps], zeros between groups; bias; groups."""
        array = np.asarray(self.graph.array(node.inputs[1]), np.float64)
        bias = self.graph.array(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
        groups = node.attribute("group", 1) if node.op in ("Conv", "ConvTranspose") else 1
        if node.op in ("Gemm", "MatMul"):
            array = array if node.attribute("transB", 0) else array.T
            array = array[:, :, None, None]
        elif node.op == "ConvTranspose":
            parts = np.split(array, groups)  # [inputs, outputs / groups, ...] each
            array = np.concatenate([part.transpose(1, 0, 2, 3) for part in parts])
        if groups > 1:
            outputs, inputs = len(array) // groups, array.shape[1]
            dense = np.zeros((len(array), inputs * groups, *array.shape[2:]))
            for g in range(groups):
                rows = slice(g * outputs, (g + 1) * outputs)
                dense[rows, g * inputs : (g + 1) * inputs] = array[rows]
            array = dense
        return array, None if bias is None else np.asarray(bias, np.float64).reshape(-1), groups

    def _convolved(self, v: int, u: int, weights: np.ndarray, low: int, high: int) -> np.ndarray:
        """What channels `low` to `high` of the operand add."""
        node, reach = self.graph.nodes[v], self.reaches[v, u]
        first, last = self.rows[self.network.operators[v].writes[0]]
        part = self._part(u, low, high)
        if not self.values:
            return np.zeros((len(weights), *blank(part, reach, first, last).shape[1:]))
        if node.op == "ConvTranspose":
            return scattered(self.graph, node, part, reach, first, last, weights)
        windows = gathered(part, reach, first, last)
        return np.asarray(np.tensordot(weights, windows, axes=([1, 2, 3], [0, 2, 4])))

    def _made(self, t: int, low: int, high: int) -> np.ndarray:
        """Channels of a result, from what its operator reads."""
        v = self.maker[t]
        node, operator = self.graph.nodes[v], self.network.operators[v]
        first, last = self.rows[t]
        u = operator.reads[0].tensor
        source, reach = self.network.tensors[u], self.reaches[v, u]
        if operator.form.kind == "conv":
            weights, bias, _ = self._filters(node)
            found = self._convolved(v, u, weights[low:high], 0, source.channels)
            each = operator.form.filter_weights
            self._load_weights((each + (bias is not None)) * (high - low), each)
            return found if bias is None else found + bias[low:high, None, None]
        match node.op:
            case "Conv":  # depthwise
                weights = np.asarray(self.graph.array(node.inputs[1]), np.float64)[low:high, 0]
                part = self._part(u, low, high)
                bias = self._filters(node)[1]
                found = self._rows_of(partial(_depthwise, weights), part, reach, first, last)
                each = operator.form.filter_weights
                self._load_weights((each + (bias is not None)) * (high - low), each)
                return np.asarray(found if bias is None else found + bias[low:high, None, None])
            case "Concat":
                return self._joined(v, node, low, high)
            case "Split":
                start = sum(self.network.tensors[w].channels for w in operator.writes[: operator.writes.index(t)])
                return self._rows_of(moved, self._part(u, low + start, high + start), reach, first, last)
            case "Resize":
                return self._rows_of(resized, self._part(u, low, high), reach, first, last)
            case "Pad" | "Slice":
                return self._rows_of(moved, self._part(u, low, high), reach, first, last)
        if operator.form.kind == "pool":
            return self._rows_of(partial(pooled, node), self._part(u, low, high), reach, first, last)
        if operator.form.kind == "global_pool":
            pixels = self.value(u, low, high).reshape(high - low, -1)
            reduced = {"Max": pixels.max(axis=1), "Sum": pixels.sum(axis=1)}
            found = next((array for word, array in reduced.items() if word in node.op), pixels.mean(axis=1))
            return found[:, None, None]
        if node.op in ("Reshape", "Flatten", "Squeeze", "Unsqueeze"):
            if operator.form.kind == "flatten":
                return self.value(u, 0, source.channels).reshape(-1, 1, 1)[low:high]
            return self.value(u, low, high)
        return self._elementwise(v, node, t, low, high)

    def _rows_of(
        self, how: Callable[[MapPart, Reach, int, int], np.ndarray], part: MapPart, reach: Reach, first: int, last: int
    ) -> np.ndarray:
        """Result rows `first` to `last` as `how` finds them, or zeros."""
        return (how if self.values else blank)(part, reach, first, last)

    def _joined(self, v: int, node: Node, low: int, high: int) -> np.ndarray:
        pieces, start = [], 0
        numbers = {self.network.tensors[read.tensor].name: read.tensor for read in self.network.operators[v].reads}
        first, last = self.rows[self.network.operators[v].writes[0]]
        for value in node.inputs:
            u = numbers[value]
            depth = self.network.tensors[u].channels
            a, b = max(low - start, 0), min(high - start, depth)
            if a < b:
                pieces.append(self._rows_of(moved, self._part(u, a, b), self.reaches[v, u], first, last))
            start += depth
        return np.concatenate(pieces)

    def _elementwise(self, v: int, node: Node, t: int, low: int, high: int) -> np.ndarray:
        operator, channels = self.network.operators[v], self.network.tensors[t].channels
        first, last = self.rows[t]
        if _across(node):
            low, high, wanted = 0, channels, slice(low, high)
        else:
            wanted = slice(None)
        operands = {}
        for read in operator.reads:
            tensor = self.network.tensors[read.tensor]
            one = tensor.channels == 1 < channels
            part = self._part(read.tensor, 0 if one else low, 1 if one else high)
            operands[tensor.name] = self._rows_of(moved, part, self.reaches[v, read.tensor], first, last)
        found, used = pointwise(self.graph, node, operands, low, high, channels, self.values)
        self._load_weights(used, 0)
        return found[operator.writes.index(t)][wanted]


def _depthwise(weights: np.ndarray, part: MapPart, reach: Reach, first: int, last: int) -> np.ndarray:
    """Rows of a convolution of every channel by itself; `weights` float64[channels, row taps, column taps]."""
    windows = gathered(part, reach, first, last)
    return np.asarray(np.einsum("cij,cyixj->cyx", weights, windows, optimize=True))


def _across(node: Node) -> bool:
    return node.op in ("Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization")
