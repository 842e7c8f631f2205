"""Every zoo model here and in other runtimes: the table on the README's first screen.

    python -m benchmarks.zoo [NAME ...] [--vs onnxruntime,openvino] [--threads 2] [--batch 1] [--no-weigh] [--json FILE]
    python -m benchmarks.zoo --table FILE     draw the table of an earlier run

Each model is measured as `fusewise bench` does it; the file holds one result a model beside the machine's description, and
is rewritten after each model, so that a long run may be stopped. The last column is how long workers with nothing to do take
to meet, before the model and behind it: when it changes, the machine did (`benchmarking.limits.meeting_ns`). Run it from the root
of the repository with the `bench` extra installed, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from fusewise import api
from fusewise.benchmarking.batch import batched
from fusewise.benchmarking.limits import meeting_ns
from fusewise.benchmarking.timing import TimingBudget
from fusewise.errors import FusewiseError
from fusewise.runtime.host import host_target, worker_count
from fusewise.zoo.catalogue import MODELS


def machine(threads: int | None, note: str = "") -> dict[str, Any]:
    """What was measured on, when, and with which versions; `note` says what else there is to say of it."""
    target = host_target()
    packages = ("fusewise", "llvmlite", "numpy", "onnx", "onnxruntime", "openvino")
    return {
        "processor": _processor(),
        "cpu": target.cpu,
        "architecture": platform.machine(),
        "vector_bits": target.vector_bits,
        "cores": os.cpu_count(),
        "threads": worker_count(threads),
        "system": platform.system(),
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {name: _version(name) for name in packages},
        **({"note": note} if note else {}),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def measured(
    name: str,
    peers: tuple[str, ...],
    threads: int | None,
    budget: TimingBudget,
    batch: int | None = None,
    weigh: bool = True,
) -> dict[str, Any]:
    """The result for one model; an error is a result too."""
    try:
        model, options = f"{api.ZOO}{name}", api.Options(threads=threads)
        subject = model if batch is None else batched(model, batch)[0]
        workers = worker_count(threads)
        before = meeting_ns(workers)
        found = api.bench(subject, options, against=peers, budget=budget, weigh=weigh)
        del found["machine"], found["made"]  # the file says it once
        found |= {"model": model, "batch": batch or 1, "meeting_ns": [before, meeting_ns(workers)]}
    except FusewiseError as error:
        return {"model": f"{api.ZOO}{name}", "error": str(error)}
    return found


def table(results: list[dict[str, Any]]) -> str:
    """A Markdown table: one row a model, medians in milliseconds."""
    peers = list(dict.fromkeys(name for r in results for name in r.get("runtimes", {}) if name != "fusewise"))
    lines = [
        f"| model | Fusewise ms | {' | '.join(f'{name} ms' for name in peers)} | ratio | largest difference | ns to meet |",
        f"| --- | ---: | {' | '.join('---:' for _ in peers)} | ---: | ---: | ---: |",
    ]
    for r in results:
        name = r["model"].removeprefix(api.ZOO)
        if "error" in r:
            lines.append(f"| {name} | {r['error']} | {' | '.join('' for _ in peers)} | | | |")
            continue
        cells = [_ms(r["runtimes"].get(peer, {})) for peer in ("fusewise", *peers)]
        ratio = "" if r["ratio"] is None else f"{r['ratio']:.2f}"
        error = "" if r["max_rel_error"] is None else f"{r['max_rel_error']:.1e}"
        met = " to ".join(f"{value:.0f}" for value in r.get("meeting_ns", ()))
        lines.append(f"| {name} | {' | '.join(cells)} | {ratio} | {error} | {met} |")
    return "\n".join(lines)


def _ms(row: dict[str, Any]) -> str:
    return f"{row['p50_ms']:.2f}" if "p50_ms" in row else "-"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure zoo models against other runtimes.")
    parser.add_argument("names", nargs="*", help="zoo models (default: all)")
    parser.add_argument("--vs", default="onnxruntime,openvino")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--batch", type=int, help="samples in each input (default: 1, as the zoo builds it)")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--no-weigh", dest="weigh", action="store_false", help="leave out load times and memory")
    parser.add_argument("--json", type=Path, help="where to keep the results")
    parser.add_argument(
        "--note", default="", help="what else the file is to say of the machine, such as what it does beside"
    )
    parser.add_argument("--table", type=Path, help="draw the table of this file and measure nothing")
    given = parser.parse_args()
    if given.table:
        print(table(json.loads(given.table.read_text())["results"]))
        return
    peers = tuple(name for name in given.vs.split(",") if name)
    budget = TimingBudget(runs=given.runs, seconds=given.seconds)
    results: list[dict[str, Any]] = []
    for name in given.names or [model.name for model in MODELS]:
        results.append(measured(name, peers, given.threads, budget, given.batch, given.weigh))
        print(table(results[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
        if given.json:
            given.json.write_text(
                json.dumps({"machine": machine(given.threads, given.note), "results": results}, indent=2) + "\n"
            )
    print(table(results))


if __name__ == "__main__":
    main()
