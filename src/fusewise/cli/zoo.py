"""`fusewise zoo`: the built-in architectures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fusewise.cli.completion import zoo_names
from fusewise.cli.examples import examples
from fusewise.cli.options import Json, Seed, check_folder

__all__ = ["zoo"]

zoo = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Built-in architectures: list them, write one.")


@zoo.command("list", epilog=examples("zoo list"))
def list_models(json: Json = False) -> None:
    """List the architectures that zoo:NAME can name."""
    from fusewise.cli.show import count, print_json, table
    from fusewise.zoo.catalogue import MODELS

    if json:
        keys = ("name", "family", "task", "input", "parameters", "macs", "source")
        print_json([{key: getattr(model, key) for key in keys} for model in MODELS])
        return
    rows = [(m.name, m.task, m.input, count(m.parameters), count(m.macs)) for m in MODELS]
    table(("name", "task", "input", "parameters", "MACs"), rows, words=(0, 1, 2), ranks=(0, 3, 4, 1, 2))


@zoo.command("build", epilog=examples("zoo build"))
def build_model(
    name: Annotated[str, typer.Argument(metavar="NAME", help="One of: fusewise zoo list.", autocompletion=zoo_names)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .onnx file to write.")],
    batch: Annotated[int, typer.Option("--batch", min=1, help="Images or sequences in one batch.")] = 1,
    seed: Seed = 0,
    exported: Annotated[
        bool,
        typer.Option(
            "--exported", "--decomposed", help="Primitives and shape arithmetic, as exporters of 2020 wrote them."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Write an architecture, with seeded random weights, as an ONNX file."""
    from fusewise import api
    from fusewise.cli.show import print_json
    from fusewise.zoo import catalogue

    check_folder(output)
    graph = catalogue.build(name.removeprefix(api.ZOO), batch=batch, seed=seed, decomposed=exported)
    api.save(graph, output)
    if json:
        print_json({"model": name, "path": str(output), "nodes": len(graph.nodes)})
    else:
        typer.echo(f"wrote {output} ({len(graph.nodes)} nodes)")
