"""Some kernels of the zoo, of every family, architecture and precision: what to compile where there is no time for all.

Which models they are of follows from the zoo: the smallest of each task, then the others, until every family that writes kernels
has been met. What small models have none of is in a few of one node beside them (`beside`). Nothing is drawn, so the sample
changes with the zoo and the kernels alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from benchmarks.gpu.beside import BESIDE
from benchmarks.gpu.cases import planned
from benchmarks.gpu.checked import Asked, family_of, multiplies_tiles

from fusewise.codegen.gpu.choose import FAMILIES
from fusewise.codegen.gpu.device import Device, device_named
from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.ir.graph import Graph
from fusewise.zoo.catalogue import MODELS, build

__all__ = ["DEVICES", "PRECISIONS", "graphs_with", "sample", "zoo_sample"]

DEVICES = ("sm_80", "sm_90")
PRECISIONS = ("float32", "tf32", "exact", "float16", "bfloat16")

_PRODUCTS = 2
"""Kernels of a device and a precision that multiply tiles, at least."""

Way: TypeAlias = tuple[str, str]
"""A device and a precision."""


def _graphs() -> Iterator[Graph]:
    """Those beside the zoo, the smallest model of each task, and all others."""
    yield from (one.graph() for one in BESIDE)
    by_size = sorted(MODELS, key=lambda model: (model.macs or math.inf, model.name))
    first = {model.task: model for model in reversed(by_size)}.values()
    for model in sorted(by_size, key=lambda model: model not in first):
        yield build(model.name)


def graphs_with(families: Iterable[str], graphs: Iterable[Graph], device: Device) -> list[Graph]:
    """The first graphs that have kernels of all `families` between them; `LookupError` with what none has."""
    missing, found = set(families), list[Graph]()
    for graph in graphs:
        if not missing:
            break
        new = missing & {kernel.family for kernel in planned(graph, device, "float32").program.kernels}
        missing -= new
        found += [graph] if new else []
    if missing:
        raise LookupError(f"no model has a kernel of: {', '.join(sorted(missing))}; give benchmarks.gpu.beside one")
    return found


def zoo_sample(count: int, devices: Sequence[str] = DEVICES, precisions: Sequence[str] = PRECISIONS) -> list[Asked]:
    """So many kernels to compile, each for its architecture. `LookupError` where there is none of some family."""
    rows = {name: device_named(name) for name in devices}
    graphs = graphs_with((family.name for family in FAMILIES), _graphs(), rows[devices[-1]])
    kernels = {
        (name, precision): [k for graph in graphs for k in planned(graph, rows[name], precision).program.kernels]
        for precision in precisions
        for name in devices
    }
    return [Asked(kernel, rows[name], precision) for (name, precision), kernel in sample(kernels, count)]


def sample(kernels: Mapping[Way, Sequence[GpuKernel]], count: int) -> list[tuple[Way, GpuKernel]]:
    """So many different kernels, the same whatever their order. Devices and precisions take turns. Each has `_PRODUCTS` that
    multiply tiles first, as precision is about these, then others; always of the family that was taken least, and of its kernels
    one whose tile, or other way, was taken least."""
    left = {way: sorted({k.symbol: k for k in some}.values(), key=lambda k: k.symbol) for way, some in kernels.items()}
    taken, seen = list[tuple[Way, GpuKernel]](), set[tuple[str, str]]()
    often, alike = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    while len(taken) < count and any(left.values()):
        for way, some in left.items():
            left[way] = some = [k for k in some if (way[0], k.symbol + k.source) not in seen]
            if not some or len(taken) == count:
                continue
            multiplies = sum(way == one for one, _ in taken) < _PRODUCTS
            fitting = [k for k in some if multiplies_tiles(k)] if multiplies else some
            kernel = min(fitting or some, key=lambda k: (often[_kind(k)], alike[_alike(k)], k.symbol))
            often[_kind(kernel)] += 1
            alike[_alike(kernel)] += 1
            seen.add((way[0], kernel.symbol + kernel.source))
            taken.append((way, kernel))
    return taken


def _kind(kernel: GpuKernel) -> tuple[str, str]:
    """By what a kernel is written, and what it is of that: a family may write several."""
    return kernel.family, family_of(kernel)


def _alike(kernel: GpuKernel) -> tuple[str, str]:
    return family_of(kernel), kernel.way.partition(", depth in")[0]
