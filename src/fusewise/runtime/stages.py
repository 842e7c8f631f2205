"""Host steps in a row whose shapes data decide, as one graph: a later stage, compiled for shapes that come back.

What has no native code at all stands between stages, by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fusewise.ir.graph import Constant, Graph
from fusewise.ir.types import ValueType
from fusewise.lower.program import HostStep, Program
from fusewise.runtime.arena import RunMemory
from fusewise.runtime.hoststep import HostCall, manner_of
from fusewise.runtime.nested import Build, Manner, Nested
from fusewise.runtime.operands import Value, lies_in, reader, writing

__all__ = ["NEVER_NATIVE", "HostStage", "staged"]

NEVER_NATIVE = frozenset({"no element definition", "refused"})
"""Why a node is on the host that no shape would make native."""


class HostStage:
    """Host steps as one graph. It has the `label` and `group` of its first step; `makers` names the node that gives each result."""

    def __init__(
        self,
        first: HostStep,
        nested: Nested,
        reads: Sequence[Value],
        writes: Sequence[Value],
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


def staged(
    steps: Sequence[tuple[int, HostStep, HostCall]], program: Program, workers: int, build: Build
) -> Iterator[tuple[int, HostCall | HostStage]]:
    """Consecutive host steps with their numbers, those whose shapes data decide put together."""
    constants = dict(program.objects)
    wanted, manner = _read_by(program), manner_of(program, workers, build)
    waiting: list[tuple[int, HostStep, HostCall]] = []
    for number, step, call in steps:
        if _is_part(step) and not call.stands_alone:
            waiting.append((number, step, call))
            continue
        yield from _stages(waiting, program, constants, wanted, manner)
        waiting = []
        yield number, call
    yield from _stages(waiting, program, constants, wanted, manner)


def _is_part(step: HostStep) -> bool:
    """Could native code do all of it, if only the shapes were known?"""
    return not NEVER_NATIVE.intersection(step.reasons)


def _read_by(program: Program) -> Mapping[str, set[int]]:
    """By value, the numbers of the host steps that read it; -1 for the caller."""
    found: dict[str, set[int]] = {port.name: {-1} for port in program.outputs}
    for number, step in enumerate(program.steps):
        if isinstance(step, HostStep):
            for name, _, _ in step.reads:
                found.setdefault(name, set()).add(number)
    return found


def _stages(
    steps: Sequence[tuple[int, HostStep, HostCall]],
    program: Program,
    constants: Mapping[str, np.ndarray],
    wanted: Mapping[str, set[int]],
    manner: Manner,
) -> Iterator[tuple[int, HostCall | HostStage]]:
    if not steps:
        return
    numbers = {number for number, _, _ in steps}
    made = {name for _, step, _ in steps for node in step.nodes for name in node.writes}
    reads: dict[str, Value] = {}
    for value in (read for _, step, _ in steps for read in step.reads):
        if value[0] not in made and value[0] not in constants:
            reads.setdefault(value[0], value)
    writes = [
        value
        for _, step, _ in steps
        for value in step.writes
        if value[1] is not None or wanted.get(value[0], set()) - numbers
    ]
    read = {name for _, step, _ in steps for name, _, _ in step.reads}
    graph = Graph(
        inputs=tuple(reads),
        outputs=tuple(name for name, _, _ in writes),
        nodes=tuple(node for _, step, _ in steps for node in step.nodes),
        types=_types(value for _, step, _ in steps for value in (*step.reads, *step.writes)),
        constants={name: Constant(array) for name, array in constants.items() if name in read},
        name="stage",
        opset=steps[0][1].opset,
        opsets=tuple((domain, version) for domain, version in program.opsets if domain),
    )
    members = {member.outputs: member for _, _, call in steps for member in call.members}
    number, first, _ = steps[0]
    makers = {name: maker for _, _, call in steps for name, maker in call.makers.items()}
    nested = Nested(graph, lambda node: members[node.outputs], manner)
    yield number, HostStage(first, nested, tuple(reads.values()), writes, makers)


def _types(values: Iterable[Value]) -> dict[str, ValueType]:
    return {name: kind for name, _, kind in values if kind is not None}
