"""Lowered work to a program: a kernel for every task, a place for every argument, a plan for the arena."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import islice, pairwise, zip_longest
from types import MappingProxyType
from typing import Any

import numpy as np

from fusewise.codegen.candidates import candidates
from fusewise.codegen.families.boxes import routine_for
from fusewise.codegen.kernel import Argument, Implementation, Kernel, Prefetch
from fusewise.codegen.llvm.checked import checked
from fusewise.codegen.steps.calls import call_numbers, called
from fusewise.codegen.steps.depth_first import joins, strips_of
from fusewise.codegen.steps.extents import extents_of
from fusewise.codegen.steps.overwrite import overwritable
from fusewise.codegen.steps.prefetch import Fetch, Load, fetches, followers, next_bytes
from fusewise.codegen.steps.samples import SampleRange, stretches
from fusewise.codegen.target import Target
from fusewise.errors import UnsupportedModel
from fusewise.ir.graph import Constant, Graph
from fusewise.ir.partition import Partition
from fusewise.ir.types import TensorType, ValueType
from fusewise.lower.account import accounts
from fusewise.lower.memory import Lifetime, plan_arena
from fusewise.lower.program import Buffer, HostStep, KernelCode, NativeStep, Packing, Place, Port, Program
from fusewise.lower.task import Operand, RefusalReason, Task
from fusewise.lower.work import HostWork, Lowered, TaskWork, lower_partition
from fusewise.records import record
from fusewise.trace import Trace

__all__ = ["alternatives", "generate", "task_digest"]

_FIRST: Mapping[str, int] = MappingProxyType({})


def generate(
    partition: Partition,
    target: Target,
    trace: Trace,
    *,
    workers: int = 1,
    exact: bool = False,
    strict: bool = False,
    ways: Mapping[str, int] = _FIRST,
) -> Program:
    """The program that runs every group of `partition` on `target`.

    `workers` sizes per-worker scratch memory, and kernels are chosen for so many. With `strict`, a node that would run on the host
    is an error that lists all such nodes. `ways` may name, by a task's digest (`KernelCode.task`), another of its `alternatives`
    than the first.
    """
    lowered = lower_partition(partition, trace, exact=exact)
    on_host = [work for work in lowered.work if isinstance(work, HostWork)]
    if strict and on_host:
        nodes = [pair for work in on_host for pair in zip(work.nodes, work.reasons, strict=True)]
        listed = "; ".join(f"{node.label} ({node.op}: {reason})" for node, reason in nodes)
        raise UnsupportedModel(f"{len(nodes)} nodes have no native kernel: {listed}; compile without --strict")
    made = _Assembler(lowered, replace(target, workers=workers), trace, workers, ways).run(len(partition.groups))
    return replace(made, exact=exact, disabled=tuple(sorted(trace.disabled)))


def alternatives(task: Task, target: Target) -> Iterator[Implementation]:
    """Every way to run a task, the analytic favourite first: of each kernel that accepts it the first schedule, then of each the
    second."""
    found = (kernel.implementations(task, target) for kernel in candidates(task))
    for row in zip_longest(*(ways for ways in found if not isinstance(ways, RefusalReason))):
        yield from (way for way in row if way is not None)


@record
class _Pending:
    """A buffer while steps are still being added."""

    kind: str
    nbytes: int
    value: str = ""
    data: Constant | None = None
    packing: Packing | None = None
    first: int = -1
    last: int = -1


@record(frozen=True)
class _Chosen:
    """How a task is run."""

    way: Implementation
    work: TaskWork


@record
class _Assembler:
    lowered: Lowered
    target: Target
    trace: Trace
    workers: int
    ways: Mapping[str, int]
    pending: list[_Pending] = field(default_factory=list)
    by_root: dict[str, int] = field(default_factory=dict)
    kernels: dict[str, KernelCode] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    steps: list[NativeStep | HostStep] = field(default_factory=list)
    objects: dict[str, np.ndarray] = field(default_factory=dict)
    judged: dict[tuple[str, str], Implementation | RefusalReason] = field(default_factory=dict)
    stretches: list[SampleRange] = field(default_factory=list)
    apart: dict[int, tuple[int, ...]] = field(default_factory=dict)
    overwrites: list[tuple[int, int, str]] = field(default_factory=list)
    calls: dict[int, int] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        return self.lowered.graph

    def run(self, groups: int) -> Program:
        inputs = tuple(Port(v, self.graph.types[v], self._port("input", v)) for v in self.graph.inputs)
        produced = {v for node in self.graph.nodes for v in node.writes}
        outputs = tuple(self._output(v, v in produced) for v in self.graph.outputs)
        steps = [work if isinstance(work, HostWork) else self._chosen(work) for work in self._work()]
        loads = [self._load(found) for found in steps]
        ahead, following = fetches(loads, self.target.l3_bytes // 4), followers(loads, next_bytes(self.target))
        for number, found in enumerate(steps):
            if isinstance(found, HostWork):
                self._host(found)
            else:
                fetch = ahead.get(number)
                self._native(found, None if fetch is None else (fetch, steps[fetch.step]), steps[following[number]])
        self._join(steps)
        self._keep()
        buffers, arena_bytes = self._plan()
        return Program(
            inputs,
            outputs,
            buffers,
            tuple(self.kernels.values()),
            tuple(called(self._repeated(), self.calls)),
            arena_bytes,
            groups,
            (("", self.graph.opset), *self.graph.opsets),
            tuple(self.objects.items()),
            self.workers,
            accounts(self.graph, self.lowered.groups),
            self.target.sanitize,
        )

    # --- buffers --------------------------------------------------------------------------------------------------

    def _port(self, kind: str, value: str, root: str = "") -> int:
        described = self.graph.types[value]
        if not isinstance(described, TensorType) or not described.is_static:
            return -1
        if described.dtype.kind in ("string", "complex"):
            return -1
        self.pending.append(_Pending(kind, described.nbytes, value))
        self.by_root[root or value] = len(self.pending) - 1
        return len(self.pending) - 1

    def _output(self, value: str, produced: bool) -> Port:
        root = value if produced else f"output:{value}"
        number = self.by_root.get(root)
        if number is None:
            number = self._port("output", value, root)
        if number < 0 and value in self.graph.constants:
            self.objects[value] = self.graph.constants[value].array
        return Port(value, self.graph.types[value], number)

    def _buffer(self, root: str, nbytes: int) -> int:
        """The buffer a root value owns, made on first use, at least `nbytes` large."""
        number = self.by_root.get(root)
        if number is None:
            constant = self.graph.constants.get(root)
            if constant is not None:
                return self._constant(root, None)
            number = self._arena(nbytes)
            self.by_root[root] = number
        return number

    def _arena(self, nbytes: int) -> int:
        self.pending.append(_Pending("arena", nbytes))
        return len(self.pending) - 1

    def _constant(self, value: str, packing: Packing | None) -> int:
        name = f"constant:{value}:{packing.recipe if packing is not None else ''}"
        number = self.by_root.get(name)
        if number is None:
            constant = self.graph.constants[value]
            self.pending.append(_Pending("constant", constant.type.nbytes, value, constant, packing))
            number = self.by_root[name] = len(self.pending) - 1
        return number

    def _calls(self, nbytes: int) -> int:
        """A buffer of the numbers of calls; one for all kernels that are called as often."""
        number = next((k for k, known in self.calls.items() if known == nbytes), len(self.pending))
        if number == len(self.pending):
            self.pending.append(_Pending("constant", nbytes, data=Constant(call_numbers(nbytes))))
            self.calls[number] = nbytes
        return number

    def _touch(self, number: int) -> None:
        buffer = self.pending[number]
        if buffer.first < 0:
            buffer.first = len(self.steps)
        buffer.last = len(self.steps)

    def _plan(self) -> tuple[tuple[Buffer, ...], int]:
        arena = [k for k, buffer in enumerate(self.pending) if buffer.kind == "arena"]
        number = {k: at for at, k in enumerate(arena)}
        offsets, total = plan_arena(
            [Lifetime(self.pending[k].nbytes, self.pending[k].first, self.pending[k].last) for k in arena],
            [(number[old], number[new]) for old, new in self._overwritten()],
        )
        where = dict(zip(arena, offsets, strict=True))
        return (
            tuple(
                Buffer(b.kind, b.nbytes, where.get(k, 0), b.value, b.data, b.packing)
                for k, b in enumerate(self.pending)
            ),
            total,
        )

    # --- samples one after another --------------------------------------------------------------------------------

    def _work(self) -> list[TaskWork | HostWork]:
        """All that there is to do, sample by sample where that pays."""
        work = [one for one in self.lowered.work if isinstance(one, HostWork) or 0 not in one.bound.task.extents]

        def nbytes(one: TaskWork, name: str) -> int:
            return self._root_bytes(one.places[name][0], one.bound.values[name])

        for found in stretches(work, nbytes, frozenset(self.by_root), self.target):
            labels = tuple(one.label for one in found.work)
            if self.trace.allows("kernel", "samples", labels, f"{found.samples} one after another"):
                work[found.first : found.end] = found.work
                self.stretches.append(found)
        return work

    def _stretch_of(self, number: int) -> SampleRange | None:
        """The stretch that a step belongs to."""
        return next((found for found in self.stretches if found.first <= number < found.end), None)

    def _between(self, work: TaskWork, name: str) -> int:
        """Bytes from one sample of an argument to the next; 0 where it is the same or in the same place for all."""
        apart = work.between.get(name, 0)
        if not apart or any(work.places[name][0] in found.single for found in self.stretches):
            return 0
        return apart * work.bound.task.operand(name).dtype.itemsize

    def _keep(self) -> None:
        """What holds all samples is alive during the whole stretch."""
        for found in self.stretches:
            roots = {one.places[o.name][0] for one in found.work for o in one.bound.task.operands if not o.constant}
            for number in {self.by_root[root] for root in roots - found.single if root in self.by_root}:
                buffer = self.pending[number]
                buffer.first, buffer.last = min(buffer.first, found.first), max(buffer.last, found.end - 1)

    def _repeated(self) -> Iterator[NativeStep | HostStep]:
        """The steps in order, those of a stretch once for each sample."""
        at = 0
        for found in self.stretches:
            yield from self.steps[at : found.first]
            for sample in range(found.samples):
                for number in range(found.first, found.end):
                    step = self.steps[number]
                    assert isinstance(step, NativeStep)
                    moved = zip(step.arguments, self.apart[number], strict=True)
                    yield replace(step, arguments=tuple(replace(p, offset=p.offset + sample * by) for p, by in moved))
            at = found.end
        yield from self.steps[at:]

    # --- steps ----------------------------------------------------------------------------------------------------

    def _chosen(self, work: TaskWork) -> _Chosen:
        """Kernel and parameters."""
        return _Chosen(*(self._measured(work) or self._choose(work)))

    def _load(self, step: _Chosen | HostWork) -> Load:
        """What a step computes and reads."""
        if isinstance(step, HostWork) or step.work.between:
            return Load(0, 0)
        cycles = step.way.cycles(self.target)
        values = [step.work.bound.values[packed.name] for packed in self._packed(step)] if cycles else []
        return Load(cycles, sum(self.graph.constants[value].type.nbytes for value in values))

    def _native(
        self, step: _Chosen, ahead: tuple[Fetch, _Chosen | HostWork] | None, following: _Chosen | HostWork
    ) -> None:
        way, work = step.way, step.work
        if ahead is not None:
            way = way.fetching(Prefetch(ahead[0].nbytes, ahead[0].of))
        arguments = way.arguments

        def place_of(argument: Argument) -> Place:
            if argument.name == "next":
                return self._weights(following, 0)
            if argument.name == "later" and ahead is not None:
                return self._weights(ahead[1], ahead[0].offset // self.workers)
            return self._argument(work, argument)

        places = [place_of(argument) for argument in arguments]
        for place in places:
            self._touch(place.buffer)
        if work.between:
            self.apart[len(self.steps)] = tuple(self._between(work, argument.name) for argument in arguments)
        if way.writes_once:
            self._overwrite(work, dict(zip((argument.name for argument in arguments), places, strict=True)))
        number, bound, pieces = self._kernel(way), work.bound, way.pieces(self.target)
        checks = extents_of(bound.task, bound.values, arguments, self.workers) if self.target.sanitize else ()
        done = NativeStep(number, tuple(places), work.label, work.group, way=way.told, pieces=pieces, sites=bound.sites)
        self.steps.append(replace(done, extents=checks) if checks else done)

    def _overwrite(self, work: TaskWork, places: Mapping[str, Place]) -> None:
        """Let the result of a step have the memory of something that it reads, if that is read no more later."""
        task = work.bound.task
        for name in overwritable(task):
            old, new = (self._whole(places[each], task.operand(each)) for each in (name, task.stores[0].operand))
            if old >= 0 and new >= 0 and sum(place.buffer == old for place in places.values()) == 1:
                self.overwrites.append((old, new, work.label))

    def _overwritten(self) -> Iterator[tuple[int, int]]:
        """Buffers whose memory others take over, and those, in the order of steps."""
        taken: set[int] = set()
        for old, new, label in self.overwrites:
            nbytes, is_last = self.pending[old].nbytes, self.pending[old].last == self.pending[new].first
            reason = f"{nbytes:,} bytes that nobody reads later"
            if is_last and new not in taken and self.trace.allows("kernel", "overwrite", (label,), reason):
                taken.add(new)
                yield old, new

    def _whole(self, place: Place, operand: Operand) -> int:
        """The buffer in the arena that an operand fills, or -1."""
        buffer = self.pending[place.buffer]
        fills = buffer.kind == "arena" and place.offset == operand.offset == 0 and buffer.nbytes == operand.nbytes
        return place.buffer if fills else -1

    def _weights(self, step: _Chosen | HostWork, offset: int) -> Place:
        """A place in the weights of a step."""
        assert isinstance(step, _Chosen)
        packed = self._packed(step)[0]
        return Place(self._argument(step.work, packed).buffer, offset)

    def _packed(self, step: _Chosen) -> list[Argument]:
        """The weights of a step."""
        return [argument for argument in step.way.arguments if argument.packing is not None]

    def _join(self, steps: Sequence[_Chosen | HostWork]) -> None:
        """Say which steps run strip by strip with the next. What either touches is then alive during both."""
        for number, (first, second) in enumerate(pairwise(steps)):
            above, below = self.steps[number : number + 2]
            if not (isinstance(first, _Chosen) and isinstance(second, _Chosen) and joins(first.work, second.work)):
                continue
            assert isinstance(above, NativeStep) and isinstance(below, NativeStep)
            if self._stretch_of(number) is not self._stretch_of(number + 1):
                continue
            sharing = first.way.sharing, second.way.sharing
            if sharing[0] is None or sharing[1] is None or (number and getattr(self.steps[number - 1], "strips", 0)):
                continue
            strips = strips_of(sharing[0], sharing[1], self.workers, self.target)
            if not strips or not self.trace.allows(
                "kernel", "strips", (above.label, below.label), f"{strips} to a worker"
            ):
                continue
            self.steps[number : number + 2] = replace(above, strips=strips, pieces=1), replace(below, pieces=1)
            for place in above.arguments:
                self.pending[place.buffer].last = max(self.pending[place.buffer].last, number + 1)
            for place in below.arguments:
                self.pending[place.buffer].first = min(self.pending[place.buffer].first, number)

    def _measured(self, work: TaskWork) -> tuple[Implementation, TaskWork] | None:
        """The way that is asked for instead of the first, if there is such a one."""
        task = work.bound.task
        number = self.ways.get(task_digest(task), 0) if self.ways else 0
        found = next(islice(alternatives(task, self.target), number, None), None) if number else None
        if found is None or not self.trace.allows("kernel", found.kernel.name, (work.label,), "measured"):
            return None
        return found, work

    def _choose(self, work: TaskWork) -> tuple[Implementation, TaskWork]:
        """The first candidate that accepts; without an anchored one, the same outputs from their definitions."""
        refused: list[str] = []
        task = work.bound.task
        for kernel in candidates(task):
            found = self._judged(kernel, task)
            note = f"after {'; '.join(refused)}" if refused else "first candidate"
            last = work.plain is None and kernel is candidates(task)[-1]
            if not isinstance(found, RefusalReason):
                if self.trace.allows("kernel", kernel.name, (work.label,), note) or last:
                    return found, work
                found = RefusalReason("refused")
            refused.append(f"{kernel.name}: {found}")
        if work.plain is None:
            raise UnsupportedModel(f"group {work.label}: no kernel accepts it ({'; '.join(refused)})")
        return self._choose(work.plain())

    def _judged(self, kernel: Kernel[Any, Any], task: Task) -> Implementation | RefusalReason:
        """By its first schedule, or why it does not accept; found out once for all tasks alike."""
        known = self.judged.get((kernel.name, task.key))
        if known is None:
            ways = kernel.implementations(task, self.target)
            known = ways if isinstance(ways, RefusalReason) else next(iter(ways))
            self.judged[kernel.name, task.key] = known
        return known

    def _kernel(self, way: Implementation) -> int:
        key = f"{way.key}|{self.target.key}"
        symbol = "k" + hashlib.blake2b(key.encode(), digest_size=10).hexdigest()
        if symbol not in self.kernels:
            self.numbers[symbol] = len(self.kernels)
            build = _builder(way, self.target, symbol)
            self.kernels[symbol] = KernelCode(symbol, key, build, task_digest(way.task), way.kernel.effort, way.level)
        return self.numbers[symbol]

    def _argument(self, work: TaskWork, argument: Argument) -> Place:
        if argument.name == "fault":
            return self._faults(len(work.bound.sites))
        if argument.name == "call":
            return Place(self._calls(argument.nbytes))
        if argument.name == "scratch":
            return Place(self._arena(argument.nbytes * (self.workers if argument.per_worker else 1)))
        operand = work.bound.task.operand(argument.name)
        value = work.bound.values[argument.name]
        if operand.constant:
            return Place(self._constant(value, argument.packing))
        root, offset = work.places[argument.name]
        nbytes = self._root_bytes(root, value)
        return Place(self._buffer(root, nbytes), offset * operand.dtype.itemsize)

    def _faults(self, sites: int) -> Place:
        """Words for so many sites, behind those of the other steps."""
        number = self.by_root.get("fault:")
        if number is None:
            self.pending.append(_Pending("fault", 0))
            number = self.by_root["fault:"] = len(self.pending) - 1
        buffer = self.pending[number]
        buffer.nbytes += 16 * sites
        return Place(number, buffer.nbytes - 16 * sites)

    def _root_bytes(self, root: str, value: str) -> int:
        samples = next((found.samples for found in self.stretches if root in found.single), 1)
        return self.graph.tensor(root if root in self.graph.types else value).nbytes // samples

    def _host(self, work: HostWork) -> None:
        reads = tuple(self._host_read(work, value) for value in work.reads)
        writes = tuple(self._host_write(value) for value in work.writes)
        for _, place, _ in (*reads, *writes):
            if place is not None:
                self._touch(place.buffer)
        for routine in filter(None, (routine_for(node, self.target) for node in work.nodes)):
            self.kernels.setdefault(routine.symbol, routine)
        self.steps.append(HostStep(work.nodes, self.graph.opset, reads, writes, work.reasons, work.group))

    def _host_read(self, work: HostWork, value: str) -> tuple[str, Place | None, ValueType | None]:
        found = work.reads[value]
        if found is None:
            constant = self.graph.constants.get(value)
            if constant is not None:
                self.objects[value] = constant.array
            return value, None, None
        kind = self.graph.tensor(value)
        root, offset, strides = found
        number = self._buffer(root, self._root_bytes(root, value))
        return value, Place(number, offset * kind.dtype.itemsize, strides), kind

    def _host_write(self, value: str) -> tuple[str, Place | None, ValueType | None]:
        kind = self.graph.types.get(value)
        static = isinstance(kind, TensorType) and kind.is_static and kind.dtype.kind not in ("string", "complex")
        if not static or value not in self.lowered.layout.storage:
            return value, None, None
        storage = self.lowered.layout.storage[value]
        assert isinstance(kind, TensorType)
        return value, Place(self._buffer(storage.root, kind.nbytes), storage.offset * kind.dtype.itemsize), kind


def task_digest(task: Task) -> str:
    """A short name of a task: equal for equal tasks."""
    return hashlib.blake2b(task.key.encode(), digest_size=10).hexdigest()


def _builder(way: Implementation, target: Target, symbol: str) -> Callable[[], str]:
    instructions = target.instructions
    if target.sanitize:
        return lambda: checked(way.build(instructions, symbol), symbol)
    return lambda: way.build(instructions, symbol)
