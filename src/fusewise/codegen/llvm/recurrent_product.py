"""The products of a recurrence: the order in which weights lie, and the tile that reads them.

Weights of a stage lie as `[direction][group of blocks][step of the reduction][block of the group][gate][lane]`, so a tile reads
them forwards. Hidden numbers beyond the last have weights of zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusewise.codegen.llvm.emit import Function, Int, Value
from fusewise.codegen.llvm.gemm_tile import multiply_add
from fusewise.codegen.llvm.recurrent_shape import RecurrentPlan, RecurrentShape, Stage
from fusewise.codegen.packing import packed
from fusewise.codegen.target import Target
from fusewise.codegen.view import View
from fusewise.ir.dtypes import FLOAT32
from fusewise.lower.program import Packing, Panels

__all__ = ["reduce", "repack", "weights"]

MOST_UNROLLED = 32
"""Multiply-adds that an iteration of a product's loop has."""


def reduce(
    f: Function,
    target: Target,
    stage: Stage,
    rows: Sequence[Value],
    step: int,
    panel: Value,
    start: Sequence[Value],
    none: Value | None = None,
) -> list[Value]:
    """The sums of a tile, row by row: what they start with, and every row's numbers, `step` apart, times a panel.

    Where `none` holds the numbers are known to be zeros, and few of them are looked at."""
    kind, vectors, chains = start[0].type, stage.vectors, stage.chains
    lanes, element = start[0].lanes, start[0].element
    sources, columns = [f.hidden(row) for row in rows], f.hidden(panel)
    zeros = [f.constant(0.0, kind)] * len(start)
    carried = [*start, *zeros * (chains - 1)]

    def add(k: Int, sums: list[Value], chain: int) -> None:
        line = f.at(columns, f.mul(k, vectors * lanes), element)
        loaded = [f.load(kind, f.at(line, v * lanes, element)) for v in range(vectors)]
        for r, source in enumerate(sources):
            value = f.splat(f.load(element, f.at(source, f.mul(k, step), element)), lanes)
            for v, column in enumerate(loaded):
                place = chain * len(start) + r * vectors + v
                sums[place] = multiply_add(f, target, value, column, sums[place])

    several = chains * max(1, MOST_UNROLLED // (len(start) * chains))
    whole = stage.depth // several * several

    def some(k: Value, sums: tuple[Value, ...]) -> list[Value]:
        following = list(sums)
        for number in range(several):
            add(f.add(k, number), following, number % chains)
        return following

    high: Int = whole if none is None else f.select(none, f.i64(0), f.i64(whole))
    found = list(f.loop(0, high, several, some, carried, rolled=True))
    for k in range(whole, stage.depth):
        add(k, found, k % chains)
    while len(found) > len(start):
        half = len(found) // 2
        found = [f.fadd(a, b) for a, b in zip(found[:half], found[half:], strict=True)]
    return found


def weights(s: RecurrentShape, plan: RecurrentPlan, view: View, stages: Sequence[Stage]) -> Packing:
    """Constant weights [directions, gates * hidden, depth] as the stages read them, one stage behind the other."""
    said = tuple((stage.gates, stage.together) for stage in stages)
    recipe = f"recurrent weights of {s.gates} gates by {plan.lanes}, {said}"
    return packed(view, recipe, lambda array: _arranged(s, plan, stages, array), _panels(s, plan, view, stages))


def _arranged(s: RecurrentShape, plan: RecurrentPlan, stages: Sequence[Stage], array: np.ndarray) -> np.ndarray:
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


def _panels(s: RecurrentShape, plan: RecurrentPlan, view: View, stages: Sequence[Stage]) -> Panels | None:
    """The same as data; None for what is left to NumPy: other types, several stages, vectors that are not full."""
    if view.operand.dtype != FLOAT32 or len(stages) > 1 or s.hidden % plan.lanes:
        return None
    (stage,) = stages
    starts = tuple(gate * s.hidden + block * plan.lanes for block in range(plan.blocks) for gate in stage.gates)
    outer, column, depth = zip(view.shape, view.strides, strict=True)
    return Panels(view.offset, (outer,), (depth,), column[1], starts, plan.lanes, stage.vectors)


def repack(
    f: Function,
    s: RecurrentShape,
    plan: RecurrentPlan,
    stages: Sequence[Stage],
    source: Value,
    strides: Sequence[int],
    to: Value,
) -> None:
    """The same of one direction's weights at `source`, [gates * hidden, depth] with these strides, while the model runs."""
    element, lanes = s.element, plan.lanes
    if s.hidden % lanes:
        f.clear(to, plan.packed(*stages) * s.nbytes)
    for stage in stages:
        begin = f.at(to, plan.packed(*stages[: stages.index(stage)]), element)
        for number, gate in enumerate(stage.gates):
            _repack_gate(f, s, plan, stage, number, f.at(source, gate * s.hidden * strides[0], element), strides, begin)


def _repack_gate(
    f: Function,
    s: RecurrentShape,
    plan: RecurrentPlan,
    stage: Stage,
    number: int,
    source: Value,
    strides: Sequence[int],
    to: Value,
) -> None:
    """The weights of a stage's gate of this number, from [hidden, depth]."""
    element, lanes = s.element, plan.lanes

    def hidden(n: Value, _: object) -> None:
        block = f.udiv(n, lanes)
        group, within = f.udiv(block, stage.together), f.urem(block, stage.together)
        first = f.mul(f.add(f.mul(within, len(stage.gates)), number), lanes)
        place = f.at(to, f.add(f.add(f.mul(group, plan.panel(stage)), first), f.urem(n, lanes)), element)
        row = f.at(source, f.mul(n, strides[0]), element)

        def copy(k: Value, _: object) -> None:
            value = f.load(element, f.at(row, f.mul(k, strides[1]), element))
            f.store(value, f.at(place, f.mul(k, stage.vectors * lanes), element))

        f.loop(0, stage.depth, 1, copy, rolled=True)

    f.loop(0, s.hidden, 1, hidden, rolled=True)
