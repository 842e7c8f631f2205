"""Every kernel of the zoo, compiled for GPUs without one: which spill, want too much shared memory, use no tensor cores?

    python -m benchmarks.gpu.kernels [--models resnet50,bert_base] [--devices sm_80,sm_90] [--precisions float32,float16]
                                     [--processes 2] [--json FILE]
    python -m benchmarks.gpu.kernels --sample 40

`--sample` takes a few, of every family, architecture and precision (`benchmarks.gpu.sampled`).

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
from benchmarks.gpu.checked import Asked, Checked, checked, family_of
from benchmarks.gpu.sampled import zoo_sample

from fusewise.codegen.gpu.device import Device, device_named
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


def distinct(programs: Mapping[tuple[str, str], GpuProgram], devices: Mapping[str, Device]) -> list[Asked]:
    """The kernels of several programs, each once for a device."""
    asked = [
        Asked(kernel, devices[device], precision)
        for (device, precision), program in programs.items()
        for kernel in program.kernels
    ]
    return list({_key(one): one for one in asked}.values())


class Check:
    """What was found, model by model."""

    def __init__(self, devices: Mapping[str, Device], processes: int, store: KernelCache | None) -> None:
        self.devices, self.processes, self.store = devices, processes, store
        self.results: dict[tuple[str, bool, str], tuple[str, Checked]] = {}
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
        row |= self.kernels(name, distinct(programs, self.devices))
        self.rows.append(row)
        return row

    def kernels(self, name: str, kernels: Sequence[Asked]) -> dict[str, Any]:
        """How many kernels of a model there are, how many are new, and how many of these fail."""
        new = [one for one in kernels if _key(one) not in self.results]
        found = checked(new, self.processes, self.store, _told if sys.stderr.isatty() else None)
        self.results |= {_key(asked): (name, one) for asked, one in zip(new, found, strict=True)}
        return {"kernels": len(kernels), "new": len(found), "failed": sum(bool(one.faults) for one in found)}

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


def _key(one: Asked) -> tuple[str, bool, str]:
    return one.device.name, one.precision == "exact", one.kernel.symbol + one.kernel.source


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
    parser.add_argument(
        "--sample", type=int, metavar="N", help="N kernels of all families, devices and precisions; no models"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="that compile at the same time")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there, too")
    given = parser.parse_args(arguments)
    if given.sample is not None and given.models:
        parser.error("which models a sample is of follows from the zoo: leave out --models or --sample")
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
        check.kernels("a sample", zoo_sample(given.sample))
    if given.json is not None:
        told = {"models": check.rows, "families": check.families, "failures": check.failures}
        write_text(given.json, json.dumps(told, indent=1) + "\n")
    print("\n" + table(check.families, tuple(_figures("", "", ()))))
    if check.failures:
        print("\n" + table(check.failures, tuple(check.failures[0])))
    failed = len({(one["device"], one["kernel"]) for one in check.failures})
    print(f"\n{len(check.results)} kernels compiled, {failed} failed.")
    return 1 if check.failures else 0


if __name__ == "__main__":
    sys.exit(main())
