"""MetaFlow's example (Z. Jia et al., SysML 2019, figure 1; Bhowmick et al., 2024, figure 1.1): its steps, and the alpha they need.

    python -m benchmarks.resnet_module [--machine cudnn-h100] [--channels 8,64,256] [--size 14] [--cost time]

A 3x3 and a 3x3 convolution in a row, beside them a 1x1 of the module's input, added and rectified. The published end is two 3x3
convolutions, the first with twice as many channels, and the Relu in the second one's kernel. For each number of channels: the
least alpha from which on each search finds it, the steps there, and the cost after each as a share of the module's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from benchmarks.substitution_networks import resnet_module

from fusewise.ir.graph import Graph
from fusewise.rewrite.cost import Cost, analytic_metrics, machine_named, parsed_cost
from fusewise.rewrite.rules.table import SUBSTITUTIONS
from fusewise.rewrite.search.backtracking import backtrack
from fusewise.rewrite.search.found import Found
from fusewise.rewrite.search.relaxed import search

SEARCHES: dict[str, Callable[..., Found]] = {"relaxed": search, "backtracking": backtrack}
END = ["Conv", "Conv", "Relu"]
_LARGEST, _EXACT = 2.0, 5e-4


def least_alpha(graph: Graph, cost: Cost, engine: Callable[..., Found]) -> float | None:
    """The least alpha, up to 0.0005 above, with which a search ends as published; None where 2 is not enough."""

    def ends(alpha: float) -> bool:
        found = engine(graph, SUBSTITUTIONS, cost, alpha=alpha)
        return [node.op for node in found.graph.nodes] == END

    low, high = 1.0, _LARGEST
    if not ends(high):
        return None
    while high - low > _EXACT:
        middle = (low + high) / 2
        low, high = (low, middle) if ends(middle) else (middle, high)
    return high


def main() -> None:
    """Search and print."""
    parser = argparse.ArgumentParser(description="MetaFlow's example: its steps, and the alpha they need.")
    parser.add_argument("--machine", default="cudnn-h100")
    parser.add_argument("--channels", default="8,16,32,64,128,256", help="with commas between")
    parser.add_argument("--size", type=int, default=14, help="rows and columns of the image")
    parser.add_argument("--cost", default="time")
    given = parser.parse_args()
    metrics = {metric.name: metric for metric in analytic_metrics(machine_named(given.machine))}
    for channels in map(int, given.channels.split(",")):
        graph, cost = resnet_module(channels, given.size), parsed_cost(given.cost, metrics)
        print(f"{channels} channels on {given.machine}: {cost(graph):.4g} {cost.unit}")
        for name, engine in SEARCHES.items():
            alpha = least_alpha(graph, cost, engine)
            if alpha is None:
                print(f"  {name:13} does not end as published")
                continue
            found = engine(graph, SUBSTITUTIONS, cost, alpha=alpha)
            way = ", ".join(f"{step.rule} {step.cost_after / found.cost_before:.3f}" for step in found.steps)
            print(f"  {name:13} alpha {alpha:.3f}, {found.cost_before / found.cost:.2f} times cheaper: {way}")


if __name__ == "__main__":
    main()
