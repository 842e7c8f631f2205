"""`fusewise report`: what was done with a model, as a page or as data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fusewise.cli.options import (
    Cache,
    Disable,
    Exact,
    Exported,
    Fusion,
    ModelName,
    Precision,
    Shapes,
    Strict,
    Symbols,
    Threads,
    Values,
    check_folder,
    model_of,
    options_of,
    source_of,
)
from fusewise.cli.streams import note

__all__ = ["report"]

Output = Annotated[Path, typer.Option("--output", "-o", help="The file to write: .json.")]


def report(
    context: typer.Context,
    model: ModelName,
    output: Output,
    exported: Exported = False,
    shape: Shapes = None,
    symbol: Symbols = None,
    value: Values = None,
    threads: Threads = None,
    exact: Exact = False,
    strict: Strict = False,
    disable: Disable = None,
    fusion: Fusion = "dnnfusion",
    precision: Precision = "float32",
    cache: Cache = True,
) -> None:
    """Compile MODEL and write down what was done with it: graphs, groups, decisions, kernels, memory, times."""
    from fusewise import api
    from fusewise.cli.show import progress

    model, options = model_of(model, exported), options_of(context)
    check_folder(output)
    with progress() as tell:
        found = api.report(source_of(model), options, progress=tell)
        found.save(output)
    note(f"wrote {output}")
