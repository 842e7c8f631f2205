"""The host steps of a program for a GPU, run by what runs them beside a CPU's kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusewise.codegen.gpu.program import GpuProgram
from fusewise.lower.program import HostStep, Program
from fusewise.runtime.arena import RunMemory

__all__ = ["HostSteps"]


class HostSteps:
    """Made ready when they are made; nothing of what runs them is loaded where there are none."""

    def __init__(self, program: GpuProgram, parts: Sequence[tuple[int, ...]]) -> None:
        self._calls: dict[tuple[int, ...], list[Any]] = {}
        if not parts:
            return
        from fusewise.runtime.executable import build
        from fusewise.runtime.host import worker_count
        from fusewise.runtime.stages import HostParts

        steps = {k: step for k, step in enumerate(program.steps) if isinstance(step, HostStep)}
        idle = HostStep((), 0, (), ())  # in the place of a launch
        plain = Program(
            *(program.inputs, program.outputs, (), (), tuple(steps.get(k, idle) for k in range(len(program.steps))), 0),
            groups=program.groups,
            opsets=program.opsets,
            objects=program.objects,
            exact=program.precision == "exact",
        )
        make = HostParts(plain, {}, worker_count(None), build)
        for numbers in parts:
            self._calls[numbers] = [call for _, call in make([(number, steps[number]) for number in numbers])]

    def run(self, numbers: tuple[int, ...], memory: RunMemory, objects: dict[str, Any]) -> None:
        """Run the stretch of these numbers on its `memory`, and on `objects` by name, of which it makes more."""
        for call in self._calls[numbers]:
            call.run(memory, objects)
