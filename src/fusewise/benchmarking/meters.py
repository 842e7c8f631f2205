"""What a runtime costs before it is fast: load time and peak memory, each measured in a process of its own.

The child imports the runtime, then opens the model and runs it once; only the opening counts as loading. The peak is the
whole process, interpreter and libraries included.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fusewise.benchmarking.peers import Peer, Subject, opener_of
from fusewise.errors import FusewiseError

__all__ = ["Footprint", "footprint", "forget_peak", "load_feeds", "peak_rss_mb", "save_feeds"]


_CHILD = """
import json, sys
job = json.load(sys.stdin)
sys.path[:] = job["search"]
from fusewise.benchmarking.meters import child
child(job)
"""
"""The child looks for modules where its parent does, so it measures the same installation."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Milliseconds to open the model and to run it for the first time, and the peak resident memory, in MB = 10^6 bytes."""

    load_ms: float
    first_run_ms: float
    peak_rss_mb: float


def peak_rss_mb() -> float:
    """The highest resident memory of this process so far, in MB.

    Linux keeps it with the address space. `getrusage` would not do there: it starts from what the parent used.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    import resource

    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e6


def forget_peak() -> bool:
    """Let the peak begin again from what is resident now; False where the system cannot."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def save_feeds(path: Path, feeds: Mapping[str, np.ndarray]) -> None:
    """Write tensor feeds where a child process finds them; names are kept beside the arrays, whatever they contain."""
    arrays = {f"feed_{k}": array for k, array in enumerate(feeds.values())}
    np.savez(path, names=np.array(json.dumps(list(feeds))), **arrays)  # type: ignore[arg-type]


def load_feeds(path: Path) -> dict[str, np.ndarray]:
    """What `save_feeds` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[f"feed_{k}"] for k, name in enumerate(json.loads(str(stored["names"])))}


def footprint(peer: Peer, subject: Subject, threads: int, feeds: Path, seconds: float = 900.0) -> Footprint:
    """Measure one runtime in a fresh process. `feeds` is a file of `save_feeds`. `FusewiseError` if the child fails."""
    job = {
        "peer": dataclasses.asdict(peer),
        "path": str(subject.path),
        "inputs": subject.inputs,
        "program": None if subject.program is None else str(subject.program),
        "options": dict(subject.options),
        "threads": threads,
        "feeds": str(feeds),
        "search": sys.path,
    }
    done = subprocess.run(
        [sys.executable, "-c", _CHILD],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise FusewiseError(f"{peer.name} could not be measured in a process of its own: {reason}")
    return Footprint(**json.loads(done.stdout.strip().splitlines()[-1]))


def child(job: Mapping[str, Any]) -> None:
    """The body of the child process: reads a job, prints a `Footprint` as JSON."""
    peer = Peer(**{**job["peer"], "packages": tuple(job["peer"]["packages"])})
    program = None if job["program"] is None else Path(job["program"])
    subject = Subject(Path(job["path"]), tuple(job["inputs"]), program, job["options"])
    feeds = load_feeds(Path(job["feeds"]))
    for package in peer.packages:
        importlib.import_module(package)
    opener = opener_of(peer, subject.device)
    begin = time.perf_counter()
    session = opener(subject, job["threads"])
    opened = time.perf_counter()
    session.run(feeds)
    ran = time.perf_counter()
    found = Footprint((opened - begin) * 1e3, (ran - opened) * 1e3, peak_rss_mb())
    sys.stdout.write(json.dumps(dataclasses.asdict(found)) + "\n")
