"""A loop taken apart where its accesses bend: padding that reflects is straight but for its ends.

    out[i] = in[min((i - 3) % 20, 20 - (i - 3) % 20)]     i < 17
 -> out[i] = in[3 - i]  i < 3;   out[i] = in[i - 3]  3 <= i < 14;   out[i] = in[23 - i]  14 <= i

The longest straight run becomes a loop of its own, which reads whole vectors; what lies before and behind it stays as it is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fusewise.codegen.llvm.loops import free_axes, loop_ranges
from fusewise.ir.size import Size
from fusewise.lower.index import Simplifier
from fusewise.lower.task import ACC, Task
from fusewise.ops.expr import Expr, const, index, substitute, walk
from fusewise.ops.interpret import evaluate_expression

__all__ = ["straight_pieces"]

_LEAST = 32
"""Elements of a run below which its loop is left whole."""


def straight_pieces(task: Task) -> tuple[Task, ...]:
    """Tasks that together do what `task`, simplified, does: one where no access of its innermost loop bends is left alone."""
    if not task.extents or task.sites:
        return (task,)
    axis = len(task.extents) - 1
    name, extent = f"i{axis}", task.extents[axis]
    if isinstance(extent, Size):
        return (task,)
    bent = _bent(task, name) if extent >= 2 * _LEAST else []
    if not bent:
        return (task,)
    values = {atom: np.broadcast_to(evaluate_expression(atom, {name: extent}, {})[0], (extent,)) for atom in bent}
    low, high = _longest(list(values.values()))
    if high - low < max(_LEAST, extent // 2):
        return (task,)
    straight: dict[Expr, Expr] = {}
    for atom, found in values.items():
        first, slope = int(found[low]), int(found[low + 1]) - int(found[low])
        straight[atom] = index(name) * slope + (first - low * slope)
    pieces = [(0, low, {}), (low, high, straight), (high, extent, {})]
    return tuple(_piece(task, axis, begin, end, instead) for begin, end, instead in pieces if begin < end)


def _bent(task: Task, name: str) -> list[Expr]:
    """Terms of addresses that depend on this loop alone, and not in proportion."""
    simplifier = Simplifier(loop_ranges(task))
    addresses = [store.index[0] for store in task.stores]
    for store in task.stores:
        addresses += [node.args[0] for node in walk(store.value) if node.op == "load" and node.value != ACC]
    atoms = dict.fromkeys(atom for root in addresses for atom, _ in simplifier.linear(root).terms)
    return [
        atom
        for atom in atoms
        if atom.op != "index" and free_axes(atom) == {name} and not any(_is_open(node) for node in walk(atom))
    ]


def _is_open(node: Expr) -> bool:
    """Is its value not known from the loop alone?"""
    return node.op in ("load", "reduce") or isinstance(node.value, Size)


def _longest(values: list[np.ndarray]) -> tuple[int, int]:
    """The longest range of places in which all these move by steps that stay the same."""
    steps = np.diff(np.stack(values), axis=1)
    bends = np.flatnonzero((steps[:, 1:] != steps[:, :-1]).any(0)) + 1
    edges = np.array([0, *bends, steps.shape[1]])
    longest = int(np.argmax(np.diff(edges)))
    return int(edges[longest]), int(edges[longest + 1]) + 1


def _piece(task: Task, axis: int, begin: int, end: int, instead: dict[Expr, Expr]) -> Task:
    """The part of the loop from `begin` on, below `end`, numbered from 0."""
    moved = index(f"i{axis}") + const(begin) if begin else index(f"i{axis}")
    part = replace(task, extents=(*task.extents[:axis], end - begin))
    simplifier = Simplifier(loop_ranges(part))

    def one(root: Expr) -> Expr:
        bare = substitute(root, instead.get) if instead else root
        shifted = substitute(bare, lambda node: moved if node == index(f"i{axis}") else None) if begin else bare
        return simplifier.simplify(shifted)

    return part.mapped(one)
