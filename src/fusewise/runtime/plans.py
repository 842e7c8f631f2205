"""One program for all sizes, made ready for those of a run: a plan for each new tuple of shapes, kept while it comes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fusewise.errors import ResourceLimit, UsageError
from fusewise.ir.types import TensorType
from fusewise.lower.fixed import fixed
from fusewise.lower.program import Program
from fusewise.runtime.host import check_memory
from fusewise.runtime.jit import Library
from fusewise.runtime.run_plan import Contents, HostMaker, RunPlan, run_plan_of
from fusewise.runtime.sizes import SymbolReader, told

__all__ = ["Plans"]

_KEPT = 16
"""Plans that are kept, those used last."""

_MOST_BYTES = 1 << 62


class Plans:
    """The plans of a program with symbols. Used by one thread at a time."""

    def __init__(
        self,
        contents: Contents,
        library: Library,
        workers: int,
        host: Callable[[], HostMaker],
        limit: int | None = None,
    ) -> None:
        self._contents, self._library, self._workers, self._host, self._limit = contents, library, workers, host, limit
        program = contents.program
        self._reader = SymbolReader(program.symbols, program.inputs, program.checks)
        self._known: dict[tuple[tuple[int, ...], ...], RunPlan] = {}
        self.made = 0

    @property
    def shaped(self) -> tuple[int, ...]:
        """The numbers of the inputs whose shapes plans are for."""
        return self._reader.shaped

    def plan(self, values: Sequence[Any]) -> RunPlan:
        """What a run on these inputs goes by. `UsageError` for shapes that do not fit, `ResourceLimit` for what is too large."""
        shapes = tuple([values[k].shape for k in self._reader.shaped])
        found = self._known.pop(shapes, None)
        if found is None:
            found = self._planned(shapes)
            self.made += 1
            if len(self._known) >= _KEPT:
                del self._known[next(iter(self._known))]
        self._known[shapes] = found
        return found

    def _planned(self, shapes: tuple[tuple[int, ...], ...]) -> RunPlan:
        values = self._reader.values(shapes)
        self._reader.check(values)
        program = fixed(self._contents.program, values)
        require_sound(program, told(values))
        own = sum(buffer.nbytes for buffer in program.buffers if buffer.kind in ("host", "output"))
        check_memory(program.arena_bytes + own, f"the model's intermediate results for {told(values)}")
        contents = replace(self._contents, program=program)
        return run_plan_of(contents, self._library, self._workers, None, self._host)


def require_sound(program: Program, sizes: str) -> None:
    """Raise `UsageError` for dimensions below 0, and `ResourceLimit` for sizes that nothing has, of a program for these `sizes`."""
    for port in program.outputs:
        shape = port.type.shape if isinstance(port.type, TensorType) else None
        for axis, dim in enumerate(shape or ()):
            if isinstance(dim, int) and dim < 0:
                raise UsageError(f"output {port.name!r} would have {dim} elements along axis {axis} for {sizes}")
    for buffer in program.buffers:
        if buffer.nbytes < 0:
            raise UsageError(f"a value between the model's nodes would have a negative size for {sizes}")
        if buffer.nbytes > _MOST_BYTES:
            raise ResourceLimit(f"the model's values are larger than any memory for {sizes}: use smaller input shapes")
