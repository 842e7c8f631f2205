"""What a document says of the model and the options: its first parts, beside the machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusewise.benchmarking.describe import description
from fusewise.frontend.given import sized_at
from fusewise.ir.deciding import hint
from fusewise.ir.graph import Graph
from fusewise.ir.size import size_of
from fusewise.options import Options, settings_of

__all__ = ["model_part", "options_part"]


def model_part(name: str, bound: Graph) -> dict[str, Any]:
    """What the model is; of free dimensions the sizes to plan for are its `symbols`."""
    return {
        "name": name,
        **description(sized_at(bound, {})),
        "inputs": {value: str(bound.types[value]) for value in bound.inputs},
        "outputs": {value: str(bound.types[value]) for value in bound.outputs},
        "symbols": {symbol.name: hint(size_of(symbol)) for symbol in bound.symbols},
    }


def options_part(options: Options) -> dict[str, Any]:
    """The options that are not as they are by default, as plain data."""
    said, usual = (_plain(one) for one in (options, Options()))
    return {name: value for name, value in said.items() if value != usual[name]}


def _plain(options: Options) -> Mapping[str, Any]:
    passes = options.passes if isinstance(options.passes, bool | str) else [str(one) for one in options.passes]
    numbers = ("threads", "tune", "memory_limit", "specialize")
    return {
        **settings_of(options),
        "passes": passes,
        "cache": options.cache if isinstance(options.cache, bool) else str(options.cache),
        **{name: getattr(options, name) for name in numbers},
    }
