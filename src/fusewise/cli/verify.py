"""`fusewise verify`: same answers? If not, which decision is to blame."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusewise.cli.decisions import DecisionsFile, check_decisions_file, traced
from fusewise.cli.options import (
    Cache,
    Device,
    Disable,
    Exact,
    Exported,
    Fusion,
    Json,
    ModelName,
    Precision,
    Sanitize,
    Seed,
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
from fusewise.cli.reports import ReportFile, check_report, write_report

if TYPE_CHECKING:
    from fusewise.benchmarking.verification import Case

__all__ = ["verify"]

Tolerance = Annotated[
    float | None,
    typer.Option(
        "--tolerance", min=0.0, help="Largest max|a-b|/max|b| of an output (default: by its type, and by --precision)."
    ),
]
Inputs = Annotated[
    str,
    typer.Option(
        "--inputs",
        metavar="KIND",
        help="random, or hostile: also zeros, denormals, ends of integers, infinities, NaN, empty and odd sizes.",
    ),
]
Bisect = Annotated[bool, typer.Option("--bisect/--no-bisect", help="Search for the decision to blame.")]


def verify(
    context: typer.Context,
    model: ModelName,
    exported: Exported = False,
    shape: Shapes = None,
    symbol: Symbols = None,
    value: Values = None,
    threads: Threads = None,
    seed: Seed = 0,
    inputs: Inputs = "random",
    tolerance: Tolerance = None,
    bisect: Bisect = True,
    exact: Exact = False,
    strict: Strict = False,
    disable: Disable = None,
    fusion: Fusion = "dnnfusion",
    precision: Precision = "float32",
    device: Device = "cpu",
    sanitize: Sanitize = False,
    cache: Cache = True,
    decisions: DecisionsFile = None,
    report: ReportFile = None,
    json: Json = False,
) -> None:
    """Compare MODEL's answers with ONNX Runtime (or ONNX's reference) on random or hostile inputs; find what is to blame.

    With --device cuda:sm_90 and without such a GPU its kernels run in Triton's interpreter, which is slow, and says nothing of
    the compiler; that is meant for small models.
    """
    from fusewise import api
    from fusewise.cli.show import facts, print_json, progress
    from fusewise.errors import AnswersDiffer

    model, options = model_of(model, exported), options_of(context)
    check_decisions_file(decisions)
    check_folder(decisions)
    check_report(report)
    how: dict[str, Any] = {"seed": seed, "inputs": inputs, "tolerance": tolerance, "bisect": bisect}
    with progress() as tell, traced(decisions, options.disable) as trace:
        tell(f"verifying {model}", 0.0)
        found = api.verify(source_of(model), options, trace=trace, **how)
        document = None if report is None else api.report(source_of(model), options, times=False).document
    if json:
        print_json({"model": model, **found.summary})
    else:
        facts(
            [
                ("reference", found.reference),
                *((f"inputs {case.inputs}", _told(case)) for case in found.cases if len(found.cases) > 1),
                *(
                    (f"output {name}", f"{error:.2e} (at most {found.tolerances[name]:.0e})")
                    for name, error in found.errors.items()
                ),
                ("decisions", str(found.decisions)),
            ]
        )
    if report is not None and document is not None:
        from fusewise.reporting.document.verification import verification_part

        write_report(context, report, model, "verify", {**document, "verification": verification_part(found)})
    if not found.agrees:
        raise AnswersDiffer(f"{model}: {found.sentence}")
    if not json:
        sys.stdout.write(f"{model}: {found.sentence}\n")


def _told(case: Case) -> str:
    if case.refused:
        return case.refused
    return f"{'agree' if case.agrees else 'differ'}, {max(case.errors.values(), default=0.0):.2e}"
