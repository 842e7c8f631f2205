"""Which steps fetch the weights of which later ones while they compute.

Weights that are used once or twice, those of fully connected layers and of squeeze-and-excite, come no faster than memory gives
them, while in the convolutions before memory has nothing to do. So these ask for them: each for as much as comes beside its own
weights in the time that it multiplies.

Weights of few bytes are fetched to the second cache level by the step before where that costs it nothing: Strassen's products have
instructions to spare that fetch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fusewise.codegen.kernel import Prefetch
from fusewise.codegen.machine.figures import PrefetchFigures
from fusewise.codegen.steps.draft import HostDraft, ProgramDraft, TaskDraft, Upcoming
from fusewise.codegen.target import Target
from fusewise.records import record
from fusewise.trace import Trace

__all__ = ["Fetch", "Load", "fetch_ahead", "fetches", "followers", "next_bytes"]

NEAR = 2
"""How many steps further the weights are looked for that a step fetches to the second level."""


@record(frozen=True, slots=True)
class Load:
    """A step: cycles of multiply-adds on one core (0: unknown, it fetches nothing), and bytes of weights."""

    cycles: int
    weights: int

    def waits(self, figures: PrefetchFigures) -> bool:
        """Does it read its weights for longer than it computes?"""
        least = max(figures.least_bytes, figures.wait * figures.rate * self.cycles)
        return self.cycles > 0 and self.weights > least

    def spare(self, figures: PrefetchFigures) -> int:
        """Bytes that it can fetch beside its own."""
        return max(0, figures.rate * self.cycles - self.weights)


@record(frozen=True, slots=True)
class Fetch:
    """`nbytes` of the weights of a later step, which has `of` in all, from `offset` on.

    Of workers each is meant to fetch what it will read: of its share of the weights as large a part as this is of the whole.
    """

    step: int
    offset: int
    nbytes: int
    of: int


def fetch_ahead(draft: ProgramDraft, target: Target, trace: Trace) -> ProgramDraft:
    """The pass that has steps fetch weights of later ones."""
    loads = [_load(step, draft, target) for step in draft.steps]
    ahead, following = (
        fetches(loads, target.l3_bytes // 4, target.figures.prefetch),
        followers(loads, next_bytes(target)),
    )

    def fetching(number: int, step: TaskDraft) -> TaskDraft:
        step = replace(step, next=Upcoming(following[number]))
        fetch = ahead.get(number)
        if fetch is None or step.code is not None:
            return step
        way = step.way.fetching(Prefetch(fetch.nbytes, fetch.of))
        later = Upcoming(fetch.step, fetch.offset // target.workers)
        return replace(step, way=way, arguments=way.arguments, later=later)

    return draft.with_tasks(fetching)


def _load(step: TaskDraft | HostDraft, draft: ProgramDraft, target: Target) -> Load:
    """What a step computes and reads."""
    if isinstance(step, HostDraft) or step.work.between:
        return Load(0, 0)
    cycles = step.way.cycles(target)
    values = [step.work.bound.values[packed.name] for packed in step.weights] if cycles else []
    return Load(cycles, sum(draft.graph.constants[value].type.nbytes for value in values))


def fetches(loads: Sequence[Load], room: int, figures: PrefetchFigures) -> Mapping[int, Fetch]:
    """What each step fetches, by its number: the weights of every step that waits, by the nearest before it that can.

    Steps with more than `room` bytes of weights are left as they are.
    """
    found: dict[int, Fetch] = {}
    for number in reversed(range(len(loads))):
        rest = loads[number].weights
        if not loads[number].waits(figures) or rest > room:
            continue
        for before in _within_sight(loads, number, figures):
            if before in found or loads[before].spare(figures) < figures.least_bytes:
                continue
            nbytes = min(rest, loads[before].spare(figures))
            rest -= nbytes
            found[before] = Fetch(number, rest, nbytes, loads[number].weights)
            if rest < figures.least_bytes:
                break
    return found


def next_bytes(target: Target) -> int:
    """The most bytes of weights with which a step fetches those of the next, and is fetched for."""
    return target.l2_bytes // target.figures.caches.part


def followers(loads: Sequence[Load], room: int) -> list[int]:
    """For each step the next one that is known to have weights, one of the `NEAR` behind it, or itself where those are more than
    `room` bytes or there are none. A step that computes for longer than it reads its weights still waits for the first of them.
    """
    found = []
    for number in range(len(loads)):
        near = (later for later in range(number + 1, min(number + 1 + NEAR, len(loads))) if loads[later].weights)
        following = next(near, number)
        found.append(following if loads[following].weights <= room else number)
    return found


def _within_sight(loads: Sequence[Load], number: int, figures: PrefetchFigures) -> Iterator[int]:
    """Steps before this one, the nearest first, as far back as memory is kept."""
    passed = 0
    for before in reversed(range(number)):
        if passed > figures.horizon:
            return
        yield before
        passed += max(loads[before].cycles, loads[before].weights // figures.rate)
