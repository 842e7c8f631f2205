"""The part of a kernel's work that one call does.

Work is so many equal parts as the caller likes, and a call does a run of them. Most workers get one run of each step. Where a step
is long enough a worker begins with a part of its run and takes the rest piece by piece, and of other workers' runs what those
have not begun (`runtime/pool_code.py`); how much a call does is then known at run time alone.
"""

from __future__ import annotations

from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.target import Target
from fusewise.records import record

__all__ = ["LEAST_PIECES", "MOST_PIECES", "PARAMETERS", "SERIAL_WORK", "Share", "pieces_of"]

PARAMETERS = ("i64", "i64", "i64", "i64", "i64")
"""Of the function, after its pointers: the values of `Share`, in order."""

SERIAL_WORK = 16384
"""Operations on elements up to which one worker does all: about a microsecond."""

MOST_PIECES = 64
"""Of a worker's run: one of so many is less than two percent of it."""

LEAST_PIECES = 4
"""With fewer, little is left to deal out once a worker has begun."""


@record(frozen=True)
class Share:
    """Parts `low` up to `high` of `of`. `worker` has the private memory; `again` is not 0 where it has done another part of the
    same step before, so that what it prepared there is still good."""

    low: Value
    high: Value
    of: Value
    worker: Value
    again: Value

    @classmethod
    def whole(cls) -> Share:
        """All there is, for the first worker."""
        zero, one = Value("0", "i64"), Value("1", "i64")
        return cls(zero, one, one, zero, zero)

    @property
    def values(self) -> tuple[Value, ...]:
        """As a function takes them."""
        return self.low, self.high, self.of, self.worker, self.again

    def run(self, f: Function, count: Int) -> tuple[Int, Int]:
        """The run of `count` equal units that is this call's: the first, and the first beyond."""
        return f.udiv(f.mul(self.low, count), self.of), f.udiv(f.mul(self.high, count), self.of)

    def alone(self, f: Function, count: int) -> tuple[Int, Int]:
        """All units for the call that has the first part, none for others."""
        return 0, f.select(f.compare("icmp eq", self.low, 0), f.i64(count), f.i64(0))

    def tag(self, f: Function, at: Value) -> Value:
        """Where the number is kept of what this worker prepared last in this step; to be asked for when a call begins."""
        is_first = f.compare("icmp eq", self.again, 0)
        f.store(f.select(is_first, f.i64(-1), f.load("i64", at)), at)
        return at


def pieces_of(units: float, cycles: float, target: Target, whole: int = 0) -> int:
    """In how many pieces a worker's run of a step is dealt out: 1 where all of it is given at once. The step has so many units in
    all and takes one core at least so many cycles; pieces are so many of `whole` units, which go together, each, if any number of
    them is."""
    workers = target.workers
    most = int(min(MOST_PIECES, units // workers, cycles // (workers * target.figures.sharing.piece_cycles)))
    if workers == 1 or most < LEAST_PIECES:
        return 1
    even = (n for n in range(most, LEAST_PIECES - 1, -1) if whole and whole % (workers * n) == 0)
    return next(even, most)
