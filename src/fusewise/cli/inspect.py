"""`fusewise inspect`: what a model is, what of it runs natively or on a GPU, which nodes are fused and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusewise.cli.gpu_steps import show_gpu
from fusewise.cli.options import (
    Device,
    Exact,
    Exported,
    Fusion,
    Json,
    ModelName,
    Precision,
    Shapes,
    Symbols,
    Values,
    model_of,
    numbers_of,
    shapes_of,
    source_of,
    symbols_of,
    values_of,
)
from fusewise.errors import UnknownOperators, UsageError
from fusewise.words import KIB, size_text

if TYPE_CHECKING:
    from fusewise.ir.graph import Graph

__all__ = ["inspect"]

Groups = Annotated[bool, typer.Option("--groups", help="List the groups of nodes that run as one kernel each.")]
Why = Annotated[
    str | None, typer.Option("--why", metavar="NODE", help="Why NODE is or is not fused with each neighbour.")
]
Tree = Annotated[
    str | None,
    typer.Option(
        "--tree", metavar="GROUP", help="The data-flow tree of a group, by its number or a node in it, and its code."
    ),
]
Nest = Annotated[
    bool,
    typer.Option(
        "--nest",
        help="Print the loops and tiles of the group's kernels, for a GPU their text for Triton: ... --tree GROUP --nest.",
    ),
]
Ptx = Annotated[
    bool,
    typer.Option(
        "--ptx", help="Print what kernels for a GPU are in NVIDIA's assembly language: ... --tree GROUP --ptx."
    ),
]
Refused = Annotated[
    bool, typer.Option("--refused", help="With --device cuda: say why other families of kernels did not accept a step.")
]
Dot = Annotated[bool, typer.Option("--dot", help="Print the tree for Graphviz: ... --tree GROUP --dot | dot -Tsvg.")]


Regions = Annotated[
    str | None,
    typer.Option(
        "--regions",
        metavar="accelerator,native,host",
        help="Part the graph into regions for back ends: a node goes to the first that takes it.",
    ),
]
Form = Annotated[
    str | None, typer.Option("--form", metavar="a-normal|graph-normal", help="Write the graph down in a normal form.")
]


def inspect(
    model: ModelName,
    exported: Exported = False,
    shape: Shapes = None,
    symbol: Symbols = None,
    value: Values = None,
    fusion: Fusion = "dnnfusion",
    groups: Groups = False,
    why: Why = None,
    tree: Tree = None,
    nest: Nest = False,
    dot: Dot = False,
    regions: Regions = None,
    form: Form = None,
    device: Device = "cpu",
    precision: Precision = "float32",
    exact: Exact = False,
    ptx: Ptx = False,
    refused: Refused = False,
    json: Json = False,
) -> None:
    """Say what MODEL is: operators, mapping types, size, cost, what of it runs natively here, and how it is fused."""
    from fusewise import api
    from fusewise.cli.show import print_json

    wanted: dict[str, Any] = {"fusion": fusion, "groups": groups, "why": why, "tree": tree}
    given: dict[str, Any] = {"precision": precision, "exact": exact, "ptx": ptx, "refused": refused}
    _check_device(device, given, tree, regions is not None or form is not None)
    if dot and (tree is None or json):
        raise UsageError("--dot prints the tree of a group: give --tree GROUP, and no --json")
    if nest and (tree is None or dot):
        raise UsageError("--nest prints the loops of a group's kernels: give --tree GROUP, and no --dot")
    model = model_of(model, exported)
    if regions is not None or form is not None:
        graph = api.load(
            source_of(model),
            shapes=shapes_of(shape),
            symbols=numbers_of(symbol),
            values=values_of(value),
            free=regions is None,
        )
        _graph(graph, model, regions, form, json)
        return
    bound: dict[str, Any] = {"shapes": shapes_of(shape), "symbols": symbols_of(symbol), "values": values_of(value)}
    try:
        if device == "cpu":
            found = api.inspect(source_of(model), **bound, **wanted)
        else:
            found = _for_gpu(source_of(model), device, {**bound, **wanted, **given})
    except UnknownOperators as error:
        read = {"model": model, **error.found}
        print_json(read) if json else _read_so_far(read)
        raise
    if json:
        print_json(found)
    elif tree is not None:
        _tree(found["tree"], dot, nest)
    elif why is not None:
        _neighbours(found["why"])
    elif groups:
        _groups(found["groups"])
        _figures(found)
    elif device != "cpu":
        show_gpu(found)
    else:
        _whole(found)


def _check_device(device: str, given: Mapping[str, Any], tree: str | None, is_graph: bool) -> None:
    """`UsageError` for options that say nothing of the device."""
    if device != "cpu":
        if is_graph:
            raise UsageError(
                f"--regions and --form are about the graph, whatever it runs on; leave out --device {device}"
            )
        if given["ptx"] and tree is None:
            raise UsageError("--ptx prints a group's kernels: give --tree GROUP")
        return
    said = [f"--{name}" for name, value in given.items() if value not in (False, "float32")]
    if said:
        raise UsageError(f"{said[0]} is about kernels for a GPU: give --device, such as cuda:sm_90, or leave it out")


def _for_gpu(source: str | Graph, device: str, words: Mapping[str, Any]) -> dict[str, Any]:
    from fusewise import api
    from fusewise.cli.show import progress

    with progress() as tell:
        return api.inspect(source, device=device, progress=tell, **words)


def _graph(graph: Graph, model: str, regions: str | None, form: str | None, json: bool) -> None:
    """The graph in a normal form, or its regions for back ends."""
    from fusewise.cli.pipelines import show_form, show_regions
    from fusewise.cli.show import print_json
    from fusewise.partitioning import regions_for

    if form is not None:
        show_form(graph, form)
        return
    found = regions_for(graph, [name.strip() for name in (regions or "").split(",")]).summary
    print_json({"model": model, **found}) if json else show_regions(found)


def _whole(found: Mapping[str, Any]) -> None:
    from fusewise.cli.show import count, facts, on_the_host, table

    facts(
        [
            ("model", found["model"]),
            ("opset", str(found["opset"])),
            *(("input", f"{name}: {kind}") for name, kind in found["inputs"].items()),
            *(("output", f"{name}: {kind}") for name, kind in found["outputs"].items()),
            *(("free, planned for", f"{name}={size}") for name, size in found["symbols"].items()),
            *(("function that nothing calls", name) for name in found["unused_functions"]),
            ("parameters", count(found["parameters"])),
            ("multiply-accumulates", count(found["macs"])),
            ("native nodes", str(found["native_nodes"])),
            ("host nodes", str(found["host_nodes"])),
            *(("  on the host", on_the_host(row)) for row in found["host"]),
        ]
    )
    _figures(found)
    typer.echo()
    table(("operator", "nodes"), [(name, str(n)) for name, n in found["operators"].items()])
    table(("mapping type", "nodes"), [(name.replace("_", "-"), str(n)) for name, n in found["mapping_types"].items()])


def _read_so_far(found: Mapping[str, Any]) -> None:
    """What is said of a model with operators that are not known."""
    from fusewise.cli.show import facts, table

    facts(
        [
            ("model", found["model"]),
            *(("opset", f"{domain} {version}") for domain, version in found["opsets"].items()),
            *(("input", name) for name in found["inputs"]),
            *(("output", name) for name in found["outputs"]),
        ]
    )
    table(("operator", "nodes"), [(name, str(n)) for name, n in found["operators"].items()])
    table(
        ("not known", "opset", "nodes", "nearest known", "where"),
        [
            (
                f"{row['domain']}.{row['operator']}",
                str(row["opset"]),
                str(row["nodes"]),
                row["nearest"],
                ", ".join(row["where"]) + ", ..." * (row["nodes"] > len(row["where"])),
            )
            for row in found["unknown_operators"]
        ],
        words=(0, 3, 4),
    )
    facts(
        [(f"{row['domain']}.{row['operator']}", row["reason"]) for row in found["unknown_operators"] if row["reason"]]
    )


def _figures(found: Mapping[str, Any]) -> None:
    from fusewise.cli.show import facts

    before, after = (size_text(found[f"intermediate_bytes_{when}"]) for when in ("before", "after"))
    clean_up, fusion = (_times(found[key]) for key in ("cleanup_factor", "fusion_factor"))
    facts(
        [
            ("operators", f"{found['nodes']} as given"),
            ("  after clean-up", f"{found['nodes_compiled']} ({clean_up})"),
            ("  after fusion", f"{found['group_count']} groups ({fusion}; {found['fusion_rate']:.1f} in all)"),
            *(_for_machine(found) if "nodes_for_machine" in found else ()),
            (
                "between groups",
                f"{after} of intermediate results ({before} between operators as given)",
            ),
        ]
    )


def _for_machine(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What `compile` counts, where operators are written with others that are faster here."""
    nodes, groups = found["nodes_for_machine"], found["groups_for_machine"]
    if (nodes, groups) == (found["nodes_compiled"], found["group_count"]):
        return []
    return [("  as compiled", f"{groups} groups of {nodes} operators, as written for this machine")]


def _times(factor: float) -> str:
    """How many times fewer there are; operators that are written out as several may leave more."""
    return f"{factor:.1f} times fewer" if factor >= 1 or not factor else f"{1 / factor:.1f} times as many"


def _groups(groups: Sequence[Mapping[str, Any]]) -> None:
    from fusewise.cli.show import table

    table(
        ("operators", "group", "type", "anchor", "KiB saved", "stopped because"),
        [
            (
                " + ".join(member["op"] for member in group["members"]),
                str(group["group"]),
                group["type"].replace("_", "-"),
                group["anchor"] or "",
                f"{group['bytes_saved'] / KIB:.1f}",
                "; ".join(group["stopped_by"]),
            )
            for group in groups
        ],
        words=(0, 2, 3, 5),
        ranks=(0, 1, 4, 5, 3, 2),
    )


def _tree(tree: Mapping[str, Any], dot: bool, nest: bool) -> None:
    """The tree, and under it what each task computes of it, and how; or the tree alone for Graphviz."""
    from fusewise.cli.show import facts
    from fusewise.reporting.data_flow import tree_dot, tree_lines

    if dot:
        typer.echo(tree_dot(tree), nl=False)
        return
    typer.echo(f"group {tree['group']}, {tree['type'].replace('_', '-')}")
    for line in tree_lines(tree):
        typer.echo(line)
    if not tree["code"]:
        typer.echo("\nno code: results are views of what is there")
    for work in tree["code"]:
        if "host" in work:
            typer.echo("\non the host")
            facts([(f"  {row['op']} {row['node']}", row["reason"]) for row in work["host"]])
            continue
        extents = " x ".join(map(str, work["extents"])) or "one element"
        typer.echo(f"\ncode of {work['label']}, for every element of {extents}")
        facts([(f"  {row['name']}", f"{row['type']}  {row['value']}") for row in work["operands"]])
        facts([(f"  {row['element']}", f"= {row['is']}") for row in work["elements"]])
        if nest and work["nest"]:
            typer.echo(f"\nkernel {work['way']}\n\n{work['nest']}", nl=False)
        if work.get("ptx"):
            typer.echo(f"\nPTX of {work['way']}\n\n{work['ptx'].strip()}")


def _neighbours(found: Mapping[str, Any]) -> None:
    from fusewise.cli.show import facts, table

    facts(
        [
            ("node", f"{found['node']} ({found['op']}, {found['type'].replace('_', '-')})"),
            ("group", f"{found['group']}: {', '.join(found['members'])}"),
        ]
    )
    typer.echo()
    table(
        ("neighbour", "side", "fused", "verdict", "reason"),
        [
            (edge["neighbour"], edge["side"], "yes" if edge["fused"] else "no", edge["verdict"], edge["reason"])
            for edge in found["edges"]
        ],
        words=range(5),
        ranks=(0, 2, 1, 4, 3),
    )
