"""Forests of decision trees: some rows go down a tree side by side, or few rows some trees, each without a branch.

Where a walk goes next is read from the tables, so that walks are chains of loads, of which a core has many under way at once. A
leaf is its own child: all walks take as many steps as the deepest of the trees has levels. Workers share out rows, for so many
targets at once; what leaves add is added in the order of trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fusewise.codegen.families.generic.any_nest import is_below, run_of, unsupported
from fusewise.codegen.kernel import Kernel
from fusewise.codegen.llvm.entry import OpenFunction, operands_alone, written
from fusewise.codegen.llvm.share import SERIAL_WORK, Share
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.target import InstructionSet, Target
from fusewise.ir.deciding import known_zero
from fusewise.ir.size import Size, SizeNeeded
from fusewise.lower.forest import forest_tables
from fusewise.lower.task import RefusalReason, Task
from fusewise.ops.forests import MISSING_BIT, MODE_BIT, MOST_FEATURES, ForestTables
from fusewise.records import record

__all__ = ["FOREST"]

WALKS = 16
"""Side by side. A step waits for three loads, one for another; on a Zen 4, 1,000 rows of 100 trees of ten levels took 1.16 ms with
16 walks, 1.78 with 8, 2.46 with 4."""

MANY = 8
"""Rows of an unknown number of them that go down a tree side by side, two trees at a time."""

MOST_VECTORS = 2
"""Of targets that are added up at once."""

_PREDICATES = {
    "BRANCH_LEQ": "ole",
    "BRANCH_LT": "olt",
    "BRANCH_GTE": "oge",
    "BRANCH_GT": "ogt",
    "BRANCH_EQ": "oeq",
    "BRANCH_NEQ": "one",
}


@record(frozen=True)
class ForestSchedule:
    """How many `rows` go down a tree side by side. Where it is not known how many there are, that is `MANY`, if there are so many,
    or one, with `always` for any number of them."""

    rows: int = 1
    always: bool = False


@record(frozen=True)
class _Plan:
    """What goes down trees adds to `vectors` of `lanes` targets; `rows` of the data go down `trees` at once."""

    tables: ForestTables
    lanes: int
    vectors: int
    rows: int = 1

    @property
    def trees(self) -> int:
        return WALKS // max(1, self.rows)

    @property
    def width(self) -> int:
        """Targets that are added up at once."""
        return self.lanes * self.vectors

    @property
    def starts(self) -> list[int]:
        """The first of them, each time; the last are moved back to fit."""
        targets = self.tables.weights.shape[1]
        return [max(0, min(k, targets - self.width)) for k in range(0, targets, self.width)]

    @property
    def groups(self) -> np.ndarray:
        """Roots of trees that are gone down at once, behind them the levels of the deepest, int32 [groups, trees + 1]; the last is
        filled up by a tree that is nothing but a leaf."""
        roots = self.tables.roots
        missing = -len(roots) % self.trees
        filler = np.tile(np.array([[self.tables.nodes.size, 0]], np.int32), (missing, 1))
        both = np.concatenate((roots, filler)).reshape(-1, self.trees, 2)
        return np.concatenate((both[:, :, 0], both[:, :, 1].max(axis=1, keepdims=True)), axis=1)

    @property
    def nodes(self) -> np.ndarray:
        """Those of the trees, and a leaf that adds nothing."""
        nodes = self.tables.nodes
        return np.concatenate((nodes, np.array([[0, len(self.tables.weights), nodes.size, nodes.size]], np.int32)))

    @property
    def weights(self) -> np.ndarray:
        """Of all leaves side by side for each of the `starts`, float32 [starts, leaves, width], behind them the base."""
        targets = self.tables.weights.shape[1]
        base = np.zeros(targets, np.float32) if self.tables.base is None else self.tables.base
        rows = np.concatenate((self.tables.weights, np.zeros((1, targets), np.float32), base[None]))
        rows = np.pad(rows, ((0, 0), (0, max(0, self.width - targets))))
        return np.stack([rows[:, start : start + self.width] for start in self.starts])


def _plan(task: Task, instructions: InstructionSet) -> _Plan | RefusalReason:
    if isinstance(task.extents[1], Size):
        return RefusalReason("an unknown number of targets")
    lanes = min(1 << (task.extents[1] - 1).bit_length(), instructions.lanes)
    vectors = min(-(-task.extents[1] // lanes), MOST_VECTORS)
    return _Plan(forest_tables(task.anchored), lanes, vectors)


def _schedules(plan: _Plan, task: Task, target: Target) -> tuple[ForestSchedule]:
    return (ForestSchedule(min(task.extents[0], WALKS)),)


def _for_rows(plan: _Plan, task: Task, schedule: ForestSchedule) -> _Plan:
    """The plan by a schedule. `SizeNeeded` where it is none for so many rows."""
    extent, rows = task.extents[0], schedule.rows
    if isinstance(extent, Size) and not schedule.always:
        fits = rows in (1, MANY) and (extent >= MANY) == (rows == MANY)
        if not fits:
            raise SizeNeeded(f"{rows} rows side by side of {extent}")
    return replace(plan, rows=rows)


@record(frozen=True)
class _Walks:
    """The code of a task. With `holes`, data may be without a value where nodes say what becomes of it."""

    function: Function
    task: Task
    plan: _Plan
    data: Value
    result: Value
    nodes: Value
    groups: Value
    weights: Value
    holes: bool

    def run(self, share: Share) -> None:
        f, plan, extent = self.function, self.plan, self.task.extents[0]
        blocks, starts = -(-extent // plan.rows), plan.starts
        steps = extent * len(starts) * int(plan.tables.roots[:, 1].sum())
        leaves = len(plan.tables.weights) + 2

        def added(first: Int, weights: Value) -> Sequence[Value]:
            if not plan.tables.tracks:
                return self._block(first, weights)
            without = replace(self, holes=False)
            return f.when(
                self._missing(first), lambda: self._block(first, weights), lambda: without._block(first, weights)
            )

        def unit(number: Value, _: object) -> None:
            part = f.udiv(number, blocks)
            first = f.minimum(f.mul(f.urem(number, blocks), plan.rows), extent - plan.rows)
            weights = f.at(self.weights, f.mul(part, leaves * plan.width))
            target = f.minimum(f.mul(part, plan.width), max(0, self.task.extents[1] - plan.width))
            self._write(first, target, weights, added(first, weights))

        f.loop(*run_of(f, blocks * len(starts), share, is_below(f, 4 * steps, SERIAL_WORK + 1)), 1, unit, rolled=True)

    def _rows(self, first: Int) -> Value:
        operand = self.task.operands[0]
        return self.function.at(
            self.data, self.function.add(operand.offset, self.function.mul(first, operand.strides[0]))
        )

    def _missing(self, first: Int) -> Value:
        """Is any of some rows without a value? Then alone it is looked at each node where one without goes."""
        f, operand, data = self.function, self.task.operands[0], self._rows(first)

        def feature(k: Value, found: tuple[Value, ...]) -> list[Value]:
            (any_,) = found
            for row in range(self.plan.rows):
                x = f.load("float", f.at(f.at(data, f.mul(k, operand.strides[1])), row * operand.strides[0]))
                any_ = f.binary("or", any_, f.compare("fcmp uno", x, x))
            return [any_]

        return f.loop(0, operand.shape[1], 1, feature, [f.constant(False, "i1")], rolled=True)[0]

    def _block(self, first: Int, weights: Value) -> Sequence[Value]:
        """What all trees add for some rows: a vector for each row and vector of targets."""
        f, plan = self.function, self.plan
        data, kind = self._rows(first), vector("float", plan.lanes)

        def group(number: Value, sums: tuple[Value, ...]) -> list[Value]:
            here = f.at(self.groups, f.mul(number, plan.trees + 1), "i32")
            roots = [self._word(here, tree) for tree in range(plan.trees)]
            places = [root for root in roots for _ in range(plan.rows)]
            after = f.loop(0, self._word(here, plan.trees), 1, lambda _, at: self._step(data, at), places, rolled=True)
            found = list(sums)
            for walk, place in enumerate(after):
                own = f.at(weights, f.mul(self._word(self.nodes, f.add(place, 1)), plan.width))
                for k in range(plan.vectors):
                    number_ = walk % plan.rows * plan.vectors + k
                    found[number_] = f.fadd(found[number_], f.load(kind, f.at(own, k * plan.lanes)))
            return found

        zeros = [f.constant(0.0, kind)] * (plan.rows * plan.vectors)
        return f.loop(0, len(plan.groups), 1, group, zeros, rolled=True)

    def _word(self, table: Value, at: Int) -> Value:
        f = self.function
        return f.convert("zext", f.load("i32", f.at(table, at, "i32")), "i64")

    def _step(self, data: Value, places: Sequence[Value]) -> list[Value]:
        """Where each walk goes from its node, some rows in one tree and then in the next."""
        f, plan, strides = self.function, self.plan, self.task.operands[0].strides
        after = []
        for walk, place in enumerate(places):
            first = f.load("i32", f.at(self.nodes, place, "i32"))
            feature = first
            if plan.tables.tracks or len(plan.tables.modes) > 1:
                feature = f.binary("and", first, f.constant(MOST_FEATURES - 1, "i32"))
            row = f.at(data, walk % plan.rows * strides[0])
            found = f.load("float", f.at(row, f.mul(f.convert("zext", feature, "i64"), strides[1])))
            split = f.load("float", f.at(f.at(self.nodes, place, "i32"), 1))
            taken = f.convert("zext", self._taken(first, found, split), "i64")
            child = f.at(f.at(self.nodes, f.add(place, taken), "i32"), 2, "i32")
            after.append(f.convert("zext", f.load("i32", child), "i64"))
        return after

    def _taken(self, first: Value, found: Value, split: Value) -> Value:
        """Does a node's comparison hold?"""
        f, tables = self.function, self.plan.tables
        holds = [f.compare(f"fcmp {_PREDICATES[mode]}", found, split) for mode in tables.modes]
        taken = holds[0]
        if len(holds) > 1:
            shifted = f.binary("lshr", first, f.constant(MODE_BIT, "i32"))
            mode = f.binary("and", shifted, f.constant(7, "i32"))
            for number, other in enumerate(holds[1:], 1):
                taken = f.select(f.compare("icmp eq", mode, f.constant(number, "i32")), other, taken)
        if not self.holes:
            return taken
        assert MISSING_BIT == 31, "the sign of the word"
        missing = f.compare("fcmp uno", found, found)
        tracked = f.compare("icmp slt", first, f.constant(0, "i32"))
        return f.binary("or", taken, f.binary("and", missing, tracked))

    def _write(self, first: Int, target: Int, weights: Value, sums: Sequence[Value]) -> None:
        """The sums of some rows, or means, with the base."""
        f, plan, tables = self.function, self.plan, self.plan.tables
        out, kind = self.task.operand("out0"), vector("float", plan.lanes)
        start = f.add(out.offset, f.add(f.mul(first, out.strides[0]), f.mul(target, out.strides[1])))
        base = f.at(weights, (len(tables.weights) + 1) * plan.width)
        for number, value in enumerate(sums):
            row, k = divmod(number, plan.vectors)
            if tables.divisor > 1:
                value = f.binary("fdiv", value, f.constant(float(tables.divisor), kind))
            if tables.base is not None:
                value = f.fadd(value, f.load(kind, f.at(base, k * plan.lanes)))
            there = f.at(f.at(self.result, start), row * out.strides[0] + k * plan.lanes * out.strides[1])
            count = min(plan.lanes, self.task.extents[1] - k * plan.lanes)
            if count == plan.lanes and (count == 1 or out.strides[1] == 1):
                f.store(value, there)
                continue
            for lane in range(count):
                f.store(f.extract(value, lane), f.at(there, lane * out.strides[1]))


def _write(o: OpenFunction, understood: _Plan, schedule: ForestSchedule) -> None:
    if not any(map(known_zero, o.task.extents)):
        plan = _for_rows(understood, o.task, schedule)
        nodes, groups, weights = (
            o.f.module.table(name, "i8", getattr(plan, name).tobytes()) for name in ("nodes", "groups", "weights")
        )
        data, result = o.pointers[o.task.operands[0].name], o.pointers["out0"]
        _Walks(o.f, o.task, plan, data, result, nodes, groups, weights, plan.tables.tracks).run(o.share)


FOREST = Kernel(
    "forest",
    lambda task, instructions: unsupported(task) or _plan(task, instructions),
    _schedules,
    operands_alone,
    written(operands_alone, _write),
    every=lambda plan, task, target: (ForestSchedule(1, always=True),),
)
