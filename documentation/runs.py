"""Runs of the program whose reports the site shows: each verb once, on a small model, as a user would call it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from documentation.markdown import table

__all__ = ["RUNS", "Made", "Run", "made", "report_pages"]

LOG = logging.getLogger("mkdocs.documentation")


@dataclass(frozen=True)
class Run:
    """A line of the command line whose report is shown: `words` behind `fusewise`, and what the page tells, in a sentence."""

    name: str
    title: str
    words: Sequence[str]
    about: str


@dataclass(frozen=True)
class Made:
    """What a run gave: the page of its report, and the drawings of the charts in it, by title and text of an SVG."""

    run: Run
    page: str
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
        ("optimize", MODEL, "--search", "relaxed", "--seconds", "5", "-o", "better.onnx"),
        "The way of a search: substitution by substitution, with the graphs between.",
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
)


def made(runs: Iterable[Run] = RUNS) -> list[Made]:
    """What the runs give. `RuntimeError` for one that ends in an error."""
    found = []
    with tempfile.TemporaryDirectory(prefix="fusewise-documentation-") as folder:
        for run in runs:
            if not _is_offered(run.words[0]):
                LOG.info("%s writes no report in this version: its page is left out", run.words[0])
                continue
            found.append(_made(run, Path(folder)))
    return found


def _is_offered(verb: str) -> bool:
    """Does the verb write reports?"""
    from documentation.reference.command_line import verbs

    command = dict(verbs()).get(verb)
    return command is not None and (verb == "report" or any("--report" in one.opts for one in command.params))


def _made(run: Run, folder: Path) -> Made:
    from fusewise.reporting.page import html

    path = folder / f"{run.name}.json"
    line = [*run.words, "-o" if run.words[0] == "report" else "--report", str(path)]
    ended = subprocess.run(
        [sys.executable, "-m", "fusewise", *line],
        cwd=folder,
        env={**os.environ, "FUSEWISE_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise RuntimeError(f"fusewise {' '.join(run.words)} ended with {ended.returncode}: {ended.stderr.strip()}")
    document = json.loads(path.read_text().replace(f"{folder}/", ""))
    return Made(run, html(document))


HEAD = """# Reports

Each verb writes what it did as a page: `--report FILE.html` (`fusewise report MODEL -o FILE.html` for a model by itself). These
were made when this site was built, by the lines that stand there, in one short run each: their times say what a page shows, and
not how fast anything is.

"""

PAGE = """# {title}

{about}

```sh
{line}
```

[Open the page by itself](pages/{name}.html)

<iframe class="report" src="pages/{name}.html" title="The report of {name}"></iframe>

"""


def report_pages(runs: Sequence[Made]) -> dict[str, str]:
    """The pages about the runs, the reports themselves and the pictures, by place in the site."""
    rows = [(f"[{one.run.title}]({one.run.name}.md)", f"`{_line(one.run)}`", one.run.about) for one in runs]
    found = {"reports/index.md": HEAD + table(("report", "line", "what it tells"), rows)}
    for one in runs:
        name = one.run.name
        found[f"reports/pages/{name}.html"] = one.page
        pictures = (
            f"## {title}\n\n{about}\n\n![{title}](pictures/{name}-{number}.svg){{.drawn}}\n\n"
            for number, (title, about, _) in enumerate(one.drawings)
        )
        about = PAGE.format(title=one.run.title, about=one.run.about, line=_line(one.run), name=name)
        found[f"reports/{name}.md"] = about + "".join(pictures)
        for number, (_, _, drawing) in enumerate(one.drawings):
            found[f"reports/pictures/{name}-{number}.svg"] = drawing
    return found


def _line(run: Run) -> str:
    option = "-o" if run.words[0] == "report" else "--report"
    return f"fusewise {' '.join(run.words)} {option} {run.name}.html"
