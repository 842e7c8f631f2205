"""What must be remembered of a group while operators are decided on one by one, in topological order: taken in or left out.

Takes a problem under line buffers (LBDF); gives, for each operator and what is known of the tensors around it, what is known
afterwards and by how much the group's need and its traffic grow. Only tensors with readers to come are remembered, so two groups
that are known alike at some operator go on alike: `exact_layers` makes a graph of that.

At the end the need and the traffic are those of the scheme, to the element. Of a tensor made in the group it takes by how much it
trails (`lag`) and how much is held for the readers so far. A producer that reads from DRAM only is delayed to what its readers
allow, and a tensor from DRAM is loaded just in time; so of these the readers are remembered, as each that is found may have the
others wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from fusewise.accel.network import Read
from fusewise.accel.problem import Problem
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.search.exact_lines import own_of

__all__ = ["Known", "MemoryStep", "MemorySteps"]

Lag = tuple[int, int]
"""By how many units of height and of width an operator or a tensor trails the start of the group."""

Reader = tuple[int, Lag]
"""An operator of the group, and its lag."""


class Known(NamedTuple):
    """What is known of a tensor that the group has to do with. `made`: by an operator of the group; else, with `held`, it is read
    from DRAM; without, it is behind the group: outside, but made from what the group gives, so that no reader may join.

    `written`: it goes to DRAM. `held`: elements of it in the buffer. `readers`: where what is held depends on all of them;
    `delayed`: readers whose lag depends on readers of their own.
    """

    made: bool = False
    held: int = 0
    written: bool = False
    lag: Lag | None = None
    readers: tuple[Reader, ...] | None = None
    delayed: tuple[int, ...] = ()


BEHIND = Known()


class MemoryStep(NamedTuple):
    """What an operator changes: what is known of the tensors around it (`MemorySteps.around`), None where there is nothing to
    remember; elements that are needed and moved more; and whether the operator reads from the group."""

    known: tuple[Known | None, ...]
    need: int
    moved: int
    inside: bool


@dataclass(frozen=True)
class MemorySteps:
    """The steps of one problem, whose scheme is `scheme`."""

    problem: Problem
    scheme: LBDF

    @cached_property
    def together(self) -> tuple[tuple[int, ...], ...]:
        """Per tensor, the tensors that come with it: those of its producer, which are delayed together."""
        operators = self.problem.network.operators
        tensors = enumerate(self.problem.network.tensors)
        return tuple(operators[at.producer].writes if at.producer >= 0 else (t,) for t, at in tensors)

    @cached_property
    def last(self) -> tuple[int, ...]:
        """Per tensor, the last reader of any that comes with it; -1 without any."""
        tensors = self.problem.network.tensors
        return tuple(max(tensors[t].consumers.bit_length() - 1 for t in these) for these in self.together)

    @cached_property
    def around(self) -> tuple[tuple[int, ...], ...]:
        """Per operator, the tensors that its step is about: those it reads and writes and what comes with them; and those read by
        the producers of what is not read later, as these producers' lags are known then."""
        operators, tensors = self.problem.network.operators, self.problem.network.tensors
        found = []
        for v, operator in enumerate(operators):
            these = dict.fromkeys(
                (*(t for read in operator.reads for t in self.together[read.tensor]), *operator.writes)
            )
            for t in tuple(these):
                if self.last[t] <= v and tensors[t].producer >= 0:
                    these |= dict.fromkeys(read.tensor for read in operators[tensors[t].producer].reads)
            found.append(tuple(these))
        return tuple(found)

    def left_out(self, node: int, known: dict[int, Known]) -> MemoryStep:
        """The operator is not in the group."""
        operator, moved, behind = self.problem.network.operators[node], 0, False
        for read in operator.reads:
            before = known.get(read.tensor)
            if before is None or (before.held and not before.made):
                continue
            behind = True
            if before.made and not before.written and self._counted[read.tensor] >> node & 1:
                moved += self._elements[read.tensor]
                known[read.tensor] = before._replace(written=True)
        if behind:
            known |= dict.fromkeys(operator.writes, BEHIND)
        need = self._settle(node, known)
        return MemoryStep(tuple(known.get(t) for t in self.around[node]), need, moved, False)

    def taken_in(self, node: int, known: dict[int, Known]) -> MemoryStep | None:
        """The operator is in the group; None when it may not be, as it is behind it."""
        operator = self.problem.network.operators[node]
        if BEHIND in (known.get(read.tensor) for read in operator.reads):
            return None
        inside, lag = self._lag(operator.reads, known)
        need, moved = self._own[node], operator.form.weights
        for read in operator.reads:
            number = read.tensor
            before = known.get(number)
            if before is None:
                moved += self._loaded(number)
                before = known[number] = Known(readers=())
            if before.made and before.readers is None:
                assert before.lag is not None
                need += self._hold(number, self._waits(node, read, lag, before.lag), known)
            elif inside:
                assert before.readers is not None
                known[number] = before._replace(readers=(*before.readers, (node, lag)))
                need += self._gather(number, known)
            else:
                known[number] = before._replace(delayed=(*before.delayed, node))
                need += self._hold(number, self._waits(node, read, (read.lag_rows, read.lag_columns), (0, 0)), known)
        for number in operator.writes:
            written = self.problem.network.tensors[number].is_output and self.scheme.network_io
            moved += self._elements[number] if written else 0
            known[number] = Known(made=True, written=written, lag=lag, readers=None if inside else ())
        need += self._settle(node, known)
        return MemoryStep(tuple(known.get(t) for t in self.around[node]), need, moved, inside)

    def _lag(self, reads: tuple[Read, ...], known: dict[int, Known]) -> tuple[bool, Lag]:
        """Does an operator with these reads read from the group; and by how much it trails then."""
        inside, rows, columns = False, [], []
        for read in reads:
            before = known.get(read.tensor)
            down, right = 0, 0
            if before is not None and before.made:
                assert before.lag is not None
                inside, (down, right) = True, before.lag
            rows.append(down + read.lag_rows)
            columns.append(right + read.lag_columns)
        return inside, (max(rows, default=0), max(columns, default=0))

    def _settle(self, node: int, known: dict[int, Known]) -> int:
        """Forget what nobody reads later; elements that are needed more, since the lags of delayed producers are known now."""
        need, ended = 0, [t for t in known if self.last[t] <= node]
        for number in ended:
            if known[number].made and known[number].readers is not None:
                need += self._delay(number, known)
        for number in ended:
            at = known[number]
            if not at.delayed or len(at.delayed) + len(at.readers or ()) == 1:
                del known[number]
        return need

    def _delay(self, number: int, known: dict[int, Known]) -> int:
        """The producer of a tensor trails as much as its readers allow: so what it reads waits for it. Elements needed more."""
        network, need = self.problem.network, 0
        node, lag = network.tensors[number].producer, self._start(number, known)
        for read in network.operators[node].reads:
            source = known.get(read.tensor)
            if source is not None and node in source.delayed:
                assert source.readers is not None
                delayed = tuple(v for v in source.delayed if v != node)
                known[read.tensor] = source._replace(readers=(*source.readers, (node, lag)), delayed=delayed)
                need += self._gather(read.tensor, known)
        return need

    def _gather(self, number: int, known: dict[int, Known]) -> int:
        """Hold what comes just in time for its readers, and what comes with it; elements needed more."""
        need, start, reads = 0, self._start(number, known), self._reads
        for t in self._with(number, known):
            if (at := known.get(t)) is not None and at.readers:
                need += self._hold(t, max(self._waits(v, reads[v, t], lag, start) for v, lag in at.readers), known)
        return need

    def _with(self, number: int, known: dict[int, Known]) -> tuple[int, ...]:
        """The tensors that come when this one does: from DRAM, each by itself."""
        return self.together[number] if known[number].made else (number,)

    def _hold(self, number: int, held: int, known: dict[int, Known]) -> int:
        """Hold at least so many elements of a tensor; how many that are more than before."""
        before = known[number]
        known[number] = before._replace(held=max(before.held, held))
        return max(0, held - before.held)

    def _start(self, number: int, known: dict[int, Known]) -> Lag:
        """When a tensor that comes just in time for its readers comes."""
        readers = [(v, t, lag) for t in self._with(number, known) if t in known for v, lag in known[t].readers or ()]
        if not readers:
            lag = known[number].lag
            assert lag is not None
            return lag
        reads = self._reads
        return (
            min(lag[0] - reads[v, t].lag_rows for v, t, lag in readers),
            min(lag[1] - reads[v, t].lag_columns for v, t, lag in readers),
        )

    def _waits(self, node: int, read: Read, lag: Lag, start: Lag) -> int:
        """Elements held of a tensor for one reader."""
        rows, columns = lag[0] - start[0], lag[1] - start[1]
        key = node, read.tensor, rows, columns
        found = self._known_waits.get(key)
        if found is None:
            network = self.problem.network
            pixels = self.scheme.waiting_pixels(network, read, rows, columns)
            found = self._known_waits[key] = pixels * network.tensors[read.tensor].channels
        return found

    def _loaded(self, number: int) -> int:
        """Elements moved when a tensor from outside is read."""
        problem, scheme = self.problem, self.scheme
        producer = problem.network.tensors[number].producer
        if producer < 0:
            counts = scheme.network_io
        else:
            counts = scheme.excluded_traffic or not problem.excluded >> producer & 1
        return self._elements[number] if counts else 0

    @cached_property
    def _known_waits(self) -> dict[tuple[int, int, int, int], int]:
        return {}

    @cached_property
    def _reads(self) -> dict[tuple[int, int], Read]:
        return {(v, read.tensor): read for v, op in enumerate(self.problem.network.operators) for read in op.reads}

    @cached_property
    def _elements(self) -> tuple[int, ...]:
        return tuple(tensor.elements for tensor in self.problem.network.tensors)

    @cached_property
    def _own(self) -> tuple[int, ...]:
        return own_of(self.problem.network)

    @cached_property
    def _counted(self) -> tuple[int, ...]:
        """Per tensor, the readers for which it must be written when they are outside the group."""
        network = self.problem.network
        others = network.everything if self.scheme.excluded_traffic else ~self.problem.excluded
        return tuple(tensor.consumers & others for tensor in network.tensors)
