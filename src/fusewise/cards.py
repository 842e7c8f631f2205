"""How what people hold shows itself: a few lines at a prompt, a small table in a notebook.

A class says what it has as a `Card`; `carded` makes `__repr__` and `_repr_html_` of that. Names come from files that anybody may
have written: on a terminal they are one line without control characters, in HTML they are escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from fusewise.records import record

__all__ = ["Card", "carded", "counted", "listed", "one_line"]

_T = TypeVar("_T")

_WIDEST, _MOST_ROWS, _MOST_LISTED, _LONGEST_NAME = 118, 4, 4, 60


@record(frozen=True)
class Card:
    """A title, and rows of a word and what there is to say of it. As text it has at most five lines: the title and four rows."""

    title: str
    rows: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """Lines of at most 118 characters."""
        rows = self.rows[:_MOST_ROWS]
        width = max((len(word) for word, _ in rows), default=0)
        lines = [
            one_line(self.title, _WIDEST),
            *(one_line(f"{word:{width}}  {said}", _WIDEST - 2) for word, said in rows),
        ]
        return "\n  ".join(lines)

    @property
    def html(self) -> str:
        """A table with the title as its caption."""
        from html import escape

        rows = "".join(
            f'<tr><th style="text-align:left">{escape(word)}</th><td style="text-align:left">{escape(said)}</td></tr>'
            for word, said in self.rows
        )
        caption = f'<caption style="text-align:left">{escape(one_line(self.title, 4 * _WIDEST))}</caption>'
        return f"<table>{caption}<tbody>{rows}</tbody></table>"


def carded(card: Callable[[Any], Card]) -> Callable[[type[_T]], type[_T]]:
    """A decorator: the class is shown as its `card`. Stands next to the class, below what makes it a dataclass; a `__repr__` that
    the class has stays. What is not whole yet, or no longer, is shown as any object is."""

    def show(self: Any) -> str:
        try:
            return card(self).text
        except AttributeError:
            return object.__repr__(self)

    def show_html(self: Any) -> str:
        return card(self).html

    def with_card(plain: type[_T]) -> type[_T]:
        for name, method in {"__repr__": show, "_repr_html_": show_html}.items():
            if name not in plain.__dict__:
                setattr(plain, name, method)
        return plain

    return with_card


def one_line(text: object, longest: int = _LONGEST_NAME) -> str:
    """A text without line ends and control characters, which are written as escapes, cut where it is longer."""
    whole = str(text)
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in whole[: longest + 1])
    return shown if len(shown) <= longest else shown[: longest - 3] + "..."


def listed(parts: Iterable[object], most: int = _MOST_LISTED, separator: str = ", ") -> str:
    """The first few, and how many more there are; `none` where there are none. Parts with commas in them want another separator."""
    every = list(parts)
    left = len(every) - most
    shown = separator.join(map(one_line, every[:most]))
    return f"{shown} and {left:,} more" if left > 0 else shown or "none"


def counted(counts: Mapping[str, int], most: int = 6) -> str:
    """How often each is there, the most frequent first."""
    order = sorted(counts, key=lambda name: (-counts[name], name))
    return listed((f"{counts[name]:,} {one_line(name)}" for name in order), most)
