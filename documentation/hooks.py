"""What the site has beside the files of `docs/`: MkDocs calls these functions while it builds (see `mkdocs.yml`)."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from documentation.links import relinked
from documentation.navigation import navigation
from documentation.pages import generated_pages
from documentation.reference import TITLES

__all__ = ["on_config", "on_files", "on_page_markdown", "on_post_page"]

ASSETS = Path(__file__).parent / "assets"
FRAME_WORKER = "assets/frame_worker.js?iframe-worker"
"""By its name the plugin `offline` knows that there is one, and asks for none from the network."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Search in pages that are opened from files: by a script of the site's own."""
    config.extra["polyfills"] = [FRAME_WORKER]
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add what is generated, and say where each page stands."""
    for asset in sorted(ASSETS.iterdir()):
        files.append(File.generated(config, f"assets/{asset.name}", abs_src_path=str(asset)))
    for place, content in generated_pages(config.extra.get("runs")):
        files.append(File.generated(config, place, content=content))
    config.nav = navigation((page.src_uri for page in files.documentation_pages()), TITLES)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A page of `docs/` may link to files of the repository's root."""
    if page.file.generated_by is not None:
        return markdown
    return relinked(markdown, f"docs/{page.file.src_uri}", page.file.src_uri)


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """The theme's box of the search is a dialog without a name, which a screen reader needs."""
    return output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )
