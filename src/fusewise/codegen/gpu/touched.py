"""Which steps touched which bytes last, so that the next one knows whom it has to wait for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fusewise.records import record

__all__ = ["Touch", "TouchedMemory"]


@record(frozen=True, slots=True)
class Touch:
    """That a step touches a stretch of bytes: all of it, or with a `period` the first `width` of each so many bytes from where
    the stretch begins. `start` is where these begin within a period, counted from the beginning of memory."""

    step: int
    period: int = 0
    width: int = 0
    start: int = 0

    def meets(self, other: Touch) -> bool:
        """Might both touch the same byte?"""
        if not self.period or self.period != other.period:
            return True
        apart = (other.start - self.start) % self.period
        return apart < self.width or self.period - apart < other.width

    def covers(self, other: Touch) -> bool:
        """Does this touch all that the other does?"""
        if not self.period:
            return True
        return self.period == other.period and (other.start - self.start) % self.period + other.width <= self.width


class TouchedMemory:
    """Stretches of bytes in spaces of their own, each with who wrote it, as far as nobody did so since, and who read that."""

    def __init__(self) -> None:
        self._spaces: dict[object, list[_Segment]] = {}

    def read(self, space: object, low: int, high: int, one: Touch) -> set[int]:
        """A step reads bytes from `low` to before `high`; gives the steps that it has to wait for."""
        one = _placed(one, low)
        found = set[int]()
        for part in self._parts(space, low, high):
            found.update(other.step for other in part.writers if one.meets(other))
            part.readers = (*part.readers, one)
        return found

    def write(self, space: object, low: int, high: int, one: Touch) -> set[int]:
        """The same of a step that writes."""
        one = _placed(one, low)
        found = set[int]()
        for part in self._parts(space, low, high):
            found.update(other.step for other in (*part.writers, *part.readers) if one.meets(other))
            part.writers = (*_without(part.writers, one), one)
            part.readers = _without(part.readers, one)
        return found

    def _parts(self, space: object, low: int, high: int) -> list[_Segment]:
        return _cut(self._spaces.setdefault(space, []), low, high)


class _Segment:
    """Bytes that the same steps touched last: who wrote them, and who has read them since."""

    __slots__ = ("high", "low", "readers", "writers")

    def __init__(self, low: int, high: int, writers: tuple[Touch, ...] = (), readers: tuple[Touch, ...] = ()) -> None:
        self.low, self.high, self.writers, self.readers = low, high, writers, readers

    def part(self, low: int, high: int) -> _Segment:
        """Of the same, fewer bytes."""
        return _Segment(low, high, self.writers, self.readers)


def _placed(one: Touch, low: int) -> Touch:
    return replace(one, start=low % one.period) if one.period else one


def _without(touches: Iterable[Touch], one: Touch) -> tuple[Touch, ...]:
    """Those of which something is left when one has overwritten what it touches."""
    return tuple(other for other in touches if not one.covers(other))


def _cut(segments: list[_Segment], low: int, high: int) -> list[_Segment]:
    """The parts of a space from `low` up to `high`, which begin and end there; what nobody has touched yet is added.

    `segments` are in order and do not overlap.
    """
    kept: list[_Segment] = []
    inside: list[_Segment] = []
    at = low
    for one in segments:
        if one.high <= low or one.low >= high:
            kept.append(one)
            continue
        if one.low < low:
            kept.append(one.part(one.low, low))
        if one.high > high:
            kept.append(one.part(high, one.high))
        begin, end = max(one.low, low), min(one.high, high)
        if at < begin:
            inside.append(_Segment(at, begin))
        inside.append(one.part(begin, end))
        at = end
    if at < high:
        inside.append(_Segment(at, high))
    segments[:] = sorted((*kept, *inside), key=lambda one: one.low)
    return inside
