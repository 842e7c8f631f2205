"""Lowering against ONNX's reference evaluator: the lowered work is interpreted with NumPy, no kernel involved."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from fusewise.fusion.plan import partition
from fusewise.ir.graph import Graph
from fusewise.lower.interpret import interpret_lowered
from fusewise.lower.work import HostWork, lower_partition
from fusewise.ops.build import GraphBuilder
from fusewise.ops.proto import node_to_proto, tensor_to_proto, type_to_proto
from fusewise.trace import INTRA_BLOCK, Trace


def reference(graph: Graph, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    from onnx.reference import ReferenceEvaluator

    proto = onnx.helper.make_graph(
        [node_to_proto(node) for node in graph.nodes],
        "g",
        [onnx.helper.make_value_info(v, type_to_proto(graph.types[v])) for v in graph.inputs],
        [onnx.helper.make_value_info(v, type_to_proto(graph.types[v])) for v in graph.outputs],
        [tensor_to_proto(c.array, v) for v, c in graph.constants.items()],
    )
    model = onnx.helper.make_model(proto, opset_imports=[onnx.helper.make_opsetid("", graph.opset)])
    return dict(zip(graph.outputs, ReferenceEvaluator(model).run(None, feeds), strict=True))


def weights(b: GraphBuilder, *shape: int) -> str:
    rng = np.random.default_rng(len(b.constants))
    return b.constant(rng.standard_normal(shape, dtype=np.float32), "w")


def residual(b: GraphBuilder) -> tuple[str, ...]:
    x = b.input("x", (1, 3, 6, 6))
    a = b.op("Relu", b.op("Conv", x, weights(b, 4, 3, 3, 3), weights(b, 4), pads=[1, 1, 1, 1]))
    c = b.op("Conv", a, weights(b, 4, 4, 1, 1))
    y = b.op("Relu", b.op("Add", c, a))
    return (b.op("Flatten", b.op("GlobalAveragePool", y)),)


def squeeze_excite(b: GraphBuilder) -> tuple[str, ...]:
    x = b.input("x", (1, 4, 5, 5))
    h = b.op("Conv", x, weights(b, 8, 4, 1, 1))
    h = b.op("Mul", h, b.op("Sigmoid", h))
    s = b.op("Sigmoid", b.op("Conv", b.op("GlobalAveragePool", h), weights(b, 8, 8, 1, 1)))
    return (b.op("Conv", b.op("Mul", h, s), weights(b, 4, 8, 1, 1)),)


def attention(b: GraphBuilder) -> tuple[str, ...]:
    x = b.input("x", (1, 6, 8))
    qkv = b.op("Add", b.op("MatMul", x, weights(b, 8, 24)), weights(b, 24))
    parts = b.op("Split", qkv, axis=2, num_outputs=3, outputs=3)
    shape = b.constant([1, 6, 2, 4])
    q, k, v = (b.op("Transpose", b.op("Reshape", p, shape), perm=[0, 2, 1, 3]) for p in parts)
    scores = b.op("Div", b.op("MatMul", q, b.op("Transpose", k, perm=[0, 1, 3, 2])), b.constant(2.0))
    context = b.op("MatMul", b.op("Softmax", scores, axis=-1), v)
    joined = b.op("Reshape", b.op("Transpose", context, perm=[0, 2, 1, 3]), b.constant([1, 6, 8]))
    y = b.op("Add", b.op("MatMul", joined, weights(b, 8, 8)), x)
    return (y, b.op("Gather", y, b.constant(np.array(0)), axis=1))


def inception(b: GraphBuilder) -> tuple[str, ...]:
    x = b.input("x", (2, 3, 6, 6))
    left = b.op("Relu", b.op("Conv", x, weights(b, 4, 3, 1, 1)))
    right = b.op("Conv", x, weights(b, 2, 3, 3, 3), pads=[1, 1, 1, 1])
    joined = b.op("Concat", left, right, b.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]), left, axis=1)
    return (b.op("Relu", joined), b.op("Transpose", joined, perm=[0, 2, 3, 1]))


def shuffle(b: GraphBuilder) -> tuple[str, ...]:
    x = b.input("x", (1, 8, 4, 4))
    h = b.op("Relu", b.op("Conv", x, weights(b, 8, 8, 1, 1)))
    h = b.op("Transpose", b.op("Reshape", h, b.constant([1, 2, 4, 4, 4])), perm=[0, 2, 1, 3, 4])
    h = b.op("Reshape", h, b.constant([1, 8, 4, 4]))
    return (
        b.op("Conv", h, weights(b, 4, 8, 1, 1)),
        b.op("Slice", h, b.constant([1]), b.constant([7]), b.constant([1])),
    )


def normalisation(b: GraphBuilder) -> tuple[str, ...]:
    x = b.input("x", (2, 5, 8))
    mean = b.op("ReduceMean", x, b.constant([-1]))
    centred = b.op("Sub", x, mean)
    variance = b.op("ReduceMean", b.op("Mul", centred, centred), b.constant([-1]))
    y = b.op("Div", centred, b.op("Sqrt", b.op("Add", variance, b.constant(1e-5))))
    return (b.op("Mul", y, weights(b, 8)), x)


def on_host(b: GraphBuilder) -> tuple[str, ...]:
    x = b.input("x", (1, 4, 5, 5))
    h = b.op("Conv", x, weights(b, 6, 4, 1, 1))
    values, _ = b.op("TopK", h, b.constant(np.array([3])), axis=1, outputs=2)
    return (b.op("Add", values, b.constant(1.0)),)


def windows_first(b: GraphBuilder) -> tuple[str, ...]:
    """Images in ONNX's own order under windows that read one channel each; some results are in that order, too."""
    x, more = b.input("x", (2, 16, 9, 8)), b.input("more", (2, 16, 5, 4))
    pooled = b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    mean = b.op("AveragePool", x, kernel_shape=[2, 2])
    deep = b.op(
        "Relu", b.op("Conv", x, weights(b, 16, 1, 3, 3), weights(b, 16), group=16, strides=[2, 2], pads=[1, 1, 1, 1])
    )
    return pooled, b.op("Flatten", mean), b.op("Add", deep, more), deep


def window_over_a_view(b: GraphBuilder) -> tuple[str, ...]:
    """A signal as an image of one row: what the window reads is made in its own group, and lies nowhere."""
    axis = b.constant(np.array([2]))
    image = b.op("Unsqueeze", b.input("x", (2, 16, 40)), axis)
    return (b.op("Squeeze", b.op("AveragePool", image, kernel_shape=[1, 3], strides=[1, 2]), axis),)


MODELS = (
    residual,
    squeeze_excite,
    attention,
    inception,
    shuffle,
    normalisation,
    on_host,
    windows_first,
    window_over_a_view,
)


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_lowered_work_gives_the_reference_answers(model: Callable[[GraphBuilder], tuple[str, ...]]) -> None:
    b = GraphBuilder(model.__name__)
    graph = b.finish(*model(b))
    rng = np.random.default_rng(0)
    feeds = {v: rng.standard_normal(graph.tensor(v).dims, dtype=np.float32) for v in graph.inputs}
    trace = Trace(disabled=frozenset(("top_k",) if model is on_host else ()))
    lowered = lower_partition(partition(graph, Trace()), trace)
    expected = reference(graph, feeds)
    found = interpret_lowered(lowered, feeds)
    for value in graph.outputs:
        np.testing.assert_allclose(found[value], expected[value], rtol=1e-5, atol=1e-5)
    hosts = [node.op for work in lowered.work if isinstance(work, HostWork) for node in work.nodes]
    assert hosts == (["TopK"] if model is on_host else [])


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_work_names_the_nodes_that_it_computes(model: Callable[[GraphBuilder], tuple[str, ...]]) -> None:
    b = GraphBuilder(model.__name__)
    graph = b.finish(*model(b))
    lowered = lower_partition(partition(graph, Trace()), Trace())
    work = [one for one in lowered.work if not isinstance(one, HostWork)]
    makers = {value: node.label for node in graph.nodes for value in node.writes}
    for one in work:
        task, made = one.bound.task, {store.operand for store in one.bound.task.stores}
        members = lowered.groups[one.group].members(graph) if one.group < len(lowered.groups) else ()
        assert {*one.nodes} <= {node.label for node in members} or one.nodes == (one.bound.values["in0"],)
        if one.bound.values.get("in0") != one.bound.values[task.stores[0].operand]:  # not a copy
            assert {makers[one.bound.values[name]] for name in made} <= {*one.nodes}
        if task.anchor is not None:
            assert next(node.op for node in members if node.label == one.nodes[0]) == task.anchor.op
            assert one.plain is None or one.plain().nodes == one.nodes
    named = {name for one in work for name in one.nodes}
    heavy = [
        node.label for node in graph.nodes if node.op in ("Conv", "MatMul", "MaxPool", "AveragePool", "Softmax", "Add")
    ]
    assert named.issuperset(heavy)


def test_attention_moves_no_data() -> None:
    b = GraphBuilder("attention")
    graph = b.finish(*attention(b))
    lowered = lower_partition(partition(graph, Trace()), Trace())
    labels = [work.label for work in lowered.work if not isinstance(work, HostWork)]
    heavy = [label for label in labels if "MatMul" in label or "Softmax" in label]
    assert len(heavy) == 5
    assert [label for label in labels if label not in heavy] == ["Gather"], "only a result of the graph is copied"


def test_concat_operands_with_one_reader_are_written_in_place() -> None:
    b = GraphBuilder("inception")
    graph = b.finish(*inception(b))
    lowered = lower_partition(partition(graph, Trace()), Trace())
    copies = [
        work.bound.values["in0"] for work in lowered.work if not isinstance(work, HostWork) and work.label == "Concat"
    ]
    concat = next(node for node in graph.nodes if node.op == "Concat")
    assert set(copies) <= {concat.inputs[0]}, "only the operand that is read twice may be copied"


def test_concats_that_extend_each_other_share_memory() -> None:
    b = GraphBuilder("dense")
    features = [b.op("Relu", b.op("Conv", b.input("x", (1, 3, 6, 6)), weights(b, 4, 3, 1, 1)))]
    for _ in range(3):
        joined = b.op("Concat", *features, axis=1) if len(features) > 1 else features[0]
        pooled = b.op("MaxPool", joined, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        features.append(b.op("Conv", pooled, weights(b, 2, b.shape(pooled)[1], 1, 1)))
    graph = b.finish(b.op("Exp", b.op("MaxPool", b.op("Concat", *features, axis=1), kernel_shape=[2, 2])))
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 3, 6, 6), dtype=np.float32)}
    lowered = lower_partition(partition(graph, Trace()), Trace())
    found = interpret_lowered(lowered, feeds)
    expected = reference(graph, feeds)
    np.testing.assert_allclose(found[graph.outputs[0]], expected[graph.outputs[0]], rtol=1e-5, atol=1e-5)
    assert [work.label for work in lowered.work if not isinstance(work, HostWork) and work.label == "Concat"] == []


def test_windows_over_single_channels_find_their_data_channels_last() -> None:
    b = GraphBuilder("g")
    graph = b.finish(*windows_first(b))
    lowered = lower_partition(partition(graph, Trace()), Trace())
    copies = [w for w in lowered.work if not isinstance(w, HostWork) and w.label == "Transpose"]
    assert len(copies) >= 4
    anchored = [w for w in lowered.work if not isinstance(w, HostWork) and w.bound.task.anchor is not None]
    read = [o for w in anchored for o in w.bound.task.operands if o.shape == (2, 16, 9, 8)]
    assert len(anchored) == len(read) == 3 and all(operand.strides[1] == 1 for operand in read)
    plain = lower_partition(partition(graph, Trace()), Trace(disabled=frozenset({INTRA_BLOCK})))
    assert not any(w.label == "Transpose" for w in plain.work if not isinstance(w, HostWork))
