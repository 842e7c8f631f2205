"""What fusion saves in memory accesses, cache misses and peak memory, and how the processor is used, of DNNFusion's models.

    python -m benchmarks.memory [MODEL ...] [--exported] [--variants none,dnnfusion] [--caches 64K:4,512K:8,4M:16]
                                [--threads N] [--seconds S] [--json FILE]
    python -m benchmarks.memory --table FILE     draw the tables of an earlier run

A model is a zoo name or an ONNX file. Every variant (`benchmarks.fusion_ablation`) is counted as `fusewise bench MODEL --memory`
does it; the file is rewritten after each model. `--caches` models other caches than this machine's: those above are about what a
core has of the phone that the paper measured on, a Snapdragon 865. Its claim is that depth makes for more intermediate results,
so for more pressure on memory and caches, and for less work in each layer, so for a processor used less; fusion mends both.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.dnnfusion_printed import LAYERS
from benchmarks.fusion_ablation import VARIANTS
from benchmarks.zoo import machine

from fusewise import api
from fusewise.benchmarking.caches import CacheLevel, parsed_levels
from fusewise.counting import Variant, compared, headings, rows
from fusewise.errors import FusewiseError
from fusewise.zoo.catalogue import MODELS, build

DEFAULT = ("none", "dnnfusion")


def variant_named(name: str) -> Variant:
    """A variant of the ablation, as `counting` takes it."""
    given = VARIANTS[name]
    return Variant(given.get("fusion", "dnnfusion"), tuple(given.get("disable", ())))


def measured(
    model: str,
    names: tuple[str, ...],
    levels: tuple[CacheLevel, ...] | None,
    threads: int | None,
    seconds: float,
    exported: bool,
) -> dict[str, Any]:
    """The result for one model; an error is a result too."""
    try:
        known = any(row.name == model for row in MODELS)
        graph = api.load(build(model, decomposed=exported) if known else model)
        variants = {name: variant_named(name) for name in names}
        found = compared(graph, variants, threads=threads, levels=levels, seconds=seconds)
    except FusewiseError as error:
        return {"model": model, "error": str(error)}
    for row in found["variants"].values():
        del row["by_group"]
    return {"model": model, "form": "exported" if exported else "clean", **found}


def table(results: list[dict[str, Any]]) -> str:
    """A Markdown table: a row for each variant of each model, and what the last saves beside the first."""
    good = [result for result in results if "error" not in result]
    lines: list[str] = []
    if good:
        heads = ("model", "variant", *headings(good[0])[1:], "on the host")
        lines = [f"| {' | '.join(heads)} |", f"| --- | --- | {' | '.join('---:' for _ in heads[2:])} |"]
    for result in results:
        if "error" in result:
            lines.append(f"| {result['model']} | {result['error']} |")
            continue
        for cells, row in zip(rows(result), result["variants"].values(), strict=True):
            lines.append(f"| {' | '.join((result['model'], *cells, str(row['host_steps'] or '')))} |")
    return "\n".join(lines)


def factors(results: list[dict[str, Any]]) -> str:
    """A Markdown table: how many times as much the first variant does as the last, and the published sizes of all results."""
    heads = (
        "model",
        "needed",
        "accesses",
        "moved",
        "misses, level by level",
        "peak memory",
        "time",
        "paper: results MB",
    )
    lines = [f"| {' | '.join(heads)} |"]
    lines.append(f"| --- | {' | '.join('---:' for _ in range(7))} |")
    for result in (one for one in results if "error" not in one):
        first, *_, last = result["variants"].values()
        printed = LAYERS.get(result["model"])
        paper = "" if printed is None else "{} to {}".format(*printed.megabytes)
        misses = " ".join(_factor(count, last["misses"][name]) for name, count in first["misses"].items())
        cells = (
            _factor(first["needed_bytes"], last["needed_bytes"]),
            _factor(first["loads"] + first["stores"], last["loads"] + last["stores"]),
            _factor(first["loaded_bytes"] + first["stored_bytes"], last["loaded_bytes"] + last["stored_bytes"]),
            misses,
            _factor(first["peak_bytes"], last["peak_bytes"]),
            _factor(first["ms"], last["ms"]),
            paper,
        )
        lines.append(f"| {result['model']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _factor(before: float, after: float) -> str:
    return f"{before / after:.2f}x" if after else "1.00x" if before == after else "none left"


def main() -> None:
    """Count, time and print."""
    parser = argparse.ArgumentParser(
        description="Memory accesses, cache misses and processor use, without and with fusion."
    )
    parser.add_argument("models", nargs="*", help="zoo names or ONNX files (default: the paper's fifteen)")
    parser.add_argument("--exported", action="store_true", help="zoo models as exporters of 2020 wrote them")
    parser.add_argument("--variants", default=",".join(DEFAULT), help=f"of {', '.join(VARIANTS)}")
    parser.add_argument("--caches", help="other caches than this machine's, as 64K:4,512K:8,4M:16")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seconds", type=float, default=3.0, help="to time each variant for")
    parser.add_argument("--json", type=Path, help="where to keep the results")
    parser.add_argument("--table", type=Path, help="draw the table of this file and measure nothing")
    given = parser.parse_args()
    if given.table:
        results = json.loads(given.table.read_text())["results"]
        print(f"{table(results)}\n\n{factors(results)}")
        return
    names = tuple(given.variants.split(","))
    unknown = [name for name in names if name not in VARIANTS]
    if unknown:
        parser.error(f"there is no variant {unknown[0]!r}; choose from {', '.join(VARIANTS)}")
    results = []
    try:
        levels = None if given.caches is None else parsed_levels(given.caches)
    except FusewiseError as error:
        parser.error(str(error))
    for model in given.models or list(LAYERS):
        results.append(measured(model, names, levels, given.threads, given.seconds, given.exported))
        print(table(results[-1:]), file=sys.stderr, flush=True)
        if given.json:
            given.json.write_text(json.dumps({"machine": machine(given.threads), "results": results}, indent=2) + "\n")
    print(f"{table(results)}\n\n{factors(results)}")
    absent = next((result["without_counters"] for result in results if result.get("without_counters")), "")
    if absent:
        print(f"\nnot counted by the processor: {absent}")


if __name__ == "__main__":
    main()
