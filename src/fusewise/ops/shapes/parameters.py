"""What must hold of operands that have no say in a result's shape: biases and scales of channels, grids, lengths, positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType

from fusewise.ops.shapes.operands import Operands, Shape, Unknown

__all__ = ["check_parameters"]


def check_parameters(case: Operands) -> None:
    """Have the further operands of a node fit; what is not known is not asked about."""
    rule = _PARAMETERS.get(case.node.op) if not case.node.domain else None
    if rule is not None:
        with suppress(Unknown, LookupError, ValueError):
            rule(case)


def _known(case: Operands, i: int) -> Shape | None:
    try:
        return case.shape(i) if case.has(i) else None
    except Unknown:
        return None


def _vectors(case: Operands, places: tuple[int, ...], size: int) -> None:
    """These operands, where they are given, have so many elements."""
    for i in places:
        shape = _known(case, i)
        if shape is not None and len(shape) == 1:
            case.equal(shape[0], size, f"the size of operand {case.node.inputs[i]!r} and the number of channels")


def _bias(case: Operands, axis: int) -> None:
    groups = case.attribute("group", 1) if axis else 1
    _vectors(case, (2,), case.shape(1)[axis] * groups)


def _per_channel(case: Operands, places: tuple[int, ...]) -> None:
    data = case.shape()
    if len(data) > 1:
        _vectors(case, places, data[1])


def _grid(case: Operands) -> None:
    case.equal(case.shape(1)[-1], len(case.shape()) - 2, "the numbers of a position of the grid and of spatial axes")


def _lengths(case: Operands) -> None:
    case.equal(case.shape(1)[0], case.shape()[case.attribute("batch_axis", 1)], "the numbers of lengths and sequences")


def _elements(case: Operands) -> None:
    data, indices = case.shape(), case.shape(1)
    axis = case.axis("axis", 0, len(data))
    for d, (whole, part) in enumerate(zip(data, indices, strict=True)):
        if d != axis:
            case.at_least(whole, part, f"the size of the data along axis {d}, where indices have as many or fewer,")


def _pairs(case: Operands) -> None:
    cosines, sines = case.shape(1), case.shape(2)
    for a, b in zip(cosines, sines, strict=True):
        case.equal(a, b, "the sizes of cosines and sines")
    if not case.has(3) and len(cosines) == 3:
        data = case.shape()
        case.equal(cosines[0], data[0], "the numbers of samples of cosines and data")
        case.equal(cosines[1], data[2 if len(data) == 4 else 1], "the numbers of positions of cosines and data")


_PARAMETERS: Mapping[str, Callable[[Operands], None]] = MappingProxyType(
    {
        "BatchNormalization": partial(_per_channel, places=(1, 2, 3, 4)),
        "Conv": partial(_bias, axis=0),
        "ConvTranspose": partial(_bias, axis=1),
        "GatherElements": _elements,
        "GridSample": _grid,
        "InstanceNormalization": partial(_per_channel, places=(1, 2)),
        "ReverseSequence": _lengths,
        "RotaryEmbedding": _pairs,
    }
)
