"""The seam between tasks and kernels: candidates are tried in order, the first that accepts wins, the last accepts all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from fusewise.codegen.strips import Sharing
from fusewise.codegen.target import LINE_BYTES, Target, whole_lines
from fusewise.lower.program import Packing
from fusewise.lower.task import Reason, Task
from fusewise.records import record

__all__ = ["Argument", "Kernel", "Params", "kernel_of", "working_memory"]

Params = Mapping[str, int | str | bool]

T = TypeVar("T")


@record(frozen=True)
class Argument:
    """One pointer the kernel takes: an operand of the task by name, optionally repacked (constants only).

    The name `scratch` with `nbytes` asks for working memory shared by all workers (private parts are carved by worker
    number; `per_worker` says that `nbytes` is for each worker). The name `later` is memory that a later step reads, `next` the
    weights of the next step (`foresight.followers`), `fault` where the task says which of its `sites` found what, `call` the number
    of the call, an int64, of a kernel that all workers call `nbytes` / 8 times, one time after the other.
    """

    name: str
    packing: Packing | None = None
    nbytes: int = 0
    per_worker: bool = False


def working_memory(nbytes: int) -> Argument:
    """Scratch memory for each worker, in whole cache lines of its own, behind one that says what it holds (`share.prepared`)."""
    return Argument("scratch", nbytes=LINE_BYTES + whole_lines(max(1, nbytes)), per_worker=True)


@record(frozen=True)
class Kernel:
    """One way to run a task.

    - `accepts(task, target)`: None, or the reason why not.
    - `space(task, target)`: parameter sets worth trying, the analytic favourite first.
    - `arguments(task, target, params)`: the pointers it takes, in order; cheap, needs no code.
    - `build(task, target, params, symbol)`: the LLVM IR text.
    - `cycles(task, target, params)`: cycles that its multiply-adds take one core at least; 0 of kernels that cannot fetch for
      a later step meanwhile. Others do with `later` among the parameters: so many bytes of `of` that the later step reads, from
      the argument `later` on, which is given for the first worker.
    - `pieces(task, target, params)`: in how many pieces a worker's run is dealt out, 1 where all of it is given at once.
    - `writes_once(task, target, params)`: is every element of the results written once, after all that its store reads?
    - `sharing(task, target, params)`: how rows of output are dealt out, if they are and there is one plane of them.
    - `effort`: how long LLVM takes for it, in rough proportion; what takes long is compiled first.
    - `level(params)`: which of LLVM's passes its code needs: `full`, `tidy` where it is written out register by register and
      nothing is left in its loops that does not change there, `bare` where moreover next to nothing in them is computed twice.
    """

    name: str
    accepts: Callable[[Task, Target], Reason | None]
    space: Callable[[Task, Target], Iterable[Params]]
    arguments: Callable[[Task, Target, Params], tuple[Argument, ...]]
    build: Callable[[Task, Target, Params, str], str]
    cycles: Callable[[Task, Target, Params], int] = lambda task, target, params: 0
    sharing: Callable[[Task, Target, Params], Sharing | None] = lambda task, target, params: None
    pieces: Callable[[Task, Target, Params], int] = lambda task, target, params: 1
    writes_once: Callable[[Task, Target, Params], bool] = lambda task, target, params: False
    effort: int = 1
    level: Callable[[Params], str] = lambda params: "full"


def kernel_of(
    name: str,
    understand: Callable[[Task, Target], T | Reason],
    space: Callable[[T, Target], Iterable[Params]],
    arguments: Callable[[T, Task, Params], tuple[Argument, ...]],
    build: Callable[[T, Task, Target, Params, str], str],
    cycles: Callable[[T, Target, Params], int] = lambda found, target, params: 0,
    sharing: Callable[[T, Params], Sharing | None] = lambda found, params: None,
    pieces: Callable[[T, Target, Params], int] = lambda found, target, params: 1,
    writes_once: Callable[[T, Params], bool] = lambda found, params: False,
    effort: int = 1,
    level: str = "full",
) -> Kernel:
    """The kernel of the tasks that `understand` makes something of; the other functions are given that."""

    def accepts(task: Task, target: Target) -> Reason | None:
        found = understand(task, target)
        return found if isinstance(found, Reason) else None

    def understood(task: Task, target: Target) -> T:
        found = understand(task, target)
        assert not isinstance(found, Reason), found
        return found

    return Kernel(
        name,
        accepts,
        lambda task, target: space(understood(task, target), target),
        lambda task, target, params: arguments(understood(task, target), task, params),
        lambda task, target, params, symbol: build(understood(task, target), task, target, params, symbol),
        lambda task, target, params: cycles(understood(task, target), target, params),
        lambda task, target, params: sharing(understood(task, target), params),
        lambda task, target, params: pieces(understood(task, target), target, params),
        lambda task, target, params: writes_once(understood(task, target), params),
        effort,
        lambda params: level,
    )
