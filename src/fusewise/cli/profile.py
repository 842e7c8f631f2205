"""`fusewise profile`: what groups of operators took on this machine, kept for planning."""

from __future__ import annotations

import json as text
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fusewise.cli.examples import examples
from fusewise.cli.options import Json
from fusewise.cli.streams import note

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
    facts([*rows, ("size", f"{found.nbytes / 1e6:.1f} MB")])


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
