"""The help of every verb: it fits 80 columns, and its examples are lines that the program understands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from fusewise.cli.app import app
from fusewise.cli.examples import EXAMPLES
from fusewise.cli.streams import words_and_talk

ROOT: Any = typer.main.get_command(app)


def verbs(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every verb by its words."""
    for name, inner in getattr(command, "commands", {}).items():
        if hasattr(inner, "commands"):
            yield from verbs(inner, (*path, name))
        else:
            yield " ".join((*path, name)), inner


VERBS = dict(verbs(ROOT))


def test_every_verb_has_examples() -> None:
    assert set(VERBS) == set(EXAMPLES)


@pytest.mark.parametrize("verb", sorted(EXAMPLES))
def test_help_fits_and_ends_with_examples(fusewise, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    ended = fusewise(*verb.split(), "--help")
    assert ended.status == 0
    lines = ended.out.splitlines()
    assert all(len(line) <= 80 for line in lines), max(lines, key=len)
    shown = [line.strip() for line in lines]
    assert all(example in shown for example in EXAMPLES[verb])


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_examples_are_understood(line: str) -> None:
    words = shlex.split(line.partition("<(")[2].rstrip(")") or line.partition(" | ")[0])
    words, _, _ = words_and_talk(words)
    assert words[0] == "fusewise"
    command, rest = ROOT, words[1:]
    while hasattr(command, "commands"):
        command, rest = command.commands[rest[0]], rest[1:]
    with command.make_context("verb", rest):  # raises for an option that there is not
        pass
