"""The page of operators is that of the tables."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import onnx
import pytest
from benchmarks.operators.domains import domains_section
from benchmarks.operators.page import CASES, line_of, option_lines, page
from benchmarks.operators.table import ROWS

PAGE = (Path(__file__).parent.parent / "docs" / "operators.md").read_text()


@pytest.mark.slow
def test_the_page_in_the_documentation_is_up_to_date() -> None:
    """Written by `python -m benchmarks.operators.page > docs/operators.md`."""
    assert page() == PAGE


def test_a_part_of_the_page_is_up_to_date() -> None:
    """Every twelfth operator by element type, and every sixth by its options."""
    newest = {(schema.domain, schema.name): schema for schema in onnx.defs.get_all_schemas()}
    lines = set(PAGE.splitlines())
    rows = {(row.domain, row.op): row for row in reversed(ROWS)}
    stale = [line for key in sorted(rows)[::12] if (line := line_of(newest[key], rows[key])) not in lines]
    by_operator = [list(cases) for _, cases in groupby(sorted(CASES, key=lambda case: case.op), lambda case: case.op)]
    few = [cases for cases in by_operator if len(cases) < 60]
    stale += [line for cases in few[::6] for line in option_lines(cases) if line not in lines]
    assert PAGE.endswith(domains_section()), "write it again: python -m benchmarks.operators.domains"
    assert not stale, "write the page again: python -m benchmarks.operators.page > docs/operators.md"
