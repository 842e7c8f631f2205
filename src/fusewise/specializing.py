"""Programs for sizes that keep coming back: what the static pipeline makes, beside a model that is run meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fusewise.compiling import planned
from fusewise.ir.at_sizes import at_sizes
from fusewise.options import Options
from fusewise.runtime.cache import KernelCache
from fusewise.runtime.executable import Executable, build_special
from fusewise.runtime.folder import cache_folder, first_only
from fusewise.runtime.specialist import Special, Specialist
from fusewise.trace import Trace

if TYPE_CHECKING:
    import numpy as np

    from fusewise.ir.graph import Graph

__all__ = ["specialist_for"]


def specialist_for(
    executable: Executable, bound: Callable[[], Graph], options: Options, disabled: frozenset[str]
) -> Specialist:
    """What has programs made for sizes of an executable's that keep coming back.

    `bound` gives the graph with free dimensions that the executable was made of by these options; decisions `disabled` by name are
    refused here too.
    """
    ports = [[port.name for port in ports()] for ports in (executable.get_inputs, executable.get_outputs)]
    folder, quiet = cache_folder(options.cache), first_only(lambda sentence: None)

    def make(sizes: Mapping[str, int], known: Sequence[np.ndarray], go_on: Callable[[], None]) -> Special:
        graph = at_sizes(bound(), sizes)
        program = planned(graph, options, _AttendedTrace(disabled=disabled, go_on=go_on), quiet).program
        if [[port.name for port in found] for found in (program.inputs, program.outputs)] != ports:
            raise ValueError("its inputs or outputs are others than those of the model")
        cache = None if folder is None else KernelCache(folder, quiet)
        try:
            return build_special(program, sizes, known, go_on, cache)
        finally:
            graph.forget()

    constants = tuple(executable.contents.constants.values())
    return Specialist(options.specialize, make, constants, options.warn)


@dataclass
class _AttendedTrace(Trace):
    """Decisions that each ask whether to `go_on`, which raises where nobody wants them any more."""

    go_on: Callable[[], None] = field(default=lambda: None)

    def add(self, *event: Any, **costs: Any) -> None:
        self.go_on()
        super().add(*event, **costs)

    def allows(self, *decision: Any, **costs: Any) -> bool:
        self.go_on()
        return super().allows(*decision, **costs)
