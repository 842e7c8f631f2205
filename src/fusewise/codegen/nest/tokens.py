"""The printed form of `nest.text` as tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeVar

from fusewise.codegen.nest.text import HEXADECIMAL

__all__ = ["Tokens"]

_TOKEN = re.compile(
    rf"""[ ]*(?:
      (?P<string>"(?:[^"\\]|\\.)*")
    | \#(?P<digest>\w+)
    | (?P<name>[%@][\w.$-]+)
    | (?P<vector><\d+\ x\ \w+>)
    | (?P<number>-?(?:{HEXADECIMAL}|\d+(?:\.\d+)?(?:e[-+]?\d+)?|inf\b|nan\b))
    | (?P<word>[A-Za-z_][\w.]*)
    | (?P<mark>->|\.\.|[()\[\]{{}}=,:\n])
    )""",
    re.VERBOSE | re.ASCII,
)

T = TypeVar("T")


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        kind = None if match is None else match.lastgroup
        if match is None or kind is None:
            found.append(("unreadable", text[position : position + 10]))
            break
        found.append((kind, match[kind]))
        position = match.end()
    return [*found, ("mark", "\n"), ("end", "")]


class Tokens:
    """The tokens of a text, and where the reading stands in them."""

    def __init__(self, text: str) -> None:
        self._list = _tokens(text)
        self._at = 0

    @property
    def line(self) -> int:
        """The number of the line where the reading stands."""
        return 1 + sum(text == "\n" for _, text in self._list[: self._at])

    def _next(self, *kinds: str) -> str:
        """The text of the next token, which is of one of these kinds."""
        kind, text = self._list[self._at]
        if kind not in kinds:
            raise ValueError(f"expected a {' or '.join(kinds)}, found {text!r}")
        self._at += 1
        return text

    def _meets(self, *texts: str) -> bool:
        """Step over these tokens if they come next."""
        for k, text in enumerate(texts):
            if self._list[min(self._at + k, len(self._list) - 1)][1] != text:
                return False
        self._at += len(texts)
        return True

    def _expect(self, *texts: str) -> None:
        for text in texts:
            if not self._meets(text):
                raise ValueError(f"expected {text!r}, found {self._list[self._at][1]!r}")

    def _is(self, *texts: str) -> bool:
        return self._list[self._at][1] in texts

    def _kind(self) -> str:
        return self._list[self._at][0]

    def _several(self, one: Callable[[], T]) -> tuple[T, ...]:
        found = [one()]
        while self._meets(","):
            found.append(one())
        return tuple(found)

    def _listed(self, one: Callable[[], T]) -> tuple[T, ...]:
        """Between parentheses, perhaps none."""
        self._expect("(")
        found = () if self._is(")") else self._several(one)
        self._expect(")")
        return found

    def _word(self) -> str:
        is_string = self._kind() == "string"
        text = self._next("word", "string")
        return str(json.loads(text)) if is_string else text

    def _int(self) -> int:
        return int(self._next("number"))

    def _after(self, word: str) -> int:
        """The number behind a word."""
        self._expect(word)
        return self._int()

    def _type(self) -> str:
        return self._next("word", "vector")
