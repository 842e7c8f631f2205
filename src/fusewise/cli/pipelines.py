"""Pipelines that run before a search, and how their runs, regions for back ends and the normal forms of a graph are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fusewise.words import KIB, no_such

if TYPE_CHECKING:
    from fusewise.ir.graph import Graph
    from fusewise.passes.runner import PassRun
    from fusewise.trace import Trace

__all__ = ["Before", "show_form", "show_regions"]


def show_regions(found: Mapping[str, Any]) -> None:
    """The regions as a table, in the order they run, and why nodes went past a back end."""
    from fusewise.cli.show import facts, table

    rows = [
        (
            row["region"],
            str(len(row["nodes"])),
            ", ".join(f"{count} {op}" for op, count in row["operators"].items()),
            f"{row['bytes_read'] / KIB:.1f}",
            f"{row['bytes_written'] / KIB:.1f}",
        )
        for row in found["regions"]
    ]
    table(("region", "nodes", "operators", "KiB read", "KiB written"), rows, words=(0, 2), ranks=(0, 1, 2, 4, 3))
    refused = [
        (f"not {name}", f"{count} nodes: {reason}")
        for name, reasons in found["refused"].items()
        for reason, count in reasons.items()
    ]
    regions = ", ".join(f"{count} {name}" for name, count in found["back_ends"].items())
    facts([("regions", regions), *refused, *(("note", note) for note in found["notes"])])


@dataclass(frozen=True)
class Before:
    """What a pipeline left of a graph, and what each of its passes did: nothing where there was no pipeline."""

    graph: Graph
    runs: tuple[PassRun, ...] = ()

    @staticmethod
    def run(pipeline: str | None, graph: Graph, trace: Trace, exact: bool) -> Before:
        """The graph after `pipeline`, if there is one."""
        if pipeline is None:
            return Before(graph)
        from fusewise.outcomes import outcome_of

        outcome = outcome_of(pipeline, graph, trace, exact=exact)
        return Before(outcome.graph, outcome.runs)

    def summary(self, graph: Graph) -> dict[str, Any]:
        """The runs, and the regions of the graph that came of it, as plain JSON values."""
        if not self.runs:
            return {}
        from fusewise.partitioning import regions_of

        regions = regions_of(graph)
        runs = [{"pass": run.name, "ms": run.ms, "changed": run.changed, "why": run.why} for run in self.runs]
        return {"passes": runs, "regions": None if regions is None else regions.summary}

    def show(self, graph: Graph) -> None:
        """The same as tables."""
        if not self.runs:
            return
        from fusewise.cli.show import table
        from fusewise.partitioning import regions_of

        rows = [(run.name, f"{run.ms:.1f}", "changed" if run.changed else run.why or "unchanged") for run in self.runs]
        table(("pass", "ms", ""), rows, words=(0, 2), ranks=(0, 2, 1))
        regions = regions_of(graph)
        if regions is not None:
            show_regions(regions.summary)


def show_form(graph: Graph, form: str) -> None:
    """The graph written down in a normal form; `UsageError` for one that there is not."""
    import sys

    from fusewise.ir.forms import FORMS

    if form not in FORMS:
        raise no_such("form", form, FORMS)
    sys.stdout.write(FORMS[form](graph))
