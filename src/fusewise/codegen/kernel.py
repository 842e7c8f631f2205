"""The seam between tasks and kernels: candidates are tried in order, the first that accepts wins, the last accepts all.

A kernel understands a task, proposes schedules for it, and writes code by one of them. Figures of a machine (caches, workers, what
is lost beside multiply-adds) are read when schedules are made; the code is a function of task, instructions and schedule alone, so
these are its key.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from fusewise.codegen.nest.build import Module
from fusewise.codegen.target import LINE_BYTES, InstructionSet, Target, whole_lines
from fusewise.ir.deciding import at_hint
from fusewise.ir.size import greatest
from fusewise.lower.program import Packing
from fusewise.lower.task import RefusalReason, Task
from fusewise.records import record

__all__ = [
    "Argument",
    "Implementation",
    "Kernel",
    "Prefetch",
    "Sharing",
    "Unscheduled",
    "unscheduled",
    "working_memory",
]

T = TypeVar("T")
S = TypeVar("S")


@record(frozen=True)
class Argument:
    """One pointer the kernel takes: an operand of the task by name, optionally repacked (constants only).

    The name `scratch` with `nbytes` asks for working memory shared by all workers (private parts are carved by worker
    number; `per_worker` says that `nbytes` is for each worker). The name `later` is memory that a later step reads, `next` the
    weights of the next step (`steps.prefetch`), `fault` where the task says which of its `sites` found what, `call` the number of
    the call, an int64, of a kernel that all workers call `nbytes` / 8 times, one time after the other, `sizes` the numbers that the
    sizes of its module are, int64.
    """

    name: str
    packing: Packing | None = None
    nbytes: int = 0
    per_worker: bool = False


def working_memory(nbytes: int) -> Argument:
    """Scratch memory for each worker, in whole cache lines of its own, behind one that says what it holds (`Function.stage`)."""
    return Argument("scratch", nbytes=LINE_BYTES + whole_lines(greatest(1, nbytes)), per_worker=True)


@record(frozen=True)
class Sharing:
    """How a kernel deals out the rows of a plane of one sample.

    `nbytes` is what it writes. Of shares that count from 0, `done(number, shares)` is how many rows from the top are complete
    when those before `number` are done, `begun` the first row below which nothing of those before is; `reads` has the rows of
    its input that a share reads, from and up to.
    """

    nbytes: int
    done: Callable[[int, int], int]
    begun: Callable[[int, int], int]
    reads: Callable[[int, int], tuple[int, int]]


@record(frozen=True)
class Prefetch:
    """Bytes that a later step reads and this one fetches for it: `nbytes` of `of` for the first worker, from the argument `later`
    on."""

    nbytes: int
    of: int


@record(frozen=True)
class Unscheduled:
    """The schedule of kernels that have no choice to make."""


@record(frozen=True)
class Kernel(Generic[T, S]):
    """One way to run a task. `T` is what it makes of a task, `S` the schedule that it writes code by, a record.

    - `understand(task, instructions)`: the task in the kernel's terms, or the reason why it does not accept it.
    - `schedules(understood, task, target)`: schedules worth trying, the analytic favourite first; their `repr` is part of the key
      of the code.
    - `every(understood, task, target)`: all schedules that `schedules` would choose from, for what has to fit others (`versions`).
    - `arguments(understood, task, schedule)`: the pointers it takes, in order; cheap, needs no code.
    - `build(understood, task, instructions, schedule, symbol)`: the LLVM IR text.
    - `declines(understood, task, target)`: the reason why another kernel does better, if one does.
    - `cycles(understood, target, schedule)`: cycles that its multiply-adds take one core at least; 0 of kernels that cannot fetch
      for a later step meanwhile. Others do by the schedule that `fetching(schedule, prefetch)` gives.
    - `pieces(understood, target, schedule)`: in how many pieces a worker's run is dealt out, 1 where all of it is given at once.
    - `writes_once(understood, schedule)`: is every element of the results written once, after all that its store reads?
    - `sharing(understood, schedule)`: how rows of output are dealt out, if they are and there is one plane of them.
    - `saves(understood, schedule)`: how many multiplications of the definition one of its own stands for, at most.
    - `effort`: how long LLVM takes for it, in rough proportion; what takes long is compiled first.
    - `level(schedule)`: which of LLVM's passes its code needs: `full`, `tidy` where it is written out register by register and
      nothing is left in its loops that does not change there, `bare` where moreover next to nothing in them is computed twice.
    """

    name: str
    understand: Callable[[Task, InstructionSet], T | RefusalReason]
    schedules: Callable[[T, Task, Target], Iterable[S]]
    arguments: Callable[[T, Task, S], tuple[Argument, ...]]
    build: Callable[[T, Task, InstructionSet, S, str], Module]
    declines: Callable[[T, Task, Target], RefusalReason | None] = lambda understood, task, target: None
    cycles: Callable[[T, Target, S], int] = lambda understood, target, schedule: 0
    fetching: Callable[[S, Prefetch], S] = lambda schedule, prefetch: schedule
    sharing: Callable[[T, S], Sharing | None] = lambda understood, schedule: None
    pieces: Callable[[T, Target, S], int] = lambda understood, target, schedule: 1
    writes_once: Callable[[T, S], bool] = lambda understood, schedule: False
    saves: Callable[[T, S], float] = lambda understood, schedule: 1.0
    effort: int = 1
    level: Callable[[S], str] = lambda schedule: "full"
    every: Callable[[T, Task, Target], Iterable[S]] = lambda understood, task, target: ()

    def implementations(self, task: Task, target: Target) -> Iterable[Implementation] | RefusalReason:
        """Ways to run a task, the favourite first, or why this kernel does not."""
        understood = self.understand(task, target.instructions)
        if isinstance(understood, RefusalReason):
            return understood
        declined = self.declines(understood, task, target)
        if declined is not None:
            return declined
        return (Implementation(self, task, understood, one) for one in self.schedules(understood, task, target))


@record(frozen=True)
class Implementation:
    """A task as one kernel runs it, by one schedule. The kernel has made `understood` of the task, once."""

    kernel: Kernel[Any, Any]
    task: Task
    understood: Any
    schedule: Any

    @property
    def key(self) -> str:
        """What its code depends on, beside the instructions."""
        return f"{self.kernel.name}|{self.schedule!r}|{self.task.key}"

    @property
    def _planned(self) -> Any:
        """What is understood, with numbers for sizes. A task that has none is not searched for them, which would take long."""
        return self.understood if self.task.is_fixed else at_hint(self.understood)

    @property
    def told(self) -> str:
        """Kernel and schedule, for people: what is not as usual, and how many multiplications one stands for if not one."""
        saves = self.kernel.saves(self._planned, self.schedule)
        return " ".join((self.kernel.name, *_told(self.schedule), *([] if saves == 1 else [f"saves={saves:.4g}"])))

    @property
    def level(self) -> str:
        return self.kernel.level(self.schedule)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return self.kernel.arguments(self.understood, self.task, self.schedule)

    @property
    def writes_once(self) -> bool:
        return self.kernel.writes_once(self.understood, self.schedule)

    @property
    def sharing(self) -> Sharing | None:
        return None if not self.task.is_fixed else self.kernel.sharing(self.understood, self.schedule)

    def cycles(self, target: Target) -> int:
        return self.kernel.cycles(self.understood, target, self.schedule) if self.task.is_fixed else 0

    def pieces(self, target: Target) -> int:
        return self.kernel.pieces(self._planned, target, self.schedule)

    def build(self, instructions: InstructionSet, symbol: str) -> Module:
        """The code, with a function of that name."""
        return self.kernel.build(self.understood, self.task, instructions, self.schedule, symbol)

    def fetching(self, prefetch: Prefetch) -> Implementation:
        """The same, fetching for a later step."""
        schedule = self.kernel.fetching(self.schedule, prefetch)
        return Implementation(self.kernel, self.task, self.understood, schedule)


def unscheduled(understood: object, task: Task, target: Target) -> tuple[Unscheduled]:
    """The schedules of a kernel that has no choice to make."""
    return (Unscheduled(),)


def _told(schedule: Any, before: str = "") -> Iterator[str]:
    """Fields that are not at their defaults; those of a record that is a field by their own names, of one that may be absent behind
    its name; of one that has a name of its own, that."""
    for one in dataclasses.fields(schedule):
        value = getattr(schedule, one.name)
        if dataclasses.is_dataclass(value) and not hasattr(value, "name"):
            yield from _told(value, f"{one.name}." if one.default is None else before)
        elif value != one.default:
            yield f"{before}{one.name}={value}"
