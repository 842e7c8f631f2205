"""On a machine without a GPU: everything is compiled, and what each step has to write is computed."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.gpu.carried import fingerprint, keep_cubins, keep_expected, kernel_key
from benchmarks.gpu.cases import Case, planned
from benchmarks.gpu.steps import expected_of

from fusewise.benchmarking.inputs import random_feeds
from fusewise.codegen.gpu.device import Device
from fusewise.errors import FusewiseError, UsageError
from fusewise.files import write_text
from fusewise.runtime.cache import KernelCache
from fusewise.runtime.gpu.compile import TritonCompiler
from fusewise.runtime.gpu.driver import Cubin

__all__ = ["ABOUT", "prepare"]

ABOUT = "about.json"
MOST_BYTES = 60 << 20
"""Of the folder: it is to be carried."""


def prepare(
    folder: Path,
    cases: Sequence[Case],
    device: Device,
    processes: int,
    store: KernelCache | None = None,
    tell: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Fill `folder` for all of `cases`; a row of each, in which a case that is not compiled says why. `UsageError` where the folder
    holds something else."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()) and not (folder / ABOUT).exists():
        raise UsageError(f"{folder} holds something else: name a folder that is new")
    cubins: dict[str, Cubin] = {}
    rows: list[dict[str, Any]] = []
    with TritonCompiler(processes) as compiler:
        for case in cases:
            begin = time.monotonic()
            try:
                row = _prepared(folder, case, device, compiler, store, cubins)
            except FusewiseError as error:
                row = {"case": case.name, "refused": " ".join(str(error).split())}
            rows.append(row | {"seconds": round(time.monotonic() - begin, 1)})
            keep_cubins(folder, cubins)
            write_text(folder / ABOUT, json.dumps(_about(device, rows), indent=1) + "\n")
            tell(" ".join(f"{key}={value}" for key, value in rows[-1].items()))
    nbytes = sum(path.stat().st_size for path in folder.iterdir())
    tell(f"{len(cubins)} kernels for {device.name}, {nbytes / 2**20:.1f} MiB in {folder}")
    if nbytes > MOST_BYTES:
        tell(f"that is more than {MOST_BYTES >> 20} MiB: prepare fewer cases at a time if it cannot be carried")
    return rows


def _prepared(
    folder: Path,
    case: Case,
    device: Device,
    compiler: TritonCompiler,
    store: KernelCache | None,
    cubins: dict[str, Cubin],
) -> dict[str, Any]:
    graph = case.graph
    found = planned(graph, device, case.precision)
    program, exact = found.program, case.precision == "exact"
    made = compiler.compile(program.kernels, device, contracted=not exact, store=store)
    feeds = random_feeds(graph)
    expected = expected_of(program, found.plan.partition, feeds)
    keep_expected(folder, case.name, expected)
    cubins |= {kernel_key(kernel, exact): cubin for kernel, cubin in zip(program.kernels, made, strict=True)}
    return {
        "case": case.name,
        "kernels": len(program.kernels),
        "launches": program.launches,
        "host_steps": len(program.steps) - program.launches,
        "steps_expected": len({one.step for one in expected}),
        "weights": fingerprint(program),
    }


def _about(device: Device, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "device": device.name,
        "triton": metadata.version("triton"),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "cases": list(rows),
    }
