"""The parts of a document that are others for a GPU: the device, launches and kernels with what is known of them without it, where
buffers lie, estimates and times.

Nothing here is measured but by `gpu_times_of`, where there is a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from fusewise.benchmarking.gpu_roofline import estimated, gpu_profile
from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.estimate import occupancy
from fusewise.codegen.gpu.kernel import IMPORTS, GpuKernel
from fusewise.codegen.gpu.listing import described_steps, family_of
from fusewise.codegen.gpu.program import ByteRange, GpuBuffer, GpuProgram, GpuStep, reads_of, writes_of
from fusewise.compiled import Model
from fusewise.lower.program import HostStep
from fusewise.runtime.gpu.driver import Cubin
from fusewise.runtime.gpu.runner import GpuRunner

__all__ = [
    "device_part",
    "estimates_part",
    "figures_of_kernels",
    "gpu_kernel_parts",
    "gpu_memory_part",
    "gpu_step_parts",
    "gpu_times_of",
]

_RUNS = 10

Figures = Mapping[str, Cubin]
"""What kernels were compiled to, by symbol."""


def figures_of_kernels(model: Model) -> Figures:
    """Of a model whose kernels were compiled; of one that is interpreted there are none."""
    cubins = cast("GpuRunner", model.runs).usual.cubins
    return {cubin.symbol: cubin for cubin in cubins or ()}


def device_part(device: Device) -> dict[str, Any]:
    """The architecture, and the data sheet of the product that stands for it."""
    return {
        "architecture": device.name,
        "product": device.product,
        "multiprocessors": device.sms,
        "shared_bytes": device.shared_per_sm,
        "l2_bytes": device.l2_bytes,
        "copy_gbs": device.bytes_per_second / 1e9,
        "peaks_gflops": {kind: rate / 1e9 for kind, rate in device.peaks},
        "launch_us": device.launch_us,
    }


def gpu_kernel_parts(program: GpuProgram, device: Device, compiled: Figures) -> list[dict[str, Any]]:
    """Every kernel once: its text for Triton (`source`), bytes of its machine code, and what it takes of a multiprocessor."""
    used: dict[int, list[int]] = {}
    for number, step in enumerate(program.steps):
        if isinstance(step, GpuStep):
            used.setdefault(step.kernel, []).append(number)
    return [
        {
            "id": number,
            "symbol": kernel.symbol,
            "way": kernel.way,
            "family": family_of(kernel),
            "schedule": {"warps": str(kernel.warps), "stages": str(kernel.stages), "grid": _blocks(kernel)},
            "nest": "",
            "ir": "",
            "source": IMPORTS + kernel.source,
            "code_bytes": len(compiled[kernel.symbol].image) if kernel.symbol in compiled else None,
            "steps": used.get(number, []),
            **({"gpu": _of_multiprocessor(device, compiled[kernel.symbol])} if kernel.symbol in compiled else {}),
        }
        for number, kernel in enumerate(program.kernels)
    ]


def _blocks(kernel: GpuKernel) -> str:
    return "x".join(map(str, kernel.grid))


def _of_multiprocessor(device: Device, cubin: Cubin) -> dict[str, Any]:
    held = occupancy(device, registers=cubin.registers, shared_bytes=cubin.shared_bytes, threads=cubin.threads)
    return {
        "threads": cubin.threads,
        "registers": cubin.registers,
        "shared_bytes": cubin.shared_bytes,
        "stack_bytes": cubin.stack_bytes,
        "tensor_instructions": cubin.tensor_instructions,
        "blocks_per_multiprocessor": held.blocks,
        "occupancy": held.share,
        "occupancy_limit": held.limit,
    }


def gpu_step_parts(program: GpuProgram, device: Device, compiled: Figures) -> list[dict[str, Any]]:
    """Every step in its order: a launch, with those that it waits for and what it may take (`estimate`), or nodes on the host."""
    waits: dict[int, list[int]] = {}
    for first, second in program.edges:
        waits.setdefault(second, []).append(first)
    rows = _estimates(program, device, compiled)
    groups = len(program.accounts)
    return [
        {
            "index": number,
            "kind": "host" if isinstance(step, HostStep) else "native",
            "kernel": step.kernel if isinstance(step, GpuStep) else None,
            "group": step.group if 0 <= step.group < groups else None,
            "label": step.label,
            "barrier": False,
            "strips": 0,
            "reads": _values(program, step, written=False),
            "writes": _values(program, step, written=True),
            "reason": "; ".join(dict.fromkeys(step.reasons)) if isinstance(step, HostStep) else "",
            "waits_for": sorted(waits.get(number, ())),
            **({"estimate": rows[number]} if number in rows else {}),
        }
        for number, step in enumerate(program.steps)
    ]


_ESTIMATE = ("estimate_us", "memory_us", "arithmetic_us", "waves", "bytes", "operations", "limit")


def _estimates(program: GpuProgram, device: Device, compiled: Figures) -> dict[int, dict[str, Any]]:
    figures = _in_order(program, compiled)
    rows = [] if figures is None else described_steps(program, device, figures)
    return {
        row["step"]: {
            "launch_us": device.launch_us,
            **{name.removeprefix("estimate_"): row[name] for name in _ESTIMATE},
        }
        for row in rows
        if "host" not in row
    }


def _in_order(program: GpuProgram, compiled: Figures) -> list[Cubin] | None:
    """What the program's kernels were compiled to; None where some were not."""
    if any(kernel.symbol not in compiled for kernel in program.kernels):
        return None
    return [compiled[kernel.symbol] for kernel in program.kernels]


def _values(program: GpuProgram, step: GpuStep | HostStep, *, written: bool) -> list[str]:
    """What a step touches, by the value that lies there; of working memory there is none."""
    if isinstance(step, HostStep):
        return [str(one[0]) for one in (step.writes if written else step.reads)]
    ranges: Sequence[ByteRange] = step.writes if written else step.reads
    return list(dict.fromkeys(value for one in ranges if (value := program.buffers[one.buffer].value)))


def gpu_memory_part(program: GpuProgram, summary: Mapping[str, Any]) -> dict[str, Any]:
    """As `memory_part`. Buffers that lie on the device outside of the arena have no place in it; launches that may run side by side
    share no memory."""
    alive: dict[int, tuple[int, int]] = {}
    for number, step in enumerate(program.steps):
        for one in (*reads_of(step), *writes_of(step)):
            alive[one.buffer] = (alive.get(one.buffer, (number, number))[0], number)
    return {
        "arena_bytes": program.arena_bytes,
        "constant_bytes": summary.get("constant_bytes"),
        "steps": [
            {"step": number, "live_bytes": _live(program.buffers, alive, number)}
            for number in range(len(program.steps))
        ],
        "buffers": [_buffer(program.buffers[number], *life) for number, life in alive.items()],
    }


def _live(buffers: Sequence[GpuBuffer], alive: Mapping[int, tuple[int, int]], step: int) -> int:
    """Bytes of the arena that hold something at a step."""
    own = [number for number, (first, last) in alive.items() if first <= step <= last]
    return sum(buffers[number].nbytes for number in own if buffers[number].kind == "arena")


def _buffer(buffer: GpuBuffer, first: int, last: int) -> dict[str, Any]:
    return {
        "value": buffer.value,
        "values": [buffer.value] if buffer.value else [],
        "kind": buffer.kind,
        "offset": buffer.offset if buffer.kind == "arena" else None,
        "bytes": buffer.nbytes,
        "first": first,
        "last": last,
    }


def estimates_part(program: GpuProgram, device: Device, compiled: Figures) -> dict[str, Any] | None:
    """What launches one after the other may take, by group, beside the device's peaks; None where kernels were not compiled."""
    figures = _in_order(program, compiled)
    if figures is None:
        return None
    found = estimated(program, device, figures)
    return {name: found[name] for name in ("ms", "gflops", "groups")} | {"limits": _limits(found)}


def _limits(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: found["machine"][name] for name in ("gflops", "copy_gbs", "levels")}


def gpu_times_of(model: Model, *, seed: int = 0) -> dict[str, Any]:
    """The part `times` of a model on the GPU that is here, by its clock; launches are timed one by one, so there is no picture of a
    run. Raises the errors of `runtime.gpu.driver`, and what `Model.run` raises."""
    runner = cast("GpuRunner", model.runs)
    found = gpu_profile(runner.load_usual(), runner.usual.cubins or (), model.random_inputs(seed), _RUNS)
    return {
        **{name: found[name] for name in ("ms", "runs", "gflops", "groups")},
        "threads": found["machine"]["threads"],
        "disturbed": None,
        "limits": _limits(found),
        "timeline": [],
        "workers": [],
    }
