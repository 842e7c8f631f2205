"""`fusewise profile`: what groups of operators took on this machine, kept for planning."""

from __future__ import annotations

import json as text
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusewise.cli.examples import examples
from fusewise.cli.options import (
    Device,
    Exact,
    Exported,
    Json,
    ModelName,
    Precision,
    Shapes,
    Symbols,
    Threads,
    Values,
    model_of,
    numbers_of,
    shapes_of,
    source_of,
    threads_of,
    values_of,
)
from fusewise.cli.streams import note
from fusewise.words import size_text

if TYPE_CHECKING:
    from fusewise.runtime.profile import ProfileDatabase

__all__ = ["profile"]

profile = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Measured durations of groups of operators, kept for planning."
)


@profile.command(epilog=examples("profile info"))
def info(json: Json = False) -> None:
    """Say where measurements are kept, how many there are, and for which machine."""
    from fusewise.cli.show import facts, print_json

    found = _database().info()
    path = "memory" if found.path is None else str(found.path)
    if json:
        numbers = {"entries": found.entries, "failed": found.failed, "bytes": found.nbytes}
        print_json({"path": path, **numbers, "machine": found.machine})
        return
    rows = [("path", path), ("entries", str(found.entries)), ("of them failed", str(found.failed))]
    facts([*rows, ("size", size_text(found.nbytes))])


@profile.command(epilog=examples("profile measure"))
def measure(
    model: ModelName,
    exported: Exported = False,
    shape: Shapes = None,
    symbol: Symbols = None,
    value: Values = None,
    threads: Threads = None,
    device: Device = "cpu",
    precision: Precision = "float32",
    exact: Exact = False,
    json: Json = False,
) -> None:
    """Time each group of MODEL by itself, on this CPU or on the GPU that is here, and keep that for planning."""
    from fusewise import api
    from fusewise.cli.show import print_json, progress
    from fusewise.profiling import GroupTiming, timed_groups

    source = source_of(model_of(model, exported))
    graph = api.load(source, shapes=shapes_of(shape), symbols=numbers_of(symbol), values=values_of(value))
    how = GroupTiming(device, threads_of(threads), precision, exact)
    with progress() as tell:
        rows = timed_groups(graph, how, _database(), tell)
    if json:
        print_json({"model": model, "device": device, "groups": rows})
    else:
        _show_groups(rows)


def _show_groups(rows: list[dict[str, Any]]) -> None:
    from fusewise.cli.show import facts, table

    cells = [
        (
            str(row["group"]),
            row["operators"],
            *("" if row[key] is None else f"{row[key]:.2f}" for key in ("us", "spread_us")),
            "before" if row["known"] else "now",
            row["failure"],
        )
        for row in rows
    ]
    table(("group", "operators", "us", "spread", "measured", "why not"), cells, words=(1, 4, 5))
    total = sum(row["us"] or 0.0 for row in rows)
    failed = sum(row["us"] is None for row in rows)
    facts([("together", f"{total / 1e3:.3f} ms"), *([("not measured", f"{failed} groups")] if failed else [])])


@profile.command(epilog=examples("profile clear"))
def clear(json: Json = False) -> None:
    """Throw away every measurement of this machine; they are taken again when needed."""
    from fusewise.cli.show import print_json

    database = _database()
    removed = database.clear()
    path = database.info().path
    if json:
        print_json({"path": str(path), "removed": removed})
    else:
        typer.echo(f"removed {removed} measurements from {path}")


@profile.command(epilog=examples("profile export"))
def export(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write, instead of standard output.")
    ] = None,
    json: Json = False,
) -> None:
    """Write every measurement: one JSON object a line, or with --json one array."""
    rows = [asdict(entry) for entry in _database().entries()]
    written = text.dumps(rows, indent=2) + "\n" if json else "".join(text.dumps(row) + "\n" for row in rows)
    if output is None:
        typer.echo(written, nl=False)
        return
    from fusewise.files import write_text

    write_text(output, written)
    note(f"wrote {output} ({len(rows)} measurements)")


def _database() -> ProfileDatabase:
    from fusewise import api
    from fusewise.runtime.measure import machine_name
    from fusewise.runtime.profile import ProfileDatabase

    folder = api.cache_folder(True)
    assert folder is not None
    return ProfileDatabase(folder, machine_name(), note)
