"""What graphs cost: fusion is seen, units and weights are right, wrong expressions are named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fusewise.errors import UsageError
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Graph
from fusewise.ir.types import TensorType
from fusewise.ops.build import GraphBuilder
from fusewise.rewrite.cost import MACHINES, Cost, Machine, analytic_metrics, machine_named, parsed_cost

METRICS = {metric.name: metric for metric in analytic_metrics(machine_named("cpu"))}
PLAIN = Machine("plain", gflops=1.0, gbytes=1.0, start_us=1000.0)


def time_on(machine: Machine) -> Cost:
    return Cost(((1.0, analytic_metrics(machine)[0]),))


def convolution(*after: str, read_twice: bool = False) -> Graph:
    """A 3x3 convolution of 4 channels on 8 x 8, and elementwise operators after it."""
    build = GraphBuilder("test")
    x = build.input("x", (1, 4, 8, 8))
    y = made = build.op("Conv", x, build.constant(np.ones((4, 4, 3, 3), np.float32)), pads=(1, 1, 1, 1))
    for op in after:
        y = build.op(op, y, x) if op == "Add" else build.op(op, y)
    return build.finish(y, made) if read_twice else build.finish(y)


ELEMENTS = 4 * 8 * 8
CONV_BYTES = 4 * (2 * ELEMENTS + 4 * 4 * 9)
CONV_FLOPS = 2 * ELEMENTS * 4 * 9


def test_a_roofline_takes_the_slower_of_arithmetic_and_memory() -> None:
    cost = time_on(PLAIN)
    assert cost(convolution()) == pytest.approx(max(CONV_FLOPS, CONV_BYTES) / 1e6 + 1.0)
    assert time_on(Machine("m", 1e9, 1.0, 0.0))(convolution()) == pytest.approx(CONV_BYTES / 1e6)
    half = Machine("m", 1.0, 1e9, 0.0, width=2 * ELEMENTS)
    assert time_on(half)(convolution()) == pytest.approx(2 * CONV_FLOPS / 1e6), "half of the machine is idle"


def test_what_fusion_takes_in_costs_only_what_else_it_reads() -> None:
    cost = time_on(PLAIN)
    alone = cost(convolution())
    assert cost(convolution("Relu")) == alone
    assert cost(convolution("Add", "Relu")) == pytest.approx(alone + 4 * ELEMENTS / 1e6)
    assert cost(convolution("Relu", read_twice=True)) > alone + 1.0, "its operand is needed elsewhere"
    for machine in MACHINES:
        assert time_on(machine)(convolution("Relu")) == time_on(machine)(convolution())


def test_a_library_takes_in_an_activation_of_a_convolution_and_nothing_else() -> None:
    machine = replace(PLAIN, takes_in=frozenset({"Relu"}))
    cost = time_on(machine)
    alone = cost(convolution())
    added, rectified = 1.0 + 4 * 3 * ELEMENTS / 1e6, 1.0 + 4 * 2 * ELEMENTS / 1e6
    assert cost(convolution("Relu")) == alone
    assert cost(convolution("Add")) == pytest.approx(alone + added)
    assert cost(convolution("Add", "Relu")) == pytest.approx(alone + added + rectified), "an Add takes in no Relu"
    metrics = {metric.name: metric for metric in analytic_metrics(machine)}
    assert parsed_cost("kernels", metrics)(convolution("Add", "Relu")) == 3
    moved = parsed_cost("memory", metrics)(convolution("Add", "Relu"))
    assert moved == pytest.approx((CONV_BYTES + 4 * (3 + 2) * ELEMENTS) / 1e6)


def test_metrics_count_kernels_bytes_and_arithmetic() -> None:
    graph = convolution("Relu")
    assert parsed_cost("kernels", METRICS)(graph) == 1
    assert parsed_cost("flops", METRICS)(graph) == pytest.approx((CONV_FLOPS + ELEMENTS) / 1e9)
    assert parsed_cost("memory", METRICS)(graph) == pytest.approx(CONV_BYTES / 1e6)


def test_an_operand_read_twice_is_loaded_once_and_unknown_shapes_cost_nothing() -> None:
    build = GraphBuilder("test")
    x = build.input("x", (8,))
    graph = build.finish(build.op("Mul", x, x))
    assert parsed_cost("memory", METRICS)(graph) == pytest.approx(2 * 4 * 8 / 1e6)
    assert parsed_cost("flops", METRICS)(graph) == pytest.approx(8 / 1e9)
    free = graph.replace(types={name: TensorType(FLOAT32, ("n",)) for name in graph.types})
    assert parsed_cost("flops", METRICS)(free) == parsed_cost("memory", METRICS)(free) == 0
    assert time_on(PLAIN)(free) == pytest.approx(1.0), "a start"


def test_views_and_constants_are_free() -> None:
    build = GraphBuilder("test")
    x = build.input("x", (2, 3))
    flat = build.op("Reshape", x, build.constant(np.array([6], np.int64)))
    weights = build.op("Neg", build.constant(np.ones(6, np.float32)))
    graph = build.finish(build.op("Add", flat, weights))
    assert parsed_cost("kernels", METRICS)(graph) == 1


def test_joined_results_are_written_in_place_where_the_machine_can() -> None:
    build = GraphBuilder("test")
    x = build.input("x", (1, 4, 8, 8))
    weights = build.constant(np.ones((4, 4, 1, 1), np.float32))
    parts = [build.op("Relu", build.op("Conv", x, weights)) for _ in range(2)]
    graph = build.finish(build.op("Concat", *parts, axis=1))
    inner = graph.replace(nodes=graph.nodes[:-1], outputs=parts_of(graph))
    gpu = time_on(machine_named("gpu"))
    assert gpu(graph) == pytest.approx(gpu(inner))
    for name in ("cpu", "gpu-copies"):
        copying = time_on(machine_named(name))
        assert copying(graph) > copying(inner)


def parts_of(graph: Graph) -> tuple[str, ...]:
    return tuple(graph.nodes[-1].inputs)


@pytest.mark.parametrize(
    "text, terms, unit",
    [
        ("time", [(1.0, "time")], "ms"),
        ("time + 0.1*memory", [(1.0, "time"), (0.1, "memory")], "cost units"),
        (" 2 * flops+kernels * 1e-3 ", [(2.0, "flops"), (0.001, "kernels")], "cost units"),
    ],
)
def test_expressions(text: str, terms: list[tuple[float, str]], unit: str) -> None:
    cost = parsed_cost(text, METRICS)
    assert [(weight, metric.name) for weight, metric in cost.terms] == terms
    assert cost.unit == unit
    graph = convolution("Relu")
    assert cost(graph) == pytest.approx(sum(weight * parsed_cost(name, METRICS)(graph) for weight, name in terms))


@pytest.mark.parametrize(
    "text", ["", "time +", "time 2", "0*time", "-1*time", "2*time*3", "__import__('os')", "1e*time"]
)
def test_expressions_that_do_not_parse_are_named(text: str) -> None:
    with pytest.raises(UsageError, match="does not parse|names"):
        parsed_cost(text, METRICS)


def test_unknown_names_are_named() -> None:
    with pytest.raises(UsageError, match="'energy'; there are time, flops"):
        parsed_cost("time + energy", METRICS)
    with pytest.raises(UsageError, match=", ".join(machine.name for machine in MACHINES)):
        machine_named("abacus")
