"""The report's part about a layer-fusion plan: groups and what they need, why they end, how groups were split, the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from fusewise.accel.bits import bits_of, mask_of
from fusewise.accel.plan import LayerFusionPlan
from fusewise.accel.problem import GroupCosts
from fusewise.accel.reasons import Boundary, sentence
from fusewise.accel.schemes.catalogue import scheme_named
from fusewise.accel.schemes.scheme import UNBOUNDED, Scheme
from fusewise.accel.split.splitter import Splitting
from fusewise.accel.split.tree import parts_of
from fusewise.planning import Planning

__all__ = ["plan_part"]

_UNITS: Mapping[str, str] = {"dram": "bytes", "latency": "ms", "energy": "mJ"}
_VERDICTS: Mapping[int, str] = {1: "both halves fit", 2: "one half fits", 3: "neither half fits"}
_OTHER: Mapping[str, str] = {"lbdf": "brr", "brr": "lbdf"}


def plan_part(found: Planning) -> dict[str, Any]:
    """A plan as it is drawn. Operators are node ids of the prepared graph (`Planning.graph`).

    `course` has `[seconds, plans, cost]` whenever the best cost fell, `cost` and `bound` in `unit`. Of a boundary `needs_bytes` is
    what both sides would need as one, None where that cannot be, and `option` the words that make room for them or let the search
    find them, None where no option does.
    """
    plan, result, setting = found.plan, found.result, found.setting
    groups = [mask_of(group.operators) for group in plan.groups]
    number = {mask: k for k, mask in enumerate(groups)}
    return {
        "setting": {**asdict(setting), "scheme_options": {k: str(v) for k, v in setting.scheme_options.items()}},
        "hardware": {
            "name": plan.hardware.name,
            "summary": plan.hardware.summary,
            "bits": plan.hardware.bits,
            "macs_per_cycle": plan.hardware.macs_per_cycle,
            "clock_mhz": plan.hardware.clock_mhz,
            "dram_bytes_per_second": plan.hardware.dram_bytes_per_second,
        },
        "capacity_bytes": plan.capacity,
        "summary": found.summary,
        "objective": setting.objective,
        "unit": _UNITS[setting.objective],
        "cost": result.cost,
        "bound": result.lower_bound,
        "groups": _groups(plan),
        "excluded": [
            {
                "node": one.operator,
                "name": plan.network.operators[one.operator].name,
                "reason": one.reason,
                "buffer_bytes": one.buffer_bytes,
                "dram_bytes": one.dram_bytes,
                "option": None if one.buffer_bytes is None else _buffer(one.buffer_bytes),
            }
            for one in plan.excluded
        ],
        "boundaries": [_boundary(found.costs, found, edge, groups) for edge in found.boundaries],
        "splittings": [_splitting(found.costs, splitting, number) for splitting in found.splittings],
        "course": [list(point) for point in _course(found)],
        "notes": list(result.notes),
    }


def _groups(plan: LayerFusionPlan) -> list[dict[str, Any]]:
    operators = plan.network.operators
    return [
        {
            "id": number,
            "nodes": list(group.operators),
            "first": operators[group.operators[0]].name,
            "last": operators[group.operators[-1]].name,
            "buffer_bytes": group.buffer_bytes,
            "dram_bytes": group.dram_bytes,
            "latency_ms": group.latency_ms,
            "energy_mj": group.energy_mj,
        }
        for number, group in enumerate(plan.groups)
    ]


def _course(found: Planning) -> Sequence[tuple[float, int, float]]:
    """The costs on the way, and the plan's at the end. What improves a plan behind the search's back stands at its end, too."""
    result = found.result
    course = [point for point in found.course if point[2] >= result.cost]
    return (*course, (max([result.seconds, *(point[0] for point in course)]), result.plans_evaluated, result.cost))


def _boundary(costs: GroupCosts, found: Planning, edge: Boundary, groups: Sequence[int]) -> dict[str, Any]:
    network = found.plan.network
    sides = (
        1 << edge.producer if edge.before is None else groups[edge.before],
        1 << edge.consumer if edge.after is None else groups[edge.after],
    )
    need, option = _remedy(costs, found, edge, sides[0] | sides[1])
    return {
        "before": edge.before,
        "after": edge.after,
        "producer": edge.producer,
        "consumer": edge.consumer,
        "reason": edge.reason,
        "sentence": sentence(network, edge),
        "crossing_bytes": edge.crossing_bytes,
        "over_bytes": edge.over_bytes,
        "saved_bytes": edge.saved_bytes,
        "needs_bytes": need,
        "option": option,
    }


def _remedy(costs: GroupCosts, found: Planning, edge: Boundary, union: int) -> tuple[int | None, str | None]:
    """What both sides need as one, and the words that would let a plan have them so."""
    problem, setting = costs.problem, found.setting
    need = _holds(problem.scheme, costs, union)
    if edge.reason == "search":
        return need, None if setting.search == "exact" else "--search exact"
    if edge.reason == "too large":
        return need, None if need is None else _finer(costs, union) or _buffer(need)
    if edge.reason == "excluded":
        return _alone(costs, edge)
    if edge.reason != "refused":
        return None, None
    other = _OTHER[setting.scheme]
    need_there = _holds(_sized(other, problem.scheme), costs, union)
    if need_there is None:
        return None, None
    words = f"--scheme {other}"
    return need_there, words if need_there < problem.capacity else f"{words} {_buffer(need_there)}"


def _alone(costs: GroupCosts, edge: Boundary) -> tuple[int | None, str | None]:
    """What operators that are left out here need by themselves, before anything can be one with them."""
    ends = [v for v, group in ((edge.producer, edge.before), (edge.consumer, edge.after)) if group is None]
    needs = [_holds(costs.problem.scheme, costs, 1 << v) for v in ends]
    known = [need for need in needs if need is not None]
    return (None, None) if len(known) < len(needs) else (max(known), _buffer(max(known)))


def _holds(scheme: Scheme, costs: GroupCosts, union: int) -> int | None:
    """What a scheme needs for a set of operators; None where it cannot run it at any size."""
    network = costs.problem.network
    if scheme.refusal(network, union) is not None:
        return None
    need = scheme.buffer_bytes(network, union)
    return None if need >= UNBOUNDED else need


def _sized(name: str, like: Scheme) -> Scheme:
    """Another scheme for elements of the same width."""
    return scheme_named(name, {"bits": like.bits})


def _finer(costs: GroupCosts, union: int) -> str | None:
    """The words for a finer step of the same scheme under which the set fits; None where there is none."""
    scheme: Any = costs.problem.scheme
    if getattr(scheme, "granularity", "pixel") == "pixel":
        return None
    need = _holds(replace(scheme, granularity="pixel"), costs, union)
    return "--set granularity=pixel" if need is not None and need < costs.problem.capacity else None


def _buffer(need: int) -> str:
    """The words for the least buffer that holds so many bytes: a group must be smaller than the buffer."""
    return f"--buffer {need + 1}B"


def _splitting(costs: GroupCosts, splitting: Splitting, number: Mapping[int, int]) -> dict[str, Any]:
    """A group that did not fit as the tree of its splits, a part before its halves, `edge` where it was cut."""
    network = costs.problem.network
    names = [operator.name for operator in network.operators]
    parts = []
    for part in parts_of(network, splitting):
        members, need = [*bits_of(part.group)], costs.buffer_bytes(part.group)
        step = part.step
        parts.append(
            {
                "depth": part.depth,
                "nodes": members,
                "first": names[members[0]],
                "last": names[members[-1]],
                "buffer_bytes": None if need >= UNBOUNDED else need,
                "group": number.get(part.group),
                "split": step is not None,
                "edge": None if step is None or step.edge is None else list(step.edge),
                "verdict": None if step is None else _VERDICTS[step.category],
            }
        )
    return {
        "nodes": [*bits_of(splitting.group)],
        "became": len(splitting.parts),
        "rectified": splitting.rectified,
        "rectified_once": splitting.rectified_once,
        "candidates": [{"from": a, "to": b, "names": [names[a], names[b]]} for a, b in splitting.candidates],
        "parts": parts,
        "sentence": _told(splitting),
    }


def _told(splitting: Splitting) -> str:
    start = f"{splitting.group.bit_count()} operators did not fit and became {len(splitting.parts)} groups"
    if not splitting.candidates:
        return f"{start}, split at random."
    if splitting.rectified_once:
        how = "which suffice"
    elif splitting.rectified:
        how = "which do not suffice: parts were explained anew"
    else:
        how = "which do not suffice: the rest was split at random"
    return f"{start}. The explanation blames {len(splitting.candidates)} edges, {how}."
