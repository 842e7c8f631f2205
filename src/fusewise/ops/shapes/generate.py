"""Shapes of what is made from sizes or numbers, and of results that data decide the size of."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fusewise.ops.shapes.operands import Operands, Row, Shape, Unknown, ceiling, nonnegative

__all__ = ["GENERATE"]


def _filled(case: Operands) -> tuple[Shape, ...]:
    return (tuple(case.ints(0)),)


def _counted(case: Operands) -> tuple[Shape, ...]:
    """Range: as many as from the start by steps lie in front of the limit."""
    (start,), (limit,), (step,) = case.ints(0), case.ints(1), case.numbers(2)
    if step == 0:
        raise Unknown
    return ((nonnegative(ceiling(limit - start, step) if step > 0 else ceiling(start - limit, -step)),),)


def _dimensions(case: Operands) -> tuple[Shape, ...]:
    data = case.shape()
    return ((len(data[case.attribute("start", 0) : case.attribute("end", len(data))]),),)


def _scalar(case: Operands) -> tuple[Shape, ...]:
    return ((),)


def _window(case: Operands) -> tuple[Shape, ...]:
    return ((case.ints(0)[0],),)


GENERATE: Mapping[str, Row] = MappingProxyType(
    {
        **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), _window),
        "ConstantOfShape": _filled,
        "Range": _counted,
        "Shape": _dimensions,
        "Size": _scalar,
    }
)
"""Rows by operator."""
