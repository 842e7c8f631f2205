"""Scatters: one store at every place of the updates, in their order where two of them may meet.

Takes a task as `lower.scatter` makes it. The loops run over the updates in ONNX's order; workers share out

- the axes before the first ordered one, where there are enough: then no two workers write to one element;
- else an axis behind the last ordered one, a slice of which every worker writes, where slices are long, or every element of them
  has a position of its own;
- else, where slices are not of a few elements, the positions that are written to: every worker looks at all updates, and carries
  out those whose place is its own.

Positions that are known before the innermost loop are found, and compared with their bounds, once for all of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from fusewise.codegen.families.generic.any_nest import is_below, run_of, supported
from fusewise.codegen.kernel import Kernel
from fusewise.codegen.llvm.elements import Elements, unwritten
from fusewise.codegen.llvm.entry import OpenFunction, operands_alone, written
from fusewise.codegen.llvm.loops import free_axes
from fusewise.codegen.llvm.memory import access_of
from fusewise.codegen.llvm.reduction import lanes_for
from fusewise.codegen.llvm.share import SERIAL_WORK
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.target import InstructionSet, Target
from fusewise.ir.deciding import hint, known_below
from fusewise.lower.task import Task
from fusewise.ops.expr import Expr, walk
from fusewise.records import record

__all__ = ["SCATTER"]

LONG_SLICE = 128
"""Elements of a slice from which on it is shared out among workers, where one position is that of all of them."""

SHORT_SLICE = 16
"""Elements of a slice up to which one worker does all: to write it takes no longer than to see whose it is."""


@record(frozen=True)
class ScatterSchedule:
    """`by_units`: workers share out what lies before the axes that updates are in order along."""

    by_units: bool


def _schedules(_: Task, task: Task, target: Target) -> Iterable[ScatterSchedule]:
    ordered = task.anchored.attribute("ordered")
    count = math.prod(task.extents[: _first(task)])
    yield ScatterSchedule(count >= 4 * target.workers or not ordered)


def _first(task: Task) -> int:
    """The first axis that updates are in order along."""
    return min(task.anchored.attribute("ordered"), default=max(0, len(task.extents) - 1))


@record(frozen=True)
class _Plan:
    """Loops over the axes `units`, flattened, and over `others` inside them; in the first `known` of these a position is known.
    Vectors of `lanes` elements run along `lane`, the innermost axis, or -1. Workers share out the units, or the axis `cut`, or else
    the positions (`by_position`); one does all that is `serial`, or little."""

    units: tuple[int, ...]
    others: tuple[int, ...]
    known: int
    cut: int
    by_position: bool
    lane: int
    lanes: int
    serial: bool


def _plan(task: Task, instructions: InstructionSet, schedule: ScatterSchedule) -> _Plan:
    rank, ordered = len(task.extents), task.anchored.attribute("ordered")
    first, by_units = _first(task), schedule.by_units
    behind = range(max(ordered, default=first - 1) + 1, rank)
    cut = max(behind, key=lambda d: hint(task.extents[d]), default=-1)
    (store,), (owner,) = task.stores, task.anchored.prologue
    needs = frozenset[str]() if owner is None else free_axes(owner)
    slice_, varies = hint(math.prod(task.extents[d] for d in behind)), any(f"i{d}" in needs for d in behind)
    is_cut = not by_units and slice_ >= (SHORT_SLICE if varies else LONG_SLICE)
    by_position = not (by_units or is_cut or varies) and slice_ >= SHORT_SLICE
    lane, lanes = -1, 1
    if behind and not known_below(task.extents[rank - 1], 2):
        operand, last = task.operand(store.operand), hint(task.extents[rank - 1])
        found = lanes_for(instructions, [e.dtype for e in _data(store.value)] + [operand.dtype], last)
        point = unwritten(task, instructions).at({f"i{d}": 0 for d in range(rank)}, f"i{rank - 1}", max(2, found))
        if found > 1 and access_of(point, operand, store.index).pace == 1:
            lane, lanes = rank - 1, found
    return _Plan(
        tuple(range(first)),
        tuple(range(first, rank)),
        max((d - first + 1 for d in range(first, rank) if f"i{d}" in needs), default=0),
        cut if is_cut else -1,
        by_position,
        lane,
        lanes,
        not (by_units or is_cut or by_position),
    )


def _data(value: Expr) -> list[Expr]:
    """What an update is made of, positions left out."""
    found = [value]
    for node in found:
        if node.op != "load":
            found.extend(node.args)
    return found


@record
class _Emitter:
    elements: Elements
    plan: _Plan
    early: tuple[Expr, ...] = field(default_factory=tuple)

    @property
    def function(self) -> Function:
        return self.elements.function

    @property
    def task(self) -> Task:
        return self.elements.task

    def __post_init__(self) -> None:
        (store,) = self.task.stores
        self.early = tuple(e for i in store.index for e in walk(i) if e.op == "bounded")

    def run(self, low: Int, high: Int) -> None:
        """All updates of the part `low` up to `high` of what is shared out."""
        f, plan, extents = self.function, self.plan, self.task.extents
        units = (0, math.prod(extents[d] for d in plan.units)) if plan.cut >= 0 or plan.by_position else (low, high)

        def unit(number: Int, _: Sequence[Value]) -> None:
            indices: dict[str, Int] = {}
            for k, axis in reversed(list(enumerate(plan.units))):
                indices[f"i{axis}"] = f.urem(number, extents[axis]) if k else number
                number = f.udiv(number, extents[axis]) if k else number
            self._level(0, indices, {}, (low, high))

        f.loop(*units, 1, unit, rolled=True)

    def _level(self, depth: int, indices: dict[str, Int], leaves: dict[Expr, Value], part: tuple[Int, Int]) -> None:
        """What is inside the first `depth` of the other loops, if its place is this worker's."""
        f, plan, leaves = self.function, self.plan, self._known(indices, leaves)
        if not plan.by_position or depth != plan.known:
            self._inside(depth, indices, leaves, part)
            return
        at = self.elements.at(indices, leaves=leaves).integer(self.task.anchored.element(0))
        own = f.compare("icmp ult", f.sub(at, part[0]), f.sub(part[1], part[0]))
        f.when(own, lambda: self._inside(depth, indices, leaves, part))

    def _known(self, indices: Mapping[str, Int], leaves: dict[Expr, Value]) -> dict[Expr, Value]:
        """`leaves` and all positions that can be found with the loop variables known by now."""
        ready = [e for e in self.early if e not in leaves and free_axes(e) <= set(indices)]
        point = self.elements.at(indices, leaves=leaves)
        return {**leaves, **{e: point.minimal(e) for e in ready}}

    def _inside(self, depth: int, indices: dict[str, Int], leaves: dict[Expr, Value], part: tuple[Int, Int]) -> None:
        f, plan = self.function, self.plan
        if depth == len(plan.others):
            self._store(indices, leaves, 1)
            return
        axis = plan.others[depth]
        low, high = part if axis == plan.cut else (0, self.task.extents[axis])

        def one(i: Int, _: Sequence[Value]) -> None:
            self._level(depth + 1, {**indices, f"i{axis}": i}, leaves, part)

        def many(i: Int, _: Sequence[Value]) -> None:
            self._store({**indices, f"i{axis}": i}, leaves, plan.lanes)

        whole = f.add(low, f.mul(f.udiv(f.sub(high, low), plan.lanes), plan.lanes)) if axis == plan.lane else low
        if axis == plan.lane:
            f.loop(low, whole, plan.lanes, many, rolled=True)
        f.loop(whole, high, 1, one, rolled=True)

    def _store(self, indices: Mapping[str, Int], leaves: dict[Expr, Value], lanes: int) -> None:
        lane = f"i{self.plan.lane}" if lanes > 1 else None
        self.elements.at(indices, lane, lanes, leaves=leaves).store(self.task.stores[0])


def _write(o: OpenFunction, task: Task, schedule: ScatterSchedule) -> None:
    plan = _plan(task, o.instructions, schedule)
    count = math.prod(task.extents[d] for d in plan.units)
    if plan.by_position or plan.cut >= 0:
        count = task.anchored.attribute("positions") if plan.by_position else task.extents[plan.cut]
    serial = plan.serial or is_below(o.f, 4 * math.prod(task.extents), SERIAL_WORK + 1)
    if isinstance(serial, Value):
        part = run_of(o.f, count, o.share, serial)
    else:
        part = o.share.alone(o.f, count) if serial else o.share.run(o.f, count)
    _Emitter(o.elements, plan).run(*part)


SCATTER = Kernel("scatter", supported, _schedules, operands_alone, written(operands_alone, _write))
