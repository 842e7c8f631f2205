"""Every operator of ONNX at two usual sizes, here and in ONNX Runtime, in turn.

    python -m benchmarks.operators [NAME ...] [--threads N] [--json FILE]
    python -m benchmarks.operators --from FILE ...     draw the table of earlier runs

Each operator of the newest opset, the preview domains included, is a model of one node. What ONNX Runtime lacks is measured
against PyTorch. Columns: medians in microseconds with the tenth and the nine tenths of the runs, the ratio (above one where
ours is faster), the largest difference of answers over the largest magnitude, and how ours ran (`ways.WAYS`). The slowest
ratio comes first. Run it from the root of the repository with the `bench` and `torch` extras, on a machine that does nothing
else.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import warnings
from pathlib import Path
from typing import Any

from benchmarks.operators.measure import measured
from benchmarks.operators.table import ROWS
from benchmarks.operators.ways import WAYS
from benchmarks.zoo import machine

SLOW = 0.5
"""Of the other's speed: what is slower is listed by name."""


def ratio(result: dict[str, Any]) -> float | None:
    """How many times as fast as the other; None where there is no other."""
    theirs = result.get("theirs")
    return None if theirs is None else float(theirs["p50_ms"] / result["ours"]["p50_ms"])


def table(results: list[dict[str, Any]]) -> str:
    """A Markdown table, the slowest ratio first; then what has none, what is too slow, and the mean."""
    timed = sorted((r for r in results if ratio(r) is not None), key=lambda r: ratio(r) or 0.0)
    others = [r for r in results if ratio(r) is None]
    lines = [
        "| operator | size | threads | ours us | other us | ratio | difference | ran | other |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | --- |",
        *(_line(result) for result in (*timed, *others)),
        "",
    ]
    for threads in sorted({r["threads"] for r in timed}):
        ratios = [ratio(r) or 0.0 for r in timed if r["threads"] == threads]
        slow = [_named(r) for r in timed if r["threads"] == threads and (ratio(r) or 0.0) < SLOW]
        lines.append(f"{threads} threads: {len(ratios)} rows, geometric mean {statistics.geometric_mean(ratios):.2f}")
        lines.append(f"slower than {SLOW:g} of the other: {len(slow)}: {', '.join(slow) or 'none'}")
    ways = [r["way"] for r in results if "way" in r]
    lines.append(", ".join(f"{way}: {ways.count(way)}" for way in WAYS))
    apart = [f"{_named(r)} {r['error']:.1e}" for r in timed if isinstance(r["error"], float) and r["error"] > 1e-5]
    lines.append(f"answers more than 1e-5 apart: {', '.join(apart) or 'none'}")
    return "\n".join(lines)


def _named(result: dict[str, Any]) -> str:
    return f"{result['row']} ({'usual' if not result['size'] else 'large'})"


def _line(result: dict[str, Any]) -> str:
    start = f"| {result['row']} | {'large' if result['size'] else 'usual'} | {result['threads']} |"
    if "ours" not in result:
        return f"{start} {result['error']} | | | | | |"
    found, error = ratio(result), result["error"]
    cells = (
        _us(result["ours"]),
        "-" if result["theirs"] is None else _us(result["theirs"]),
        "-" if found is None else f"{found:.2f}",
        "-" if error is None else f"{error:.1e}",
        result["way"],
        result["peer"],
    )
    return f"{start} {' | '.join(cells)} |"


def _us(spread: dict[str, float]) -> str:
    low, middle, high = (spread[key] * 1e3 for key in ("p10_ms", "p50_ms", "p90_ms"))
    return f"{middle:.4g} ({low:.3g} to {high:.3g})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure every operator against ONNX Runtime.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="operators; all by default")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where to keep the results")
    parser.add_argument(
        "--from", dest="files", type=Path, nargs="+", help="draw the table of these files, measure nothing"
    )
    given = parser.parse_args()
    if given.files:
        print(table([result for file in given.files for result in json.loads(file.read_text())["results"]]))
        return
    unknown = sorted(set(given.names) - {row.op for row in ROWS})
    if unknown:
        parser.error(f"there is no operator {unknown[0]!r} in the table")
    warnings.simplefilter("ignore")
    results: list[dict[str, Any]] = []
    for row in ROWS:
        if given.names and row.op not in given.names:
            continue
        for size in range(len(row.sizes)):
            results.append(measured(row, size, given.threads))
            print(_line(results[-1]), file=sys.stderr, flush=True)
        if given.json:
            given.json.write_text(json.dumps({"machine": machine(given.threads), "results": results}, indent=1) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
