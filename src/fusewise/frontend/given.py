"""What a user says of free dimensions: numbers, and ranges with a size to plan for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral

from fusewise.errors import UsageError
from fusewise.ir.at_sizes import at_sizes
from fusewise.ir.deciding import hint
from fusewise.ir.graph import Graph
from fusewise.ir.size import LARGEST, Symbol, size_of

__all__ = ["Given", "given_shapes", "given_symbols", "resized", "sized_at", "text_of"]

Given = int | str | Symbol
"""A number, or of a dimension that stays free a range as a text, `1..2048,128`, or as a `Symbol`."""

_RANGE = re.compile(r"(\d+)\.\.(\d*)(?:,(\d+))?")


_LARGEST_DIMENSION = 2**63 - 1
"""ONNX writes dimensions as int64."""


def given_shapes(shapes: Mapping[str, Sequence[int]] | None) -> dict[str, tuple[int, ...]]:
    """Shapes by name; `UsageError` for what is none."""
    return {name: _shape(name, shape) for name, shape in (shapes or {}).items()}


def given_symbols(symbols: Mapping[str, Given] | None) -> dict[str, int | Symbol]:
    """Numbers and symbols by name; `UsageError` for what is neither."""
    return {name: _given(name, value) for name, value in (symbols or {}).items()}


def text_of(given: Given) -> int | str:
    """The same as plain JSON."""
    if not isinstance(given, Symbol):
        return given
    return f"{given.low}..{given.high}" + (f",{given.hint}" if given.hint else "")


def resized(
    graph: Graph, shapes: Mapping[str, Sequence[int]], symbols: Mapping[str, int | Symbol], free: bool
) -> Graph:
    """A graph whose types are in terms of symbols already: as it is, or for a number for each. `UsageError` for anything else."""
    numbers = {name: size for name, size in symbols.items() if isinstance(size, int)}
    names = [symbol.name for symbol in graph.symbols]
    if free and not shapes and not symbols:
        return graph
    if shapes or len(numbers) < len(symbols) or sorted(numbers) != sorted(names):
        raise UsageError(
            f"the graph's dimensions {', '.join(names)} are free already: give a number to each by name, or to none"
        )
    return at_sizes(graph, numbers)


def sized_at(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """A graph of free dimensions for these sizes by name, and for those to plan for of all others. `UsageError` for other names,
    and for sizes that cannot be."""
    names = [symbol.name for symbol in graph.symbols]
    if not names and not sizes:
        return graph
    for name, size in sizes.items():
        if name not in names:
            raise UsageError(f"a size is given for dimension {name!r}; free are {', '.join(names) or 'none'}")
        if size < 0:
            raise UsageError(f"dimension {name!r} cannot have the size {size}")
    values = {symbol.name: hint(size_of(symbol)) for symbol in graph.symbols} | dict(sizes)
    for check in graph.checks:
        if not check.condition.holds(values):
            raise UsageError(check.sentence)
    return at_sizes(graph, values)


def _number(value: object) -> int | None:
    """A whole number, NumPy's too; None for anything else."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None


def _shape(name: str, shape: object) -> tuple[int, ...]:
    numbers = [_number(dim) for dim in shape] if isinstance(shape, Iterable) and not isinstance(shape, str) else [None]
    found = tuple(number for number in numbers if number is not None)
    if len(found) < len(numbers):
        raise UsageError(f"the shape for input {name!r} is given as {shape!r}; give a list of numbers")
    text = "x".join(map(str, found))
    if any(number > _LARGEST_DIMENSION for number in found):
        raise UsageError(f"the shape {text} for input {name!r} has a dimension that 64 bits do not hold")
    return found


def _given(name: str, value: Given) -> int | Symbol:
    if isinstance(value, Symbol):
        return value
    number = _number(int(value) if isinstance(value, str) and value.isdecimal() else value)
    if number is not None:
        if number > _LARGEST_DIMENSION:
            raise UsageError(f"dimension {name!r} cannot have the size {number}")
        return number
    found = _RANGE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise UsageError(
            f"dimension {name!r} is given as {value!r}; give a number, or a range as 1..2048 or 1..2048,128"
        )
    low, high = int(found[1]), int(found[2]) if found[2] else LARGEST
    usual = int(found[3]) if found[3] else 0
    if not low <= high <= LARGEST or (usual and not low <= usual <= high):
        raise UsageError(f"dimension {name!r} cannot be {value!r}: give a range, and a size to plan for inside of it")
    return low if low == high else Symbol(name, low, high, usual)
