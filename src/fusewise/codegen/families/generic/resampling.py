"""Separable resampling along an axis outside the innermost ones: rows of the source are prepared once and interpolated.

Linear and cubic Resize interpolate along one axis after the other, so an output row is a weighted sum of a few prepared rows, and
the next output row needs mostly the same ones:

    out[y, x] = row[a(y)][x] * u(y) + row[b(y)][x] * v(y)        row[j][x] = in[j, c(x)] * s(x) + in[j, d(x)] * t(x)

A worker takes consecutive output rows and keeps the prepared rows of its last one in scratch memory, row j in slot j modulo the
number of slots. What is found by shape is this form of the expression, not an operator: `row` is anything that is read at
a(y) and b(y) and does not depend on y otherwise, its axes are those that lie inside y in the output, whatever the layout, and
around the sum may stand any expression. Which rows are needed when is evaluated when the kernel is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from fusewise.codegen.families.generic.any_nest import (
    NestSchedule,
    emit_nest,
    is_below,
    nest_schedules,
    run_of,
    unsupported,
)
from fusewise.codegen.kernel import Argument, Kernel, working_memory
from fusewise.codegen.llvm.elements import unwritten
from fusewise.codegen.llvm.entry import OpenFunction, operand_arguments, written
from fusewise.codegen.llvm.loops import free_axes, offset_of
from fusewise.codegen.llvm.memory import access_of
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.target import InstructionSet, Target, whole_lines
from fusewise.ir.dtypes import FLOAT32, FLOAT64, DType
from fusewise.lower.index import Simplifier
from fusewise.lower.task import ACC, Operand, RefusalReason, Store, Task
from fusewise.ops.expr import Expr, index, load, substitute, substitute_indices, walk
from fusewise.ops.interpret import evaluate_expression
from fusewise.records import record

__all__ = ["SEPARABLE_RESAMPLING"]

_ROW = "row"  # the loop variable of a prepared row in the source

_MOST_TERMS = 4
"""Rows that are interpolated at once: those of the cubic kernel."""


@record(frozen=True)
class _Resampling:
    """A sum of `reads[k]` times weights along loop variable `i<axis>`; `reads[k]` is `template` at row `places[k]`.

    `outer` and `inner` are the loops outside and inside the axis by strides of the output, from the slowest to the fastest.
    """

    axis: int
    reads: tuple[Expr, ...]
    places: tuple[Expr, ...]
    template: Expr
    slots: int
    outer: tuple[int, ...]
    inner: tuple[int, ...]

    @property
    def dtype(self) -> DType:
        return self.template.dtype


@record(frozen=True)
class ResamplingSchedule:
    """Which of the sums is interpolated, and how the nests of a row are written."""

    number: int
    nest: NestSchedule


def _understand(task: Task, instructions: InstructionSet) -> tuple[_Resampling, ...] | RefusalReason:
    """All sums that may be interpolated."""
    if task.anchor is not None:
        return RefusalReason("the anchor needs a kernel of its own", task.anchor.op)
    found = tuple(_found(task, instructions))
    return unsupported(task) or found if found else RefusalReason("nothing is blended row by row")


def _schedules(found: tuple[_Resampling, ...], task: Task, target: Target) -> Iterable[ResamplingSchedule]:
    """The outermost sum whose prepared rows stay in the second-level cache."""
    fitting = (k for k, one in enumerate(found) if one.slots * _row_bytes(task, one) <= target.l2_bytes // 2)
    for number in islice(fitting, 1):
        yield from (ResamplingSchedule(number, nest) for nest in nest_schedules(found, task, target))


def _declines(found: tuple[_Resampling, ...], task: Task, target: Target) -> RefusalReason | None:
    fits = any(True for _ in _schedules(found, task, target))
    return None if fits else RefusalReason("prepared rows do not fit the cache")


def _arguments(found: tuple[_Resampling, ...], task: Task, schedule: ResamplingSchedule) -> tuple[Argument, ...]:
    resampling = found[schedule.number]
    return operand_arguments(task, (working_memory(resampling.slots * _row_bytes(task, resampling)),))


def _row_bytes(task: Task, resampling: _Resampling) -> int:
    """Bytes from slot to slot: whole cache lines."""
    return whole_lines(math.prod(task.extents[k] for k in resampling.inner) * resampling.dtype.itemsize)


# --- what is interpolated -------------------------------------------------------------------------------------------------


def _found(task: Task, instructions: InstructionSet) -> Iterator[_Resampling]:
    """Sums in the stores that may be interpolated, the outermost first; those that a condition may skip are left alone."""
    order = _axes_by_stride(task)
    if order is None:
        return
    for node in _certain(task):
        if node.op == "add" and node.dtype in (FLOAT32, FLOAT64):
            resampling = _resampling_of(task, instructions, node, order)
            if resampling is not None:
                yield resampling


def _certain(task: Task) -> Iterator[Expr]:
    """Nodes whose value every element needs, parents first."""
    level = list(dict.fromkeys(store.value for store in task.stores))
    while level:
        yield from level
        inside = (a for node in level if node.op not in ("select", "reduce", "load") for a in node.args)
        level = list(dict.fromkeys(inside))


def _axes_by_stride(task: Task) -> tuple[int, ...] | None:
    """Loops as they lie in the first output, slowest first; None when it is not written plainly."""
    if not task.stores or not task.is_fixed or 0 in task.extents:
        return None
    store = task.stores[0]
    simplifier = Simplifier(task.ranges)
    form = offset_of(simplifier, task.operand(store.operand), store.index)
    if any(atom.op != "index" for atom, _ in form.terms):
        return None
    steps = {atom.value: abs(step) for atom, step in form.terms}
    return tuple(sorted(range(len(task.extents)), key=lambda k: -steps.get(f"i{k}", 2**62)))


def _terms(node: Expr) -> list[Expr]:
    """What is added up, in order; of a sum of many terms only as far as it was opened."""
    terms = [node]
    while len(terms) <= _MOST_TERMS and any(term.op == "add" for term in terms):
        terms = [part for term in terms for part in (term.args if term.op == "add" else (term,))]
    return terms


def _resampling_of(task: Task, instructions: InstructionSet, node: Expr, order: tuple[int, ...]) -> _Resampling | None:
    terms = _terms(node)
    if len(terms) > _MOST_TERMS or any(term.op != "mul" for term in terms):
        return None
    axes = {name for term in terms for name in free_axes(term.args[1])}
    if len(axes) != 1 or any(n.op in ("load", "reduce") for term in terms for n in walk(term.args[1])):
        return None
    (name,) = axes
    if not (name[0] == "i" and name[1:].isdigit()):
        return None
    axis, reads = int(name[1:]), tuple(term.args[0] for term in terms)
    places = [_place(task, read, name) for read in reads]
    known = tuple(place for place in places if place is not None)
    if len(known) < len(places):
        return None
    templates = {_at_row(read, place) for read, place in zip(reads, known, strict=True)}
    template = templates.pop()
    if templates or name in free_axes(template) or not _computes(template):
        return None
    position = order.index(axis)
    inner = order[position + 1 :]
    if math.prod(task.extents[k] for k in inner) < instructions.lanes:
        return None
    innermost = next(k for k in reversed(inner) if task.extents[k] > 1)
    least = 3.0 if _is_contiguous(task, instructions, template, innermost) else 2 / 3
    slots = _slots(known, name, task.extents[axis], least)
    resampling = _Resampling(axis, reads, known, template, slots, order[:position], inner)
    own = {f"i{k}" for k in order if k != axis} | {_ROW}
    return resampling if slots and free_axes(template) <= own else None


def _place(task: Task, read: Expr, name: str) -> Expr | None:
    """The one index along which the loads of `read` follow loop variable `name`."""
    found = {a for n in walk(read) if n.op == "load" for a in n.args if name in free_axes(a)}
    if len(found) != 1:
        return None
    place = found.pop()
    plain = free_axes(place) == {name} and not any(n.op in ("load", "reduce") for n in walk(place))
    return place if plain else None


def _at_row(read: Expr, place: Expr) -> Expr:
    """`read` at the row that loop variable `row` says, wherever it loads at `place`."""

    def moved(node: Expr) -> Expr | None:
        if node.op != "load" or place not in node.args:
            return None
        return load(node.value, node.dtype, tuple(index(_ROW) if a == place else a for a in node.args))

    return substitute(read, moved)


def _computes(template: Expr) -> bool:
    """Is there arithmetic to save, and does it read data?"""
    nodes = walk(template)
    reads = any(n.op == "load" and n.value != ACC for n in nodes)
    return reads and any(n.op == "mul" and n.dtype == template.dtype for n in nodes)


def _is_contiguous(task: Task, instructions: InstructionSet, template: Expr, axis: int) -> bool:
    """Does every load of a row move with loop `axis` as a vector does? Then computing a row again is cheap."""
    names = dict.fromkeys((*task.ranges, _ROW), 0)
    point = unwritten(task, instructions).at(names, f"i{axis}", 2)
    loads = (n for n in walk(template) if n.op == "load")
    return all(access_of(point, task.operand(n.value), n.args).step in (0, 1) for n in loads)


def _slots(places: tuple[Expr, ...], name: str, extent: int, least: float) -> int:
    """How many rows must be kept, a power of two; 0 when rows are not needed in order, or fewer than `least` times each."""
    rows = np.stack([evaluate_expression(place, {name: extent}, {})[0] for place in places])
    first, last = rows.min(0), rows.max(0)
    if rows.min() < 0 or (np.diff(first) < 0).any() or (np.diff(last) < 0).any():
        return 0
    if least * len(np.unique(rows)) > extent:
        return 0
    slots = 1 << int((last - first).max()).bit_length()
    return slots if slots <= _MOST_TERMS else 0


# --- the code -------------------------------------------------------------------------------------------------------------


def _write(o: OpenFunction, found: tuple[_Resampling, ...], schedule: ResamplingSchedule) -> None:
    f, task, resampling, scratch = o.f, o.task, found[schedule.number], o.scratch()
    extent, nbytes = task.extents[resampling.axis], _row_bytes(task, resampling)
    prepared = _row_task(task, resampling)
    interpolated = _interpolated_task(task, resampling)
    elements, total = o.elements, math.prod(task.extents[k] for k in resampling.outer) * extent
    run = run_of(f, total, o.share, is_below(f, total * nbytes, 1 << 16))

    def slot(row: Int) -> Value:
        return f.at(scratch, f.mul(f.urem(row, resampling.slots), nbytes), "i8")

    def output_row(r: Int, carried: tuple[Value, ...]) -> tuple[Value, ...]:
        indices = _unraveled(f, r, [(k, task.extents[k]) for k in (*resampling.outer, resampling.axis)])
        given = {_outside(k): at for k, at in indices.items()}
        y = indices[resampling.axis]
        point = elements.at({f"i{k}": indices.get(k, 0) for k in range(len(task.extents))})
        rows = [point.integer(place) for place in resampling.places]
        first, last = rows[0], rows[0]
        for row in rows[1:]:
            first, last = f.minimum(first, row), f.maximum(last, row)
        ready = f.select(f.compare("icmp eq", y, 0), f.i64(0), carried[0])

        def prepare(row: Int, _: tuple[Value, ...]) -> None:
            emit_nest(o.alone(rows=slot(row)), prepared, schedule.nest, {**given, _ROW: row})

        f.loop(f.maximum(ready, first), f.add(last, 1), 1, prepare, rolled=True)
        kept = {f"rows{k}": slot(row) for k, row in enumerate(rows)}
        emit_nest(o.alone(**kept), interpolated, schedule.nest, given)
        return (f.i64(f.add(last, 1)),)

    f.loop(*run, 1, output_row, (f.i64(0),), rolled=True)


def _unraveled(f: Function, number: Int, loops: Sequence[tuple[int, int]]) -> dict[int, Int]:
    """The index of every loop, given as (name, extent) from the slowest to the fastest, at one step of all of them."""
    found: dict[int, Int] = {}
    for k, extent in reversed(loops):
        found[k] = f.urem(number, extent)
        number = f.udiv(number, extent)
    return found


def _outside(axis: int) -> str:
    """What a loop outside the rows is called in the tasks of one row."""
    return f"outside{axis}"


def _renamed(task: Task, resampling: _Resampling) -> dict[str, Expr]:
    """Loop variables as the tasks of one row know them: `i0`, `i1`, ... are those of the row."""
    names = {f"i{k}": index(_outside(k)) for k in (*resampling.outer, resampling.axis)}
    return names | {f"i{k}": index(f"i{position}") for position, k in enumerate(resampling.inner)}


def _row_operand(task: Task, resampling: _Resampling, name: str) -> Operand:
    shape = tuple(task.extents[k] for k in resampling.inner)
    strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
    return Operand(name, resampling.dtype, shape, strides)


def _along(resampling: _Resampling) -> tuple[Expr, ...]:
    return tuple(index(f"i{k}") for k in range(len(resampling.inner)))


def _row_task(task: Task, resampling: _Resampling) -> Task:
    """Write one prepared row to operand `rows`."""
    rows = _row_operand(task, resampling, "rows")
    value = substitute_indices(resampling.template, _renamed(task, resampling))
    return replace(
        task, extents=rows.shape, operands=(*task.operands, rows), stores=(Store("rows", _along(resampling), value),)
    )


def _interpolated_task(task: Task, resampling: _Resampling) -> Task:
    """The stores of one output row; the prepared rows are operands `rows0`, `rows1`, ..."""
    kept = tuple(_row_operand(task, resampling, f"rows{k}") for k in range(len(resampling.reads)))
    at = tuple(index(f"i{k}") for k in resampling.inner)
    loads = {read: load(f"rows{k}", resampling.dtype, at) for k, read in enumerate(resampling.reads)}
    names = _renamed(task, resampling)

    def one(root: Expr) -> Expr:
        return substitute_indices(substitute(root, loads.get), names)

    return replace(task.mapped(one), extents=kept[0].shape, operands=(*task.operands, *kept))


SEPARABLE_RESAMPLING = Kernel("blend-rows", _understand, _schedules, _arguments, written(_arguments, _write), _declines)
