"""Reads at positions that come from data: Gather and its relatives, OneHot; and the loss that reads one class.

Indices are cast to int64; negative ones count from the end. One out of range is an error in the data, and never an address.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fusewise.ir.deciding import known_below
from fusewise.ir.dtypes import INT64
from fusewise.ops.cost import free
from fusewise.ops.expr import Expr, Index, cast, compare, const, select
from fusewise.ops.indexing import chosen, data_axis, dims, output_dims, within, wrapped
from fusewise.ops.spec import Call, Mapping, NotDefined, OpSpec, Sample

__all__ = ["GATHER"]


def _gather(call: Call, output: int, at: Index) -> Expr:
    axis, rank = data_axis(call, 0), call.input(1).rank
    place = chosen(call, 1, at[axis : axis + rank], dims(call)[axis])
    return call.at(0, *at[:axis], place, *at[axis + rank :])


def _gather_elements(call: Call, output: int, at: Index) -> Expr:
    axis = data_axis(call, 0)
    found = chosen(call, 1, at, dims(call)[axis])
    inside = map(within, at, dims(call), dims(call, 1))
    return call.at(0, *(found if d == axis else place for d, place in enumerate(inside)))


def _gather_nd(call: Call, output: int, at: Index) -> Expr:
    """The last axis of the indices addresses that many axes of the data, after `batch_dims` shared ones."""
    batch, shape = int(call.attribute("batch_dims", 0)), dims(call)
    outer, depth = dims(call, 1)[:-1], dims(call, 1)[-1]
    lead = at[: len(outer)]
    if not isinstance(depth, int):
        raise NotDefined("GatherND by positions of so many numbers as a size tells")
    places = [chosen(call, 1, (*lead, const(d)), shape[batch + d]) for d in range(depth)]
    return call.at(0, *at[:batch], *places, *at[len(outer) :])


def _one_hot(call: Call, output: int, at: Index) -> Expr:
    axis = data_axis(call, -1)
    if int(call.attribute("axis", -1)) < 0:
        axis += 1  # the new axis counts: -1 is after the last
    depth = output_dims(call)[axis]
    hot = wrapped(cast(call.at(0, *at[:axis], *at[axis + 1 :]), INT64), depth)
    return select(compare("eq", hot, at[axis]), call.at(2, 1), call.at(2, 0))


def _data_mapping(call: Call) -> tuple[Mapping, ...]:
    """An element of the data may be read any number of times, an index selects a whole slice."""
    slices = not known_below(call.output().size, call.input(1).size + 1)
    return Mapping.ONE_TO_MANY, Mapping.ONE_TO_MANY if slices else Mapping.ONE_TO_ONE


def _nd_mapping(call: Call) -> tuple[Mapping, ...]:
    """Several numbers make one address."""
    several = not known_below(dims(call, 1)[-1], 2)
    return Mapping.ONE_TO_MANY, Mapping.MANY_TO_MANY if several else _data_mapping(call)[1]


def _hot_mapping(call: Call) -> tuple[Mapping, ...]:
    return Mapping.ONE_TO_MANY, Mapping.ONE_TO_MANY, Mapping.ONE_TO_MANY


def row(
    name: str,
    define: Callable[[Call, int, Index], Expr],
    mapping: Callable[[Call], tuple[Mapping, ...]],
    samples: tuple[Sample, ...],
) -> OpSpec:
    return OpSpec(
        name, mapping=mapping, flops=free, define=define, family="gather", flags=frozenset({"copy"}), samples=samples
    )


def _i64(values: object) -> np.ndarray:
    return np.array(values, np.int64)


_DATA = ("float32", (3, 4))

GATHER: tuple[OpSpec, ...] = (
    row(
        "Gather",
        _gather,
        _data_mapping,
        (
            Sample(
                (_DATA, _i64([2, 0, -1, 2])),
            ),
            Sample((_DATA, ("int64", (2, 2))), {"axis": 1}, low=-4, high=3),
            Sample((("float32", (5, 3)), ("int32", (4,))), low=-5, high=4),
            Sample((_DATA, _i64(-1)), {"axis": -1}),
            Sample((("float16", (6,)), ("int64", (7,))), low=0, high=5),
        ),
    ),
    row(
        "GatherElements",
        _gather_elements,
        _data_mapping,
        (
            Sample((_DATA, ("int64", (2, 4))), low=-3, high=2),
            Sample((_DATA, ("int32", (3, 7))), {"axis": 1}, low=0, high=3),
        ),
    ),
    row(
        "GatherND",
        _gather_nd,
        _nd_mapping,
        (
            Sample((_DATA, ("int64", (5, 2))), low=-3, high=2),
            Sample((_DATA, ("int64", (4, 1))), low=0, high=2),
            Sample((("float32", (2, 3, 4)), ("int64", (2, 2, 1))), {"batch_dims": 1}, low=-3, high=2),
        ),
    ),
    OpSpec(
        "OneHot",
        mapping=_hot_mapping,
        flops=lambda call: call.output().size,
        define=_one_hot,
        shaped_by=(1,),
        samples=(
            Sample((("int64", (2, 3)), _i64(4), np.array([0.5, 2], np.float32)), low=-4, high=3),
            Sample((("int64", (5,)), _i64(3), ("int32", (2,))), {"axis": 0}, low=-4, high=5),
        ),
    ),
)
