"""Regions of a graph for different back ends: which takes what, the partition that makes, and the model with a function for each.

A graph says in its metadata that it is to be parted (`passes.partition_graph`). The accelerator's regions are the groups of a
plan for it; of all other nodes those are native that code can be generated for, and the rest is the host's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fusewise.errors import FusewiseError
from fusewise.ir.graph import Graph
from fusewise.ir.partition import Partition
from fusewise.ir.types import TensorType
from fusewise.passes.partition_graph import BACK_ENDS, regions_asked, regions_by
from fusewise.words import no_such

if TYPE_CHECKING:
    import onnx

__all__ = ["REGION_DOMAIN", "Regions", "in_functions", "regions_for", "regions_of"]

REGION_DOMAIN = "fusewise.region"
"""The operator domain of the functions that regions are exported as."""


@dataclass(frozen=True)
class Regions:
    """A partition, the back end of each region in its order, and why nodes went past a back end that was preferred.

    `refused` gives for each back end reasons and how many nodes each kept away; `notes` what else there is to say.
    """

    partition: Partition
    back_ends: tuple[str, ...]
    refused: dict[str, dict[str, int]]
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """`native_0`, `host_0`, `native_1`, in the order they run."""
        seen: Counter[str] = Counter()
        found = []
        for name in self.back_ends:
            found.append(f"{name}_{seen[name]}")
            seen[name] += 1
        return tuple(found)

    @property
    def summary(self) -> dict[str, Any]:
        """The record as plain JSON values: bytes are of values that a region reads from others or leaves to them."""
        graph = self.partition.graph
        rows = []
        for name, back_end, group in zip(self.names, self.back_ends, self.partition.groups, strict=True):
            reads = [value for value in group.inputs(graph) if value not in graph.constants]
            rows.append(
                {
                    "region": name,
                    "back_end": back_end,
                    "nodes": [node.label for node in group.members(graph)],
                    "operators": dict(Counter(node.op for node in group.members(graph)).most_common()),
                    "reads": reads,
                    "writes": list(group.outputs(graph)),
                    "bytes_read": sum(_nbytes(graph, value) for value in reads),
                    "bytes_written": sum(_nbytes(graph, value) for value in group.outputs(graph)),
                }
            )
        return {
            "back_ends": dict(Counter(self.back_ends)),
            "regions": rows,
            "refused": self.refused,
            "notes": list(self.notes),
        }


def regions_of(graph: Graph) -> Regions | None:
    """The regions that the graph is to be parted into; None where nothing asks for it."""
    wanted = regions_asked(graph)
    return regions_for(graph, wanted) if wanted else None


def regions_for(graph: Graph, back_ends: Sequence[str] = BACK_ENDS) -> Regions:
    """The regions of a graph for back ends in order of preference; the host takes what nobody else does.

    Raises `UsageError` for a back end that does not exist.
    """
    unknown = next((name for name in back_ends if name not in BACK_ENDS), None)
    if unknown is not None:
        raise no_such("back end", unknown, BACK_ENDS)
    chosen = [""] * len(graph.nodes)
    refused: dict[str, dict[str, int]] = {}
    apart: list[tuple[int, ...]] = []
    notes: list[str] = []
    for name in dict.fromkeys((*back_ends, "host")):
        free = [node for node, taken in enumerate(chosen) if not taken]
        reasons = dict.fromkeys(free, "")
        if name == "accelerator":
            apart, reasons, note = _planned(graph, free)
            notes += [note] if note else []
        elif name == "native":
            reasons = _not_native(graph, free)
        for node in free:
            if not reasons[node]:
                chosen[node] = name
        refused[name] = dict(Counter(reason for reason in reasons.values() if reason).most_common())
    partition, kinds = regions_by(graph, chosen, apart)
    return Regions(partition, kinds, {name: found for name, found in refused.items() if found}, tuple(notes))


def in_functions(graph: Graph) -> Callable[[onnx.ModelProto], onnx.ModelProto]:
    """What makes every region of the graph, where it is to have any, a function of its model that is called once."""
    from fusewise.frontend.onnx_functions import with_functions

    found = regions_of(graph)
    if found is None:
        return lambda model: model
    return lambda model: with_functions(model, found.partition, found.names, REGION_DOMAIN)


def _not_native(graph: Graph, nodes: Sequence[int]) -> dict[int, str]:
    """Why each node cannot run natively, empty where it can."""
    from fusewise.lower.work import host_reason

    return {node: host_reason(graph, graph.nodes[node]) for node in nodes}


def _planned(graph: Graph, free: Sequence[int]) -> tuple[list[tuple[int, ...]], dict[int, str], str]:
    """The groups of the exact plan for the default accelerator, why each node is in none, and why there is no plan at all."""
    from fusewise.accel.bits import bits_of
    from fusewise.accel.feasible import require_feasible
    from fusewise.accel.hardware import DEFAULT, hardware_named
    from fusewise.accel.network import network_of
    from fusewise.accel.problem import GroupCosts, Problem
    from fusewise.accel.search.catalogue import search_named
    from fusewise.accel.search.repair import Repair
    from fusewise.accel.search.result import SearchBudget

    chip = hardware_named(DEFAULT)
    try:
        costs = GroupCosts(Problem(network_of(graph), chip.scheme("lbdf", {}), chip.buffer_bytes))
        require_feasible(costs.problem)
        search = search_named("exact")
        result = search(costs, SearchBudget(None, None), np.random.default_rng(0), Repair(costs, None, seed=0), None)
    except FusewiseError as error:
        return [], dict.fromkeys(free, "there is no plan"), f"no accelerator plan: {error}"
    groups = [tuple(bits_of(group)) for group in result.groups]
    taken = {node for group in groups for node in group}
    reasons = {node: "" if node in taken else costs.problem.exclusion(node) for node in free}
    return groups, reasons, ""


def _nbytes(graph: Graph, value: str) -> int:
    kind = graph.types[value]
    return kind.nbytes if isinstance(kind, TensorType) and kind.is_static else 0
