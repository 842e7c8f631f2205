"""Time and energy of groups on an accelerator, and the objectives that searches minimise.

First-order models, additive over groups: a group takes as long as the slower of its work and its DRAM traffic, which overlap
within a group and not between groups; energy is what moving bytes costs, off the chip and on it, where every operator reads its
operands and weights and writes its results once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fusewise.accel.bits import bits_of
from fusewise.accel.hardware import Hardware
from fusewise.accel.network import Network
from fusewise.accel.problem import GroupCosts
from fusewise.accel.schemes.scheme import operator_traffic
from fusewise.errors import UsageError
from fusewise.words import nearest

__all__ = ["OBJECTIVES", "Objective", "energy_mj", "latency_ms", "objective_named"]

Objective = Callable[[GroupCosts, int], float]
"""A cost of one group; that of a plan is the sum."""


def latency_ms(hardware: Hardware, network: Network, group: int, dram_bytes: int) -> float:
    """Milliseconds of a group that moves `dram_bytes`."""
    macs = sum(network.operators[v].form.macs for v in bits_of(group))
    work = macs / (hardware.macs_per_cycle * hardware.clock_mhz * 1e6)
    return max(work, dram_bytes / hardware.dram_bytes_per_second) * 1e3


def energy_mj(hardware: Hardware, network: Network, group: int, dram_bytes: int, bits: int) -> float:
    """Millijoules of a group that moves `dram_bytes` through DRAM and every operator's operands through the buffer."""
    moved = sum(operator_traffic(network, v, bits) for v in bits_of(group))
    return (dram_bytes * hardware.dram_pj_per_byte + moved * hardware.buffer_pj_per_byte) * 1e-9


def _dram(hardware: Hardware, costs: GroupCosts, group: int) -> float:
    return costs.dram_bytes(group)


def _energy(hardware: Hardware, costs: GroupCosts, group: int) -> float:
    problem = costs.problem
    return energy_mj(hardware, problem.network, group, costs.dram_bytes(group), problem.scheme.bits)


def _latency(hardware: Hardware, costs: GroupCosts, group: int) -> float:
    return latency_ms(hardware, costs.problem.network, group, costs.dram_bytes(group))


OBJECTIVES: dict[str, Callable[[Hardware, GroupCosts, int], float]] = {
    "dram": _dram,
    "energy": _energy,
    "latency": _latency,
}
"""What can be minimised: bytes, millijoules, milliseconds."""


def objective_named(name: str, hardware: Hardware) -> Objective:
    """The objective called `name` on an accelerator, for `GroupCosts`; `UsageError` with the nearest name when there is none."""
    if name not in OBJECTIVES:
        raise UsageError(f"there is no objective called {name!r}; {nearest(name, OBJECTIVES)}")
    return partial(OBJECTIVES[name], hardware)
