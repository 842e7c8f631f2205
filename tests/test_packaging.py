"""What is said of the package to those who install it. `./dev package` builds it and looks at the result."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import fusewise

ROOT = Path(__file__).parents[1]
SAID = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SAID["project"]


def on_an_index(text: str) -> str:
    """A README as the metadata have it."""
    for rule in SAID["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    return text


def test_the_version_stands_in_one_place() -> None:
    assert "version" in PROJECT["dynamic"] and "version" not in PROJECT
    source = (ROOT / SAID["tool"]["hatch"]["version"]["path"]).read_text()
    assert re.findall(r'^VERSION = "(.+)"$', source, re.MULTILINE) == [fusewise.__version__]
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", fusewise.__version__)


@pytest.mark.parametrize(
    "text, shown",
    [
        ("see [the page](docs/page.md), [it](#here)", "see the page, it"),
        (
            "[outside](https://example.org/x) and [mail](mailto:a@b.c)",
            "[outside](https://example.org/x) and [mail](mailto:a@b.c)",
        ),
        ("f[0](x) [a]", "f0 [a]"),
    ],
)
def test_links_within_the_repository_are_words_on_an_index(text: str, shown: str) -> None:
    assert on_an_index(text) == shown


def test_the_readme_on_an_index() -> None:
    whole = (ROOT / "README.md").read_text()
    shown = on_an_index(whole)
    links = re.findall(r"\]\(([^)\s]+)\)", shown)
    assert all(re.match(r"[a-z]+:", link) for link in links), links
    assert "docs/security.md" in shown and len(shown) > len(whole) * 0.8


def test_versions_of_python() -> None:
    oldest = PROJECT["requires-python"].removeprefix(">=")
    assert SAID["tool"]["mypy"]["python_version"] == oldest
    assert f"Programming Language :: Python :: {oldest}" in PROJECT["classifiers"]


def test_verbs_of_dev() -> None:
    """All that the script can do are named by its help, and the core that it tests is there."""
    script = (ROOT / "dev").read_text()
    verbs = re.findall(r"^([a-z]+)\)$", script, re.MULTILINE)
    told = subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True, check=True).stdout
    assert {"test", "package", "docs", "pythons"} <= set(verbs)
    assert all(f"./dev {verb}" in told for verb in verbs)
    (core,) = re.findall(r'^core="(.+)"$', script, re.MULTILINE)
    assert all((ROOT / path).exists() for path in core.split())
    assert all(
        f"./dev {verb}" in (ROOT / ".ci" / "run").read_text()
        for verb in ("test", "lint", "types", "package", "docs", "pythons")
    )
