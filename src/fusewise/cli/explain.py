"""`fusewise explain`: what was decided about a node of a model, or why a group of a plan ends where it does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fusewise.cli.completion import model_names
from fusewise.cli.decisions import DecisionsFile, check_decisions_file, traced
from fusewise.cli.options import (
    Device,
    Disable,
    Exact,
    Exported,
    Fusion,
    Json,
    Precision,
    Seed,
    Shapes,
    Symbols,
    Threads,
    Values,
    check_folder,
    model_of,
    options_of,
    source_of,
)
from fusewise.cli.plan import Share
from fusewise.errors import UsageError

__all__ = ["explain"]

Subject = Annotated[
    str,
    typer.Argument(
        metavar="MODEL|PLAN",
        help="A model, or a plan.json that `fusewise plan -o` wrote.",
        autocompletion=model_names,
    ),
]
NodeName = Annotated[
    str | None, typer.Option("--node", metavar="NODE", help="Of a model: the node, or one of its results, to explain.")
]
GroupNumber = Annotated[int | None, typer.Option("--group", min=0, help="Of a plan: the group to explain.")]
Neighbour = Annotated[
    int | None,
    typer.Option("--with", min=0, help="The neighbour it might run with (default: the one that misses least)."),
]
ExplainerName = Annotated[str, typer.Option("--explainer", help="What finds where to cut.")]


def explain(
    context: typer.Context,
    subject: Subject,
    node: NodeName = None,
    group: GroupNumber = None,
    neighbour: Neighbour = None,
    explainer: ExplainerName = "smallest",
    share: Share = 0.3,
    seed: Seed = 0,
    exported: Exported = False,
    shape: Shapes = None,
    symbol: Symbols = None,
    value: Values = None,
    threads: Threads = None,
    exact: Exact = False,
    disable: Disable = None,
    fusion: Fusion = "dnnfusion",
    precision: Precision = "float32",
    device: Device = "cpu",
    decisions: DecisionsFile = None,
    json: Json = False,
) -> None:
    """Say what was decided about a node of MODEL, in order, and why; or why a group of PLAN ends where it does.

    Of a plan: what the group keeps in the buffer, why it does not run with its neighbours, and where to cut them.
    """
    from fusewise import api
    from fusewise.cli.show import print_json

    if subject.endswith(".json"):
        if group is None or node is not None:
            raise UsageError(f"{subject} is a plan: say which group to explain with --group NUMBER")
        found = api.explain(Path(subject), group, neighbour=neighbour, explainer=explainer, share=share, seed=seed)
        print_json(found) if json else _show_group(found)
        return
    if subject.endswith(".jsonl"):
        raise UsageError(f"{subject} holds decisions or results, one a line; explain reads a model or a plan (.json)")
    if node is None or group is not None:
        raise UsageError(f"{subject} is a model: say which node to explain with --node NAME (a plan ends in .json)")
    check_decisions_file(decisions)
    check_folder(decisions)
    found = _node(model_of(subject, exported), node, context, decisions)
    print_json(found) if json else _show_node(found)


def _node(model: str, node: str, context: typer.Context, decisions: Path | None) -> dict[str, Any]:
    """The decisions about a node of a model, which is compiled down to kernels for that, but not to machine code."""
    from fusewise import api
    from fusewise.cli.show import progress

    options = options_of(context)
    with progress() as report, traced(decisions, options.disable) as trace:
        report("loading", 0.0)
        return {"model": model, **api.explain(source_of(model), node=node, options=options, trace=trace)}


def _show_node(found: Mapping[str, Any]) -> None:
    from fusewise.cli.show import facts, table

    facts([("node", f"{found['node']} ({found['op']})")])
    typer.echo()
    rows = [
        (
            f"{event['kind']}: {event['what']}",
            "yes" if event["applied"] else "no",
            event["reason"],
            ", ".join(name for name in event["where"] if name != found["node"]),
        )
        for event in found["decisions"]
    ]
    if rows:
        table(("decision", "done", "reason", "with"), rows, words=(0, 1, 2, 3), ranks=(0, 1, 2, 3))
    else:
        typer.echo("nothing was decided about it: no pass, rule or fusion had to do with it\n")
    if not found["became"]:
        typer.echo("it is none of the compiled model: it was computed beforehand, or nothing needs it")
    facts([(f"{row['op']} {row['node']}", f"{row['runs']}: {row['how']}".lstrip(": ")) for row in found["became"]])


def _show_group(found: Mapping[str, Any]) -> None:
    from fusewise.cli.show import facts, sentence, table

    facts([("group", f"{found['group']}: {', '.join(found['nodes'])}"), ("buffer", _of(found["buffer_bytes"], found))])
    typer.echo()
    table(("holds", "bytes", "why"), _entries(found["holds"]), words=(0, 2), ranks=(0, 1, 2))
    for line in found["reasons"]:
        sentence(line)
    union = found["union"]
    if union is None:
        return
    typer.echo()
    sentence(f"Together with group {union['with']} it would need {_of(union['buffer_bytes'], found)}:")
    table(("holds", "bytes", "why"), _entries(union["holds"][:8]), words=(0, 2), ranks=(0, 1, 2))
    for step in union["splits"]:
        where = f"cut {step['edge'][0]} -> {step['edge'][1]}" if step["edge"] else "cut at random"
        halves = " and ".join(f"{half:,}" for half in step["buffer_bytes"])
        sentence(f"{where}: halves of {halves} bytes ({step['verdict']})")


def _of(need: int, found: Mapping[str, Any]) -> str:
    return f"{need:,} of {found['capacity_bytes']:,} bytes ({need / found['capacity_bytes']:.0%})"


def _entries(holds: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    return [(entry["what"], f"{entry['nbytes']:,}", entry["why"]) for entry in holds]
