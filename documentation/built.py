"""What holds of a built site: it asks the network for nothing, and no link or picture in it leads nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["faults", "without_hosts"]

OWN_SCRIPTS = "assets/javascripts/bundle.*.js"
HOST_IN_SCRIPT = re.compile(r"https?://(?:unpkg\.com|api\.github\.com)[^\"`$]*")
"""Where the theme's script would fetch what this site does not use: diagrams, and figures of a repository."""

LOADED = {"script": ("src",), "img": ("src",), "iframe": ("src",), "source": ("src",), "link": ("href",)}
"""Attributes by which a page loads something when it is opened."""

NOT_LOADED = ("canonical", "next", "prev", "alternate")


class Links(HTMLParser):
    """What a page links to, what it loads, and the names of its places."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.linked: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places.update(given[name] for name in ("id", "name") if given.get(name))
        if tag == "a" and given.get("href"):
            self.linked.append(given["href"])
        if given.get("rel") not in NOT_LOADED:
            self.loaded += [given[name] for name in LOADED.get(tag, ()) if given.get(name)]


def without_hosts(site: Path) -> None:
    """Take out addresses of hosts in the theme's script, maps of it to its source, and the list of the site's own addresses."""
    for path in site.glob(OWN_SCRIPTS):
        path.write_text(HOST_IN_SCRIPT.sub("about:blank", path.read_text()))
    for path in [*(site / "assets").rglob("*.map"), *site.glob("sitemap.xml*")]:
        path.unlink()


def faults(site: Path) -> list[str]:
    """Each place where a page loads from elsewhere, or links to what is not there."""
    pages = {path: Links(path.read_text()) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    found = [
        f"{path.relative_to(site)} {fault}" for path, page in pages.items() for fault in _of_page(path, page, pages)
    ]
    for path in sorted(site.rglob("*.css")):
        loaded = re.findall(r"(?:url\(\s*['\"]?|@import\s+['\"])(https?:[^'\")]+)", path.read_text())
        found += [f"{path.relative_to(site)} loads {address}" for address in loaded]
    for path in site.glob(OWN_SCRIPTS):
        found += [f"{path.relative_to(site)} names {host}" for host in HOST_IN_SCRIPT.findall(path.read_text())]
    return found


def _of_page(path: Path, page: Links, pages: dict[Path, Links]) -> Iterator[str]:
    for address in page.loaded:
        parts = urlsplit(address)
        if parts.scheme in ("http", "https") or parts.netloc:
            yield f"loads {address}"
        elif not parts.scheme and not _target(path, parts.path).is_file():
            yield f"loads {address}, which is not there"
    for address in page.linked:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        target = _target(path, parts.path)
        if not target.is_file():
            yield f"links to {address}, which is not there"
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
            yield f"links to {address}, where that page has no such place"


def _target(path: Path, address: str) -> Path:
    return (path.parent / unquote(address)).resolve() if address else path
