"""Blocks of code in the pages of the documentation: which there are (found by Sybil), how each kind is run, what it must print.

    python     run; the blocks of a page share their names. A block `text` right behind shows what it prints
    console    lines behind `$` are run one by one, what stands below each is what it says; numbers of a machine may be others
    sh         lines are run one by one, and nothing is shown
    any other  a file, if it has a `title="NAME"`, also of Python; else only shown

`...` stands for anything, as in doctests. What cannot be run stands behind `<!-- skip: next "why" -->`.
`python -m tests.blocks PAGE...` writes what blocks say now into pages, where they show something else.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from pathlib import Path
from typing import Any
from unittest import SkipTest

from sybil import Document, Example, Region
from sybil.parsers.markdown import SkipParser
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

INFORMATION = re.compile(r"(?P<language>\w*)(?:[ \t]+title=\"(?P<title>[\w./-]+)\")?[ \t]*\n")
NUMBER = r"\d(?:[\d,]*\d)?(?:\.\d+)?(?:e[-+]\d+)?"
UNITS = "ms|s|us|x|[kKMG]i?B|bytes|GFLOP/s|GB/s|%"
VARYING = re.compile(rf"\d+\.\d+(?:e[-+]\d+)?|\d(?:[\d,]*\d)?(?= ?(?:{UNITS})\b)")
TIME = re.compile(rf"{NUMBER}(?= (?:ms|s|us)\b)")
TIMED = ("bench", "passes")
"""Verbs whose tables are measurements from left to right."""

VERDICT = re.compile(r"\b(?:faster|slower) than\b")
"""What a measurement comes to."""

BRIEFLY = (
    (r"(--tune|--search|--seconds) [\d.]+", r"\1 0.5"),
    (r"^fusewise bench (?!.*--seconds)", "fusewise bench --seconds 0 --runs 3 "),
)
"""What is put in the place of how long a command measures or searches: here it need only be done."""

Wrong = list[tuple[int, int, str]]
"""Of what is shown otherwise than it is: where it begins and ends in the page, and what ought to stand there."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file that it is, its text, where the text begins in the page."""

    language: str
    title: str | None
    text: str
    start: int


def parse(page: Path) -> Document:
    """A page with its blocks and marks, in order."""
    return Document.parse(str(page), _blocks, SkipParser())


def _blocks(document: Document) -> Iterator[Region]:
    for region in RawFencedCodeBlockLexer(INFORMATION)(document):
        lexemes = region.lexemes
        start = region.start + lexemes["source"].offset
        region.parsed = Block(lexemes["language"], lexemes["title"], str(lexemes["source"]), start)
        region.evaluator = _evaluate
        yield region


def run_page(page: Path, folder: Path, names: dict[str, Any]) -> Wrong:
    """Run the blocks of a page in a folder, where `names` are known; what it shows otherwise than it is.

    Raises what a block raises, and AssertionError where a command fails that the page does not show failing.
    """
    document = parse(page)
    document.namespace.update(names, __name__="page")
    state = {"wrong": [], "printed": None}
    document.namespace["__blocks__"] = state
    with chdir(folder), _importable(folder):
        for example in document.examples():
            try:
                example.evaluate()
            except SkipTest:
                state["printed"] = None
        _unshown(state, document)
    return state["wrong"]


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Modules that a page writes can be imported by its blocks, and are forgotten behind it."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]


def renewed(text: str, wrong: Wrong) -> str:
    """A page that shows what is so."""
    for start, end, right in sorted(wrong, reverse=True):
        text = text[:start] + right + text[end:]
    return text


def skips(page: Path) -> list[str | None]:
    """Of every mark of a page that the block behind it is not run: why."""
    return [example.parsed[1] for example in parse(page).examples() if isinstance(example.parsed, tuple)]


def blocks(page: Path) -> list[Block]:
    return [example.parsed for example in parse(page).examples() if isinstance(example.parsed, Block)]


def commands(block: Block) -> Iterator[tuple[str, int, int]]:
    """The commands of a block of a terminal, and where what each says begins and ends in it."""
    prompt = r"\$ " if block.language == "console" else ""
    lines = re.compile(rf"^{prompt}((?:[^\n]*\\\n)*[^\n]*)\n", re.MULTILINE)
    found = [match for match in lines.finditer(block.text) if match[1].strip()]
    for match, after in zip(found, [*found[1:], None], strict=True):
        yield match[1], match.end(), after.start() if after else len(block.text)


def _evaluate(example: Example) -> None:
    block: Block = example.parsed
    state = example.namespace["__blocks__"]
    if block.language == "text" and not block.title:
        if state["printed"] is not None and not _same(block.text, state["printed"][0]):
            state["wrong"].append((block.start, block.start + len(block.text), state["printed"][0]))
        state["printed"] = None
        return
    _unshown(state, example.document)
    if block.title:
        Path(block.title).parent.mkdir(parents=True, exist_ok=True)
        Path(block.title).write_text(block.text)
    elif block.language == "python":
        state["printed"] = (_run_python(example, block), example.end)
    elif block.language in ("console", "sh"):
        _run_commands(block, state["wrong"])


def _unshown(state: dict[str, Any], document: Document) -> None:
    """What the last block printed, and the page does not show."""
    if state["printed"] is not None and state["printed"][0]:
        printed, end = state["printed"]
        state["wrong"].append((end, end, f"\n\n```text\n{printed}```"))
    state["printed"] = None


def _run_python(example: Example, block: Block) -> str:
    printed = io.StringIO()
    above = "\n" * example.document.text.count("\n", 0, block.start)
    with redirect_stdout(printed):
        exec(compile(above + block.text, example.path, "exec", dont_inherit=True), example.namespace)
    text = printed.getvalue().rstrip()
    return f"{text}\n" if text else ""


def _run_commands(block: Block, wrong: Wrong) -> None:
    for command, start, end in commands(block):
        shown = block.text[start:end].rstrip("\n")
        status, said = run_command(command)
        fails = any(line.startswith("fusewise: ") for line in shown.splitlines())
        assert status == 0 or fails, f"{command}: status {status}: {said}"
        said = said.rstrip()
        if block.language == "console" and shown and not same_but_numbers(shown, said, all(_timed(command))):
            wrong.append((block.start + start, block.start + start + len(shown), said))


def _timed(command: str) -> tuple[bool, ...]:
    words = command.split()
    return (words[0] == "fusewise", len(words) > 1 and words[1] in TIMED)


def run_command(line: str) -> tuple[int, str]:
    """Run a line as in a terminal: its status and what it says. The program runs in this process where no shell is needed.

    It does not measure or search for longer than a moment.
    """
    for pattern, brief in BRIEFLY:
        line = re.sub(pattern, brief, line)
    words = shlex.split(line.replace("\\\n", " "), comments=True)
    if not words:
        return 0, ""
    if words[0] == "fusewise" and not re.search(r"[|<>&;*$()]", re.sub(r"'[^']*'|#.*", "", line)):
        from fusewise.cli.main import run

        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            status = run(words[1:])
        return status, said.getvalue()
    programs = Path(os.environ["FUSEWISE_CACHE_DIR"]).with_name("bin")
    programs.mkdir(parents=True, exist_ok=True)
    for name, start in (("fusewise", "-m fusewise"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {start} "$@"\n')
        (programs / name).chmod(0o755)
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": paths}
    ended = subprocess.run(
        ["sh", "-c", line],
        check=False,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    return ended.returncode, ended.stdout


def _same(shown: str, said: str) -> bool:
    """Is it the same to the letter, but for times?"""
    return OutputChecker().check_output(*(TIME.sub("#", text) for text in (shown, said)), ELLIPSIS)


def same_but_numbers(shown: str, said: str, all_numbers: bool = False) -> bool:
    """Is it the same but for widths of columns and numbers that depend on the machine (fractions, and what has a unit)?"""
    varying = re.compile(NUMBER) if all_numbers else VARYING
    pattern = re.compile(f"{varying.pattern}|{VERDICT.pattern}") if all_numbers else varying
    one, other = (re.sub("─+", "─", pattern.sub("#", text)) for text in (shown, said))
    return OutputChecker().check_output(one + "\n", other + "\n", ELLIPSIS | NORMALIZE_WHITESPACE)
