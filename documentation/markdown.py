"""Pieces of Markdown: tables, and texts that stand in them as they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["code", "plain", "sentence", "table"]


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[int] = ()) -> str:
    """A table whose cells are Markdown; the columns numbered in `right` hold figures."""
    figures = set(right)
    marks = ["---:" if column in figures else "---" for column in range(len(headings))]
    lines = [headings, marks, *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    """Text that ends neither its cell nor its row. Python-Markdown takes a bar in code as it is, and would show what escapes it."""
    parts = re.split(r"(``.*?``|`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else part.replace("|", "\\|") for part in parts)


def code(text: object) -> str:
    """Text in the type of code, whatever is in it."""
    said = " ".join(str(text).split())
    marks = "``" if "`" in said else "`"
    return f"{marks}{said}{marks}" if marks == "`" else f"{marks} {said} {marks}"


def plain(text: object) -> str:
    """Text that Markdown reads as text, but for what stands between backticks, which is code."""
    parts = str(text).split("`")
    if len(parts) % 2 == 0:
        return _escaped(str(text))
    return "".join(code(part) if number % 2 else _escaped(part) for number, part in enumerate(parts))


def _escaped(text: str) -> str:
    said = "".join(f"\\{letter}" if letter in "\\`*_[]#" else letter for letter in text)
    return said.replace("&", "&amp;").replace("<", "&lt;")


def sentence(docstring: str | None) -> str:
    """The first sentence of a docstring."""
    first = " ".join((docstring or "").split("\n\n")[0].split())
    return first.split(". ")[0].rstrip(".") + "." if first else ""
