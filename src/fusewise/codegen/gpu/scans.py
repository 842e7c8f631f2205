"""Running sums and products: each element adds up the row before it by itself.

That is the square of a row's work, and still nothing beside a launch for the lengths of sequences, whose positions exporters count
so. Of longer rows sums of chunks are made first, and an element adds up those of the chunks before its own, and its own so far.
"""

from __future__ import annotations

import math
from dataclasses import replace

from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.kernel import SCRATCH, GpuKernel, NoKernel
from fusewise.codegen.gpu.nests import nest, next_power
from fusewise.lower.layout import row_major
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.ops.expr import (
    Expr,
    binary,
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
from fusewise.records import record

__all__ = ["MOST_ADDITIONS", "scan"]

MOST_ADDITIONS = 1 << 33
"""Of all elements: some milliseconds of a large GPU. Not measured on a GPU."""
_AT_ONCE = 1 << 26
"""The same of one kernel, from where on two do less than a launch is worth."""


def scan(task: Task, device: Device, precision: str) -> GpuKernel:
    """A kernel or two for CumSum or CumProd along an axis that is known; `NoKernel` for others."""
    if task.anchor is None or task.anchor.family != "scan":
        raise NoKernel("no running sum")
    if not task.is_fixed:
        raise NoKernel("a kernel for a GPU is written for known sizes")
    found = _Scan.of(task.anchor, task.extents)
    count, length = math.prod(task.extents), found.length
    if count * length <= _AT_ONCE:
        return nest(found.stored(task, found.so_far(const(0), length)), device)
    chunk = next_power(math.isqrt(length))
    if count * (chunk + -(-length // chunk)) > MOST_ADDITIONS:
        raise NoKernel(f"{task.anchor.op} of {count} elements in rows of {length}")
    first, second = found.in_chunks(task, chunk)
    before, behind = nest(first, device), nest(second, device, flat=True)
    nbytes = math.prod(first.extents) * first.stores[0].value.dtype.itemsize
    behind = replace(behind, way=f"those before and the element's own so far: {behind.way}")
    return replace(before, way=f"chunks of {chunk}: {before.way}", scratch_bytes=nbytes, then=(behind,))


@record(frozen=True)
class _Scan:
    """What comes in, in the type that is added up in, along an axis: steps go along it, or from its end on."""

    element: Expr
    axis: int
    length: int
    kind: str
    is_reverse: bool
    is_exclusive: bool

    @classmethod
    def of(cls, anchor: Anchor, extents: tuple[int, ...]) -> _Scan:
        along = anchor.element(1)
        if along.op != "const":
            raise NoKernel(f"{anchor.op} along an axis that is not known")
        axis, kind = int(along.value), "prod" if anchor.op == "CumProd" else "sum"
        reverse, exclusive = (bool(anchor.attribute(name, 0)) for name in ("reverse", "exclusive"))
        return cls(anchor.element(0), axis, extents[axis], kind, reverse, exclusive)

    @property
    def neutral(self) -> Expr:
        return const(int(self.kind == "prod"), self.element.dtype)

    def _turned(self, place: Expr) -> Expr:
        """The step of an element, and the element of a step."""
        return self.length - 1 - place if self.is_reverse else place

    def at(self, step: Expr) -> Expr:
        """The element of a step."""
        return substitute_indices(self.element, {f"i{self.axis}": self._turned(step)})

    @property
    def here(self) -> Expr:
        """The step of the result's element."""
        return self._turned(index(f"i{self.axis}"))

    def so_far(self, begin: Expr, steps: int) -> Expr:
        """What has come together at an element of `steps` steps from `begin` on."""
        step = begin + index("r0")
        reached = compare("lt" if self.is_exclusive else "le", step, self.here)
        return reduce(self.kind, (("r0", steps),), select(reached, self.at(step), self.neutral))

    def stored(self, task: Task, value: Expr) -> Task:
        """The task with a value for the sum."""

        def whole(node: Expr) -> Expr | None:
            return value if node.op == "load" and node.value == ACC else None

        return replace(task.mapped(lambda root: substitute(root, whole)), anchor=None)

    def in_chunks(self, task: Task, chunk: int) -> tuple[Task, Task]:
        """Tasks for sums of chunks, and for what is made of them."""
        chunks = -(-self.length // chunk)
        extents = (*task.extents[: self.axis], chunks, *task.extents[self.axis + 1 :])
        scratch = Operand(SCRATCH, self.element.dtype, extents, row_major(extents))
        at = tuple(index(f"i{d}") for d in range(len(extents)))
        step = at[self.axis] * chunk + index("r0")
        inside = compare("lt", step, self.length)
        whole = reduce(self.kind, (("r0", chunk),), select(inside, self.at(step), self.neutral))
        read = {node.value for node in walk(whole) if node.op == "load"}
        operands = (*(operand for operand in task.operands if operand.name in read), scratch)
        first = Task(extents, operands, (Store(SCRATCH, at, whole),), exact=task.exact)
        own = self.here // chunk
        there = (*at[: self.axis], index("r1"), *at[self.axis + 1 :])
        others = select(compare("lt", index("r1"), own), load(SCRATCH, self.element.dtype, there), self.neutral)
        before = reduce(self.kind, (("r1", chunks),), others)
        joined = binary("mul" if self.kind == "prod" else "add", before, self.so_far(own * chunk, chunk))
        return first, self.stored(replace(task, operands=(*task.operands, scratch)), joined)
