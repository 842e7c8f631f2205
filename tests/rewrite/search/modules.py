"""Small graphs that searches are tried on, what they cost, and whether two of them give the same answers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.ops.evaluate import evaluate
from fusewise.rewrite.cost import Cost, Machine, analytic_metrics, machine_named

__all__ = ["GPU", "agree", "branches", "conv", "cost_on", "interrupting", "published_module", "residual_module"]

GPU = machine_named("gpu")
RNG = np.random.default_rng(7)


def cost_on(machine: Machine) -> Cost:
    return Cost(((1.0, analytic_metrics(machine)[0]),))


def conv(build: GraphBuilder, x: str, inputs: int, outputs: int, kernel: int, name: str) -> str:
    weights = (RNG.standard_normal((outputs, inputs, kernel, kernel)) / inputs).astype(np.float32)
    bias = RNG.standard_normal(outputs).astype(np.float32)
    pads = (kernel // 2,) * 4
    return str(build.op("Conv", x, build.constant(weights, f"{name}_w"), build.constant(bias, f"{name}_b"), pads=pads))


def residual_module(channels: int = 64, size: int = 14) -> Graph:
    """A module of a residual network: two convolutions in a row, and beside them a 1x1 that is added."""
    build = GraphBuilder("module")
    x = build.input("x", (1, channels, size, size))
    first = build.op("Relu", conv(build, x, channels, channels, 3, "first"))
    second = conv(build, first, channels, channels, 3, "second")
    beside = conv(build, first, channels, channels, 1, "beside")
    return build.finish(build.op("Relu", build.op("Add", second, beside)))


def branches(widths: tuple[int, ...], kernels: tuple[int, ...], channels: int = 8, size: int = 6) -> Graph:
    """Convolutions of one image, rectified and joined."""
    build = GraphBuilder("branches")
    x = build.input("x", (1, channels, size, size))
    made = [
        build.op("Relu", conv(build, x, channels, width, kernel, f"c{k}"))
        for k, (width, kernel) in enumerate(zip(widths, kernels, strict=True))
    ]
    return build.finish(build.op("Concat", *made, axis=1) if len(made) > 1 else made[0])


def answer(graph: Graph, x: np.ndarray) -> np.ndarray:
    values: dict[str, np.ndarray] = {**{name: c.array for name, c in graph.constants.items()}, "x": x}
    for node in graph.nodes:
        values.update(zip(node.outputs, evaluate(node, values, graph.opset), strict=True))
    return values[graph.outputs[0]]


def agree(before: Graph, after: Graph) -> None:
    x = np.random.default_rng(0).standard_normal(before.tensor("x").dims).astype(np.float32)
    a, b = answer(before, x), answer(after, x)
    assert np.abs(a - b).max() <= 1e-5 * np.abs(a).max()


def published_module(channels: int = 64, size: int = 14, rectified: bool = False) -> Graph:
    """Figure 1 of MetaFlow, figure 1.1 of Bhowmick, Thakur and Hirani: 3x3 and 3x3 in a row, beside them a 1x1 of the module's
    input, added and rectified; in residual networks the first one is `rectified`, too."""
    build = GraphBuilder("module")
    x = build.input("x", (1, channels, size, size))
    first = conv(build, x, channels, channels, 3, "first")
    second = conv(build, build.op("Relu", first) if rectified else first, channels, channels, 3, "second")
    return build.finish(build.op("Relu", build.op("Add", second, conv(build, x, channels, channels, 1, "beside"))))


def interrupting(after: int) -> Callable[[float], None]:
    calls = iter(range(10_000))

    def progress(share: float) -> None:
        if next(calls) == after:
            raise KeyboardInterrupt

    return progress
