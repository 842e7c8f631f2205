"""What verbs print under `--json`, key by key, read from runs on a small network."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from documentation.markdown import code, table
from documentation.reference.examples import network

__all__ = ["RUNS", "keys_of", "page"]

MODEL, TIMES = "small.onnx", ("--runs", "3", "--seconds", "0")

RUNS: Sequence[tuple[str, ...]] = (
    ("inspect", MODEL, "--groups"),
    ("optimize", MODEL, "-o", "better.onnx"),
    ("compile", MODEL),
    ("run", MODEL),
    ("bench", MODEL, "--vs", "onnxruntime", *TIMES),
    ("bench", MODEL, "--profile", *TIMES),
    ("verify", MODEL),
    ("passes", MODEL),
    ("plan", MODEL, "--buffer", "64KiB"),
)
"""Lines whose output is described. `--json` stands behind each."""

HEAD = """# JSON output

With `--json` a verb prints one JSON value on standard output. These are the keys that lines on a small network print;
those of a model's own names stand as the network has them, and `[]` is any item of a list. Later versions may add
keys. [The report document](report-document.md) has a schema."""

LONGEST_EXAMPLE = 40


def page(runs: bool = True) -> str:
    """A section for each line: keys, types and an example of each; without `runs`, what needs none."""
    parts = [HEAD]
    if not runs:
        return "\n".join([*parts, "Left out: this site was built without runs of the program.\n"])
    with tempfile.TemporaryDirectory(prefix="fusewise-documentation-") as folder:
        network(Path(folder) / MODEL)
        for words in RUNS:
            rows = [
                (code(key), kinds, code(example) if example else "")
                for key, kinds, example in keys_of(printed(words, Path(folder)))
            ]
            listed = table(("key", "type", "example"), rows)
            parts.append(f'## fusewise {" ".join(words)}\n\n??? note "Keys"\n\n{_indented(listed)}')
    return "\n".join(parts)


def _indented(text: str) -> str:
    return "".join(f"    {line}" for line in text.splitlines(keepends=True))


def printed(words: Sequence[str], folder: Path) -> Any:
    """What a line prints; `RuntimeError` where it ends in an error."""
    from fusewise.cli.main import run

    placed = [str(folder / word) if word.endswith(".onnx") else word for word in words]
    said, told = io.StringIO(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(told):
        status = run([*placed, "--json", "--quiet"])
    if status:
        raise RuntimeError(f"fusewise {' '.join(words)} ended with {status}: {told.getvalue()}")
    return json.loads(said.getvalue().replace(f"{folder}/", ""))


def keys_of(value: Any) -> list[tuple[str, str, str]]:
    """Every key of a value as a path, with its types and an example of it."""
    found: dict[str, tuple[dict[str, None], str]] = {}
    for path, inner in _walked(value, ""):
        kinds, example = found.get(path, ({}, ""))
        found[path] = ({**kinds, _kind(inner): None}, example or _example(inner))
    return [(path, " or ".join(kinds), example) for path, (kinds, example) in found.items()]


def _walked(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if path:
        yield path, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _walked(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for inner in value:
            if isinstance(inner, dict | list):
                yield from _walked(inner, f"{path}[]")


def _kind(value: Any) -> str:
    names = {
        dict: "object",
        list: "list",
        str: "text",
        bool: "truth value",
        int: "integer",
        float: "number",
        type(None): "null",
    }
    return names[type(value)]


def _example(value: Any) -> str:
    if value is None or isinstance(value, dict) or (isinstance(value, list) and value and not _is_plain(value[0])):
        return ""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_EXAMPLE else f"{text[: LONGEST_EXAMPLE - 1]}…"


def _is_plain(value: Any) -> bool:
    return not isinstance(value, dict | list)
