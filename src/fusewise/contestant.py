"""This program as one of the runtimes that `bench` compares, opened by name in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fusewise.api import Model, Options, compile  # noqa: A004 - the verb of the trade
from fusewise.runtime.specialist import HOT_RUNS

if TYPE_CHECKING:
    from fusewise.benchmarking.peers import Subject

__all__ = ["CompiledSession", "open_session"]


@dataclass
class CompiledSession:
    """A compiled model as a contestant, for inputs of one size. Where that may have a program of its own, it has it after the first
    run, which is not timed."""

    model: Model
    _is_new: bool = True

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        if self._is_new:
            self._is_new = False
            self._heat(feeds)
        return self.model.run(None, feeds)

    def _heat(self, feeds: Mapping[str, Any]) -> None:
        if self.model.specialist is not None:
            for _ in range(HOT_RUNS):
                self.model.run(None, feeds)
            self.model.specialist.wait()


def open_session(subject: Subject, threads: int) -> CompiledSession:
    """Open a benchmark's subject in this program, from options as plain JSON values."""
    return CompiledSession(compile(subject.path, Options(threads=threads, **subject.options)))
