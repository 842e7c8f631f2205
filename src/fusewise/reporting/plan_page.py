"""The page about a layer-fusion plan: figures, the network with its groups, buffer and traffic of each, reasons, the search."""

from __future__ import annotations

from collections.abc import Sequence

from fusewise.accel.bits import mask_of
from fusewise.accel.plan import LayerFusionPlan
from fusewise.accel.plan_file import summary_of
from fusewise.accel.reasons import Boundary, sentence
from fusewise.accel.schemes.scheme import bytes_for
from fusewise.accel.search.result import Result
from fusewise.accel.split.splitter import Splitting
from fusewise.planning import Planning
from fusewise.reporting.curves import bar, curve
from fusewise.reporting.drawing import Box, DrawnEdge, network
from fusewise.reporting.plain import Markup, page, paragraph, section, table, tiles
from fusewise.reporting.split_trees import split_tree
from fusewise.words import size_text

__all__ = ["plan_page"]


def plan_page(found: Planning) -> str:
    """The whole page."""
    plan, result, setting = found.plan, found.result, found.setting
    title = f"{setting.model}: {setting.scheme.upper()} on {plan.hardware.name}, {size_text(plan.capacity)}"
    parts = [
        section("The plan", _figures(plan, result), paragraph(_proof(result)), *map(paragraph, result.notes)),
        section("Groups", paragraph(_LEGEND), _groups(plan)),
        section("Network", paragraph(_DRAWN), _drawing(plan, found.splittings)),
        section("Why groups end where they do", _reasons(plan, found.boundaries)),
    ]
    if found.splittings:
        number = {mask_of(group.operators): k for k, group in enumerate(plan.groups)}
        trees = [split_tree(found.costs, splitting, number) for splitting in found.splittings]
        parts.append(section("Groups that were split", paragraph(_SPLIT), *trees))
    if plan.excluded:
        parts.append(section("Left out", _excluded(plan)))
    if len(result.history) > 1:
        scale, unit = _UNITS[setting.objective]
        levels = [] if result.lower_bound is None else [("lower bound", result.lower_bound * scale)]
        points = [(float(k), cost * scale) for k, cost in result.history]
        drawn = curve(points, across="plans evaluated", up=f"best plan, {unit}", levels=levels)
        parts.append(section("The search", drawn))
    return page(title, *parts)


_UNITS = {"dram": (1e-6, "MB of DRAM traffic"), "latency": (1.0, "ms"), "energy": (1.0, "mJ")}

_LEGEND = "The mark in the first bar is the buffer's capacity. DRAM traffic counts reads, writes and weights, once for each group."
_DRAWN = (
    "A colour is a group, a dashed box runs alone through DRAM, a dashed line crosses DRAM, a thick line is an edge that an"
    " explanation blamed for a group that did not fit. Point at a box or a line for its figures."
)
_SPLIT = (
    "These groups came up in the search and did not fit; what they were split into stands in the plan. A part is followed by its"
    " halves."
)


def _figures(plan: LayerFusionPlan, result: Result) -> Markup:
    found = summary_of(plan, result, explained=False)
    return tiles(
        [
            ("DRAM traffic of the groups", f"{found['dram_bytes'] / 1e6:.3f} MB"),
            ("with what was left out", f"{found['dram_bytes_full'] / 1e6:.3f} MB"),
            ("groups", str(found["groups"])),
            ("left out", str(found["excluded"])),
            ("largest buffer need", size_text(found["max_buffer_bytes"])),
            ("latency, estimated", f"{found['latency_ms']:.3f} ms"),
            ("energy, estimated", f"{found['energy_mj']:.3f} mJ"),
            ("plans evaluated", f"{found['plans_evaluated']:,}"),
            ("search", f"{found['search_s']:.2f} s"),
        ]
    )


def _proof(result: Result) -> str:
    if result.optimal:
        return "Proven optimal: no plan of this model under this scheme and buffer costs less."
    if result.gap is None:
        return "No lower bound is known for this plan; the exact search gives one."
    return f"Within {result.gap:.2%} of the least cost possible."


def _groups(plan: LayerFusionPlan) -> Markup:
    operators = plan.network.operators
    most_dram = max((group.dram_bytes for group in plan.groups), default=1)
    rows: list[list[object]] = []
    for number, group in enumerate(plan.groups):
        first, last = operators[group.operators[0]].name, operators[group.operators[-1]].name
        rows.append(
            [
                f"{number}",
                first if first == last else f"{first} … {last}",
                len(group.operators),
                bar(
                    group.buffer_bytes, plan.capacity * 1.02, limit=plan.capacity, title=f"{group.buffer_bytes:,} bytes"
                ),
                size_text(group.buffer_bytes),
                bar(group.dram_bytes, most_dram, title=f"{group.dram_bytes:,} bytes"),
                size_text(group.dram_bytes),
            ]
        )
    return table(("group", "from … to", "operators", "buffer", "", "DRAM", ""), rows, words=2)


def _drawing(plan: LayerFusionPlan, splittings: Sequence[Splitting]) -> Markup:
    blamed = {edge for splitting in splittings for edge in splitting.candidates}
    net, bits = plan.network, plan.scheme.bits
    owner = {v: number for number, group in enumerate(plan.groups) for v in group.operators}
    alone = {one.operator: one for one in plan.excluded}
    boxes = []
    for v, operator in enumerate(net.operators):
        shapes = ", ".join(f"{t.channels}x{t.height}x{t.width}" for t in (net.tensors[k] for k in operator.writes))
        where = f"group {owner[v]}" if v in owner else f"left out: {alone[v].reason}"
        boxes.append(
            Box(f"{operator.op} {operator.name}", owner.get(v), f"{operator.op} {operator.name} -> {shapes}; {where}")
        )
    edges = []
    for before, after in net.edges:
        crossing = sum(
            net.tensors[t].elements for t in net.operators[before].writes if net.tensors[t].consumers >> after & 1
        )
        edges.append(DrawnEdge(before, after, size_text(bytes_for(crossing, bits)), (before, after) in blamed))
    return network(boxes, edges)


def _reasons(plan: LayerFusionPlan, boundaries: Sequence[Boundary]) -> Markup:
    rows = [
        [
            "-" if boundary.before is None else boundary.before,
            "-" if boundary.after is None else boundary.after,
            sentence(plan.network, boundary),
            size_text(boundary.crossing_bytes),
        ]
        for boundary in boundaries
    ]
    return table(("from", "to", "reason", "crossing"), rows, words=3)


def _excluded(plan: LayerFusionPlan) -> Markup:
    most = max((one.buffer_bytes or 0 for one in plan.excluded), default=1)
    rows: list[list[object]] = []
    for one in plan.excluded:
        need = one.buffer_bytes
        over = "" if need is None else f"{need - plan.capacity + 1:,}"
        drawn = "" if need is None else bar(need, most, limit=plan.capacity, title=f"{need:,} bytes")
        rows.append([plan.network.operators[one.operator].name, one.reason, drawn, over, f"{one.dram_bytes:,}"])
    return table(("operator", "reason", "buffer need", "bytes too many", "DRAM bytes"), rows, words=2)
