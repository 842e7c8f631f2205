"""Every page that is generated, with the files that it shows, by its place in the site."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.page import drawing, kept
from benchmarks.page import page as benchmarks_page

from documentation.links import MOVED, relinked
from documentation.reference import REFERENCE, json_output, report_document
from documentation.runs import Made, report_pages

__all__ = ["generated_pages"]

ROOT = Path(__file__).parents[1]

DRAWING = "pictures/benchmarks.svg"

EXAMPLES = """# Examples

Programs to begin with; each says at its top what it does and how it is called.

"""


def generated_pages(runs: Sequence[Made] | None = None) -> Iterator[tuple[str, str]]:
    """Place in the site, and content. `runs` is what verbs wrote when they were run for the site, None without."""
    for source, place in MOVED.items():
        text = (ROOT / source).read_text()
        yield place, relinked(text, source, place) if source.endswith(".md") else f"# Licence\n\n```text\n{text}```\n"
    yield "glossary.md", glossary()
    yield from examples()
    results = kept()
    yield "benchmarks.md", benchmarks_page(results, DRAWING)
    if results:
        yield DRAWING, drawing(results)
    if runs:
        yield from report_pages(runs).items()
    yield "reference/report-document.schema.json", report_document.schema_text()
    for place, _, page in REFERENCE:
        yield place, json_output.page(runs is not None) if page is json_output.page else page()


def glossary() -> str:
    """The glossary of the page of the architecture, by itself."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    return f"# Glossary\n{text.partition('## Glossary')[2].partition(chr(10) + '## ')[0]}"


def examples() -> Iterator[tuple[str, str]]:
    """A page for each example: what it says of itself, and the program."""
    rows = []
    for path in sorted((ROOT / "examples").glob("*.py")):
        text = path.read_text()
        title = text.partition('"""')[2].partition("\n")[0].strip().rstrip('."')
        rows.append(f"- [{path.name}]({path.stem}.md): {title}.")
        yield f"examples/{path.stem}.md", f"# {path.name}\n\n```python\n{text}```\n"
    yield "examples/index.md", EXAMPLES + "\n".join(rows) + "\n"
