"""What passes by name make of a graph on this machine: those that matter for it, a pipeline, or a list of names.

How a pipeline is run stands in `select`; here it is given what `select` does not know: the passes that suit this machine, and the
blocks that are fused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from fusewise.codegen.legalize import stand_ins
from fusewise.fusion.ecg import ExtendedGraph
from fusewise.fusion.patterns import pattern_groups
from fusewise.ir.graph import Graph
from fusewise.passes.published import step_named, step_names
from fusewise.runtime.host import host_target
from fusewise.select.enabling import enabling
from fusewise.select.pipeline import DEFAULT, Pipeline, pipeline_named
from fusewise.select.pipeline_file import read_pipeline
from fusewise.select.relevance import candidates, matches
from fusewise.select.sequence import Blocks, Outcome, run_pipeline
from fusewise.trace import Trace

__all__ = ["AUTO", "asked", "auto", "blocks_of", "outcome_of", "run_here"]

AUTO = "auto"


def asked(
    passes: str, graph: Graph, trace: Trace, exact: bool, disable: tuple[str, ...], warn: Callable[[str], None]
) -> tuple[Graph, str, tuple[str, ...]]:
    """The graph that `passes` leave, the planner to fuse it with, and `disable` with what they do not allow.

    `warn` is told which passes a fused block kept out.
    """
    outcome = outcome_of(passes, graph, trace, exact=exact)
    held = [f"{run.name} ({run.held} rewrites)" for run in outcome.runs if run.held]
    if held:
        warn(f"nodes inside fused blocks were left as they are by {', '.join(held)}; run these before FuseOps")
    trace.disabled |= frozenset(outcome.disables)
    return outcome.graph, outcome.fusion, (*disable, *outcome.disables)


def outcome_of(passes: str, graph: Graph, trace: Trace | None = None, *, exact: bool = False) -> Outcome:
    """What `passes` makes of a graph: `auto`, the name of a pipeline, a pipeline file, or passes by name joined by commas.

    A pass that is named is asked for, be it approximate or one that adds outputs.

    Raises `UsageError` for a name that does not exist, and for a file with an unknown key or a pass of another version.
    """
    if passes == AUTO:
        return auto(graph, trace, exact=exact)
    path, names = Path(passes), tuple(name.strip() for name in passes.split(","))
    if path.suffix == ".toml" or path.exists():
        pipeline = read_pipeline(path)
    elif len(names) > 1 or passes in step_names():
        pipeline = Pipeline(passes, names, approximate=True, about="passes by name", gradients=True)
    else:
        pipeline = pipeline_named(passes)
    return run_here(pipeline, graph, trace, exact=exact, blocks=blocks_of)


def auto(
    graph: Graph, trace: Trace | None = None, *, exact: bool = False, counts: Mapping[str, int] | None = None
) -> Outcome:
    """The clean-up with the passes that may matter for this graph: those with matches, and those that others may make some for.

    In the end every pass that was left out is asked once more; should one have something to do after all, it takes part. `counts`
    is what `select.relevance.matched` gives, where it is known.
    """
    decisions = Trace() if trace is None else trace
    start = (decisions.gates, len(decisions.events))
    instead = stand_ins(host_target())
    chosen = set(candidates(graph, enabling(), DEFAULT.passes, counts, instead))
    while True:
        names = tuple(name for name in DEFAULT.passes if name in chosen)
        decisions.gates = start[0]
        del decisions.events[start[1] :]
        outcome = run_here(replace(DEFAULT, name=AUTO, passes=names), graph, decisions, exact=exact)
        missed = {
            name
            for name in DEFAULT.passes
            if name not in chosen
            and not _refused(name, exact)
            and matches(instead.get(function := step_named(name).function, function), outcome.graph)
        }
        if not missed:
            return outcome
        chosen |= missed


def _refused(name: str, exact: bool) -> bool:
    return exact and step_named(name).numeric_class != "exact"


def run_here(
    pipeline: Pipeline, graph: Graph, trace: Trace | None = None, *, exact: bool = False, blocks: Blocks | None = None
) -> Outcome:
    """`select.sequence.run_pipeline` with the passes that suit this machine."""
    return run_pipeline(pipeline, graph, trace, exact=exact, blocks=blocks, instead=stand_ins(host_target()))


def blocks_of(graph: Graph) -> Iterable[Iterable[str]]:
    """Labels of the nodes in every block that fixed patterns fuse."""
    groups = pattern_groups(ExtendedGraph(graph), Trace())
    return [[graph.nodes[n].label for n in group.nodes] for group in groups]
