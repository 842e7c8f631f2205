"""`fusewise inspect`: what a model is, what of it runs natively, which nodes are fused and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from fusewise.cli.options import Fusion, Json, ModelName, Shapes, Symbols, shapes_of, symbols_of

__all__ = ["inspect"]

Groups = Annotated[bool, typer.Option("--groups", help="List the groups of nodes that run as one kernel each.")]
Why = Annotated[
    str | None, typer.Option("--why", metavar="NODE", help="Why NODE is or is not fused with each neighbour.")
]


def inspect(
    model: ModelName,
    shape: Shapes = None,
    symbol: Symbols = None,
    fusion: Fusion = "dnnfusion",
    groups: Groups = False,
    why: Why = None,
    json: Json = False,
) -> None:
    """Say what MODEL is: operators, mapping types, size, cost, what of it runs natively here, and how it is fused."""
    from fusewise import api
    from fusewise.cli.show import print_json

    found = api.inspect(
        model, shapes=shapes_of(shape), symbols=symbols_of(symbol), fusion=fusion, groups=groups, why=why
    )
    if json:
        print_json(found)
    elif why is not None:
        _neighbours(found["why"])
    elif groups:
        _groups(found["groups"])
        _figures(found)
    else:
        _whole(found)


def _whole(found: Mapping[str, Any]) -> None:
    from fusewise.cli.show import count, facts, table

    facts(
        [
            ("model", found["model"]),
            ("opset", str(found["opset"])),
            *(("input", f"{name}: {kind}") for name, kind in found["inputs"].items()),
            *(("output", f"{name}: {kind}") for name, kind in found["outputs"].items()),
            ("nodes", f"{found['nodes']} ({found['nodes_compiled']} after clean-up)"),
            ("parameters", count(found["parameters"])),
            ("multiply-accumulates", count(found["macs"])),
            ("native nodes", str(found["native_nodes"])),
            ("host nodes", str(found["host_nodes"])),
            *(("  on the host", f"{row['op']} {row['node']}: {row['reason']}") for row in found["host"]),
        ]
    )
    _figures(found)
    table(("operator", "nodes"), [(name, str(n)) for name, n in found["operators"].items()])
    table(("mapping type", "nodes"), [(name.replace("_", "-"), str(n)) for name, n in found["mapping_types"].items()])


def _figures(found: Mapping[str, Any]) -> None:
    from fusewise.cli.show import facts

    before, after = (found[f"intermediate_bytes_{when}"] / 1e6 for when in ("before", "after"))
    facts(
        [
            ("groups", f"{found['group_count']} ({found['fusion_rate']:.1f} nodes each)"),
            ("between them", f"{after:.1f} MB of intermediate results ({before:.1f} MB unfused)"),
        ]
    )


def _groups(groups: Sequence[Mapping[str, Any]]) -> None:
    from fusewise.cli.show import table

    table(
        ("operators", "group", "type", "anchor", "kB saved", "stopped because"),
        [
            (
                " + ".join(member["op"] for member in group["members"]),
                str(group["group"]),
                group["type"].replace("_", "-"),
                group["anchor"] or "",
                f"{group['bytes_saved'] / 1e3:.1f}",
                "; ".join(group["stopped_by"]),
            )
            for group in groups
        ],
    )


def _neighbours(found: Mapping[str, Any]) -> None:
    from fusewise.cli.show import facts, table

    facts(
        [
            ("node", f"{found['node']} ({found['op']}, {found['type'].replace('_', '-')})"),
            ("group", f"{found['group']}: {', '.join(found['members'])}"),
        ]
    )
    table(
        ("neighbour", "side", "fused", "verdict", "reason"),
        [
            (edge["neighbour"], edge["side"], "yes" if edge["fused"] else "no", edge["verdict"], edge["reason"])
            for edge in found["edges"]
        ],
    )
