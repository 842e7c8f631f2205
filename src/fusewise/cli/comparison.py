"""`fusewise report A.json B.json`: two reports of one model beside each other, on the terminal and as a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusewise.errors import UsageError

__all__ = ["compared_files"]

_SHOWN = 12
"""Groups that are listed."""


def compared_files(paths: tuple[str, str], *, force: bool) -> dict[str, Any]:
    """The document of the comparison of two reports in .json files; what differs goes to standard output.

    `UsageError` for files that are no such reports, and for reports of two models unless forced.
    """
    from fusewise.reporting.document.comparison import comparison_document, require_same_model
    from fusewise.reporting.report import opened_report

    for path in paths:
        if not path.endswith(".json"):
            raise UsageError(f"two reports are compared that were written as .json, and {path!r} is none")
    first, second = (opened_report(path).document for path in paths)
    require_same_model(first, second, paths, force=force)
    document = comparison_document(first, second)
    _show(document["comparison"], paths)
    return document


def _show(found: Mapping[str, Any], paths: tuple[str, str]) -> None:
    from fusewise.cli.show import facts, sentence, table
    from fusewise.reporting.document.comparison import figure_rows

    table(("figure", "first", "second", "second to first"), figure_rows(found), ranks=(0, 1, 2, 3))
    timed = [row for row in found["groups"] if row["first"] is not None and row["second"] is not None]
    if timed:
        cells = [
            (
                row["title"],
                ", ".join(row["written"][:2]),
                f"{row['first']:.3f}",
                f"{row['second']:.3f}",
                "" if row["ratio"] is None else f"{row['ratio']:.3f}",
                _differs(row),
            )
            for row in timed[:_SHOWN]
        ]
        headings = ("group", "nodes", "first ms", "second ms", "ratio", "")
        table(headings, cells, title="groups whose time changed most", words=(0, 1, 5), ranks=(0, 3, 1, 1, 1, 2))
    changed = sum(row["regrouped"] or row["another_way"] for row in found["groups"])
    first, second = (found["decisions"][name]["count"] for name in ("first", "second"))
    both = found["decisions"]["both"]
    differences = [(row["what"], f"{row['first']} and {row['second']}") for row in found["differences"]]
    facts(
        [
            ("first", paths[0]),
            ("second", paths[1]),
            *differences,
            ("groups", f"{changed} of {len(found['groups'])} were made in another way"),
            ("decisions", f"{both} the same, {first} only in the first, {second} only in the second"),
        ]
    )
    if not differences:
        sentence("both were made with the same version, machine and options")


def _differs(row: Mapping[str, Any]) -> str:
    words = [("other groups", row["regrouped"]), ("another kernel", row["another_way"])]
    return ", ".join(word for word, holds in words if holds)
