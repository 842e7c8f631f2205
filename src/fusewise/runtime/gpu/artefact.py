"""A model for a GPU as a compiled file: its program, cubins and packed constants. It opens without Triton, and without a GPU.

`runtime.artefact` knows which files these are; what is in them, and what of it is checked, is here (`runtime.gpu.sound`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from fusewise.codegen.gpu.device import DeviceChoice, device_choice
from fusewise.errors import UnsupportedModel, UsageError
from fusewise.runtime import container
from fusewise.runtime.container import Container, understood
from fusewise.runtime.gpu import drivers
from fusewise.runtime.gpu.driver import Driver
from fusewise.runtime.gpu.program_json import (
    cubin_from_json,
    cubin_to_json,
    gpu_program_from_json,
    gpu_program_to_json,
)
from fusewise.runtime.gpu.runner import GpuContents, GpuRunner
from fusewise.runtime.gpu.sized import SizedPrograms
from fusewise.runtime.gpu.sized_artefact import PROGRAMS, sized_from, sized_stated
from fusewise.runtime.gpu.sound import check_file

__all__ = ["MARK", "parts", "read"]

MARK = "gpu"
"""What the manifest of such a file has."""

_UNCOMPILED = "a model whose kernels were not compiled cannot be kept in a file"


def parts(
    runner: GpuRunner | SizedPrograms, notes: Mapping[str, Any], version: str, sign: Callable[[bytes], bytes] | None
) -> Iterator[bytes | memoryview]:
    """The bytes of a file, part by part; see `container.written`."""
    if isinstance(runner, SizedPrograms):
        if any(one.cubins is None for one in runner.contents.values()):
            raise UnsupportedModel(_UNCOMPILED)
        stated, figures, blocks = sized_stated(runner)
        return container.written(version, {MARK: stated, "cubins": figures, "notes": dict(notes)}, blocks, sign)
    program, cubins = runner.contents.program, runner.contents.cubins
    if cubins is None:
        raise UnsupportedModel(_UNCOMPILED)
    constants = [number for number, buffer in enumerate(program.buffers) if buffer.kind == "constant"]
    sections = [memoryview(cubin.image) for cubin in cubins]
    for number in constants:
        data = program.buffers[number].data
        assert data is not None
        sections.append(np.ascontiguousarray(data.array).data)
    said = {
        MARK: gpu_program_to_json(program),
        "cubins": [cubin_to_json(cubin) for cubin in cubins],
        "constants": constants,
        "notes": dict(notes),
    }
    return container.written(version, said, sections, sign)


def read(found: Container, device: str | None = None) -> GpuRunner | SizedPrograms:
    """What a container holds, to be run on a `device` as users write it; None for the GPU that is here. No driver is opened.

    Raises what `Container.sections` does, `InvalidModel` when its parts do not fit each other, and `UsageError` for a device that
    it was not compiled for.
    """
    sections = found.sections()
    choice = DeviceChoice(is_gpu=True) if device is None else device_choice(device)

    def opener(architecture: str) -> Callable[[], Driver]:
        wanted = DeviceChoice(is_gpu=True, number=choice.number, architecture=architecture)
        return lambda: drivers.opened(wanted)

    with understood(found.path):
        if PROGRAMS in found.manifest[MARK]:
            runner: GpuRunner | SizedPrograms = sized_from(
                found.manifest[MARK], found.manifest["cubins"], sections, opener
            )
        else:
            contents = _contents(found.manifest, sections)
            runner = GpuRunner(contents, opener(contents.program.device))
    if not choice.is_gpu or choice.architecture not in ("", runner.device.partition(":")[2]):
        raise UsageError(
            f"{found.path} was compiled for {runner.device}, not for {choice.text}: compile the model for that"
        )
    return runner


def _contents(manifest: Mapping[str, Any], sections: list[memoryview]) -> GpuContents:
    figures, numbers = manifest["cubins"], manifest["constants"]
    images, blocks = sections[: len(figures)], sections[len(figures) :]
    cubins = tuple(cubin_from_json(one, bytes(image)) for one, image in zip(figures, images, strict=True))
    constants = {number: np.frombuffer(block, np.uint8) for number, block in zip(numbers, blocks, strict=True)}
    if len(constants) != len(numbers):
        raise ValueError("it has a constant twice")
    program = gpu_program_from_json(manifest[MARK], constants)
    check_file(program, cubins, {number: block.nbytes for number, block in constants.items()})
    return GpuContents(program, cubins)
