"""Reductions whose operands and sums lie in memory, as programs and as NumPy has them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusewise.codegen.nest.build import Module
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.nest.tile import ReductionLoop, Tile, accumulate_tiles, with_tiles
from fusewise.records import record

__all__ = ["OnTiles"]


@record(frozen=True)
class OnTiles:
    """`rows` x `vectors` tiles, reduced over `outer` runs of `inner` steps of an instruction, runs of rows `apart` lanes from
    each other; with `phases`, the first of each so many, then the second ones."""

    instruction: Instruction
    rows: int
    vectors: int
    outer: int
    inner: int
    apart: int
    from_zero: bool = False
    phases: int = 1

    @property
    def tile(self) -> Tile:
        row = self.instruction
        return Tile(self.rows * row.rows, self.vectors, row.lanes, row)

    @property
    def levels(self) -> tuple[ReductionLoop, ...]:
        lanes = self.inner * self.instruction.steps
        between, phases = lanes + self.apart, self.phases
        runs = -(-self.outer // phases)
        outer = ReductionLoop(self.outer, between, phases=phases, phase_stride=runs * between if phases > 1 else 0)
        return (outer, ReductionLoop(lanes, 1))

    @property
    def places(self) -> list[int]:
        """Where each run is in a row, in lanes."""
        outer = self.levels[0]
        return [k // self.phases * outer.stride + k % self.phases * outer.phase_stride for k in range(self.outer)]

    @property
    def pitches(self) -> tuple[int, int]:
        """Of rows and of the panel, in lanes."""
        runs = -(-self.outer // self.phases) * self.phases
        return runs * (self.inner * self.instruction.steps + self.apart) + 3, self.tile.width + 5

    def program(self) -> Module:
        """A function of sums, rows and panel."""
        module = Module()
        f = module.function("f", ("ptr", "ptr", "ptr"))
        sums, left, right = f.arguments
        (left_pitch, right_pitch), row = self.pitches, self.instruction
        with_tiles(
            f,
            row,
            lambda: accumulate_tiles(
                f, self.tile, sums, (left, left_pitch), (right, right_pitch), self.levels, self.from_zero
            ),
        )
        f.give_back()
        return module

    def operands(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sums, rows [rows, pitch, terms] and panel [steps, pitch, terms], all small whole numbers."""
        rng, row = np.random.default_rng(seed), self.instruction
        assert row.matrix is not None
        (left_pitch, right_pitch), steps = self.pitches, self.outer * self.inner * row.steps
        left = rng.integers(0, 8, (self.tile.rows, left_pitch, row.terms)).astype((row.matrix.part or row.left).numpy)
        right = rng.integers(0, 8, (steps, right_pitch, row.terms)).astype((row.matrix.part or row.right).numpy)
        sums = rng.integers(-99, 99, (self.tile.rows, self.tile.width)).astype(row.sum.numpy)
        return sums, left, right

    def expected(self, operands: Sequence[np.ndarray]) -> np.ndarray:
        """The sums behind it."""
        (sums, left, right), form = (x.astype(np.float64) for x in operands), self.instruction.matrix
        assert form is not None
        runs = [left[:, at : at + self.levels[1].extent] for at in self.places]
        rows = np.concatenate(runs, axis=1).reshape(self.tile.rows, -1, form.parts, form.steps, self.instruction.terms)
        panel = right[:, : self.tile.width].reshape(-1, form.parts, form.steps, self.tile.width, self.instruction.terms)
        sums = sums * (not self.from_zero)
        for a, b in form.products:
            sums = sums + np.einsum("mukt,uknt->mn", rows[:, :, a], panel[:, b])
        return sums.astype(operands[0].dtype)
