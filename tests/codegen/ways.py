"""Kernels as tests ask for them: what they refuse, and how they would run a task."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from fusewise.codegen.kernel import Implementation, Kernel
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.build import Module
from fusewise.codegen.nest.verify import verify
from fusewise.codegen.target import InstructionSet, Target
from fusewise.lower.task import RefusalReason, Task
from fusewise.runtime.jit import compile_object, load

__all__ = ["machine_code", "program_of", "refusal", "scheduled", "text_of", "way", "ways"]


def refusal(kernel: Kernel[Any, Any], task: Task, target: Target) -> RefusalReason | None:
    """Why a kernel does not run a task; None where it does."""
    found = kernel.implementations(task, target)
    return found if isinstance(found, RefusalReason) else None


def ways(kernel: Kernel[Any, Any], task: Task, target: Target, most: int | None = None) -> Sequence[Implementation]:
    """All ways that a kernel knows to run a task, or the first ones."""
    found = kernel.implementations(task, target)
    assert not isinstance(found, RefusalReason), found
    return list(islice(found, most))


def way(kernel: Kernel[Any, Any], task: Task, target: Target) -> Implementation:
    """The analytic favourite."""
    return ways(kernel, task, target, 1)[0]


def scheduled(kernel: Kernel[Any, Any], task: Task, target: Target, schedule: Any) -> Implementation:
    """The task by a schedule of one's own, which the kernel need not like; it has to understand the task."""
    understood = kernel.understand(task, target.instructions)
    assert not isinstance(understood, RefusalReason), understood
    return Implementation(kernel, task, understood, schedule)


def program_of(found: Implementation, instructions: InstructionSet, symbol: str) -> Module:
    """The program of a way to run a task, which keeps the rules."""
    module = found.build(instructions, symbol)
    verify(module)
    return module


def text_of(found: Implementation, instructions: InstructionSet, symbol: str) -> str:
    """The LLVM IR of a way to run a task."""
    return llvm_text(program_of(found, instructions, symbol), instructions)


def machine_code(module: Module, target: Target) -> Callable[..., None]:
    """The function `f` of a module, of three pointers, as this machine runs it."""
    library = load([compile_object(llvm_text(module, target), target, "full")], ["f"])
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(library.addresses["f"])
    call.library = library  # type: ignore[attr-defined]  # lives as long as the function
    return call
