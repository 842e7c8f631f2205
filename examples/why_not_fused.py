# ruff: noqa: T201
"""Why are two nodes not one kernel? The verdict on every edge between them, and what stands in between.

    python examples/why_not_fused.py MODEL [FIRST SECOND] [--fusion dnnfusion]

MODEL is an ONNX file or `zoo:NAME`; without names, the two nodes are those of the edge that keeps most bytes between two kernels.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import fusewise


def costliest_edge(found: Mapping[str, Any], graph: Any) -> tuple[str, str]:
    """The edge between two kernels whose value is the largest."""
    open_edges = [edge for edge in found["verdicts"] if not edge["fused"]]
    if not open_edges:
        raise SystemExit("everything is fused: the model is one kernel")
    sizes = {name: getattr(kind, "nbytes", 0) for name, kind in graph.types.items()}
    worst = max(open_edges, key=lambda edge: int(sizes.get(edge["value"], 0)))
    return worst["producer"], worst["consumer"]


def path_between(found: Mapping[str, Any], first: str, second: str) -> list[Mapping[str, Any]]:
    """The edges from one node to another, by the shortest way; empty where there is none."""
    ways: dict[str, list[Mapping[str, Any]]] = {first: []}
    waiting = [first]
    while waiting:
        node = waiting.pop(0)
        for edge in found["verdicts"]:
            if edge["producer"] == node and edge["consumer"] not in ways:
                ways[edge["consumer"]] = [*ways[node], edge]
                waiting.append(edge["consumer"])
    return ways.get(second, [])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("nodes", nargs="*", metavar="NODE", help="two nodes, as `fusewise inspect --groups` names them")
    parser.add_argument("--fusion", default="dnnfusion")
    asked = parser.parse_args()
    found = fusewise.inspect(asked.model, groups=True, fusion=asked.fusion)
    if len(asked.nodes) not in (0, 2):
        parser.error("give two nodes, or none")
    first, second = asked.nodes or costliest_edge(found, fusewise.load(asked.model))
    groups = {member["node"]: group["group"] for group in found["groups"] for member in group["members"]}
    missing = [name for name in (first, second) if name not in groups]
    if missing:
        parser.error(
            f"no node of the compiled model is called {missing[0]!r}; `fusewise inspect --groups --json` lists them"
        )
    print(f"{first}: group {groups[first]}; {second}: group {groups[second]}")
    if groups[first] == groups[second]:
        print("they are one kernel")
    edges = path_between(found, first, second) or path_between(found, second, first)
    if not edges:
        print("no value goes from one to the other, whatever the way")
    for edge in edges:
        fused = "one kernel" if edge["fused"] else "two kernels"
        print(
            f"  {edge['producer']} -> {edge['consumer']}: {fused}; the table says {edge['verdict']}: {edge['reason']}"
        )


if __name__ == "__main__":
    main()
