"""What the page on TensorFlow's transformations names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fusewise.passes.published import step_names
from fusewise.rewrite.rules.table import rule_named

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in (ROOT / "docs" / "tensorflow-transformations.md").read_text().splitlines()
    if line.startswith("| ") and not re.match(r"\| (stage|pattern|optimiser|transform) \|", line)
]
NAMED = re.compile(r"`([^`]+)`")
LOCAL = {
    name
    for path in (ROOT / "src/fusewise/passes").glob("*.py")
    for name in re.findall(r'(?:LocalRule|looking_for|_takes)\(\s*"([\w-]+)"', path.read_text())
}
"""Rules of the passes by their names."""


def exists(test: str) -> bool:
    """Is there such a file, and in it such a test?"""
    path, _, name = test.partition("::")
    return (ROOT / path).is_file() and (not name or f"def {name}(" in (ROOT / path).read_text())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_everything_that_is_named_exists(row: list[str]) -> None:
    here, tests = row[-2:]
    for name in NAMED.findall(here):
        assert rule_named(name) or name in step_names() or name in LOCAL or name in ("profile", "verify"), name
    assert all(exists(test) for test in NAMED.findall(tests)), tests
    rules = [name for name in NAMED.findall(here) if rule_named(name)]
    assert not rules or tests, "a rule has a test"
    assert here.startswith("none") or NAMED.search(tests) or tests == "sweep", "what is here has a test"


def test_there_is_a_row_for_each_of_them() -> None:
    assert len(ROWS) > 120
    assert len({row[0] for row in ROWS}) == len(ROWS)


def test_a_name_that_is_not_there_is_found() -> None:
    assert not exists("tests/passes/test_fixpoint.py::test_of_nothing")
    assert rule_named("no-such-rule") is None and "no-such-rule" not in LOCAL
