"""How verbs put data on the terminal: JSON, tables, a progress line. rich is imported when a table is drawn."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["count", "facts", "on_the_host", "print_json", "progress", "table"]

Progress = Callable[[str, float], None]


def print_json(data: Mapping[str, Any] | Sequence[Any]) -> None:
    """Data on stdout, in the order of its keys; a number that JSON lacks (infinity, NaN) is written as text."""
    sys.stdout.write(json.dumps(_plain(data), indent=2, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def facts(rows: Sequence[tuple[str, str]]) -> None:
    """Names and values, aligned, on stdout; the lines of a value stand below each other."""
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        lines = value.replace("\n", "\n" + " " * (width + 2))
        sys.stdout.write(f"{name:<{width}}  {lines}\n")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", words: Sequence[int] = (0,)) -> None:
    """A table on stdout: the columns numbered `words` are text, which is cut where a line has no room, the others are numbers."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=escape(title) or None, title_justify="left", box=SIMPLE)
    for k, heading in enumerate(headings):
        # rich takes room from columns that may wrap first; their cells do not
        drawn.add_column(escape(heading), justify="left" if k in words else "right", no_wrap=k not in words)
    for row in rows:
        drawn.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in row))
    terminal = sys.stdout.isatty()
    Console(file=sys.stdout, width=None if terminal else 160, highlight=False, soft_wrap=False).print(drawn)


def on_the_host(row: Mapping[str, Any]) -> str:
    """A node on the host: why, how it runs, and what it is expected to take."""
    time = "" if row["expected_ms"] is None else f", about {row['expected_ms']:.2g} ms"
    return f"{row['op']} {row['node']}: {row['reason']} ({row['way']}{time})"


def count(number: float | None) -> str:
    """A large number for people: 25.6 M, 4.09 G."""
    if number is None:
        return "unknown"
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:g}"


@contextmanager
def progress() -> Iterator[Progress]:
    """A function to report progress to; it draws on stderr when that is a terminal and does nothing otherwise."""
    if not sys.stderr.isatty():
        yield lambda what, share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)
