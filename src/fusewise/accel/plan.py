"""A plan: groups in the order they run, what each needs and costs, and what was left out.

Takes the groups a search found, as bits; gives a frozen record that reports, files and the checker read. From a plan to a
`Partition` of the prepared graph it is one call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fusewise.accel.bits import bits_of
from fusewise.accel.estimate import energy_mj, latency_ms
from fusewise.accel.hardware import Hardware
from fusewise.accel.network import Network
from fusewise.accel.problem import GroupCosts
from fusewise.accel.schemes.scheme import UNBOUNDED, Scheme, operator_traffic
from fusewise.cards import Card, carded
from fusewise.ir.graph import Graph
from fusewise.ir.partition import Group, Partition
from fusewise.words import size_text

__all__ = ["ExcludedOperator", "LayerFusionPlan", "PlannedGroup", "partition_of", "plan_of"]


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """Operators that run as one, ascending, with the group's figures."""

    operators: tuple[int, ...]
    buffer_bytes: int
    dram_bytes: int
    latency_ms: float
    energy_mj: float


@dataclass(frozen=True, slots=True)
class ExcludedOperator:
    """An operator that runs alone through DRAM: why, its buffer need (None when it has no streaming form), its figures."""

    operator: int
    reason: str
    buffer_bytes: int | None
    dram_bytes: int
    latency_ms: float
    energy_mj: float


def _card(plan: LayerFusionPlan) -> Card:
    return Card(
        f"Layer-fusion plan: {len(plan.groups):,} groups, {len(plan.excluded):,} operators left out",
        (
            (
                "memory",
                f"{size_text(plan.dram_bytes_full)} to and from DRAM, {size_text(plan.dram_bytes)} of it by groups",
            ),
            ("buffer", f"{size_text(plan.max_buffer_bytes)} of {size_text(plan.capacity)} at most"),
            ("estimate", f"{plan.latency_ms:.4g} ms, {plan.energy_mj:.4g} mJ"),
        ),
    )


@dataclass(frozen=True)
@carded(_card)
class LayerFusionPlan:
    """All groups of a network, each reading only from those before it and from excluded operators.

    `dram_bytes` is the headline figure, over the groups; `dram_bytes_full` adds what the excluded operators move. Latency and
    energy always count the whole network. `max_buffer_bytes` is the largest need of a group.
    """

    network: Network
    scheme: Scheme
    hardware: Hardware
    groups: tuple[PlannedGroup, ...]
    excluded: tuple[ExcludedOperator, ...]

    @property
    def capacity(self) -> int:
        return self.hardware.buffer_bytes

    @property
    def dram_bytes(self) -> int:
        return sum(group.dram_bytes for group in self.groups)

    @property
    def dram_bytes_full(self) -> int:
        return self.dram_bytes + sum(one.dram_bytes for one in self.excluded)

    @property
    def max_buffer_bytes(self) -> int:
        return max((group.buffer_bytes for group in self.groups), default=0)

    @property
    def latency_ms(self) -> float:
        return sum(group.latency_ms for group in self.groups) + sum(one.latency_ms for one in self.excluded)

    @property
    def energy_mj(self) -> float:
        return sum(group.energy_mj for group in self.groups) + sum(one.energy_mj for one in self.excluded)


def plan_of(costs: GroupCosts, groups: Iterable[int], hardware: Hardware) -> LayerFusionPlan:
    """The plan with these groups (bits), in any order; `hardware` is that of the problem.

    `ValueError` when groups and excluded operators form a cycle. Whether the plan is right is for `accel.check` to say.
    """
    problem = costs.problem
    network, bits = problem.network, problem.scheme.bits
    order = problem.ordered(groups)
    if order is None:
        raise ValueError("the groups of the plan form a cycle")
    planned = []
    for mask in order:
        moved = costs.dram_bytes(mask)
        time, energy = latency_ms(hardware, network, mask, moved), energy_mj(hardware, network, mask, moved, bits)
        planned.append(PlannedGroup(tuple(bits_of(mask)), costs.buffer_bytes(mask), moved, time, energy))
    excluded = []
    for node in bits_of(problem.excluded):
        mask, moved, need = 1 << node, operator_traffic(network, node, bits), costs.buffer_bytes(1 << node)
        time, energy = latency_ms(hardware, network, mask, moved), energy_mj(hardware, network, mask, moved, bits)
        excluded.append(
            ExcludedOperator(node, problem.exclusion(node), None if need >= UNBOUNDED else need, moved, time, energy)
        )
    return LayerFusionPlan(
        network, problem.scheme, hardware.with_buffer(problem.capacity), tuple(planned), tuple(excluded)
    )


def partition_of(plan: LayerFusionPlan, graph: Graph) -> Partition:
    """The plan as a partition of the prepared graph it was made for; excluded operators are groups of their own."""
    groups = [Group(group.operators) for group in plan.groups] + [Group((one.operator,)) for one in plan.excluded]
    return Partition.ordered(graph, groups)
