"""A self-contained HTML page: sections of text, tables and drawings, one file, no scripts and nothing to fetch."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["Markup", "page", "paragraph", "section", "table", "tiles"]


class Markup(str):
    """Text that is HTML already; everything else is escaped on its way into a page."""

    __slots__ = ()


def html(value: object) -> str:
    """A cell or paragraph as HTML."""
    return str(value) if isinstance(value, Markup) else escape(str(value))


def page(title: str, *sections: Markup) -> str:
    """The whole file."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body><h1>{escape(title)}</h1>\n{''.join(sections)}</body></html>\n"
    )


def section(title: str, *parts: Markup) -> Markup:
    """A heading and what follows it."""
    return Markup(f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>\n")


def paragraph(text: object) -> Markup:
    return Markup(f"<p>{html(text)}</p>")


def tiles(figures: Sequence[tuple[str, str]]) -> Markup:
    """A row of figures, each with its name under it."""
    cells = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in figures)
    return Markup(f'<div class="tiles">{cells}</div>')


def table(headings: Sequence[str], rows: Sequence[Sequence[object]], *, words: int = 1) -> Markup:
    """A table whose first `words` columns hold text and the others numbers."""
    head = "".join(f'<th class="{"w" if k < words else "n"}">{escape(name)}</th>' for k, name in enumerate(headings))
    body = "".join(
        "<tr>"
        + "".join(f'<td class="{"w" if k < words else "n"}">{html(cell)}</td>' for k, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return Markup(f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>')


_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #667; --line: #d5dae3; --paper: #fff; --box: #f4f6fa;
  --bar: #3b6fb6; --over: #c2452d; --mark: #b7791f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e7ee; --soft: #99a2b3; --line: #3a4252; --paper: #171b22;
  --box: #212733; --bar: #6c9fe0; --over: #e57660; --mark: #e0b050; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto; max-width: 76rem;
  padding: 0 1.2rem; }
h1 { font-size: 1.5rem; margin: 0 0 .8rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { max-width: 60rem; margin: .4rem 0; }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; }
.tiles div { background: var(--box); border-radius: 6px; padding: .5rem .9rem; }
.tiles b { display: block; font-size: 1.15rem; font-variant-numeric: tabular-nums; } .tiles span { color: var(--soft); }
.scroll { overflow: auto; max-height: 44rem; }
table { border-collapse: collapse; font-size: .9rem; } th, td { padding: .2rem .7rem; border-bottom: 1px solid var(--line); }
th { text-align: left; color: var(--soft); font-weight: 600; position: sticky; top: 0; background: var(--paper); }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; } td.w { overflow-wrap: anywhere; }
svg { display: block; } svg text { fill: var(--ink); font: 11px system-ui, sans-serif; } svg .soft { fill: var(--soft); }
"""
