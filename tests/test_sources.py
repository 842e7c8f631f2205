"""The page on the sources: every row has a verdict, and what it names is there."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from typer.main import get_command

from fusewise.cli.app import app

ROOT = Path(__file__).parents[1]
VERDICTS = ("equal", "better", "differs", "not here")
WHAT, PRINTED, HERE, VERDICT, WHERE, SHOWN = range(6)


def rows_of(text: str) -> list[list[str]]:
    """The cells of every row that has all six."""
    found = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.splitlines()
        if line.startswith("| ")
    ]
    return [row for row in found if len(row) == 6 and row[WHAT] != "what"]


def in_code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def missing(shown: str) -> str:
    """What is wrong with a command or a test that shows something; empty when it is there."""
    words = shlex.split(shown)
    options = [word for word in words if word.startswith("-") and word != "-m"]
    if words[0] == "fusewise":
        command = getattr(get_command(app), "commands", {}).get(words[1])
        if command is None:
            return f"no verb {words[1]}"
        known = {option: parameter for parameter in command.params for option in parameter.opts}
        alone = [a for a, b in pairwise([*words, "-"]) if a in known and not known[a].is_flag and b.startswith("-")]
        unknown = [option for option in options if option not in known]
        return "; ".join(
            [*(f"{words[1]} has no {each}" for each in unknown), *(f"{each} asks for more" for each in alone)]
        )
    if words[:2] == ["python", "-m"]:
        name = ("src/" if words[2].startswith("fusewise.") else "") + words[2].replace(".", "/")
        files = [ROOT / f"{name}.py"] if (ROOT / f"{name}.py").is_file() else sorted((ROOT / name).glob("*.py"))
        source = "".join(file.name + file.read_text() for file in files)
        return next((f"{name} has no {word}" for word in (*options, "__main__") if word not in source), "")
    path, _, test = shown.partition("::")
    there = (ROOT / path).is_file() and (not test or f"def {test}(" in (ROOT / path).read_text())
    return "" if there else f"no test {shown}"


ROWS = rows_of((ROOT / "docs" / "sources.md").read_text())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[WHAT][:60])
def test_a_row_has_a_verdict_and_names_what_is_there(row: list[str]) -> None:
    assert row[VERDICT].startswith(VERDICTS), row[VERDICT]
    assert row[VERDICT] == "equal" or row[VERDICT] == "better" or row[HERE] or ":" in row[VERDICT], (
        "differences have reasons"
    )
    for path in in_code(row[WHERE]):
        assert (ROOT / "src/fusewise" / path).exists() or (ROOT / path).exists(), path
    assert in_code(row[WHERE]) and in_code(row[SHOWN])
    assert not [wrong for wrong in map(missing, in_code(row[SHOWN])) if wrong]


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / "docs" / "sources.md").read_text()):
        assert (ROOT / "docs" / target).is_file(), target


def test_all_four_systems_have_their_rows() -> None:
    assert len(ROWS) > 70
    assert len({row[WHAT] for row in ROWS}) > len(ROWS) - 5


@pytest.mark.parametrize(
    "shown",
    [
        "fusewise plan MODEL --never-an-option",
        "fusewise nosuchverb",
        "fusewise inspect MODEL --regions",
        "python -m benchmarks.layer_fusion --never-an-option",
        "python -m benchmarks.none_such",
        "tests/test_sources.py::test_of_nothing",
    ],
)
def test_what_is_not_there_is_found(shown: str) -> None:
    assert missing(shown)
