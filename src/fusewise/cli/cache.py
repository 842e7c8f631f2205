"""`fusewise cache`: what is kept of earlier compilations, and how to throw it away."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fusewise.cli.examples import examples
from fusewise.cli.options import Json
from fusewise.words import size_text

if TYPE_CHECKING:
    from fusewise.runtime.cache import KernelCache
    from fusewise.runtime.model_cache import ModelCache

__all__ = ["cache"]

cache = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Compiled models and kernels kept for the next time."
)


@cache.command(epilog=examples("cache info"))
def info(json: Json = False) -> None:
    """Say where compiled models and kernels are kept, how many, and how large."""
    from fusewise.cli.show import facts, print_json

    found = {name: store.info() for name, store in _stores().items()}
    if json:
        print_json({n: {"path": str(i.folder), "files": i.files, "bytes": i.nbytes} for n, i in found.items()})
    else:
        facts([(name, f"{i.files} files, {size_text(i.nbytes)} in {i.folder}") for name, i in found.items()])


@cache.command(epilog=examples("cache clear"))
def clear(json: Json = False) -> None:
    """Throw away every compiled model and kernel; they are made again when needed."""
    from fusewise.cli.show import print_json

    removed = {name: (store.folder, store.clear()) for name, store in _stores().items()}
    if json:
        print_json({name: {"path": str(folder), "removed": count} for name, (folder, count) in removed.items()})
    else:
        for name, (folder, count) in removed.items():
            typer.echo(f"removed {count} {name} from {folder}")


def _stores() -> dict[str, KernelCache | ModelCache]:
    from fusewise.runtime.cache import KernelCache
    from fusewise.runtime.model_cache import ModelCache

    return {"kernels": KernelCache(_folder()), "models": ModelCache(_folder())}


def _folder() -> Path:
    from fusewise import api

    folder = api.cache_folder(True)
    assert folder is not None
    return folder
