"""What a recurrence is to its kernel: sizes, settings and views; and how it is cut into units, tiles and scratch memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from fusewise.codegen.cost import bound
from fusewise.codegen.families.product.tiles import lanes_for
from fusewise.codegen.machine.figures import TileFigures
from fusewise.codegen.nest.instruction import FMA_LATENCY
from fusewise.codegen.target import InstructionSet, Target, whole_lines
from fusewise.codegen.view import OperandView, view_of
from fusewise.ir.deciding import hint, known_equal
from fusewise.ir.dtypes import FLOAT64
from fusewise.lower.recurrence import recurrent_operand
from fusewise.lower.task import RefusalReason, Task
from fusewise.ops.recurrence import Recurrence, recurrence_of
from fusewise.records import record

__all__ = ["GateProduct", "RecurrentPlan", "RecurrentShape", "cut_of", "plan_of", "steps_ahead", "understand"]

PLACES = ("x", "w", "r", "b", "lengths", "h", "c", "p")
"""Operands in ONNX's order."""

MOST_VECTORS = 8
"""Of a tile: with so many a single row waits for no sum."""

LEFT = 6
"""Registers that two products beside each other need besides their sums."""

MOST_INPUTS = 4
"""Times the hidden size, up to which the inputs' product may be made beside that of the states."""


@record(frozen=True)
class RecurrentShape:
    """Sizes, and the operands by name as ONNX's layout 0 has them: x [steps, samples, inputs], w [directions, gates * hidden,
    inputs], r [directions, gates * hidden, hidden], b, lengths [samples], h and c [directions, samples, hidden], p."""

    settings: Recurrence
    steps: int
    samples: int
    inputs: int
    hidden: int
    views: Mapping[str, OperandView]

    @property
    def directions(self) -> int:
        return len(self.settings.backward)

    @property
    def gates(self) -> int:
        return self.settings.gates

    @property
    def element(self) -> str:
        """The LLVM type of a number."""
        return "double" if self.views["x"].operand.dtype == FLOAT64 else "float"

    @property
    def nbytes(self) -> int:
        """Of a number."""
        return self.views["x"].operand.dtype.itemsize


@record(frozen=True)
class GateProduct:
    """One product: of `gates` (their numbers in ONNX's order), `together` blocks of them at a time, for tiles of `rows` rows.

    A block is as many hidden numbers as a vector has lanes. Each sum is made of `chains` sums that do not wait for each other.
    """

    gates: tuple[int, ...]
    depth: int
    rows: int
    together: int
    chains: int

    @property
    def vectors(self) -> int:
        return self.together * len(self.gates)


@record(frozen=True)
class RecurrentPlan:
    """`units` of a direction's samples, `rows` each, are what is dealt out: a unit goes through all of time by itself.

    `chunk` steps have their inputs' products made at once, or, where they are `ahead`, beside those of as many steps before:
    a stage for each gate then, of single vectors. `parts` tells where parts of a worker's scratch memory begin, in elements,
    and `size` where they end.
    """

    lanes: int
    blocks: int
    units: int
    rows: int
    chunk: int
    ahead: bool
    inputs: tuple[GateProduct, ...]
    states: tuple[GateProduct, ...]
    parts: Mapping[str, int]
    size: int

    @property
    def width(self) -> int:
        """A state in whole vectors."""
        return self.blocks * self.lanes

    def panel(self, stage: GateProduct) -> int:
        """Elements of the weights that a stage reads for one run of blocks."""
        return stage.depth * stage.vectors * self.lanes

    def packed(self, *stages: GateProduct) -> int:
        """Elements of one direction's weights of these stages."""
        return sum(self.panel(stage) * (self.blocks // stage.together) for stage in stages)


def understand(task: Task) -> RecurrentShape | RefusalReason:
    """The recurrence at the anchor of a task (`lower.recurrence`), or why it has no such kernel."""
    anchor = task.anchor
    if anchor is None:
        return RefusalReason("no anchor")
    bare = replace(task, anchor=replace(anchor, prologue=tuple(e and recurrent_operand(e) for e in anchor.prologue)))
    views: dict[str, OperandView] = {}
    for place, name in enumerate(PLACES[: len(anchor.inputs)]):
        if anchor.inputs[place] is None:
            continue
        view = view_of(bare, place)
        if isinstance(view, RefusalReason):
            return view
        if any(known_equal(extent, 0) for extent in view.shape):
            return RefusalReason("an operand is empty", name)
        views[name] = view
    steps, samples, inputs = views["x"].shape
    settings = recurrence_of(anchor.op, dict(anchor.attributes))
    return RecurrentShape(settings, steps, samples, inputs, views["r"].shape[2], MappingProxyType(views))


def cut_of(s: RecurrentShape, target: Target) -> tuple[int, int]:
    """In how many units each direction's samples are dealt out, and the steps of a run."""
    units = max(1, min(s.samples, -(-target.workers // s.directions)))
    rows = -(-s.samples // units)
    lanes = lanes_for(target, s.hidden, 8 * s.nbytes)
    step_bytes = rows * s.gates * -(-s.hidden // lanes) * lanes * s.nbytes
    runs = -(-s.steps // max(1, target.l2_bytes // target.figures.caches.part // step_bytes))
    return -(-s.samples // rows), -(-s.steps // runs)


def steps_ahead(s: RecurrentShape, target: Target, units: int) -> int:
    """The steps of a run where the inputs' products are best made beside those of the run before; 0 where all at once.

    That is with one sample, whose steps wait for weights, unless the inputs' are many and wait for each other's.
    """
    plan = plan_of(s, target, units, 1)
    if plan.rows > 1 or s.inputs > MOST_INPUTS * s.hidden:
        return 0
    stage = plan.states[0]
    steps = s.gates * stage.together
    fits = stage.vectors * stage.chains + steps + LEFT < target.registers
    return steps if fits and s.steps >= 2 * steps else 0


def plan_of(
    s: RecurrentShape, instructions: InstructionSet, units: int, chunk: int, ahead: bool = False
) -> RecurrentPlan:
    """Tiles that fit the registers, and scratch memory."""
    lanes = lanes_for(instructions, s.hidden, 8 * s.nbytes)
    blocks, rows = -(-s.hidden // lanes), -(-hint(s.samples) // units)
    if not isinstance(s.samples, int):  # units of as many rows as at the hint
        units = -(-s.samples // rows)
    every = tuple(range(s.gates))
    split = s.settings.op == "GRU" and not s.settings.resets_after
    states = tuple(_stage(instructions, g, s.hidden, rows, blocks) for g in (((0, 1), (2,)) if split else (every,)))
    if ahead:
        inputs = tuple(GateProduct((gate,), s.inputs, chunk, 1, 1) for gate in every)
    else:
        inputs = (_stage(instructions, every, s.inputs, rows * chunk, blocks),)
    parts, size = {}, 0
    for name, elements in _parts(s, rows, 2 * chunk if ahead else chunk, blocks * lanes):
        parts[name] = size
        size += whole_lines(elements * s.nbytes) // s.nbytes
    return RecurrentPlan(lanes, blocks, units, rows, chunk, ahead, inputs, states, MappingProxyType(parts), size)


def _parts(s: RecurrentShape, rows: int, chunk: int, width: int) -> Iterator[tuple[str, int]]:
    """What lies in a worker's scratch memory, and elements of each."""
    yield "bias", s.gates * width
    yield "hidden", 2 * rows * width
    yield "sums", chunk * rows * s.gates * width
    if s.settings.op == "LSTM":
        yield "cell", 2 * rows * width
    if s.settings.op == "GRU":
        yield ("own", width) if s.settings.resets_after else ("update", rows * width)
    if s.settings.op == "GRU" and not s.settings.resets_after:
        yield "reset", rows * width
    if "p" in s.views:
        yield "peepholes", 3 * width
    if "lengths" in s.views:
        yield "lengths", rows * 8 // s.nbytes
    for name, depth in (("w", s.inputs), ("r", s.hidden)):
        if not s.views[name].operand.constant:
            yield name, depth * s.gates * width


def _stage(instructions: InstructionSet, gates: tuple[int, ...], depth: int, rows: int, blocks: int) -> GateProduct:
    """The tile that takes the fewest cycles, by what its multiply-adds, its loads and their latency take."""
    room, figures = instructions.registers - (0 if instructions.fma else 4), TileFigures()

    def cycles(stage: GateProduct) -> float:
        sums = stage.rows * stage.vectors
        step = bound(sums / 2, stage.rows + stage.vectors, figures, FMA_LATENCY / stage.chains)
        return step * -(-rows // stage.rows) * (blocks // stage.together)

    def stages() -> Iterator[GateProduct]:
        for together in (n for n in range(1, blocks + 1) if blocks % n == 0):
            vectors = together * len(gates)
            if vectors > max(MOST_VECTORS, len(gates)):
                return
            most = max(1, (room - 1 - vectors) // vectors)
            tiles = -(-rows // most)
            each = -(-rows // tiles)
            chains = (n for n in (1, 2, 4) if n == 1 or each * vectors * n + vectors < room)
            yield from (GateProduct(gates, depth, each, together, n) for n in chains)

    return min(stages(), key=cycles)
