"""A program for a GPU as rows of plain data: of each step its kernel, how it fills the device, and what it may take.

What Triton makes of a kernel (registers, shared memory) comes in from outside; the rest follows from the program and the device's
row. Times are estimates (`codegen.gpu.estimate`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.estimate import launch_estimate, occupancy, operations_per_second, waves
from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.codegen.gpu.program import ByteRange, GpuProgram, GpuStep, aligned, stretches
from fusewise.lower.program import HostStep

__all__ = ["CompiledFigures", "described_steps", "family_of", "kernel_rate", "kernel_way", "program_totals"]


class CompiledFigures(Protocol):
    """What is known of a compiled kernel: registers of a thread, bytes of shared memory of a block and of a thread's stack,
    instructions that multiply tiles, threads of a block."""

    @property
    def registers(self) -> int: ...
    @property
    def shared_bytes(self) -> int: ...
    @property
    def stack_bytes(self) -> int: ...
    @property
    def tensor_instructions(self) -> int: ...
    @property
    def threads(self) -> int: ...


def family_of(kernel: GpuKernel) -> str:
    """The family that wrote a kernel, which its symbol begins with."""
    return kernel.symbol.partition("_")[0]


def kernel_way(program: GpuProgram, step: GpuStep) -> str:
    """By which family a step is computed, and how, in a few words."""
    kernel = program.kernels[step.kernel]
    return f"{family_of(kernel)} {kernel.way}".rstrip()


def described_steps(
    program: GpuProgram,
    device: Device,
    compiled: Sequence[CompiledFigures],
    refused: Mapping[int, Sequence[str]] | None = None,
) -> list[dict[str, Any]]:
    """A row for each step; `compiled` has the figures of each of the program's kernels, `refused` by group which families did not
    accept it, and why.

    Of a group that takes several launches the one with most products, else the first, is taken for all of its operations.
    """
    launches = Counter(step.group for step in program.steps if isinstance(step, GpuStep))
    workers = _workers(program, compiled)
    rows: list[dict[str, Any]] = []
    for number, step in enumerate(program.steps):
        if isinstance(step, HostStep):
            nodes = [
                {"node": node.label, "op": node.op, "reason": why}
                for node, why in zip(step.nodes, step.reasons, strict=True)
            ]
            rows.append({"step": number, "group": step.group, "host": nodes})
            continue
        is_known = 0 <= step.group < len(program.accounts)
        account = program.accounts[step.group] if is_known else None
        operations = account.flops if account is not None and workers.get(step.group) == number else 0
        alone = account is not None and launches[step.group] == 1
        nbytes = account.nbytes if account is not None and alone else _touched((*step.reads, *step.writes))
        row = _launched(program.kernels[step.kernel], device, compiled[step.kernel], nbytes, operations)
        told = {} if refused is None else {"refused": list(refused.get(step.group, ()))}
        rows.append({"step": number, "group": step.group, "label": step.label, **row, **told})
    return rows


def _launched(
    kernel: GpuKernel, device: Device, compiled: CompiledFigures, nbytes: int, operations: int
) -> dict[str, Any]:
    held = occupancy(device, registers=compiled.registers, shared_bytes=compiled.shared_bytes, threads=compiled.threads)
    rate = kernel_rate(kernel, device, compiled)
    taken = launch_estimate(device, kernel.grid, nbytes, operations, rate, kernel.wait_us)
    return {
        "kernel": kernel.symbol,
        "family": family_of(kernel),
        "way": kernel.way,
        "grid": list(kernel.grid),
        "warps": compiled.threads // 32,
        "stages": kernel.stages,
        "registers": compiled.registers,
        "shared_bytes": compiled.shared_bytes,
        "stack_bytes": compiled.stack_bytes,
        "tensor_instructions": compiled.tensor_instructions,
        "blocks_per_sm": held.blocks,
        "occupancy": held.share,
        "occupancy_limit": held.limit,
        "waves": waves(device, kernel.grid, held.blocks),
        "bytes": nbytes,
        "operations": operations,
        "memory_us": taken.memory_us,
        "arithmetic_us": taken.arithmetic_us,
        "wait_us": taken.wait_us,
        "estimate_us": taken.us,
        "limit": _limit(taken.limit, compiled),
    }


def _limit(limit: str, compiled: CompiledFigures) -> str:
    return "tensor cores" if limit == "arithmetic" and compiled.tensor_instructions else limit


_PRECISIONS = {"tf32x3": "float32", "tf32": "tf32", "ieee": "exact"}
"""Of a word of Triton's for a product's precision what it is called here."""


def kernel_rate(kernel: GpuKernel, device: Device, compiled: CompiledFigures) -> float:
    """Operations in a second of a kernel that multiplies on tensor cores, by what its text says of products, and of others in
    float32. A product that says nothing is one of 16 bits."""
    if not compiled.tensor_instructions:
        return device.peak("float32")
    words = {_PRECISIONS[word] for word in re.findall(r'input_precision="(\w+)"', kernel.source)}
    return min(operations_per_second(device, word) for word in words or {"float16"})


def _workers(program: GpuProgram, compiled: Sequence[CompiledFigures]) -> dict[int, int]:
    """By group the step that is taken for all of its operations."""
    best: dict[int, tuple[int, int]] = {}
    for number, step in enumerate(program.steps):
        if isinstance(step, GpuStep):
            count = compiled[step.kernel].tensor_instructions
            best[step.group] = max(best.get(step.group, (-1, 0)), (count, -number))
    return {group: -number for group, (_, number) in best.items()}


def _touched(ranges: Iterable[ByteRange]) -> int:
    """Bytes of these ranges, those that are in several once."""
    total, at = 0, (-1, 0)
    for one in sorted(ranges, key=lambda one: (one.buffer, one.low)):
        begin = max(one.low, at[1]) if one.buffer == at[0] else one.low
        total += max(0, one.high - begin)
        at = one.buffer, max(begin, one.high)
    return total


def program_totals(program: GpuProgram, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a program amounts to: launches, kernels, edges between steps, graphs, host steps, bytes of the arena and of constants
    that kernels read; and the estimate of all launches one after the other, host steps and copies left out."""
    read = {one.buffer for step in program.steps if isinstance(step, GpuStep) for one in step.reads}
    constants = (program.buffers[number] for number in sorted(read))
    launched = [row for row in rows if "host" not in row]
    return {
        "launches": program.launches,
        "kernels": len(program.kernels),
        "edges": len(program.edges),
        "graphs": sum(is_launches for is_launches, _ in stretches(program.steps)),
        "host_steps": len(program.steps) - program.launches,
        "arena_bytes": program.arena_bytes,
        "constant_bytes": sum(aligned(one.nbytes) for one in constants if one.kind == "constant"),
        "spilling": sum(row["stack_bytes"] > 0 for row in launched),
        "operations": sum(row["operations"] for row in launched),
        "estimate_us": sum((row["estimate_us"] for row in launched), 0.0),
        "limits": dict(Counter(row["limit"] for row in launched).most_common()),
    }
