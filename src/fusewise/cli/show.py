"""How verbs put data on the terminal: JSON, tables, a progress line. rich is imported when a table is drawn."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fusewise.cli.streams import Talk, talk
from fusewise.words import size_text

__all__ = ["count", "facts", "on_the_host", "print_json", "progress", "sentence", "table", "with_size"]

Progress = Callable[[str, float], None]

_WIDE, _ENDLESS = 160, 1 << 30  # columns of tables and of sentences, where nobody says how many there are
_LEAST = 20  # letters of a text that are worth a column
_LONGEST_WORD = 32  # letters of a key that are not taken apart
_GAP = 3  # between two columns
_PHASES = 6  # shown at a time


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


def with_size(path: Path) -> str:
    """A file by its name and size: `model.fw (1.5 MiB)`."""
    return f"{path} ({size_text(path.stat().st_size)})"


def facts(rows: Sequence[tuple[str, str]]) -> None:
    """Names and values, aligned, on stdout; the lines of a value stand below each other, and long ones go on below at words."""
    width = max((len(name) for name, _ in rows), default=0)
    room = max(20, _room(_ENDLESS) - width - 2)
    for name, value in rows:
        lines = [part for line in value.split("\n") for part in _parts(line, room)]
        below = "\n" + " " * (width + 2)
        sys.stdout.write(f"{name:<{width}}  {below.join(lines)}".rstrip() + "\n")


def _parts(line: str, room: int) -> list[str]:
    """A line in parts that fit, taken apart between words only."""
    if len(line) <= room:
        return [line]
    from textwrap import wrap

    return wrap(line, room, break_long_words=False, break_on_hyphens=False) or [""]


def sentence(text: str) -> None:
    """A sentence on stdout, which goes on in the next line where it is long."""
    sys.stdout.write("\n".join(_parts(text, _room(_ENDLESS))) + "\n")


def _room(otherwise: int) -> int:
    """How wide a line may be: as COLUMNS says, or the terminal is; `otherwise` where there is neither."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and int(stated):
        return int(stated)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else otherwise


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str = "",
    words: Sequence[int] = (0,),
    ranks: Sequence[int] = (),
) -> None:
    """A table on stdout: the columns numbered `words` are text, which is cut where a line has no room, the others are numbers.

    `ranks` has a number for each column: where there is no room, those with the highest go, and are named below. The key has
    rank 0 and stays, whole: a long one goes on in the next line.
    Without ranks the columns at the right go first. Those without anything in them go before all others.
    """
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    room = _room(_WIDE)
    ranks = ranks or range(len(headings))
    least, whole = _widths(headings, rows, words, ranks)
    kept = _kept(least, [not any(row[k] for row in rows) for k in range(len(headings))], ranks, room)
    widths = _shared([least[k] for k in kept], [whole[k] for k in kept], room)
    drawn = Table(box=SIMPLE, show_edge=False, pad_edge=False)
    for k, width in zip(kept, widths, strict=True):
        drawn.add_column(escape(headings[k]), justify="left" if k in words else "right", width=width)
    for row in rows:
        drawn.add_row(
            *(Text(row[k], no_wrap=bool(ranks[k]), overflow="ellipsis" if ranks[k] else "fold") for k in kept)
        )
    console = Console(file=sys.stdout, width=room, highlight=False, soft_wrap=False)
    with console.capture() as captured:
        console.print(drawn)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    left = [headings[k].replace("\n", " ") or "the last" for k in range(len(headings)) if k not in kept]
    if title:
        sentence(title)
    sys.stdout.write("\n".join(lines) + "\n")
    if left:
        sentence(f"(no room for: {', '.join(left)})")
    sys.stdout.write("\n")


def _wide(text: str) -> int:
    """The longest line of a text."""
    return max(map(len, text.split("\n")))


def _least(heading: str, cells: Sequence[str], is_key: bool) -> int:
    """What a column of text needs at least; a key goes on in the next line between words."""
    least = max(_wide(heading), min(_LEAST, max(map(len, cells), default=0)))
    words = (len(word) for cell in cells for word in cell.split()) if is_key else ()
    return max(least, min(_LONGEST_WORD, max(words, default=0)))


def _widths(
    headings: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int], ranks: Sequence[int]
) -> tuple[list[int], list[int]]:
    """What each column needs at least, and to be whole."""
    cells = [[row[k] for row in rows] for k in range(len(headings))]
    whole = [max(map(_wide, (heading, *cells[k]))) for k, heading in enumerate(headings)]
    return [_least(headings[k], cells[k], not ranks[k]) if k in words else wide for k, wide in enumerate(whole)], whole


def _shared(least: Sequence[int], whole: Sequence[int], room: int) -> list[int]:
    """The widths of columns in a room that holds the least of each: the narrowest that is not whole gets what is left over."""
    widths = list(least)
    for _ in range(room - sum(widths) - _GAP * (len(widths) - 1)):
        narrow = min((k for k in range(len(widths)) if widths[k] < whole[k]), key=widths.__getitem__, default=None)
        if narrow is None:
            break
        widths[narrow] += 1
    return widths


def _kept(needs: Sequence[int], empty: Sequence[bool], ranks: Sequence[int], room: int) -> list[int]:
    """The numbers of the columns that there is room for, by what each needs and whether it is empty."""
    kept = list(range(len(needs)))
    while len(kept) > 1 and sum(needs[k] for k in kept) + _GAP * (len(kept) - 1) > room:
        worst = max((k for k in kept if ranks[k]), key=lambda k: (empty[k], ranks[k], k), default=None)
        if worst is None:
            break
        kept.remove(worst)
    return kept


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
    """A function to report what is being done to, and the share that is done: of a search or of tuning the share of its limit.

    On a terminal every phase is a line on stderr with its time, which goes when all is done. With `-v` a line for each stays, also
    where there is no terminal; with `-q` nothing is shown.
    """
    if talk() is Talk.VERBOSE:
        with _timed() as report:
            yield report
    elif talk() is Talk.USUAL and sys.stderr.isatty():
        with _drawn() as report:
            yield report
    else:
        yield lambda what, share: None


@contextmanager
def _timed() -> Iterator[Progress]:
    """Phases with their times, a line for each that has ended."""
    phase, begin = "", time.perf_counter()

    def ended(after: str) -> None:
        nonlocal phase, begin
        now = time.perf_counter()
        if phase:
            sys.stderr.write(f"fusewise: {phase}: {(now - begin) * 1e3:.1f} ms\n")
        phase, begin = after, now

    def report(what: str, share: float) -> None:
        if what.partition(": ")[0] != phase:
            ended(what.partition(": ")[0])

    try:
        yield report
    finally:
        ended("")


@contextmanager
def _drawn() -> Iterator[Progress]:
    """Phases as lines with a bar, the share and the time; what is behind a colon is a detail of the phase."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(20), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: list[tuple[str, TaskID]] = []

        def report(what: str, share: float) -> None:
            phase = what.partition(": ")[0]
            if not tasks or tasks[-1][0] != phase:
                if tasks:
                    bar.update(tasks[-1][1], completed=1.0)
                    bar.stop_task(tasks[-1][1])
                tasks.append((phase, bar.add_task(what, total=1.0)))
                for _, old in tasks[:-_PHASES]:
                    bar.update(old, visible=False)
            bar.update(tasks[-1][1], description=what, completed=share)

        yield report
