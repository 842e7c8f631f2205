"""What may be fused with what: the combination table of mapping types, and every reason a verdict can have.

Rows are the producer's type, columns the consumer's (DNNFusion, table 3). A cell gives the type of the two together and the
verdict: FUSE without asking, ASK for the cost first, BREAK. A sixth type, Opaque, breaks on either side.
"""

from __future__ import annotations

from collections.abc import Mapping as Table
from enum import StrEnum
from types import MappingProxyType

from fusewise.ops.spec import Mapping

__all__ = ["COMBINATIONS", "Reason", "Verdict", "combine"]


class Verdict(StrEnum):
    """What the table says of a pair of types."""

    FUSE = "fuse"
    ASK = "ask"
    BREAK = "break"


class Reason(StrEnum):
    """Why an edge lies within a group, or between two."""

    GREEN = "the types fuse without asking"
    PROFITABLE = "fused costs less than apart"
    MEASURED = "the fastest when it was measured"
    PATTERN = "a fixed pattern"
    WEIGHTS = "operands are dequantised where they are multiplied"

    OPAQUE = "an operator without a loop nest"
    HOST = "one has a kernel, the other runs on the host"
    SHAPE = "a shape is not known"
    RED = "the types do not fuse"
    CYCLE = "a path leaves the group and returns"
    SIZE = "too many operators"
    DEPTH = "the expression would be too deep"
    INPUTS = "too many inputs"
    NEIGHBOURS = "an operator with too many neighbours"
    RESULTS = "too many results"
    PROLOGUE = "the heavy operator would compute it again for every tile"
    ELSEWHERE = "needs other elements of the heavy operator's result"
    OUTPUTS = "the results have different shapes"
    PIECES = "a large Concat is written in pieces"
    ROWS = "too few rows to share among workers"
    AGAIN = "would be computed again more often than it saves"
    COSTLY = "fused costs no less than apart"
    UNMEASURED = "the measurement failed"
    MOVEMENT = "movement is done by copying"
    REFUSED = "refused by name or limit"
    UNREACHED = "no seed comes by in the published order"
    NO_PATTERN = "no fixed pattern"
    NO_FUSION = "fusion is off"


_ONE, _MANY, _HEAVY = Mapping.ONE_TO_ONE, Mapping.ONE_TO_MANY, Mapping.MANY_TO_MANY
_REORGANIZE, _SHUFFLE = Mapping.REORGANIZE, Mapping.SHUFFLE
_FUSE, _ASK, _BREAK = Verdict.FUSE, Verdict.ASK, Verdict.BREAK

COMBINATIONS: Table[tuple[Mapping, Mapping], tuple[Mapping, Verdict]] = MappingProxyType(
    {
        (_ONE, _ONE): (_ONE, _FUSE),
        (_ONE, _MANY): (_MANY, _FUSE),
        (_ONE, _HEAVY): (_HEAVY, _FUSE),
        (_ONE, _REORGANIZE): (_REORGANIZE, _FUSE),
        (_ONE, _SHUFFLE): (_SHUFFLE, _FUSE),
        (_MANY, _ONE): (_MANY, _FUSE),
        (_MANY, _MANY): (_MANY, _ASK),
        (_MANY, _HEAVY): (_HEAVY, _BREAK),
        (_MANY, _REORGANIZE): (_MANY, _ASK),
        (_MANY, _SHUFFLE): (_MANY, _ASK),
        (_HEAVY, _ONE): (_HEAVY, _FUSE),
        (_HEAVY, _MANY): (_HEAVY, _ASK),
        (_HEAVY, _HEAVY): (_HEAVY, _BREAK),
        (_HEAVY, _REORGANIZE): (_HEAVY, _ASK),
        (_HEAVY, _SHUFFLE): (_HEAVY, _ASK),
        (_REORGANIZE, _ONE): (_REORGANIZE, _FUSE),
        (_REORGANIZE, _MANY): (_MANY, _ASK),
        (_REORGANIZE, _HEAVY): (_HEAVY, _ASK),
        (_REORGANIZE, _REORGANIZE): (_REORGANIZE, _FUSE),
        (_REORGANIZE, _SHUFFLE): (_REORGANIZE, _FUSE),
        (_SHUFFLE, _ONE): (_SHUFFLE, _FUSE),
        (_SHUFFLE, _MANY): (_MANY, _ASK),
        (_SHUFFLE, _HEAVY): (_HEAVY, _ASK),
        (_SHUFFLE, _REORGANIZE): (_REORGANIZE, _FUSE),
        (_SHUFFLE, _SHUFFLE): (_SHUFFLE, _FUSE),
    }
)
"""(first, second): the type of the fused operator, and the verdict. One-to-Many twice is our choice; the rest is published."""


def combine(first: Mapping, second: Mapping) -> tuple[Mapping, Verdict]:
    """The type of a producer and a consumer together, and whether they may be fused."""
    return COMBINATIONS.get((first, second), (Mapping.OPAQUE, Verdict.BREAK))
