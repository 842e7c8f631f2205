"""The tour of the documentation: every block of code runs, and prints what stands behind it.

`python -m tests.test_tour` writes what blocks print now into the page.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "tour.md"
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def renewed(page: str) -> str:
    """The page with what its blocks print, which are run in order and share their names."""
    names: dict[str, Any] = {"__name__": "tour"}

    def run(block: re.Match[str]) -> str:
        printed = io.StringIO()
        above = "\n" * page.count("\n", 0, block.start("code"))
        with redirect_stdout(printed):
            exec(compile(above + block["code"], str(PAGE), "exec"), names)
        text = printed.getvalue().rstrip()
        shown = f"\n```text\n{text}\n```\n" if text else ""
        return f"```python\n{block['code']}```\n{shown}"

    return BLOCK.sub(run, page)


def test_blocks_print_what_the_page_shows() -> None:
    page = PAGE.read_text()
    assert len(BLOCK.findall(page)) >= 8
    assert renewed(page) == page, "write the page again: python -m tests.test_tour"


def test_a_page_that_shows_something_else_is_noticed() -> None:
    page = "```python\nx = 1\n```\n\nText.\n\n```python\nprint(x + 1)\n```\n\n```text\n3\n```\n"
    assert renewed(page) == page.replace("\n3\n", "\n2\n")


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
