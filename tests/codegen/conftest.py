"""Machines to generate code for, and how one kernel is run on NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.codegen.nest.interpreted import agrees
from tests.codegen.ways import program_of, scheduled, way
from tests.guarded import Guarded, guarded, within
from tests.machines import runnable

from fusewise.codegen.kernel import Argument, Implementation, Kernel
from fusewise.codegen.llvm.checked import checked
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.steps.extents import extents_of
from fusewise.codegen.steps.overwrite import overwritable
from fusewise.codegen.target import LINE_BYTES, Target
from fusewise.lower.program import Extent
from fusewise.lower.task import Task
from fusewise.runtime.access import AccessTable, Range
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import Library, compile_object, load

RunKernel = Callable[..., None]

Share = tuple[int, int, int, int, int]
"""What a kernel is told of the part that it does: see `codegen.llvm.share.Share`."""

OWN = ("scratch", "next", "fault")
"""Arguments that are no operands: memory to work in, what comes next, which is fetched and not read, and where positions that are
out of bounds are reported."""


def in_pieces(workers: int) -> list[Share]:
    """Calls in which every worker does the first half of its share, and others the quarters that are left."""
    begun = [(4 * worker, 4 * worker + 2, 4 * workers, worker, 0) for worker in range(workers)]
    rest = [(4 * worker + k, 4 * worker + k + 1, 4 * workers) for k in (2, 3) for worker in range(workers)]
    return begun[::-1] + [(*piece, number % max(1, workers - 1), 1) for number, piece in enumerate(rest)]


def at_once(workers: int) -> list[Share]:
    """Calls in which every worker does all of its share."""
    return [(worker, worker + 1, workers, worker, 0) for worker in range(workers)]


@dataclass(frozen=True)
class Loaded:
    """A kernel in memory, for so many workers; with `extents` one that looks at what it touches."""

    library: Library
    arguments: Sequence[Argument]
    writes: frozenset[str]
    workers: int
    sites: int
    extents: tuple[Extent, ...] = ()

    def call(self, given: Mapping[str, np.ndarray], shares: Sequence[Share], flush: str) -> None:
        """Run it on arrays between guard pages, against one of which they lie (`tests.guarded`). An array that is given for several
        operands is one place in memory."""
        named = {a.name: given[a.name] for a in self.arguments if a.name not in OWN}
        first = {id(array): name for name, array in reversed(named.items())}
        once = {name: named[name] for name in first.values()}
        with within(once, flush, {first[id(named[name])] for name in self.writes}) as placed:
            rooms = {a.name: guarded(self._room(a), flush, LINE_BYTES) for a in self.arguments if a.name in OWN}
            places = [rooms[a.name] if a.name in OWN else placed[first[id(named[a.name])]] for a in self.arguments]
            table = AccessTable([_range(*each) for each in zip(self.extents, places, strict=bool(self.extents))])
            words = np.array([table.address, *(place.address for place in places)], np.int64)
            function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 5)(self.library.addresses["kernel"])
            for share in shares:
                function(words[1:].ctypes.data, *share)
            table.require("the kernel")
            for name, room in rooms.items():
                room.check(name)
                assert name != "fault" or not room.array.any(), "a position is out of bounds"

    def _room(self, argument: Argument) -> np.ndarray:
        nbytes = 16 * self.sites if argument.name == "fault" else argument.nbytes
        return np.zeros(nbytes * (self.workers if argument.per_worker else 1), np.uint8)


def _range(extent: Extent, place: Guarded) -> Range:
    end = extent.high if extent.high >= 0 else place.array.nbytes
    return Range(extent.argument, place.address + extent.low, place.address + end, extent.writes)


def run(
    way: Implementation,
    target: Target,
    arrays: Mapping[str, np.ndarray],
    workers: int = 1,
    most: int | None = None,
) -> None:
    """Compile a way to run a task and call it once per worker, one after the other; again piece by piece, and where it may with its
    result on top of what it adds, which all must be the same. All that it is given lies between guard pages: flush with the one
    behind the first time, with the one before the second. It is also interpreted: without `most`, unless it is long."""
    task, module, arguments = way.task, program_of(way, target.instructions, "kernel"), way.arguments
    text = llvm_text(module, target.instructions)
    names = {operand.name: "" for operand in task.operands}
    extents = extents_of(task, names, arguments, workers) if host_target().sanitize else ()
    text = checked(text, "kernel") if extents else text
    library = load([compile_object(text, target.instructions, way.level)], ["kernel"])
    writes = frozenset(store.operand for store in task.stores)
    loaded = Loaded(library, arguments, writes, workers, task.sites, extents)
    copies = {name: array.copy() for name, array in arrays.items()}
    before = {name: array.copy() for name, array in arrays.items()}
    loaded.call(arrays, at_once(workers), "behind")
    loaded.call(copies, in_pieces(workers), "before")
    for name, array in arrays.items():
        assert array.tobytes() == copies[name].tobytes(), f"{name} is another when work is dealt out in pieces"
    agrees(way, module, before, arrays, workers, most)
    for read in overwritable(task) if way.writes_once else ():
        written = task.stores[0].operand
        for shares, flush in ((at_once(workers), "behind"), (in_pieces(workers), "before")):
            place = arrays[read].copy()
            loaded.call({**arrays, read: place, written: place}, shares, flush)
            assert place.tobytes() == arrays[written].tobytes(), f"{written} is another on top of {read}"


@pytest.fixture(scope="session", params=runnable(), ids=lambda target: target.name)
def target(request: pytest.FixtureRequest) -> Target:
    """A machine whose code runs here."""
    machine: Target = request.param
    return machine


@pytest.fixture
def run_kernel(target: Target) -> RunKernel:
    """`run_kernel(kernel, task, arrays, workers=1, schedule=None, machine=target)`: arrays are the operands' buffers, by
    name. Without a schedule the kernel must accept the task, and runs it by its first."""

    def on_machine(
        kernel: Kernel[Any, Any],
        task: Task,
        arrays: Mapping[str, np.ndarray],
        workers: int = 1,
        schedule: Any = None,
        machine: Target = target,
    ) -> None:
        found = way(kernel, task, machine) if schedule is None else scheduled(kernel, task, machine, schedule)
        run(found, machine, arrays, workers)

    return on_machine
