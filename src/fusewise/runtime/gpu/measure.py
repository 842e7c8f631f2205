"""Time a group of operators by itself on a GPU: its kernels in a row within one graph, by the device's clock.

An entry's key names the GPU by its product and architecture, so what one device takes never stands for another, nor for a
processor, whose keys are made elsewhere (`runtime.measure`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from fusewise.codegen.gpu.assemble import gpu_program
from fusewise.errors import FusewiseError
from fusewise.ir.graph import Graph
from fusewise.ir.key import structural_key
from fusewise.ir.partition import Group, Partition
from fusewise.ops.spec import NotDefined
from fusewise.records import record
from fusewise.runtime.cache import KernelCache, source_digest
from fusewise.runtime.gpu.compile import TritonCompiler
from fusewise.runtime.gpu.driver import DeviceLost, Driver
from fusewise.runtime.gpu.drivers import row_of
from fusewise.runtime.gpu.executable import GpuExecutable
from fusewise.runtime.gpu.timing import REPEATS, chain_times
from fusewise.runtime.measure import (
    CannotMeasure,
    group_feeds,
    group_graph,
    kept_measurement,
    looked_up,
    measurable_graph,
)
from fusewise.runtime.profile import Measurement, ProfileDatabase
from fusewise.trace import Trace

__all__ = ["GpuProfile", "GpuTimer", "gpu_name"]

_SAMPLES = 7


def gpu_name(name: str) -> str:
    """What measurements hold for, of what a driver calls itself: the product, whichever of several it is."""
    return re.sub(r" [(]GPU [0-9]+[)]$", "", name)


@record(frozen=True)
class GpuProfile:
    """Measurements of groups in a precision on the GPU that calls itself `device`, kept in `database`."""

    database: ProfileDatabase
    device: str
    precision: str = "float32"
    exact: bool = False

    def key(self, graph: Graph, nodes: Sequence[int]) -> str:
        """Everything the duration of a group depends on here."""
        structure = structural_key(group_graph(graph, nodes), with_weights=False)
        precision = "exact" if self.exact else self.precision
        return f"{structure}|{precision}|{gpu_name(self.device)}|{source_digest()}"

    @property
    def known(self) -> Callable[[Graph, tuple[int, ...]], float | None]:
        """What a group took when it was measured, in nanoseconds; None when it was not, or could not be."""
        return looked_up(self.database, self.key)


@record(frozen=True)
class GpuTimer:
    """Times groups on a device that is open, each `repeats` times in a row; kernels come from `cache` where they are there."""

    profile: GpuProfile
    driver: Driver
    compiler: TritonCompiler
    cache: KernelCache | None = None
    repeats: int = REPEATS

    def measurement(self, graph: Graph, nodes: Sequence[int]) -> Measurement:
        """The entry of a group, measured now if there is none; one that failed is not tried again."""
        profile, key = self.profile, self.profile.key(graph, nodes)
        known = profile.database.lookup(key)
        if known is not None:
            return known
        return kept_measurement(profile.database, key, graph, nodes, lambda: self._samples(graph, nodes))

    def _samples(self, graph: Graph, nodes: Sequence[int]) -> list[float]:
        """Nanoseconds of the group, as often as it is timed. Raises `CannotMeasure`, and `DeviceLost`."""
        exact = self.profile.exact
        small = measurable_graph(graph, nodes)
        whole = Partition(small, (Group(tuple(range(len(small.nodes)))),))
        row = row_of(self.driver)
        try:
            program = gpu_program(whole, row, self.profile.precision, Trace(), strict=True, exact=exact)
            cubins = self.compiler.compile(program.kernels, row, contracted=not exact, store=self.cache)
            with GpuExecutable(program, self.driver, cubins) as model:
                model.run(None, group_feeds(small))
                launches = list(model.launches.values())
                if not launches:
                    raise CannotMeasure("no kernel runs for it")
                return [us * 1e3 for us in chain_times(self.driver, launches, self.repeats, _SAMPLES)]
        except DeviceLost:
            raise
        except (FusewiseError, NotDefined, MemoryError) as error:
            raise CannotMeasure(str(error) or type(error).__name__) from error
