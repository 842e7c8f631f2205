"""Which stretches of work run sample by sample, so that what a step writes is still in the caches when the next one reads it.

All samples of a step at once read its weights once; one sample after another, through a stretch of steps, has maps of one sample
only. That pays where maps of all samples leave the caches, and those of one do not, by more than reading weights again costs. What
either comes to is summed up here from sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from fusewise.codegen.steps.draft import ProgramDraft, SampleRange, Visit
from fusewise.codegen.target import Target
from fusewise.lower.samples import of_one_sample
from fusewise.lower.work import HostWork, TaskWork
from fusewise.records import record
from fusewise.trace import Trace

__all__ = ["in_turn", "run_by_samples", "stretches"]

MOST_SAMPLES = 64
"""Every sample has steps of its own in the program."""

LONGEST = 512
"""Steps of one stretch. Longer ones are not looked for."""

FEW_CHANNELS = 4
"""Up to so many input channels of an output a convolution computes little, as depthwise ones do."""


def run_by_samples(draft: ProgramDraft, target: Target, trace: Trace) -> ProgramDraft:
    """The pass that has stretches of work done sample by sample, where that pays."""

    def nbytes(one: TaskWork, name: str) -> int:
        return draft.root_bytes(one.places[name][0], one.bound.values[name])

    work, found = list(draft.work), list[SampleRange]()
    for one in stretches(draft.work, nbytes, frozenset(draft.ports), target):
        names = tuple(dict.fromkeys(name for each in one.work for name in each.nodes))
        titles = tuple(dict.fromkeys(each.label for each in one.work))
        if trace.allows("kernel", "samples", names, f"{one.samples} one after another", titles=titles):
            work[one.first : one.end] = one.work
            found.append(one)
    return replace(draft, work=tuple(work), stretches=tuple(found), visits=tuple(in_turn(len(work), found)))


def in_turn(steps: int, stretches: Iterable[SampleRange]) -> Iterator[Visit]:
    """The steps in order, those of a stretch once for each sample."""
    at = 0
    for found in stretches:
        yield from map(Visit, range(at, found.first))
        for sample in range(found.samples):
            yield from (Visit(number, sample) for number in range(found.first, found.end))
        at = found.end
    yield from map(Visit, range(at, steps))


def stretches(
    work: Sequence[TaskWork | HostWork], sizes: Callable[[TaskWork, str], int], kept: frozenset[str], target: Target
) -> list[SampleRange]:
    """The stretches that pay, in order.

    `sizes` has the bytes of the root that an operand lies in; roots that are `kept` are read or written from outside.
    """
    samples = [_samples(one) for one in work]
    written = {
        one.places[store.operand][0] for one in work if isinstance(one, TaskWork) for store in one.bound.task.stores
    }
    small = [_apart(one, n, written, sizes) for one, n in zip(work, samples, strict=True)]
    found: list[SampleRange] = []
    uses, begin = _uses_of(work), 0
    while begin < len(work):
        end = begin
        while end < len(work) and small[end] is not None and samples[end] == samples[begin]:
            end += 1
        if end - begin > 1:
            pieces = [one for one in small[begin:end] if one is not None]
            run = _Run(begin, samples[begin], pieces, uses, sizes, kept, target)
            found.extend(run.stretches())
        begin = max(end, begin + 1)
    return found


def _samples(one: TaskWork | HostWork) -> int:
    """How many samples there may be; 0 where there are none or too many."""
    extents = one.bound.task.extents if isinstance(one, TaskWork) else ()
    if not extents or not isinstance(one, TaskWork) or not one.bound.task.is_fixed:
        return 0
    return extents[0] if 1 < extents[0] <= MOST_SAMPLES else 0


def _apart(
    one: TaskWork | HostWork, samples: int, written: AbstractSet[str], sizes: Callable[[TaskWork, str], int]
) -> TaskWork | None:
    """The work for one sample; None where it cannot be so, or touches more of what is `written` than its own sample.

    That is all that is there when a stretch comes to it.
    """
    small = of_one_sample(one) if isinstance(one, TaskWork) and samples else None
    if small is None:
        return None
    for o in small.bound.task.operands:
        if o.constant or small.places[o.name][0] not in written:
            continue
        if small.between.get(o.name, 0) * o.dtype.itemsize * samples != sizes(small, o.name):
            return None
    return small


def _uses_of(work: Sequence[TaskWork | HostWork]) -> Mapping[str, tuple[int, int]]:
    """The first and the last work that touches a root."""
    found: dict[str, tuple[int, int]] = {}
    for number, one in enumerate(work):
        if isinstance(one, TaskWork):
            roots = [one.places[o.name][0] for o in one.bound.task.operands if not o.constant]
        else:
            roots = [*one.writes, *(place[0] for place in one.reads.values() if place is not None)]
        for root in roots:
            found[root] = (found.get(root, (number, number))[0], number)
    return found


@record(frozen=True)
class _Run:
    """Work one after the other that could all run sample by sample."""

    begin: int
    samples: int
    work: Sequence[TaskWork]
    uses: Mapping[str, tuple[int, int]]
    sizes: Callable[[TaskWork, str], int]
    kept: frozenset[str]
    target: Target

    def stretches(self) -> list[SampleRange]:
        """Those that save the most together."""
        count = len(self.work)
        lost = [self._lost(one) for one in self.work]
        gains: list[list[tuple[int, float]]] = [
            [] for _ in self.work
        ]  # of each writer: who reads it, and what that saves
        net, writers = [-each for each in lost], dict[str, int]()
        for reader, one in enumerate(self.work):
            for writer, gain in self._gains(one, writers):
                gains[writer].append((reader, gain))
                net[reader] += gain
            writers |= dict.fromkeys((one.places[store.operand][0] for store in one.bound.task.stores), reader)
        if all(each <= 0 for each in net):
            return []
        best, cut = [0.0] * (count + 1), [-1] * (count + 1)
        for end in range(1, count + 1):
            best[end], saved = best[end - 1], 0.0
            for first in range(end - 1, max(-1, end - 1 - LONGEST), -1):
                saved += sum(gain for reader, gain in gains[first] if reader < end) - lost[first]
                if end - first > 1 and best[first] + saved > best[end]:
                    best[end], cut[end] = best[first] + saved, first
        found: list[SampleRange] = []
        end = count
        while end:
            if cut[end] < 0:
                end -= 1
                continue
            found.append(self._stretch(cut[end], end))
            end = cut[end]
        return found[::-1]

    def _lost(self, one: TaskWork) -> float:
        """Cycles of all workers that each further sample costs."""
        task = one.bound.task
        weights = sum(o.nbytes for o in task.operands if o.constant)
        figures = self.target.figures.samples
        rate, apart = (figures.far, self._apart(one)) if _is_dense(one) else (figures.weight, 0.0)
        return (rate * weights + figures.step + apart) * (self.samples - 1) / self.samples

    def _apart(self, one: TaskWork) -> float:
        """What a dense convolution loses by smaller shares."""
        anchor = one.bound.task.anchor
        assert anchor is not None and anchor.inputs[1] is not None
        multiplies = anchor.output.size * math.prod(anchor.inputs[1].dims[1:])
        return self.target.figures.samples.near * multiplies / (2 * self.target.lanes)

    def _gains(self, one: TaskWork, writers: Mapping[str, int]) -> list[tuple[int, float]]:
        """Of each root that a work reads, the work of this run that writes it last (`writers`), and cycles saved by having it
        near."""
        found = []
        for name in one.between:
            writer = writers.get(one.places[name][0])
            if writer is None:
                continue
            nbytes = self.sizes(one, name)
            found.append((writer, self._saved(nbytes, one) + self._saved(nbytes, self.work[writer])))
        return found

    def _saved(self, nbytes: int, one: TaskWork) -> float:
        """Cycles that a work needs less for a sample of a map that has so many bytes for all; a little in any case, so that
        stretches that touch are one."""
        own, shared, each = self.target.l2_bytes * self.target.workers, self.target.l3_bytes, nbytes // self.samples
        figures = self.target.figures.samples
        rates = (0.0, figures.near, figures.middle, figures.middle if _is_dense(one) else figures.far)
        together = _rate(nbytes, (own // 2, min(shared // 8, 4 * own), shared // 2), rates)
        apart = _rate(each, (own // 2, shared // 4, shared // 4 * 3), rates)
        return max(1.0, each * (together - apart))

    def _writes(self, one: TaskWork, root: str) -> list[str]:
        """The operands of a work that are stored into a root."""
        return [store.operand for store in one.bound.task.stores if one.places[store.operand][0] == root]

    def _stretch(self, first: int, end: int) -> SampleRange:
        work = tuple(self.work[first:end])
        inside = (self.begin + first, self.begin + end)
        roots = {one.places[o.name][0] for one in work for o in one.bound.task.operands if not o.constant}
        single = frozenset(root for root in roots if root not in self.kept and self._is_single(root, work, inside))
        return SampleRange(*inside, self.samples, work, single)

    def _is_single(self, root: str, work: Sequence[TaskWork], inside: tuple[int, int]) -> bool:
        """Is a root touched by these alone, and first written?"""
        low, high = self.uses[root]
        return low >= inside[0] and high < inside[1] and bool(self._writes(work[low - inside[0]], root))


def _rate(nbytes: int, sizes: tuple[int, int, int], rates: Sequence[float]) -> float:
    """What a byte of a map costs that is larger than one of the sizes, or none."""
    return rates[sum(nbytes > size for size in sizes)]


def _is_dense(one: TaskWork) -> bool:
    """Is it a convolution of several taps that all see more than a few channels?"""
    anchor = one.bound.task.anchor
    if anchor is None or anchor.family != "conv" or (weights := anchor.inputs[1]) is None:
        return False
    return math.prod(weights.dims[2:]) > 1 and weights.dims[1] > FEW_CHANNELS
