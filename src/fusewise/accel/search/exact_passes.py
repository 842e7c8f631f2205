"""How the need and the traffic of a group grow, operator by operator: row tiles as running them takes (BRR, executed).

Both are bounds from below, and the need only grows. Regions are counted for convolutions alone, with the rows that one row of
every result takes (see `exact_steps` for those at the edges of a map): all channels in the phases in which one is full; half a
block of them in the others, and then what it reads from DRAM must be whole; all again where two convolutions read the result,
one after the other. The traffic has weights once for each tile, with at least as many tiles as the regions leave room for.
"""

from __future__ import annotations

from typing import NamedTuple

from fusewise.accel.bits import bits_of, mask_of
from fusewise.accel.network import Network, Tensor
from fusewise.accel.problem import Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.scheme import UNBOUNDED, bytes_for
from fusewise.accel.search.exact_steps import Steps, answers_to_all, moves_by, rows_within, steps_of
from fusewise.accel.search.exact_tiles import refuses
from fusewise.accel.search.exact_traffic import TrafficGrowth

__all__ = ["PassGrowth"]

Pair = tuple[int, int]
"""Elements when convolutions at even depth are full, and when those at odd depth are."""


class Extent(NamedTuple):
    """A map's height; the rows of it that some one-row tile sees at least, of a window larger than that (`most`), and those that
    are needed at all (`every`)."""

    height: int
    most: int
    every: int

    def seen(self, rows: int, more: int = 0, by: int = 0) -> int:
        """Rows within the map that some tile sees when its window has `rows`, and `more` for those of its rows that are not its
        first; from one row of a tile to the next the window moves on `by` rows."""
        least = min(rows, self.most)
        return max(least, more + 1, min(rows + more, self.height - 2 * (more + by) + 2)) if more else least


class Region(NamedTuple):
    """What a convolution holds: elements of one row of its result with all channels (`full`) and in a half block (`partial`);
    and of one row of what it reads (`source`)."""

    full: int
    partial: int
    result: Extent
    source: tuple[int, Extent]


class State(NamedTuple):
    """What is known of a group. `held` for one-row tiles, but for the phase in which those that start are partial; `starts`: these
    convolutions, which read from DRAM; `whole`: convolutions whose result is held whole in either phase; `wide`: what is held,
    about, for each further row of the input; `last`: the last one of the operators with the coarsest result; `span`: rows of the
    input that all results reach; `at_once`: all rows pass in one tile, since an operator answers to a whole map."""

    held: Pair = (0, 0)
    starts: int = 0
    whole: int = 0
    wide: float = 0.0
    largest: int = 0
    weights: int = 0
    refused: bool = False
    last: int = -1
    span: int = 1 << 60
    at_once: bool = False


class PassGrowth:
    """A group that grows by consumers; the members mean what those of `exact_lines.LineGrowth` do."""

    __slots__ = (
        "_capacity",
        "_convolutions",
        "_demands",
        "_depth",
        "_filters",
        "_high",
        "_network",
        "_never",
        "_readers",
        "_regions",
        "_scheme",
        "_state",
        "_steps",
        "_traffic",
        "_undo",
        "group",
    )

    exact_traffic = False
    spanning = False

    def __init__(self, problem: Problem, scheme: BRR) -> None:
        network = self._network = problem.network
        self._scheme, self._capacity = scheme, problem.capacity
        self._traffic = TrafficGrowth(problem, network_io=scheme.network_io, excluded_traffic=scheme.excluded_traffic)
        forms = [operator.form for operator in network.operators]
        self._filters = tuple(
            form.filter_weights // form.filter_channels * min(form.filter_channels, scheme.partial_channels)
            for form in forms
        )
        steps = self._steps = steps_of(network)
        self._regions = regions_of(network, scheme, steps)
        self._convolutions = mask_of(v for v, form in enumerate(forms) if form.kind == "conv")
        self._demands = demands_of(network)
        self._readers = [0] * len(forms)  # the convolutions in the group that read an operator's result
        self._high = [0] * len(forms)  # rows of each result
        self._depth = [0] * len(forms)  # convolutions before
        self._state = State()
        self._undo: list[tuple[State, list[tuple[int, int]]]] = []
        self._never = UNBOUNDED * 8 // scheme.bits
        self.group = 0

    @property
    def need(self) -> int:
        """Elements held while a row passes, for the better phase, and the largest filter: never more than the scheme's."""
        return self._never if self._state.refused else min(self._one_row()) + self._state.largest

    @property
    def traffic(self) -> int:
        """Elements moved through DRAM, at least."""
        moved, group, steps, state = self._traffic.moved, self.group, self._steps, self._state
        if not steps.even or group & steps.loose or not group & (group - 1) or state.last < 0:
            return moved
        coarsest = int(steps.each[state.last])
        height = self._network.tensors[self._network.operators[state.last].writes[0]].height
        room, most = self._capacity * 8 // self._scheme.bits, 0
        for phase, held in enumerate(self._one_row()):
            if bytes_for(held + state.largest, self._scheme.bits) >= self._capacity:
                continue
            if held + state.weights <= room:
                return moved
            most = max(most, self._highest(phase, held, room - state.largest, coarsest, height))
        if (most - 1) * coarsest >= state.span:
            return moved
        return moved + (-(-height // most) - 1) * state.weights if most else self._never

    def _highest(self, phase: int, held: int, room: int, coarsest: int, height: int) -> int:
        """The most rows of the coarsest result that a tile may have; perhaps more than fit. One row takes `held`."""
        convolutions = list(bits_of(self.group & self._convolutions))
        low, high, step = 1, height, 1
        guess = 2 + int((room - held) / (1 + self._state.wide * coarsest))
        while low < high:
            rows = min(max(guess, low + 1), high)
            more = (rows - 1) * coarsest
            held = sum(self._held(v, self._high[v], more, coarsest)[phase] for v in convolutions)
            if held + phase * self._starting(more, coarsest) <= room:
                low = rows
            else:
                high, step = rows - 1, 0
            guess, step = (low + step, 2 * step) if step else ((low + high + 1) // 2, 0)
        return low

    def _one_row(self) -> Pair:
        """Elements held by one-row tiles."""
        even, odd = self._state.held
        return even, odd + self._starting()

    @property
    def least(self) -> int:
        """What operators that are split into groups in any way move at least, as if together, with weights once."""
        return self._traffic.moved

    def push(self, node: int) -> None:
        """Add an operator."""
        network, group, old = self._network, self.group, self._state
        operator, before = network.operators[node], network.predecessors[node] & group
        deepest = max((self._depth[v] for v in bits_of(before)), default=-1)
        changed: list[tuple[int, int]] = []
        self._undo.append((old, changed))
        self._depth[node] = deepest + (operator.form.kind == "conv")
        step, last = self._steps.each[node], old.last
        if step and (last < 0 or (step, node) > (self._steps.each[last], last)):
            last = node
        span = (network.tensors[operator.writes[0]].height - 1) * int(step) if step else old.span
        region = self._regions[node]
        self._state = old._replace(
            starts=old.starts if before or not region.full else old.starts | 1 << node,
            wide=old.wide + region.full / (2 * float(step)) if step else old.wide,
            largest=max(old.largest, self._filters[node]),
            weights=old.weights + operator.form.weights,
            refused=old.refused or refuses(network, group, node, before),
            last=last,
            span=min(old.span, span),
        )
        if before and self._steps.whole >> node & 1 and not old.at_once:
            self._state = self._state._replace(at_once=True)
            held = [self._held(v, self._high[v]) for v in bits_of(group & self._convolutions)]
            self._state = self._state._replace(held=(sum(even for even, _ in held), sum(odd for _, odd in held)))
        self._raise(node, 1, changed)
        waiting = 1 << node
        while waiting:
            low = waiting.bit_length() - 1
            waiting ^= 1 << low
            reader, rows = network.operators[low], self._high[low]
            for v in bits_of(network.predecessors[low] & group):
                reach = rows_within(reader, rows, self._steps.moves[low])
                if answers_to_all(reader):
                    reach = network.tensors[network.operators[v].writes[0]].height
                if reach > self._high[v]:
                    self._raise(v, reach, changed)
                    waiting |= 1 << v
        if operator.form.kind == "conv":
            for v in bits_of(self._demands[node] & group):
                if self._readers[v] & network.ancestors[node] and not self._state.whole >> v & 1:
                    self._keep(v)
                self._readers[v] |= 1 << node
        self._traffic.push(node, group)
        self.group = group | 1 << node

    def pop(self, node: int) -> None:
        """Take the operator pushed last away again."""
        self._state, changed = self._undo.pop()
        for v, rows in reversed(changed):
            self._high[v] = rows
        self._traffic.pop()
        self.group ^= 1 << node
        for v in bits_of(self._demands[node] & self.group):
            self._readers[v] &= ~(1 << node)

    def _raise(self, node: int, rows: int, changed: list[tuple[int, int]]) -> None:
        """Hold more rows of an operator's result."""
        old = self._high[node] if self.group >> node & 1 else 0
        changed.append((node, old))
        self._high[node] = rows
        if self._convolutions >> node & 1:
            new, was, held = self._held(node, rows), self._held(node, old), self._state.held
            if new != was:
                self._state = self._state._replace(held=(held[0] + new[0] - was[0], held[1] + new[1] - was[1]))

    def _keep(self, node: int) -> None:
        """Hold a result whole in either phase: two convolutions read it, one of which needs the other's."""
        was = self._held(node, self._high[node])
        self._state = self._state._replace(whole=self._state.whole | 1 << node)
        now, held = self._held(node, self._high[node]), self._state.held
        self._state = self._state._replace(held=(held[0] + now[0] - was[0], held[1] + now[1] - was[1]))

    def _held(self, node: int, rows: int, more: int = 0, coarsest: int = 0) -> Pair:
        """Elements that a convolution holds of so many rows of its result, if one-row tiles need these; in tiles that go on for
        `more` rows of the input, and the coarsest result's step is so much. What those that start hold when they are partial is
        left to `_starting`."""
        region, state = self._regions[node], self._state
        if not rows or not region.full:
            return 0, 0
        step = int(self._steps.each[node]) if more else 0
        seen = region.result.seen(rows, more // step, coarsest // step) if step else region.result.seen(rows)
        if state.at_once:
            seen = region.result.every
        full = region.full * seen
        if state.whole >> node & 1:
            return full, full
        partial = 0 if state.starts >> node & 1 else region.partial * seen
        return (full, partial) if self._depth[node] % 2 == 0 else (partial, full)

    def _starting(self, more: int = 0, coarsest: int = 0) -> int:
        """Elements held of what comes from DRAM to convolutions that start and are partial, and of their results: it must be
        whole, or else all these results."""
        state, operators = self._state, self._network.operators
        found: dict[int, tuple[int, int, int]] = {}
        for v in bits_of(state.starts):
            region, rows, across = self._regions[v], self._high[v], operators[v].form.rows.stride[0]
            step = int(self._steps.each[v]) if more else 0
            beyond, by = (more // step, coarsest // step) if step else (0, 0)
            seen = region.result.seen(rows, beyond, by)
            row, window = region.source
            source = row * window.seen(
                rows_within(operators[v], rows, self._steps.moves[v]), beyond * across, by * across
            )
            if state.at_once:
                seen, source = region.result.every, row * window.every
            full, partial, most = found.get(operators[v].reads[0].tensor, (0, 0, 0))
            if not state.whole >> v & 1:
                full, partial = full + region.full * seen, partial + region.partial * seen
            found[operators[v].reads[0].tensor] = full, partial, max(most, source)
        return sum(min(full, partial + source) for full, partial, source in found.values() if full)


def regions_of(network: Network, scheme: BRR, steps: Steps) -> tuple[Region, ...]:
    """What each convolution holds; nothing for other operators."""
    found = []
    for v, operator in enumerate(network.operators):
        if operator.form.kind != "conv":
            found.append(Region(0, 0, Extent(1, 1, 1), (0, Extent(1, 1, 1))))
            continue
        out, moves, read = network.tensors[operator.writes[0]], steps.moves[v], operator.reads[0].tensor
        source, block = network.tensors[read], -(-min(out.channels, scheme.partial_channels) // 2)
        before = source.channels * source.width, extent(source, moves_by(network, v, read, moves))
        found.append(Region(out.channels * out.width, block * out.width, extent(out, moves), before))
    return tuple(found)


def extent(tensor: Tensor, moves: int) -> Extent:
    """Of a map on which one-row tiles move on by so many rows at most."""
    return Extent(tensor.height, max(1, tensor.height - 2 * moves + 2), max(1, tensor.height - moves + 1))


def demands_of(network: Network) -> tuple[int, ...]:
    """Per operator, the convolutions whose results it reads, straight or by way of operators without weights, as bits."""
    found: list[int] = []
    through: list[int] = []
    for v, operator in enumerate(network.operators):
        demanded = 0
        for u in bits_of(network.predecessors[v]):
            demanded |= through[u]
        found.append(demanded)
        if operator.form.kind == "conv":
            through.append(1 << v)
        else:
            through.append(0 if operator.form.weights else demanded)
    return tuple(found)
