"""What the site shows of real runs."""

from __future__ import annotations

import pytest
from documentation.reference.command_line import verbs
from documentation.runs import RUNS, Made, Run, made, report_pages

WITH_REPORTS = {"report", "compile", "bench", "optimize", "passes", "plan", "verify"}


def test_every_verb_with_a_report_is_run() -> None:
    assert {run.words[0] for run in RUNS if run.reports} == WITH_REPORTS
    assert len({run.name for run in RUNS}) == len(RUNS)
    known = dict(verbs())
    for run in RUNS:
        with known[run.words[0]].make_context(
            "verb", [*run.words[1:], *(("-o", "x.json") if run.words[0] == "report" else ())]
        ):
            pass


def test_pages_of_runs() -> None:
    whole = Made(RUNS[0], "printed\n", "<p>report</p>", [("Roofline", "what it shows", "<svg/>")])
    found = report_pages([whole, Made(Run("tree", "Tree", ("inspect", "m"), "about", reports=False), "a\n└─ b\n")])
    assert sorted(found) == [
        "reports/index.md",
        "reports/pages/report.html",
        "reports/pictures/report-0.svg",
        "reports/report.md",
        "reports/tree.md",
    ]
    assert (
        "](pictures/report-0.svg)" in found["reports/report.md"]
        and 'src="pages/report.html"' in found["reports/report.md"]
    )
    assert found["reports/tree.md"] == "# Tree\n\nabout\n\n```sh\nfusewise inspect m\n```\n\n```text\na\n└─ b\n```\n"


def test_a_run_that_fails_ends_the_build() -> None:
    with pytest.raises(RuntimeError, match=r"fusewise inspect gone\.onnx ended with 2: .*gone"):
        made([Run("gone", "Gone", ("inspect", "gone.onnx"), "", reports=False)])
