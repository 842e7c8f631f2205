"""Is the program for a GPU that a compiled file states consistent with itself and with what else the file holds?

As `runtime.sound` does for a CPU's: first that everything is of the sort that it should be, then `check_program`. What the machine
code of a kernel does with the memory it is given nobody can check: that is what signatures are for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.codegen.gpu.program import GpuBuffer, GpuProgram, GpuStep, check_program
from fusewise.errors import BrokenPlan
from fusewise.ir.types import TensorType
from fusewise.lower.program import Port
from fusewise.runtime.gpu.driver import Cubin
from fusewise.runtime.sound import host_step_problems, is_count, site_problems

__all__ = ["check_file"]

_PRECISIONS = ("float32", "exact", "tf32", "float16", "bfloat16")
_ARCHITECTURE = re.compile(r"sm_\d{2,3}[af]?", re.ASCII)
_SYMBOL = re.compile(r"[A-Za-z_]\w{0,200}", re.ASCII)
_MOST_SHARED_BYTES = 1 << 18
_MOST_THREADS = 1024
_MOST_HIDDEN = 8
_MOST_WARPS, _MOST_STAGES = 32, 32
_ELF = b"\x7fELF"


def check_file(program: GpuProgram, cubins: Sequence[Cubin], constants: Mapping[int, int]) -> None:
    """Raise `ValueError` with a sentence on the first thing that does not fit. `constants` are the bytes of each constant in the
    file, by the number of its buffer."""
    for problem in _problems(program, cubins, constants):
        raise ValueError(problem)
    try:
        check_program(program)
    except BrokenPlan as error:
        raise ValueError(str(error)) from error


def _problems(program: GpuProgram, cubins: Sequence[Cubin], constants: Mapping[int, int]) -> Iterator[str]:
    if not isinstance(program.device, str) or not _ARCHITECTURE.fullmatch(program.device):
        yield f"it is made for {program.device!r}"
    if program.precision not in _PRECISIONS:
        yield f"it computes in {program.precision!r}"
    if not is_count(program.arena_bytes) or not is_count(program.groups):
        yield f"an arena of {program.arena_bytes!r} bytes for {program.groups!r} groups cannot be"
    if not all(isinstance(domain, str) and is_count(version) for domain, version in program.opsets):
        yield "its opsets have no versions"
    for number, buffer in enumerate(program.buffers):
        yield from _of_buffer(number, buffer, constants)
    if set(constants) != {number for number, buffer in enumerate(program.buffers) if buffer.kind == "constant"}:
        yield "its constants are not those that it has buffers for"
    if sum(buffer.kind == "fault" for buffer in program.buffers) > 1:
        yield "it has several places for what is wrong with data"
    if len(cubins) != len(program.kernels):
        yield f"it has {len(cubins)} compiled kernels of {len(program.kernels)}"
    for kernel, cubin in zip(program.kernels, cubins, strict=False):
        yield from _of_kernel(kernel)
        yield from _of_cubin(kernel, cubin)
    yield from _of_ports(program)
    yield from _of_steps(program)


def _of_buffer(number: int, buffer: GpuBuffer, constants: Mapping[int, int]) -> Iterator[str]:
    where = f"buffer {number}"
    if not is_count(buffer.nbytes) or not is_count(buffer.offset):
        yield f"{where} has {buffer.nbytes!r} bytes at {buffer.offset!r}"
    if not isinstance(buffer.kind, str) or not isinstance(buffer.value, str):
        yield f"{where} is of no kind"
    if buffer.kind == "constant" and constants.get(number) != buffer.nbytes:
        yield f"{where} has {buffer.nbytes:,} bytes, and the file {constants.get(number)} for it"
    if buffer.kind == "fault" and buffer.nbytes % 16:
        yield f"{where} has no words for what is wrong with data"


def _of_kernel(kernel: GpuKernel) -> Iterator[str]:
    texts = (kernel.source, kernel.way, *kernel.arguments, *kernel.types)
    if not isinstance(kernel.symbol, str) or not _SYMBOL.fullmatch(kernel.symbol):
        yield f"a kernel is called {kernel.symbol!r}"
    if not all(isinstance(text, str) for text in texts):
        yield f"kernel {kernel.symbol!r} is none"
    if not len(kernel.arguments) == len(kernel.types) == len(kernel.alignments):
        yield f"kernel {kernel.symbol!r} has {len(kernel.arguments)} arguments, and others"
    if not all(is_count(one) and one for one in (*kernel.alignments, *kernel.grid)) or not kernel.grid:
        yield f"kernel {kernel.symbol!r} has a grid of {kernel.grid!r}"
    plain = is_count(kernel.warps) and is_count(kernel.stages)
    if not plain or not 1 <= kernel.warps <= _MOST_WARPS or kernel.stages > _MOST_STAGES:
        yield f"kernel {kernel.symbol!r} has {kernel.warps!r} warps"


def _of_cubin(kernel: GpuKernel, cubin: Cubin) -> Iterator[str]:
    where = f"the compiled kernel {cubin.symbol!r}"
    figures = (cubin.registers, cubin.shared_bytes, cubin.stack_bytes, cubin.tensor_instructions, cubin.hidden)
    if cubin.symbol != kernel.symbol or cubin.parameters != len(kernel.arguments):
        yield f"{where} is not that of {kernel.symbol!r}"
    if not isinstance(cubin.architecture, str) or not _ARCHITECTURE.fullmatch(cubin.architecture):
        yield f"{where} is for {cubin.architecture!r}"
    if not all(map(is_count, figures)) or cubin.shared_bytes > _MOST_SHARED_BYTES or cubin.hidden > _MOST_HIDDEN:
        yield f"{where} takes {cubin.shared_bytes!r} bytes of shared memory, and {cubin.hidden!r} hidden pointers"
    if not is_count(cubin.threads) or not 1 <= cubin.threads <= _MOST_THREADS:
        yield f"{where} has {cubin.threads!r} threads"
    if not cubin.image.startswith(_ELF):
        yield f"{where} is no machine code"


def _of_ports(program: GpuProgram) -> Iterator[str]:
    names = [port.name for port in program.inputs]
    if len(set(names)) != len(names):
        yield "its inputs are not called by different names"
    for port in program.inputs:
        nbytes = _bytes_of(port, program.buffers)
        if nbytes is None or program.buffers[port.buffer].kind != "input":
            yield f"input {port.name!r} lies nowhere"
        elif nbytes != program.buffers[port.buffer].nbytes:
            yield f"input {port.name!r} has {nbytes:,} bytes, and room for {program.buffers[port.buffer].nbytes:,}"
    made = {name for name, _ in program.objects}
    made.update(
        name for step in program.steps if not isinstance(step, GpuStep) for name, place, _ in step.writes if not place
    )
    for port in program.outputs:
        if port.buffer == -1 and port.name in made:
            continue
        nbytes = _bytes_of(port, program.buffers)
        if nbytes is None or program.buffers[port.buffer].kind == "fault":
            yield f"output {port.name!r} lies nowhere"
        elif nbytes > program.buffers[port.buffer].nbytes:
            yield f"output {port.name!r} has {nbytes:,} bytes, and room for {program.buffers[port.buffer].nbytes:,}"


def _bytes_of(port: Port, buffers: Sequence[GpuBuffer]) -> int | None:
    """Of a tensor that lies in a buffer; None for anything else."""
    kind = port.type
    plain = isinstance(port.name, str) and type(port.buffer) is int and 0 <= port.buffer < len(buffers)
    if not plain or port.contents or not isinstance(kind, TensorType):
        return None
    shape = kind.shape
    if shape is None or not all(map(is_count, shape)) or kind.dtype.kind == "string":
        return None
    return int(kind.nbytes)


def _of_steps(program: GpuProgram) -> Iterator[str]:
    known = {name for name, _ in program.objects}
    for number, step in enumerate(program.steps):
        where = f"step {number}"
        if not isinstance(step.group, int) or step.group < -1:
            yield f"{where} belongs to no group"
        if not isinstance(step, GpuStep):
            yield from host_step_problems(where, step, program.buffers, known)
            known.update(name for name, place, _ in step.writes if place is None)
            continue
        if type(step.kernel) is not int or not isinstance(step.label, str):
            yield f"{where} launches no kernel"
        ranges = (*step.reads, *step.writes)
        numbers: list[Any] = [
            value for one in ranges for value in (one.buffer, one.low, one.high, one.period, one.width)
        ]
        numbers += [value for place in step.arguments for value in (place.buffer, place.offset)]
        if not all(map(is_count, numbers)) or any(place.strides is not None for place in step.arguments):
            yield f"{where} touches what cannot be"
        elif any(place.buffer >= len(program.buffers) for place in step.arguments):
            yield f"{where} names a buffer that does not exist"
        else:
            yield from site_problems(where, step, program.buffers)
