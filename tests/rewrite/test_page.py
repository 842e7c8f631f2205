"""The page of rules is that of the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fusewise.rewrite.page import page, spellings
from fusewise.rewrite.pattern import pattern_of
from fusewise.rewrite.rules.table import ALGEBRA

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_in_the_documentation_is_up_to_date() -> None:
    """Written by `python -m fusewise.rewrite.page > docs/rules.md`."""
    assert (DOCS / "rules.md").read_text() == page()


def test_every_rule_is_on_the_page() -> None:
    text = page()
    assert all(f"`{rule.name}`" in text for rule in ALGEBRA)


@pytest.mark.parametrize(
    "function, count",
    [
        (lambda g, a, b: a * b, 1),  # b * a is the same with other names
        (lambda g, a: a * a, 1),
        (lambda g, a: a + 1, 2),
        (lambda g, a, b: a - b, 1),
        (lambda g, a, b: a + a * b, 4),
        (lambda g, a, b, c: a * b + a * c, 4),
        (lambda g, a, b, c: a * (b * c), 2),
    ],
)
def test_ways_to_write_a_pattern(function: Any, count: int) -> None:
    assert spellings(pattern_of(function)) == count
