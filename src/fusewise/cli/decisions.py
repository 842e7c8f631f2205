"""Decisions on the terminal and in files: as they are made with `-v`, and all of them with `--decisions`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fusewise.cli.streams import Talk, note, talk
from fusewise.errors import UsageError
from fusewise.trace import Event, Trace

__all__ = ["DecisionsFile", "check_decisions_file", "told", "traced"]

DecisionsFile = Annotated[
    Path | None,
    typer.Option(
        "--decisions", metavar="FILE.jsonl", help="Write every decision in its order, one JSON object a line."
    ),
]


def check_decisions_file(path: Path | None) -> None:
    """`UsageError` for a name that no file of decisions has."""
    if path is not None and path.suffix != ".jsonl":
        raise UsageError(f"the name of a file of decisions must end in .jsonl, not {path.name!r}")


def told(event: Event) -> str:
    """A decision as a line: what, where, why."""
    where = f" at {', '.join(event.where)}" if event.where else ""
    refused = "" if event.applied or event.kind == "pass" else " (not done)"
    return f"{event.kind} {event.what}{where}: {event.reason}{refused}"


@contextmanager
def traced(path: Path | None, disabled: Iterable[str]) -> Iterator[Trace | None]:
    """A trace for a compilation, which is written to `path` when all went well; None where nobody asks for decisions.

    With `-v` they are told on stderr as they are made.
    """
    verbose = talk() is Talk.VERBOSE
    if path is None and not verbose:
        yield None
        return
    check_decisions_file(path)
    trace = Trace(disabled=frozenset(disabled), events=_ToldEvents() if verbose else [])
    yield trace
    if path is not None:
        from fusewise.files import write_text

        write_text(path, "".join(json.dumps(asdict(event)) + "\n" for event in trace))
        note(f"wrote {path} ({len(trace.events)} decisions)")


class _ToldEvents(list[Event]):
    """The events of a trace, each of which is told when it is added."""

    def append(self, event: Event) -> None:
        super().append(event)
        sys.stderr.write(f"fusewise: {told(event)}\n")

    def extend(self, events: Iterable[Event]) -> None:
        for event in events:
            self.append(event)
