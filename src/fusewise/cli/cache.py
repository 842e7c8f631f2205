"""`fusewise cache`: what is kept of earlier compilations, and how to throw it away."""

from __future__ import annotations

from pathlib import Path

import typer

from fusewise.cli.options import Json, cache_of

__all__ = ["cache"]

cache = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Compiled kernels kept for the next time.")


@cache.command()
def info(json: Json = False) -> None:
    """Say where compiled kernels are kept, how many, and how large."""
    from fusewise.cli.show import facts, print_json
    from fusewise.runtime.cache import KernelCache

    found = KernelCache(_folder()).info()
    if json:
        print_json({"path": str(found.folder), "files": found.files, "bytes": found.nbytes})
    else:
        facts([("path", str(found.folder)), ("files", str(found.files)), ("size", f"{found.nbytes / 1e6:.1f} MB")])


@cache.command()
def clear(json: Json = False) -> None:
    """Throw away every compiled kernel; they are made again when needed."""
    from fusewise.cli.show import print_json
    from fusewise.runtime.cache import KernelCache

    store = KernelCache(_folder())
    removed = store.clear()
    if json:
        print_json({"path": str(store.folder), "removed": removed})
    else:
        typer.echo(f"removed {removed} files from {store.folder}")


def _folder() -> Path:
    from fusewise import api

    folder = api.cache_folder(cache_of(True))
    assert folder is not None
    return folder
