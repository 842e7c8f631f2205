"""Pipelines as files: TOML that says which passes run in which order, of which version, and how the graph is fused.

format = 1
name = "searched"
fusion = "dnnfusion"
settle = false
approximate = false
gradients = false            # true where outputs may be added; left out where not
passes = [
    "fold_constants@1",
]

[found]                      # how it was found; nothing reads this but people
model = "zoo:resnet50"
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fusewise.errors import UsageError
from fusewise.files import write_text
from fusewise.passes.published import step_named
from fusewise.select.pipeline import FUSIONS, Pipeline

__all__ = ["FORMAT", "pipeline_text", "read_pipeline", "write_pipeline"]

FORMAT = 1
_KEYS: Mapping[str, type] = {
    "format": int,
    "name": str,
    "fusion": str,
    "settle": bool,
    "approximate": bool,
    "gradients": bool,
    "passes": list,
    "found": dict,
}
_ENTRY = re.compile(r"(\w+)@(\d+)")


def pipeline_text(pipeline: Pipeline, found: Mapping[str, str | int | float] | None = None) -> str:
    """A pipeline as the text of its file; `found` says how it was found."""
    entries = [f"    {json.dumps(f'{name}@{step_named(name).version}')}," for name in pipeline.passes]
    lines = [
        "# Replay with: fusewise compile MODEL --passes THIS_FILE",
        f"format = {FORMAT}",
        f"name = {_quoted(pipeline.name)}",
        f"fusion = {_quoted(pipeline.fusion)}",
        f"settle = {json.dumps(pipeline.settle)}",
        f"approximate = {json.dumps(pipeline.approximate)}",
        *(("gradients = true",) if pipeline.gradients else ()),
        *("passes = [", *entries, "]"),
        *(("", "[found]", *(f"{key} = {_written(value)}" for key, value in found.items())) if found else ()),
    ]
    return "\n".join((*lines, ""))


def _written(value: str | int | float) -> str:
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    """A text as TOML has it: like JSON, but no surrogates, and no bare control characters."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_pipeline(path: Path, pipeline: Pipeline, found: Mapping[str, str | int | float] | None = None) -> None:
    """Write a pipeline file, whole or not at all."""
    write_text(path, pipeline_text(pipeline, found))


def read_pipeline(path: Path) -> Pipeline:
    """The pipeline in a file. `UsageError` names the line of a key that is unknown or wrong, and of a pass that is unknown or of
    another version."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the pipeline file {path}: {error}") from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    for key, value in data.items():
        wanted = _KEYS.get(key)
        if wanted is None:
            raise _fault(path, text, key, f"there is no key {key!r}; there are {', '.join(_KEYS)}")
        if type(value) is not wanted:
            raise _fault(path, text, key, f"{key} must be {_WORDS[wanted]}, not {value!r}")
    missing = [key for key in ("format", "passes") if key not in data]
    if missing:
        raise UsageError(f"{path} has no {missing[0]!r}; is it a pipeline file?")
    if data["format"] != FORMAT:
        raise _fault(path, text, "format", f"the file is of format {data['format']}, this program reads {FORMAT}")
    fusion = data.get("fusion", FUSIONS[0])
    if fusion not in FUSIONS:
        raise _fault(path, text, "fusion", f"fusion is {fusion!r}; it is one of {', '.join(FUSIONS)}")
    passes = tuple(_checked(path, text, entry) for entry in data["passes"])
    name = data.get("name", path.stem)
    settle, approximate, gradients = (data.get(key, False) for key in ("settle", "approximate", "gradients"))
    return Pipeline(name, passes, fusion, settle, approximate, f"from {path}", gradients)


_WORDS: Mapping[type, str] = {
    int: "a whole number",
    str: "a text",
    bool: "true or false",
    list: 'a list of passes such as "FoldConstant@1"',
    dict: "a table",
}


def _checked(path: Path, text: str, entry: Any) -> str:
    """The name in `NAME@VERSION`, when there is such a pass of that version."""
    written = json.dumps(entry)
    match = _ENTRY.fullmatch(entry) if isinstance(entry, str) else None
    if match is None:
        raise _fault(path, text, written, f'{written} is not of the form "NAME@VERSION"')
    name, version = match[1], int(match[2])
    try:
        step = step_named(name)
    except UsageError as error:
        raise _fault(path, text, written, str(error)) from None
    if version != step.version:
        about = f"{name} is of version {version} there and of version {step.version} here; search for the order again"
        raise _fault(path, text, written, about)
    return name


def _fault(path: Path, text: str, what: str, about: str) -> UsageError:
    """An error at the first line that holds `what`: a key at its start, or an entry of a list."""
    key = re.compile(rf"\s*\[?\s*\"?{re.escape(what)}\"?\s*[=\].]")
    for number, line in enumerate(text.splitlines(), 1):
        if key.match(line) or (what.startswith('"') and what in line):
            return UsageError(f"{path}, line {number}: {about}")
    return UsageError(f"{path}: {about}")
