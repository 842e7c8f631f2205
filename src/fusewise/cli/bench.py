"""`fusewise bench`: a model here and in other runtimes, compared fairly."""

from __future__ import annotations

from typing import Annotated, Any

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
    Symbols,
    Threads,
    Tune,
    options_of,
)

__all__ = ["bench"]

Versus = Annotated[
    str, typer.Option("--vs", metavar="NAMES", help="Runtimes, comma-separated: onnxruntime, openvino; or none.")
]
Runs = Annotated[int, typer.Option("--runs", min=1, help="At least so many timed runs of each runtime.")]
Seconds = Annotated[float, typer.Option("--seconds", min=0.0, help="At least so many timed seconds of each runtime.")]
Weigh = Annotated[bool, typer.Option("--weigh/--no-weigh", help="Measure load time and peak memory too.")]


def bench(
    context: typer.Context,
    model: ModelName,
    vs: Versus = "onnxruntime",
    shape: Shapes = None,
    symbol: Symbols = None,
    threads: Threads = None,
    runs: Runs = 50,
    seconds: Seconds = 3.0,
    weigh: Weigh = True,
    seed: Seed = 0,
    exact: Exact = False,
    disable: Disable = None,
    fusion: Fusion = "dnnfusion",
    tune: Tune = 0.0,
    cache: Cache = True,
    json: Json = False,
) -> None:
    """Time MODEL here and in other runtimes, in turn, on the same inputs and threads."""
    from fusewise import api
    from fusewise.bench.timing import Budget
    from fusewise.cli.show import print_json, progress

    options = options_of(context)
    peers = tuple(name.strip() for name in vs.split(",") if name.strip() not in ("", "none"))
    with progress() as report:
        found = api.bench(
            model,
            options,
            against=peers,
            seed=seed,
            budget=Budget(runs=runs, seconds=seconds),
            weigh=weigh,
            progress=report,
        )
    if json:
        print_json(found)
    else:
        _show(found)


def _show(found: dict[str, Any]) -> None:
    from fusewise.cli.show import table

    headings = ("runtime", "p50 ms", "p90 ms", "min ms", "compile ms", "load ms", "peak MB", "difference")
    rows = []
    for name, row in found["runtimes"].items():
        if "error" in row:
            rows.append((name, f"cannot run it: {row['error'][:80]}", "", "", "", "", "", ""))
            continue
        error = row["max_rel_error"]
        times = [f"{row[key]:.2f}" for key in ("p50_ms", "p90_ms", "min_ms")]
        costs = ["-" if row.get(key) is None else f"{row[key]:.0f}" for key in ("compile_ms", "load_ms", "peak_rss_mb")]
        rows.append((name, *times, *costs, "-" if error is None else f"{error:.1e}"))
    table(headings, rows, title=f"{found['model']}, {found['precision']}, {found['threads']} threads")
    if found["ratio"] is not None:
        verdict = "faster" if found["ratio"] >= 1 else "slower"
        factor = max(found["ratio"], 1 / found["ratio"])
        typer.echo(f"{factor:.2f} x {verdict} than {found['best_peer']} (median of {_runs(found)} runs)")


def _runs(found: dict[str, Any]) -> int:
    return int(found["runtimes"]["fusewise"]["runs"])
