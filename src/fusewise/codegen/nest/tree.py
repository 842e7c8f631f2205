"""The program of a kernel as data: functions of blocks of nodes, loops and conditions within them.

A node is an operation on scalars and vectors in registers, or one of what holds other blocks:

    For       counted, may carry values         When    one of two blocks, by a condition
    Repeat    as long as a condition holds      Stage   what is made once for a unit of work, and kept
    Accumulate (`nest.tile`)    the reduction of a register tile
    AccumulateTiles, WithTiles  that of one whose sums lie in memory, and the stretch that uses a matrix unit for it
    StoreAccumulator            the stores of a task, of one accumulator

Everything is immutable but `Function` while it is built (`nest.build`). It is printed (`nest.text`) and read back (`nest.parse`),
checked (`nest.verify`), run on arrays (`nest.interpret`) and written as LLVM IR (`llvm.write`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from fusewise.lower.task import Task
from fusewise.records import record

__all__ = [
    "Block",
    "Composite",
    "For",
    "Int",
    "NestNode",
    "Operation",
    "Repeat",
    "Stage",
    "StoreAccumulator",
    "Table",
    "Value",
    "When",
    "vector",
]


@record(frozen=True, slots=True)
class Value:
    """A value: its text, a name or a constant, and its type, both as LLVM spells them."""

    text: str
    type: str

    def __str__(self) -> str:
        return f"{self.type} {self.text}"

    @property
    def lanes(self) -> int:
        """Vector length; 1 for a scalar."""
        return _parts(self.type)[0]

    @property
    def element(self) -> str:
        """Element type of a vector, or the type itself."""
        return _parts(self.type)[1]


@cache
def _parts(kind: str) -> tuple[int, str]:
    """How many lanes of which element a type has; types are few, and asked about with every operation."""
    if not kind.startswith("<"):
        return 1, kind
    lanes, element = kind[1:-1].split(" x ", 1)
    return int(lanes), element


Int = int | Value
"""An i64: known now (Python int) or at run time."""


def vector(element: str, lanes: int) -> str:
    """The LLVM type of `lanes` elements; a scalar when `lanes` is 1."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


class Operation(NamedTuple):
    """`result` = `opcode` of the operands. The opcode is LLVM's word where there is one; `detail` is what it needs beside operands:
    an alignment, a type, numbers of lanes, the name of a function."""

    opcode: str
    result: Value | None
    operands: tuple[Value, ...]
    detail: tuple[str | int, ...] = ()


class For(NamedTuple):
    """For `counter` from `low`, by `step`, below `high`. What it carries begins as `carried`, is called `inside` in the body, is
    `after` at the end of it, and `results` behind the loop. One that is `rolled` is not to be unrolled."""

    counter: Value
    low: Int
    high: Int
    step: int
    carried: tuple[Value, ...]
    inside: tuple[Value, ...]
    body: Block
    after: tuple[Value, ...]
    results: tuple[Value, ...]
    rolled: bool


class When(NamedTuple):
    """One block or the other; `results` are the values that it ends with. Where the condition is met `rarely`,
    the other is what should be fast."""

    condition: Value
    then: Block
    then_values: tuple[Value, ...]
    otherwise: Block
    otherwise_values: tuple[Value, ...]
    results: tuple[Value, ...]
    rarely: bool


class Repeat(NamedTuple):
    """`first` once, then the body and `first` again as long as `condition`, which `first` computes, holds. What it carries begins
    as `carried`, is called `inside` in both blocks and behind them, and is `after` at the end of the body."""

    carried: tuple[Value, ...]
    inside: tuple[Value, ...]
    first: Block
    condition: Value
    body: Block
    after: tuple[Value, ...]


class Stage(NamedTuple):
    """What the body makes of number `unit` in a worker's memory, unless it lies there already: `tag` is where that is noted."""

    tag: Value
    unit: Int
    body: Block


class Composite:
    """A node that stands for others, which `llvm.expand` knows."""


@record(frozen=True)
class StoreAccumulator(Composite):
    """The stores of a task where its accumulator is `value`, of which `count` lanes along the axis `lane` exist."""

    task: Task
    pointers: Mapping[str, Value]
    indices: tuple[tuple[str, Int], ...]
    lane: str
    value: Value
    count: int


NestNode = Operation | For | When | Repeat | Stage | Composite
Block = tuple[NestNode, ...]


class Table(NamedTuple):
    """A constant array of a module: elements of an LLVM type, as numbers, or as bytes of `i8`."""

    name: str
    element: str
    values: tuple[int | float, ...] | bytes
