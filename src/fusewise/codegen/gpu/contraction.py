"""Matrix products and convolutions read off their definitions: one sum of products, whatever operator it came from.

    Conv       sum(c, ky, kx:  select(inside, x[n, c, y + ky, x + kx], 0) * w[m, c, ky, kx])
    MatMul     sum(k:          a[b, m, k] * b[k, n])

What an output index belongs to follows from who depends on it: the left factor alone (rows), the right one alone (columns), both
(batch: groups of a convolution, matrices of a stack). Variables of the sum are its depth. Prologues are part of the factors, and
what is done with the sum, bias and scales included, is the rest of what is stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fusewise.codegen.gpu.kernel import NoKernel
from fusewise.codegen.gpu.nests import outermost_reductions, understood
from fusewise.codegen.gpu.phases import in_phases
from fusewise.codegen.gpu.source import TritonWriter
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT8, INT32, UINT8
from fusewise.lower.task import Task
from fusewise.ops.expr import Expr, binary, index, walk
from fusewise.records import record

__all__ = ["Axes", "Contraction", "Factor", "contraction", "extent_of", "main_load", "steps_of"]

Axes = tuple[tuple[str, int], ...]


@record(frozen=True)
class Factor:
    """`value` where `guard` holds, and 0 elsewhere. What the definition leaves out contributes 0 times the other factor, so that an
    infinity there gives NaN."""

    value: Expr
    guard: Expr | None = None


@record(frozen=True)
class Contraction:
    """`total`, a sum of products, in the stores of a `task` without anchor.

    `kind` is what factors are multiplied as: `float32`; `float16` and `bfloat16` where both are of it; `int8` where both are; or
    `bytes`, integers that are bytes less a zero point. The sum is float32, or int32 of integers.
    """

    task: Task
    total: Expr
    left: Factor
    right: Factor
    rows: Axes
    columns: Axes
    batch: Axes
    depth: Axes
    kind: str

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Rows, columns, depth and matrices."""
        return extent_of(self.rows), extent_of(self.columns), extent_of(self.depth), extent_of(self.batch)


def extent_of(axes: Axes) -> int:
    """How many elements some axes have together."""
    return math.prod(extent for _, extent in axes)


def contraction(task: Task) -> Contraction:
    """The sum of products that a task is made of; `NoKernel` for other tasks, and those that have nothing to compute."""
    plain = understood(in_phases(task))
    if 0 in plain.extents:
        raise NoKernel("nothing to compute")
    total = _only_sum(plain)
    factors, conditions = _factors(total.args[0])
    writer = TritonWriter(plain)
    depth = tuple(axis for axis in total.value[1] if axis[1] > 1)
    own = [writer.free(x) - {name for name, _ in total.value[1]} for x in factors]
    shared = own[0] & own[1]
    columns = tuple(axis for axis in plain.ranges.items() if axis[0] in own[1] - shared)
    batch = tuple(axis for axis in plain.ranges.items() if axis[0] in shared)
    rows = tuple(axis for axis in plain.ranges.items() if axis[0] not in own[1])
    if not own[0] - shared and not columns:
        raise NoKernel("factors that no result reads but its own")
    if any(node.op == "reduce" and writer.free(node) & dict(depth).keys() for x in factors for node in walk(x)):
        raise NoKernel("a reduction within the sum")
    guards = _guards(writer, conditions, (rows, columns), {*dict(batch), *dict(total.value[1])})
    sides = {*dict(rows), *dict(columns)}
    if task.anchor is None and any(writer.free(condition) & sides for condition in conditions):
        # those of operators are of their data alone; of others nobody knows what the other factor is where they do not hold
        raise NoKernel("a condition on one factor that the other is not under")
    kind, values = _multiplied(factors)
    left, right = (Factor(x, guard) for x, guard in zip(values, guards, strict=True))
    return Contraction(plain, total, left, right, rows, columns, batch, depth, kind)


def _only_sum(task: Task) -> Expr:
    """The one reduction that is in no other."""
    found = outermost_reductions(task)
    if len(found) != 1:
        raise NoKernel("no sum of products" if not found else "several reductions")
    (total,) = found
    if total.value[0] != "sum" or total.dtype not in (FLOAT32, INT32):
        raise NoKernel(f"the {total.value[0]} of {total.dtype.name}")
    if any(extent == 0 for _, extent in total.value[1]):
        raise NoKernel("an empty sum")
    return total


def _factors(body: Expr) -> tuple[tuple[Expr, Expr], list[Expr]]:
    """What is multiplied, and the conditions under which it is."""
    conditions = list[Expr]()
    while body.op == "select" and body.args[2].op == "const" and body.args[2].value == 0:
        conditions += _conjuncts(body.args[0])
        body = body.args[1]
    if body.op != "mul":
        raise NoKernel("a sum of what is no product")
    return (body.args[0], body.args[1]), conditions


def _conjuncts(condition: Expr) -> list[Expr]:
    found, stack = list[Expr](), [condition]
    while stack:
        node = stack.pop()
        if node.op == "and":
            stack += reversed(node.args)
        else:
            found.append(node)
    return found


def _guards(
    writer: TritonWriter, conditions: Sequence[Expr], sides: tuple[Axes, Axes], common: set[str]
) -> list[Expr | None]:
    """The conditions of each factor: those on its axes, and those on none of either."""
    found: list[Expr | None] = [None, None]
    for condition in conditions:
        own = [writer.free(condition) <= common | dict(axes).keys() for axes in sides]
        if not any(own):
            raise NoKernel("a condition on rows and columns")
        for side in range(2):
            before = found[side]
            if own[side]:
                found[side] = condition if before is None else binary("and", before, condition)
    return found


def _multiplied(factors: tuple[Expr, Expr]) -> tuple[str, tuple[Expr, Expr]]:
    """What factors are multiplied as, and the factors as that."""
    wide = factors[0].dtype
    narrow = tuple(x.args[0] if x.op == "cast" and x.dtype == wide else x for x in factors)
    for dtype in (INT8,) if wide == INT32 else (FLOAT16, BFLOAT16):
        if all(x.dtype == dtype for x in narrow):
            return dtype.name, (narrow[0], narrow[1])
    if wide == INT32:
        if not all(map(_is_byte_less_zero, factors)):
            raise NoKernel("integers that are no bytes")
        return "bytes", factors
    return FLOAT32.name, factors


def _is_byte_less_zero(x: Expr) -> bool:
    """Is it a byte, or the difference of two of a type?"""
    parts = x.args if x.op == "sub" else (x,)
    kinds = {part.args[0].dtype if part.op == "cast" else part.dtype for part in parts}
    return kinds in ({INT8}, {UINT8})


def main_load(x: Expr) -> Expr | None:
    """The load that a factor is, but for a conversion; None where something is computed."""
    while x.op == "cast" and (x.dtype.is_float == x.args[0].dtype.is_float):
        (x,) = x.args
    return x if x.op == "load" else None


def steps_of(writer: TritonWriter, x: Expr) -> Mapping[str, int]:
    """How far apart neighbours along each variable lie, in elements, in the load of a factor that most of them move."""
    found: dict[str, int] = {}
    for node in walk(x):
        if node.op != "load":
            continue
        steps: dict[str, int] = {}
        for atom, step in writer.simplifier.linear(node.args[0]).terms:
            for name in writer.free(atom):
                steps[name] = step if atom == index(name) else 0
        if len(steps) > len(found):
            found = steps
    return found
