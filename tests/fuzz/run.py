"""The long mode: many mutants and random graphs on child processes that may die, and a table of how they ended.

    python -m tests.fuzz.run --mutants 20000 --graphs 5000 [--keep FOLDER] [--from NUMBER]

Every case is compiled in the checked build and run. A child works off numbers that its parent sends; one that dies, takes longer
than the time allowed or needs more memory than it may have is replaced, and the case that it had counts as a fault. Exit status 1
when there is any.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.mutate import mutant
from tests.fuzz.seeds import seed_models

__all__ = ["Case", "Result", "run_cases"]

SECONDS = 20.0
MEMORY_BYTES = 6 << 30
_FRESH = 400
"""Cases after which a child is replaced, so that what it leaks does not add up."""


@dataclass(frozen=True)
class Case:
    """`kind` is `mutant` or `graph`."""

    kind: str
    number: int


@dataclass(frozen=True)
class Result:
    """`ending` is one of `attempt.ENDINGS`, or `signal`, `timeout`."""

    case: Case
    ending: str
    text: str
    seconds: float


class _Child:
    """A process that tries one case at a time."""

    def __init__(self) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "OMP_NUM_THREADS": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from tests.fuzz.run import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )
        self.done = 0
        self._answer(120.0)  # its imports do not count

    def attempt(self, case: Case) -> Result:
        assert self.process.stdin is not None
        begin = time.perf_counter()
        self.done += 1
        try:
            self.process.stdin.write(json.dumps([case.kind, case.number]) + "\n")
            self.process.stdin.flush()
            answer = self._answer(SECONDS)
        except OSError:
            answer = ""
        elapsed = time.perf_counter() - begin
        if answer is None:
            return Result(case, "timeout", f"no answer in {SECONDS:.0f} s", elapsed)
        if not answer:
            code = self.process.wait()
            name = signal.Signals(-code).name if code < 0 else f"status {code}"
            return Result(case, "signal", name, elapsed)
        ending, text = json.loads(answer)
        return Result(case, ending, text, elapsed)

    def _answer(self, seconds: float) -> str | None:
        """The next line; empty when the process has ended, None when it takes too long."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        return self.process.stdout.readline() if ready else None

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def run_cases(cases: Iterator[Case]) -> Iterator[Result]:
    """Try cases one after another, each in a process that may die of it."""
    child = _Child()
    try:
        for case in cases:
            result = child.attempt(case)
            yield result
            if result.ending in ("signal", "timeout") or child.done >= _FRESH:
                child.end()
                child = _Child()
    finally:
        child.end()


def serve() -> None:
    """Be a child: try what comes on standard input, a line a case, and answer on standard output."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not an answer
    from tests.fuzz.attempt import attempt_graph, attempt_mutant

    seed_models()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        kind, number = json.loads(line)
        try:
            ending, text = {"mutant": attempt_mutant, "graph": attempt_graph}[kind](number)
        except BaseException as error:
            ending, text = "wrong", f"{type(error).__name__}: {error}"
        print(json.dumps([ending, text[:400]]), file=answers, flush=True)


def main() -> int:
    """Print what went wrong as it does, and at the end how many cases ended how."""
    parser = argparse.ArgumentParser(description="Mutants and random graphs in the checked build.")
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--graphs", type=int, default=50)
    parser.add_argument("--from", dest="first", type=int, default=0, help="the number of the first case of each kind")
    parser.add_argument("--every", type=int, default=1, help="take each N-th case, so that several runs share the work")
    parser.add_argument("--keep", type=Path, help="a folder for the mutants that went wrong")
    arguments = parser.parse_args()
    cases = [Case("mutant", arguments.first + k) for k in range(0, arguments.mutants, arguments.every)]
    cases += [Case("graph", arguments.first + k) for k in range(0, arguments.graphs, arguments.every)]
    counts: dict[str, Counter[str]] = {"mutant": Counter(), "graph": Counter()}
    slowest = 0.0
    for result in run_cases(iter(cases)):
        counts[result.case.kind][result.ending] += 1
        slowest = max(slowest, result.seconds)
        if result.ending in ("ran", "refused"):
            continue
        print(f"{result.case.kind} {result.case.number}: {result.ending}: {result.text}", flush=True)
        if arguments.keep is not None and result.case.kind == "mutant":
            arguments.keep.mkdir(parents=True, exist_ok=True)
            (arguments.keep / f"{result.case.number}.onnx").write_bytes(mutant(seed_models(), result.case.number))
    for kind, found in counts.items():
        print(f"{kind}s: {found.total()}: " + ", ".join(f"{n} {ending}" for ending, n in sorted(found.items())))
    print(f"slowest: {slowest:.1f} s")
    return int(any(n for found in counts.values() for ending, n in found.items() if ending not in ("ran", "refused")))


if __name__ == "__main__":
    sys.exit(main())
