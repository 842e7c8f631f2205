"""A report document from its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fusewise.errors import InvalidModel, UsageError
from fusewise.reporting.document.schema import SCHEMA, SCHEMA_VERSION

__all__ = ["read_document"]


def read_document(path: Path) -> dict[str, Any]:
    """The document of a file. `UsageError` when it cannot be read, `InvalidModel` when it is no report, or one of another
    version."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidModel(f"{path} is not a report: {error}") from None
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema != SCHEMA:
        raise InvalidModel(f"{path} is not a report: its schema is {schema!r}, not {SCHEMA!r}")
    if found.get("version") != SCHEMA_VERSION:
        raise InvalidModel(
            f"{path} is a report of version {found.get('version')!r}, and this program reads version {SCHEMA_VERSION}:"
            " make it again"
        )
    checked: dict[str, Any] = found
    return checked
