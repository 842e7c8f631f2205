"""One build of the site, strict, and the check of what came of it."""

from __future__ import annotations

import logging
from pathlib import Path

from documentation.built import faults, without_hosts

__all__ = ["BuildFailed", "build"]

CONFIGURATION = Path(__file__).parents[1] / "mkdocs.yml"


class BuildFailed(Exception):
    """The site cannot be built, or is not as it has to be; the message says why."""


def build(site: Path, *, runs: bool = True) -> int:
    """Build the site into a folder, with what real `runs` show; the number of pages. `BuildFailed` if anything is wrong."""
    from mkdocs.commands.build import build as build_site
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort, MkDocsException

    from documentation.runs import made

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        config = load_config(str(CONFIGURATION), site_dir=str(site.resolve()))
        config.extra["runs"] = made() if runs else None
        config.plugins.on_startup(command="build", dirty=False)
        build_site(config)
    except (Abort, MkDocsException, RuntimeError) as error:
        raise BuildFailed(" ".join(str(error).split()) or "MkDocs gave up; see above") from error
    without_hosts(site)
    found = faults(site)
    if found:
        raise BuildFailed("the site is not whole:\n  " + "\n  ".join(found[:40]))
    return len(list(site.rglob("*.html")))
