"""Normalisations and the Softmax family: kernels over rows.

Softmax along a contiguous axis makes three passes over a row that stays in the first-level cache: the largest element; the
exponentials, kept in scratch memory, and their sum; the scaled result through the stores. Everything else is the operator's
definition in the generic nest, which computes the statistics once per row, or per vector of rows when the axis is not the
contiguous one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fusewise.codegen.families.generic.any_nest import (
    defined_in,
    emit_nest,
    is_below,
    nest_schedules,
    run_of,
    unsupported,
)
from fusewise.codegen.families.product.places import unravel
from fusewise.codegen.kernel import Argument, Kernel, Unscheduled, unscheduled, working_memory
from fusewise.codegen.llvm.elements import Elements, unwritten
from fusewise.codegen.llvm.entry import OpenFunction, operand_arguments, operands_alone, written
from fusewise.codegen.llvm.math import functions as mathfn
from fusewise.codegen.llvm.memory import access_of
from fusewise.codegen.llvm.plain import read_operand
from fusewise.codegen.llvm.reduction import across_lanes
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import register_type
from fusewise.codegen.target import InstructionSet
from fusewise.ir.deciding import hint, known_zero
from fusewise.ir.dtypes import FLOAT32, FLOAT64
from fusewise.ir.size import Size, SizeNeeded
from fusewise.lower.task import RefusalReason, Task
from fusewise.ops.expr import Expr, cast, index, reduce, walk

__all__ = ["ROWS", "SOFTMAX"]

_FAMILIES = frozenset(
    "softmax log_softmax layer_norm rms_norm group_norm instance_norm lp_norm mean_variance_norm lrn".split()
)


ROWS = Kernel(
    "rows",
    defined_in(_FAMILIES, "the anchor is not a normalisation"),
    nest_schedules,
    operands_alone,
    written(operands_alone, emit_nest),
)


# --- softmax along a contiguous axis --------------------------------------------------------------------------------------

_ROW = "row"  # the loop variable along the axis, in what is read


def _axis(task: Task) -> int:
    return int(task.anchored.attribute("axis", -1)) % len(task.extents)


def _element(task: Task) -> Expr:
    """The anchor's operand along a row, in the type arithmetic is done in."""
    axis = _axis(task)
    at = tuple(index(_ROW) if k == axis else index(f"i{k}") for k in range(len(task.extents)))
    x = read_operand(task.anchored, 0, at)
    return x if x.dtype == FLOAT64 else cast(x, FLOAT32)


def _understand_softmax(task: Task, instructions: InstructionSet) -> Expr | RefusalReason:
    """What is read, see `_element`."""
    if task.anchor is None or task.anchor.family != "softmax":
        return RefusalReason("the anchor is not a softmax", "" if task.anchor is None else task.anchor.op)
    if not task.extents or any(map(known_zero, task.extents)):
        return RefusalReason("there is nothing to compute", task.anchor.op)
    extent = task.extents[_axis(task)]
    if extent < 8 or extent > 1 << 16:
        return RefusalReason("the row is too short or too long", str(extent))
    x = _element(task)
    if any(node.op == "reduce" for node in walk(x)):
        return RefusalReason("what is read is itself a reduction", task.anchor.op)
    point = unwritten(task, instructions).at(dict.fromkeys((*task.ranges, _ROW), 0), _ROW, 2)
    for node in walk(x):
        if node.op == "load" and access_of(point, task.operand(node.value), node.args).pace not in (0, 1):
            return RefusalReason("the axis is not contiguous", node.value)
    return unsupported(task) or x


def _softmax_arguments(x: Expr, task: Task, schedule: Unscheduled) -> tuple[Argument, ...]:
    return (*operand_arguments(task, ()), working_memory(task.extents[_axis(task)] * x.dtype.itemsize))


def _write_softmax(o: OpenFunction, x: Expr, schedule: Unscheduled) -> None:
    f, task, axis, scratch, elements = o.f, o.task, _axis(o.task), o.scratch(), o.elements
    outer = {f"i{k}": extent for k, extent in enumerate(task.extents) if k != axis}
    units = math.prod(outer.values())

    def row(u: Int, _: tuple[Value, ...]) -> None:
        indices = dict(zip(outer, unravel(f, u, list(outer.values())), strict=True))
        _softmax_row(elements, x, {f"i{axis}": 0, **indices}, scratch)

    f.loop(*run_of(f, units, o.share, is_below(f, units * task.extents[axis], 2048)), 1, row, rolled=True)


def _softmax_row(elements: Elements, x: Expr, indices: Mapping[str, Int], scratch: Value) -> None:
    f, task, instructions = elements.function, elements.task, elements.instructions
    axis = _axis(task)
    extent, element = task.extents[axis], register_type(x.dtype)
    lanes = min(instructions.vector_bits // 8 // x.dtype.itemsize, 1 << (max(1, hint(extent)).bit_length() - 1))
    if extent < lanes:  # the last vector is moved back
        raise SizeNeeded(f"a row of {extent} has no {lanes} elements")
    kind = vector(element, lanes)
    peak = elements.at(indices).value(reduce("max", ((_ROW, extent),), x))

    def power(start: Int) -> Value:
        value = elements.at({**indices, _ROW: start}, _ROW, lanes).value(x)
        shifted = f.fsub(value, f.splat(peak, lanes))
        result = mathfn.call(f, instructions, "exp_below" if element == "float" else "exp", shifted)
        f.store(result, f.at(scratch, start, element))
        return result

    unroll = 2 if hint(extent) >= 2 * lanes else 1

    def block(i: Int, carried: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(f.fadd(sum_, power(f.add(i, u * lanes))) for u, sum_ in enumerate(carried))

    zero = f.constant(0.0, kind)
    blocks = extent // (lanes * unroll) * lanes * unroll
    sums = list(f.loop(0, blocks, lanes * unroll, block, (zero,) * unroll, rolled=True))
    if isinstance(extent, Size):
        sums[0] = f.loop(blocks, extent // lanes * lanes, lanes, lambda i, s: (f.fadd(s[0], power(i)),), sums[:1])[0]
    elif extent - blocks >= lanes:
        sums[0] = f.fadd(sums[0], power(blocks))
    fresh = extent % lanes
    if not known_zero(fresh):  # one more vector, moved back to end with the row; only its new lanes are counted
        last = power(extent - lanes)
        if isinstance(fresh, Size):
            new = f.compare("icmp sge", f.constants(range(lanes), "i64"), f.splat(f.i64(lanes - fresh), lanes))
        else:
            new = f.constants([k >= lanes - fresh for k in range(lanes)], "i1")
        sums[0] = f.fadd(sums[0], f.select(new, last, zero))
    total = sums[0] if unroll == 1 else f.fadd(*sums)
    total = across_lanes(f, instructions, "sum", total, x.dtype)
    inverse = f.binary("fdiv", f.constant(1.0, element), total)
    _scaled_row(elements, indices, scratch, inverse, lanes)


def _scaled_row(elements: Elements, indices: Mapping[str, Int], scratch: Value, inverse: Value, lanes: int) -> None:
    """The kept exponentials times `inverse`, through the stores."""
    f, task = elements.function, elements.task
    axis = _axis(task)
    extent, name = task.extents[axis], f"i{axis}"
    factor = f.splat(inverse, lanes)

    def finish(start: Int) -> None:
        kept = f.load(vector(inverse.type, lanes), f.at(scratch, start, inverse.type))
        acc = f.fmul(kept, factor)
        point = elements.at({**indices, name: start}, name, lanes, acc=acc)
        for store in task.stores:
            point.store(store)

    unroll = 2 if hint(extent) >= 2 * lanes else 1
    blocks = extent // (lanes * unroll) * lanes * unroll

    def block(i: Int, _: tuple[Value, ...]) -> None:
        for u in range(unroll):
            finish(f.add(i, u * lanes))

    f.loop(0, blocks, lanes * unroll, block, rolled=True)
    if isinstance(extent, Size):
        f.loop(blocks, extent // lanes * lanes, lanes, lambda i, _: finish(i), rolled=True)
    elif extent - blocks >= lanes:
        finish(blocks)
    if not known_zero(extent % lanes):
        finish(extent - lanes)


SOFTMAX = Kernel(
    "softmax-rows",
    _understand_softmax,
    unscheduled,
    _softmax_arguments,
    written(_softmax_arguments, _write_softmax),
)
