"""A task for one of several samples: the same definitions over the first sample of every operand that has one for each.

It stands for the whole task where every element of a sample is computed from that sample alone, which the definitions themselves
tell: the first index occurs in them nowhere but as the first index of an operand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fusewise.ir.types import TensorType
from fusewise.lower.memory import ALIGNMENT
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.lower.work import TaskWork
from fusewise.ops.expr import Expr, index, walk

__all__ = ["of_one_sample"]

_ALONG_SAMPLES = frozenset("conv conv_transpose max_pool average_pool lp_pool instance_norm group_norm".split())
"""Families of operators that take the samples of their first operand one by one."""


def of_one_sample(work: TaskWork) -> TaskWork | None:
    """The work for the first sample, whose `between` says how far apart those of an operand lie; None where it is not so."""
    task = work.bound.task
    found = _task(task)
    if found is None:
        return None
    small, carried = found
    between = {name: task.operand(name).strides[0] for name in carried}
    plain = work.plain

    def without_anchor() -> TaskWork:
        assert plain is not None
        whole = of_one_sample(plain())
        assert whole is not None, "what an anchor computes sample by sample its definition does"
        return whole

    return replace(
        work, bound=replace(work.bound, task=small), plain=None if plain is None else without_anchor, between=between
    )


def _task(task: Task) -> tuple[Task, frozenset[str]] | None:
    """The task of one sample, and the operands that hold as many as there are."""
    samples = task.extents[0] if task.extents else 1
    anchor = task.anchor
    if not isinstance(samples, int) or samples < 2 or (anchor is not None and not _takes_samples(anchor, samples)):
        return None
    given = () if anchor is None else anchor.prologue
    uses = [
        _uses((store.value for store in task.stores), "i0"),
        _uses((e for e in given[:1] if e is not None), "p0"),
        _uses((e for e in given[1:] if e is not None), ""),
    ]
    if any(use is None for use in uses) or not all(_is_along(store) for store in task.stores):
        return None
    carried, shared = {store.operand for store in task.stores}, set[str]()
    for use in uses:
        assert use is not None
        carried |= use[0]
        shared |= use[1]
    carried.discard(ACC)
    operands = [task.operand(name) for name in sorted(carried)]
    if carried & shared or any(o.constant or not o.shape or o.shape[0] != samples for o in operands):
        return None
    small = replace(
        task,
        extents=(1, *task.extents[1:]),
        operands=tuple(_first(o) if o.name in carried else o for o in task.operands),
        anchor=None if anchor is None else _anchor(anchor),
    )
    return small, frozenset(carried)


def _takes_samples(anchor: Anchor, samples: int) -> bool:
    data = anchor.inputs[0]
    return (
        anchor.family in _ALONG_SAMPLES
        and data is not None
        and data.dims[:1] == (samples,) == anchor.output.dims[:1]
        and anchor.prologue[0] is not None
    )


def _is_along(store: Store) -> bool:
    """Is the first index that of the sample, and are the others free of it?"""
    first = index("i0")
    return bool(store.index) and store.index[0] == first and not any(first in walk(e) for e in store.index[1:])


def _uses(roots: Iterable[Expr], sample: str) -> tuple[set[str], set[str]] | None:
    """The operands loaded at this sample, and those at no sample; None where the index does anything else."""
    first = index(sample)
    carried, shared = set[str](), set[str]()
    for root in roots:
        for node in walk(root):
            if node == first or first not in node.args:
                if node.op == "load" and first not in node.args[:1]:
                    shared.add(node.value)
                continue
            if node.op != "load" or node.args[0] != first or first in node.args[1:]:
                return None
            carried.add(node.value)
        if root == first:
            return None
    return carried, shared


def _first(operand: Operand) -> Operand:
    """The operand's first sample. Others begin on boundaries of the distance between them."""
    apart = operand.strides[0] * operand.dtype.itemsize
    return replace(
        operand, shape=(1, *operand.shape[1:]), alignment=min(operand.alignment, (apart & -apart) or ALIGNMENT)
    )


def _anchor(anchor: Anchor) -> Anchor:
    data = anchor.inputs[0]
    assert data is not None
    return replace(anchor, inputs=(_one(data), *anchor.inputs[1:]), output=_one(anchor.output))


def _one(kind: TensorType) -> TensorType:
    return replace(kind, shape=(1, *kind.dims[1:]))
