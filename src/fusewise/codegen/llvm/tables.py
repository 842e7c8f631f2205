"""What depends on one loop variable alone, read from a table instead of computed again for every element.

Coordinates and weights along an axis take a division each; they are the same for every row, so they are evaluated when the kernel
is compiled and become constants of its module, one entry per index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fusewise.codegen.llvm.loops import free_axes
from fusewise.codegen.nest.build import Module
from fusewise.codegen.nest.tree import Value
from fusewise.codegen.nest.types import memory_type
from fusewise.ir.dtypes import FLOAT32, FLOAT64, INT64
from fusewise.ir.size import Size
from fusewise.lower.task import Operand, Store, Task
from fusewise.ops.expr import Expr, index, load, substitute, walk
from fusewise.ops.interpret import evaluate_expression
from fusewise.records import record

__all__ = ["Tables", "tabulated"]

_LONGEST = 1 << 12
"""Entries of the longest table: 32 KiB of indices."""


@record(frozen=True)
class Tables:
    """A task that reads tables as further operands, and what they hold: one array per name."""

    task: Task
    arrays: tuple[tuple[str, np.ndarray], ...]

    def pointers(self, module: Module) -> dict[str, Value]:
        """Write the tables into a module: their addresses by operand name."""
        return {
            name: module.table(f"table{len(module.tables)}", memory_type(self.task.operand(name).dtype), array.tolist())
            for name, array in self.arrays
        }


def tabulated(task: Task) -> Tables:
    """The task with every largest divided value of one of its own loop variables `i0`, `i1`, ... read from a table."""
    numbers = ((k, extent) for k, extent in enumerate(task.extents) if not isinstance(extent, Size))
    extents = {f"i{k}": extent for k, extent in numbers if 1 < extent <= _LONGEST}
    names: dict[Expr, str] = {}
    for store in task.stores:
        for node in _largest(store.value, extents):
            names.setdefault(node, f"table{len(names)}")
    operands: list[Operand] = []
    arrays: list[tuple[str, np.ndarray]] = []
    for node, name in names.items():
        (axis,) = free_axes(node)
        array, _ = evaluate_expression(node, {axis: extents[axis]}, {})
        arrays.append((name, array))
        operands.append(Operand(name, node.dtype, array.shape, (1,), constant=True))

    def read(node: Expr) -> Expr | None:
        if node not in names:
            return None
        (axis,) = free_axes(node)
        return load(names[node], node.dtype, (index(axis),))

    stores = tuple(Store(s.operand, s.index, substitute(s.value, read)) for s in task.stores)
    return Tables(replace(task, operands=(*task.operands, *operands), stores=stores), tuple(arrays))


def _largest(root: Expr, extents: dict[str, int]) -> Iterator[Expr]:
    """Values of one variable that divide and read nothing, and are no part of a larger such value.

    What a condition may skip is left alone: there the bounds of an index tell whether memory may be touched.
    """
    stack, seen = [root], {root}
    while stack:
        node = stack.pop()
        if _is_worth(node, extents):
            yield node
            continue
        fresh = [a for a in node.args if a not in seen and node.op != "select"]
        seen.update(fresh)
        stack.extend(fresh)


def _is_worth(node: Expr, extents: dict[str, int]) -> bool:
    if node.dtype not in (INT64, FLOAT32, FLOAT64):
        return False
    axes = free_axes(node)
    if len(axes) != 1 or not axes <= extents.keys():
        return False
    parts = walk(node)
    if any(isinstance(n.value, Size) for n in parts):
        return False
    below = {n.op for n in parts}
    return not below & {"load", "reduce"} and bool(below & {"floordiv", "floormod"})
