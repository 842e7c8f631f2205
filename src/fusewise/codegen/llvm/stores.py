"""What happens to a finished accumulator: the task's stores, and which row axes they let us treat as one.

Takes the task and pointers to its operands; gives a function that kernels call once per accumulator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from fusewise.codegen.llvm.elements import Elements
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.target import Target
from fusewise.codegen.view import strides_along
from fusewise.ir.deciding import known_below, known_equal
from fusewise.lower.task import ACC, Task
from fusewise.ops.expr import COMPARE, Expr, walk
from fusewise.records import record

__all__ = [
    "Far",
    "Fetch",
    "Finish",
    "far_of",
    "fetcher",
    "finisher",
    "is_heavy",
    "is_simple",
    "joined_axis",
    "output_fetcher",
    "reads",
]

Finish = Callable[[Mapping[str, Int], str, Value, int], None]
"""`finish(indices, lane axis, accumulator, valid lanes)` runs every store of the task."""

Fetch = Callable[[Mapping[str, Int], str, int], None]
"""`fetch(indices, lane axis, lanes)` fetches memory that the stores of the task will read or write."""

HEAVY = 24
"""Expression nodes beyond which the stores are emitted once per tile, in a loop, and not once per accumulator."""

SIMPLE = frozenset("const index load cast select neg abs add sub mul min max".split()) | COMPARE
"""What stores are made of that one instruction each does, or none."""


def finisher(f: Function, task: Task, pointers: Mapping[str, Value]) -> Finish:
    """The task's stores as a function of one accumulator."""

    def finish(indices: Mapping[str, Int], lane: str, value: Value, count: int) -> None:
        f.results((task, pointers), indices, lane, value, count)

    return finish


@record(frozen=True)
class Far:
    """What the stores of a task touch that has probably left the caches: all `results`, and which of their reads, by number."""

    results: bool = False
    reads: tuple[int, ...] = ()


def far_of(task: Task, target: Target) -> Far:
    """What has left the second cache levels of the workers by the time that a task runs."""
    reads = (number for number, read in enumerate(_loads(task)) if _is_large(task, read, target))
    return Far(_leaves_caches(task, target), tuple(reads))


def output_fetcher(elements: Elements, locality: int, far: Far) -> Fetch | None:
    """What fetches the results of one accumulator before they are written, to a cache level: a core reads a line before it writes a
    part of it. None where they are likely to be near."""
    return _fetch(elements, locality, ()) if far.results else None


def fetcher(elements: Elements, locality: int, far: Far) -> Fetch | None:
    """The same, and of what the stores read beside the accumulator, such as a residual, where that is likely to be far."""
    every = _loads(elements.task) if far.reads else []
    loads = [every[number] for number in far.reads]
    return _fetch(elements, locality, loads) if loads or far.results else None


def _fetch(elements: Elements, locality: int, loads: Sequence[Expr]) -> Fetch:
    def fetch(indices: Mapping[str, Int], lane: str, lanes: int) -> None:
        at = elements.at(dict(indices), lane=lane, lanes=lanes)
        for e in loads:
            at.fetch(str(e.value), e.args, locality)
        for store in elements.task.stores:
            at.fetch(store.operand, store.index, locality)

    return fetch


def _leaves_caches(task: Task, target: Target) -> bool:
    """Do the results not fit the second cache levels of all workers, so that their memory is not there when they are written?"""
    written = (task.operand(store.operand) for store in task.stores)
    nbytes = sum(math.prod(task.extents) * operand.dtype.itemsize for operand in written)
    return nbytes > target.workers * target.l2_bytes


def _loads(task: Task) -> list[Expr]:
    """What the stores read, each once."""
    every = (e for store in task.stores for e in walk(store.value) if e.op == "load" and e.value != ACC)
    return list(dict.fromkeys(every))


def _is_large(task: Task, read: Expr, target: Target) -> bool:
    """Is it from a tensor that has left the second level, at a place known without reading another?"""
    operand = task.operand(str(read.value))
    is_known = not any(e.op == "load" for index in read.args for e in walk(index))
    return not operand.constant and operand.nbytes > min(target.l2_bytes, target.figures.caches.near_bytes) and is_known


def is_heavy(task: Task) -> bool:
    """Are the stores so long that repeating them for every accumulator would bloat the code?"""
    return sum(len(walk(store.value)) for store in task.stores) > HEAVY


def is_simple(task: Task) -> bool:
    """Are the stores a few instructions, which need no more registers than an accumulator and what it is combined with?"""
    return not is_heavy(task) and all(e.op in SIMPLE for store in task.stores for e in walk(store.value))


def reads(task: Task, name: str) -> bool:
    """Do the stores read operand `name`?"""
    return any(e.op == "load" and e.value == name for store in task.stores for e in walk(store.value))


def joined_axis(task: Task, axes: Sequence[tuple[str, int]]) -> str | None:
    """The row axis (name, extent) that stores may be given a flat row index for, all other row axes being 0.

    There is one when each operand is read and written with strides that continue each other along all axes, and no index is
    used for anything else. Axes of extent 1 are never it: what reads them reads at 0.
    """
    wide = [axis for axis in axes if not known_below(axis[1], 2)]
    if not wide:
        return None
    inner, extent = wide[-1]
    for outer, size in reversed(wide[:-1]):
        if not _continues(task, outer, inner, extent):
            return None
        extent *= size
    return inner


def _continues(task: Task, outer: str, inner: str, inner_extent: int) -> bool:
    """Is the stride along `outer` that along `inner` times `inner_extent`, everywhere?"""
    for store in task.stores:
        accesses = [(store.operand, store.index)]
        accesses += [(str(e.value), e.args) for e in walk(store.value) if e.op == "load" and e.value != ACC]
        for name, indices in accesses:
            found = strides_along(task.operand(name), indices)
            if found is None:
                return False
            strides = found[0]
            if not known_equal(strides.get(outer, 0), strides.get(inner, 0) * inner_extent):
                return False
        if _used_as_number(store.value, (outer, inner)):
            return False
    return True


def _used_as_number(value: Expr, axes: Sequence[str]) -> bool:
    """Does an index take part in anything but addressing?"""
    if value.op == "index":
        return value.value in axes
    nodes = [e for e in walk(value) if e.op != "load"]
    return any(arg.op == "index" and arg.value in axes for e in nodes for arg in e.args)
