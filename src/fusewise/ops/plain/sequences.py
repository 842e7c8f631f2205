"""Sequences and optionals, whose elements are passed on and never copied."""

from __future__ import annotations

from typing import Any

import numpy as np

from fusewise.ir.graph import Node
from fusewise.ops.plain.row import Other, Plain, PlainFunction, of_any

__all__ = ["SEQUENCES"]


def _place(sequence: list[Any], position: Any, last: int) -> int:
    """A position in a sequence, counted from the end where negative."""
    at = int(np.asarray(position).reshape(-1)[0])
    count = len(sequence)
    if not -count <= at <= last:
        raise Other
    return at + count * (at < 0)


def _at(node: Node) -> PlainFunction:
    return lambda sequence, position: sequence[_place(sequence, position, len(sequence) - 1)]


def _insert(node: Node) -> PlainFunction:
    def run(sequence: Any, element: Any, position: Any = None) -> Any:
        at = len(sequence) if position is None else _place(sequence, position, len(sequence))
        return [*sequence[:at], element, *sequence[at:]]

    return run


def _erase(node: Node) -> PlainFunction:
    def run(sequence: Any, position: Any = None) -> Any:
        at = len(sequence) - 1 if position is None else _place(sequence, position, len(sequence) - 1)
        if at < 0:
            raise Other
        return [*sequence[:at], *sequence[at + 1 :]]

    return run


def _joined(node: Node) -> PlainFunction:
    axis, new = node.attribute("axis"), bool(node.attribute("new_axis", 0))

    def run(sequence: Any) -> Any:
        if not sequence:
            raise Other
        return np.stack(sequence, axis) if new else np.concatenate(sequence, axis)

    return run


def _split(node: Node) -> PlainFunction:
    axis, kept = node.attribute("axis", 0), bool(node.attribute("keepdims", 1))

    def run(data: Any, split: Any = None) -> Any:
        extent = data.shape[axis]
        if split is None:
            parts = _parts(data, axis, [1] * extent)
            return [part if kept else np.squeeze(part, axis) for part in parts]
        if split.ndim:
            lengths = split.tolist()
            if sum(lengths) != extent or min(lengths, default=0) < 0:
                raise Other
            return _parts(data, axis, lengths)
        size = int(split)
        if size < 1:
            raise Other
        return _parts(data, axis, [min(size, extent - start) for start in range(0, extent, size)])

    return run


def _parts(data: Any, axis: int, lengths: list[int]) -> list[Any]:
    """Of these lengths along the axis, one behind the other."""
    before, found, start = (slice(None),) * (axis % data.ndim), [], 0
    for length in lengths:
        found.append(data[(*before, slice(start, start + length))])
        start += length
    return found


def _has_element(node: Node) -> PlainFunction:
    return lambda value=None: np.array(value is not None)


def _element(node: Node) -> PlainFunction:
    def run(value: Any) -> Any:
        if value is None:
            raise Other
        return value

    return run


def _empty(node: Node) -> PlainFunction:
    return list


SEQUENCES: tuple[Plain, ...] = (
    of_any("ConcatFromSequence", 11, _joined),
    of_any("Optional", 15, lambda node: lambda value=None: value),
    of_any("OptionalGetElement", 15, _element),
    of_any("OptionalHasElement", 15, _has_element),
    of_any("SequenceAt", 11, _at),
    of_any("SequenceConstruct", 11, lambda node: lambda *elements: list(elements)),
    of_any("SequenceEmpty", 11, _empty),
    of_any("SequenceErase", 11, _erase),
    of_any("SequenceInsert", 11, _insert),
    of_any("SequenceLength", 11, lambda node: lambda sequence: np.array(len(sequence), np.int64)),
    of_any("SplitToSequence", 11, _split),
)
