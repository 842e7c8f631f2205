"""The groups of a program for a GPU beside what the device can do: by what launches took, or by what they may take.

The roof is the maker's (`codegen.gpu.device`): operations in a second of the units that a kernel computes on, and bytes in a second
of the device's memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from fusewise.benchmarking.roofline import reached
from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.listing import CompiledFigures, described_steps, kernel_rate, kernel_way
from fusewise.codegen.gpu.program import GpuProgram, GpuStep
from fusewise.lower.program import Account
from fusewise.runtime.gpu.drivers import row_of
from fusewise.runtime.gpu.executable import GpuExecutable
from fusewise.runtime.gpu.timing import launch_times, replay_times

__all__ = ["MEMORY", "estimated", "gpu_profile", "gpu_roofline"]

MEMORY = "device memory"
"""The level that bytes are taken to come from."""


def gpu_profile(
    model: GpuExecutable, compiled: Sequence[CompiledFigures], feeds: Mapping[str, Any], runs: int = 20
) -> dict[str, Any]:
    """The roofline of a model on its device, measured there by the device's clock: `ms` of a run on what lies there (the median of
    `runs`), and each launch by itself, 20 times in a row. `compiled` has the figures of each kernel.

    Launches of a run may overlap, so groups may take more together than the run. Raises what `GpuExecutable.run` raises.
    """
    model.run(None, feeds)
    whole = median(replay_times(model, max(1, runs)))
    taken = {one.step: one.us for one in launch_times(model)}
    return gpu_roofline(model.program, row_of(model.driver), compiled, taken, whole) | {"runs": max(1, runs)}


def estimated(program: GpuProgram, device: Device, compiled: Sequence[CompiledFigures]) -> dict[str, Any]:
    """The same by estimates (`codegen.gpu.estimate`): launches one after the other, host steps and copies left out. Of each group
    `limit` is what its longest launch takes most of its time for."""
    rows = [row for row in described_steps(program, device, compiled) if "host" not in row]
    taken = {row["step"]: float(row["estimate_us"]) for row in rows}
    limits = {row["group"]: row["limit"] for row in sorted(rows, key=lambda row: float(row["estimate_us"]))}
    found = gpu_roofline(program, device, compiled, taken, sum(taken.values()))
    groups = [row | {"limit": limits[row["group"]]} for row in found["groups"]]
    return found | {"groups": groups}


def gpu_roofline(
    program: GpuProgram, device: Device, compiled: Sequence[CompiledFigures], taken: Mapping[int, float], whole: float
) -> dict[str, Any]:
    """Machine and groups, as `roofline` has them, of what each step takes, and the `whole`, in microseconds."""
    steps: dict[int, list[int]] = {}
    for number, step in enumerate(program.steps):
        if isinstance(step, GpuStep) and number in taken:
            steps.setdefault(step.group, []).append(number)
    rows = [_row(program, device, compiled, group, taken, own) for group, own in steps.items()]
    rows.sort(key=lambda row: -row["ms"])
    together = sum(row["ms"] for row in rows)
    for row in rows:
        row["share"] = row["ms"] / together if together else 0.0
    flops = sum(account.flops for account in program.accounts)
    copy = device.bytes_per_second / 1e9
    return {
        "machine": {
            "gflops": max((kernel_rate(*each) for each in _kernels(program, device, compiled)), default=0.0) / 1e9,
            "copy_gbs": copy,
            "threads": 1,
            "device": device.name,
            "levels": [{"name": MEMORY, "bytes": None, "gbs": copy, "spread": 0.0}],
            "disturbed": None,
        },
        "ms": whole / 1e3,
        "gflops": flops / (whole * 1e3) if whole else 0.0,
        "groups": rows,
    }


def _kernels(program: GpuProgram, device: Device, compiled: Sequence[CompiledFigures]) -> list[tuple[Any, Any, Any]]:
    return [(kernel, device, figures) for kernel, figures in zip(program.kernels, compiled, strict=True)]


def _row(
    program: GpuProgram,
    device: Device,
    compiled: Sequence[CompiledFigures],
    group: int,
    taken: Mapping[int, float],
    steps: Sequence[int],
) -> dict[str, Any]:
    known = 0 <= group < len(program.accounts)
    account = program.accounts[group] if known else Account("copy to an output", (), 0, 0)
    launches = [step for number in steps if isinstance(step := program.steps[number], GpuStep)]
    rate = max(kernel_rate(program.kernels[one.kernel], device, compiled[one.kernel]) for one in launches) / 1e9
    us, gbs = sum(taken[number] for number in steps), device.bytes_per_second / 1e9
    return {
        "group": group,
        "operators": account.operators,
        "ms": us / 1e3,
        "share": 0.0,
        "flops": account.flops,
        "bytes": account.nbytes,
        "level": MEMORY,
        "ceiling_gflops": rate,
        "ceiling_gbs": gbs,
        **reached(account.flops, account.nbytes, us * 1e3, (rate, gbs)),
        "kernels": list(dict.fromkeys(kernel_way(program, one) for one in launches)),
        "nodes": list(account.nodes),
    }
