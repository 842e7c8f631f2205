"""`fusewise gradient`: the model with the gradients of its outputs, as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fusewise.cli.options import Json, ModelName, Shapes, Symbols, check_folder, numbers_of, shapes_of, source_of
from fusewise.errors import UsageError

__all__ = ["gradient"]

Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write the graph: an .onnx file.")]
Of = Annotated[
    list[str] | None,
    typer.Option("--of", metavar="OUTPUT", help="Of this output alone; may be repeated (default: all)."),
]
By = Annotated[
    list[str] | None,
    typer.Option(
        "--by",
        metavar="VALUE",
        help="By this input, weight or value in between; may be repeated (default: all inputs).",
    ),
]
Weights = Annotated[bool, typer.Option("--weights", help="By every weight, too.")]


def gradient(
    model: ModelName,
    output: Output = None,
    of: Of = None,
    by: By = None,
    weights: Weights = False,
    shape: Shapes = None,
    symbol: Symbols = None,
    json: Json = False,
) -> None:
    """Add to MODEL, behind its outputs, the gradient of the sum of each floating output by each floating input."""
    from fusewise import api
    from fusewise.cli.show import facts, print_json, with_size
    from fusewise.gradients import gradient as with_gradient

    if output is not None and output.suffix != ".onnx":
        raise UsageError(f"{output.name!r} should end in .onnx")
    check_folder(output)
    graph = api.load(source_of(model), shapes=shapes_of(shape), symbols=numbers_of(symbol))
    found = with_gradient(graph, of=of, by=by, weights=weights)
    if output is not None:
        api.save(found, output)
    slopes = {name: str(found.types[name]) for name in found.outputs[len(graph.outputs) :]}
    if json:
        nodes = {"nodes_before": len(graph.nodes), "nodes": len(found.nodes)}
        print_json({"model": model, "output": None if output is None else str(output), **nodes, "gradients": slopes})
        return
    facts(
        [
            ("model", model),
            *([] if output is None else [("file", with_size(output))]),
            ("nodes", f"{len(graph.nodes)} to {len(found.nodes)}"),
            *(("gradient", f"{name}: {kind}") for name, kind in slopes.items()),
        ]
    )
