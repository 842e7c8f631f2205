"""The report document: what `-o FILE.json` writes, part by part, read from its types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from documentation.markdown import code, plain, table

__all__ = ["page", "schema"]

HEAD = """# The report document

What `fusewise report MODEL -o FILE.json` and `--report FILE.json` write, and what the page is made of. Keys that do not apply are
missing or null; within a version keys are only added. [What the report shows](../report.md);
[the JSON schema as a file](report-document.schema.json).

"""


def schema() -> dict[str, Any]:
    """The JSON schema of the document."""
    import msgspec

    from fusewise.reporting.document.schema import ReportDocument

    return dict(msgspec.json.schema(ReportDocument))


def schema_text() -> str:
    """The schema as a file."""
    return json.dumps(schema(), indent=1) + "\n"


def page() -> str:
    """A section for each part: what it is, and its keys with their types."""
    parts = schema()["$defs"]
    order = ["ReportDocument", *(name for name in parts if name != "ReportDocument")]
    sections = [_section(name, parts[name]) for name in order if parts[name].get("properties")]
    return HEAD + "\n".join(sections)


def _section(name: str, part: Mapping[str, Any]) -> str:
    about = plain(" ".join(part.get("description", "").split()))
    needed = set(part.get("required", ()))
    rows = [(code(key), _kind(kind), "yes" if key in needed else "") for key, kind in part["properties"].items()]
    return f"## {name}\n\n{about}\n\n{table(('key', 'type', 'always there'), rows)}"


def _kind(kind: Mapping[str, Any]) -> str:
    """A type in words, with links to the parts that it names."""
    if "$ref" in kind:
        name = kind["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in kind:
        return " or ".join(_kind(one) for one in kind["anyOf"])
    if "enum" in kind:
        return ", ".join(code(one) for one in kind["enum"])
    if "const" in kind:
        return code(kind["const"])
    named = kind.get("type")
    if named == "array":
        items = kind.get("items")
        return f"list of {_kind(items)}" if isinstance(items, Mapping) and items else "list"
    if named == "object":
        values = kind.get("additionalProperties")
        return f"object of {_kind(values)} by name" if isinstance(values, Mapping) and values else "object"
    return {"string": "text", "boolean": "truth value", None: "any"}.get(named, str(named))
