"""Host steps in a row whose shapes data decide, as one graph: a later stage, compiled for shapes that come back.

What has no native code at all stands between stages, by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fusewise.ir.graph import Constant, Graph
from fusewise.ir.size import Size
from fusewise.ir.types import TensorType, ValueType
from fusewise.lower.program import HostStep, HostValue, Program
from fusewise.runtime.arena import RunMemory
from fusewise.runtime.hoststep import HostCall, host_call, manner_of
from fusewise.runtime.nested import Build, Nested
from fusewise.runtime.operands import lies_in, reader, writing

__all__ = ["HostParts", "HostStage", "may_be_native"]

_NEVER_NATIVE = frozenset({"no element definition", "refused"})
"""Why a node is on the host that no shape would make native."""


class HostStage:
    """Host steps as one graph. It has the `label` and `group` of its first step; `makers` names the node that gives each result."""

    def __init__(
        self,
        first: HostStep,
        nested: Nested,
        reads: Sequence[HostValue],
        writes: Sequence[HostValue],
        makers: Mapping[str, str],
    ) -> None:
        self.label, self.group, self.nested = first.label, first.group, nested
        self._reads = tuple(reader(value) for value in reads)
        self._places = tuple(k for k, value in enumerate(reads) if lies_in(value) is not None)
        self._writes = tuple(writing(value, makers[value[0]]) for value in writes)

    def run(self, memory: RunMemory, objects: dict[str, Any]) -> None:
        """Evaluate the graph on operands from `memory` and `objects`, and put there what is wanted of its results."""
        values = [read(memory, objects) for read in self._reads]
        with np.errstate(all="ignore"):
            found = self.nested.run(values)
        views = [values[k] for k in self._places]
        for value, write in zip(found, self._writes, strict=True):
            write(memory, objects, value, views)


class HostParts:
    """The host steps of a program, ready to run.

    Where the program has symbols they are asked for again, with other types: evaluators, and graphs that are compiled for shapes
    that come back, are made once.
    """

    def __init__(self, program: Program, addresses: Mapping[str, int], workers: int, build: Build) -> None:
        self._make = partial(host_call, program=program, addresses=addresses, workers=workers, build=build)
        self._program, self._manner = program, manner_of(program, workers, build)
        self._constants = {name: found for name, found in program.objects if isinstance(found, np.ndarray)}
        self._wanted = _read_by(program)
        self._calls: dict[int, HostCall] = {}
        self._graphs: dict[int, Nested] = {}

    def __call__(self, steps: Sequence[tuple[int, HostStep]]) -> list[tuple[int, HostCall | HostStage]]:
        """Consecutive host steps with their numbers, those whose shapes data decide put together."""
        found: list[tuple[int, HostCall | HostStage]] = []
        waiting: list[tuple[int, HostStep, HostCall]] = []
        for number, step in steps:
            known = self._calls.get(number)
            call = self._calls.setdefault(number, self._make(step)) if known is None else known.moved(step)
            if all(map(may_be_native, step.reasons)) and not call.stands_alone:
                if _reads_behind(step, [before for _, before, _ in waiting]):
                    found += self._stage(waiting)
                    waiting = []
                waiting.append((number, step, call))
                continue
            found += [*self._stage(waiting), (number, call)]
            waiting = []
        return [*found, *self._stage(waiting)]

    def _stage(self, steps: Sequence[tuple[int, HostStep, HostCall]]) -> Iterator[tuple[int, HostStage]]:
        if not steps:
            return
        numbers = {number for number, _, _ in steps}
        made = {name for _, step, _ in steps for node in step.nodes for name in node.writes}
        reads: dict[str, HostValue] = {}
        for value in (read for _, step, _ in steps for read in step.reads):
            if value[0] not in made and value[0] not in self._constants:
                reads.setdefault(value[0], value)
        writes = [
            value
            for _, step, _ in steps
            for value in step.writes
            if value[1] is not None or self._wanted.get(value[0], set()) - numbers
        ]
        number, first, _ = steps[0]
        if number not in self._graphs:
            self._graphs[number] = self._graph(steps, tuple(reads), tuple(name for name, _, _ in writes))
        makers = {name: maker for _, _, call in steps for name, maker in call.makers.items()}
        yield number, HostStage(first, self._graphs[number], tuple(reads.values()), writes, makers)

    def _graph(
        self, steps: Sequence[tuple[int, HostStep, HostCall]], inputs: tuple[str, ...], outputs: tuple[str, ...]
    ) -> Nested:
        read = {name for _, step, _ in steps for name, _, _ in step.reads}
        graph = Graph(
            inputs=inputs,
            outputs=outputs,
            nodes=tuple(node for _, step, _ in steps for node in step.nodes),
            types=self._types([number for number, _, _ in steps]),
            constants={name: Constant(array) for name, array in self._constants.items() if name in read},
            name="stage",
            opset=steps[0][1].opset,
            opsets=tuple((domain, version) for domain, version in self._program.opsets if domain),
        )
        members = {member.outputs: member for _, _, call in steps for member in call.members}
        return Nested(graph, lambda node: members[node.outputs], self._manner)

    def _types(self, numbers: Iterable[int]) -> dict[str, ValueType]:
        """By name, what is known of values of these steps whatever sizes are."""
        steps = (step for k in numbers if isinstance(step := self._program.steps[k], HostStep))
        values = (value for step in steps for value in (*step.reads, *step.writes))
        return {name: _without_sizes(kind) for name, _, kind in values if kind is not None}


def may_be_native(reason: str) -> bool:
    """Could native code do what is on the host for this reason, if only the shapes were known? It has no words."""
    return reason not in _NEVER_NATIVE and not reason.endswith(" on string")


def _reads_behind(step: HostStep, before: Sequence[HostStep]) -> bool:
    """Does it read memory that those `before` write, by another name than they do, as a part of what they give? A stage reads what
    it takes from memory when it begins."""
    written = {(name, place.buffer) for one in before for name, place, _ in one.writes if place is not None}
    buffers = {buffer for _, buffer in written}
    return any(p is not None and p.buffer in buffers and (name, p.buffer) not in written for name, p, _ in step.reads)


def _read_by(program: Program) -> Mapping[str, set[int]]:
    """By value, the numbers of the host steps that read it; -1 for the caller."""
    found: dict[str, set[int]] = {port.name: {-1} for port in program.outputs}
    for number, step in enumerate(program.steps):
        if isinstance(step, HostStep):
            for name, _, _ in step.reads:
                found.setdefault(name, set()).add(number)
    return found


def _without_sizes(kind: ValueType) -> ValueType:
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    return TensorType(kind.dtype, tuple(None if isinstance(dim, Size) else dim for dim in kind.shape))
