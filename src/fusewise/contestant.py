"""This program as one of the runtimes that `bench` compares, opened by name in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fusewise.api import Model, Options, compile  # noqa: A004 - the verb of the trade

if TYPE_CHECKING:
    from fusewise.bench.peers import Subject

__all__ = ["CompiledSession", "open_session"]


@dataclass(frozen=True)
class CompiledSession:
    """A compiled model as a contestant."""

    model: Model

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        return self.model.run(None, feeds)


def open_session(subject: Subject, threads: int) -> CompiledSession:
    """Open a benchmark's subject in this program, from options as plain JSON values."""
    return CompiledSession(compile(subject.path, Options(threads=threads, **subject.options)))
