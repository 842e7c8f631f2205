"""Whether every model gives a report, what that takes and how large it is.

    python -m benchmarks.reports [MODEL ...] [--limit 240] [--folder DIR] [--json FILE]

Each model (default: the zoo) is reported on without times in a process of its own (`fusewise report MODEL -o x.json --no-times`),
and its page written from that in another. Printed are seconds, megabytes, and what either process said beside what it wrote,
unclosed files included. The status is 1 if one failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fusewise.sources import ZOO
from fusewise.zoo.catalogue import MODELS

HEAD = "| model | JSON s | JSON MB | page s | page MB | said |\n| --- | ---: | ---: | ---: | ---: | --- |"


def ran(words: list[str], limit: float) -> tuple[float, str]:
    """The seconds that `fusewise` took, and what it said; of one that failed with its status, or that it took too long."""
    begin = time.perf_counter()
    command = [sys.executable, "-W", "always::ResourceWarning", "-m", "fusewise", *words]
    try:
        ended = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return limit, f"status 124: took more than {limit:g} s"
    told = "; ".join(line for line in ended.stderr.splitlines() if not line.startswith("fusewise: wrote "))
    return time.perf_counter() - begin, f"status {ended.returncode}: {told}" if ended.returncode else told


def reported(model: str, folder: Path, limit: float) -> dict[str, Any]:
    """What a model's report took, in seconds and bytes; without a page where there is no report."""
    stem = Path(model.removeprefix(ZOO)).stem
    found: dict[str, Any] = {"model": model}
    source = model
    for kind, options in (("json", ["--no-times"]), ("html", [])):
        path = folder / f"{stem}.{kind}"
        path.unlink(missing_ok=True)
        seconds, said = ran(["report", source, "-o", str(path), *options], limit)
        found[kind] = {"s": seconds, "bytes": path.stat().st_size if path.exists() else None, "said": said}
        if not path.exists():
            break
        source = str(path)
    return found


def line(found: dict[str, Any]) -> str:
    """A row of the table."""
    cells = []
    for kind in ("json", "html"):
        part = found.get(kind, {})
        cells += ["" if part.get("bytes") is None else f"{value:.1f}" for value in (part.get("s"), _mb(part))]
    said = "; ".join(part["said"] for part in (found.get("json"), found.get("html")) if part and part["said"])
    return f"| {found['model'].removeprefix(ZOO)} | {' | '.join(cells)} | {said} |"


def _mb(part: dict[str, Any]) -> float:
    return (part.get("bytes") or 0) / 1e6


def main() -> int:
    """Report on all, and print."""
    parser = argparse.ArgumentParser(description="A report on every model: seconds and sizes.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: the zoo")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds that a process may take")
    parser.add_argument("--folder", type=Path, help="where to leave the reports (default: nowhere)")
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    given = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(prefix="fusewise-reports-") as scratch:
        folder = given.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        print(HEAD, flush=True)
        for model in given.models or [f"{ZOO}{row.name}" for row in MODELS]:
            results.append(reported(model, folder, given.limit))
            print(line(results[-1]), flush=True)
            if given.json:
                given.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all((found.get("html") or {}).get("bytes") for found in results) else 1


if __name__ == "__main__":
    sys.exit(main())
