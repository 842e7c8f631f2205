"""Assembles the page of a report: the document and the libraries it needs, packed, in one HTML file that fetches nothing.

What is packed is unpacked by the page itself (`DecompressionStream`). Scripts and styles are allowed by their hashes, and nothing
else is: no text of a document can become code. Names in a document are hostile: Jinja escapes them here, and scripts write them as
text.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusewise.errors import FusewiseError, UsageError
from fusewise.reporting.page.overview import overview, tabs_of, visible

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["html", "require_pages"]

_HERE = Path(__file__).parent
_LIBRARIES = _HERE.parent / "libraries"
_FIRST = ("dom.js", "index.js", "app.js", "style.css")
"""Files that come before the others, which follow by name."""

_GRAPH = ("cytoscape.min.js", "elk-api.js", "elk-worker.min.js")
_CHARTS = ("vega.min.js", "vega-lite.min.js", "vega-embed.min.js")
_LICENCES = (
    ("Cytoscape.js", "MIT", "https://github.com/cytoscape/cytoscape.js", "cytoscape.license.txt", "cytoscape.min.js"),
    ("ELK for JavaScript", "EPL-2.0", "https://github.com/kieler/elkjs", "elk.license.txt", "elk-worker.min.js"),
    ("Vega", "BSD-3-Clause", "https://github.com/vega/vega", "vega.license.txt", "vega.min.js"),
    ("Vega-Lite", "BSD-3-Clause", "https://github.com/vega/vega-lite", "vega-lite.license.txt", "vega-lite.min.js"),
    ("Vega-Embed", "BSD-3-Clause", "https://github.com/vega/vega-embed", "vega-embed.license.txt", "vega-embed.min.js"),
)
"""Whose work is in a page: name, licence, where its source is, the file with the licence's text, and the one that it is about."""


def html(document: Mapping[str, Any]) -> str:
    """The whole page of a report document, which is read and not changed.

    `UsageError` where Jinja2 is not installed, `FusewiseError` where the libraries that pages are drawn with are missing.
    """
    environment = _environment()
    styles, scripts = ("\n".join(_sources(".css")), _sources(".js"))
    libraries = {name: _library(name) for name in _needed(document)}
    worker = "elk-worker.min.js"
    allowed = [*scripts, *(text for name, text in libraries.items() if name != worker)]
    packed = {name: _packed(text) for name, text in libraries.items()}
    text = environment.get_template("page.html.jinja").render(
        title=document.get("title") or "Report",
        policy=_policy(allowed, styles),
        styles=styles,
        scripts=scripts,
        packed={"document": _packed(_json(document)), **packed},
        tabs=tabs_of(document),
        licences=_licences(libraries),
        has_charts="charts" in document,
        **overview(document),
    )
    return text


def require_pages() -> None:
    """`UsageError` where Jinja2 is not installed: before work that a page is to be made of."""
    _environment()


def _environment() -> Environment:
    try:
        import jinja2
    except ImportError as error:
        message = 'a page is made with Jinja2, which is not installed: pip install "fusewise[report]"'
        raise UsageError(message) from error
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_written,
    )
    found.filters["as_is"] = _as_is
    return found


def _written(value: object) -> object:
    """What a template writes of a value: text with what cannot be seen made visible."""
    return visible(value) if type(value) is str else value


def _as_is(text: str) -> object:
    """Source of ours, which needs no escaping. It must not end the element that it stands in."""
    from markupsafe import Markup

    if "</script" in text.lower() or "</style" in text.lower():
        raise FusewiseError("a source of the page would end the element that it stands in; please report this")
    return Markup(text)


def _sources(suffix: str) -> list[str]:
    """The files of the page with a suffix, in the order in which they are read."""
    paths = sorted(
        _HERE.glob(f"*{suffix}"), key=lambda path: (_FIRST.index(path.name) if path.name in _FIRST else 9, path.name)
    )
    return [path.read_text(encoding="utf-8") for path in paths]


def _needed(document: Mapping[str, Any]) -> tuple[str, ...]:
    """The libraries that a document is drawn with."""
    return (*(_GRAPH if document.get("graphs") else ()), *(_CHARTS if document.get("charts") else ()))


def _licences(libraries: Iterable[str]) -> list[tuple[str, str, str, object]]:
    """Name, licence, place of the source and text of the licence of each library in a page, which every copy has to come with."""
    from markupsafe import escape

    inside = set(libraries)
    return [
        (name, licence, place, escape(_library(text)))
        for name, licence, place, text, file in _LICENCES
        if file in inside
    ]


def _library(name: str) -> str:
    try:
        return (_LIBRARIES / name).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        message = f"{name}, which pages are drawn with, is not there: install the package again, which fetches it"
        raise FusewiseError(message) from error


def _json(document: Mapping[str, Any]) -> str:
    """The document as JSON; a number that JSON does not have (an infinite one) is null."""
    try:
        return json.dumps(document, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(_finite(document), allow_nan=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def _packed(text: str) -> str:
    """Text by gzip and base64: the same for the same text."""
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=9, mtime=0)).decode()


def _policy(scripts: Iterable[str], styles: str) -> str:
    """The policy that holds for the page: nothing is fetched, and only these texts are code."""
    hashes = " ".join(_hash(text) for text in scripts)
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {hashes}",
            "worker-src blob:",
            f"style-src-elem {_hash(styles)}",
            "style-src-attr 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
