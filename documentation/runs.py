"""Runs of the program whose reports the site shows: each verb once, on a small model, as a user would call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from documentation.markdown import table

__all__ = ["RUNS", "Made", "Run", "made", "report_pages"]


@dataclass(frozen=True)
class Run:
    """A line of the command line that is shown: `words` behind `fusewise`, and what it tells, in a sentence. `reports`: it writes a
    report, which is shown below what it prints."""

    name: str
    title: str
    words: Sequence[str]
    about: str
    reports: bool = True


@dataclass(frozen=True)
class Made:
    """What a run gave: what it `printed`, the page of its report, and its charts: title, what one shows, the text of an SVG."""

    run: Run
    printed: str = ""
    page: str = ""
    drawings: Sequence[tuple[str, str, str]] = ()


MODEL = "zoo:squeezenet1_1"

RUNS = (
    Run(
        "report",
        "A model",
        ("report", MODEL),
        "What was decided about a model, what became of it, and where its time goes.",
    ),
    Run(
        "compile",
        "compile",
        ("compile", MODEL),
        "The same of a model that `compile` made for use, without times of runs.",
    ),
    Run(
        "bench",
        "bench",
        ("bench", MODEL, "--vs", "onnxruntime,openvino", "--runs", "20", "--seconds", "1"),
        "Runtimes side by side, beside the report of the model that was timed.",
    ),
    Run(
        "optimize",
        "optimize",
        ("optimize", MODEL, "--search", "relaxed", "--machine", "gpu", "--seconds", "5", "-o", "better.onnx"),
        "The way of a search for what a wide machine likes: substitution by substitution, with the graphs between.",
    ),
    Run(
        "passes", "passes", ("passes", MODEL), "Which passes matter for a model, in which order, and what they changed."
    ),
    Run(
        "plan",
        "plan",
        ("plan", "zoo:resnet18", "--buffer", "256KiB"),
        "A plan for an accelerator with a small buffer: groups, what they need, and why each ends where it does.",
    ),
    Run("verify", "verify", ("verify", MODEL), "Answers beside those of another runtime, output by output."),
    Run(
        "unfused",
        "report --fusion none",
        ("report", MODEL, "--fusion", "none"),
        "The first model once more, with every operator by itself.",
    ),
    Run(
        "comparison",
        "report A.json B.json",
        ("report", "report.json", "unfused.json"),
        "The first report beside that without fusion: figures, groups whose time changed most, kernels that run another way.",
    ),
    Run(
        "tree",
        "inspect --tree",
        ("inspect", "zoo:tinybert", "--tree", "5"),
        "The data flow of a group as a tree, results first, with the mapping types on its edges, and the code that it becomes.",
        reports=False,
    ),
)


def made(runs: Iterable[Run] = RUNS) -> list[Made]:
    """What the runs give. `RuntimeError` for one that ends in an error."""
    with tempfile.TemporaryDirectory(prefix="fusewise-documentation-") as folder:
        return [_made(run, Path(folder)) for run in runs]


def _made(run: Run, folder: Path) -> Made:
    path = folder / f"{run.name}.json"
    option = "-o" if run.words[0] == "report" else "--report"
    line = [*run.words, *((option, str(path)) if run.reports else ())]
    ended = subprocess.run(
        [sys.executable, "-m", "fusewise", *line],
        cwd=folder,
        env={**os.environ, "FUSEWISE_CACHE_DIR": str(folder / "cache"), "COLUMNS": "96"},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise RuntimeError(f"fusewise {' '.join(run.words)} ended with {ended.returncode}: {ended.stderr.strip()}")
    printed = ended.stdout.replace(f"{folder}/", "")
    if not run.reports:
        return Made(run, printed)
    from fusewise.reporting.page import html

    document = json.loads(path.read_text().replace(f"{folder}/", ""))
    return Made(run, printed, html(document), _drawings(document))


def _drawings(document: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Title, what a chart shows, and its picture; of a comparison those that compare."""
    charts = document.get("charts") or []
    if document.get("comparison"):
        charts = [chart for chart in charts if chart["section"] == "comparison"]
    if not charts:
        return []
    from fusewise.reporting.charts import svg

    return [(chart["title"], chart["about"], svg(chart)) for chart in charts]


HEAD = """# Reports

Each verb writes what it did as a page: `--report FILE.html` (`fusewise report MODEL -o FILE.html` for a model by itself). These
were made when this site was built, by the lines that stand there, in one short run each: their times say what a page shows, and
not how fast anything is.

"""

REPORT = """[Open the page by itself](pages/{name}.html)

<iframe class="report" src="pages/{name}.html" title="The report of {name}"></iframe>

"""


def report_pages(runs: Sequence[Made]) -> dict[str, str]:
    """The pages about the runs, the reports themselves and the pictures, by place in the site."""
    rows = [(f"[{one.run.title}]({one.run.name}.md)", f"`{_line(one.run)}`", one.run.about) for one in runs]
    found = {"reports/index.md": HEAD + table(("report", "line", "what it tells"), rows)}
    for one in runs:
        found |= _files(one)
    return found


def _files(one: Made) -> dict[str, str]:
    """The page about a run, its report and its pictures."""
    name, run = one.run.name, one.run
    parts = [f"# {run.title}", run.about, f"```sh\n{_line(run)}\n```"]
    parts += [f"```text\n{one.printed.rstrip()}\n```"] if one.printed.strip() else []
    found = {}
    if one.page:
        parts.append(REPORT.format(name=name))
        found[f"reports/pages/{name}.html"] = one.page
    for number, (title, about, drawing) in enumerate(one.drawings):
        parts.append(f"## {title}\n\n{about}\n\n![{title}](pictures/{name}-{number}.svg){{.drawn}}")
        found[f"reports/pictures/{name}-{number}.svg"] = drawing
    return {**found, f"reports/{name}.md": "\n\n".join(parts) + "\n"}


def _line(run: Run) -> str:
    option = f" {'-o' if run.words[0] == 'report' else '--report'} {run.name}.html" if run.reports else ""
    return f"fusewise {' '.join(run.words)}{option}"
