"""What stands where in the site: sections, and the pages of each in the order in which they are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

__all__ = ["EXPLANATION", "Entry", "navigation"]

Entry: TypeAlias = "str | dict[str, str | list[Entry]]"
"""A page, by its own heading or by a title, or a titled section."""

EXPLANATION: Sequence[tuple[str, str]] = (
    ("tour.md", "One convolution, stage by stage"),
    ("architecture.md", "Architecture"),
    ("fusion.md", "Fusion"),
    ("passes.md", "Passes that matter"),
    ("substitutions.md", "Substitution search"),
    ("kernels.md", "Kernels"),
    ("free-dimensions.md", "Free dimensions"),
    ("decoding.md", "Decoding with a growing cache"),
    ("python.md", "In Python"),
    ("pytorch.md", "PyTorch"),
    ("onnxruntime.md", "In place of ONNX Runtime"),
    ("report.md", "The report"),
    ("accuracy.md", "How answers are checked"),
    ("memory.md", "Memory and caches"),
    ("portability.md", "Other machines"),
    ("cost-models.md", "What a fusion group costs"),
    ("plan-search.md", "Searching for plans"),
    ("explanations.md", "Explanations of plans"),
    ("security.md", "Models from strangers"),
    ("tensorflow-transformations.md", "TensorFlow's transformations"),
    ("sources.md", "The sources, line by line"),
    ("release.md", "Releases"),
)
"""Pages about how and why, in reading order, by short titles."""

TUTORIALS = (
    "tutorials/replace-onnx-runtime.md",
    "tutorials/compile-a-pytorch-module.md",
    "tutorials/read-a-report.md",
    "tutorials/plan-for-a-small-buffer.md",
    "tutorials/write-a-rule-a-pass-a-kernel.md",
)
"""Those that are read first, in their order; others follow."""

ELSEWHERE = ("index.md", "changelog.md", "license.md", "glossary.md", "benchmarks.md", "operators.md", "rules.md")
"""Pages of the top folder that stand in another section, or alone."""


def navigation(pages: Iterable[str], reference: Sequence[tuple[str, str]]) -> list[Entry]:
    """The sections of the site, for the pages that there are; `reference` gives those of the reference, with titles.

    Every page stands in it: one of the top folder that no table names is an explanation. Reports stand in the order in which they
    are given, other pages of a folder in that of their names.
    """
    given = list(pages)
    there = sorted(given)

    def below(folder: str, pages: Sequence[str] = there) -> list[Entry]:
        inside = [page for page in pages if page.startswith(f"{folder}/")]
        first = [page for page in inside if page.rpartition("/")[2] in ("index.md", "README.md")]
        return [*first, *(page for page in inside if page not in first)]

    named = dict(EXPLANATION)
    others = [page for page in there if page not in TUTORIALS]
    unnamed = [page for page in there if "/" not in page and page not in named and page not in ELSEWHERE]
    explanation: list[Entry] = [{title: page} for page, title in EXPLANATION if page in there]
    sections: list[tuple[str, list[Entry]]] = [
        ("Tutorials", below("tutorials", [*(page for page in TUTORIALS if page in there), *others])),
        ("How-to", [*below("how-to"), *_section("Examples", below("examples"))]),
        ("Reference", [{title: page} for page, title in reference if page in there]),
        ("Explanation", [*explanation, *unnamed, *_section("Experiments", below("lab"))]),
        ("Reports", below("reports", given)),
    ]
    last = [("Benchmarks", "benchmarks.md"), ("Glossary", "glossary.md")]
    alone: list[Entry] = [{title: page} for title, page in last if page in there]
    about: list[Entry] = [page for page in ("changelog.md", "license.md") if page in there]
    first: list[Entry] = [{"Home": page} for page in there if page == "index.md"]
    middle = [entry for title, inside in sections for entry in _section(title, inside)]
    return [*first, *middle, *alone, *_section("Changelog", about)]


def _section(title: str, inside: list[Entry]) -> list[Entry]:
    return [{title: inside}] if inside else []
