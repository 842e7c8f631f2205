"""Every kernel of the zoo, compiled for GPUs without one: which spill, want too much shared memory, use no tensor cores?

    python -m benchmarks.gpu.kernels [--models resnet50,bert_base] [--devices sm_80,sm_90] [--precisions float32,float16]
                                     [--sample 40] [--processes 2] [--json FILE]

Models are planned for each architecture at batch 1, and every distinct kernel is compiled once. What was compiled before is found
in the kernel cache, so an interrupted check goes on where it was. Each model has a row: launches, host steps, its kernels, how
many of these no earlier row has, and how many of the new ones fail. Then families have one each, with the largest figures of
their kernels, then every failure with its reason. Exit status 1 when there is one. No GPU is needed; Triton is (`pip install
'fusewise[gpu]'`). Meant for every night: all models take hours on two cores the first time. Run it from the root of the repository.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.cases import planned
from benchmarks.gpu.checked import Checked, checked, family_of, sample

from fusewise.codegen.gpu.device import Device, device_named
from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.codegen.gpu.program import GpuProgram
from fusewise.errors import FusewiseError
from fusewise.files import write_text
from fusewise.runtime.cache import KernelCache
from fusewise.runtime.folder import cache_folder
from fusewise.zoo.catalogue import MODELS, build, model_named

STORE_BYTES = 4 << 30
"""Of the kernel cache: more than a user's, as a night's check must not push out what it needs the next night."""


def programs_of(
    name: str, devices: Mapping[str, Device], precisions: Sequence[str]
) -> dict[tuple[str, str], GpuProgram]:
    """A model's programs by device and precision."""
    graph = build(name)
    return {(d, p): planned(graph, device, p).program for d, device in devices.items() for p in precisions}


def distinct(programs: Mapping[tuple[str, str], GpuProgram]) -> dict[str, list[GpuKernel]]:
    """By device the kernels of several programs, each once."""
    found: dict[str, dict[str, GpuKernel]] = {}
    for (device, _), program in programs.items():
        found.setdefault(device, {}).update((kernel.source + kernel.symbol, kernel) for kernel in program.kernels)
    return {device: list(kernels.values()) for device, kernels in found.items()}


class Check:
    """What was found, model by model."""

    def __init__(self, devices: Mapping[str, Device], processes: int, store: KernelCache | None) -> None:
        self.devices, self.processes, self.store = devices, processes, store
        self.results: dict[tuple[str, str], tuple[str, Checked]] = {}
        self.rows: list[dict[str, Any]] = []

    def model(self, name: str, precisions: Sequence[str]) -> dict[str, Any]:
        """The row of one model, whose kernels that are new are compiled."""
        row: dict[str, Any] = {"model": name}
        try:
            programs = programs_of(name, self.devices, precisions)
        except FusewiseError as error:
            row |= {"refused": " ".join(str(error).split())}
            self.rows.append(row)
            return row
        row |= {f"{d} {p} launches": one.launches for (d, p), one in programs.items()}
        row["host_steps"] = max(len(one.steps) - one.launches for one in programs.values())
        row |= self.kernels(name, distinct(programs))
        self.rows.append(row)
        return row

    def kernels(self, name: str, kernels: Mapping[str, Sequence[GpuKernel]]) -> dict[str, Any]:
        """How many kernels of a model there are, how many are new, and how many of these fail."""
        new = {d: [one for one in some if (d, _key(one)) not in self.results] for d, some in kernels.items()}
        found = checked(new, self.devices, self.processes, self.store, _told if sys.stderr.isatty() else None)
        for one in found:
            self.results[one.device.name, _key(one.kernel)] = name, one
        counts = {"kernels": sum(map(len, kernels.values())), "new": len(found)}
        return counts | {"failed": sum(bool(one.faults) for one in found)}

    @property
    def failures(self) -> list[dict[str, str]]:
        """Every kernel that fails, with the model that it was first seen in."""
        return [
            {"model": model, "device": one.device.name, "kernel": one.kernel.symbol, "way": one.kernel.way, "why": why}
            for model, one in self.results.values()
            for why in one.faults
        ]

    @property
    def families(self) -> list[dict[str, Any]]:
        """By device and family, how many kernels there are, and the largest figures."""
        groups: dict[tuple[str, str], list[Checked]] = {}
        for _, one in self.results.values():
            groups.setdefault((one.device.name, family_of(one.kernel)), []).append(one)
        return [_figures(device, family, some) for (device, family), some in sorted(groups.items())]


def _figures(device: str, family: str, some: Sequence[Checked]) -> dict[str, Any]:
    cubins = [one.cubin for one in some if one.cubin is not None]
    return {
        "device": device,
        "family": family,
        "kernels": len(some),
        "registers": max((cubin.registers for cubin in cubins), default=0),
        "shared_bytes": max((cubin.shared_bytes for cubin in cubins), default=0),
        "with_tensor_cores": sum(cubin.tensor_instructions > 0 for cubin in cubins),
        "failed": sum(bool(one.faults) for one in some),
    }


def _key(kernel: GpuKernel) -> str:
    return kernel.symbol + kernel.source


def _told(one: Checked, done: int, count: int) -> None:
    print(f"\r  {done} of {count} kernels", end="\n" if done == count else "", file=sys.stderr, flush=True)


def row_text(row: Mapping[str, Any]) -> str:
    """A model's row of the table."""
    if "refused" in row:
        return f"| {row['model']} | not planned: {row['refused']} |"
    launches = " / ".join(str(value) for key, value in row.items() if key.endswith(" launches"))
    cells = (row["model"], launches, row["host_steps"], row["kernels"], row["new"], row["failed"])
    return "| " + " | ".join(map(str, cells)) + " |"


def table(rows: Sequence[Mapping[str, Any]], heads: Sequence[str]) -> str:
    """Rows of figures below their names."""
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    return "\n".join((*lines, *("| " + " | ".join(str(row[head]) for head in heads) + " |" for row in rows)))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--models", help="with commas; all by default")
    parser.add_argument("--devices", default="sm_80,sm_90")
    parser.add_argument("--precisions", default="float32")
    parser.add_argument("--sample", type=int, metavar="N", help="N kernels for each device, of all families")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="that compile at the same time")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there, too")
    given = parser.parse_args(arguments)
    try:
        devices = {name: device_named(name) for name in given.devices.split(",")}
        names = given.models.split(",") if given.models else [model.name for model in MODELS]
        names = [model_named(name).name for name in names]
    except FusewiseError as error:
        parser.error(str(error))
    folder = cache_folder(True)
    store = None if folder is None else KernelCache(folder, limit_bytes=STORE_BYTES)
    check = Check(devices, given.processes, store)
    precisions = given.precisions.split(",")
    if given.sample is None:
        print("| model | launches | host steps | kernels | new | failed |\n|" + " --- |" * 6, flush=True)
        told = 0
        for name in names:
            print(row_text(check.model(name, precisions)), flush=True)
            for one in check.failures[told:]:
                print(f"{one['device']} {one['kernel']} ({one['way']}): {one['why']}", file=sys.stderr, flush=True)
            told = len(check.failures)
    else:
        _check_sample(check, names, precisions, given.sample)
    if given.json is not None:
        told = {"models": check.rows, "families": check.families, "failures": check.failures}
        write_text(given.json, json.dumps(told, indent=1) + "\n")
    print("\n" + table(check.families, tuple(_figures("", "", ()))))
    if check.failures:
        print("\n" + table(check.failures, tuple(check.failures[0])))
    failed = len({(one["device"], one["kernel"]) for one in check.failures})
    print(f"\n{len(check.results)} kernels compiled, {failed} failed.")
    return 1 if check.failures else 0


def _check_sample(check: Check, names: Sequence[str], precisions: Sequence[str], count: int) -> None:
    programs: dict[tuple[str, str], GpuProgram] = {}
    for name in names:
        found = programs_of(name, check.devices, precisions)
        programs |= {(device, f"{precision} {name}"): program for (device, precision), program in found.items()}
    check.kernels("a sample", {device: sample(some, count) for device, some in distinct(programs).items()})


if __name__ == "__main__":
    sys.exit(main())
