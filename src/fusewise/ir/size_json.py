"""Sizes in files: lists and numbers for what `ir.size` has as records."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from fusewise.ir.size import COMPOUNDS, Size, Symbol, size_of

__all__ = ["from_json", "to_json"]


def to_json(size: int) -> Any:
    """A size as JSON has it: a number, or [constant, [coefficient, [atom, power], ...], ...], an atom being a name or a list."""
    if not isinstance(size, Size):
        return int(size)

    def atom_of(atom: Any) -> Any:
        return atom.name if isinstance(atom, Symbol) else [atom.op, *map(to_json, atom.args)]

    return [size.constant, *([c, *([atom_of(a), power] for a, power in m)] for m, c in size.terms)]


def from_json(data: Any, symbols: Mapping[str, Symbol]) -> int:
    """What `to_json` gave. Raises `ValueError` for anything else."""
    if type(data) is int:
        return data
    try:
        total: int = operator.index(data[0])
        for coefficient, *factors in data[1:]:
            term: int = operator.index(coefficient)
            for atom, power in factors:
                if type(power) is not int or not 0 < power <= 8:
                    raise ValueError("a power of a size is out of bounds")
                value = size_of(symbols[atom]) if isinstance(atom, str) else _read(atom, symbols)
                term = term * value**power
            total = total + term
    except (TypeError, IndexError, KeyError, ZeroDivisionError, RecursionError) as error:
        raise ValueError(f"{data!r} is no size") from error
    return total


def _read(atom: Any, symbols: Mapping[str, Symbol]) -> Any:
    op, *args = atom
    return COMPOUNDS[op](*(from_json(a, symbols) for a in args))
