"""What this machine knows of a graph from earlier measurements: the choice of tuning, or else costs of groups."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from fusewise.fusion.cost import CostSource
from fusewise.ir.graph import Graph
from fusewise.ir.key import structural_key
from fusewise.making import CompilationChoice, GpuMaking, Making
from fusewise.runtime.cache import source_digest
from fusewise.runtime.measure import machine_name, profiled
from fusewise.runtime.profile import ProfileDatabase

__all__ = ["choice_under", "gpu_costs", "gpu_key", "keep_choice", "keep_under", "kept_choice", "known"]

_DECIDERS = ("codegen", "fusion", "lower", "ops", "passes")
_FIELDS = ("ways", "default_ms", "tuned_ms")


def known(
    folder: Path, graph: Graph, making: Making, warn: Callable[[str], None] | None = None
) -> tuple[CompilationChoice | None, CostSource | None]:
    """The choice of earlier tuning that is kept in the cache `folder`, or else costs from groups that were measured."""
    database = ProfileDatabase(folder, machine_name(), warn, wait_seconds=1.0)
    if not database.begun:
        return None, None
    choice = kept_choice(database, graph, making)
    return choice, CostSource(profiled(database, making.workers)) if choice is None else None


def gpu_costs(folder: Path, making: GpuMaking, device: str) -> CostSource | None:
    """Costs from groups that were measured on the GPU that calls itself `device`; None where nothing was measured at all."""
    from fusewise.runtime.gpu.measure import GpuProfile

    database = ProfileDatabase(folder, machine_name(), wait_seconds=1.0)
    if not database.begun:
        return None
    return CostSource(GpuProfile(database, device, making.precision, making.exact).known)


def kept_choice(database: ProfileDatabase, graph: Graph, making: Making) -> CompilationChoice | None:
    """What earlier tuning chose for this graph; None when there was none, or its record cannot be read."""
    return choice_under(database, _key(graph, making))


def choice_under(database: ProfileDatabase, key: str) -> CompilationChoice | None:
    """The choice that is kept under a key; None when there is none, or its record cannot be read."""
    text = database.choice(key)
    try:
        found = json.loads(text or "null")
        if found is None:
            return None
        groups = found["groups"]
        return CompilationChoice(
            None if groups is None else tuple(map(tuple, groups)), *(found[name] for name in _FIELDS)
        )
    except (ValueError, KeyError, TypeError):
        return None


def keep_choice(database: ProfileDatabase, graph: Graph, making: Making, choice: CompilationChoice) -> None:
    """Have it chosen from now on."""
    keep_under(database, _key(graph, making), choice)


def keep_under(database: ProfileDatabase, key: str, choice: CompilationChoice) -> None:
    """Keep a choice under a key."""
    found = {name: getattr(choice, name) for name in ("groups", *_FIELDS)}
    database.choose(key, json.dumps(found))


def gpu_key(graph: Graph, making: GpuMaking, device: str) -> str:
    """Everything a choice for a graph on a GPU, whose name `device` is, depends on: the product, whichever of several it is."""
    from fusewise.runtime.gpu.measure import gpu_name

    how = (making.device.name, making.precision, making.fusion, making.exact, sorted(making.disable), making.passes)
    return f"gpu|{_nodes(graph)}|{how}|{gpu_name(device)}|{source_digest(_DECIDERS)}"


def _key(graph: Graph, making: Making) -> str:
    """Everything a choice depends on."""
    how = (making.fusion, making.exact, sorted(making.disable), making.workers)
    return f"{_nodes(graph)}|{how}|{machine_name()}|{source_digest(_DECIDERS)}"


def _nodes(graph: Graph) -> str:
    """A graph but for its weights. Groups are by number, so the order of the nodes counts."""
    order = hashlib.blake2b(
        repr([(n.op, n.inputs, n.outputs) for n in graph.nodes]).encode(), digest_size=16
    ).hexdigest()
    return f"{order}|{structural_key(graph, with_weights=False)}"
