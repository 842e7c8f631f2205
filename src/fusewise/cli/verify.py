"""`fusewise verify`: same answers? If not, which decision is to blame."""

from __future__ import annotations

from typing import Annotated

import typer

from fusewise.cli.options import (
    Cache,
    Disable,
    Exact,
    Fusion,
    Json,
    ModelName,
    Seed,
    Shapes,
    Strict,
    Symbols,
    Threads,
    options_of,
)

__all__ = ["verify"]

Tolerance = Annotated[
    float | None,
    typer.Option("--tolerance", min=0.0, help="Largest max|a-b|/max|b| of an output (default: by its type)."),
]
Bisect = Annotated[bool, typer.Option("--bisect/--no-bisect", help="Search for the decision to blame.")]


def verify(
    context: typer.Context,
    model: ModelName,
    shape: Shapes = None,
    symbol: Symbols = None,
    threads: Threads = None,
    seed: Seed = 0,
    tolerance: Tolerance = None,
    bisect: Bisect = True,
    exact: Exact = False,
    strict: Strict = False,
    disable: Disable = None,
    fusion: Fusion = "dnnfusion",
    cache: Cache = True,
    json: Json = False,
) -> None:
    """Compare MODEL's answers with ONNX Runtime (or ONNX's reference) on random inputs; find what is to blame."""
    from fusewise import api
    from fusewise.cli.show import facts, print_json, progress
    from fusewise.errors import AnswersDiffer

    options = options_of(context)
    with progress() as report:
        report(f"verifying {model}", 0.0)
        found = api.verify(model, options, seed=seed, tolerance=tolerance, bisect=bisect)
    if json:
        print_json(
            {
                "model": model,
                "agrees": found.agrees,
                "reference": found.reference,
                "max_rel_error": max(found.errors.values(), default=0.0),
                "errors": found.errors,
                "tolerances": found.tolerances,
                "decisions": found.decisions,
                "blame": found.blame,
                "confirmed": found.confirmed,
                "builds": found.builds,
            }
        )
    else:
        facts(
            [
                ("reference", found.reference),
                *(
                    (f"output {name}", f"{error:.2e} (at most {found.tolerances[name]:.0e})")
                    for name, error in found.errors.items()
                ),
                ("decisions", str(found.decisions)),
            ]
        )
    if not found.agrees:
        worst = max(found.errors, key=lambda name: found.errors[name] - found.tolerances[name])
        blame = f"; to blame: {found.blame}" if found.blame else ""
        raise AnswersDiffer(
            f"{model}: output {worst!r} differs from {found.reference} by {found.errors[worst]:.2e}, "
            f"more than {found.tolerances[worst]:.0e}{blame}"
        )
