"""What the planner fuses at the prices of a GPU, and not at those of a processor, and the other way round."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fusewise.codegen.gpu.costs import GPU_LIMITS, prices_of
from fusewise.codegen.gpu.device import DEVICES, Device, device_named
from fusewise.fusion.cost import PROCESSOR, CostSource, estimate_ns
from fusewise.fusion.ecg import ExtendedGraph
from fusewise.fusion.plan import plan
from fusewise.fusion.verdicts import Reason
from fusewise.ir.graph import Graph
from fusewise.making import GpuMaking, gpu_planned
from fusewise.ops.build import GraphBuilder
from fusewise.trace import Trace

Kernels = tuple[list[str], set[Reason]]


def on_processor(graph: Graph) -> Kernels:
    return described(graph, Trace())


def on_gpu(graph: Graph, name: str = "sm_90") -> Kernels:
    return described(graph, Trace(), costs=CostSource(prices=prices_of(device_named(name))), limits=GPU_LIMITS)


def described(graph: Graph, trace: Trace, **given: object) -> Kernels:
    found = plan(graph, trace, **given)  # type: ignore[arg-type]
    names = ["+".join(node.op for node in group.members(graph)) for group in found.partition.groups]
    return sorted(names), {edge.reason for edge in found.edges if not edge.fused}


def centred(rows: int, columns: int) -> Graph:
    """Rows less their mean."""
    b = GraphBuilder()
    x = b.input("x", (rows, columns))
    return b.finish(b.op("Sub", x, b.op("ReduceMean", x, b.constant([1], "int64"), keepdims=1)))


@pytest.mark.parametrize("rows, columns, alone", [(4, 256, False), (4096, 1024, False), (1, 1 << 22, True)])
def test_rows_are_added_up_and_used_by_one_kernel_where_they_keep_the_device_busy(
    rows: int, columns: int, alone: bool
) -> None:
    expected: Kernels = (["ReduceMean", "Sub"], {Reason.COSTLY}) if alone else (["ReduceMean+Sub"], set())
    assert on_gpu(centred(rows, columns)) == expected


def test_programs_for_a_gpu_are_planned_so() -> None:
    planned = gpu_planned(centred(4, 256), GpuMaking(device_named("sm_90")))
    assert planned.program.launches == 1


def test_too_few_rows_for_workers_are_a_reason_on_a_processor_only() -> None:
    assert on_processor(centred(4, 256)) == (["ReduceMean", "Sub"], {Reason.ROWS})


def test_a_launch_is_worth_computing_again() -> None:
    """Every element computes its row's sigmoid again: much on a processor, and nothing beside a launch."""
    b = GraphBuilder()
    graph = b.finish(b.op("Mul", b.op("Sigmoid", b.input("x", (64, 1, 64))), b.input("y", (64, 64, 64))))
    assert on_processor(graph) == (["Mul", "Sigmoid"], {Reason.AGAIN})
    assert on_gpu(graph) == (["Sigmoid+Mul"], set())


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
@pytest.mark.parametrize("price", [lambda device: PROCESSOR, prices_of], ids=["processor", "gpu"])
def test_estimates_begin_with_a_start_and_grow_with_what_is_moved(
    device: Device, price: Callable[[Device], object]
) -> None:
    prices = prices_of(device) if price is prices_of else PROCESSOR
    found = []
    for size in (1, 1 << 12, 1 << 20, 1 << 26):
        b = GraphBuilder()
        ecg = ExtendedGraph(b.finish(b.op("Exp", b.op("Neg", b.input("x", (size,))))))
        whole, *parts = (estimate_ns(ecg, nodes, prices) for nodes in ((0, 1), (0,), (1,)))
        assert prices.start_ns <= whole < sum(parts)
        found.append(whole)
    assert found == sorted(found)
