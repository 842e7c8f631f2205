"""What a user says of free dimensions: numbers, and ranges with sizes to plan for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from numbers import Integral

from fusewise.errors import UsageError
from fusewise.frontend.free import with_names
from fusewise.ir.at_sizes import at_sizes
from fusewise.ir.deciding import hint
from fusewise.ir.graph import Graph
from fusewise.ir.size import LARGEST, Size, Symbol, size_of
from fusewise.ir.types import TensorType

__all__ = ["Given", "given_shapes", "given_symbols", "resized", "sized_at", "sizes_to_plan_for", "text_of"]

Given = int | str | Symbol
"""A number, or of a dimension that stays free a range and sizes to plan for as a text, `1..2048,128` or `1..64,1,8,32`, several
sizes to plan for alone, `1,8,32`, or a `Symbol`. A GPU has a program for each of these sizes, a CPU plans for the first."""

_RANGE = re.compile(r"(\d+)\.\.(\d*)((?:,\d+)*)")
_SIZES = re.compile(r"\d+(?:,\d+)+")


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


def sizes_to_plan_for(
    graph: Graph, written: Graph, symbols: Mapping[str, Given] | None = None
) -> tuple[dict[str, int], ...]:
    """Values of a graph's symbols, by name, each of the sizes to plan for with each: `symbols` says of some dimensions which
    these are, by the names that they have in the graph as it was `written`. `UsageError` for sizes that cannot be."""
    usual: dict[str, tuple[int, ...]] = {symbol.name: (hint(size_of(symbol)),) for symbol in graph.symbols}
    said = {name: sizes for name, given in (symbols or {}).items() if len(sizes := _sizes_said(given)) > 1}
    for name, sizes in said.items():
        symbol = _symbol_of(name, graph, written)
        if len(usual[symbol.name]) > 1:
            raise UsageError(
                f"dimension {name!r} is {symbol.name!r} in this model: give sizes to plan for to one of them"
            )
        for size in sizes:
            if not symbol.low <= size <= symbol.high:
                allowed = f"at least {symbol.low}" if symbol.high == LARGEST else f"{symbol.low} to {symbol.high}"
                raise UsageError(f"dimension {name!r} cannot be {size}: it must be {allowed}")
        usual[symbol.name] = sizes
    found = tuple(dict(zip(usual, chosen, strict=True)) for chosen in product(*usual.values()))
    for values in found:
        for check in graph.checks:
            if not check.condition.holds(values):
                raise UsageError(check.sentence)
    return found


def _symbol_of(name: str, graph: Graph, written: Graph) -> Symbol:
    """What a dimension that has this name as a model was written is in the graph that it became."""
    before = with_names(written)
    for each in graph.inputs:
        kind, now = before.types.get(each), graph.types[each]
        if not isinstance(kind, TensorType) or not isinstance(now, TensorType) or kind.shape is None:
            continue
        for dim, size in zip(kind.shape, now.dims, strict=False):
            if dim == name and isinstance(size, Size) and size.symbol is not None:
                return size.symbol
            if dim == name:
                raise UsageError(f"dimension {name!r} is {size} in this model: give sizes to plan for to others")
    raise UsageError(f"sizes are given for dimension {name!r}, and no input has it")


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
    said = _said(value) if isinstance(value, str) else None
    if said is None:
        raise UsageError(
            f"dimension {name!r} is given as {value!r}; give a number, or a range as 1..2048 or 1..2048,128, "
            "or sizes to plan for as 1,8"
        )
    low, high, sizes = said
    fault = _fault(low, high, sizes)
    if fault:
        raise UsageError(f"dimension {name!r} cannot be {value!r}: {fault}")
    return low if low == high else Symbol(name, low, high, sizes[0] if sizes else 0)


def _fault(low: int, high: int, sizes: Sequence[int]) -> str:
    """What is wrong with a range and sizes to plan for; nothing where they are sound. One size may be 0, which says none."""
    if low > high:
        return f"the range ends at {high}, before it begins"
    over = [size for size in (high, *sizes) if size > LARGEST]
    if over:
        return f"{over[0]} is more than {LARGEST:,}, the most that a free dimension may be"
    if len(sizes) > 1 and 0 in sizes:
        return "0 is no size to plan for, give sizes from 1 on"
    outside = [size for size in sizes if size and not low <= size <= high]
    return f"{outside[0]} is not in the range" if outside else ""


def _said(text: str) -> tuple[int, int, tuple[int, ...]] | None:
    """The range and the sizes to plan for that a text has; None for another text."""
    if _SIZES.fullmatch(text):
        return 0, LARGEST, tuple(dict.fromkeys(map(int, text.split(","))))
    found = _RANGE.fullmatch(text)
    if found is None:
        return None
    sizes = tuple(dict.fromkeys(map(int, found[3].split(",")[1:])))
    return int(found[1]), int(found[2]) if found[2] else LARGEST, sizes


def _sizes_said(given: Given) -> tuple[int, ...]:
    said = _said(given) if isinstance(given, str) else None
    return () if said is None else said[2]
