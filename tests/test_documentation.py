"""The pages of the documentation: what they link to is there, and what they name in the program exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.test_rooms import LINES, line_of

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "fusewise"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMING = [ROOT / "docs" / name for name in ("architecture.md", "kernels.md", "tour.md")]
"""Pages about the program as it is. Those of the laboratory name what there was when they were written."""

ROOMS = sorted(path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir())
NAMED = re.compile(rf"`((?:{'|'.join(map(re.escape, ROOMS))})(?:\.\w+)+)(?:\([^`]*\))?`")
FENCED = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)


def prose(path: Path) -> str:
    """A page without its blocks of code."""
    return FENCED.sub("", path.read_text())


def anchors(text: str) -> set[str]:
    """What the headings of a page are called in links, as GitHub does it."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken(path: Path, text: str) -> Iterator[str]:
    """Links of a page that lead nowhere."""
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists() or (anchor and anchor not in anchors(prose(target))):
            yield link


@cache
def names_in(path: Path) -> set[str]:
    """What a module has at its top, and the members of its classes as `Class.member`."""
    found: set[str] = set()
    top = ast.parse(path.read_text()).body
    for statement in [
        inner for each in top for inner in ([*each.body, *each.orelse] if isinstance(each, ast.If) else [each])
    ]:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement]
        for node in targets:
            name = getattr(node, "name", None) or getattr(getattr(node, "target", node), "id", None)
            found |= {name} if isinstance(name, str) else set()
        if isinstance(statement, ast.ClassDef):
            members = [getattr(m, "name", None) or getattr(getattr(m, "target", m), "id", None) for m in statement.body]
            found |= {f"{statement.name}.{member}" for member in members if isinstance(member, str)}
        if isinstance(statement, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in statement.names}
    return found


def exists(dotted: str) -> bool:
    """Is there such a module of the package, or such a name in one, or in one of a room's?"""
    words = dotted.split(".")
    for count in range(len(words), 0, -1):
        place, name = PACKAGE.joinpath(*words[:count]), ".".join(words[count:])
        modules = sorted(place.glob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
        if modules and modules[0].exists():
            return not name or any(name in names_in(module) for module in modules)
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert not list(broken(page, prose(page)))


@pytest.mark.parametrize("page", [page for page in NAMING if page.exists()], ids=lambda path: path.name)
def test_what_is_named_exists(page: Path) -> None:
    named = set(NAMED.findall(prose(page)))
    assert named
    assert not sorted(name for name in named if not exists(name))


def test_rooms_stand_in_the_order_of_their_imports() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    drawn = text.split("\n## Rooms\n")[1].split("```text\n")[1].split("```\n")[0].splitlines()
    width = re.match(r"\S+ +", drawn[0])
    assert width
    rooms = [room for line in drawn for room in line[: width.end()].split()]
    assert sorted(rooms) == sorted({room for line in LINES for room in line} - {"__main__", "__init__"})
    assert [line_of(room) for room in rooms] == sorted(line_of(room) for room in rooms)


def test_links_and_names_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Here, there\n\n[a](#here-there) [b](#nowhere) [c](page.md#here-there) [d](gone.md) [e](https://f.g)\n"
    )
    assert list(broken(page, prose(page))) == ["#nowhere", "gone.md"]
    assert (
        exists("ir.Graph")
        and exists("codegen.target.TARGETS")
        and exists("trace.Trace.allows")
        and exists("lower.task")
    )
    assert (
        not exists("ir.Gone")
        and not exists("codegen.target.GONE")
        and not exists("codegen.gone")
        and not exists("trace.Trace.gone")
    )
