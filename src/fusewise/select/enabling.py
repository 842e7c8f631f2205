"""Which passes make work for which: a table derived by running them, and the function that derives it.

A pass enables another if, on some graph, the other has no match before it and has one behind it. `enabling.toml` holds the table;
`python -m benchmarks.passes --enabling` derives it again and writes it.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources

from fusewise.ir.graph import Graph
from fusewise.passes.published import step_named
from fusewise.select.relevance import distinct_names, matches
from fusewise.trace import Trace

__all__ = ["derived", "enabling", "enabling_toml"]

_FILE = "enabling.toml"


def enabling() -> Mapping[str, tuple[str, ...]]:
    """For each pass, the passes it may make work for."""
    text = resources.files("fusewise.select").joinpath(_FILE).read_text(encoding="utf-8")
    return {name: tuple(others) for name, others in tomllib.loads(text)["enables"].items()}


def derived(graphs: Iterable[Graph], rounds: int = 2) -> dict[str, tuple[str, ...]]:
    """The relation as these graphs show it, and what `rounds` - 1 further passes make of them. Passes are run on every graph."""
    functions = {name: step_named(name).function for name in distinct_names()}
    found: dict[str, set[str]] = {name: set() for name in functions}
    waiting = [(graph, rounds) for graph in graphs]
    while waiting:
        graph, left = waiting.pop()
        idle = [name for name, function in functions.items() if not matches(function, graph)]
        for name in functions.keys() - idle:
            after = functions[name](graph, Trace())
            woken = [other for other in idle if matches(functions[other], after)]
            found[name].update(woken)
            if woken and left > 1:
                waiting.append((after, left - 1))
    return {name: tuple(sorted(others)) for name, others in sorted(found.items()) if others}


def enabling_toml(table: Mapping[str, Iterable[str]]) -> str:
    """The table as the text of its file."""
    rows = [f"{name} = {json.dumps(list(others))}" for name, others in table.items()]
    return "\n".join(("# Derived by running: python -m benchmarks.passes --enabling", "[enables]", *rows, ""))
