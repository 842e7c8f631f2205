"""The folder that is carried to the machine with the GPU: machine code, and some elements of what every step has to write.

    about.json      what it was made for and with, and the cases
    cubins.zip      every kernel's machine code, by what the kernel is
    CASE.npz        of one case: where elements of results lie, and their values

Weights are not carried: they are random, and made again there.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.codegen.gpu.program import GpuProgram
from fusewise.errors import InvalidData
from fusewise.files import written_whole
from fusewise.runtime.gpu.driver import Cubin

__all__ = ["Expected", "cubins_in", "expected_in", "fingerprint", "keep_cubins", "keep_expected", "kernel_key"]

CUBINS = "cubins.zip"
_LOOKED_AT = 1 << 16
"""Bytes at the beginning of each constant that a fingerprint is of."""


@dataclass(frozen=True)
class Expected:
    """Elements of an array that a step writes. They lie `offsets` bytes (int64[n]) behind the step's argument number `argument`,
    are of type `dtype`, and are `values` (float64[n]); `scale` is the largest magnitude of the whole array."""

    step: int
    argument: int
    dtype: str
    scale: float
    offsets: np.ndarray
    values: np.ndarray


def kernel_key(kernel: GpuKernel, exact: bool) -> str:
    """Names all that a kernel's machine code depends on, but for the device."""
    launched = (kernel.symbol, kernel.types, kernel.alignments, kernel.warps, kernel.stages, exact, kernel.source)
    return hashlib.blake2b(repr(launched).encode(), digest_size=16).hexdigest()


def fingerprint(program: GpuProgram) -> str:
    """Tells weights apart: a hash over how each constant begins."""
    state = hashlib.blake2b(digest_size=16)
    for buffer in program.buffers:
        if buffer.data is not None:
            array = np.ascontiguousarray(buffer.data.array.reshape(-1)[: _LOOKED_AT // buffer.data.dtype.itemsize])
            state.update(array.view(np.uint8).data)
    return state.hexdigest()


def keep_cubins(folder: Path, cubins: Mapping[str, Cubin]) -> None:
    """Write machine code by key."""
    with written_whole(folder / CUBINS) as (draft,), zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as file:
        for key, cubin in cubins.items():
            figures: dict[str, Any] = asdict(cubin)
            image: bytes = figures.pop("image")
            file.writestr(key, json.dumps(figures).encode() + b"\n" + image)


def cubins_in(folder: Path, keys: Iterable[str]) -> list[Cubin]:
    """The machine code of some kernels; `InvalidData` where one is not there."""
    found = []
    with zipfile.ZipFile(folder / CUBINS) as file:
        for key in keys:
            try:
                figures, image = file.read(key).split(b"\n", 1)
            except KeyError:
                raise InvalidData(
                    f"{folder} lacks a kernel of this model: it was prepared by another version of the program"
                ) from None
            found.append(Cubin(image=image, **json.loads(figures)))
    return found


def keep_expected(folder: Path, case: str, some: Iterable[Expected]) -> None:
    """Write what the steps of a case have to write."""
    arrays: dict[str, np.ndarray] = {}
    rows = []
    for number, one in enumerate(some):
        rows.append([one.step, one.argument, one.dtype, one.scale])
        arrays |= {f"offsets{number}": one.offsets, f"values{number}": one.values}
    arrays["rows"] = np.frombuffer(json.dumps(rows).encode(), np.uint8)
    with written_whole(folder / f"{case}.npz") as (draft,), draft.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def expected_in(folder: Path, case: str) -> list[Expected]:
    """What `keep_expected` wrote."""
    with np.load(folder / f"{case}.npz", allow_pickle=False) as arrays:
        rows = json.loads(arrays["rows"].tobytes())
        return [Expected(*row, arrays[f"offsets{k}"], arrays[f"values{k}"]) for k, row in enumerate(rows)]
