"""Which kernel a GPU runs a task by: of the families the first that accepts, else the same of the task without its anchor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from types import MappingProxyType

from fusewise.codegen.gpu.attention import attention
from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.forests import forest
from fusewise.codegen.gpu.kernel import GpuKernel, NoKernel
from fusewise.codegen.gpu.linear_attention import linear_attention
from fusewise.codegen.gpu.nests import nest
from fusewise.codegen.gpu.products import other_products, product
from fusewise.codegen.gpu.recurrences import other_recurrences, recurrence
from fusewise.codegen.gpu.reductions import reduction
from fusewise.codegen.gpu.roi_pools import roi_pool
from fusewise.codegen.gpu.rows import rows
from fusewise.codegen.gpu.scans import scan
from fusewise.codegen.gpu.scatters import scatter
from fusewise.codegen.gpu.tops import top_k
from fusewise.codegen.gpu.windows import window
from fusewise.lower.task import Task
from fusewise.lower.work import TaskWork
from fusewise.ops.spec import WHOLE_FAMILIES
from fusewise.records import record
from fusewise.trace import Trace

__all__ = ["FAMILIES", "ChosenKernel", "GpuChoice", "KernelFamily", "as_it_lies", "candidates"]

MOST_CANDIDATES = 6
"""Kernels that are tried for a task, the favourite among them."""
_FIRST: Mapping[str, int] = MappingProxyType({})


_BOUNDARY = 16
"""Bytes of the widest load of a thread. More is of no use, and arrays that lie on a device already need not have it."""


def _none(task: Task, device: Device, precision: str) -> Iterator[GpuKernel]:
    return iter(())


@record(frozen=True, slots=True)
class KernelFamily:
    """Kernels that are written alike. `write(task, device, precision)` gives one for a task, or raises `NoKernel`; `precision` is
    what products of float32 are computed in, one of `float32 exact tf32`. `others` gives those that a task which it accepts may
    also be run by, the likely first."""

    name: str
    write: Callable[[Task, Device, str], GpuKernel]
    others: Callable[[Task, Device, str], Iterator[GpuKernel]] = _none


def _rows(task: Task, device: Device, precision: str) -> GpuKernel:
    return rows(task, device)


def _nest(task: Task, device: Device, precision: str) -> GpuKernel:
    return nest(task, device)


FAMILIES: tuple[KernelFamily, ...] = (
    KernelFamily("window", window),
    KernelFamily("product", product, other_products),
    KernelFamily("attention", attention),
    KernelFamily("scan", scan),
    KernelFamily("forest", forest),
    KernelFamily("linear-attention", linear_attention),
    KernelFamily("recurrence", recurrence, other_recurrences),
    KernelFamily("scatter", scatter),
    KernelFamily("top_k", top_k),
    KernelFamily("roi_pool", roi_pool),
    KernelFamily("rows", _rows),
    KernelFamily("reduction", reduction),
    KernelFamily("nest", _nest),
)
"""In the order in which they are asked. Those that are called as families of nodes that are one task each are for these alone. The
last accepts every task that has a definition, and is never refused by name."""


@record(frozen=True, slots=True)
class ChosenKernel:
    """A kernel, the family that it is of, the work that it does, and why families before did not accept it."""

    family: str
    kernel: GpuKernel
    work: TaskWork
    refusals: tuple[str, ...] = ()


def candidates(task: Task, device: Device, precision: str) -> tuple[tuple[str, GpuKernel], ...]:
    """Kernels to choose of for a task, at most `MOST_CANDIDATES`, by the names of their families: the favourite of the first family
    that accepts, that of each later one, then others of the first."""
    found: list[tuple[KernelFamily, GpuKernel]] = []
    for family in _families(task):
        try:
            found.append((family, family.write(task, device, precision)))
        except NoKernel:
            continue
    others = found[0][0].others(task, device, precision) if found else iter(())
    named = [(family.name, kernel) for family, kernel in found]
    named += [(found[0][0].name, kernel) for kernel in islice(others, MOST_CANDIDATES - len(named))]
    return tuple(named)


class GpuChoice:
    """Chooses kernels for one program; of equal tasks once, though leave is asked for each. `ways` may name, by a task's digest,
    another of its `candidates` than the first."""

    def __init__(self, device: Device, precision: str, ways: Mapping[str, int] = _FIRST) -> None:
        self._device, self._precision, self._ways = device, precision, ways
        self._known: dict[tuple[str, str], GpuKernel | NoKernel] = {}

    def of(self, work: TaskWork, trace: Trace) -> ChosenKernel:
        """The kernel for some work, whose decision `trace` may refuse; `NoKernel` with all refusals when there is none."""
        refusals: list[str] = []
        for one in _with_and_without_anchor(work):
            for family in _families(one.bound.task):
                found = self._asked(family, one.bound.task)
                if isinstance(found, NoKernel):
                    refusals.append(f"{family.name}: {found}")
                    continue
                note = f"after {'; '.join(refusals)}" if refusals else "first candidate"
                allowed = trace.allows("kernel", family.name, one.nodes, note, titles=(one.label,))
                if allowed or family is FAMILIES[-1]:
                    return self._other(one, trace) or ChosenKernel(family.name, found, one, tuple(refusals))
                refusals.append(f"{family.name}: refused")
        raise NoKernel("; ".join(dict.fromkeys(refusals)))

    def _other(self, work: TaskWork, trace: Trace) -> ChosenKernel | None:
        """The kernel that is wanted in place of the first, if there is one by that number and its decision is not refused."""
        task = work.bound.task
        number = self._ways.get(task.digest, 0)
        found = candidates(task, self._device, self._precision) if number else ()
        if number >= len(found):
            return None
        name, kernel = found[number]
        allowed = trace.allows("kernel", name, work.nodes, "measured", titles=(work.label,))
        return ChosenKernel(name, kernel, work) if allowed else None

    def _asked(self, family: KernelFamily, task: Task) -> GpuKernel | NoKernel:
        key = family.name, task.key
        if key not in self._known:
            try:
                self._known[key] = family.write(task, self._device, self._precision)
            except NoKernel as refusal:
                self._known[key] = refusal.with_traceback(
                    None
                )  # which would hold what called this, its callers, and so on
        return self._known[key]


def _families(task: Task) -> Iterator[KernelFamily]:
    """Those to ask: of a node that is one task its own alone, which no other has a way for."""
    whole = WHOLE_FAMILIES & {"" if task.anchor is None else task.anchor.family}
    named = ((family.name.replace("-", "_"), family) for family in FAMILIES)
    return (family for name, family in named if (name in whole if whole else name not in WHOLE_FAMILIES))


def _with_and_without_anchor(work: TaskWork) -> Iterator[TaskWork]:
    yield as_it_lies(work)
    if work.plain is not None:
        yield as_it_lies(work.plain())


def as_it_lies(work: TaskWork) -> TaskWork:
    """The work with the alignment that operands have on a device, where all memory begins on wide boundaries; a processor reads
    inputs where its caller has them."""
    found = []
    for operand in work.bound.task.operands:
        _, offset = work.places.get(operand.name, ("", 0))
        begin = offset * operand.dtype.itemsize
        found.append(replace(operand, alignment=min(_BOUNDARY, (begin & -begin) or _BOUNDARY)))
    return replace(work, bound=replace(work.bound, task=replace(work.bound.task, operands=tuple(found))))
