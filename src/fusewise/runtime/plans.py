"""One program for all sizes, made ready for those of a run: a plan for each new tuple of shapes, kept while it comes back.

All plans share one arena, at first as large as was planned for. It grows to what the largest needs, and plans for a smaller one are
forgotten then. A checked build has memory of its own for each plan, between guards, so it keeps one. Sizes for which a specialist
has made a program have a plan of that, in the same arena.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from fusewise.errors import FusewiseError, ResourceLimit, UsageError
from fusewise.ir.size import evaluate
from fusewise.lower.fixed import fixed
from fusewise.lower.program import Program
from fusewise.runtime.arena import aligned_block
from fusewise.runtime.host import planned_limit
from fusewise.runtime.jit import Library
from fusewise.runtime.plan_maker import PlanMaker
from fusewise.runtime.run_plan import Contents, HostMaker, RunPlan, run_plan_of
from fusewise.runtime.sizes import SymbolReader, divided_by_zero, negative_output, told
from fusewise.words import size_text

if TYPE_CHECKING:  # a compiled model is opened without it
    from fusewise.runtime.specialist import Special, Specialist

__all__ = ["Plans"]

_KEPT = 16
"""Plans of the program for all sizes that are kept, those used last."""

_GROWTH = 8
"""When the arena grows it is by an eighth at least, so that sizes which grow step by step seldom have it grow."""

Shapes = tuple[tuple[int, ...], ...]


class Plans:
    """The plans of a program with symbols. Used by one thread at a time."""

    def __init__(
        self,
        contents: Contents,
        library: Library,
        workers: int,
        arena: np.ndarray,
        host: Callable[[Mapping[str, int], Program], HostMaker],
    ) -> None:
        program = self._program = contents.program
        self._contents, self._library, self._workers, self._host = contents, library, workers, host
        self._reader = SymbolReader(program.symbols, program.inputs, program.checks)
        self._maker = PlanMaker(contents, library, workers, sum(self._reader.ranks), partial(host, library.addresses))
        self._limit = planned_limit()
        self._constants = 0
        self._arena = arena
        self._maker.move(arena)
        self._known: dict[Shapes, RunPlan] = {}
        self._kept = 1 if program.is_checked else _KEPT
        self.made = 0
        self.specialist: Specialist | None = None
        self._owner: Plans | None = None
        self._special_known: dict[Shapes, Special] = {}
        self._last: Shapes = ()

    def beside(self, other: Plans) -> Plans:
        """`other`, for runs beside those by these plans: it uses the programs that the specialist of these has made."""
        other._owner = self
        other._limit = self._limit
        return other

    def limit_memory(self, nbytes: int) -> None:
        """Allow so many bytes for constants, intermediate results and outputs together, if that is less than there is."""
        self._limit = planned_limit(nbytes)
        self._constants = sum(block.nbytes for block in self._contents.constants.values())

    @property
    def shaped(self) -> tuple[int, ...]:
        """The numbers of the inputs whose shapes plans are for."""
        return self._reader.shaped

    @property
    def arena_bytes(self) -> int:
        """How large the arena is now."""
        return self._arena.nbytes

    def plan(self, values: Sequence[Any]) -> RunPlan:
        """What a run on these inputs goes by. `UsageError` for shapes that do not fit, `ResourceLimit` for what is too large."""
        shapes = self._last = self._reader.rows(values)
        if self.specialist is not None:
            for stale in self.specialist.arrived(shapes):
                self._known.pop(stale, None)
        elif self._owner is not None:
            self._look_at_owner(shapes)
        found = self._known.pop(shapes, None)
        if found is None:
            found = self._planned(shapes)
            self.made += 1
            self._make_room()
        self._known[shapes] = found
        return found

    def _look_at_owner(self, shapes: Shapes) -> None:
        """A plan of another program for these shapes than the owner has by now is forgotten. It may have one at any moment."""
        specialist = None if self._owner is None else self._owner.specialist
        if specialist is None or specialist.programs.get(shapes) is self._special_known.get(shapes):
            return
        now = specialist.programs
        for stale in [shapes, *(other for other, one in self._special_known.items() if now.get(other) is not one)]:
            self._known.pop(stale, None)
            self._special_known.pop(stale, None)
        special = now.get(shapes)
        if special is not None:
            self._special_known[shapes] = special

    def _make_room(self) -> None:
        """Forget the plan used longest ago, if there are enough. Those of programs of one size, which take longer to make, stay."""
        special = self._special_known if self.specialist is None else self.specialist.programs
        others = [shapes for shapes in self._known if shapes not in special] if special else self._known
        if len(others) >= self._kept:
            self._maker.reuse(self._known.pop(next(iter(others))))

    def ran(self, elapsed_ns: int) -> None:
        """Tell the specialist of a run by the last plan."""
        shapes = self._last
        if self.specialist is not None and self.specialist.ran(shapes, elapsed_ns):
            self.specialist.begin(shapes, self._reader.values(shapes))

    def _planned(self, shapes: Shapes) -> RunPlan:
        if self.specialist is not None and shapes in self.specialist.programs:
            try:
                return self._special(self.specialist.programs[shapes], self.specialist.own_bytes)
            except (FusewiseError, MemoryError, ValueError):
                self.specialist.forget(shapes)
        if shapes in self._special_known:
            try:
                return self._special(self._special_known[shapes], 0)
            except (FusewiseError, MemoryError, ValueError):
                pass  # the program for all sizes takes less
        return self._general(shapes)

    def _special(self, special: Special, own_bytes: int) -> RunPlan:
        """A plan of a program that has been made for these sizes. `ResourceLimit` where there is no room for it."""
        contents = special.contents
        program = contents.program
        if program.is_checked:
            self._known.clear()
        else:
            outputs = sum(one.nbytes for one in program.buffers if one.kind in ("host", "output"))
            wanted = program.arena_bytes + outputs + self._constants + own_bytes
            if wanted > self._limit:
                raise self._too_large(special.sizes, wanted)
            self._grow(program.arena_bytes, self._limit - wanted + program.arena_bytes)
        host = partial(self._host, special.library.addresses)
        return run_plan_of(contents, special.library, self._workers, self._arena, host)

    def _general(self, shapes: Shapes) -> RunPlan:
        """A plan of the program for all sizes."""
        if tuple(map(len, shapes)) != self._reader.ranks:
            self._reader.values(shapes)
        maker = self._maker
        plan = maker.begun(chain.from_iterable(shapes))
        numbers = maker.tables_of(plan).numbers
        if numbers[0]:
            raise self._fault(shapes)
        total = numbers[maker.layout.total]
        wanted = total + numbers[maker.layout.outputs] + self._constants
        if wanted > self._limit:
            raise self._too_large(self._reader.values(shapes), wanted)
        while self.specialist is not None and wanted + self.specialist.own_bytes > self._limit:
            self._known.pop(self.specialist.drop(), None)
        if self._program.is_checked:
            return self._guarded(shapes)
        self._grow(total, self._limit - wanted + total)
        try:
            maker.finish(plan, self._arena)
        except ValueError as error:
            raise UsageError(
                f"the program does not fit itself for {told(self._reader.values(shapes))}: {error}"
            ) from error
        return plan

    def _grow(self, nbytes: int, most: int) -> None:
        """Have an arena of so many bytes at least; where that is a new one, not more than `most`."""
        if nbytes > self._arena.nbytes:
            larger = min(self._arena.nbytes + self._arena.nbytes // _GROWTH, most)
            self._known.clear()
            self._arena = aligned_block(0)
            self._arena = aligned_block(max(nbytes, larger))
            self._maker.move(self._arena)

    def _guarded(self, shapes: Shapes) -> RunPlan:
        """A plan of a checked build: of the program as it is for these sizes."""
        self._known.clear()
        try:
            contents = replace(self._contents, program=fixed(self._program, self._reader.values(shapes)))
        except ZeroDivisionError as error:
            raise divided_by_zero(shapes) from error
        host = partial(self._host, self._library.addresses)
        return run_plan_of(contents, self._library, self._workers, self._arena, host)

    def _too_large(self, values: Mapping[str, int], wanted: int) -> ResourceLimit:
        what = "weights, intermediate results and outputs" if self._constants else "intermediate results and outputs"
        return ResourceLimit(
            f"the model's {what} would take {size_text(wanted)} for {told(values)}, more than the {size_text(self._limit)} "
            "that it may use: use smaller input shapes, or a higher limit"
        )

    def _fault(self, shapes: Shapes) -> FusewiseError:
        """What is wrong with shapes for which the numbers are not sound."""
        try:
            values = self._reader.values(shapes)
            self._reader.check(values)
            return _unsound(self._program, values) or self._too_large(values, 1 << 63)
        except FusewiseError as error:
            return error
        except ZeroDivisionError:
            return divided_by_zero(shapes)


def _unsound(program: Program, values: Mapping[str, int]) -> FusewiseError | None:
    """What has less than no elements for these values of symbols."""
    with_less = negative_output(program.outputs, values)
    if with_less is not None:
        return with_less
    for buffer in program.buffers:
        number = evaluate(buffer.nbytes, values)
        if number < 0:
            what = f"{buffer.value!r}" if buffer.value else "a value between the model's nodes"
            return UsageError(f"{what} would have less than no elements for {told(values)}: use larger input shapes")
    return None
