"""The inputs' products of a recurrence: of a run of steps at once, or beside the products of the steps before.

A step's product of one sample reads every weight once, which takes longer than the multiply-adds that are made of it where
weights lie in the second cache level. Products of inputs read few weights for many multiply-adds. So a vector of sums of the next
run of steps is made in the loop that reads the weights of a group of blocks; a run has as many steps as a group has vectors,
which makes as many of the ones as of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewise.codegen.families.recurrent.product import TileProduct, product_of, reduce
from fusewise.codegen.families.recurrent.unit import CompanionProduct, Unit, panel_of, sums_of_step
from fusewise.codegen.nest.tree import Int, Value

__all__ = ["inputs_ahead", "inputs_of_group", "sums_ahead"]


def inputs_of_group(e: Unit, origin: Int, number: Int) -> None:
    """sums[step, row] = x W^T + biases of a group of blocks, for the steps of a run from `origin` on."""
    f, plan = e.f, e.plan
    (stage,), x, kept = plan.inputs, e.shape.views["x"], e.shape.gates * plan.width
    pointer = e.pointers[x.operand.name]
    column, panel = f.mul(number, stage.vectors * plan.lanes), panel_of(e, "w", plan.inputs, stage, number)

    def source(place: Int) -> Value:
        time = e.time(f.add(origin, f.udiv(place, plan.rows)))
        row = f.add(e.first, f.urem(place, plan.rows))
        return e.at(pointer, f.add(f.add(f.mul(time, x.strides[0]), f.mul(row, x.strides[1])), x.offset))

    def tile(first: Int) -> None:
        places = [f.add(first, k) for k in range(stage.rows)]
        start = [e.load(e.part("bias"), f.add(column, v * plan.lanes)) for v in range(stage.vectors)]
        rows = [source(place) for place in places]
        product = product_of(f, stage, rows, x.strides[2], panel, start * stage.rows)
        found = reduce(f, e.instructions, product, stage.chains)
        for k, place in enumerate(places):
            line = e.part("sums", f.add(f.mul(place, kept), column))
            for v in range(stage.vectors):
                e.store(found[k * stage.vectors + v], line, v * plan.lanes)

    e.tiles(plan.chunk * plan.rows, stage.rows, tile)


def _earliest(e: Unit, origin: Int) -> Int:
    """Where in the sequence the run of steps from `origin` on begins, whichever way it goes."""
    return e.f.minimum(e.time(origin), e.time(e.f.add(origin, e.plan.chunk - 1)))


def sums_ahead(e: Unit, run: Int, origin: Int, step: Value) -> Value:
    """The inputs' sums of a step in the run of this number, which begins at `origin`; they lie as time goes."""
    f = e.f
    half = f.mul(f.urem(run, 2), e.plan.chunk)
    return sums_of_step(e, f.add(half, f.sub(e.time(step), _earliest(e, origin))))


def inputs_ahead(e: Unit, run: Int, origin: Int, number: Int) -> CompanionProduct:
    """A vector of sums, of this number, for the steps of the run of another number, which begins at `origin`."""
    f, plan, x = e.f, e.plan, e.shape.views["x"]
    stage, kept = plan.inputs[0], e.shape.gates * plan.width
    panel = panel_of(e, "w", plan.inputs, stage, number)
    column = f.mul(f.add(f.mul(f.urem(number, plan.blocks), e.shape.gates), f.udiv(number, plan.blocks)), plan.lanes)
    first = f.add(f.add(f.mul(_earliest(e, origin), x.strides[0]), f.mul(e.first, x.strides[1])), x.offset)
    source = f.hidden(e.at(e.pointers[x.operand.name], first))
    rows = [e.at(source, k * x.strides[0]) for k in range(plan.chunk)]
    start = [e.load(e.part("bias"), column)] * plan.chunk
    to = e.at(sums_of_step(e, f.mul(f.urem(run, 2), plan.chunk)), column)

    def keep(sums: Sequence[Value]) -> None:
        for k, value in enumerate(sums):
            e.store(value, to, k * kept)

    return CompanionProduct(TileProduct(rows, x.strides[2], f.hidden(panel), stage.depth, start), keep)
