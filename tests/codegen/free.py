"""Kernels of tasks whose sizes are not known, built at hints and run at numbers between guard pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tests.codegen.conftest import Loaded, at_once, in_pieces
from tests.codegen.ways import program_of

from fusewise.codegen.kernel import Implementation, Kernel
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.target import Target
from fusewise.codegen.versions import hints_for
from fusewise.ir.deciding import Condition, at_hint, deciding
from fusewise.ir.size import Size, Symbol, evaluate
from fusewise.lower.task import RefusalReason, Task
from fusewise.runtime.jit import compile_object, load

__all__ = ["Version", "run_at", "versions_of"]


@dataclass(frozen=True)
class Version:
    """A kernel of a task, the sizes that it takes, and where it is right."""

    task: Task
    kernel: str
    loaded: Loaded
    sizes: tuple[Size, ...]
    conditions: tuple[Condition, ...]

    def holds(self, values: Mapping[str, int]) -> bool:
        return all(condition.holds(values) for condition in self.conditions)


def versions_of(
    kernels: Sequence[Kernel[Any, Any]], task: Task, symbols: Sequence[Symbol], target: Target, workers: int = 1
) -> list[Version]:
    """Of each hint the first kernel that accepts the task, of the last each, up to one without conditions."""
    found = []
    every = hints_for(symbols)
    for hints in every:
        if any(one.holds(hints) for one in found):
            continue
        for kernel in kernels:
            with deciding(hints) as conditions:
                understood = kernel.understand(task, target.instructions)
                if isinstance(understood, RefusalReason):
                    continue
                at, small = at_hint(understood), at_hint(task)
                if kernel.declines(at, small, target) is not None:
                    continue
                schedule = next(iter(kernel.schedules(at, small, target)))
                arguments = kernel.arguments(understood, task, schedule)
                way = Implementation(kernel, task, understood, schedule)
                module = program_of(way, target.instructions, "kernel")
                text = llvm_text(module, target.instructions)
            library = load([compile_object(text, target, way.level)], ["kernel"])
            writes = frozenset(store.operand for store in task.stores)
            loaded = Loaded(library, arguments, writes, workers, task.sites)
            found.append(Version(task, kernel.name, loaded, tuple(module.sizes), tuple(conditions)))
            if not conditions.found:
                return found
            if hints is not every[-1]:
                break
    return found


def run_at(
    versions: Sequence[Version], values: Mapping[str, int], arrays: Mapping[str, np.ndarray], every: bool = True
) -> list[str]:
    """Run the versions that hold at these values of symbols on the same arrays, which all must give the same class of answer;
    gives the names of their kernels. The last one's answers are left in `arrays`."""
    names = []
    for version in versions:
        if not version.holds(values):
            continue
        sizes = np.array([evaluate(size, values) for size in version.sizes] or [0], np.int64)
        arguments = [replace(a, nbytes=evaluate(a.nbytes, values)) for a in version.loaded.arguments]
        loaded = replace(version.loaded, arguments=arguments)
        for shares, flush in ((at_once(loaded.workers), "behind"), (in_pieces(loaded.workers), "before")):
            loaded.call({**arrays, "sizes": sizes}, shares, flush)
        names.append(version.kernel)
        if not every:
            break
    return names
