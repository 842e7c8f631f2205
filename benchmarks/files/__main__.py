"""Models as people have them on disk: each written by the tool that people use, then run here and in ONNX Runtime in turn.

    python -m benchmarks.files [--only NAME or FAMILY ...] [--build-only] [--folder DIR] [--threads 2] [--json FILE]

Files are built once, into a folder that is kept; weights are random and small, architectures real, nothing is downloaded. The table
says of each file whether it is read or why not, what runs on the host, the largest difference from ONNX Runtime's answer over its
largest magnitude (`differs` where that is more than the file's tolerance and than ONNX Runtime's own two levels of optimisation
differ), medians in milliseconds, and the ratio, above one where ours is faster. Input sizes are stated unless `--free`. Run it
from the root of the repository with the `bench` and `torch` extras and the tools installed: transformers, onnxruntime-genai,
skl2onnx, onnxmltools, lightgbm, xgboost, onnxconverter-common, pandas.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from benchmarks.files.measure import build, line, measure, summary
from benchmarks.files.row import File
from benchmarks.files.table import chosen

HEAD = """\
| file | family | read | host steps | error | Fusewise ms | ONNX Runtime ms | ratio |
| --- | --- | --- | --- | ---: | ---: | ---: | ---: |"""


def main() -> int:
    """Build, measure and print."""
    parser = argparse.ArgumentParser(description="Files of the tools that people use, here and in ONNX Runtime.")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="files or families; all by default")
    parser.add_argument("--build-only", action="store_true", help="write the files and measure nothing")
    parser.add_argument("--folder", type=Path, default=Path.home() / ".cache" / "fusewise-files")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.5, help="how long each runtime is timed for a file")
    parser.add_argument("--free", action="store_true", help="leave dimensions free that the file leaves free")
    parser.add_argument("--json", type=Path, help="where to keep the results")
    given = parser.parse_args()
    try:
        files = chosen(given.only)
    except ValueError as error:
        parser.error(str(error))
    given.folder.mkdir(parents=True, exist_ok=True)
    unbuilt = _built([file for file in files if not (given.folder / file.name).exists()], given.folder)
    results: list[dict[str, Any]] = []
    print(HEAD, flush=True)
    for file in files:
        named = {"file": file.name, "family": file.family}
        if file.name in unbuilt:
            results.append(named | {"unbuilt": unbuilt[file.name]})
        elif given.build_only:
            continue
        else:
            results.append(named | _measured(file, given))
        print(line(results[-1]), flush=True)
        if given.json:
            given.json.write_text(json.dumps(results, indent=1) + "\n")
    print(f"\n{summary(results)}")
    return 0


def _built(files: Sequence[File], folder: Path) -> dict[str, str]:
    """Why files were not built, by name. A process builds one after the other; where it ends, the next one goes on."""
    told: dict[str, str] = {}
    left = list(files)
    while left:
        with _process() as pool:
            try:
                while left:
                    reason = pool.submit(build, left[0].name, folder).result()
                    told |= {left[0].name: reason} if reason else {}
                    print(f"{left[0].name} {reason or 'built'}", file=sys.stderr, flush=True)
                    left.pop(0)
            except BrokenProcessPool:
                told[left.pop(0).name] = "the process that built it ended"
    return told


def _measured(file: File, given: argparse.Namespace) -> dict[str, Any]:
    """In a process of its own, so that nothing that happens there ends the table."""
    with _process() as pool:
        try:
            return pool.submit(measure, file.name, given.folder, given.threads, given.seconds, given.free).result()
        except BrokenProcessPool:
            return {"died": "the process that ran it ended"}


def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


if __name__ == "__main__":
    sys.exit(main())
