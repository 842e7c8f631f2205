"""Results in the place of what they are added to: a residual that nothing reads later is overwritten, element by element.

Memory is then read, written and sent back once in place of twice, and the arena is smaller. It takes a kernel that writes every
element of the result once, after what the stores read there (`Kernel.writes_once`), and an operand that the stores read nowhere
else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fusewise.codegen.steps.draft import Area, Pointer, ProgramDraft, TaskDraft
from fusewise.codegen.target import Target
from fusewise.ir.deciding import hint, known_equal, known_one, known_zero
from fusewise.lower.task import ACC, Operand, Store, Task
from fusewise.ops.expr import Expr, walk
from fusewise.trace import Trace

__all__ = ["overwritable", "overwrite_results", "shared_pointers"]


def overwrite_results(draft: ProgramDraft, target: Target, trace: Trace) -> ProgramDraft:
    """The pass that lets the result of a step have the memory of something that it reads, if that is read no more later."""
    found: dict[Area, Area] = {}  # by what takes over
    for step in draft.steps:
        if isinstance(step, TaskDraft) and step.way.writes_once and not step.others:
            for old, new in _alike(step):
                before, after = draft.lifetimes[old], draft.lifetimes[new]
                reason = f"{hint(old.buffer.nbytes):,} bytes that nobody reads later"
                if before.last != after.first or new in found:
                    continue
                if trace.allows("kernel", "overwrite", step.work.nodes, reason, titles=(step.work.label,)):
                    found[new] = old
    return replace(draft, overwrites=tuple((old, new) for new, old in found.items()))


def _alike(step: TaskDraft) -> Iterator[tuple[Area, Area]]:
    """Areas that a step reads as a whole, by one pointer, with that of its result, which may lie on top."""
    task = step.work.bound.task
    at = dict(zip((argument.name for argument in step.arguments), step.pointers, strict=True))
    for name in overwritable(task):
        old, new = (_whole(at[each], task.operand(each)) for each in (name, task.stores[0].operand))
        if old is not None and new is not None and sum(pointer.area == old for pointer in step.pointers) == 1:
            yield old, new


def _whole(pointer: Pointer, operand: Operand) -> Area | None:
    """The planned memory that an operand fills."""
    buffer = pointer.area.buffer
    fills = buffer.kind == "arena" and known_zero(pointer.offset) and known_zero(operand.offset)
    return pointer.area if fills and known_equal(buffer.nbytes, operand.nbytes) else None


def overwritable(task: Task) -> tuple[str, ...]:
    """The operands that the one result may lie on top of: read where it is written, and nowhere else."""
    if len(task.stores) != 1:
        return ()
    (store,) = task.stores
    elsewhere = {str(e.value) for e in _loads(task.prologue)}
    found = dict.fromkeys(str(e.value) for e in _loads([store.value]) if e.value != ACC)
    return tuple(name for name in found if name not in elsewhere and _lies_alike(task, store, name))


def shared_pointers(task: Task) -> tuple[str, ...]:
    """The operands whose memory may be another's as well."""
    found = overwritable(task)
    return (*found, task.stores[0].operand) if found else ()


def _loads(roots: list[Expr]) -> Iterator[Expr]:
    return (e for root in roots for e in walk(root) if e.op == "load")


def _lies_alike(task: Task, store: Store, name: str) -> bool:
    """Is every element of the operand read where one of the result is written that lies at the same place?"""
    read, written = task.operand(name), task.operand(store.operand)
    if not _is_alike(read, written):
        return False
    wide = [k for k, extent in enumerate(read.shape) if not known_one(extent)]  # an axis of one is read at 0
    indices = [e.args for e in _loads([store.value]) if e.value == name]
    there = all(at[k] == store.index[k] for at in indices for k in wide)
    return there and not read.constant


def _is_alike(a: Operand, b: Operand) -> bool:
    """Do both lie alike?"""
    if a.dtype != b.dtype or len(a.shape) != len(b.shape):
        return False
    pairs = zip((*a.shape, *a.strides, a.offset), (*b.shape, *b.strides, b.offset), strict=True)
    return all(known_equal(x, y) for x, y in pairs)
