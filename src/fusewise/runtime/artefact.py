"""A compiled model as one file: its program, machine code and packed weights. Opening it compiles nothing and packs nothing.

The manifest (`runtime.container`) of a model for a CPU states the CPU the code was compiled for and its features, the program, and
whose each section is: kernels', the worker pool's, and constants'. A CPU of which the system says the same as of the maker's is not
looked at by LLVM, and most files are opened without it. That of a model for a GPU is `runtime.gpu.artefact`'s.
There is no pickle; still, an artefact is machine code: open only what you trust as you would a program. What it states beside
the code is checked (`runtime.sound`), and it may be signed (`runtime.signing`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fusewise.codegen.gpu.device import CPU
from fusewise.codegen.target import Target
from fusewise.errors import UnsupportedModel, UsageError
from fusewise.records import record
from fusewise.runtime import container
from fusewise.runtime.container import Container, understood
from fusewise.runtime.elf import Unlinkable
from fusewise.runtime.host import host_target, processor, target_of
from fusewise.runtime.resident import Resident
from fusewise.runtime.sound import check_notes, check_program
from fusewise.runtime.threads import pool_image, use_image

if TYPE_CHECKING:
    from fusewise.runtime.executable import Contents, Executable
    from fusewise.runtime.gpu.runner import GpuRunner
    from fusewise.runtime.gpu.sized import SizedPrograms

__all__ = ["Artefact", "as_bytes", "read", "write"]

_GPU = "gpu"
"""What the manifest of a model for a GPU has (`runtime.gpu.artefact.MARK`, which most files are read without)."""


@record(frozen=True)
class Artefact:
    """What a file holds: a model ready to run, and the `notes` its writer added (plain JSON)."""

    executable: Executable | GpuRunner | SizedPrograms
    notes: Mapping[str, Any]


def write(
    path: Path,
    executable: Executable | GpuRunner | SizedPrograms,
    notes: Mapping[str, Any],
    version: str,
    *,
    settled: bool = True,
    sign: Callable[[bytes], bytes] | None = None,
) -> None:
    """Write a compiled model; see `container` for `version`, `settled`, `sign` and errors."""
    container.write(path, _parts(executable, notes, version, sign), settled=settled)


def as_bytes(executable: Executable | GpuRunner | SizedPrograms, notes: Mapping[str, Any], version: str) -> bytes:
    """What `write` writes."""
    return b"".join(_parts(executable, notes, version, None))


def _parts(
    executable: Executable | GpuRunner | SizedPrograms,
    notes: Mapping[str, Any],
    version: str,
    sign: Callable[[bytes], bytes] | None,
) -> Iterator[bytes | memoryview]:
    if executable.device != CPU:
        from fusewise.runtime.gpu.artefact import parts

        return parts(cast("GpuRunner", executable), notes, version, sign)
    executable = cast("Executable", executable)
    from fusewise.runtime.program_json import program_to_json

    contents = executable.contents
    constants = sorted(contents.constants)
    sections = [memoryview(image) for image in (*contents.images, pool_image())]
    sections += [contents.constants[number].data for number in constants]
    target = contents.target
    said = {
        "target": {"triple": target.triple, "cpu": target.cpu, "features": target.features},
        "processor": processor(),
        "program": program_to_json(contents.program),
        "kernels": list(contents.symbols),
        "constants": constants,
        "notes": dict(notes),
    }
    return container.written(version, said, sections, sign)


def read(found: Container, *, threads: int | None = None, device: str | None = None) -> Artefact:
    """Put together what a container holds, while it is read. `device` says where that of a GPU is to run (`runtime.gpu.artefact`).

    Raises what `Container.sections` does, `InvalidModel` when its parts do not fit each other, and `UnsupportedModel` when it was
    made for a CPU with features this one lacks.
    """
    if _GPU in found.manifest:
        from fusewise.runtime.gpu.artefact import read as read_for_gpu

        runner = read_for_gpu(found, device)
        with understood(found.path):
            check_notes(found.manifest["notes"])
        return Artefact(runner, found.manifest["notes"])
    if device not in (None, CPU):
        raise UsageError(f"{found.path} was compiled for a CPU, not for {device}: compile the model for that")
    with Resident() as resident:
        with understood(found.path):
            resident.start(int(found.manifest["program"]["arena_bytes"]))
        from fusewise.runtime.executable import restored

        with understood(found.path):
            contents = _contents(found)
            notes = found.manifest["notes"]
            check_notes(notes)
            try:
                return Artefact(restored(contents, threads, resident), notes)
            except Unlinkable as error:
                raise ValueError(str(error)) from error


def _contents(found: Container) -> Contents:
    """What the manifest describes."""
    from fusewise.runtime.executable import Contents
    from fusewise.runtime.program_json import program_from_json

    manifest = found.manifest
    made = manifest["target"]
    if manifest["processor"] != processor() or not manifest["processor"]:
        _check_fit(found.path, made, host_target())
    features = str(made["features"])
    target = replace(target_of(made["triple"], made["cpu"], _present(features)), features=features)
    program = program_from_json(manifest["program"])
    symbols = tuple(manifest["kernels"])
    sections = found.sections()
    *images, pool = (bytes(section) for section in sections[: len(symbols) + 1])
    weights = (np.frombuffer(section, np.uint8) for section in sections[len(symbols) + 1 :])
    constants = dict(zip(manifest["constants"], weights, strict=True))
    check_program(program, symbols, {number: block.nbytes for number, block in constants.items()})
    use_image(pool)
    return Contents(program, symbols, tuple(images), constants, target)


def _check_fit(path: Path, made: Mapping[str, Any], host: Target) -> None:
    """Refuse what this CPU cannot run."""
    if made["triple"] != host.triple:
        raise UnsupportedModel(f"{path} was compiled for {made['triple']}, and this is {host.triple}: compile it here")
    missing = sorted(_present(made["features"]) - _present(host.features))
    if missing:
        shown = ", ".join(missing[:6]) + (" and more" if len(missing) > 6 else "")
        raise UnsupportedModel(f"{path} was compiled for a {made['cpu']}; this CPU lacks {shown}: compile it here")


def _present(features: str) -> set[str]:
    return {name[1:] for name in features.split(",") if name.startswith("+")}
