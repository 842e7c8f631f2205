"""Depth-first tiling of two steps: a strip of rows at a time, so that what the first writes is read from a core's own cache.

Kernels share rows out in runs, known before they begin. Asked for one share of many times as many workers, a kernel does a strip of
what a worker would do; so strips need no code of their own. A strip of the second step may run once the strips of the first are
done that hold the rows which it reads, which is looked up here, share by share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fusewise.codegen.kernel import Sharing
from fusewise.codegen.steps.draft import HostDraft, ProgramDraft, TaskDraft
from fusewise.codegen.target import Target
from fusewise.lower.task import Operand, Store, Task
from fusewise.lower.work import TaskWork
from fusewise.ops.expr import Expr, index, load
from fusewise.trace import Trace

__all__ = ["LEAST_STRIPS", "joins", "strips_of", "tile_depth_first"]

LEAST_STRIPS = 4
"""With fewer, the first and the last, which wait for the others, are half of all."""


def tile_depth_first(draft: ProgramDraft, target: Target, trace: Trace) -> ProgramDraft:
    """The pass that says which steps run strip by strip with the next. Both are then one piece of work."""
    steps = list(draft.steps)
    for number in range(len(steps) - 1):
        pair = _pair(steps, number)
        if pair is None or draft.stretch_of(number) is not draft.stretch_of(number + 1):
            continue
        above, below = pair
        sharing = above.way.sharing, below.way.sharing
        if sharing[0] is None or sharing[1] is None:
            continue
        strips = strips_of(sharing[0], sharing[1], target.workers, target)
        names, titles = (*above.work.nodes, *below.work.nodes), (above.work.label, below.work.label)
        if strips and trace.allows("kernel", "strips", names, f"{strips} to a worker", titles=titles):
            steps[number : number + 2] = replace(above, strips=strips, pieces=1), replace(below, pieces=1)
    return replace(draft, steps=tuple(steps))


def _pair(steps: Sequence[TaskDraft | HostDraft], number: int) -> tuple[TaskDraft, TaskDraft] | None:
    """A step and the next, if they join; not where the first runs with the one before."""
    above, below = steps[number : number + 2]
    if isinstance(above, HostDraft) or isinstance(below, HostDraft) or not joins(above.work, below.work):
        return None
    before = steps[number - 1] if number else None
    return None if isinstance(before, TaskDraft) and before.strips else (above, below)


def joins(first: TaskWork, second: TaskWork) -> bool:
    """Does the second task read what the first writes, row by row as its data and not otherwise, and write over nothing of it?"""
    task, anchor = second.bound.task, second.bound.task.anchor
    if anchor is None:
        return False
    data = next((o for o in task.operands if anchor.prologue[0] == _element(o)), None)
    if data is None:
        return False
    value, written = second.bound.values[data.name], {store.operand for store in task.stores}
    others = [o.name for o in task.operands if o.name not in written and o.name != data.name and not o.constant]
    if any(second.places[name][0] == second.places[data.name][0] for name in others):
        return False
    touched = {first.places[o.name][0] for o in first.bound.task.operands if not o.constant}
    if any(second.places[name][0] in touched for name in written):
        return False
    given = first.bound.task
    stores = [s for s in given.stores if first.bound.values[s.operand] == value]
    return len(stores) == 1 and _is_plain(given, stores[0], data)


def _is_plain(task: Task, store: Store, data: Operand) -> bool:
    """Is a tensor of this shape stored, element by element of the task's index space?"""
    along = tuple(index(f"i{k}") for k in range(len(task.extents)))
    return store.index == along and task.extents == task.operand(store.operand).shape == data.shape


def _element(operand: Operand) -> Expr:
    """An anchor's element of an operand that nothing is done to on the way in."""
    return load(operand.name, operand.dtype, tuple(index(f"p{k}") for k in range(len(operand.shape))))


def strips_of(first: Sharing, second: Sharing, workers: int, target: Target) -> int:
    """How many strips each worker runs two steps in, depth first; 0 where all of it at once is as well or must be."""
    each = first.nbytes // workers
    if each <= target.l2_bytes:
        return 0
    wanted = min(
        target.figures.sharing.units, max(LEAST_STRIPS, -(-each * target.figures.caches.part // target.l2_bytes))
    )
    fitting = (
        n
        for n in range(wanted, LEAST_STRIPS - 1, -1)
        if all(_is_safe(first, second, w, n) for w in range(1, workers + 1))
    )
    return next(fitting, 0)


def _is_safe(first: Sharing, second: Sharing, workers: int, strips: int) -> bool:
    """Are the rows there that a strip reads, of its own worker, when the strip after it is done?"""
    shares = workers * strips
    for worker in range(workers):
        top = first.begun(worker * strips, shares)
        for share in range(worker * strips + 1, (worker + 1) * strips - 1):
            low, high = second.reads(share, shares)
            if low < top or high > first.done(share + 2, shares):
                return False
    return True
