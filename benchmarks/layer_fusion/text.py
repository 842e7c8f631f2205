"""Tables in Markdown, and rows that belong together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

__all__ = ["grouped", "markdown"]

Row = TypeVar("Row")


def markdown(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table whose first column holds words."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def grouped(rows: Iterable[Row], key: Callable[[Row], Hashable]) -> Iterator[tuple[Hashable, list[Row]]]:
    """Rows with equal keys, in order of first appearance."""
    blocks: dict[Hashable, list[Row]] = {}
    for row in rows:
        blocks.setdefault(key(row), []).append(row)
    yield from blocks.items()
