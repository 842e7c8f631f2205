"""Plans of compiled models: host steps at free sizes, data that decides sizes, memory that stays, and what a new size costs."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import fusewise
from fusewise.errors import InvalidData, ResourceLimit, UsageError

value = helper.make_tensor_value_info


def on_the_host() -> onnx.ModelProto:
    """Nodes whose sizes depend on data, and one without native code, between others; one reads a shape that sizes decide."""
    tokens = {"max_gram_length": 1, "max_skip_count": 0, "min_gram_length": 1, "mode": "TF"}
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Transpose", ["places"], ["rows"], perm=[1, 0]),
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("GatherND", ["r", "rows"], ["found"]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["m"]),
        helper.make_node("Tile", ["found", "m"], ["often"]),
        helper.make_node(
            "ConstantOfShape", ["shape"], ["zero"], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [0.0])
        ),
        helper.make_node("ScatterND", ["zero", "rows", "found"], ["y"]),
        helper.make_node(
            "TfIdfVectorizer", ["i"], ["counts"], ngram_counts=[0], ngram_indexes=[0, 1], pool_int64s=[2, 3], **tokens
        ),
        helper.make_node("Add", ["counts", "half"], ["q"]),
        helper.make_node("Shape", ["rows"], ["rows_shape"]),
        helper.make_node("Gather", ["rows_shape", "first"], ["number"]),
        helper.make_node("Range", ["first", "number", "step"], ["numbers"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, ["n", "m"]), value("i", TensorProto.INT64, ["n", "w"])],
        [
            *(value(name, TensorProto.FLOAT, None) for name in ("y", "q", "found", "often")),
            value("numbers", TensorProto.INT64, None),
        ],
        [
            helper.make_tensor("one", TensorProto.INT64, [1], [1]),
            helper.make_tensor("first", TensorProto.INT64, [], [0]),
            helper.make_tensor("step", TensorProto.INT64, [], [1]),
            helper.make_tensor("half", TensorProto.FLOAT, [1], [0.5]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_host_steps_at_every_size(tmp_path: Path) -> None:
    proto = on_the_host()
    model = fusewise.compile(proto, cache=False)
    assert model.summary["symbols"] == ["n", "m", "w"]
    assert model.summary["host_steps"] > 0
    model.save(tmp_path / "model.fw")
    opened = fusewise.open_compiled(tmp_path / "model.fw")
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    rng = np.random.default_rng(0)
    for n, m in ((3, 4), (1, 1), (5, 7), (3, 4), (2, 9), (0, 3)):
        feeds = {"x": rng.standard_normal((n, m)).astype(np.float32), "i": rng.integers(0, 5, (n, 3))}
        expected = session.run(None, feeds) if n else [np.zeros(s) for s in ((0, m), (0, 2), 0, 0, 0)]
        for found in (model.run(None, feeds), opened.run(None, feeds)):
            for a, b in zip(found, expected, strict=True):
                assert a.shape == b.shape
                np.testing.assert_array_equal(a, b)


def rows(sizes: tuple[str, str] = ("rows", "columns")) -> onnx.ModelProto:
    """Rows of a table by index, the softmax of them, and its sum with another input."""
    table = np.arange(60, dtype=np.float32).reshape(10, 6) / 60
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["picked"]),
        helper.make_node("Softmax", ["picked"], ["p"], axis=-1),
        helper.make_node("Add", ["p", "bias"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [value("ids", TensorProto.INT64, list(sizes)), value("bias", TensorProto.FLOAT, [sizes[1], 6])],
        [value("y", TensorProto.FLOAT, [*sizes, 6])],
        [helper.make_tensor("table", TensorProto.FLOAT, table.shape, table.reshape(-1).tolist())],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feeds_of(n: int, m: int) -> dict[str, np.ndarray]:
    return {"ids": np.arange(n * m).reshape(n, m) % 10, "bias": np.full((m, 6), 0.25, np.float32)}


def test_what_is_wrong_with_data_is_told_and_nothing_is_lost() -> None:
    model = fusewise.compile(rows(), cache=False)
    wrong = feeds_of(2, 3)
    wrong["ids"][1, 1] = 77
    with pytest.raises(InvalidData, match="finds 77 in its operand 'ids'"):
        model.run(None, wrong)
    wrong = feeds_of(2, 3) | {"bias": np.zeros((4, 6), np.float32)}
    with pytest.raises(
        UsageError, match="dimension 'columns' is 3 in axis 1 of input 'ids' and 4 in axis 0 of input 'bias'"
    ):
        model.run(None, wrong)
    assert model.run(None, feeds_of(2, 3))[0].shape == (2, 3, 6)


def test_sizes_beyond_what_there_is_are_refused_before_anything_is_copied() -> None:
    model = fusewise.compile(rows(), cache=False)
    for n, m in ((1 << 30, 1 << 20), (1 << 24, 1 << 12)):
        huge = np.broadcast_to(np.int64(0), (n, m))
        with pytest.raises(ResourceLimit, match="copy of input 'ids'|rows="):
            model.run(None, {"ids": huge, "bias": np.broadcast_to(np.float32(0), (m, 6))})
    assert model.run(None, feeds_of(2, 3))[0].shape == (2, 3, 6)


def test_ranges_and_sizes_to_plan_for() -> None:
    model = fusewise.compile(rows(), cache=False, symbols={"rows": "1..8,2", "columns": 5})
    assert model.summary["symbols"] == ["rows"]
    assert model.random_inputs()["ids"].shape == (2, 5)
    assert model.random_inputs(sizes={"rows": 7})["ids"].shape == (7, 5)
    with pytest.raises(UsageError, match="dimension 'rows' is 9 .* must be 1 to 8"):
        model.run(None, feeds_of(9, 5))
    with pytest.raises(UsageError, match="free ones are rows"):
        model.random_inputs(sizes={"columns": 7})


def test_random_indexes_stay_inside_tables_of_free_sizes() -> None:
    graph = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["y"])],
        "g",
        [value("x", TensorProto.FLOAT, ["n", 2]), value("i", TensorProto.INT64, ["m"])],
        [value("y", TensorProto.FLOAT, ["m", 2])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = fusewise.compile(proto, cache=False)
    for n in (1, 2, 7):
        assert model.run(None, model.random_inputs(n, {"n": n, "m": 50}))[0].shape == (50, 2)


def test_plans_are_let_go() -> None:
    """What plans hold goes with them: ever new sizes leave nothing behind."""
    model = fusewise.compile(rows(), cache=False)

    def objects() -> int:
        for n in range(1, 40):
            model.run(None, feeds_of(n, 3))
        gc.collect()
        return len(gc.get_objects())

    objects()
    before = objects()
    for _ in range(5):
        after = objects()
    assert after - before < 100


def test_ever_new_sizes_keep_no_memory() -> None:
    """What was kept after some hundred sizes is what is kept after some hundred others."""
    model = fusewise.compile(rows(), cache=False)

    def kept(first: int) -> int:
        for n in range(first, first + 100):
            for m in (1, 3):
                model.run(None, feeds_of(n, m))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    kept(300)  # the largest, so that the arena stays
    tracemalloc.start()
    try:
        before = kept(1)
        assert max(kept(first) for first in (200, 2, 101)) - before < 20_000
    finally:
        tracemalloc.stop()
