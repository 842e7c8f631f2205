"""The kernel that runs anything: a loop nest over the task's index space, straight from the element expressions.

The loops are made few (`loops`), one axis becomes the lane axis, and the others are split among workers. Reductions inside the
expressions are computed at the outermost loop that has all they depend on, so a row's sum is found once per row. A lane loop
whose extent is not a multiple of the vector ends in one vector that overlaps the one before: the same values are written twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace

from fusewise.codegen.families.generic.pieces import straight_pieces
from fusewise.codegen.families.product.places import unravel
from fusewise.codegen.kernel import Kernel
from fusewise.codegen.llvm.elements import Elements, unwritten
from fusewise.codegen.llvm.entry import OpenFunction, operands_alone, written
from fusewise.codegen.llvm.loops import free_axes, simplified
from fusewise.codegen.llvm.memory import access_of, is_combed
from fusewise.codegen.llvm.plain import plain_task
from fusewise.codegen.llvm.point import Point
from fusewise.codegen.llvm.reduction import lanes_for
from fusewise.codegen.llvm.share import SERIAL_WORK, Share
from fusewise.codegen.llvm.tables import tabulated
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tails import fitted
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.nest.types import is_representable
from fusewise.codegen.target import InstructionSet, Target
from fusewise.ir.deciding import hint, known_below, known_equal, known_zero
from fusewise.ir.size import Size, least
from fusewise.lower.task import ACC, RefusalReason, Store, Task
from fusewise.ops.expr import Expr, walk
from fusewise.records import record

__all__ = [
    "ANY_NEST",
    "NestSchedule",
    "by_definition",
    "defined_in",
    "emit_nest",
    "is_below",
    "nest_schedules",
    "run_of",
    "supported",
    "unsupported",
]

_LONG = ("exp", "expm1", "log", "log1p", "pow", "erf", "tanh", "sigmoid")
"""Functions that take tens of instructions, which LLVM leaves where they stand."""

_LINE = 64
"""Bytes of a cache line."""
_WAYS = 16
"""Lines of the second-level cache that share a set, at most, on the machines we know."""
_EVICTION = 16.0
"""Instructions in whose time a line comes back from the next level."""


@record(frozen=True)
class NestSchedule:
    """`same_set_bytes`: memory that lies a multiple of it apart shares a set of the second-level cache; by default in one of
    1 MiB. `by_elements`: one after the other, however few there are."""

    same_set_bytes: int = (1 << 20) // _WAYS
    by_elements: bool = False


def by_definition(task: Task) -> Task | RefusalReason:
    """A task with an anchor as one without, by the operator's definition, or why it is none that code can be made of."""
    plain = plain_task(task)
    if plain is None:
        return RefusalReason("the operator's definition does not cover the case", task.anchored.op)
    return unsupported(task) or plain


def defined_in(families: Collection[str], otherwise: str) -> Callable[[Task, InstructionSet], Task | RefusalReason]:
    """What understands tasks with an anchor of some families by its definition (`Kernel.understand`), others not, as is said."""

    def understand(task: Task, instructions: InstructionSet) -> Task | RefusalReason:
        if task.anchor is None or task.anchor.family not in families:
            return RefusalReason(otherwise, "" if task.anchor is None else task.anchor.op)
        return by_definition(task)

    return understand


def nest_schedules(understood: object, task: Task, target: Target) -> tuple[NestSchedule]:
    """The schedule of what is one nest, or some."""
    return (NestSchedule(target.l2_bytes // _WAYS),)


def _every(understood: object, task: Task, target: Target) -> tuple[NestSchedule, ...]:
    """Also one that is right for any number of elements."""
    (usual,) = nest_schedules(understood, task, target)
    return usual, replace(usual, by_elements=True)


def _understand(task: Task, instructions: InstructionSet) -> Task | RefusalReason:
    if task.anchor is not None:
        return RefusalReason("the anchor needs a kernel of its own", task.anchor.op)
    return supported(task, instructions)


def supported(task: Task, instructions: InstructionSet) -> Task | RefusalReason:
    """The task as it is, if generated code can compute on its dtypes."""
    return unsupported(task) or task


def unsupported(task: Task) -> RefusalReason | None:
    """A dtype generated code cannot compute on, if there is one."""
    for operand in task.operands:
        if not is_representable(operand.dtype):
            return RefusalReason("dtype is not supported by generated code", f"{operand.name}: {operand.dtype}")
    return None


def emit_nest(o: OpenFunction, task: Task, schedule: NestSchedule, given: Mapping[str, Int] | None = None) -> None:
    """Write the loops of a task without an anchor into a kernel's body, a share of them.

    `given` has the loop variables that are known where the loops stand; they are not named `i0`, `i1`, ...
    """
    if any(map(known_zero, task.extents)):
        return
    for piece in straight_pieces(simplified(task)):
        nest, tables = _plan(piece, o.instructions, schedule), tabulated(piece)
        known = {**o.pointers, **tables.pointers(o.f.module)}
        elements = Elements(o.f, tables.task, o.instructions, known)
        _Emitter(o.f, replace(nest, task=tables.task), elements, given or {}).run(o.share)


ANY_NEST = Kernel(
    "any-nest", _understand, nest_schedules, operands_alone, written(operands_alone, emit_nest), every=_every
)


# --- the plan -----------------------------------------------------------------------------------------------------------


@record(frozen=True)
class _Nest:
    """Loops from the outside in.

    The first `split` of `outer` are run as one, shared among workers, together with the lane axis in pieces of `piece`. Inside
    the lane loop run the loops `inner`, on which reductions that vary along the lane axis do not depend. `work`: operations on
    elements.
    """

    task: Task
    outer: tuple[tuple[str, int], ...]
    lane: tuple[str, int] | None
    inner: tuple[tuple[str, int], ...]
    split: int
    lanes: int
    unroll: int
    piece: int
    work: int


def _certain(task: Task, *words: str) -> list[Expr]:
    """Values of these words that are certain to be computed, inner ones first; those a condition may skip are left out."""
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()

    def visit(node: Expr) -> None:
        if node in seen:
            return
        seen.add(node)
        for child in node.args[:1] if node.op == "select" else node.args:
            visit(child)
        if node.op in words:
            found[node] = None

    for store in task.stores:
        visit(store.value)
    return list(found)


def _early(nest: _Nest) -> list[Expr]:
    """What is computed as soon as all that it depends on is known: reductions, positions from data, and functions of reductions
    that take long and are the same all along the lane axis."""
    lane = None if nest.lane is None else nest.lane[0]

    def is_early(value: Expr) -> bool:
        if value.op in ("reduce", "bounded"):
            return True
        return lane not in free_axes(value) and any(node.op == "reduce" for node in walk(value))

    return [value for value in _certain(nest.task, "reduce", "bounded", *_LONG) if is_early(value)]


def data_types(roots: Iterable[Expr]) -> list[Expr]:
    """The nodes that carry data: loads, casts and results, but no index arithmetic."""
    found: dict[Expr, None] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in found:
            continue
        found[node] = None
        if node.op != "load":
            stack.extend(node.args)
    data = (n for n in found if n.op not in ("const", "index"))
    return [n for n in data if n.dtype.name != "int64" or any(e.op == "load" for e in walk(n))]


def _plan(task: Task, instructions: InstructionSet, schedule: NestSchedule) -> _Nest:
    axes = list(task.ranges.items())
    dtypes = [n.dtype for n in data_types(s.value for s in task.stores)]
    dtypes += [task.operand(s.operand).dtype for s in task.stores]
    lane = _lane_axis(task, instructions, schedule, axes)
    lanes = 1 if lane is None or schedule.by_elements else lanes_for(instructions, dtypes, hint(lane[1]))
    if lane is not None and lanes > 1 and lane[1] < lanes:  # the last vector is moved back
        lanes = 1
    reductions = _certain(task, "reduce")
    needs = [free_axes(r) for r in reductions]
    inner: tuple[tuple[str, int], ...] = ()
    if lane is not None:
        varying = [n for n in needs if lane[0] in n]
        inner = tuple(a for a in axes if a is not lane and any(a[0] not in n for n in varying))
        if varying and not inner and not schedule.by_elements:
            wider = _wider(lanes, hint(lane[1]), reductions, lane[0])
            lanes *= wider if lane[1] >= wider * lanes else 1
    # what reductions depend on goes outside, so that they are not repeated
    outer = tuple(a for a in axes if a is not lane and a not in inner)
    outer = tuple(sorted(outer, key=lambda a: -sum(a[0] in n for n in needs)))
    nodes = sum(len(walk(s.value)) for s in task.stores)
    longest = max((_steps(r) for r in reductions), key=hint, default=1)
    unroll = 1 if inner or reductions else 4 if nodes <= 24 else 2 if nodes <= 80 else 1
    split = _split(outer, needs)
    units = hint(math.prod(e for _, e in outer[:split]))
    piece = lane[1] if lane is not None else 1
    if lane is not None and units < 64 and split == len(outer):
        # a reduction of the row that the axis lies in is repeated for each piece: that is worth as many elements at least
        sums = zip(reductions, needs, strict=True)
        repeated = [hint(_steps(r)) for r, names in sums if names and lane[0] not in names]
        shortest = max([lanes, *repeated]) if reductions else 1024
        wanted = -(-hint(lane[1]) // -(-128 // max(1, units)))
        block = lanes * unroll
        piece = least(lane[1], -(-max(wanted, shortest) // block) * block)
    return _Nest(task, outer, lane, inner, split, lanes, unroll, piece, nodes * math.prod(task.extents) * longest)


def _steps(reduction: Expr) -> int:
    """How many elements are reduced."""
    return math.prod(extent for _, extent in reduction.value[1])


def _wider(lanes: int, extent: int, reductions: Sequence[Expr], lane: str) -> int:
    """How many vectors one long reduction should carry: whole cache lines, and enough work for each step."""
    long = all(hint(_steps(r)) >= 32 for r in reductions if lane in free_axes(r))
    short = all(len(walk(r)) <= 24 for r in reductions)
    return 4 if long and short and extent >= 4 * lanes else 2 if long and short and extent >= 2 * lanes else 1


def _split(outer: Sequence[tuple[str, int]], needs: Sequence[frozenset[str]]) -> int:
    """How many outer loops to share among workers: enough for balance, but none that would repeat a reduction."""
    limit = len(outer)
    for names in needs:
        deepest = max((k + 1 for k, (name, _) in enumerate(outer) if name in names), default=0)
        if deepest:
            limit = min(limit, deepest)
    count, units = 0, 1
    while count < limit and units < 256:
        units *= hint(outer[count][1])
        count += 1
    return count


def _lane_axis(
    task: Task, instructions: InstructionSet, schedule: NestSchedule, axes: Sequence[tuple[str, int]]
) -> tuple[str, int] | None:
    """The axis along which the accesses are cheapest; None when reductions are better vectorised along their own axes."""
    best, best_cost = None, _cost(task, instructions, schedule, None, axes)
    for axis in reversed(axes):  # the innermost wins a tie
        cost = _cost(task, instructions, schedule, axis, axes)
        if cost < best_cost:
            best, best_cost = axis, cost
    return best


def _cost(
    task: Task,
    instructions: InstructionSet,
    schedule: NestSchedule,
    lane: tuple[str, int] | None,
    axes: Sequence[tuple[str, int]],
) -> float:
    """Instructions per element of output, roughly, when `lane` is the lane axis."""
    lanes = 1 if lane is None else min(instructions.lanes, 1 << (max(1, hint(lane[1])).bit_length() - 1))
    point = unwritten(task, instructions).at({name: 0 for name, _ in axes}, None if lane is None else lane[0], lanes)
    total = 0.0
    for store in task.stores:
        total += _access_cost(point, store.operand, store.index, lanes)
        total += 0.0 if lane is None else _eviction_cost(point, store, hint(lane[1]), schedule.same_set_bytes)
        total += _value_cost(point, store.value, lanes, axes, {})
    return total


def _access_cost(point: Point, operand: str, indices: tuple[Expr, ...], lanes: int) -> float:
    step = access_of(point, point.elements.task.operand(operand), indices).step
    if isinstance(step, Size):
        return 1.5 if lanes > 1 else 1.0
    if step == 0:
        return 0.5 if lanes > 1 else 1.0
    return 1.0 / lanes if step == 1 else 1.25 / lanes if step == -1 else 1.5 if step is not None else 4.0


def _load_cost(point: Point, load: Expr, lanes: int) -> float:
    step = access_of(point, point.elements.task.operand(load.value), load.args).step
    if step is not None and not isinstance(step, Size) and is_combed(step, lanes):
        return (2.0 * step - 1.0) / lanes
    return _access_cost(point, load.value, load.args, lanes)


def _eviction_cost(point: Point, store: Store, extent: int, period: int) -> float:
    """What a store along the lane axis costs more when the cache lines it goes to cannot all stay in the second-level cache until
    their next elements are written: strides by a large power of two share a few of its sets."""
    operand = point.elements.task.operand(store.operand)
    step = access_of(point, operand, store.index).step
    stride = 0 if step is None else abs(hint(step)) * operand.dtype.itemsize
    if stride < _LINE:
        return 0.0
    lines = period // math.gcd(period, stride) * _WAYS
    return _EVICTION if 2 * extent > lines else 0.0


def _value_cost(
    point: Point, root: Expr, lanes: int, axes: Sequence[tuple[str, int]], done: dict[Expr, float]
) -> float:
    """Each distinct node once; a reduction costs its body times its length, less what it does not vary with."""
    if root in done:
        return 0.0
    done[root] = 0.0
    if root.op == "load":
        return 0.0 if root.value == ACC else _load_cost(point, root, lanes)
    if root.op in ("const", "index"):
        return 0.0
    if root.op != "reduce":
        own = (1.0 / lanes) if point.lanes == 1 or point.varies(root) else 0.1
        return own + sum(_value_cost(point, a, lanes, axes, done) for a in root.args)
    loops = root.value[1]
    size = float(hint(_steps(root)))
    names = free_axes(root)
    repeats = float(hint(math.prod(extent for name, extent in axes if name not in names)))
    inside = point.inner({name: 0 for name, _ in loops}, point.lane, point.lanes)
    if point.lanes > 1 and point.varies(root):
        return size * _value_cost(inside, root.args[0], lanes, axes, dict(done)) / repeats
    along = [size * _value_cost(inside, root.args[0], 1, axes, dict(done))]
    for name, extent in loops:
        width = min(point.instructions.lanes, 1 << (max(1, hint(extent)).bit_length() - 1))
        if width >= 4:
            view = point.inner({name: 0 for name, _ in loops}, name, width)
            along.append(size * _value_cost(view, root.args[0], width, axes, dict(done)))
    return (min(along) + 4.0) / repeats


# --- the code -----------------------------------------------------------------------------------------------------------


def is_below(f: Function, a: int, b: int) -> bool | Value:
    """Is a size less than a number? Known now, or in the code."""
    return f.compare("icmp slt", a, b) if isinstance(a, Size) else a < b


def run_of(f: Function, units: int, share: Share, serial: bool | Value) -> tuple[Int, Int]:
    """The share's run of `units`; all of them for the first share when `serial`."""
    if isinstance(serial, Value):
        alone, run = share.alone(f, units), share.run(f, units)
        first, end = (f.select(serial, f.i64(a), f.i64(b)) for a, b in zip(alone, run, strict=True))
        return first, end
    return share.alone(f, units) if serial or known_below(units, 2) else share.run(f, units)


@record
class _Emitter:
    function: Function
    nest: _Nest
    elements: Elements
    given: Mapping[str, Int]
    early: list[Expr] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.early = _early(self.nest)

    def run(self, share: Share) -> None:
        f, nest = self.function, self.nest
        extents = [e for _, e in nest.outer[: nest.split]]
        pieces = 1 if nest.lane is None else -(-nest.lane[1] // nest.piece)
        units = math.prod(extents) * pieces
        run, leaves = run_of(f, units, share, is_below(f, nest.work, SERIAL_WORK)), self._hoisted(self.given, {}, None)

        def unit(u: Int, _: tuple[Value, ...]) -> None:
            rest = f.udiv(u, pieces)
            piece: Int = 0 if known_equal(pieces, 1) else f.urem(u, pieces)
            names = (name for name, _ in nest.outer[: nest.split])
            indices = {**self.given, **dict(zip(names, unravel(f, rest, extents), strict=True))}
            self._level(nest.split, indices, self._hoisted(indices, leaves, None), piece)

        f.loop(*run, 1, unit, rolled=True)

    def _level(self, depth: int, indices: dict[str, Int], leaves: dict[Expr, Value], piece: Int) -> None:
        nest = self.nest
        if depth == len(nest.outer):
            self._lanes(indices, leaves, piece)
            return
        name, extent = nest.outer[depth]

        def body(i: Int, _: tuple[Value, ...]) -> None:
            inside = {**indices, name: i}
            self._level(depth + 1, inside, self._hoisted(inside, leaves, None), piece)

        self.function.loop(0, extent, 1, body, rolled=True)

    def _hoisted(self, indices: Mapping[str, Int], leaves: dict[Expr, Value], point: Point | None) -> dict[Expr, Value]:
        """`leaves` and whatever is to be early and can be computed with the loop variables known by now."""
        ready = [r for r in self.early if r not in leaves and free_axes(r) <= set(indices)]
        if not ready:
            return leaves
        at = self.elements.at(indices, leaves=leaves) if point is None else point
        return {**leaves, **{r: at.minimal(r) for r in ready}}

    def _lanes(self, indices: dict[str, Int], leaves: dict[Expr, Value], piece: Int) -> None:
        """The lane loop over one piece: blocks of `unroll` vectors, then single ones, the last moved back to fit."""
        f, nest = self.function, self.nest
        if nest.lane is None:
            self._inner(0, indices, leaves, 1)
            return
        name, extent = nest.lane
        width, block = nest.lanes, nest.lanes * nest.unroll
        low: Int = f.mul(piece, nest.piece)
        high: Int = extent if known_equal(nest.piece, extent) else f.minimum(f.add(low, nest.piece), extent)
        whole = f.add(low, f.mul(f.udiv(f.sub(high, low), block), block)) if nest.unroll > 1 else low

        def many(i: Int, _: tuple[Value, ...]) -> None:
            for u in range(nest.unroll):
                self._inner(0, {**indices, name: f.add(i, u * width)}, leaves, width)

        def one(i: Int, _: tuple[Value, ...]) -> None:
            self._inner(0, {**indices, name: fitted(f, i, width, extent)}, leaves, width)

        if nest.unroll > 1:
            f.loop(low, whole, block, many, rolled=True)
        f.loop(whole, high, width, one, rolled=True)

    def _inner(self, depth: int, indices: dict[str, Int], leaves: dict[Expr, Value], width: int) -> None:
        nest = self.nest
        lane = None if nest.lane is None else nest.lane[0]
        point = self.elements.at(indices, lane, width, leaves=leaves)
        leaves = self._hoisted(indices, leaves, point)
        if depth == len(nest.inner):
            point = self.elements.at(indices, lane, width, leaves=leaves)
            for store in nest.task.stores:
                point.store(store)
            return
        name, extent = nest.inner[depth]

        def body(i: Int, _: tuple[Value, ...]) -> None:
            self._inner(depth + 1, {**indices, name: i}, leaves, width)

        self.function.loop(0, extent, 1, body, rolled=True)
