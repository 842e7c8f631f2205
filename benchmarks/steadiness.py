"""What a compiled model does beside its fastest run: memory over many runs, CPU time while idle, and runs beside a busy core.

    python -m benchmarks.steadiness [NAME ...] [--runs 10000] [--rounds 3] [--threads 2] [--seconds 3] [--json FILE]

Each model is compiled in a process of its own. Memory is what is resident before and after so many runs; the CPU time of the idle
model is that of its process over some seconds after a run; the ratio is the median run while another process keeps one core busy,
over the median without it, round after round.
"""

from __future__ import annotations

import argparse
import json
import mmap
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.zoo import machine

NAMES = ("mobilenet_v3_small", "mobilenet_v2", "resnet50", "bert_base")
RUNS_WITHIN_S = 120.0
"""Slow models make fewer runs than asked for: as many as this takes."""

BUSY = "while True: pass"


def resident_mb() -> float:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE / 1e6


def run_ms(model: Any, feeds: dict[str, Any], seconds: float) -> float:
    """The median run."""
    taken = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        model.run(None, feeds)
        taken.append((time.perf_counter() - begin) * 1e3)
    return median(taken)


def beside_busy(model: Any, feeds: dict[str, Any], seconds: float) -> float:
    """The median run beside a busy core over that without, one after the other."""
    quiet = run_ms(model, feeds, seconds)
    with subprocess.Popen([sys.executable, "-c", BUSY]) as other:
        time.sleep(0.3)
        busy = run_ms(model, feeds, seconds)
        other.kill()
    return busy / quiet


def measured(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """All figures of one model, in this process."""
    import fusewise

    model = fusewise.compile(f"zoo:{name}", threads=given.threads, cache=False)
    feeds = model.random_inputs()
    once_ms = run_ms(model, feeds, given.seconds)
    runs = min(given.runs, max(1, int(RUNS_WITHIN_S / once_ms * 1e3)))
    before = resident_mb()
    for _ in range(runs):
        model.run(None, feeds)
    after, begin = resident_mb(), time.process_time()
    time.sleep(given.seconds)
    idle_ms = (time.process_time() - begin) * 1e3
    ratios = [beside_busy(model, feeds, given.seconds) for _ in range(given.rounds)]
    return {"model": name, "runs": runs, "before_mb": before, "after_mb": after, "idle_ms": idle_ms, "busy": ratios}


def row(found: dict[str, Any], seconds: float) -> str:
    """A line of the table."""
    busy = sorted(found["busy"])
    cells = (
        found["model"],
        f"{found['runs']:,}",
        f"{found['before_mb']:.1f} to {found['after_mb']:.1f}",
        f"{found['idle_ms']:.1f} in {seconds:g} s",
        f"{median(busy):.2f} ({busy[0]:.2f} to {busy[-1]:.2f})",
    )
    return f"| {' | '.join(cells)} |"


HEAD = """\
| model | runs | resident MB | idle CPU ms | beside a busy core |
| --- | ---: | ---: | ---: | ---: |"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description="Measure memory over many runs, idle CPU, and runs beside a busy core."
    )
    parser.add_argument("names", nargs="*", help=f"zoo models (default: {', '.join(NAMES)})")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", type=Path, help="where to keep the results")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given.one, given)))
        return
    results = []
    print(HEAD, flush=True)
    for name in given.names or NAMES:
        command = [sys.executable, "-m", "benchmarks.steadiness", "--one", name, f"--runs={given.runs}"]
        command += [f"--rounds={given.rounds}", f"--threads={given.threads}", f"--seconds={given.seconds}"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        results.append(json.loads(done.stdout))
        print(row(results[-1], given.seconds), flush=True)
        if given.json:
            given.json.write_text(json.dumps({"machine": machine(given.threads), "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
