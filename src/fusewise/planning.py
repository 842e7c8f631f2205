"""Layer-fusion planning as a user asks for it: a model, an accelerator, a scheme and a search in; a plan with its reasons out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from fusewise.accel.account import account
from fusewise.accel.bits import bits_of
from fusewise.accel.check import check
from fusewise.accel.estimate import objective_named
from fusewise.accel.explain.candidates import EdgeShare
from fusewise.accel.explain.catalogue import explainer_named
from fusewise.accel.explain.explainer import Explainer
from fusewise.accel.feasible import require_feasible
from fusewise.accel.hardware import DEFAULT, Hardware, hardware_named
from fusewise.accel.lone_norms import lone_norms
from fusewise.accel.network import network_of, prepare
from fusewise.accel.plan import LayerFusionPlan, partition_of, plan_of
from fusewise.accel.plan_file import SavedPlan, Setting, plan_json, summary_of
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.reasons import Boundary, boundaries, sentence
from fusewise.accel.schemes.scheme import UNBOUNDED
from fusewise.accel.search.catalogue import search_named
from fusewise.accel.search.repair import Repair
from fusewise.accel.search.result import Result, SearchBudget
from fusewise.accel.split.recursive import RecursiveSplitter, require_asking
from fusewise.accel.split.splitter import SplitStep, Splitting
from fusewise.accel.split.tree import kept
from fusewise.cards import Card, carded, one_line
from fusewise.errors import UnsupportedModel, UsageError
from fusewise.files import write_text, written_whole
from fusewise.ir.graph import Graph
from fusewise.ir.types import TensorType
from fusewise.records import record
from fusewise.words import bytes_of, size_text

if TYPE_CHECKING:
    import onnx

__all__ = [
    "CutSettings",
    "PlanDict",
    "PlanOptions",
    "Planning",
    "explain_group",
    "explain_saved",
    "plan_graph",
    "plan_options",
    "require_sizes",
]

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class PlanOptions:
    """How to plan.

    `hardware` is a preset or a `.toml` file; `buffer`, in bytes or as text such as `256KiB`, takes the place of its buffer.
    `scheme_options` are those of LBDF or BRR by name. `search`: exact, random, local or nsga2, with a budget of `plans` and
    `seconds` (None: the search's own); local search changes a plan by so many `edits` at a time (None: one or a few).
    `explainer` names what finds where to split a group that does not fit (None: at random), from a `share` of the group's edges;
    it is asked `anew` about every part, or `once`. The same `seed` gives the same plan.
    """

    hardware: str = DEFAULT
    buffer: int | str | None = None
    scheme: str = "lbdf"
    scheme_options: Mapping[str, object] | None = None
    search: str = "exact"
    objective: str = "dram"
    explainer: str | None = None
    share: float = 0.3
    asking: str = "anew"
    edits: int | None = None
    plans: int | None = None
    seconds: float | None = None
    seed: int = 0


class PlanDict(TypedDict, total=False):
    """`PlanOptions`, given one by one as keywords."""

    hardware: str
    buffer: int | str | None
    scheme: str
    scheme_options: Mapping[str, object] | None
    search: str
    objective: str
    explainer: str | None
    share: float
    asking: str
    edits: int | None
    plans: int | None
    seconds: float | None
    seed: int


def _card(found: Planning) -> Card:
    plan, result, setting = found.plan, found.result, found.setting
    proven = "proven best" if result.optimal else "the best found"
    searched = f"{setting.search} search for least {setting.objective}: {proven} of {result.plans_evaluated:,}"
    return Card(
        f"Plan of {one_line(setting.model)} by {setting.scheme}: {len(plan.groups):,} groups, {len(plan.excluded):,} left out",
        (
            (
                "memory",
                f"{size_text(plan.dram_bytes_full)} to and from DRAM, {size_text(plan.dram_bytes)} of it by groups",
            ),
            ("buffer", f"{size_text(plan.max_buffer_bytes)} of {size_text(plan.capacity)} at most"),
            ("estimate", f"{plan.latency_ms:.4g} ms, {plan.energy_mj:.4g} mJ"),
            ("found by", f"{searched} plans, {result.seconds:.3g} s"),
        ),
    )


@dataclass(frozen=True)
@carded(_card)
class Planning:
    """A plan, how it was found, and what it is about.

    `graph` is the prepared graph, node v being operator v of the plan. `splittings` are the groups that the search met, that did
    not fit, and whose parts stand in the plan.
    """

    plan: LayerFusionPlan
    result: Result
    setting: Setting
    costs: GroupCosts
    graph: Graph
    splittings: tuple[Splitting, ...] = ()
    course: tuple[tuple[float, int, float], ...] = ()

    @property
    def summary(self) -> dict[str, Any]:
        """The figures by name: `dram_bytes`, `dram_bytes_full`, `max_buffer_bytes`, `groups`, `excluded`, `optimal`, ..."""
        return summary_of(self.plan, self.result, explained=self.setting.explainer is not None)

    @cached_property
    def boundaries(self) -> tuple[Boundary, ...]:
        """Why groups end where they do."""
        return boundaries(self.costs, self.result.groups)

    def to_json(self) -> dict[str, Any]:
        """The whole plan as plain data."""
        return plan_json(self.plan, self.result, self.setting, self.boundaries, self.splittings)

    def to_onnx(self) -> onnx.ModelProto:
        """The prepared model with each group as a model-local function; it computes the same in any runtime."""
        from fusewise.frontend.lowest_opset import at_lowest_opset
        from fusewise.frontend.onnx_functions import model_with_functions

        partition = partition_of(self.plan, at_lowest_opset(self.graph))
        number = {group.operators: k for k, group in enumerate(self.plan.groups)}
        names = [f"group_{number[g.nodes]}" if g.nodes in number else None for g in partition.groups]
        return model_with_functions(partition, names)

    def save(self, path: str | Path) -> None:
        """Write the plan as `.json` or `.onnx`, whole or not at all; `UsageError` for another ending."""
        target = Path(path)
        if target.suffix == ".json":
            write_text(target, json.dumps(self.to_json(), indent=1) + "\n")
        elif target.suffix == ".onnx":
            data = self.to_onnx().SerializeToString(deterministic=True)
            with written_whole(target) as (draft,):
                draft.write_bytes(data)
        else:
            raise UsageError(
                f"a plan is written as .json or .onnx (and by the command as .html), not as {target.name!r}"
            )


def plan_options(options: PlanOptions | None, settings: Mapping[str, Any]) -> PlanOptions:
    """`options` with the fields that `settings` has; `UsageError` for one that there is not."""
    try:
        return replace(PlanOptions() if options is None else options, **settings)
    except TypeError as error:
        known = ", ".join(PlanOptions.__dataclass_fields__)
        raise UsageError(f"{str(error).split('.__init__() ')[-1]}; the options of a plan are {known}") from None


def require_sizes(graph: Graph, shapes: Mapping[str, Sequence[int]], symbols: Mapping[str, int]) -> None:
    """`UnsupportedModel` when an input has a free dimension other than its first, for which no size makes sense by itself."""
    for name in graph.inputs:
        kind = graph.types[name]
        if name in shapes or not isinstance(kind, TensorType) or kind.shape is None:
            continue
        free = [dim for dim in kind.shape[1:] if not isinstance(dim, int) and dim not in symbols]
        if free:
            raise UnsupportedModel(
                f"planning needs fixed sizes, but input {name!r} is {kind}: give its shape with --shape {name}=1x3x224x224"
            )


def plan_graph(
    graph: Graph,
    name: str,
    options: PlanOptions,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    symbols: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> Planning:
    """The best plan for a graph of fixed shapes; `name`, `shapes` and `symbols` say how to get it again.

    Raises `NoFeasiblePlan` when nothing can be planned, and `UsageError` for an unknown name (with the nearest one), or one that
    needs packages which are not installed.
    """
    chip = _hardware(options)
    scheme = chip.scheme(options.scheme, options.scheme_options)
    search = search_named(options.search, edits=options.edits)
    require_asking(options.asking)
    objective = None if options.objective == "dram" else objective_named(options.objective, chip)
    prepared = prepare(graph)
    network = network_of(prepared)
    costs = GroupCosts(Problem(network, scheme, chip.buffer_bytes), objective)
    require_feasible(costs.problem)
    splitter = None
    if options.explainer is not None:
        explainer = explainer_named(options.explainer, options.scheme, seed=options.seed)
        splitter = RecursiveSplitter(
            costs, explainer, EdgeShare(options.share), seed=options.seed, asking=options.asking
        )
    budget = SearchBudget(options.plans, options.seconds)
    course: list[tuple[float, int, float]] = []
    told = None if progress is None else _told(progress, budget, course)
    repair = Repair(costs, splitter, seed=options.seed)
    result = search(costs, budget, np.random.default_rng(options.seed), repair, told)
    if left := lone_norms(graph, prepared):
        result = replace(result, notes=(*result.notes, _unfolded(left)))
    plan = plan_of(costs, result.groups, chip)
    check(plan, prepared)
    setting = Setting(
        name,
        dict(shapes or {}),
        dict(symbols or {}),
        options.scheme,
        dict(options.scheme_options or {}),
        options.search,
        options.objective,
        options.explainer,
        options.seed,
        options.asking,
        options.edits,
    )
    splittings = kept(repair.splittings.values(), result.groups)
    return Planning(plan, result, setting, costs, prepared, splittings, tuple(course))


def _unfolded(names: Sequence[str]) -> str:
    """That batch normalisations were left over, a few of them by name."""
    some = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return (
        f"no convolution can take in the batch normalisation of {some}: each runs as a product and a sum with weights"
    )


def _hardware(options: PlanOptions) -> Hardware:
    chip = hardware_named(options.hardware)
    if options.buffer is None:
        return chip
    return chip.with_buffer(bytes_of(options.buffer) if isinstance(options.buffer, str) else options.buffer)


def _told(
    progress: Progress, budget: SearchBudget, course: list[tuple[float, int, float]]
) -> Callable[[int, float], None]:
    """Passes on what a search tells, and adds to its `course` whenever the best falls."""
    begin = time.perf_counter()

    def tell(plans: int, best: float) -> None:
        if not course or best < course[-1][2]:
            course.append((time.perf_counter() - begin, plans, best))
        spent = (plans, budget.plans), (time.perf_counter() - begin, budget.seconds)
        share = max((used / limit for used, limit in spent if limit), default=0.0)
        progress(f"planning: {plans:,} plans, best {best:,.6g}", min(1.0, share))

    return tell


@record(frozen=True)
class CutSettings:
    """Where to cut two groups that do not fit as one: by this explainer, at such a share of its edges, with this seed."""

    explainer: str
    share: float
    seed: int


def explain_saved(
    saved: SavedPlan, graph: Graph, where: str, pair: tuple[int, int | None], cuts: CutSettings
) -> dict[str, Any]:
    """`explain_group` for a group, and its neighbour where one is named, of a plan read from the file `where`, given its model's
    graph."""
    setting, chip = saved.setting, saved.hardware
    network = network_of(prepare(graph))
    scheme = chip.scheme(setting.scheme, setting.scheme_options)
    costs = GroupCosts(Problem(network, scheme, chip.buffer_bytes), objective_named(setting.objective, chip))
    explainer = explainer_named(cuts.explainer, setting.scheme, seed=cuts.seed)
    return explain_group(costs, saved.masks(network, where), *pair, explainer, cuts.share, cuts.seed)


def explain_group(
    costs: GroupCosts,
    groups: Sequence[int],
    number: int,
    neighbour: int | None,
    explainer: Explainer,
    share: float,
    seed: int,
) -> dict[str, Any]:
    """What group `number` of a plan keeps in the buffer, why it ends where it does, and where to cut it and a neighbour.

    The neighbour is the one that misses the capacity by the least when none is named. `UsageError` for a group that the plan does
    not have, or that is no neighbour.
    """
    if number >= len(groups):
        raise UsageError(f"the plan has groups 0 to {len(groups) - 1}, and none numbered {number}")
    problem = costs.problem
    around = [edge for edge in boundaries(costs, groups) if number in (edge.before, edge.after)]
    others = {edge.after if edge.before == number else edge.before: edge for edge in around}
    if neighbour is not None and neighbour not in others:
        known = ", ".join(str(k) for k in sorted(k for k in others if k is not None)) or "none"
        raise UsageError(f"group {neighbour} is no neighbour of group {number}; those are: {known}")
    large = sorted((edge.over_bytes, k) for k, edge in others.items() if k is not None and edge.reason == "too large")
    chosen = neighbour if neighbour is not None else large[0][1] if large else None
    group = groups[number]
    return {
        "group": number,
        "nodes": [problem.network.operators[v].name for v in bits_of(group)],
        "capacity_bytes": problem.capacity,
        "buffer_bytes": costs.buffer_bytes(group),
        "dram_bytes": costs.dram_bytes(group),
        "holds": [asdict(entry) for entry in account(problem, group)],
        "reasons": [sentence(problem.network, edge) for edge in around],
        "union": None if chosen is None else _union(costs, group | groups[chosen], chosen, explainer, share, seed),
    }


def _union(costs: GroupCosts, union: int, other: int, explainer: Explainer, share: float, seed: int) -> dict[str, Any]:
    """What two groups would need as one, and the splits that an explanation leads to."""
    problem = costs.problem
    names = [operator.name for operator in problem.network.operators]
    steps: Sequence[SplitStep] = ()
    if not costs.fits(union) and problem.is_group(union) and costs.buffer_bytes(union) < UNBOUNDED:
        (splitting,) = RecursiveSplitter(costs, explainer, EdgeShare(share), seed=seed)((union,))
        steps = splitting.steps
    verdicts = {1: "both fit", 2: "one fits", 3: "neither fits"}
    return {
        "with": other,
        "buffer_bytes": costs.buffer_bytes(union),
        "holds": [asdict(entry) for entry in account(problem, union)],
        "splits": [
            {
                "edge": None if step.edge is None else [names[v] for v in step.edge],
                "buffer_bytes": [costs.buffer_bytes(step.before), costs.buffer_bytes(step.after)],
                "dram_bytes": [costs.dram_bytes(step.before), costs.dram_bytes(step.after)],
                "verdict": verdicts[step.category],
            }
            for step in steps
        ],
    }
