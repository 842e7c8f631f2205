"""The reference: pages that are read from the program, one module for each subject, in the order of the site."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from documentation.reference import (
    command_line,
    compiled_files,
    decisions,
    environment,
    json_output,
    kernels,
    machines,
    models,
    overview,
    passes,
    presets,
    python,
    report_document,
    statuses,
)

__all__ = ["REFERENCE", "TITLES"]

REFERENCE: Sequence[tuple[str, str, Callable[[], str]]] = (
    ("reference/index.md", "Overview", overview.page),
    ("reference/python.md", "Python", python.page),
    ("reference/command-line.md", "Command line", command_line.page),
    ("reference/statuses.md", "Errors and exit statuses", statuses.page),
    ("reference/environment.md", "Options and environment", environment.page),
    ("reference/json.md", "JSON output", json_output.page),
    ("reference/report-document.md", "The report document", report_document.page),
    ("reference/passes.md", "Passes and pipelines", passes.page),
    ("reference/kernels.md", "Kernels", kernels.page),
    ("reference/decisions.md", "Names of decisions", decisions.page),
    ("reference/models.md", "Models of the zoo", models.page),
    ("reference/machines.md", "Machines", machines.page),
    ("reference/presets.md", "Accelerators of plan", presets.page),
    ("reference/compiled-files.md", "Compiled files", compiled_files.page),
)
"""Place, title and what writes it."""

TITLES: Sequence[tuple[str, str]] = (
    *((place, title) for place, title, _ in REFERENCE[:7]),
    ("operators.md", "Operators"),
    ("rules.md", "Rewrite rules"),
    *((place, title) for place, title, _ in REFERENCE[7:]),
)
"""Every page of the reference, also those that `docs/` keeps."""
