"""A program in the making: what the passes over it hand on, each making a new one of the one before.

Memory has names here and no numbers yet, so a pass may ask for some, or give it up, and no other pass has to know. What becomes of
it is a `lower.program.Program`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import cached_property

from fusewise.codegen.kernel import Argument, Implementation
from fusewise.codegen.target import Target
from fusewise.ir.deciding import Condition, known_zero
from fusewise.ir.graph import Graph
from fusewise.ir.size import Size, Symbol, symbols_of
from fusewise.ir.types import TensorType, ValueType
from fusewise.lower.memory import Lifetime
from fusewise.lower.program import Buffer, Extent
from fusewise.lower.work import HostWork, Lowered, TaskWork
from fusewise.records import record
from fusewise.trace import Trace

__all__ = [
    "Area",
    "DraftPass",
    "HostDraft",
    "Pointer",
    "PortDraft",
    "ProgramDraft",
    "SampleRange",
    "SizedCode",
    "TaskDraft",
    "Upcoming",
    "Visit",
    "first_draft",
    "in_memory",
]


@record(frozen=True, slots=True)
class Area:
    """Memory that steps point into; of one name it is the same. `name` begins with what it is: the `value` of a root, a `constant`
    and its recipe, `scratch` of a step, the numbers of so many `calls`, or where a `fault` is told."""

    name: tuple[str | int, ...]
    buffer: Buffer = field(compare=False)

    @property
    def root(self) -> str:
        """The root value that lies here; empty where it is something else."""
        return str(self.name[1]) if self.name[0] == "value" else ""


@record(frozen=True, slots=True)
class Visit:
    """A step that is run, by number: for which sample, and which call of its kernel it is."""

    step: int
    sample: int = 0
    call: int = 0


@record(frozen=True, slots=True)
class Pointer:
    """Where an argument lies: `offset` bytes into an area, with each sample or each call so many further on. `strides` as in
    `lower.program.Place`."""

    area: Area
    offset: int = 0
    per_sample: int = 0
    per_call: int = 0
    strides: tuple[int, ...] | None = None

    def at(self, visit: Visit) -> int:
        """The offset for a sample and a call."""
        return self.offset + visit.sample * self.per_sample + visit.call * self.per_call


@record(frozen=True, slots=True)
class Upcoming:
    """Weights that another step fetches before: which step's, from which byte on."""

    step: int
    offset: int = 0


@record(frozen=True, slots=True)
class SizedCode:
    """The code of a kernel of a task with sizes: its LLVM IR, a function `kernel`, what it depends on, the sizes that it takes as
    numbers, and the conditions where it is right. `hints` are the sizes that it was made at."""

    text: str
    key: str
    sizes: tuple[int, ...]
    conditions: tuple[Condition, ...]
    hints: Mapping[str, int] = field(default_factory=dict)


@record(frozen=True)
class TaskDraft:
    """A task as a native step: by which kernel and schedule (`way`), and its `arguments`. `next` and `later` are what the arguments
    of these names point to, `pointers` where each argument lies; the others as in `lower.program.NativeStep`. Of a task with sizes
    there is the `code`, and other versions, each of the same work, that are tried after it."""

    work: TaskWork
    way: Implementation
    arguments: tuple[Argument, ...]
    next: Upcoming | None = None
    later: Upcoming | None = None
    pointers: tuple[Pointer, ...] = ()
    strips: int = 0
    pieces: int = 1
    extents: tuple[Extent, ...] = ()
    code: SizedCode | None = None
    others: tuple[TaskDraft, ...] = ()

    @property
    def versions(self) -> tuple[TaskDraft, ...]:
        """This and the others, in the order in which they are tried."""
        return (self, *self.others)

    @property
    def weights(self) -> tuple[Argument, ...]:
        """Constants that its kernel wants packed."""
        return tuple(argument for argument in self.arguments if argument.packing is not None)


@record(frozen=True)
class HostDraft:
    """Nodes as a host step: what is read and written, where that is in native memory, and of which type."""

    work: HostWork
    reads: tuple[tuple[str, Pointer | None, ValueType | None], ...] = ()
    writes: tuple[tuple[str, Pointer | None, ValueType | None], ...] = ()

    @property
    def pointers(self) -> tuple[Pointer, ...]:
        return tuple(pointer for _, pointer, _ in (*self.reads, *self.writes) if pointer is not None)


@record(frozen=True)
class PortDraft:
    """An input or output, under which root it is looked for, and its memory, if it has a static type."""

    name: str
    root: str
    area: Area | None


@record(frozen=True)
class SampleRange:
    """The work from number `first` up to `end`, each as for one of `samples`, and the roots that hold one sample at a time."""

    first: int
    end: int
    samples: int
    work: tuple[TaskWork, ...]
    single: frozenset[str]

    def __contains__(self, number: int) -> bool:
        return self.first <= number < self.end


@record(frozen=True)
class ProgramDraft:
    """A program as far as it is known.

    From the beginning: `lowered`, its `work` that does anything, and the ports; `ways` says which of its alternatives a task takes
    by its digest, where that is not the first. Passes fill in the rest: the `steps`, one for each work, what runs sample by sample
    (`stretches`), in which order steps are run (`visits`), from which step to which memory is used (`lifetimes`, in the order in
    which steps name it), and pairs of areas of which the second takes over the first (`overwrites`).
    """

    lowered: Lowered
    inputs: tuple[PortDraft, ...]
    outputs: tuple[PortDraft, ...]
    work: tuple[TaskWork | HostWork, ...]
    ways: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[TaskDraft | HostDraft, ...] = ()
    stretches: tuple[SampleRange, ...] = ()
    visits: tuple[Visit, ...] = ()
    lifetimes: Mapping[Area, Lifetime] = field(default_factory=dict)
    overwrites: tuple[tuple[Area, Area], ...] = ()

    @property
    def graph(self) -> Graph:
        return self.lowered.graph

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The symbols of inputs' sizes, and of elements that are sizes, each once."""
        kinds = (kind for value in self.graph.inputs if isinstance(kind := self.graph.types[value], TensorType))
        rows = (*(kind.shape or () for kind in kinds), *(sizes for _, sizes in self.graph.contents))
        found = (symbol for row in rows for dim in row for symbol in _symbols(dim))
        return tuple(dict.fromkeys(found))

    @cached_property
    def ports(self) -> Mapping[str, Area]:
        """Memory of the caller, by root."""
        return {port.root: port.area for port in (*self.inputs, *self.outputs) if port.area is not None}

    def with_tasks(self, one: Callable[[int, TaskDraft], TaskDraft]) -> ProgramDraft:
        """With what `one(number, step)` makes of every native step."""
        steps = (step if isinstance(step, HostDraft) else one(number, step) for number, step in enumerate(self.steps))
        return replace(self, steps=tuple(steps))

    def stretch_of(self, number: int) -> SampleRange | None:
        """The stretch that a step belongs to."""
        return next((found for found in self.stretches if number in found), None)

    def root_bytes(self, root: str, value: str) -> int:
        """Bytes of the memory of a root, which holds all that is there of `value`, at one time."""
        samples = next((found.samples for found in self.stretches if root in found.single), 1)
        return self.graph.tensor(root if root in self.graph.types else value).nbytes // samples


def _symbols(dim: object) -> list[Symbol]:
    return sorted(symbols_of(dim), key=lambda one: one.name) if isinstance(dim, Size) else []


DraftPass = Callable[[ProgramDraft, Target, Trace], ProgramDraft]
"""Decides something about a program in the making. Decisions that may be refused are asked for in the order of steps."""


def first_draft(lowered: Lowered, ways: Mapping[str, int]) -> ProgramDraft:
    """All work, in order; what has no elements to compute is none."""
    graph = lowered.graph
    produced = {value for node in graph.nodes for value in node.writes}
    work = tuple(
        one for one in lowered.work if isinstance(one, HostWork) or not any(map(known_zero, one.bound.task.extents))
    )
    return ProgramDraft(
        lowered,
        tuple(_port(graph, "input", value, value) for value in graph.inputs),
        tuple(
            _port(graph, "output", v, v if v in produced else f"output:{v}")
            for v in graph.outputs
            if v not in graph.grown
        ),
        work,
        ways,
        visits=tuple(Visit(number) for number in range(len(work))),
    )


def in_memory(kind: ValueType | None) -> TensorType | None:
    """A type whose values may lie in native memory, or None."""
    if not isinstance(kind, TensorType) or not kind.is_static or kind.dtype.kind in ("string", "complex"):
        return None
    return kind


def _port(graph: Graph, kind: str, value: str, root: str) -> PortDraft:
    described = in_memory(graph.types[value])
    if described is None:
        return PortDraft(value, root, None)
    return PortDraft(value, root, Area(("value", root), Buffer(kind, described.nbytes, value=value)))
