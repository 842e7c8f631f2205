"""What a report can be written as: a row for each format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fusewise.errors import UsageError
from fusewise.records import record
from fusewise.reporting.charts import with_charts
from fusewise.reporting.formats.dot import dot
from fusewise.reporting.formats.model_explorer import model_explorer, node_data
from fusewise.reporting.formats.perfetto import perfetto
from fusewise.words import no_such

__all__ = ["FORMATS", "Format", "format_of", "written_as"]

Document = Mapping[str, Any]


@record(frozen=True)
class Format:
    """A format by its `name`, how names of its files end, the text of a document in it, and what opens it."""

    name: str
    suffix: str
    text: Callable[[Document], str]
    about: str


def _page(document: Document) -> str:
    from fusewise.reporting.page.page import html

    return html(with_charts(document))


def _json(document: object) -> str:
    return json.dumps(document, separators=(",", ":")) + "\n"


_ROWS = (
    Format("html", ".html", _page, "a page for a browser"),
    Format("model-explorer", ".model-explorer.json", lambda d: _json(model_explorer(d)), "graphs for Model Explorer"),
    Format("node-data", ".node-data.json", lambda d: _json(node_data(d)), "times as node data of Model Explorer"),
    Format("perfetto", ".perfetto.json", lambda d: _json(perfetto(d)), "a run as a trace for Perfetto"),
    Format("dot", ".dot", dot, "the groups for Graphviz"),
    Format("json", ".json", lambda d: _json(with_charts(d)), "the data of the report"),
)
FORMATS: Mapping[str, Format] = MappingProxyType({row.name: row for row in _ROWS})
"""By name. Names of files are looked at in this order: the last ending is part of others."""


def format_of(path: Path, name: str | None = None) -> Format:
    """The format called `name`, or else the one that the name of the file ends as. `UsageError` where there is none."""
    if name is not None:
        if name not in FORMATS:
            raise no_such("format of reports", name, FORMATS)
        return FORMATS[name]
    for row in FORMATS.values():
        if path.name.endswith(row.suffix):
            return row
    endings = ", ".join(row.suffix for row in FORMATS.values())
    raise UsageError(f"a report is written as {endings}, not as {path.name!r}")


def written_as(document: Document, chosen: Format) -> str:
    """The text of a document in a format."""
    return chosen.text(document)
