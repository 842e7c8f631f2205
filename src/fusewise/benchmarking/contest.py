"""One model in several runtimes: same threads, same feeds, answers compared, timed in turn, weighed one by one.

Takes opened-by-name runtimes (`Peer` rows), gives plain data with stable keys, ready to print as JSON.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fusewise.benchmarking.accuracy import worst_error
from fusewise.benchmarking.meters import Footprint, footprint, save_feeds
from fusewise.benchmarking.peers import Peer, Session, Subject, opener_of
from fusewise.benchmarking.timing import Timing, TimingBudget, race
from fusewise.errors import FusewiseError
from fusewise.records import record

__all__ = ["ContestRules", "contest"]

Progress = Callable[[str, float], None]
"""Told what is being done and the finished share of it, 0 to 1."""


@record(frozen=True)
class ContestRules:
    """How runtimes are compared: on so many threads, timed within a budget.

    With `weigh` off, load time and memory are not measured. `cold` is the subject with options that keep ours from using what it
    compiled before: our row then has `compile_ms`, the time to open that, and its peak memory is the larger of the two.
    """

    threads: int
    budget: TimingBudget | None = None
    weigh: bool = True
    cold: Subject | None = None


def contest(
    ours: Peer,
    peers: Sequence[Peer],
    subject: Subject,
    feeds: Mapping[str, Any],
    rules: ContestRules,
    progress: Progress = lambda what, share: None,
) -> dict[str, Any]:
    """Compare `ours` with `peers` on one model.

    The result has `runtimes` (name to `p50_ms p90_ms min_ms runs load_ms first_run_ms peak_rss_mb max_rel_error`, or to
    `error` for a peer that cannot run the model), `best_peer` (lowest p50), `ratio` (best peer's p50 over ours) and
    `max_rel_error` (the worst over all peers). What is not measured is None.
    """
    threads = rules.threads
    sessions, failures = _opened((ours, *peers), subject, threads, progress)
    answers = _answers(sessions, feeds, ours.name, failures)
    errors = {name: worst_error(answers[ours.name], found) for name, found in answers.items() if name != ours.name}
    timings = race(
        [lambda session=session: session.run(feeds) for session in sessions.values()],  # type: ignore[misc]
        rules.budget or TimingBudget(),
        progress=lambda share: progress("timing", share),
    )
    running = dict(zip(sessions, timings, strict=True))
    sessions.clear()
    weighed = [peer for peer in (ours, *peers) if peer.name in running and rules.weigh]
    weights = _weighed(weighed, subject, threads, feeds, progress)
    runtimes: dict[str, dict[str, Any]] = {
        name: _row(timing, weights.get(name), errors.get(name)) for name, timing in running.items()
    }
    if rules.weigh and rules.cold is not None:
        fresh = _weighed([ours], rules.cold, threads, feeds, progress)[ours.name]
        row = runtimes[ours.name]
        row |= {"compile_ms": fresh.load_ms, "peak_rss_mb": max(row["peak_rss_mb"], fresh.peak_rss_mb)}
    runtimes |= {name: {"error": reason} for name, reason in failures.items()}
    rivals = {name: timing.p50_ms for name, timing in running.items() if name != ours.name}
    best = min(rivals, key=rivals.__getitem__, default=None)
    return {
        "runtimes": runtimes,
        "best_peer": best,
        "ratio": None if best is None else rivals[best] / running[ours.name].p50_ms,
        "max_rel_error": max(errors.values(), default=None),
    }


def _opened(
    rows: Sequence[Peer], subject: Subject, threads: int, progress: Progress
) -> tuple[dict[str, Session], dict[str, str]]:
    """Sessions by name, and for runtimes that refuse the model the first line of why. The first row must not fail."""
    sessions: dict[str, Session] = {}
    failures: dict[str, str] = {}
    for k, row in enumerate(rows):
        progress(f"opening in {row.name}", k / len(rows))
        try:
            sessions[row.name] = opener_of(row, subject.device)(subject, threads)
        except Exception as error:
            # A peer may raise anything; one that cannot take the model is a result, not the end of the comparison.
            if k == 0 or isinstance(error, FusewiseError):
                raise
            failures[row.name] = _first_line(error)
    return sessions, failures


def _answers(
    sessions: dict[str, Session], feeds: Mapping[str, Any], ours: str, failures: dict[str, str]
) -> dict[str, list[Any]]:
    """What each runtime gives. A peer that fails only now, as one that compiles in its first run may, moves to the failures."""
    found: dict[str, list[Any]] = {}
    for name in list(sessions):
        try:
            found[name] = _copied(sessions[name].run(feeds))
        except Exception as error:
            if name == ours:
                raise
            failures[name] = _first_line(error)
            del sessions[name]
    return found


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _weighed(
    rows: Sequence[Peer], subject: Subject, threads: int, feeds: Mapping[str, Any], progress: Progress
) -> dict[str, Footprint]:
    arrays = {name: np.asarray(value) for name, value in feeds.items()}
    found: dict[str, Footprint] = {}
    with tempfile.TemporaryDirectory(prefix="fusewise-bench-") as folder:
        path = Path(folder) / "feeds.npz"
        save_feeds(path, arrays)
        for k, row in enumerate(rows):
            progress(f"weighing {row.name}", k / len(rows))
            found[row.name] = footprint(row, subject, threads, path)
    return found


def _row(timing: Timing, weight: Footprint | None, error: float | None) -> dict[str, Any]:
    return {
        "p50_ms": timing.p50_ms,
        "p90_ms": timing.p90_ms,
        "min_ms": timing.min_ms,
        "runs": len(timing.samples_ms),
        "load_ms": None if weight is None else weight.load_ms,
        "first_run_ms": None if weight is None else weight.first_run_ms,
        "peak_rss_mb": None if weight is None else weight.peak_rss_mb,
        "max_rel_error": error,
    }


def _copied(answers: list[Any]) -> list[Any]:
    """Answers that the next run cannot overwrite."""
    return [np.array(answer) if isinstance(answer, np.ndarray) else answer for answer in answers]
