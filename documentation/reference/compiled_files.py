"""What a compiled file states, and which versions and machines open it; read from a file that is written for the page."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from documentation.markdown import code, table

__all__ = ["STATED", "manifest_of", "page"]

STATED: Mapping[str, str] = MappingProxyType(
    {
        "format": "how the bytes lie; another format is refused",
        "version": "of the program that wrote it; another version is refused",
        "target": "triple, CPU and features that the code was compiled for",
        "processor": "what the maker's system says of its CPU: where this one says the same, LLVM is not asked",
        "program": "steps, buffers, inputs and outputs, as plain data",
        "kernels": "names of the functions in the object files",
        "constants": "which section holds which weights, as packed",
        "notes": "figures of the compilation (`Model.summary`)",
        "sections": "offset and length of every section: object files and weights",
        "bytes": "length of the whole",
        "checksums": "of every section",
    }
)
"""By key of the manifest. A test holds it to a file."""


def manifest_of(path: Path) -> dict[str, Any]:
    """The manifest of a compiled file: JSON behind a magic line and eight bytes of length."""
    data = path.read_bytes()
    begin = data.index(b"\n") + 1
    length = int.from_bytes(data[begin : begin + 8], "little")
    return dict(json.loads(data[begin + 8 : begin + 8 + length]))


def written() -> dict[str, Any]:
    """The manifest of a small model that is compiled now."""
    import fusewise
    from fusewise.ops.build import GraphBuilder

    b = GraphBuilder()
    graph = b.finish(b.op("Relu", b.input("x", (4,))))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.fw"
        fusewise.compile(graph, cache=False).save(path)
        return manifest_of(path)


def page() -> str:
    """What is stated, and who opens it."""
    manifest = written()
    rows = [(code(key), STATED.get(key, "")) for key in manifest]
    return f"""# Compiled files

`fusewise compile MODEL -o model.fw` and `Model.save` write a program: weights as packed, machine code, and a manifest
of what they are. `fusewise run model.fw` and `fusewise.open_compiled` open it; nothing is compiled or packed. Running
a file that somebody else made is running their code: [sign it](../security.md).

## Who opens it

This is version {manifest["version"]}, and writes and reads format {manifest["format"]}.

| the file is | it is |
| --- | --- |
| of this version, for this CPU or one whose features this CPU has too | opened |
| of another version or format | refused, status 3: compile the model again |
| for another system, or for features that this CPU lacks | refused, status 3: compile it here |
| damaged, or not whole | refused, status 3: every byte is checked |
| not signed by the key that `--trust` names | refused |

There is no promise that a later version opens it: keep the model, and compile again.

## What it states

{table(("key", "what it is"), rows)}
A signed file also states `digests`, and ends in a signature.
"""
