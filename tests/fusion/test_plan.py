"""What the planner puts together, what it must not, and that every edge ends with a reason."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fusewise import api
from fusewise.errors import UsageError
from fusewise.fusion.cost import CostSource
from fusewise.fusion.legal import FusionLimits
from fusewise.fusion.plan import PLANNERS, partition, plan
from fusewise.fusion.verdicts import Reason
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.trace import INTRA_BLOCK, Trace


def groups(
    graph: Graph, how: str = "dnnfusion", trace: Trace | None = None, costs: CostSource | None = None
) -> list[str]:
    found = partition(graph, Trace() if trace is None else trace, how, costs=costs)
    return ["+".join(node.op for node in group.members(graph)) for group in found.groups]


def weights(b: GraphBuilder, *shape: int) -> str:
    return b.constant(np.ones(shape, np.float32))


def conv(b: GraphBuilder, x: str, kernel: int = 1) -> str:
    channels = b.shape(x)[1]
    out: str = b.op("Conv", x, weights(b, channels, channels, kernel, kernel), pads=[kernel // 2] * 4)
    return out


def written_as_two_operators(b: GraphBuilder) -> list[str]:
    c = conv(b, b.input("x", (1, 4, 4, 4)))
    return [b.op("Mul", c, b.op("Sigmoid", c))]


def residual(b: GraphBuilder) -> list[str]:
    x = b.input("x", (1, 4, 4, 4))
    return [b.op("Relu", b.op("Add", conv(b, x, 3), conv(b, b.op("MaxPool", x, kernel_shape=[1, 1]), 3)))]


def read_elsewhere(b: GraphBuilder) -> list[str]:
    r = b.op("Relu", conv(b, b.input("x", (1, 4, 4, 4)), 3))
    return [b.op("Exp", r), conv(b, r, 3)]


def upsampled(b: GraphBuilder) -> list[str]:
    x, skip = b.input("x", (1, 16, 16, 16)), b.input("skip", (1, 16, 32, 32))
    up = b.op("Relu", b.op("ConvTranspose", x, weights(b, 16, 16, 2, 2), strides=[2, 2]))
    return [b.op("Concat", up, skip, axis=1)]


def attention_projection(b: GraphBuilder) -> list[str]:
    h = b.op("MatMul", b.input("x", (2, 6, 8)), weights(b, 8, 8))
    h = b.op("Transpose", b.op("Reshape", h, b.constant([2, 6, 2, 4])), perm=[0, 2, 1, 3])
    return [b.op("Add", h, b.input("y", (2, 2, 6, 4)))]


def spread(b: GraphBuilder) -> list[str]:
    centred = b.op("Sub", b.input("x", (32, 16)), b.input("mean", (32, 1)))
    variance = b.op("ReduceMean", b.op("Pow", centred, b.constant(2.0)), b.constant([-1]))
    return [b.op("Sqrt", b.op("Add", variance, b.constant(1e-5)))]


def exported_activation(b: GraphBuilder) -> list[str]:
    h = b.op("Gemm", b.op("Reshape", b.input("x", (1, 6, 8)), b.constant([6, 8])), weights(b, 8, 16), weights(b, 16))
    g = b.op("Gelu", b.op("Reshape", h, b.constant([1, 6, 16])))
    return [b.op("Gemm", b.op("Reshape", g, b.constant([6, 16])), weights(b, 16, 8))]


def heads(b: GraphBuilder) -> list[str]:
    h = b.op("MatMul", b.input("x", (1, 6, 8)), weights(b, 8, 16))
    parts = b.op("Split", h, axis=2, num_outputs=2, outputs=2)
    q, k = (b.op("Reshape", part, b.constant([1, 6, 2, 4])) for part in parts)
    return [b.op("MatMul", b.op("Transpose", q, perm=[0, 2, 1, 3]), b.op("Transpose", k, perm=[0, 2, 3, 1]))]


def squeezed(b: GraphBuilder) -> list[str]:
    x = b.input("x", (1, 8, 32, 32))
    s = b.op("Sigmoid", conv(b, b.op("GlobalAveragePool", x)))
    return [conv(b, b.op("Mul", x, s))]


CASES: tuple[tuple[Callable[[GraphBuilder], list[str]], list[str]], ...] = (
    (written_as_two_operators, ["Conv+Sigmoid+Mul"]),
    (residual, ["Conv", "MaxPool", "Conv+Add+Relu"]),
    (read_elsewhere, ["Conv+Relu+Exp", "Conv"]),
    (upsampled, ["ConvTranspose+Relu+Concat"]),
    (attention_projection, ["MatMul+Reshape+Transpose+Add"]),
    (spread, ["Sub+Pow+ReduceMean+Add+Sqrt"]),
    (exported_activation, ["Reshape+Gemm+Reshape+Gelu+Reshape", "Gemm"]),
    (heads, ["MatMul+Split+Reshape+Reshape+Transpose+Transpose", "MatMul"]),
    (squeezed, ["GlobalAveragePool", "Conv+Sigmoid", "Mul+Conv"]),
)


@pytest.mark.parametrize("model, expected", CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_groups(model: Callable[[GraphBuilder], list[str]], expected: list[str]) -> None:
    b = GraphBuilder(model.__name__)
    assert sorted(groups(b.finish(*model(b)))) == sorted(expected)


@pytest.mark.parametrize("how", PLANNERS)
@pytest.mark.parametrize("model", [case[0] for case in CASES], ids=lambda case: case.__name__)
def test_every_edge_has_a_verdict_that_fits_the_groups(model: Callable[[GraphBuilder], list[str]], how: str) -> None:
    b = GraphBuilder(model.__name__)
    graph = b.finish(*model(b))
    found = plan(graph, Trace(), how)
    owner = found.partition.group_of
    read = [
        (v, graph.producer[v], n) for n, node in enumerate(graph.nodes) for v in set(node.reads) if v in graph.producer
    ]
    assert sorted((edge.value, edge.producer, edge.consumer) for edge in found.edges) == sorted(read)
    for edge in found.edges:
        inside = edge.reason in (Reason.GREEN, Reason.PROFITABLE, Reason.PATTERN)
        assert inside == edge.fused == (owner[edge.producer] == owner[edge.consumer])


def reasons(graph: Graph, trace: Trace | None = None, costs: CostSource | None = None) -> set[Reason]:
    found = plan(graph, Trace() if trace is None else trace, costs=costs)
    return {edge.reason for edge in found.edges if not edge.fused}


def test_a_path_that_leaves_the_group_keeps_it_apart() -> None:
    b = GraphBuilder()
    x = b.op("Relu", b.input("x", (1, 4, 4, 4)))
    through = b.op("TopK", x, b.constant([4]), axis=1, outputs=2)[0]
    assert reasons(b.finish(b.op("Add", x, through))) == {Reason.CYCLE, Reason.OPAQUE}


def test_two_groups_never_wait_for_each_other() -> None:
    b = GraphBuilder()
    x, y = b.op("Relu", b.input("x", (8,))), b.op("Tanh", b.input("y", (8,)))
    over = b.op("TopK", x, b.constant([8]), outputs=2)[0]
    back = b.op("TopK", y, b.constant([8]), outputs=2)[0]
    graph = b.finish(b.op("Add", x, back), b.op("Add", y, over))
    assert len(partition(graph, Trace()).groups) < len(graph.nodes)


def test_what_a_product_reads_is_not_computed_in_it() -> None:
    b = GraphBuilder()
    x = b.op("Gelu", b.input("x", (64, 64)))
    assert reasons(b.finish(b.op("MatMul", x, weights(b, 64, 64)))) == {Reason.PROLOGUE}


def test_results_of_different_shapes_stay_apart() -> None:
    b = GraphBuilder()
    e = b.op("Exp", b.input("x", (64, 32)))
    assert reasons(b.finish(e, b.op("ReduceSum", e, b.constant([1])))) == {Reason.OUTPUTS}


def test_a_value_that_would_be_computed_for_every_reader_stays_apart() -> None:
    b = GraphBuilder()
    e = b.op("Exp", b.input("x", (1, 64)))
    assert reasons(b.finish(b.op("Expand", e, b.constant([4096, 64])))) == {Reason.AGAIN}


def test_few_rows_are_not_summed_by_every_worker() -> None:
    b = GraphBuilder()
    x = b.input("x", (2, 4096))
    assert reasons(b.finish(b.op("Sub", x, b.op("ReduceMean", x, b.constant([1]))))) == {Reason.ROWS}


def test_another_element_of_the_product_is_needed() -> None:
    b = GraphBuilder()
    h = b.op("MatMul", b.input("x", (8, 8)), weights(b, 8, 8))
    assert reasons(b.finish(b.op("Add", h, b.op("Transpose", h)))) == {Reason.ELSEWHERE}


def picked(b: GraphBuilder) -> list[str]:
    """Rows of a table where another input is not zero, as exporters write indexing by a mask."""
    places = b.op("Squeeze", b.op("Transpose", b.op("NonZero", b.input("mask", (6,))), perm=[1, 0]), b.constant([1]))
    rows = b.op("Gather", b.op("Relu", b.input("table", (6, 4))), places)
    return [b.op("Unsqueeze", rows, b.constant([0])), b.op("Shape", rows)]


def test_movement_of_unknown_size_is_one_host_step() -> None:
    b = GraphBuilder()
    graph = b.finish(*picked(b))
    assert groups(graph) == ["NonZero", "Relu", "Transpose+Squeeze+Gather+Unsqueeze", "Shape"]
    assert reasons(graph) == {Reason.HOST, Reason.SHAPE}
    rng = np.random.default_rng(0)
    feeds = {"mask": np.array([0, 1, 0, 1, 1, 0], np.float32), "table": rng.standard_normal((6, 4), np.float32)}
    compiled = api.compile(graph, threads=1, cache=False)
    rows, shape = compiled.run(None, feeds)
    np.testing.assert_array_equal(rows, np.maximum(feeds["table"][[1, 3, 4]], 0)[None])
    assert shape.tolist() == [3, 4]
    assert (compiled.summary["host_steps"], len(compiled.summary["host"])) == (3, 6)


def test_a_host_step_has_an_end() -> None:
    b = GraphBuilder()
    x = b.input("x", ("n", 3))
    for _ in range(5):
        x = b.op("Relu", x)
    found = plan(b.finish(x), Trace(), limits=FusionLimits(nodes=2)).partition.groups
    assert [len(group.nodes) for group in found] == [2, 2, 1]


def test_the_reader_widens_what_is_written_narrow() -> None:
    """The short numbers are there for somebody else already, so that their reader, and not their maker, makes them long."""
    b = GraphBuilder()
    c = conv(b, b.input("x", (1, 4, 4, 4)))
    short = b.op("Cast", c, to=10)
    d = conv(b, b.op("Cast", b.op("Neg", short), to=1))
    graph = b.finish(short, b.op("Add", d, b.op("Cast", short, to=1)))
    assert sorted(groups(graph)) == ["Conv+Cast+Add", "Conv+Cast+Neg+Cast"]
    b = GraphBuilder()
    graph = b.finish(b.op("Cast", b.op("Cast", conv(b, b.input("x", (1, 4, 4, 4))), to=10), to=1))
    assert groups(graph) == ["Conv+Cast+Cast"]


def test_costs_decide_where_the_table_asks() -> None:
    b = GraphBuilder()
    graph = b.finish(b.op("Transpose", b.op("MatMul", b.input("x", (8, 8)), weights(b, 8, 8))))
    dear = CostSource(profile=lambda graph, nodes: 10.0 ** len(nodes))
    failing = CostSource(measure=lambda graph, nodes: None)
    unknown = CostSource(profile=lambda graph, nodes: None)
    assert groups(graph, costs=unknown) == ["MatMul+Transpose"]
    assert reasons(graph, costs=dear) == {Reason.COSTLY}
    assert reasons(graph, costs=failing) == {Reason.UNMEASURED}


def test_movement_is_copied_when_index_changes_are_off() -> None:
    b = GraphBuilder()
    x = b.op("Transpose", b.op("Relu", b.input("x", (8, 4))))
    graph = b.finish(b.op("Exp", x))
    assert groups(graph, trace=Trace(disabled=frozenset({INTRA_BLOCK}))) == ["Relu", "Transpose", "Exp"]
    assert groups(graph) == ["Relu+Transpose+Exp"]


def test_every_fusion_can_be_refused_and_is_recorded() -> None:
    b = GraphBuilder()
    graph = b.finish(*written_as_two_operators(b))
    for how in ("dnnfusion", "published", "patterns"):
        trace = Trace(limit=0)
        assert groups(graph, how, trace) == ["Conv", "Sigmoid", "Mul"]
        assert all(event.kind == "fuse" and not event.applied for event in trace)
    assert groups(graph, trace=Trace(limit=1)) == ["Conv+Sigmoid", "Mul"]


PUBLISHED: tuple[tuple[Callable[[GraphBuilder], list[str]], list[str]], ...] = (
    (written_as_two_operators, ["Conv+Sigmoid+Mul"]),
    (residual, ["Conv+Add+Relu", "Conv", "MaxPool"]),
    (attention_projection, ["MatMul+Reshape+Transpose+Add"]),
    (squeezed, ["GlobalAveragePool", "Conv+Sigmoid", "Mul+Conv"]),
    (heads, ["MatMul", "Split+Reshape+Reshape+Transpose+Transpose+MatMul"]),
)


@pytest.mark.parametrize("model, expected", PUBLISHED, ids=lambda case: getattr(case, "__name__", ""))
def test_groups_of_the_published_order(model: Callable[[GraphBuilder], list[str]], expected: list[str]) -> None:
    b = GraphBuilder(model.__name__)
    assert sorted(groups(b.finish(*model(b)), "published")) == sorted(expected)


def test_the_published_order_goes_along_successors_first_and_from_the_smallest_seed() -> None:
    """The seed takes in what reads it before what it reads, and only the seed's own predecessors."""
    b = GraphBuilder()
    small = b.op("Tanh", b.op("ReduceMax", b.op("Exp", b.input("x", (64, 8))), b.constant([1])))
    graph = b.finish(b.op("Add", b.op("Relu", b.input("y", (64, 8))), small))
    trace = Trace()
    found = plan(graph, trace, "published")
    steps = [event.where for event in trace if event.kind == "fuse" and event.applied]
    by_op = {node.op: node.label for node in graph.nodes}
    assert [set(where) for where in steps][:2] == [
        {by_op["Tanh"], by_op["Add"]},
        {by_op["ReduceMax"], by_op["Tanh"]},
    ]
    assert [edge.reason for edge in found.edges if graph.nodes[edge.producer].op == "Relu"] == [Reason.UNREACHED]


def test_patterns_fuse_what_compilers_commonly_do_and_no_more() -> None:
    b = GraphBuilder()
    graph = b.finish(*attention_projection(b))
    assert groups(graph, "patterns") == ["MatMul", "Reshape+Transpose+Add"]
    b = GraphBuilder()
    assert sorted(groups(b.finish(*residual(b)), "patterns")) == ["Conv", "Conv+Add+Relu", "MaxPool"]


def test_an_unknown_planner_is_named() -> None:
    b = GraphBuilder()
    graph = b.finish(b.op("Relu", b.input("x", (2,))))
    with pytest.raises(UsageError, match="'magic'; there are dnnfusion, published, patterns, none"):
        partition(graph, Trace(), "magic")
