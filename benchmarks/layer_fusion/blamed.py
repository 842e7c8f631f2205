"""Figure 4: a group of EfficientNet-B0 that does not fit, and which of its edges GNNExplainer, PGExplainer and RG-Explainer blame,
side by side; with what each of them splits it into."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from benchmarks.layer_fusion.cells import problem_of
from benchmarks.layer_fusion.drawing import Box, DrawnEdge, network
from benchmarks.layer_fusion.plain import Markup, page, paragraph, section, table
from benchmarks.layer_fusion.printed import Column

from fusewise.accel.bits import bits_of
from fusewise.accel.explain.candidates import EdgeShare
from fusewise.accel.explain.catalogue import explainer_named
from fusewise.accel.explain.explainer import edges_inside
from fusewise.accel.problem import GroupCosts
from fusewise.accel.search.space import GroupingSpace
from fusewise.accel.split.recursive import RecursiveSplitter
from fusewise.accel.split.splitter import Splitting
from fusewise.words import size_text

__all__ = ["blamed_page", "group_of"]

COLUMN = Column("efficientnet_b0", "lbdf", 128, 0)
_OPERATORS, _PLANS = (16, 26), 200


def blamed_page(explainers: Sequence[str], share: float) -> tuple[str, str]:
    """The page, and its table as text."""
    costs = GroupCosts(problem_of(COLUMN))
    group = group_of(costs)
    splittings = {
        name: RecursiveSplitter(costs, explainer_named(name, COLUMN.scheme), EdgeShare(share, 1))([group])[0]
        for name in explainers
    }
    heads = ("explainer", "edges blamed", "groups", "largest buffer", "DRAM traffic", "the first explanation suffices")
    rows = [
        (
            name,
            f"{len(one.candidates)} of {len(edges_inside(costs.problem.network, group))}",
            len(one.parts),
            size_text(max(map(costs.buffer_bytes, one.parts))),
            size_text(round(costs.total(one.parts))),
            "yes" if one.rectified_once else "no",
        )
        for name, one in splittings.items()
    ]
    drawings = [Markup(f"<div><h3>{name}</h3>{_drawing(costs, one)}</div>") for name, one in splittings.items()]
    told = (
        f"{group.bit_count()} operators of EfficientNet-B0 need {size_text(costs.buffer_bytes(group))} of buffer where"
        f" there are {size_text(costs.problem.capacity)} (LBDF). A thick line is an edge that the explainer blames, with"
        f" a share of {share:.0%} of the edges; colours are the groups that Algorithm 1 makes of it."
    )
    beside = Markup(f'<div style="display:flex;gap:1.5rem;overflow:auto">{"".join(drawings)}</div>')
    text = "\n".join([told, "", *("  ".join(map(str, row)) for row in (heads, *rows))])
    html = page(
        "Explanations of a group that does not fit", section("Blamed", paragraph(told), table(heads, rows), beside)
    )
    return html, text


def group_of(costs: GroupCosts) -> int:
    """The first group that random plans meet which does not fit, has a path beside another, and can be taken in at a glance."""
    space, rng, network = GroupingSpace(costs.problem), np.random.default_rng(0), costs.problem.network
    plans = (space.ordered(space.random(rng)) for _ in range(_PLANS))
    return next(
        group
        for plan in plans
        for group in plan
        if _OPERATORS[0] <= group.bit_count() <= _OPERATORS[1]
        and len(edges_inside(network, group)) > group.bit_count()
        and not costs.fits(group)
    )


def _drawing(costs: GroupCosts, splitting: Splitting) -> Markup:
    """The operators of the group, with the groups it becomes, and the edges between them."""
    problem, members = costs.problem, list(bits_of(splitting.group))
    operators, place = problem.network.operators, {v: k for k, v in enumerate(members)}
    part = {v: number for number, part in enumerate(splitting.parts) for v in bits_of(part)}
    boxes = [
        Box(f"{operators[v].op} {operators[v].name}", part[v], f"{operators[v].name}: group {part[v]}") for v in members
    ]
    edges = [
        DrawnEdge(place[u], place[v], f"{operators[u].name} → {operators[v].name}", (u, v) in splitting.candidates)
        for u, v in edges_inside(problem.network, splitting.group)
    ]
    return network(boxes, edges)
