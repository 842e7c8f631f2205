"""A copy that exchanges the axis along which elements lie side by side: squares of vectors are turned in registers.

    out[n, y, c] = in[n, c, y]        squares of `lanes` rows c and `lanes` columns y

Read and written along neither axis alone, whole cache lines come and go, and no element is moved by itself.
"""

from __future__ import annotations

import math

from fusewise.codegen.families.generic.any_nest import is_below, run_of, unsupported
from fusewise.codegen.kernel import Kernel, Unscheduled, unscheduled
from fusewise.codegen.llvm.entry import OpenFunction, operands_alone, written
from fusewise.codegen.llvm.loops import simplified
from fusewise.codegen.llvm.share import SERIAL_WORK
from fusewise.codegen.llvm.square import turn
from fusewise.codegen.nest.tails import fitted
from fusewise.codegen.nest.tree import Int, Value
from fusewise.lower.index import Linear, Simplifier
from fusewise.lower.task import ACC, Operand, RefusalReason, Task
from fusewise.ops.expr import Expr
from fusewise.records import record

__all__ = ["TURNED"]

_LEAST = 8
"""Rows and columns below which elements are moved one by one as fast."""


@record(frozen=True)
class _Turned:
    """`there` from `here`, a matrix for every index of the loops `outer`: (extent, elements apart here, there) of each.

    Columns lie side by side in `here`, rows in `there`; `row` and `column` are how far apart they lie in the other.
    """

    here: Operand
    there: Operand
    start: tuple[int, int]
    outer: tuple[tuple[int, int, int], ...]
    shape: tuple[int, int]
    row: int
    column: int


def _found(task: Task) -> _Turned | RefusalReason:
    no = RefusalReason("no copy that exchanges the innermost axes")
    if task.anchor is not None or task.sites or len(task.stores) != 1 or not task.is_fixed or 0 in task.extents:
        return no
    value = task.stores[0].value
    if value.op != "load" or value.value == ACC or value.dtype.itemsize != 4:
        return no
    small = simplified(task)
    (store,) = small.stores
    if store.value.op != "load" or small.operand(store.operand).dtype != store.value.dtype:
        return no
    simplifier = Simplifier(small.ranges)
    here, there = _steps(simplifier, store.value.args[0]), _steps(simplifier, store.index[0])
    if here is None or there is None:
        return no
    axes = [(extent, here[1].get(f"i{k}", 0), there[1].get(f"i{k}", 0)) for k, extent in enumerate(small.extents)]
    rows = [axis for axis in axes if axis[2] == 1 and axis[1] > 1]
    columns = [axis for axis in axes if axis[1] == 1 and axis[2] > 1]
    if len(rows) != 1 or len(columns) != 1 or min(rows[0][0], columns[0][0]) < _LEAST:
        return no
    source, target = small.operand(store.value.value), small.operand(store.operand)
    outer = tuple(axis for axis in axes if axis not in (rows[0], columns[0]))
    if len(outer) != len(axes) - 2:
        return no
    start = source.offset + here[0], target.offset + there[0]
    return _Turned(source, target, start, outer, (rows[0][0], columns[0][0]), rows[0][1], columns[0][2])


def _steps(simplifier: Simplifier, offset: Expr) -> tuple[int, dict[str, int]] | None:
    """Where an access begins, and how far it moves with each loop; None when it depends on them in another way."""
    form: Linear = simplifier.linear(offset)
    if any(atom.op != "index" for atom, _ in form.terms):
        return None
    return form.constant, {atom.value: step for atom, step in form.terms}


def _write(o: OpenFunction, found: _Turned, schedule: Unscheduled) -> None:
    f, pointers = o.f, o.pointers
    rows, columns = found.shape
    lanes = min(o.instructions.lanes, 1 << (min(rows, columns).bit_length() - 1))
    blocks = -(-columns // lanes)
    units = math.prod(extent for extent, _, _ in found.outer) * blocks
    serial = is_below(f, 2 * math.prod(o.task.extents), SERIAL_WORK)

    def unit(u: Int, _: tuple[Value, ...]) -> None:
        column = fitted(f, f.mul(f.urem(u, blocks), lanes), lanes, columns)
        here: Int = f.add(column, found.start[0])
        there: Int = f.add(f.mul(column, found.column), found.start[1])
        rest = f.udiv(u, blocks)
        for extent, step_here, step_there in reversed(found.outer):
            at: Int = f.urem(rest, extent)
            here, there = f.add(here, f.mul(at, step_here)), f.add(there, f.mul(at, step_there))
            rest = f.udiv(rest, extent)
        source, written = f.at(pointers[found.here.name], here), f.at(pointers[found.there.name], there)
        turn(f, source, found.row, written, found.column, (rows, lanes), lanes)

    f.loop(*run_of(f, units, o.share, serial), 1, unit, rolled=True)


TURNED = Kernel(
    "turned-copy",
    lambda task, instructions: unsupported(task) or _found(task),
    unscheduled,
    operands_alone,
    written(operands_alone, _write),
)
