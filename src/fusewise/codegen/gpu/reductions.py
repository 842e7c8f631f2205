"""Long reductions with few results: many blocks have a part of the steps each, and a second kernel joins the parts.

    out = f(sum(r < 10_000_000: in[r]))
 -> scratch[p] = sum(r < chunk: in[p * chunk + r])        p < parts
    out = f(sum(p < parts: scratch[p]))

Both are nests, over working memory of float32. Parts are joined in one order, so answers repeat. One block alone would have the
bandwidth of one multiprocessor.
"""

from __future__ import annotations

import math
from dataclasses import replace

from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.kernel import SCRATCH, GpuKernel, NoKernel
from fusewise.codegen.gpu.nests import WIDEST, layout_of, nest, understood
from fusewise.codegen.gpu.source import TritonWriter
from fusewise.codegen.gpu.words import identity
from fusewise.ir.dtypes import FLOAT32
from fusewise.lower.task import Operand, Store, Task
from fusewise.ops.expr import (
    Expr,
    cast,
    compare,
    const,
    index,
    load,
    reduce,
    select,
    substitute,
    substitute_indices,
    walk,
)

__all__ = ["reduction"]

_LEAST_STEPS = 1 << 14
"""Steps of a reduction from which on parts of it are worth a second launch: 64 kB, about a microsecond of one multiprocessor.
Not measured on a GPU."""
_PART_STEPS = 1 << 12
"""Steps of a part, at least."""
_MOST_PARTS = 1 << 10
_BLOCKS = 4
"""Blocks for each multiprocessor that parts are made for."""


def reduction(task: Task, device: Device, precision: str = "float32") -> GpuKernel:
    """Two kernels for a task of one long reduction of floats, every result its own; `NoKernel` for others."""
    plain = understood(task)
    total = _only(plain)
    layout = layout_of(TritonWriter(plain), device)
    if layout is None or layout.columns or 0 in plain.extents:
        raise NoKernel("no reduction that blocks share")
    steps = math.prod(extent for _, extent in total.value[1])
    blocks = -(-layout.row_count // layout.row_tile)
    parts = min(_MOST_PARTS, steps // _PART_STEPS, _BLOCKS * device.sms // blocks)
    if steps < _LEAST_STEPS or parts < 2:
        raise NoKernel("short reductions, or blocks enough")
    first, second, parts = _in_parts(plain, total, parts)
    scratch = 4 * parts * layout.row_count
    way = f"in {parts} parts: "
    before, behind = nest(first, device), nest(second, device)
    behind = replace(behind, way=f"parts joined: {behind.way}")
    return replace(before, way=way + before.way, scratch_bytes=scratch, then=(behind,))


def _only(task: Task) -> Expr:
    """The one reduction that a task is about."""
    found = {node for store in task.stores for node in walk(store.value) if node.op == "reduce"}
    if len(found) != 1:
        raise NoKernel(f"{len(found)} reductions")
    (total,) = found
    if not total.dtype.is_float or total.dtype.bits > FLOAT32.bits or total.value[0] not in ("sum", "max", "min"):
        raise NoKernel(f"the {total.value[0]} of {total.dtype.name}")
    return total


def _in_parts(task: Task, total: Expr, parts: int) -> tuple[Task, Task, int]:
    """Tasks for parts and for what is made of them, and how many there are: along the longest loop of the reduction."""
    kind, axes = total.value
    name, extent = max(axes, key=lambda axis: axis[1])
    chunk = -(-extent // min(parts, extent))
    chunk = -(-chunk // WIDEST) * WIDEST if chunk >= WIDEST else chunk
    parts = -(-extent // chunk)
    rows = math.prod(task.extents)
    number = const(0)
    for k, n in enumerate(task.extents):
        number = number * n + index(f"i{k}")
    part = index(f"i{len(task.extents)}")
    step = part * chunk + index(name)
    body = substitute_indices(total.args[0], {name: step})
    body = body if body.dtype == FLOAT32 else cast(body, FLOAT32)
    if extent % chunk:
        body = select(compare("lt", step, extent), body, const(identity(kind, FLOAT32), FLOAT32))
    inner = tuple((axis, chunk if axis == name else n) for axis, n in axes)
    scratch = Operand(SCRATCH, FLOAT32, (parts * rows,), (1,))
    outputs = {store.operand for store in task.stores}
    first = Task(
        (*task.extents, parts),
        (*(o for o in task.operands if o.name in _reads(body)), scratch),
        (Store(SCRATCH, (part * rows + number,), reduce(kind, inner, body)),),
        exact=task.exact,
    )
    joined = reduce(kind, ((name, parts),), load(SCRATCH, FLOAT32, (index(name) * rows + number,)))
    joined = joined if total.dtype == FLOAT32 else cast(joined, total.dtype)
    second = task.mapped(lambda root: substitute(root, lambda node: joined if node == total else None))
    read = set[str]().union(*(_reads(store.value) for store in second.stores))
    kept = tuple(o for o in task.operands if o.name in outputs | read)
    return first, replace(second, operands=(*kept, scratch)), parts


def _reads(root: Expr) -> set[str]:
    return {node.value for node in walk(root) if node.op == "load"}
