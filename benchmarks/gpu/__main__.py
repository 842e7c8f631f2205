"""Models on a GPU: compiled beforehand, checked step by step, timed, and against other runtimes in turn.

    python -m benchmarks.gpu prepare FOLDER [--device sm_90] [--models M,...] [--batches 1,8] [--precisions float32,...]
    python -m benchmarks.gpu measure FOLDER [--json FILE] [--minutes 10] [--vs onnxruntime,torch.compile] [--quick]
    python -m benchmarks.gpu table FILE [--out PAGE]

`prepare` needs no GPU, but Triton (the `gpu` extra). It compiles every kernel, computes on the CPU some elements of what each
step has to write, and leaves both in FOLDER, a few MiB that are carried to the machine with the GPU; weights are random and made
again there. It may be interrupted: kernels are kept in the kernel cache.

`measure` compiles nothing. It needs this repository, the packages that Fusewise itself needs (numpy, ml_dtypes, onnx, protobuf,
llvmlite, platformdirs, rich, typer), the same NumPy, and cuda-bindings with NVIDIA's driver; neither Triton, nor PyTorch, nor the
CUDA toolkit. Each launch is compared with what is expected, 1,000 runs are repeated bit for bit, runs and single steps are timed
by the device's clock; then come ONNX Runtime's CUDA provider and `torch.compile(mode="max-autotune")`, where installed. It ends
by its own clock, and FILE is written after each case. Where there is no driver or no GPU it says so, and measures nothing. Exit
status 1 when a step is wrong, a replay differs or a case fails.

`table` makes a page of FILE. Run all of them from the root of the repository.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.cases import BATCHES, MODELS, PRECISIONS, cases_of
from benchmarks.gpu.measure import QUICK, Effort, Measurement, measured
from benchmarks.gpu.peers import PEERS
from benchmarks.gpu.prepare import prepare
from benchmarks.gpu.table import page

from fusewise.codegen.gpu.device import device_named
from fusewise.errors import FusewiseError
from fusewise.files import write_text
from fusewise.runtime.cache import KernelCache
from fusewise.runtime.folder import cache_folder
from fusewise.runtime.gpu import drivers
from fusewise.runtime.gpu.driver import Driver, NoDevice, NoDriver

STORE_BYTES = 4 << 30


def main(arguments: Sequence[str] | None = None, opened: Callable[[], Driver] = lambda: drivers.opened("cuda")) -> int:
    """`opened` gives the device to measure."""
    given = _parser().parse_args(arguments)
    try:
        return int({"prepare": _prepare, "measure": _measure, "table": _table}[given.verb](given, opened))
    except FusewiseError as error:
        print(f"benchmarks.gpu: {error}", file=sys.stderr)
        return error.exit_status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    one = verbs.add_parser("prepare", help="compile everything, on a machine without a GPU")
    one.add_argument("folder", type=Path)
    one.add_argument("--device", default="sm_90")
    one.add_argument("--models", default=",".join(MODELS))
    one.add_argument("--batches", default=",".join(map(str, BATCHES)))
    one.add_argument("--precisions", default=",".join(PRECISIONS))
    one.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="that compile at the same time")
    one = verbs.add_parser("measure", help="check and time what was prepared, on a machine with a GPU")
    one.add_argument("folder", type=Path)
    one.add_argument("--json", type=Path, default=Path("gpu.json"), metavar="FILE")
    one.add_argument("--minutes", type=float, default=10.0, help="when to end")
    one.add_argument("--vs", default=",".join(PEERS), help="peers, with commas; empty for none")
    one.add_argument("--quick", action="store_true", help="a few runs of each, to see whether it works")
    one = verbs.add_parser("table", help="a page of what was measured")
    one.add_argument("file", type=Path)
    one.add_argument("--out", type=Path, metavar="PAGE", help="write it there")
    return parser


def _prepare(given: argparse.Namespace, opened: object) -> int:
    folder = cache_folder(True)
    store = None if folder is None else KernelCache(folder, limit_bytes=STORE_BYTES)
    cases = cases_of(given.models, given.batches, given.precisions)
    rows = prepare(given.folder, cases, device_named(given.device), given.processes, store)
    return 1 if any("refused" in row for row in rows) else 0


def _measure(given: argparse.Namespace, opened: Callable[[], Driver]) -> int:
    peers = [name for name in given.vs.split(",") if name]
    unknown = [name for name in peers if name not in PEERS]
    if unknown:
        print(f"benchmarks.gpu: no peer {unknown[0]!r}: choose of {', '.join(PEERS)}", file=sys.stderr)
        return 2
    try:
        driver = opened()
    except (NoDriver, NoDevice) as error:
        print(f"Not measured: {error}.")
        return 0
    try:
        measurement = Measurement(given.json, 60 * given.minutes, QUICK if given.quick else Effort())
        found = measured(given.folder, driver, measurement, peers, lambda text: print(text, flush=True))
    finally:
        driver.close()
    return 1 if any(map(_is_wrong, found["cases"].values())) else 0


def _is_wrong(result: Mapping[str, Any]) -> bool:
    faults = "fault" in result or bool(result.get("check", {}).get("wrong"))
    return faults or bool(result.get("replays", {}).get("differ"))


def _table(given: argparse.Namespace, opened: object) -> int:
    try:
        text = page(json.loads(given.file.read_text()))
    except (OSError, ValueError, KeyError) as error:
        print(f"benchmarks.gpu: {given.file} is not what measure writes: {error}", file=sys.stderr)
        return 2
    if given.out is None:
        print(text, end="")
    else:
        write_text(given.out, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
