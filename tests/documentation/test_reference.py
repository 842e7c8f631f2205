"""The reference has everything that the program has: names, verbs, options, statuses, variables, keys."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from documentation.markdown import code, plain, sentence, table
from documentation.reference import (
    command_line,
    compiled_files,
    environment,
    json_output,
    python,
    report_document,
    statuses,
)
from documentation.reference.decisions import page as decisions_page
from documentation.reference.kernels import page as kernels_page
from documentation.reference.machines import page as machines_page
from documentation.reference.models import page as models_page
from documentation.reference.passes import page as passes_page
from documentation.reference.presets import page as presets_page

import fusewise
from fusewise.cli import main

PACKAGE = Path(fusewise.__file__).parent
VERBS = dict(command_line.verbs())


def test_every_public_name_has_its_place() -> None:
    text = python.page()
    assert all(f"\n::: fusewise.{name}\n" in text for name in fusewise.__all__)
    named = [name for names in python.SECTIONS.values() for name in names]
    assert len(named) == len(set(named))
    assert not set(fusewise.__all__) - set(named), "give it a section in documentation.reference.python"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_and_option_is_told(verb: str) -> None:
    section = command_line.page().partition(f"\n## fusewise {verb}\n")[2].partition("\n## ")[0]
    params: list[Any] = VERBS[verb].params
    options = [name for one in params for name in one.opts if name.startswith("--") and not one.hidden]
    assert section and all(name in section for name in options)
    assert "```sh\n" in section


def test_every_error_has_a_status_that_is_told() -> None:
    found: dict[str, Any] = dict(statuses.errors())
    assert {one.exit_status for one in found.values()} | {0, main.INTERRUPTED, main.READER_LEFT} == set(
        statuses.MEANINGS
    )
    text = statuses.page()
    assert all(f"::: fusewise.errors.{name}" in text for name in found)
    assert all(f"| {status} |" in text for status in statuses.MEANINGS)


def variables_read() -> set[str]:
    """Variables of the environment that the sources read, by a literal or by a constant of the module."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        if "os.environ" not in text:
            continue
        constants = {
            target.id: one.value.value
            for one in ast.parse(text).body
            if isinstance(one, ast.Assign) and isinstance(one.value, ast.Constant)
            for target in one.targets
            if isinstance(target, ast.Name)
        }
        names = re.findall(r"os\.environ(?:\.get\(|\[)\s*([\w\"]+)", text) + re.findall(r"(\w+) in os\.environ", text)
        found |= {name.strip('"') if '"' in name else constants[name] for name in names}
    return found


def test_every_variable_and_option_is_told() -> None:
    assert variables_read() == set(environment.VARIABLES)
    text = environment.page()
    assert all(f"| `{name}` |" in text for name in fusewise.Options.__dataclass_fields__)
    assert "`--memory-limit`" in text and "`--shape`" in text


def test_the_manifest_of_a_compiled_file_is_told() -> None:
    manifest = compiled_files.written()
    assert set(manifest) == set(compiled_files.STATED)
    assert f"format {manifest['format']}" in compiled_files.page()


def test_tables_of_the_program() -> None:
    from fusewise.codegen.candidates import KERNELS
    from fusewise.decisions import names_of_decisions
    from fusewise.passes.published import step_names
    from fusewise.zoo.catalogue import MODELS

    decisions, passes, kernels = decisions_page(), passes_page(), kernels_page()
    assert all(f"`{name}`" in decisions for name in names_of_decisions())
    assert all(f"| `{name}` |" in passes for name in step_names())
    assert all(f"| {family} |" in kernels for family in KERNELS)
    assert not re.findall(r"^\| `[\w-]+` \|  \|$", kernels, re.MULTILINE), "a kernel's module does not say what it is"
    assert all(f"| `{model.name}` |" in models_page() for model in MODELS)
    assert "`edge-256k` (default)" in presets_page() and "`avx2`" in machines_page()


def test_every_part_of_the_report_document_is_told() -> None:
    text, parts = report_document.page(), report_document.schema()["$defs"]
    assert "| `stages` | list of [StagePart](#stagepart) |" in text
    for name, part in parts.items():
        assert f"\n## {name}\n\n{part.get('description', '')[:20]}" in text
        assert all(f"| `{key}` |" in text.partition(f"\n## {name}\n")[2] for key in part["properties"])


def test_keys_of_json() -> None:
    value = {"a": 1, "b": [{"c": None, "d": "x" * 99}, {"c": 2.5}], "e": {}, "f": [1, 2]}
    assert json_output.keys_of(value) == [
        ("a", "integer", "1"),
        ("b", "list", ""),
        ("b[]", "object", ""),
        ("b[].c", "null or number", "2.5"),
        ("b[].d", "text", f'"{"x" * 38}…'),
        ("e", "object", ""),
        ("f", "list", "[1, 2]"),
    ]


def test_texts_stand_in_a_table_as_they_are() -> None:
    assert table(("a", "b"), [("x|y", "z\n`u|w`")], right=(1,)) == "| a | b |\n| --- | ---: |\n| x\\|y | z `u|w` |\n"
    assert plain("<b> *x* `y_z` [1]") == "&lt;b> \\*x\\* `y_z` \\[1\\]" and plain("a ` b") == "a \\` b"
    assert code("a `b`") == "`` a `b` ``" and sentence("One thing. Another.\n\nMore.") == "One thing."
