"""`fusewise cache`: what is kept of earlier compilations, and how to throw it away."""

from __future__ import annotations

import shutil
from pathlib import Path

import typer

from fusewise.cli.options import Json, cache_of

__all__ = ["cache"]

cache = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Compiled kernels kept for the next time.")


@cache.command()
def info(json: Json = False) -> None:
    """Say where compiled kernels are kept, how many, and how large."""
    from fusewise.cli.show import facts, print_json

    folder = _folder()
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    total = sum(path.stat().st_size for path in files)
    if json:
        print_json({"path": str(folder), "files": len(files), "bytes": total})
    else:
        facts([("path", str(folder)), ("files", str(len(files))), ("size", f"{total / 1e6:.1f} MB")])


@cache.command()
def clear() -> None:
    """Throw away every compiled kernel; they are made again when needed."""
    folder = _folder()
    if folder.is_dir():
        shutil.rmtree(folder)
    typer.echo(f"cleared {folder}")


def _folder() -> Path:
    from fusewise import api

    folder = api.cache_folder(cache_of(True))
    assert folder is not None
    return folder
