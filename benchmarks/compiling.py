"""Compile time, opening time and memory of zoo models, each measured in processes of its own.

    python -m benchmarks.compiling [NAME ...] [--rounds 5] [--threads 2] [--json FILE]

Compilation starts from a graph in memory with no cache: everything from there on counts, Fusewise's own imports too. The compiled
model is then saved and opened by a process that has nothing else in it. The file has been read before, so what opening takes beyond
reading it is shown apart. Memory is what is resident after opening and after a run, beyond weights, arena and tensors of host
steps, and beyond what the process held before it opened the model.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.zoo import machine

from fusewise.zoo.catalogue import MODELS

COMPILE = """
import json, sys, time
import fusewise
from fusewise import api
name, threads, path = sys.argv[1:]
graph = api.load(api.ZOO + name)
begin = time.perf_counter()
model = fusewise.compile(graph, threads=int(threads), cache=False)
seconds = time.perf_counter() - begin
if path:
    model.save(path)
summary = model.notes["summary"]
held = sum(summary[f"{what}_bytes"] for what in ("constant", "arena", "host"))
print(json.dumps({"compile_s": seconds, "kernels": summary["kernels"], "held_mb": held / 1e6}))
"""

OPEN = """
import json, mmap, sys, time
from pathlib import Path
from fusewise.compiled import open_compiled
threads, path = sys.argv[1:]

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE / 1e6

buffer = bytearray(1 << 20)
begin = time.perf_counter()
with open(path, "rb", buffering=0) as file:
    while file.readinto(buffer):
        pass
read = time.perf_counter() - begin
before = resident_mb()
begin = time.perf_counter()
model = open_compiled(path, threads=int(threads))
opened = time.perf_counter() - begin
loaded = resident_mb()
model.run(None, model.random_inputs())
print(json.dumps({"read_s": read, "open_s": opened, "before_mb": before, "loaded_mb": loaded, "run_mb": resident_mb()}))
"""


def answer(program: str, *arguments: str) -> dict[str, Any]:
    """What a fresh process says."""
    done = subprocess.run([sys.executable, "-c", program, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout))


def measured(name: str, rounds: int, threads: int) -> dict[str, Any]:
    """All figures of one model."""
    with tempfile.TemporaryDirectory(prefix="fusewise-compiling-") as folder:
        path = str(Path(folder) / "model.fw")
        compiled = [answer(COMPILE, name, str(threads), "" if turn else path) for turn in range(rounds)]
        opened = [answer(OPEN, str(threads), path) for _ in range(rounds)]
    return {"model": name, "compiled": compiled, "opened": opened}


def row(found: dict[str, Any]) -> str:
    """A line of the table."""
    compiled, opened = found["compiled"], found["opened"]
    seconds = sorted(one["compile_s"] for one in compiled)
    held = compiled[0]["held_mb"]
    beyond = {what: max(one[what] - one["before_mb"] for one in opened) - held for what in ("loaded_mb", "run_mb")}
    cells = (
        found["model"],
        compiled[0]["kernels"],
        f"{median(seconds):.2f} ({seconds[0]:.2f} to {seconds[-1]:.2f})",
        f"{median(one['open_s'] for one in opened):.3f}",
        f"{median(one['read_s'] for one in opened):.3f}",
        f"{held:.0f}",
        f"{beyond['loaded_mb']:+.0f}",
        f"{beyond['run_mb']:+.0f}",
    )
    return f"| {' | '.join(map(str, cells))} |"


HEAD = """\
| model | kernels | compile s | open s | read s | weights and arena MB | resident beyond, opened | run |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure compile time, opening time and memory.")
    parser.add_argument("names", nargs="*", help="zoo models (default: all)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="where to keep the results")
    given = parser.parse_args()
    results = []
    print(HEAD, flush=True)
    for name in given.names or [model.name for model in MODELS]:
        results.append(measured(name, given.rounds, given.threads))
        print(row(results[-1]), flush=True)
        if given.json:
            given.json.write_text(json.dumps({"machine": machine(given.threads), "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
