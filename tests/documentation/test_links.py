"""Links between pages, and where pages stand in the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from documentation.links import place_in_site, relinked
from documentation.navigation import EXPLANATION, navigation
from documentation.pages import generated_pages, glossary
from documentation.reference import TITLES
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]


def test_links_of_the_repository_become_links_of_the_site() -> None:
    text = "[a](docs/tour.md#x) [b](CHANGELOG.md) [c](https://d.e/f) [g](#h)\n```\n[i](docs/j.md)\n```\n[k](src/l.py)\n"
    assert relinked(text, "README.md", "index.md") == (
        "[a](tour.md#x) [b](changelog.md) [c](https://d.e/f) [g](#h)\n```\n[i](docs/j.md)\n```\n[k](src/l.py)\n"
    )
    assert relinked("[a](../../README.md) [b](../../examples/c.py)", "docs/lab/d.md", "lab/d.md") == (
        "[a](../index.md) [b](../examples/c.md)"
    )
    assert place_in_site("src/fusewise/api.py") is None


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["```", "~~~", "text", "[a](docs/b.md)", "    ```", "``` python", ""]), max_size=12))
def test_blocks_of_code_stay_as_they_are(lines: list[str]) -> None:
    """Line by line, whatever is opened and not closed: lines stay, but for a link outside of a block."""
    text = "".join(f"{line}\n" for line in lines)
    found = relinked(text, "README.md", "index.md").splitlines()
    assert len(found) == len(lines)
    assert all(after in (before, "[a](b.md)") for before, after in zip(lines, found, strict=True))


def pages_in(entries: list[Any]) -> list[str]:
    found: list[str] = []
    for entry in entries:
        inner = next(iter(entry.values())) if isinstance(entry, dict) else entry
        found += pages_in(inner) if isinstance(inner, list) else [inner]
    return found


def test_every_page_stands_in_the_site_once() -> None:
    written = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]
    made = [place for place, _ in generated_pages() if place.endswith(".md")]
    there = {*written, *made, "tutorials/1.md", "how-to/a.md", "new.md"}
    found = pages_in(navigation(there, TITLES))
    assert sorted(found) == sorted(there)
    top = {page for page in written if "/" not in page} - {"operators.md", "rules.md"}
    assert top <= {page for page, _ in EXPLANATION}, "give it a place in documentation.navigation"


def test_the_glossary_is_that_of_the_architecture() -> None:
    text = glossary()
    assert text.startswith("# Glossary\n") and "| group, partition |" in text and "\n## " not in text
