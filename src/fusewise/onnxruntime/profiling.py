"""A record of what a session did when, as a file of trace events like ONNX Runtime's: Chrome's tracing format."""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusewise.files import write_text

if TYPE_CHECKING:
    from fusewise.runtime.executable import StepTiming

__all__ = ["Profile"]


class Profile:
    """Events of a session since it was asked for; written to a file when it ends, at the latest when nobody has it any more.

    Times are microseconds since `start_ns`, of the monotonic clock.
    """

    def __init__(self, prefix: str) -> None:
        self.start_ns = time.monotonic_ns()
        now = dt.datetime.now(dt.UTC).astimezone()
        self.path = Path(f"{prefix}_{now:%Y-%m-%d_%H-%M-%S}_{now.microsecond // 1000:03d}.json").absolute()
        self._named = f"{prefix}_{self.path.name.removeprefix(Path(prefix).name + '_')}"
        self._events: list[dict[str, Any]] = []
        self._end = weakref.finalize(self, _write, self.path, self._events)

    def add(self, name: str, begin_ns: int, end_ns: int) -> None:
        """An event of the session as a whole."""
        self._events.append(self._event("Session", name, begin_ns, end_ns, {}))

    def add_steps(self, timings: list[StepTiming]) -> None:
        """The steps of a run: kernels, and nodes on the host. `op_name` is what a step computes, `workers` how many shared it."""
        for step in timings:
            about = {
                "op_name": step.label,
                "provider": "CPUExecutionProvider",
                "node_index": str(step.step),
                "group": str(step.group),
                "native": str(step.native).lower(),
                "workers": str(len(step.shares)),
            }
            name = f"{step.label}_{step.step}_kernel_time"
            self._events.append(self._event("Node", name, step.start_ns, step.end_ns, about))

    def end(self) -> str:
        """Write the file; its name, or nothing where it has been written."""
        if not self._end.alive:
            return ""
        self._end()
        return self._named

    def _event(self, category: str, name: str, begin_ns: int, end_ns: int, about: dict[str, str]) -> dict[str, Any]:
        return {
            "cat": category,
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
            "dur": (end_ns - begin_ns) // 1000,
            "ts": (begin_ns - self.start_ns) // 1000,
            "ph": "X",
            "name": name,
            "args": about,
        }


def _write(path: Path, events: list[dict[str, Any]]) -> None:
    if not events:  # a session that was refused
        return
    write_text(path, json.dumps(events))
