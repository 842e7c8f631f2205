"""Sequences and optionals."""

from __future__ import annotations

from collections.abc import Iterator

from tests.ops.options.case import Case, cases, i64, scalar, x


def sequences() -> Iterator[Case]:
    three = [x(2, 3), x(2, 3, seed=1), x(2, 3, seed=2)]
    uneven = [x(2, 3), x(1, 3, seed=1), x(0, 3)]
    places = [scalar(n, kind) for kind in ("int64", "int32") for n in (0, 2, -1, -3)]
    yield from cases("SequenceConstruct", [(x(2),), (x(2), x(3, seed=1)), (x(2, dtype="int64"), x(dtype="int64"))])
    yield from cases("SequenceAt", [(given, at) for given in (three, uneven) for at in places])
    yield from cases("SequenceErase", [(three, None), *((three, at) for at in places)])
    yield from cases(
        "SequenceInsert", [(three, x(4), None), *((three, x(4), at) for at in (*places, scalar(3, "int64")))]
    )
    yield from cases("SequenceLength", [(three,), (uneven[:1],)])
    yield from cases("ConcatFromSequence", [(three,)], axis=(0, 1, -1, -2), new_axis=(None, 0, 1))
    yield from cases("ConcatFromSequence", [(uneven,)], axis=(0, -2))
    yield from cases("ConcatFromSequence", [(three,)], axis=(2, -3), new_axis=(1,))
    data = x(5, 4)
    yield from cases(
        "SplitToSequence",
        [(data, None), (data, scalar(2, "int64")), (data, i64(1, 0, 4)), (data, i64(5))],
        axis=(None, 0),
        keepdims=(None, 0, 1),
    )
    yield from cases(
        "SplitToSequence", [(data, scalar(3, "int64")), (data, i64(1, 3))], axis=(1, -1), keepdims=(None, 0)
    )


def optionals() -> Iterator[Case]:
    yield from cases("OptionalHasElement", [(x(2, 3),), ([x(2), x(3)],)])
    yield from cases("OptionalGetElement", [(x(2, 3),), ([x(2), x(3)],), (x(2, dtype="int64"),)])


SEQUENCES = (*sequences(), *optionals())
