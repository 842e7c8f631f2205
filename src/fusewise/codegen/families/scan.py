"""Running sums and products: one pass over the data, whatever its layout.

Takes a task as `lower.scan` makes it. Where an axis beside the one that is summed along lies side by side in memory, vectors run
along it and carry their sums in registers. Where the summed axis does, a vector is summed up within itself by shifts, in
log2(lanes) steps, and the sum of all before it is added to that:

    x0 x1 x2 x3  ->  x0 x0+x1 x1+x2 x2+x3  ->  x0 x0+x1 x0+x1+x2 x0+x1+x2+x3

which adds floats in another order, and is left out where that is not wanted, and for products of floats. Everything else goes
element by element. An axis that is known at run time alone is compared with each there is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from fusewise.codegen.families.generic.any_nest import is_below, run_of, supported
from fusewise.codegen.families.product.places import unravel
from fusewise.codegen.kernel import Kernel, Unscheduled, unscheduled
from fusewise.codegen.llvm.arithmetic import apply_binary
from fusewise.codegen.llvm.elements import Elements
from fusewise.codegen.llvm.entry import OpenFunction, operands_alone, written
from fusewise.codegen.llvm.reduction import lanes_for
from fusewise.codegen.llvm.share import SERIAL_WORK, Share
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import register_type
from fusewise.ir.deciding import hint, known_below, known_one
from fusewise.ir.dtypes import DType
from fusewise.ir.size import SizeNeeded
from fusewise.lower.task import Task
from fusewise.ops.expr import Expr
from fusewise.records import record

__all__ = ["SCAN"]

MOST_VECTORS = 4
"""That are carried at once, beside each other."""


@record
class _Scan:
    """One task's code along one of its axes."""

    elements: Elements
    share: Share
    axis: int

    @property
    def function(self) -> Function:
        return self.elements.function

    @property
    def task(self) -> Task:
        return self.elements.task

    @property
    def element(self) -> Expr:
        return self.task.anchored.element(0)

    @property
    def dtype(self) -> DType:
        """What is added up in."""
        return self.element.dtype

    @property
    def product(self) -> bool:
        return self.task.anchored.op == "CumProd"

    def setting(self, name: str) -> bool:
        return bool(self.task.anchored.attribute(name, 0))

    def run(self) -> None:
        extents = self.task.extents
        dense = [d for d in range(len(extents)) if not known_below(extents[d], 2) and self._lies_side_by_side(d)]
        widest = [self.dtype, self.task.operands[0].dtype]
        across = next((d for d in dense if d != self.axis), -1)
        if across >= 0:
            extent = extents[across]
            lanes = lanes_for(self.elements.instructions, widest, hint(extent))
            vectors = max(n for n in range(1, MOST_VECTORS + 1) if n * lanes <= max(1, hint(extent)))
            if lanes * vectors > 1 and extent < lanes * vectors:  # the last are moved back
                raise SizeNeeded(f"{extent} elements are not {lanes * vectors}")
            self._lines(across, lanes * vectors, lambda at: self._across(at, across, lanes, vectors))
            return
        lanes = lanes_for(self.elements.instructions, widest, hint(extents[self.axis]))
        ordered = self.dtype.is_float and (
            self.task.exact or self.product
        )  # of a product errors grow with every factor
        within = self.axis in dense and lanes > 2 and not ordered
        self._lines(-1, 1, self._within(lanes) if within else lambda at: self._across(at, -1, 1, 1))

    def _lies_side_by_side(self, axis: int) -> bool:
        data = (self.task.operand(load) for load in (self._source, "out0"))
        return all(known_one(operand.strides[axis]) for operand in data)

    @property
    def _source(self) -> str:
        return next(o.name for o in self.task.operands if o.name in ("in0", "const0"))

    def _lines(self, across: int, width: int, body: Callable[[dict[str, Int]], None]) -> None:
        """`body(indices)` for every line, or `width` of them side by side along `across`; the last are moved back to fit."""
        f, extents = self.function, self.task.extents
        others = [d for d in range(len(extents)) if d != self.axis]
        counts = [-(-extents[d] // width) if d == across else extents[d] for d in others]
        run = run_of(f, math.prod(counts), self.share, is_below(f, 2 * math.prod(extents), SERIAL_WORK + 1))

        def line(number: Int, _: Sequence[Value]) -> None:
            at = dict(zip(others, unravel(f, number, counts), strict=True))
            if across in at:
                at[across] = f.minimum(f.mul(at[across], width), extents[across] - width)
            body({f"i{d}": place for d, place in at.items()})

        f.loop(*run, 1, line, rolled=True)

    def _combined(self, a: Value, b: Value) -> Value:
        return apply_binary(
            self.function, self.elements.instructions, "mul" if self.product else "add", a, b, self.dtype
        )

    def _neutral(self, lanes: int) -> Value:
        return self.function.constant(int(self.product), vector(register_type(self.dtype), lanes))

    def _place(self, step: Value, width: int = 1) -> Int:
        """Where along the axis `width` elements lie that come after `step` others."""
        f = self.function
        return f.sub(self.task.extents[self.axis] - width, step) if self.setting("reverse") else step

    def _across(self, at: Mapping[str, Int], lane: int, lanes: int, vectors: int) -> None:
        """All of a line, or of some side by side."""
        self._from(0, at, lane, lanes, [self._neutral(lanes)] * vectors)

    def _from(self, first: Int, at: Mapping[str, Int], lane: int, lanes: int, sums: Sequence[Value]) -> None:
        """What comes after `first` others, element by element along the axis."""
        f, name = self.function, f"i{lane}"

        def step(k: Value, sums: tuple[Value, ...]) -> list[Value]:
            after = []
            for number, total in enumerate(sums):
                here = {**at, f"i{self.axis}": self._place(k)}
                if lanes > 1:
                    here[name] = f.add(here[name], number * lanes)
                x = self.elements.at(here, name, lanes).value(self.element)
                after.append(self._combined(total, x))
                result = total if self.setting("exclusive") else after[-1]
                self.elements.at(here, name, lanes, acc=result).store(self.task.stores[0])
            return after

        f.loop(first, self.task.extents[self.axis], 1, step, sums, rolled=True)

    def _within(self, lanes: int) -> Callable[[dict[str, Int]], None]:
        """A line by vectors that are summed up within themselves, and what is left of it by elements."""
        f, extent, name = self.function, self.task.extents[self.axis], f"i{self.axis}"
        reverse, neutral = self.setting("reverse"), self._neutral(lanes)
        last, whole = 0 if reverse else lanes - 1, extent // lanes * lanes

        def moved(x: Value, by: int) -> Value:
            """Every element `by` lanes further from where the line begins."""
            order = [k + by if reverse else k - by for k in range(lanes)]
            return f.shuffle(x, neutral, [k if 0 <= k < lanes else lanes for k in order])

        def step(k: Value, sums: tuple[Value, ...]) -> list[Value]:
            here = {**at, name: self._place(k, lanes)}
            x = self.elements.at(here, name, lanes).value(self.element)
            by = 1
            while by < lanes:
                x = self._combined(moved(x, by), x)
                by *= 2
            result = self._combined(sums[0], moved(x, 1) if self.setting("exclusive") else x)
            self.elements.at(here, name, lanes, acc=result).store(self.task.stores[0])
            return [self._combined(sums[0], f.shuffle(x, x, [last] * lanes))]

        def line(indices: dict[str, Int]) -> None:
            at.update(indices)
            (total,) = f.loop(0, whole, lanes, step, [neutral], rolled=True)
            self._from(whole, indices, -1, 1, [f.extract(total, 0)])

        at: dict[str, Int] = {}
        return line


def _write(o: OpenFunction, task: Task, schedule: Unscheduled) -> None:
    f, elements = o.f, o.elements
    axis = elements.at({}).integer(task.anchored.element(1))

    def along(known: int) -> None:
        _Scan(elements, o.share, known).run()

    if isinstance(axis, int):
        along(axis)
    else:
        for known in range(len(task.extents)):
            f.when(f.compare("icmp eq", axis, known), lambda known=known: along(known))  # type: ignore[misc]


SCAN = Kernel("scan", supported, unscheduled, operands_alone, written(operands_alone, _write))
