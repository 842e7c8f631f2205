"""A program for a GPU as JSON and back, with its kernels' texts and the figures of what they were compiled to.

Machine code and the data of constants lie elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.codegen.gpu.program import ByteRange, GpuBuffer, GpuProgram, GpuStep
from fusewise.ir.graph import Constant
from fusewise.lower.program import HostStep, Place
from fusewise.runtime.gpu.driver import Cubin
from fusewise.runtime.program_json import ProgramReader, host_to_json, objects_to_json, port_to_json, sites_to_json

__all__ = ["cubin_from_json", "cubin_to_json", "gpu_program_from_json", "gpu_program_to_json"]

Json = dict[str, Any]

_TEXTS = ("symbol", "source", "warps", "stages", "way")
_LISTS = ("arguments", "types", "alignments", "grid")
_CUBIN = tuple(field.name for field in fields(Cubin) if field.name != "image")


def gpu_program_to_json(program: GpuProgram) -> Json:
    """Everything but the data of constants, which are packed."""
    return {
        "device": program.device,
        "precision": program.precision,
        "kernels": [_kernel(kernel) for kernel in program.kernels],
        "steps": [host_to_json(step) if isinstance(step, HostStep) else _launch(step) for step in program.steps],
        "buffers": [[one.kind, one.nbytes, one.offset, one.value] for one in program.buffers],
        "inputs": [port_to_json(port) for port in program.inputs],
        "outputs": [port_to_json(port) for port in program.outputs],
        "arena_bytes": program.arena_bytes,
        "groups": program.groups,
        "opsets": [list(pair) for pair in program.opsets],
        "objects": objects_to_json(program.objects),
    }


def gpu_program_from_json(found: Json, constants: Mapping[int, np.ndarray | Constant]) -> GpuProgram:
    """The program, with `constants` (uint8) by the number of their buffer. `KeyError`, `TypeError` or `ValueError` when `found`
    is not one."""
    read = ProgramReader({})
    return GpuProgram(
        device=found["device"],
        precision=found["precision"],
        kernels=tuple(map(_kernel_from, found["kernels"])),
        steps=tuple(read.host(step) if "nodes" in step else _launch_from(step, read) for step in found["steps"]),
        buffers=tuple(_buffer_from(constants.get(k), *buffer) for k, buffer in enumerate(found["buffers"])),
        inputs=tuple(read.port(port) for port in found["inputs"]),
        outputs=tuple(read.port(port) for port in found["outputs"]),
        arena_bytes=found["arena_bytes"],
        groups=found["groups"],
        opsets=tuple((domain, version) for domain, version in found["opsets"]),
        objects=tuple((name, read.object(one)) for name, one in found["objects"].items()),  # type: ignore[misc]  # no sizes
    )


def cubin_to_json(cubin: Cubin) -> Json:
    """A compiled kernel's figures, without its image."""
    return {name: getattr(cubin, name) for name in _CUBIN}


def cubin_from_json(found: Json, image: bytes) -> Cubin:
    """The compiled kernel."""
    return Cubin(image=image, **{name: found[name] for name in _CUBIN})


def _kernel(kernel: GpuKernel) -> Json:
    plain = {name: getattr(kernel, name) for name in _TEXTS}
    return {**plain, **{name: list(getattr(kernel, name)) for name in _LISTS}}


def _kernel_from(found: Json) -> GpuKernel:
    stated: Json = {name: found[name] for name in _TEXTS} | {name: tuple(found[name]) for name in _LISTS}
    return GpuKernel(**stated)


def _launch(step: GpuStep) -> Json:
    return {
        "kernel": step.kernel,
        "arguments": [[place.buffer, place.offset] for place in step.arguments],
        "reads": _ranges(step.reads),
        "writes": _ranges(step.writes),
        "label": step.label,
        "group": step.group,
        "sites": sites_to_json(step.sites),
    }


def _ranges(ranges: Sequence[ByteRange]) -> list[list[int]]:
    return [[one.buffer, one.low, one.high, one.period, one.width] for one in ranges]


def _launch_from(found: Json, read: ProgramReader) -> GpuStep:
    return GpuStep(
        found["kernel"],
        tuple(Place(buffer, offset) for buffer, offset in found["arguments"]),
        tuple(ByteRange(*one) for one in found["reads"]),
        tuple(ByteRange(*one) for one in found["writes"]),
        found["label"],
        found["group"],
        read.sites(found["sites"]),
    )


def _buffer_from(contents: np.ndarray | Constant | None, kind: str, nbytes: int, offset: int, value: str) -> GpuBuffer:
    data = Constant(contents) if isinstance(contents, np.ndarray) else contents
    return GpuBuffer(kind, nbytes, offset, value, data)
