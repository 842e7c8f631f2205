"""The products of a recurrence: the order in which weights lie, and the tile that reads them.

Weights of a stage lie as `[direction][group of blocks][step of the reduction][block of the group][gate][lane]`, so a tile reads
them forwards. Hidden numbers beyond the last have weights of zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusewise.codegen.families.recurrent.shape import GateProduct, RecurrentPlan, RecurrentShape
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import multiply_add
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.packing import packed
from fusewise.codegen.target import InstructionSet
from fusewise.codegen.view import OperandView
from fusewise.ir.dtypes import FLOAT32
from fusewise.lower.program import Packing, Panels
from fusewise.records import record

__all__ = ["TileProduct", "product_of", "reduce", "repack", "weights"]

MOST_UNROLLED = 32
"""Multiply-adds that an iteration of a product's loop has."""


@record(frozen=True)
class TileProduct:
    """Sums of a tile, row by row: what they start with, and the numbers of every row of `sources`, `step` apart, times a panel.

    LLVM should not see how the panel and the sources were computed (`Function.hidden`)."""

    sources: Sequence[Value]
    step: int
    panel: Value
    depth: int
    start: Sequence[Value]

    @property
    def vectors(self) -> int:
        return len(self.start) // len(self.sources)


def product_of(
    f: Function, stage: GateProduct, rows: Sequence[Value], step: int, panel: Value, start: Sequence[Value]
) -> TileProduct:
    """A tile of a stage."""
    return TileProduct([f.hidden(row) for row in rows], step, f.hidden(panel), stage.depth, start)


def reduce(
    f: Function,
    instructions: InstructionSet,
    product: TileProduct,
    chains: int,
    none: Value | None = None,
    backwards: Value | None = None,
    beside: TileProduct | None = None,
) -> list[Value]:
    """The sums of a product, each made of so many that do not wait for each other, and those of another one `beside` it.

    Where `none` holds the numbers are known to be zeros, and few of them are looked at. Where `backwards` holds the panel is
    read from its end, a few lines at a time. The product beside is made in the same loop as far as it goes into it evenly."""
    count = len(product.start)
    zeros = [f.constant(0.0, product.start[0].type)] * count
    several = chains * max(1, MOST_UNROLLED // (count * chains))
    iterations = product.depth // several
    whole = iterations * several
    each = beside.depth // max(1, iterations) if beside is not None else 0
    begin, way = (
        (f.select(backwards, f.i64(a), f.i64(b)) for a, b in ((whole - several, 0), (-1, 1))) if backwards else (0, 1)
    )

    def some(k: Value, sums: tuple[Value, ...]) -> list[Value]:
        following, others = list(sums[: count * chains]), list(sums[count * chains :])
        first = f.add(f.mul(k, way), begin)
        other = f.mul(f.udiv(k, several), each)
        for number in range(several):
            _add(f, instructions, product, f.add(first, number), following, number % chains * count)
            for j in range(each * number // several, each * (number + 1) // several):
                if beside is not None:
                    _add(f, instructions, beside, f.add(other, j), others)
        return [*following, *others]

    carried = [*product.start, *zeros * (chains - 1), *(beside.start if beside is not None else ())]
    high: Int = whole if none is None else f.select(none, f.i64(0), f.i64(whole))
    done = list(f.loop(0, high, several, some, carried, rolled=True))
    found = done[: count * chains]
    for k in range(whole, product.depth):
        _add(f, instructions, product, k, found, k % chains * count)
    while len(found) > count:
        half = len(found) // 2
        found = [f.fadd(a, b) for a, b in zip(found[:half], found[half:], strict=True)]
    return (
        found
        if beside is None
        else [*found, *_rest(f, instructions, beside, each * iterations, done[count * chains :])]
    )


def _rest(
    f: Function, instructions: InstructionSet, product: TileProduct, begin: int, sums: Sequence[Value]
) -> tuple[Value, ...]:
    """The sums of a product whose steps before `begin` are in them already."""

    def step(k: Value, before: tuple[Value, ...]) -> list[Value]:
        following = list(before)
        _add(f, instructions, product, k, following)
        return following

    return f.loop(begin, product.depth, 1, step, sums, rolled=True)


def _add(
    f: Function, instructions: InstructionSet, product: TileProduct, k: Int, sums: list[Value], place: int = 0
) -> None:
    """The step `k` of a product added to its sums, which begin at a place among those given."""
    kind, vectors = product.start[0].type, product.vectors
    lanes, element = product.start[0].lanes, product.start[0].element
    line = f.at(product.panel, f.mul(k, vectors * lanes), element)
    loaded = [f.load(kind, f.at(line, v * lanes, element)) for v in range(vectors)]
    for r, source in enumerate(product.sources):
        value = f.splat(f.load(element, f.at(source, f.mul(k, product.step), element)), lanes)
        for v, column in enumerate(loaded):
            at = place + r * vectors + v
            sums[at] = multiply_add(f, instructions, value, column, sums[at])


def weights(s: RecurrentShape, plan: RecurrentPlan, view: OperandView, stages: Sequence[GateProduct]) -> Packing:
    """Constant weights [directions, gates * hidden, depth] as the stages read them, one stage behind the other."""
    said = tuple((stage.gates, stage.together) for stage in stages)
    recipe = f"recurrent weights of {s.gates} gates by {plan.lanes}, {said}"
    return packed(view, recipe, lambda array: _arranged(s, plan, stages, array), _panels(s, plan, view, stages))


def _arranged(s: RecurrentShape, plan: RecurrentPlan, stages: Sequence[GateProduct], array: np.ndarray) -> np.ndarray:
    directions, _, depth = array.shape
    whole = np.zeros((directions, s.gates, plan.width, depth), array.dtype)
    whole[:, :, : s.hidden] = array.reshape(directions, s.gates, s.hidden, depth)
    cut = []
    for stage in stages:
        groups = plan.blocks // stage.together
        shape = (directions, len(stage.gates), groups, stage.together, plan.lanes, depth)
        blocks = whole[:, list(stage.gates)].reshape(shape)
        cut.append(blocks.transpose(0, 2, 5, 3, 1, 4).reshape(directions, -1))
    return np.concatenate(cut, axis=1)


def _panels(s: RecurrentShape, plan: RecurrentPlan, view: OperandView, stages: Sequence[GateProduct]) -> Panels | None:
    """The same as data; None for what is left to NumPy: other types, stages that differ, vectors that are not full."""
    if view.operand.dtype != FLOAT32 or len({stage.vectors for stage in stages}) > 1 or s.hidden % plan.lanes:
        return None
    starts = tuple(
        gate * s.hidden + block * plan.lanes for stage in stages for block in range(plan.blocks) for gate in stage.gates
    )
    outer, column, depth = zip(view.shape, view.strides, strict=True)
    return Panels(view.offset, (outer,), (depth,), column[1], starts, plan.lanes, stages[0].vectors)


def repack(
    f: Function,
    s: RecurrentShape,
    plan: RecurrentPlan,
    stages: Sequence[GateProduct],
    source: Value,
    strides: Sequence[int],
    to: Value,
) -> None:
    """The same of one direction's weights at `source`, [gates * hidden, depth] with these strides, while the model runs."""
    element, lanes = s.element, plan.lanes
    if s.hidden % lanes:
        f.clear(to, plan.packed(*stages) * s.nbytes)

    def gate(stage: GateProduct, number: int, source: Value, begin: Value) -> None:
        """The weights of a stage's gate of this number, from [hidden, depth]."""

        def hidden(n: Value, _: object) -> None:
            block = f.udiv(n, lanes)
            group, within = f.udiv(block, stage.together), f.urem(block, stage.together)
            first = f.mul(f.add(f.mul(within, len(stage.gates)), number), lanes)
            place = f.at(begin, f.add(f.add(f.mul(group, plan.panel(stage)), first), f.urem(n, lanes)), element)
            row = f.at(source, f.mul(n, strides[0]), element)

            def copy(k: Value, _: object) -> None:
                value = f.load(element, f.at(row, f.mul(k, strides[1]), element))
                f.store(value, f.at(place, f.mul(k, stage.vectors * lanes), element))

            f.loop(0, stage.depth, 1, copy, rolled=True)

        f.loop(0, s.hidden, 1, hidden, rolled=True)

    for stage in stages:
        begin = f.at(to, plan.packed(*stages[: stages.index(stage)]), element)
        for number, which in enumerate(stage.gates):
            gate(stage, number, f.at(source, which * s.hidden * strides[0], element), begin)
