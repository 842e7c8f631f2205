"""What a group costs: an analytic estimate, and the choice between it, what was measured before, and measuring now.

The estimate counts what fusion changes: a start per kernel, bytes read and written, and operations repeated because an element
is asked for in several places. The heavy operator's own work is the same fused or not and is left out, and so is all that
a host step does. What each of these takes are `Prices`, which an accelerator has others of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fusewise.fusion.ecg import Demand, ElementWork, ExtendedGraph
from fusewise.ir.graph import Graph
from fusewise.ops.spec import Mapping
from fusewise.records import record

__all__ = ["PROCESSOR", "CostSource", "GroupCost", "Prices", "estimate_ns"]

GroupCost = Callable[[Graph, tuple[int, ...]], float | None]
"""Nanoseconds that a group (ascending node indexes) takes as one kernel; None when that is not known or cannot be measured."""

SLOW_OPERATORS = frozenset(
    "Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Erf Exp Gelu HardSwish Log Mish Pow Selu Sigmoid Sin Sinh Softplus Swish"
    " Tan Tanh".split()
)


@record(frozen=True)
class Prices:
    """What the estimate takes for each thing, in nanoseconds.

    `start_ns` is that of a kernel and `host_start_ns` that of a host step; a value of at most `cached_bytes` is moved at
    `ns_per_cached_byte`, others at `ns_per_byte`; per element `slow_ns` is a transcendental function, `fast_ns` any other
    arithmetic. A machine that is only as fast as it is full has `full`, the elements in flight from which on it is, and
    `row_lanes`, how many of them share a row that is added up; 0 for one whose speed does not depend on that.
    """

    start_ns: float = 1000.0
    host_start_ns: float = 20000.0
    ns_per_byte: float = 0.06
    slow_ns: float = 0.8
    fast_ns: float = 0.06
    cached_bytes: int = 0
    ns_per_cached_byte: float = 0.0
    full: int = 0
    row_lanes: int = 0


PROCESSOR = Prices()


@record(frozen=True)
class CostSource:
    """Where costs come from: `profile` looks a group up among earlier measurements, `measure` runs it now, as long as
    `has_time`; without either they are estimated at `prices`."""

    profile: GroupCost | None = None
    measure: GroupCost | None = None
    has_time: Callable[[], bool] = lambda: True
    prices: Prices = PROCESSOR

    @property
    def estimated(self) -> CostSource:
        """The estimate alone."""
        return CostSource(prices=self.prices)

    def of(self, ecg: ExtendedGraph, *groups: Sequence[int]) -> list[float] | None:
        """Costs of groups that are to be compared, all from one source; None when a measurement failed."""
        for source in (self.profile, self.measure):
            if source is None or (source is self.measure and not self.has_time()):
                continue
            known: dict[Sequence[int], float] = {}
            for group in sorted(groups, key=len):  # what is asked for most often first: often there is no need to go on
                cost = source(ecg.graph, tuple(group))
                if cost is None:
                    break
                known[tuple(group)] = cost
            if len(known) == len(groups):
                return [known[tuple(group)] for group in groups]
            if source is self.measure:
                return None
        return [estimate_ns(ecg, group, self.prices) for group in groups]


def estimate_ns(ecg: ExtendedGraph, nodes: Sequence[int], prices: Prices = PROCESSOR) -> float:
    """The analytic estimate of a group's cost in nanoseconds, its heavy operator's own work left out."""
    known, key = ecg.estimates.setdefault(prices, {}), tuple(nodes)
    if key not in known:
        known[key] = _estimated_ns(ecg, key, prices)
    return known[key]


def _estimated_ns(ecg: ExtendedGraph, nodes: tuple[int, ...], prices: Prices) -> float:
    if not ecg.is_native(nodes[0]):
        return prices.host_start_ns
    inside, members = {v for n in nodes for v in ecg.node(n).writes}, frozenset(nodes)
    outputs = list(dict.fromkeys(_root(ecg, v, inside) for v in inside if not ecg.is_removable(v, members)))
    inputs = {v for n in nodes for v in ecg.node(n).reads} - inside
    moved = [*(ecg.nbytes(v) for v in inputs if v not in ecg.graph.constants), *map(ecg.nbytes, outputs)]
    if all(ecg.is_view(n) for n in nodes) and ecg.graph.output_set.isdisjoint(outputs):
        return 0.0
    near = sum(nbytes for nbytes in moved if nbytes <= prices.cached_bytes)
    moving = prices.ns_per_byte * (sum(moved) - near) + prices.ns_per_cached_byte * near
    share = _fullness(ecg, nodes, outputs, prices)
    return prices.start_ns + moving / share + _arithmetic_ns(ecg, nodes, inside, outputs, prices) / share


def _fullness(ecg: ExtendedGraph, nodes: Sequence[int], outputs: Sequence[str], prices: Prices) -> float:
    """Which share of the machine a group keeps busy, at most 1.

    An element of a result is computed by a lane. Where a group adds up rows, and that not by a kernel of its own, a few lanes share
    each, and what is computed from the sums is as well.
    """
    if not prices.full:
        return 1.0
    lanes = max((ecg.size(v) or 0 for v in outputs), default=0)
    for n in nodes:
        if ecg.mapping(n) == Mapping.MANY_TO_MANY and not ecg.is_anchor(n):
            node = ecg.node(n)
            read, rows = (max((ecg.size(v) or 0 for v in of), default=0) for of in (node.reads, node.writes))
            if rows < read:
                lanes = min(max(lanes, read), rows * prices.row_lanes)
    return min(1.0, max(1, lanes) / prices.full)


def _root(ecg: ExtendedGraph, value: str, inside: set[str]) -> str:
    """What is written so that a result is in memory: what it is a view of, if it is one and not the user's."""
    if value in ecg.graph.output_set:
        return value
    maker = ecg.graph.producer[value]
    while ecg.is_view(maker) and ecg.node(maker).inputs[0] in inside:
        value = ecg.node(maker).inputs[0]
        maker = ecg.graph.producer[value]
    return value


def _arithmetic_ns(
    ecg: ExtendedGraph, nodes: Sequence[int], inside: set[str], outputs: Sequence[str], prices: Prices
) -> float:
    """Each element as often as it is asked for: once for all readers at the same place, again for every other one."""
    aligned = {v: float(ecg.size(v) or 0) for v in outputs}
    again: dict[str, float] = {}
    total, each = 0.0, {ElementWork.NONE: 0.0, ElementWork.FAST: prices.fast_ns, ElementWork.SLOW: prices.slow_ns}
    for n in reversed(nodes):
        demand = ecg.demands.get(n) or ecg.demands.setdefault(n, _demand(ecg, n))
        times = max((aligned.get(v, 0.0) + again.get(v, 0.0) for v in demand.writes), default=0.0)
        total += times * each[demand.work]
        for v, passes, at_most in demand.reads:
            if v not in inside:
                continue
            if passes:
                again[v] = again.get(v, 0.0) + passes * at_most
            elif passes is None:
                aligned[v] = max(aligned.get(v, 0.0), times)
            else:
                again[v] = again.get(v, 0.0) + min(times, at_most)
    return total


def _demand(ecg: ExtendedGraph, index: int) -> Demand:
    node, heavy = ecg.node(index), ecg.mapping(index) == Mapping.MANY_TO_MANY
    reads: list[tuple[str, int | None, float]] = []
    for v in dict.fromkeys(node.reads):
        size = float(ecg.size(v) or 0)
        if heavy:
            reads.append((v, _passes(ecg, index), size))
        elif v in ecg.bijective(index):
            reads.append((v, None, size))
        else:
            reads.append((v, 0, size if ecg.edge(v, index) < Mapping.ONE_TO_MANY else math.inf))
    free = heavy or ecg.is_view(index)
    work = ElementWork.NONE if free else ElementWork.SLOW if node.op in SLOW_OPERATORS else ElementWork.FAST
    return Demand(node.writes, tuple(reads), work)


def _passes(ecg: ExtendedGraph, index: int) -> int:
    """How often a heavy operator's kernel asks for each element."""
    spec = ecg.spec(index)
    family = "" if spec is None else spec.family
    return 2 if family in ("softmax", "log_softmax") else 3 if family.endswith("_norm") else 1
