"""How the need and the traffic of a group grow, operator by operator: row tiles as running them takes (BRR, executed).

Both are bounds from below, and the need only grows. Regions are counted for convolutions, with the rows that one row of every
result takes (see `exact_steps` for those at the edges of a map): all channels in the phases in which one is full, half a block of
them in the others. Besides (`schemes.tiles` has the rules):

- All that flows into a partial convolution is whole, come from where it may.
- What two operators with regions read is whole if a convolution made it, and is loaded twice if it comes from DRAM and flows, where
  the one needs the other's result by way of a convolution: for that, or something before it, is whole, and so they read in
  different passes.

The traffic has weights once for each tile, with at least as many tiles as the regions leave room for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fusewise.accel.bits import bits_of, lowest, mask_of
from fusewise.accel.problem import Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.scheme import UNBOUNDED, bytes_for
from fusewise.accel.schemes.tiles import aligned, mixes
from fusewise.accel.search.exact_regions import MapExtent, Slope, extents_of, held_by_higher, loads_of, regions_of
from fusewise.accel.search.exact_steps import answers_to_all, rows_within, steps_of
from fusewise.accel.search.exact_tiles import refuses
from fusewise.accel.search.exact_traffic import TrafficGrowth

__all__ = ["PassGrowth"]

Pair = tuple[int, int]
"""Elements when convolutions at even depth are full, and when those at odd depth are."""


class GroupState(NamedTuple):
    """What is known of a group. `held` for one-row tiles, but for what `_whole` adds; `whole`: convolutions whose result is held
    whole in either phase; `must`: tensors that must be whole in each phase, as bits; `may`: those that may have to in any, as what
    they are needed for mixes channels; `wide`: what is held, about, for each further row of the input; `last`: the last one of the
    operators with the coarsest result; `span`: rows of the input that all results reach; `at_once`: all rows pass in one tile,
    since an operator answers to a whole map."""

    held: Pair = (0, 0)
    whole: int = 0
    must: Pair = (0, 0)
    may: int = 0
    wide: float = 0.0
    largest: int = 0
    weights: int = 0
    refused: bool = False
    last: int = -1
    span: int = 1 << 60
    at_once: bool = False


class Source(NamedTuple):
    """A tensor that operators with regions in the group read, straight or by way of others: an external one, which the operators
    `direct` read, or the result of one with a region. `readers` are those with regions, as bits; `times`, how many of them at
    least need it one after the other, the last one of which is `last`."""

    direct: tuple[int, ...] = ()
    readers: int = 0
    times: int = 0
    last: int = -1


class _Undo(NamedTuple):
    state: GroupState
    high: list[tuple[int, int]]
    sources: list[tuple[int, Source | None]]


class PassGrowth:
    """A group that grows by consumers; the members mean what those of `exact_lines.LineGrowth` do."""

    __slots__ = (
        "_capacity",
        "_convolutions",
        "_depth",
        "_extents",
        "_filters",
        "_flows",
        "_high",
        "_loads",
        "_network",
        "_never",
        "_reads",
        "_regions",
        "_scheme",
        "_sources",
        "_state",
        "_steps",
        "_stored",
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
        self._extents = extents_of(network, steps)
        self._loads = loads_of(problem, scheme)
        self._convolutions = mask_of(v for v, form in enumerate(forms) if form.kind == "conv")
        self._stored = self._convolutions | mask_of(v for v, form in enumerate(forms) if form.weights)
        # tensors that each operator reads, as bits: those with a region, and with those that flow into these
        self._reads, self._flows = [0] * len(forms), [0] * len(forms)
        self._sources: dict[int, Source] = {}
        self._high = [0] * len(forms)  # rows of each result
        self._depth = [0] * len(forms)  # convolutions before
        self._state = GroupState()
        self._undo: list[_Undo] = []
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
        return min(self._moved_in(phase, held) for phase, held in enumerate(self._one_row()))

    def _moved_in(self, phase: int, one: int) -> int:
        """Elements moved in a phase, at least, of which one-row tiles hold `one`: weights once, when all stay; or once for each
        tile, of which there is one, or as many as there must be."""
        state, room = self._state, self._capacity * 8 // self._scheme.bits
        if bytes_for(one + state.largest, self._scheme.bits) >= self._capacity:
            return self._never
        moved = self._traffic.moved + self._again(phase)
        if one + state.weights <= room:
            return moved
        coarsest = int(self._steps.each[state.last])
        height = self._network.tensors[self._network.operators[state.last].writes[0]].height
        most = self._highest(phase, one, room - state.largest, coarsest, height)
        if (most - 1) * coarsest >= state.span:
            return moved
        return moved + (-(-height // most) - 1) * state.weights

    def _highest(self, phase: int, held: int, room: int, coarsest: int, height: int) -> int:
        """The most rows of the coarsest result that a tile may have; perhaps more than fit. One row takes `held`."""
        low, high, step = 1, height, 1
        guess, slopes = 2 + int((room - held) / (1 + self._state.wide * coarsest)), self._slopes(phase)
        while low < high:
            rows = min(max(guess, low + 1), high)
            if held_by_higher(slopes, (rows - 1) * coarsest, coarsest) <= room:
                low = rows
            else:
                high, step = rows - 1, 0
            guess, step = (low + step, 2 * step) if step else ((low + high + 1) // 2, 0)
        return low

    def _slopes(self, phase: int) -> list[Slope]:
        """How what is held grows with the rows of a tile."""
        return [self._slope(*region) for region in self._held_in(phase)]

    def _held_in(self, phase: int) -> Iterator[tuple[int, MapExtent, int, int, int]]:
        """What is held in a phase, convolutions' results and what must be whole of others: elements of a row, the map, its rows in
        one-row tiles, an operator that makes or reads it, and by how many rows windows go on for each row of its result."""
        state, tensors, operators = self._state, self._network.tensors, self._network.operators
        must = state.must[phase]
        for v in bits_of(self.group & self._convolutions):
            region = self._regions[v]
            full = self._depth[v] % 2 == phase or state.whole >> v & 1 or must >> operators[v].writes[0] & 1
            yield region.full if full else region.partial, region.result, self._high[v], v, 1
        for t in bits_of(must):
            u = tensors[t].producer
            if u >= 0 and self.group >> u & 1 and (self._convolutions >> u & 1 or self._may_share(u)):
                continue
            rows, u, across = max(self._seen_by(t))
            yield tensors[t].channels * tensors[t].width, self._extents[u, t], rows, u, across

    def _slope(self, row: int, extent: MapExtent, rows: int, node: int, across: int) -> Slope:
        """A region of which so many `rows` pass in one-row tiles, as an operator's result does or reads it."""
        if self._state.at_once:
            return Slope(row, extent.every, extent.every, 1, 0, 0)
        step = int(self._steps.each[node])
        if not step:
            return Slope(row, extent.seen(rows), extent.height, extent.height, 1, 0)
        return Slope(row, rows, extent.most, extent.height, step, across)

    def _one_row(self) -> Pair:
        """Elements held by one-row tiles."""
        even, odd = self._state.held
        return even + self._whole(0), odd + self._whole(1)

    @property
    def least(self) -> int:
        """What operators that are split into groups in any way move at least, as if together, with weights once."""
        return self._traffic.moved

    @property
    def excess(self) -> int:
        """Elements that this group, and any grown from it, moves more than once: its weights too, where neither they nor all rows
        stay in the buffer."""
        room, weights, found = self._capacity * 8 // self._scheme.bits, self._state.weights, []
        for phase, one in enumerate(self._one_row()):
            if one + self._state.largest < room:
                again = one + weights > room and self._all_rows(phase) + self._state.largest > room
                found.append(self._again(phase) + again * weights)
        return min(found, default=0)

    def _all_rows(self, phase: int) -> int:
        """Elements held when all rows pass in one tile, at least."""
        return sum(row * extent.every for row, extent, *_ in self._held_in(phase))

    def push(self, node: int) -> None:
        """Add an operator."""
        network, group, old = self._network, self.group, self._state
        operator, before = network.operators[node], network.predecessors[node] & group
        deepest = max((self._depth[v] for v in bits_of(before)), default=-1)
        changed: list[tuple[int, int]] = []
        self._depth[node] = deepest + (operator.form.kind == "conv")
        self._undo.append(_Undo(old, changed, self._read(node)))
        must, may = self._whole_for(node)
        step, last = self._steps.each[node], old.last
        if step and (last < 0 or (step, node) > (self._steps.each[last], last)):
            last = node
        span = (network.tensors[operator.writes[0]].height - 1) * int(step) if step else old.span
        region = self._regions[node]
        self._state = old._replace(
            must=must,
            may=may,
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
        if self._stored >> node & 1:
            self._need_again(node)
        self._traffic.push(node, group)
        self.group = group | 1 << node

    def pop(self, node: int) -> None:
        """Take the operator pushed last away again."""
        self._state, changed, sources = self._undo.pop()
        for v, rows in reversed(changed):
            self._high[v] = rows
        for tensor, before in reversed(sources):
            if before is None:
                del self._sources[tensor]
            else:
                self._sources[tensor] = before
        self._traffic.pop()
        self.group ^= 1 << node

    def _read(self, node: int) -> list[tuple[int, Source | None]]:
        """Note what an operator reads; sources that changed, with what was known of them before."""
        network, changed, found, flows = self._network, list[tuple[int, Source | None]](), 0, 0
        for read in network.operators[node].reads:
            t = read.tensor
            producer = network.tensors[t].producer
            if producer >= 0 and self.group >> producer & 1:
                found |= 1 << t if self._stored >> producer & 1 else self._reads[producer]
                flows |= 1 << t if self._stored >> producer & 1 else 0
                flows |= 0 if self._convolutions >> producer & 1 else self._flows[producer]
                continue
            known = self._sources.get(t)
            changed.append((t, known))
            known = known or Source()
            self._sources[t] = known._replace(direct=(*known.direct, node))
            found, flows = found | 1 << t, flows | 1 << t
        self._reads[node], self._flows[node] = found, flows
        if self._stored >> node & 1:
            for t in bits_of(found):
                known = self._sources.get(t)
                changed.append((t, known))
                self._sources[t] = self._joined(known or Source(), node)
        return changed

    def _whole_for(self, node: int) -> tuple[Pair, int]:
        """The tensors that must be whole, and may be, with an operator: all that flows into it, for a convolution in the phase in
        which it is partial."""
        (even, odd), may, flows = self._state.must, self._state.may, self._flows[node]
        operator = self._network.operators[node]
        if operator.form.kind == "conv":
            return ((even, odd | flows) if self._depth[node] % 2 == 0 else (even | flows, odd)), may
        at_once = mixes(operator) or not all(
            aligned(self._network, operator, read.tensor, t) for read in operator.reads for t in operator.writes
        )
        return (even, odd), may | flows if at_once else may

    def _joined(self, source: Source, node: int) -> Source:
        """A source that one more operator with a region reads."""
        if source.last < 0 or self._follows(node, source.last):
            source = source._replace(times=source.times + 1, last=node)
        return source._replace(readers=source.readers | 1 << node)

    def _follows(self, node: int, reader: int) -> bool:
        """Does an operator need what flows through another, by way of a convolution? That, or what it reads, is whole; so the two
        read in different passes."""
        network = self._network
        before = network.ancestors[node]
        if self._convolutions >> reader & 1:
            return bool(before >> reader & 1)
        return bool(before & network.descendants[reader] & self._convolutions & self.group)

    def _need_again(self, node: int) -> None:
        """Hold whole what a convolution made and this operator needs after another one."""
        network = self._network
        for t in bits_of(self._reads[node]):
            v = network.tensors[t].producer
            if v < 0 or not self._convolutions & self.group & ~self._state.whole & 1 << v:
                continue
            if any(self._follows(node, r) for r in bits_of(self._sources[t].readers & network.ancestors[node])):
                self._keep(v)

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

    def _held(self, node: int, rows: int) -> Pair:
        """Elements that a convolution holds of so many rows of its result, if one-row tiles need these."""
        region, state = self._regions[node], self._state
        if not rows or not region.full:
            return 0, 0
        seen = region.result.every if state.at_once else region.result.seen(rows)
        full = region.full * seen
        if state.whole >> node & 1:
            return full, full
        partial = region.partial * seen
        return (full, partial) if self._depth[node] % 2 == 0 else (partial, full)

    def _whole(self, phase: int) -> int:
        """Elements held by one-row tiles beyond `_held`, at least, as all is whole that flows into a partial convolution."""
        total, tensors = 0, self._network.tensors
        for t in bits_of(self._state.must[phase]):
            u = tensors[t].producer
            if u < 0 or not self.group >> u & 1:
                total += self._other_held(t)
            elif self._convolutions >> u & 1:
                pair = self._held(u, self._high[u])
                total += max(pair) - pair[phase]
            elif not self._may_share(u):
                total += self._other_held(t)
        return total

    def _may_share(self, node: int) -> bool:
        """May an operator with weights within channels take the region of what it reads?"""
        reads = self._reads[node]
        return bool(reads) and not reads & (reads - 1) and self._sources[lowest(reads)].direct == ()

    def _other_held(self, tensor: int) -> int:
        """Elements held by one-row tiles of a tensor that no convolution in the group made, when it is whole."""
        at = self._network.tensors[tensor]
        windows = ((self._extents[u, tensor], rows) for rows, u, _ in self._seen_by(tensor))
        most = max(window.every if self._state.at_once else window.seen(rows) for window, rows in windows)
        return most * at.channels * at.width

    def _seen_by(self, tensor: int) -> list[tuple[int, int, int]]:
        """The rows of a tensor in one-row tiles as each operator sees it that reads it from DRAM, or else as the one that makes it
        does; that operator; and by how many rows windows go on for each row of its result."""
        direct, operators = self._sources[tensor].direct, self._network.operators
        if not direct:
            u = self._network.tensors[tensor].producer
            return [(self._high[u], u, 1)]
        moves = self._steps.moves
        return [
            (rows_within(operators[u], self._high[u], moves[u]), u, operators[u].form.rows.stride[0]) for u in direct
        ]

    def _again(self, phase: int) -> int:
        """Elements of external tensors that are loaded again, at least: those that flow, for each of `times` after the first."""
        whole = self._state.must[phase] | self._state.may
        flows = ((t, at) for t, at in self._sources.items() if at.direct and at.times > 1 and not whole >> t & 1)
        return sum(self._loads[t] * (at.times - 1) for t, at in flows)
