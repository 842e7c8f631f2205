"""A kernel for a GPU as data: a Triton function's text, and how it is launched."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from fusewise.ir.dtypes import DType
from fusewise.ir.graph import Constant
from fusewise.lower.program import Packing
from fusewise.lower.task import Task
from fusewise.records import record

__all__ = [
    "FAULT",
    "IMPORTS",
    "POINTERS",
    "SCRATCH",
    "STEP",
    "STEP_BYTES",
    "GpuKernel",
    "NoKernel",
    "arguments_of",
    "pointer_type",
    "task_of",
]

IMPORTS = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n"
"""What has to stand before a kernel's source. Triton's interpreter has no libdevice; there NumPy's functions stand for it."""

SCRATCH = "scratch"
"""The argument that points to a kernel's working memory."""
STEP = "step"
"""The argument that points to the number of a launch among those of one kernel: int32, at the beginning of the working memory,
which a launch before them fills."""
STEP_BYTES = 4
FAULT = "fault"
"""The argument of two int64 to a site: 1 once a position from data was out of bounds there, and the position."""

_WORDS = (
    "float32 fp32 float64 fp64 float16 fp16 bfloat16 bf16 bool i8 int8 i8 int16 i16 int32 i32 int64 i64 int4 i8 int2 i8 "
    "uint8 u8 uint16 u16 uint32 u32 uint64 u64 uint4 u8 uint2 u8"
).split()

POINTERS: Mapping[str, str] = MappingProxyType(dict(zip(_WORDS[::2], _WORDS[1::2], strict=True)))
"""What Triton's signatures call an element in memory, by the name of its type. Floats of a byte are bit patterns (`u8`)."""


class NoKernel(Exception):
    """Why a kernel cannot be written: a phrase."""


@record(frozen=True)
class GpuKernel:
    """One launch, and those that have to come right behind it (`then`).

    `arguments` are the task's operands by name, in order, then `fault` where it reads positions from data, then `scratch` where
    `scratch_bytes` are needed, then `step` and tables; `types` has what each points to (`POINTERS`), and `alignments` what its
    address is a multiple of, in bytes. `grid` is in blocks, each of `warps` warps of 32 threads; `stages`: how many steps of a
    loop are loaded ahead. `way` says for people what it does. `source` is complete but for `IMPORTS`. Of constants that it wants
    rearranged, `packed` says how, by the operand's name, and how large they become: the argument then points to the beginning of
    what is made of the whole constant. `tables` are constants of its own, by the argument that points to each; those of the first
    launch are for the ones behind it, too. `step` is the number that its argument `step` points to.
    `wait_us`: what turns that wait for each other are estimated to take, whatever bytes and operations come to. `family`: who wrote
    it, of those that there are to choose of, in a program; a file does not keep that.
    """

    symbol: str
    source: str
    arguments: tuple[str, ...]
    types: tuple[str, ...]
    alignments: tuple[int, ...]
    grid: tuple[int, ...]
    warps: int = 4
    stages: int = 2
    way: str = ""
    scratch_bytes: int = 0
    then: tuple[GpuKernel, ...] = ()
    packed: tuple[tuple[str, Packing], ...] = field(default=(), compare=False)
    tables: tuple[tuple[str, Constant], ...] = field(default=(), compare=False)
    family: str = field(default="", compare=False)
    step: int = field(default=0, compare=False)
    wait_us: float = field(default=0.0, compare=False)


def pointer_type(dtype: DType) -> str:
    """What an argument points to whose elements are of `dtype`; `NoKernel` where no kernel computes on these."""
    if dtype.is_float and dtype.bits <= 8:
        return "u8"
    if dtype.name not in POINTERS:
        raise NoKernel(f"no kernel computes on {dtype.name}")
    return POINTERS[dtype.name]


def arguments_of(task: Task) -> dict[str, tuple[str, int]]:
    """A kernel's arguments but for working memory: what each points to, and on what boundary."""
    found = {operand.name: (pointer_type(operand.dtype), operand.alignment) for operand in task.operands}
    return found | ({FAULT: ("i64", 16)} if task.sites else {})


_DIGEST = re.compile(r"(?:^|_)([0-9a-f]{20})(?:_|$)")


def task_of(kernel: GpuKernel) -> str:
    """The digest of the task that a kernel is for, which stands in its symbol; empty for one that was written by hand."""
    found = _DIGEST.search(kernel.symbol)
    return "" if found is None else found[1]
