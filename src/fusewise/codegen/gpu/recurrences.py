"""LSTM, GRU and RNN on a GPU, with the loop over time in a kernel or as launches of one kernel for each step.

    sums = x W^T + biases, of all steps                  a product (`products`), whatever comes behind it
    for step:  gates = sums of the step + states R^T     in a loop: one block for some samples of a direction
               the cell's arithmetic; new states         by steps: a launch, hidden numbers shared out to blocks

Which of both, `recurrence_plan` estimates. States lie in working memory twice: what a step reads it does not write, so blocks and
warps need not wait for each other within it. Constants R are rearranged, for weights of neighbouring hidden numbers to lie beside
each other. A launch reads the number of its step from memory, so that one compiled kernel does for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from functools import partial

import numpy as np

from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.kernel import (
    SCRATCH,
    STEP,
    STEP_BYTES,
    GpuKernel,
    NoKernel,
    arguments_of,
    pointer_type,
)
from fusewise.codegen.gpu.nests import nest
from fusewise.codegen.gpu.products import other_products, product
from fusewise.codegen.gpu.recurrence_cell import TritonCell
from fusewise.codegen.gpu.recurrence_plan import (
    MOST_LAUNCHES,
    GpuRecurrence,
    RecurrenceTiles,
    by_steps,
    recurrence_task,
    step_us,
    tiles_of,
)
from fusewise.codegen.gpu.source import Scope, TritonWriter, is_int32
from fusewise.codegen.gpu.words import TritonTerm, literal
from fusewise.lower.program import Packing
from fusewise.lower.recurrence import LENGTHS
from fusewise.lower.task import Operand, Store, Task
from fusewise.ops.expr import Expr, binary, compare, const, index, load, reduce, select
from fusewise.records import record

__all__ = ["other_recurrences", "recurrence", "recurrence_by"]


def recurrence(task: Task, device: Device, precision: str) -> GpuKernel:
    """Kernels for a task with LSTM, GRU or RNN at its anchor (`lower.recurrence`): the inputs' product, and the steps behind it;
    `NoKernel` for others."""
    s = recurrence_task(task)
    return recurrence_by(s, device, precision, by_steps(s, device))


def other_recurrences(task: Task, device: Device, precision: str) -> Iterator[GpuKernel]:
    """Of a task that `recurrence` accepts, the kernels in the other way."""
    s = recurrence_task(task)
    stepped = not by_steps(s, device)
    if not stepped or s.steps * len(s.phases) <= MOST_LAUNCHES:
        yield recurrence_by(s, device, precision, stepped)


def recurrence_by(s: GpuRecurrence, device: Device, precision: str, stepped: bool) -> GpuKernel:
    """The kernels in one of both ways: `stepped`, or in a loop."""
    tiles = tiles_of(s, stepped)
    first = _of_inputs(_inputs_task(s), device, precision)
    symbol = f"product_{s.digest}_inputs"
    s, packed = _repacked(s)
    wait_us = step_us(s, device, stepped)
    behind = tuple(_stepped(s, tiles, wait_us) if stepped else (_looped(s, tiles, wait_us),))
    way = f"{first.way}; then {len(behind)} launches" if stepped else f"{first.way}; then a loop"
    return replace(
        first,
        symbol=symbol,
        source=first.source.replace(first.symbol, symbol),
        way=way,
        scratch_bytes=s.place("end") * s.dtype.itemsize,
        then=behind,
        packed=(*first.packed, *packed),
    )


# --- the inputs' product --------------------------------------------------------------------------------------------------


def _inputs_task(s: GpuRecurrence) -> Task:
    """sums[direction, step, sample, gate] = x W^T + biases, in working memory."""
    direction, step, sample, column = at = tuple(index(f"i{k}") for k in range(4))
    x, w, b = (s.operands.get(name) for name in ("x", "w", "b"))
    assert x is not None and w is not None
    deep = index("r0")
    factors = load(x.name, x.dtype, (step, sample, deep)), load(w.name, w.dtype, (direction, column, deep))
    value = reduce("sum", (("r0", s.inputs),), binary("mul", *factors))
    if b is not None:
        own: Expr = load(b.name, b.dtype, (direction, column + s.columns))
        if s.settings.resets_after:  # which the candidate adds to the product with the state
            own = select(compare("lt", column, const(2 * s.hidden)), own, const(0.0, b.dtype))
        value = value + (load(b.name, b.dtype, (direction, column)) + own)
    shape = s.directions, s.steps, s.samples, s.columns
    strides = s.steps * s.samples * s.columns, s.samples * s.columns, s.columns, 1
    scratch = Operand(SCRATCH, s.dtype, shape, strides, offset=s.place("sums"))
    given = tuple(one for one in (x, w, b) if one is not None)
    return Task(shape, (*given, scratch), (Store(SCRATCH, at, value),), exact=s.task.exact)


def _of_inputs(task: Task, device: Device, precision: str) -> GpuKernel:
    """The product in one launch, since working memory is taken already."""

    def tried() -> Iterator[GpuKernel]:
        try:
            yield product(task, device, precision)
            yield from other_products(task, device, precision)
        except NoKernel:
            yield nest(task, device)

    return next((one for one in tried() if not one.then), None) or nest(task, device)


def _repacked(s: GpuRecurrence) -> tuple[GpuRecurrence, tuple[tuple[str, Packing], ...]]:
    """A constant R as [direction, number of the state, gate and hidden number], and how it becomes so."""
    r = s.operands["r"]
    if not r.constant:
        return s, ()

    def pack(array: np.ndarray) -> np.ndarray:
        flat = np.ascontiguousarray(array).reshape(-1)
        strides = [step * flat.itemsize for step in r.strides]
        seen = np.lib.stride_tricks.as_strided(flat[r.offset :], r.shape, strides)
        return np.ascontiguousarray(seen.transpose(0, 2, 1))

    strides = s.columns * s.hidden, 1, s.columns
    packed = Operand(r.name, r.dtype, r.shape, strides, constant=True, alignment=64)
    others = tuple(packed if one.name == r.name else one for one in s.task.operands)
    recipe = f"gpu recurrence {r.shape} by {r.strides} at {r.offset}"
    packing = Packing(recipe, pack, nbytes=r.nbytes)
    changed = replace(s, task=replace(s.task, operands=others), operands={**s.operands, "r": packed})
    return changed, ((r.name, packing),)


# --- launches -------------------------------------------------------------------------------------------------------------


def _looped(s: GpuRecurrence, tiles: RecurrenceTiles, wait_us: float) -> GpuKernel:
    text = _StepText(TritonWriter(s.task), s, tiles)
    text.whole()
    way = f"a loop over {s.steps} steps, {tiles.rows} samples to a block"
    return replace(_launched(text, "loop", s.directions * tiles.slices, way), wait_us=s.steps * wait_us)


def _stepped(s: GpuRecurrence, tiles: RecurrenceTiles, wait_us: float) -> Iterator[GpuKernel]:
    blocks = s.directions * tiles.slices * tiles.blocks
    begin = _StepText(TritonWriter(s.task), s, tiles)
    begin.begin()
    yield _launched(begin, "begin", blocks, "the states before the first step")
    kernels = []
    for phase in range(len(s.phases)):
        text = _StepText(TritonWriter(s.task), s, tiles)
        text.one(phase)
        way = f"a step, {tiles.width} hidden numbers of {tiles.rows} samples to a block"
        kernels.append(replace(_launched(text, f"step{phase}", blocks, way), wait_us=wait_us / len(s.phases)))
    for step in range(s.steps):
        yield from (replace(kernel, step=step) for kernel in kernels)


def _launched(text: _StepText, name: str, blocks: int, way: str) -> GpuKernel:
    s = text.s
    known = arguments_of(s.task) | {SCRATCH: (pointer_type(s.dtype), 64), STEP: ("i32", STEP_BYTES)}
    source = "\n".join(text.writer.lines)
    names = [one for one in known if f"{one} +" in source]
    types, alignments = zip(*(known[one] for one in names), strict=True)
    symbol = f"recurrence_{s.digest}_{name}"
    return GpuKernel(
        symbol,
        text.writer.source(symbol, names),
        tuple(names),
        types,
        alignments,
        (blocks,),
        text.tiles.warps,
        1,
        way,
    )


@record
class _StepText:
    """The text of a kernel: some samples of a direction, and some hidden numbers of them or all, one tile after another."""

    writer: TritonWriter
    s: GpuRecurrence
    tiles: RecurrenceTiles
    lengths: list[TritonTerm] = field(default_factory=list)

    # --- kernels -------------------------------------------------------------------------------------------------

    def whole(self) -> None:
        """All steps."""
        put, s = self.writer.put, self.s
        self._samples(1, reports=True)
        self._tiles(self._start)
        put("tl.debug_barrier()")
        put(f"for number in range({s.steps}):", 1)
        put("n = tl.full([], 0, tl.int32) + number")
        for phase in range(len(s.phases)):
            self._tiles(partial(self._tile, phase))
            put("tl.debug_barrier()")
        self.writer.depth = 1

    def begin(self) -> None:
        """What the launches of all steps find: states, and the numbers of steps."""
        put, s = self.writer.put, self.s
        self._samples(self.tiles.blocks, reports=True)
        put(f"j = tl.program_id(0) % {self.tiles.blocks} * {self.tiles.width} + tl.arange(0, {self.tiles.width})")
        self._start()
        put(f"for first in range(0, {s.steps}, 256):", 1)
        put("number = first + tl.arange(0, 256)")
        put(f"tl.store({STEP} + number, number, mask=(number < {s.steps}) & (tl.program_id(0) == 0))", -1)

    def one(self, phase: int) -> None:
        """One step, whose number is in memory."""
        put = self.writer.put
        put(f"n = tl.load({STEP} + 0)")
        self._samples(self.tiles.blocks, reports=False)
        put(f"j = tl.program_id(0) % {self.tiles.blocks} * {self.tiles.width} + tl.arange(0, {self.tiles.width})")
        self._tile(phase)

    # --- places --------------------------------------------------------------------------------------------------

    def _samples(self, inner: int, reports: bool) -> None:
        """Which direction and samples a block has, and how long these are."""
        put, s, tiles = self.writer.put, self.s, self.tiles
        put(f"d = tl.program_id(0) // {inner * tiles.slices}")
        put(f"first_row = tl.program_id(0) // {inner} % {tiles.slices} * {tiles.rows}")
        for row in range(tiles.rows):
            put(f"b{row} = first_row + {row}")
        if "lengths" in s.operands:
            self.lengths = [self._length(row, reports) for row in range(tiles.rows)]

    def _length(self, row: int, reports: bool) -> TritonTerm:
        """Of a sample: 0 where what data say is out of bounds, which is reported once."""
        s, words = self.s, self.writer.words
        if reports:
            scope = Scope(self.writer, {"p0": TritonTerm(f"b{row}", "int32")})
            element = s.task.anchored.element(LENGTHS)
            scope = scope.under(TritonTerm(f"(b{row} < {s.samples})", "int1")) if self._is_cut else scope
            return TritonTerm(self.writer.name(words.typed(scope.value(element))), self.writer.kind(element))
        there = self._at(s.operands["lengths"], f"b{row}")
        masked = f", mask=b{row} < {s.samples}, other=0" if self._is_cut else ""
        found = self.writer.name(f"tl.load({there}{masked})")
        bad = f"({found} < 0) | ({found} > {s.steps})"
        return TritonTerm(self.writer.name(f"tl.where({bad}, 0, {found})"), "int32")

    @property
    def _is_cut(self) -> bool:
        """Has the last slice fewer samples?"""
        return self.s.samples % self.tiles.rows != 0

    def _tiles(self, write: Callable[[], None]) -> None:
        """What is written for every tile of the hidden numbers."""
        put, tiles, depth = self.writer.put, self.tiles, self.writer.depth
        if tiles.blocks > 1:
            put(f"for tile in range({tiles.blocks}):", 1)
        begin = f"tile * {tiles.width} + " if tiles.blocks > 1 else ""
        put(f"j = {begin}tl.arange(0, {tiles.width})")
        write()
        self.writer.depth = depth

    def _at(self, operand: Operand, *places: str) -> str:
        """Where an element of an operand lies."""
        far = abs(operand.offset) + sum(
            abs(step) * 2 * (extent + self.tiles.width + self.tiles.rows)
            for step, extent in zip(operand.strides, operand.shape, strict=True)
        )
        wide = "" if is_int32(-far, far) else ".to(tl.int64)"
        terms = [f"({p}){wide} * {literal(step)}" for p, step in zip(places, operand.strides, strict=True)]
        return f"{operand.name} + {literal(operand.offset)} + " + " + ".join(terms)

    def _state(self, name: str, row: int, number: str, turn: str = "") -> str:
        """Where a number of a state lies in working memory; `turn` says in which half, 0 or 1."""
        s = self.s
        half = f" + ({turn}) * {s.states}" if turn else ""
        return f"{SCRATCH} + {s.place(name)}{half} + (d * {s.samples} + b{row}) * {s.hidden} + {number}"

    def _mask(self, row: int, number: str = "j") -> str:
        own = f"({number} < {self.s.hidden})"
        return f"{own} & (b{row} < {self.s.samples})" if self._is_cut else own

    def _load(self, place: str, mask: str, shape: tuple[int, ...] = ()) -> TritonTerm:
        text = f"tl.load({place}, mask={mask}, other=0.0)"
        return TritonTerm(self.writer.name(text), self.s.dtype.name, shape or (self.tiles.width,))

    def _store(self, place: str, value: TritonTerm, mask: str) -> None:
        self.writer.put(f"tl.store({place}, {self.writer.words.spread(value, (self.tiles.width,))}, mask={mask})")

    # --- parts of a step -----------------------------------------------------------------------------------------

    def _start(self) -> None:
        """The states of a tile before the first step."""
        s = self.s
        for name, part in (("h", "hidden"), ("c", "cell")):
            if part == "cell" and s.settings.op != "LSTM":
                continue
            given = s.operands.get(name)
            for row in range(self.tiles.rows):
                value = self.writer.words.constant(0.0, s.dtype.name)
                if given is not None:
                    value = self._load(self._at(given, "d", f"b{row}", "j"), self._mask(row))
                self._store(self._state(part, row, "j"), value, self._mask(row))

    def _tile(self, phase: int) -> None:
        """A product of a step and what is made of it, for a tile."""
        put, s = self.writer.put, self.s
        put("turn = n % 2")
        backward = s.settings.backward
        back = f"{s.steps - 1} - n"
        put(f"t = {f'tl.where(d == 1, {back}, n)' if len(backward) > 1 else back if backward[0] else 'n'}")
        gates = s.phases[phase]
        products = self._products("reset" if phase else "hidden", gates)
        for row in range(self.tiles.rows):
            sums = {
                gate: self._with_inputs(row, gate, products[row, gate]) for gate in gates if self._adds_inputs(gate)
            }
            others = {gate: products[row, gate] for gate in gates if gate not in sums}
            self._finish(row, phase, sums | others)

    def _adds_inputs(self, gate: int) -> bool:
        """Are the inputs' sums added right away? A GRU's candidate that is reset behind the product has them added later."""
        return not (self.s.settings.resets_after and gate == 2)

    def _with_inputs(self, row: int, gate: int, found: TritonTerm) -> TritonTerm:
        return self.writer.words.binary("add", self._inputs(row, gate), found, self.s.dtype)

    def _inputs(self, row: int, gate: int) -> TritonTerm:
        s = self.s
        place = f"((d * {s.steps} + t) * {s.samples} + b{row}) * {s.columns} + {gate * s.hidden} + j"
        return self._load(f"{SCRATCH} + {s.place('sums')} + {place}", self._mask(row))

    def _products(self, part: str, gates: Sequence[int]) -> dict[tuple[int, int], TritonTerm]:
        """Of the rows' states and the weights of some gates, by row and gate."""
        put, s, tiles = self.writer.put, self.s, self.tiles
        several, depth = s.hidden > tiles.depth, self.writer.depth
        pairs = [(row, gate) for row in range(tiles.rows) for gate in gates]
        sums = {pair: self.writer.fresh() for pair in pairs}
        if several:
            for name in sums.values():
                put(f"{name} = tl.full([{tiles.width}], 0.0, tl.{s.dtype.name})")
            put(f"for deep in range(0, {s.hidden}, {tiles.depth}):", 1)
        put(f"k = {'deep + ' if several else ''}tl.arange(0, {tiles.depth})")
        weights = {gate: self._weights(gate) for gate in gates}
        for row in range(tiles.rows):
            turn = "" if part == "reset" else "turn"
            state = self._load(self._state(part, row, "k", turn), self._mask(row, "k"))
            for gate in gates:
                name, added = sums[row, gate], f"tl.sum({state.text}[:, None] * {weights[gate]}, 0)"
                put(f"{name} = {name} + {added}" if several else f"{name} = {added}")
        self.writer.depth = depth
        return {pair: TritonTerm(name, s.dtype.name, (tiles.width,)) for pair, name in sums.items()}

    def _weights(self, gate: int) -> str:
        s, tiles = self.s, self.tiles
        place = self._at(s.operands["r"], "d", f"{gate * s.hidden} + j[None, :]", "k[:, None]")
        inside = f"(k < {s.hidden})[:, None] & (j < {s.hidden})[None, :]"
        shape = (tiles.depth, tiles.width)
        return self._load(place, inside, shape).text

    # --- cells ---------------------------------------------------------------------------------------------------

    def _finish(self, row: int, phase: int, sums: dict[int, TritonTerm]) -> None:
        """The new states of a row from the sums of its gates."""
        s = self.s
        cell = TritonCell(self.writer.words, s.settings, s.dtype, "d")
        hidden = self._load(self._state("hidden", row, "j", "turn"), self._mask(row))
        if len(s.phases) > 1 and phase == 0:
            update, reset = (cell.activate(0, sums[gate]) for gate in (0, 1))
            self._store(self._state("update", row, "j"), update, self._mask(row))
            self._store(self._state("reset", row, "j"), cell.binary("mul", reset, hidden), self._mask(row))
            return
        if s.settings.op == "LSTM":
            before = self._load(self._state("cell", row, "j", "turn"), self._mask(row))
            after, kept = cell.lstm(
                [sums[gate] for gate in range(4)], before, self._peephole if "p" in s.operands else None
            )
            kept = self._going_on(row, kept, before)
            self._store(self._state("cell", row, "j", "1 - turn"), kept, self._mask(row))
            self._last(row, "out2", kept)
        elif s.settings.op == "GRU":
            after = self._gru(cell, row, sums, hidden)
        else:
            after = cell.activate(0, sums[0])
        after = self._going_on(row, after, hidden)
        self._store(self._state("hidden", row, "j", "1 - turn"), after, self._mask(row))
        self._last(row, "out1", after)
        self._given(row, after)

    def _gru(self, cell: TritonCell, row: int, sums: dict[int, TritonTerm], hidden: TritonTerm) -> TritonTerm:
        s = self.s
        if not s.settings.resets_after:
            return cell.gru(self._load(self._state("update", row, "j"), self._mask(row)), sums[2], hidden)
        update, reset = (cell.activate(0, sums[gate]) for gate in (0, 1))
        own, b = sums[2], s.operands.get("b")
        if b is not None:
            bias = self._load(self._at(b, "d", f"{s.columns + 2 * s.hidden} + j"), f"(j < {s.hidden})")
            own = cell.binary("add", own, bias)
        return cell.gru(update, cell.binary("add", self._inputs(row, 2), cell.binary("mul", reset, own)), hidden)

    def _peephole(self, gate: int) -> TritonTerm:
        s = self.s
        return self._load(self._at(s.operands["p"], "d", f"{gate * s.hidden} + j"), f"(j < {s.hidden})")

    def _going_on(self, row: int, after: TritonTerm, before: TritonTerm) -> TritonTerm:
        """The state behind a step, which a sequence that is over keeps."""
        if not self.lengths:
            return after
        return self.writer.words.where(self._goes_on(row), after, before)

    def _goes_on(self, row: int) -> TritonTerm:
        return TritonTerm(f"(t < {self.lengths[row].text})", "int1")

    def _last(self, row: int, name: str, state: TritonTerm) -> None:
        """The state after the last step, if that is asked for: zero where there was none."""
        s, words = self.s, self.writer.words
        if all(store.operand != name for store in s.task.stores):
            return
        if self.lengths:
            ever = TritonTerm(f"({self.lengths[row].text} > 0)", "int1")
            state = words.where(ever, state, words.constant(0.0, s.dtype.name))
        place = self._at(s.task.operand(name), "d", f"b{row}", "j")
        self._store(place, state, f"{self._mask(row)} & (n == {s.steps - 1})")

    def _given(self, row: int, state: TritonTerm) -> None:
        """The output of a step, if that is asked for: zero behind the end of a sequence."""
        s, words = self.s, self.writer.words
        if all(store.operand != "out0" for store in s.task.stores):
            return
        if self.lengths:
            state = words.where(self._goes_on(row), state, words.constant(0.0, s.dtype.name))
        self._store(self._at(s.task.operand("out0"), "t", "d", f"b{row}", "j"), state, self._mask(row))
