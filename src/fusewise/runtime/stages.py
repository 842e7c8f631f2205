"""Host steps in a row whose shapes data decide, as one graph: a later stage, compiled for shapes that come back.

What has no native code at all stands between stages, by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fusewise.ir.graph import Constant, Graph
from fusewise.ir.types import TensorType, ValueType
from fusewise.lower.program import HostStep, Place, Program
from fusewise.records import record
from fusewise.runtime.arena import Memory
from fusewise.runtime.hoststep import HostCall, apart, manner_of, operand
from fusewise.runtime.nested import Build, Manner, Nested

__all__ = ["NEVER_NATIVE", "Stage", "staged"]

NEVER_NATIVE = frozenset({"no element definition", "refused"})
"""Why a node is on the host that no shape would make native."""

Value = tuple[str, Place | None, ValueType | None]


@record(frozen=True)
class Stage:
    """Host steps as one graph. It has the `label` and `group` of its first step."""

    label: str
    group: int
    nested: Nested
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    calls: Mapping[str, HostCall]

    def run(self, memory: Memory, objects: dict[str, Any]) -> None:
        """Evaluate the graph on operands from `memory` and `objects`, and put there what is wanted of its results."""
        values = [operand(read, memory, objects) for read in self.reads]
        found = self.nested.run(values)
        views = [value for value, (_, place, _) in zip(values, self.reads, strict=True) if place is not None]
        for value, (name, place, kind) in zip(found, self.writes, strict=True):
            if place is None or not isinstance(kind, TensorType):
                objects[name] = apart(value, views)
            else:
                memory.view(place, kind)[...] = self.calls[name].checked(name, np.asarray(value), kind)


def staged(
    steps: Sequence[tuple[int, HostStep, HostCall]], program: Program, workers: int, build: Build
) -> Iterator[tuple[int, HostCall | Stage]]:
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
) -> Iterator[tuple[int, HostCall | Stage]]:
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
    members = {member.node.outputs: member for _, _, call in steps for member in call.members}
    number, first, _ = steps[0]
    calls = {name: call for _, step, call in steps for name, _, _ in step.writes}
    nested = Nested(graph, lambda node: members[node.outputs], manner)
    yield number, Stage(first.label, first.group, nested, tuple(reads.values()), tuple(writes), calls)


def _types(values: Iterable[Value]) -> dict[str, ValueType]:
    return {name: kind for name, _, kind in values if kind is not None}
