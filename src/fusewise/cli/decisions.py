"""Decisions on the terminal and in files: as they are made with `-v`, and all of them with `--decisions`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
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
    trace = (_ToldTrace if verbose else Trace)(disabled=frozenset(disabled))
    yield trace
    if path is not None:
        from fusewise.files import write_text

        write_text(path, "".join(json.dumps(asdict(event)) + "\n" for event in trace))
        note(f"wrote {path} ({len(trace.events)} decisions)")


@dataclass
class _ToldTrace(Trace):
    """A trace that tells every decision when it is made."""

    def add(
        self,
        kind: str,
        what: str,
        where: tuple[str, ...] = (),
        reason: str = "",
        *,
        before: float | None = None,
        after: float | None = None,
        applied: bool = True,
    ) -> None:
        super().add(kind, what, where, reason, before=before, after=after, applied=applied)
        self._tell(1)

    def allows(
        self,
        kind: str,
        what: str,
        where: tuple[str, ...] = (),
        reason: str = "",
        *,
        before: float | None = None,
        after: float | None = None,
    ) -> bool:
        answer = super().allows(kind, what, where, reason, before=before, after=after)
        self._tell(1)
        return answer

    def adopt(self, trial: Trace) -> None:
        super().adopt(trial)
        self._tell(len(trial.events))

    def _tell(self, count: int) -> None:
        for event in self.events[len(self.events) - count :]:
            sys.stderr.write(f"fusewise: {told(event)}\n")
