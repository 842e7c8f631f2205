"""Links of the repository as links of the site: pages may link to the README, the changelog, the licence and examples."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator

__all__ = ["MOVED", "outside_of_code", "place_in_site", "relinked"]

MOVED = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "LICENSE": "license.md"}
"""Files of the repository's root, and the pages that show them."""

FENCE = re.compile(r"^ *(```+|~~~+)")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def place_in_site(path: str) -> str | None:
    """Where a file of the repository stands in the site, both as paths from the root; None for one that it does not show."""
    if path in MOVED:
        return MOVED[path]
    if path.startswith("examples/") and path.endswith(".py"):
        return path.removesuffix(".py") + ".md"
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def relinked(text: str, source: str, page: str) -> str:
    """The text of the file `source` of the repository for the site's page `page`; links to what the site does not have stay."""

    def moved(match: re.Match[str]) -> str:
        link, mark, anchor = match[2].partition("#")
        if not link or re.match(r"\w+:", link):
            return match[0]
        place = place_in_site(posixpath.normpath(posixpath.join(posixpath.dirname(source), link)))
        if place is None:
            return match[0]
        return f"{match[1]}{posixpath.relpath(place, posixpath.dirname(page) or '.')}{mark}{anchor}{match[3]}"

    return outside_of_code(text, lambda line: LINK.sub(moved, line))


def outside_of_code(text: str, change: Callable[[str], str]) -> str:
    """A page whose prose is changed, a stretch between blocks of code at a time; blocks stay."""
    return "".join(stretch if is_code else change(stretch) for is_code, stretch in _stretches(text))


def _stretches(text: str) -> Iterator[tuple[bool, str]]:
    """The page in stretches, each of which is a block of code or is not."""
    fence, lines = "", list[str]()
    for line in text.splitlines(keepends=True):
        mark = FENCE.match(line)
        if mark and not fence:
            yield False, "".join(lines)
            fence, lines = mark[1], [line]
        elif mark and fence and line.strip() == fence:
            yield True, "".join([*lines, line])
            fence, lines = "", []
        else:
            lines.append(line)
    yield bool(fence), "".join(lines)
