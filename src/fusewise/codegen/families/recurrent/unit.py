"""What every way to run a recurrence does: preparation, gates and cells of a block, and results.

All of it is about a unit: some rows of the samples in one direction, with scratch memory of its own (`RecurrentPlan.parts`).
A block has a vector of hidden numbers of all gates, so that a step's gates never leave the registers. States are written beside
those that are read, and which is which changes every step. Rows whose sequence is over keep their states; backwards, rows begin
where their sequences end, so that there too all go through the same steps. Numbers beyond the hidden size, which fill the last
vector, have weights of zero, and nobody reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fusewise.codegen.families.recurrent.cell import Cell
from fusewise.codegen.families.recurrent.product import TileProduct, product_of, reduce, repack
from fusewise.codegen.families.recurrent.shape import GateProduct, RecurrentPlan, RecurrentShape
from fusewise.codegen.llvm.entry import OpenFunction, Writer, widened
from fusewise.codegen.llvm.stores import Finish
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import memory_type
from fusewise.records import record

__all__ = [
    "CompanionProduct",
    "Unit",
    "by_direction",
    "gates_of_group",
    "is_odd",
    "last_states",
    "outputs_of",
    "panel_of",
    "prepare",
    "results",
    "sums_of_step",
]

STATE = {"h": "hidden", "c": "cell"}
"""The part of scratch memory that an initial state goes to."""


def outputs_of(o: OpenFunction) -> Mapping[str, Finish]:
    """What writes a vector of each output."""
    return {one.operand: replace(o, task=replace(o.task, stores=(one,))).finish for one in o.task.stores}


@record(frozen=True)
class Unit(Writer):
    """`number` is the direction whose activations are meant, `direction` the one that is run, `first` the unit's first row."""

    shape: RecurrentShape
    plan: RecurrentPlan
    scratch: Value
    finish: Mapping[str, Finish]
    number: int = 0
    direction: Int = 0
    first: Int = 0

    @property
    def kind(self) -> str:
        """The type of a vector."""
        return vector(self.shape.element, self.plan.lanes)

    @property
    def cell(self) -> Cell:
        settings = self.shape.settings
        activations = settings.activations[self.number]
        return Cell(self.f, self.instructions, activations, settings.clip, settings.coupled)

    def at(self, pointer: Value, offset: Int) -> Value:
        return self.f.at(pointer, offset, self.shape.element)

    def part(self, name: str, offset: Int = 0) -> Value:
        """A place in a part of this worker's scratch memory."""
        return self.at(self.scratch, self.f.add(self.plan.parts[name], offset))

    def state(self, name: str, step: Int, row: Int) -> Value:
        """A row of the states that the step before wrote; of step + 1, those that this one writes."""
        f, width = self.f, self.plan.width
        half = f.mul(f.urem(step, 2), self.plan.rows * width)
        return self.part(name, f.add(half, f.mul(row, width)))

    def load(self, pointer: Value, offset: Int) -> Value:
        return self.f.load(self.kind, self.at(pointer, offset))

    def store(self, value: Value, pointer: Value, offset: Int) -> None:
        self.f.store(value, self.at(pointer, offset))

    def given(self, name: str, indices: Sequence[Int], count: int) -> Value:
        """So many numbers of an operand from `indices` on, along its last axis; the lanes behind are zero."""
        f, view = self.f, self.shape.views[name]
        offset: Int = view.offset
        for index, stride in zip(indices, view.strides, strict=True):
            offset = f.add(offset, f.mul(index, stride))
        dtype = view.operand.dtype
        start = f.at(self.pointers[view.operand.name], offset, memory_type(dtype))
        return widened(f, self.instructions, start, view.strides[-1], dtype, self.plan.lanes, count)

    def time(self, step: Int) -> Int:
        """Where in the sequence a step is."""
        f, last = self.f, self.shape.steps - 1
        backward = self.shape.settings.backward
        if backward == (False, True):
            is_second = f.compare("icmp eq", self.direction, 1)
            return f.select(is_second, f.i64(f.sub(f.i64(last), step)), f.i64(step))
        return f.sub(f.i64(last), step) if backward[0] else step

    def kept(self, row: Int, time: Int, value: Value, otherwise: Value | None = None) -> Value:
        """`value` where a row's sequence goes on at a time, else another, or zero."""
        if "lengths" not in self.shape.views:
            return value
        f = self.f
        goes_on = f.compare("icmp slt", time, f.load("i64", f.at(self.part("lengths"), row, "i64")))
        return f.select(goes_on, value, f.constant(0.0, value.type) if otherwise is None else otherwise)

    def each_row(self, body: Callable[[Value], None]) -> None:
        self.f.loop(0, self.plan.rows, 1, lambda row, _: body(row), rolled=True)

    def each_block(self, body: Callable[[Int, int], None]) -> None:
        """`body(block, hidden numbers in it)`."""
        full, rest = divmod(self.shape.hidden, self.plan.lanes)
        self.f.loop(0, full, 1, lambda block, _: body(block, self.plan.lanes), rolled=True)
        if rest:
            body(full, rest)

    def tiles(self, rows: int, tile: int, body: Callable[[Int], None]) -> None:
        """`body(first row)` of every tile; the last is moved back."""
        f = self.f
        f.loop(0, -(-rows // tile), 1, lambda t, _: body(f.minimum(f.mul(t, tile), rows - tile)), rolled=True)


def by_direction(e: Unit, body: Callable[[Unit], None]) -> None:
    """`body` of the unit with its direction's activations: twice where they are not the same."""
    if len(set(e.shape.settings.activations)) == 1:
        body(e)
        return
    second = replace(e, number=1)
    e.f.when(e.f.compare("icmp eq", e.direction, 0), lambda: body(e), lambda: body(second))


def prepare(e: Unit) -> None:
    """Biases by blocks, initial states, lengths, and weights that are not known before."""
    f, s, plan = e.f, e.shape, e.plan
    for gate in range(s.gates):
        _biases(e, gate)
    if "p" in s.views:
        for gate in range(3):

            def peephole(block: Int, count: int, gate: int = gate) -> None:
                at = f.add(f.mul(block, plan.lanes), gate * s.hidden)
                e.store(
                    e.given("p", (e.direction, at), count), e.part("peepholes", gate * plan.width), _begin(e, block)
                )

            e.each_block(peephole)
    for name, part in STATE.items():
        if part not in plan.parts:
            continue
        if name not in s.views:
            f.clear(e.part(part), plan.rows * plan.width * s.nbytes)
            continue

        def initial(row: Value, name: str = name, part: str = part) -> None:
            def block(number: Int, count: int) -> None:
                at = _begin(e, number)
                e.store(e.given(name, (e.direction, f.add(e.first, row), at), count), e.state(part, 0, row), at)

            e.each_block(block)

        e.each_row(initial)
    if "lengths" in s.views:
        e.each_row(lambda row: _length(e, row))
    for name, stages in (("w", plan.inputs), ("r", plan.states)):
        if name in plan.parts:
            view = s.views[name]
            source = f.at(
                e.pointers[view.operand.name], f.add(f.mul(e.direction, view.strides[0]), view.offset), s.element
            )
            repack(f, s, plan, stages, source, view.strides[1:], e.part(name))


def _begin(e: Unit, block: Int) -> Int:
    """The first hidden number of a block."""
    return e.f.mul(block, e.plan.lanes)


def _biases(e: Unit, gate: int) -> None:
    """Of one gate, where the inputs' sums begin; what a GRU's reset gate acts on has its own."""
    f, s, plan = e.f, e.shape, e.plan
    apart = s.settings.resets_after and gate == s.gates - 1

    def block(number: Int, count: int) -> None:
        where, own = e.part("bias", f.mul(f.add(f.mul(number, s.gates), gate), plan.lanes)), _begin(e, number)
        zero = f.constant(0.0, e.kind)
        given, state = zero, zero
        if "b" in s.views:
            at = f.add(own, gate * s.hidden)
            given, state = (e.given("b", (e.direction, f.add(at, k * s.gates * s.hidden)), count) for k in (0, 1))
        e.store(given if apart else f.fadd(given, state), where, 0)
        if apart:
            e.store(state, e.part("own"), own)

    e.each_block(block)


def _length(e: Unit, row: Value) -> None:
    """A row's length, limited to the steps that there are, and reported where it is not one of them."""
    f, view, steps = e.f, e.shape.views["lengths"], e.shape.steps
    offset = f.add(f.mul(f.add(e.first, row), view.strides[0]), view.offset)
    given = f.convert("sext", f.load("i32", f.at(e.pointers[view.operand.name], offset, "i32")), "i64")

    def report() -> None:
        f.store(given, f.at(e.pointers["fault"], 1, "i64"))
        f.store(f.i64(1), e.pointers["fault"])

    f.when(f.compare("icmp ugt", given, steps), report, rarely=True)
    f.store(f.i64(f.maximum(f.minimum(given, steps), 0)), f.at(e.part("lengths"), row, "i64"))


def panel_of(e: Unit, name: str, stages: Sequence[GateProduct], stage: GateProduct, group: Int) -> Value:
    """The panel of a stage for a group of blocks."""
    f, plan, operand = e.f, e.plan, e.shape.views[name].operand
    before = plan.packed(*stages[: stages.index(stage)])
    offset = f.add(f.mul(group, plan.panel(stage)), before)
    if not operand.constant:
        return e.part(name, offset)
    return e.at(e.pointers[operand.name], f.add(f.mul(e.direction, plan.packed(*stages)), offset))


@record(frozen=True)
class _Gates:
    """The sums of a row's gates, by ONNX's number, for the hidden numbers from `at` on; `line` has the inputs' sums there."""

    row: Int
    at: Int
    line: Value
    sums: Mapping[int, Value]


@record(frozen=True)
class CompanionProduct:
    """A product to be made beside another one, and what is done with its sums."""

    product: TileProduct
    keep: Callable[[Sequence[Value]], None]


def sums_of_step(e: Unit, place: Int) -> Value:
    """The inputs' sums of all rows in the step at this place among those that have theirs."""
    return e.part("sums", e.f.mul(place, e.plan.rows * e.shape.gates * e.plan.width))


def gates_of_group(
    e: Unit, stage: GateProduct, step: Value, sums: Value, number: Int, beside: CompanionProduct | None = None
) -> None:
    """What a stage makes of a group of blocks in a step, for all rows; the step's inputs' sums are at `sums`.

    Weights are read forwards in one step and backwards in the next, so that the last of them are still near."""
    f, s, plan = e.f, e.shape, e.plan
    time, kept = e.time(step), s.gates * plan.width
    panel = panel_of(e, "r", plan.states, stage, number)
    is_second = stage is not plan.states[0]
    blocks = [f.add(f.mul(number, stage.together), k) for k in range(stage.together)]
    none = None if "h" in e.shape.views or beside is not None else f.compare("icmp eq", step, 0)

    def line(row: Int, block: Int) -> Value:
        return e.at(sums, f.add(f.mul(row, kept), f.mul(block, s.gates * plan.lanes)))

    def tile(first: Int) -> None:
        rows = [f.add(first, k) for k in range(stage.rows)]
        start = [_start(e, line(row, block), block, g) for row in rows for block in blocks for g in stage.gates]
        left = [e.part("reset", f.mul(row, plan.width)) if is_second else e.state("hidden", step, row) for row in rows]
        product, other = product_of(f, stage, left, 1, panel, start), None if beside is None else beside.product
        found = iter(reduce(f, e.instructions, product, stage.chains, none, is_odd(e, step), other))
        for row in rows:
            for block in blocks:
                own = {g: next(found) for g in stage.gates}
                _CELLS[s.settings.op](e, step, time, _Gates(row, _begin(e, block), line(row, block), own))
        if beside is not None:
            beside.keep(list(found))

    e.tiles(plan.rows, stage.rows, tile)


def is_odd(e: Unit, step: Int) -> Value:
    """Is this a step in which weights are read backwards?"""
    return e.f.compare("icmp eq", e.f.urem(step, 2), 1)


def _start(e: Unit, line: Value, block: Int, gate: int) -> Value:
    """What a gate's sum begins with."""
    s = e.shape
    if s.settings.resets_after and gate == s.gates - 1:
        return e.load(e.part("own"), _begin(e, block))
    return e.load(line, gate * e.plan.lanes)


def _lstm(e: Unit, step: Value, time: Int, g: _Gates) -> None:
    before = e.load(e.state("cell", step, g.row), g.at)
    hidden = e.load(e.state("hidden", step, g.row), g.at)

    def peephole(gate: int) -> Callable[[], Value]:
        return lambda: e.load(e.part("peepholes", gate * e.plan.width), g.at)

    weights = [peephole(gate) for gate in range(3)] if "p" in e.shape.views else []
    after, cell = e.cell.lstm([g.sums[k] for k in range(4)], before, weights)
    following = e.f.add(step, 1)
    e.store(e.kept(g.row, time, cell, before), e.state("cell", following, g.row), g.at)
    e.store(e.kept(g.row, time, after, hidden), e.state("hidden", following, g.row), g.at)


def _gru(e: Unit, step: Value, time: Int, g: _Gates) -> None:
    """One call where the reset gate acts behind the product with the state, else one for both gates and one for the candidate."""
    f, cell = e.f, e.cell
    hidden = e.load(e.state("hidden", step, g.row), g.at)
    line = f.mul(g.row, e.plan.width)
    if e.shape.settings.resets_after:
        update, reset = (cell.activate(0, g.sums[gate]) for gate in (0, 1))
        candidate = cell.multiply_add(reset, g.sums[2], e.load(g.line, 2 * e.plan.lanes))
    elif 2 not in g.sums:
        update, reset = (cell.activate(0, g.sums[gate]) for gate in (0, 1))
        e.store(update, e.part("update", line), g.at)
        e.store(f.fmul(reset, hidden), e.part("reset", line), g.at)
        return
    else:
        update, candidate = e.load(e.part("update", line), g.at), g.sums[2]
    after = cell.gru(update, candidate, hidden)
    e.store(e.kept(g.row, time, after, hidden), e.state("hidden", f.add(step, 1), g.row), g.at)


def _rnn(e: Unit, step: Value, time: Int, g: _Gates) -> None:
    hidden = e.load(e.state("hidden", step, g.row), g.at)
    after = e.kept(g.row, time, e.cell.activate(0, g.sums[0]), hidden)
    e.store(after, e.state("hidden", e.f.add(step, 1), g.row), g.at)


_CELLS = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


def results(e: Unit, output: str, step: Int, time: Int, blocks: Callable[[Callable[[Int, int], None]], None]) -> None:
    """States that the step before `step` wrote as an output, of the blocks that `blocks` goes through, zero in rows whose sequence
    is over at `time`."""
    f, part = e.f, "cell" if output == "out2" else "hidden"

    def row(number: Value) -> None:
        line = e.state(part, step, number)

        def block(place: Int, count: int) -> None:
            at = _begin(e, place)
            value = e.kept(number, time, e.load(line, at))
            indices = {"i0": time, "i1": e.direction, "i2": f.add(e.first, number), "i3": at}
            e.finish[output](indices, "i3", value, count)

        blocks(block)

    if output in e.finish:
        e.each_row(row)


def last_states(e: Unit, blocks: Callable[[Callable[[Int, int], None]], None]) -> None:
    """Y_h and Y_c: zero for rows without a step."""
    for output in ("out1", "out2"):
        results(e, output, e.shape.steps, 0, blocks)
