"""GPUs as data: one row for each architecture that kernels are written for. Nothing here asks the machine.

Per multiprocessor (shared memory, registers, threads, blocks): CUDA Programming Guide, appendix "Compute Capabilities". Of the
product that stands for an architecture (multiprocessors, level-2 cache, bandwidth, peaks without sparsity) the maker's data
sheets:

- sm_80: A100 40 GB SXM, "NVIDIA A100 Tensor Core GPU Architecture" (2020)
- sm_86: A10, its data sheet (2022), and "NVIDIA Ampere GA102 GPU Architecture" for the cache
- sm_89: L40S, its data sheet (2023), and "NVIDIA Ada GPU Architecture" for the cache
- sm_90: H100 SXM, "NVIDIA H100 Tensor Core GPU Architecture" (2022)
- sm_100: B200 in an HGX board, "NVIDIA Blackwell Architecture Technical Brief" (2024); multiprocessors and cache as Chips
  and Cheese read them from one (2025)

What a launch inside a graph takes is no figure of the maker's: 3 us is an estimate, until it is measured where there is a GPU.
"""

from __future__ import annotations

import re

from fusewise.errors import UsageError
from fusewise.records import record

__all__ = ["CPU", "DEVICES", "DEVICE_TEXTS", "Device", "DeviceChoice", "device_choice", "device_named"]

_LAUNCH_US = 3.0


@record(frozen=True)
class Device:
    """An architecture, and the product that stands for it.

    Shared memory and the cache in bytes, registers of 32 bits, `bytes_per_second` of the device's memory; `peaks` has operations
    in a second by type: float32 without tensor cores, the others with them and dense. `launch_us`: between two kernels of a graph.
    """

    name: str
    product: str
    sms: int
    shared_per_sm: int
    shared_per_block: int
    threads_per_sm: int
    l2_bytes: int
    bytes_per_second: float
    peaks: tuple[tuple[str, float], ...]
    registers_per_sm: int = 1 << 16
    blocks_per_sm: int = 32
    launch_us: float = _LAUNCH_US

    def peak(self, kind: str) -> float:
        """Operations in a second of one of `float32 tf32 float16 bfloat16`; `KeyError` for others."""
        return dict(self.peaks)[kind]

    @property
    def capability(self) -> int:
        """80 of sm_80."""
        return int(self.name.removeprefix("sm_"))


def _peaks(float32: float, tf32: float, half: float) -> tuple[tuple[str, float], ...]:
    """From figures in TFLOP/s."""
    figures = {"float32": float32, "tf32": tf32, "float16": half, "bfloat16": half}
    return tuple((kind, figure * 1e12) for kind, figure in figures.items())


_KIB, _MIB = 1 << 10, 1 << 20

DEVICES: tuple[Device, ...] = (
    Device("sm_80", "A100", 108, 164 * _KIB, 163 * _KIB, 2048, 40 * _MIB, 1.555e12, _peaks(19.5, 156, 312)),
    Device(
        "sm_86", "A10", 72, 100 * _KIB, 99 * _KIB, 1536, 6 * _MIB, 0.6e12, _peaks(31.2, 62.5, 125), blocks_per_sm=16
    ),
    Device(
        "sm_89", "L40S", 142, 100 * _KIB, 99 * _KIB, 1536, 96 * _MIB, 0.864e12, _peaks(91.6, 183, 362), blocks_per_sm=24
    ),
    Device("sm_90", "H100", 132, 228 * _KIB, 227 * _KIB, 2048, 50 * _MIB, 3.35e12, _peaks(66.9, 494.7, 989.4)),
    Device("sm_100", "B200", 148, 228 * _KIB, 227 * _KIB, 2048, 126 * _MIB, 8e12, _peaks(75, 1100, 2250)),
)


def device_named(name: str) -> Device:
    """The row called `name`; `UsageError` when there is none."""
    for device in DEVICES:
        if device.name == name:
            return device
    known = ", ".join(device.name for device in DEVICES)
    raise UsageError(f"there is no GPU architecture {name!r}: choose one of {known}")


# --- as users say it ------------------------------------------------------------------------------------------------------

CPU = "cpu"

DEVICE_TEXTS: tuple[str, ...] = (CPU, "cuda", *(f"cuda:{device.name}" for device in DEVICES))
"""What `device_choice` reads, beside `cuda:1` and so on."""


@record(frozen=True)
class DeviceChoice:
    """What a model is to run on: the CPU, the GPU with a `number` here, or any of an `architecture` by name (`sm_90`; empty for
    that of the GPU)."""

    is_gpu: bool = False
    number: int = 0
    architecture: str = ""

    @property
    def text(self) -> str:
        """As a user writes it."""
        if not self.is_gpu:
            return CPU
        return f"cuda:{self.architecture}" if self.architecture else f"cuda:{self.number}" if self.number else "cuda"


def device_choice(text: str) -> DeviceChoice:
    """`cpu`, `cuda` (GPU number 0), `cuda:1` or `cuda:sm_90` as a choice; `UsageError` for anything else."""
    if text == CPU:
        return DeviceChoice()
    kind, colon, rest = text.partition(":")
    if kind != "cuda" or (colon and not re.fullmatch(r"sm_\w+|\d{1,3}", rest, re.ASCII)):
        raise UsageError(
            f"there is no device {text!r}: choose one of {', '.join(DEVICE_TEXTS)}, or cuda:1 for GPU number 1"
        )
    if rest.startswith("sm_"):
        return DeviceChoice(is_gpu=True, architecture=device_named(rest).name)
    return DeviceChoice(is_gpu=True, number=int(rest or 0))
