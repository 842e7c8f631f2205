"""Windows over one channel each: depthwise convolutions, pooling, and whatever else adds up a few neighbours.

Each lane has some elements of the result that lie beside each other, and adds up by itself. The steps are written out: there are
few, so loads do not wait for each other, what two steps share is computed once, and where a window hangs over the edge is asked by
row and column. A product's tiles and a reduction by lanes are both for sums that are longer, or of which neighbours share the data.

Weights lie so that those of one step are beside each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.kernel import GpuKernel, NoKernel
from fusewise.codegen.gpu.nests import finished, flat_over, understood
from fusewise.codegen.gpu.source import TritonWriter
from fusewise.codegen.llvm.loops import loop_ranges
from fusewise.ir.dtypes import BOOL, FLOAT32
from fusewise.lower.index import Simplifier
from fusewise.lower.program import Packing
from fusewise.lower.task import ACC, Operand, Task
from fusewise.ops.expr import Expr, binary, cast, const, index, load, substitute, substitute_indices, walk

__all__ = ["window"]

_MOST_STEPS = 64
"""Steps of a window that are written out, at most: 49 of 7 by 7."""
_MOST_WORDS = 3000
"""Operations of a kernel's text."""
_SHORT = 32
"""Steps of a sum below which neighbours' data need not lie beside each other."""
_LANES = 128
"""Elements for each multiprocessor, at least, whose sums are longer than that."""
_NEAR = 4
"""Elements that neighbours' data lie apart, at most: strides of a window."""
_COMBINED = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "and": "and", "or": "or"}


def window(task: Task, device: Device, precision: str = "float32") -> GpuKernel:
    """A kernel for a task that reduces small windows of its own for every element; `NoKernel` for others."""
    plain = understood(task)
    reductions = [node for store in plain.stores for node in walk(store.value) if node.op == "reduce"]
    if not reductions or 0 in plain.extents:
        raise NoKernel("no windows")
    writer = TritonWriter(plain)
    for reduction in reductions:
        _check(writer, reduction, device)
    packed, packings = _repacked(plain)
    writer = TritonWriter(_written_out(packed))
    if sum(1 for store in writer.task.stores for _ in walk(store.value)) > _MOST_WORDS:
        raise NoKernel("windows of too many operations")
    count = math.prod(plain.extents)
    steps = max(math.prod(extent for _, extent in node.value[1]) for node in reductions)
    sizes = (512, 256) if steps < _SHORT else (256,)
    block = next((size for size in sizes if count >= 2 * size * device.sms), _LANES)
    blocks = flat_over(writer, block)
    kernel = finished(writer, f"window_{task.digest}", blocks, 4, f"windows, {block} elements to a block")
    return replace(kernel, packed=packings)


def _check(writer: TritonWriter, reduction: Expr, device: Device) -> None:
    """Refuse what is no small window, each element's own."""
    kind, axes = reduction.value
    steps = math.prod(extent for _, extent in axes)
    if steps > _MOST_STEPS or kind not in _COMBINED:
        raise NoKernel(f"a reduction of {steps} steps")
    own = [name for name, extent in writer.task.ranges.items() if extent > 1]
    loads = [node for node in walk(reduction.args[0]) if node.op == "load" and node.value != ACC]
    whole = [node for node in loads if set(own) <= writer.free(node)]
    if loads and not whole:
        raise NoKernel("data that several elements share")
    if steps < _SHORT:
        return
    if math.prod(writer.task.extents) < _LANES * device.sms:
        raise NoKernel("few and long sums")
    for node in whole:
        if not 0 < abs(dict(writer.simplifier.linear(node.args[0]).terms).get(index(own[-1]), 0)) <= _NEAR:
            raise NoKernel("long sums whose neighbours lie apart")


# --- steps ----------------------------------------------------------------------------------------------------------------


def _written_out(task: Task) -> Task:
    """The task with a word for each step in place of its reductions; sums of 16 bits are of float32."""
    moved = task.mapped(lambda root: substitute(root, _steps_of))
    return moved.mapped(Simplifier(loop_ranges(moved)).simplify)


def _steps_of(node: Expr) -> Expr | None:
    if node.op != "reduce":
        return None
    kind, axes = node.value
    if any(extent == 0 for _, extent in axes):
        raise NoKernel("a reduction of nothing")
    wide = FLOAT32 if node.dtype.is_float and node.dtype.bits < FLOAT32.bits else node.dtype
    word = {"sum": "or", "max": "or", "prod": "and", "min": "and"}.get(kind, kind) if wide == BOOL else _COMBINED[kind]
    found: Expr | None = None
    for at in itertools.product(*(range(extent) for _, extent in axes)):
        one = substitute_indices(node.args[0], {name: const(k) for (name, _), k in zip(axes, at, strict=True)})
        one = one if one.dtype == wide else cast(one, wide)
        found = one if found is None else binary(word, found, one)
    assert found is not None
    return found if wide == node.dtype else cast(found, node.dtype)


# --- weights --------------------------------------------------------------------------------------------------------------


def _repacked(task: Task) -> tuple[Task, tuple[tuple[str, Packing], ...]]:
    """The task with constants rearranged whose neighbours along the last axis lie apart."""
    packings: list[tuple[str, Packing]] = []
    for operand in [o for o in task.operands if o.constant]:
        found = _order_of(task, operand)
        if found is not None:
            read, steps, start = found
            task, packing = _with_order(task, operand, read, steps, start)
            packings.append((operand.name, packing))
    return task, tuple(packings)


Steps = tuple[tuple[str, int, int], ...]
"""Variables with their extents and how far apart a constant's elements lie along them."""


def _order_of(task: Task, operand: Operand) -> tuple[Expr, Steps, int] | None:
    """The one read of a constant, its steps in a better order, and where it begins; None where it lies well or is read more."""
    reads = list(_reads(task, operand.name))
    if len(reads) != 1 or operand.dtype == BOOL:
        return None
    ranges = loop_ranges(task)
    form = Simplifier(ranges).linear(reads[0].args[0])
    if any(atom.op != "index" or step < 0 for atom, step in form.terms):
        return None
    known = {atom.value: step for atom, step in form.terms}
    own = [name for name in task.ranges if name in known]
    if not own or known[own[-1]] == 1 or len(known) < 2:
        return None
    order = [name for name in known if name not in own] + own
    return reads[0], tuple((name, ranges[name], known[name]) for name in order), form.constant + operand.offset


def _reads(task: Task, name: str) -> Iterator[Expr]:
    seen = {node for store in task.stores for node in walk(store.value) if node.op == "load" and node.value == name}
    return iter(seen)


def _with_order(task: Task, operand: Operand, read: Expr, steps: Steps, start: int) -> tuple[Task, Packing]:
    shape = [extent for _, extent, _ in steps]

    def pack(array: np.ndarray) -> np.ndarray:
        flat = np.ascontiguousarray(array).reshape(-1)
        strides = [step * flat.itemsize for _, _, step in steps]
        return np.ascontiguousarray(np.lib.stride_tricks.as_strided(flat[start:], shape, strides))

    size = math.prod(shape)
    place: Expr = const(0)
    apart = size
    for name, extent, _ in steps:
        apart //= extent
        place = place + index(name) * apart
    fresh = load(operand.name, operand.dtype, (place,))
    packed = Operand(operand.name, operand.dtype, (size,), (1,), constant=True, alignment=64)
    moved = task.mapped(lambda root: substitute(root, lambda node: fresh if node == read else None))
    others = tuple(packed if o.name == operand.name else o for o in moved.operands)
    recipe = f"gpu window {[(extent, step) for _, extent, step in steps]} at {start}"
    return replace(moved, operands=others), Packing(recipe, pack, nbytes=size * operand.dtype.itemsize)
