"""Limits on what data may ask of the host: told before anything is allocated, and never in the way of what is usual."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import fusewise
from fusewise.errors import ResourceLimit
from fusewise.ir.graph import Node, attributes_of
from fusewise.ops.allowed import MOST_ROUNDS, check_rounds, check_work, result_bytes
from fusewise.ops.evaluate import evaluate
from fusewise.runtime import hoststep

RNG = np.random.default_rng(0)
F4 = RNG.standard_normal((1, 2, 4, 4)).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def node(op: str, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Node:
    names = tuple(f"x{k}" if one is not None else "" for k, one in enumerate(operands))
    return Node(op, names, ("y",), attributes_of(**attributes), "", "here")


USUAL: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Range", (np.array(2), np.array(23), np.array(4)), {}),
    ("Range", (np.array(5.0, np.float32), np.array(-3.0, np.float32), np.array(-0.7, np.float32)), {}),
    ("Tile", (F4, ints(1, 3, 2, 5)), {}),
    ("Expand", (floats(1, 2, 3), ints(4, 1)), {}),
    ("ConstantOfShape", (ints(3, 5, 2),), {}),
    ("OneHot", (ints(0, 2), np.array(9), floats(0, 1)), {}),
    ("Pad", (F4, ints(0, 0, 1, 2, 0, 0, 3, 4)), {}),
    ("Pad", (F4, ints(3, 4), None, ints(2)), {}),
    ("Resize", (F4, None, floats(1, 1, 2.5, 2)), {"mode": "nearest"}),
    ("Resize", (F4, None, None, ints(1, 2, 7, 9)), {"mode": "linear"}),
    ("CenterCropPad", (F4, ints(9, 3)), {"axes": (2, 3)}),
    ("AffineGrid", (RNG.standard_normal((2, 2, 3)).astype(np.float32), ints(2, 1, 5, 6)), {}),
    ("HannWindow", (np.array(30),), {}),
    ("MelWeightMatrix", (np.array(8), np.array(16), np.array(8000), np.float32(0), np.float32(4000)), {}),
    ("Mul", (np.ones((5, 1), np.int64), np.ones((1, 7), np.int64)), {}),
    ("Where", (np.ones((5, 1), bool), np.ones((1, 7), np.int64), np.ones((2, 1, 1), np.int64)), {}),
    ("Concat", (F4, F4, F4), {"axis": 0}),
]


@pytest.mark.parametrize("case", USUAL, ids=lambda case: case[0])
def test_a_result_is_never_larger_than_what_was_counted(case: tuple[str, tuple[Any, ...], dict[str, Any]]) -> None:
    """And counted within a factor, so that nothing usual is refused."""
    op, operands, attributes = case
    made = node(op, operands, attributes)
    operands = tuple(None if one is None else np.asarray(one) for one in operands)
    feeds = {name: one for name, one in zip(made.inputs, operands, strict=True) if name}
    (found,) = evaluate(made, feeds, 22)
    counted = result_bytes(made, operands)
    assert found.size * found.itemsize <= 2 * counted + 8 * found.itemsize
    assert counted <= 16 * found.size * 8


def test_what_fits_nothing_is_left_to_the_evaluator() -> None:
    for op, operands in (
        ("Range", (np.array(1), np.array(2), np.array(0))),
        ("Tile", (F4, ints())),
        ("Pad", (F4, ints(1))),
        ("Expand", (None, None)),
        ("OneHot", (ints(1), ints(), floats(0, 1))),
        ("Resize", (F4, None, floats(1.0))),
    ):
        assert result_bytes(node(op, operands, {}), operands) < 1e4


HUGE = [
    ("Range", (np.array(0), np.array(1 << 45), np.array(1)), {}),
    ("Tile", (F4, ints(1 << 20, 1 << 20, 1, 1)), {}),
    ("Expand", (floats(1), ints(1 << 45)), {}),
    ("ConstantOfShape", (ints(1 << 31, 1 << 31, 1 << 31),), {}),
    ("OneHot", (ints(0, 2), np.array(1 << 45), floats(0, 1)), {}),
    ("Pad", (F4, ints(0, 0, 0, 1 << 45, 0, 0, 0, 0)), {}),
    ("Resize", (F4, None, floats(1, 1, 1e9, 1e9)), {"mode": "nearest"}),
    ("Mul", (np.zeros((1 << 20, 1), np.int8), np.zeros((1, 1 << 26), np.int8)), {}),
]


@pytest.mark.parametrize("case", HUGE, ids=lambda case: case[0])
def test_what_data_decide_is_refused_before_it_is_made(case: tuple[str, tuple[Any, ...], dict[str, Any]]) -> None:
    op, operands, attributes = case

    def evaluator(*_: Any) -> list[Any]:
        pytest.fail("evaluated")

    made = node(op, operands, attributes)
    member = hoststep._Member(made, evaluator, 23, False)
    with pytest.raises(ResourceLimit, match=f"the result of node 'here' \\({op}\\) would take .* more than 80%"):
        member.results([one for name, one in zip(made.inputs, operands, strict=True) if name])


def test_rois_and_splits() -> None:
    features, boxes = np.zeros((1, 8, 16, 16), np.float32), floats(0, 0, 9, 9).reshape(1, 4)
    usual = {"output_height": 7, "output_width": 7, "sampling_ratio": 2}
    check_work(node("RoiAlign", (features, boxes), usual), (features, boxes, ints(0)))
    many = {**usual, "sampling_ratio": 1 << 18}
    for given, attributes in ((boxes * 1e7, {}), (boxes, many)):
        with pytest.raises(ResourceLimit, match=r"'here' \(RoiAlign\) would take .* samples"):
            check_work(node("RoiAlign", (features, given), attributes), (features, given, ints(0)))
    for odd in (np.nan, np.inf):
        check_work(node("RoiAlign", (features, boxes), {}), (features, np.full_like(boxes, odd), ints(0)))
    line = np.zeros(MOST_ROUNDS + 1, np.int8)
    for split in (None, np.array(1), np.ones(len(line), np.int64)):
        with pytest.raises(ResourceLimit, match="200,000 rounds"):
            check_work(node("SplitToSequence", (line, split), {}), (line, split))
    check_work(node("SplitToSequence", (line, np.array(2)), {}), (line, np.array(2)))


def test_rounds() -> None:
    check_rounds("a loop", MOST_ROUNDS)
    with pytest.raises(ResourceLimit, match="a loop goes on for more than 200,000 rounds"):
        check_rounds("a loop", MOST_ROUNDS + 1)


def loop(condition: bool, trips: int | None, step: str = "Identity") -> Any:
    """A Loop whose body hands its condition on by a `step`, over a value that doubles or grows."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity" if step != "Not" else "Not", ["c"], ["d"]),
            helper.make_node("Concat", ["v", "v"], ["w"], axis=0)
            if step == "Concat"
            else helper.make_node("Add", ["v", "v"], ["w"]),
        ],
        "body",
        [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, []), value("v", TensorProto.INT8, [None])],
        [value("d", TensorProto.BOOL, []), value("w", TensorProto.INT8, [None])],
    )
    names = ["m" if trips is not None else "", "b" if condition else "", "x"]
    constants = [helper.make_tensor("b", TensorProto.BOOL, [], [True])] if condition else []
    constants += [] if trips is None else [helper.make_tensor("m", TensorProto.INT64, [], [trips])]
    graph = helper.make_graph(
        [helper.make_node("Loop", names, ["y"], body=body, name="round")],
        "g",
        [value("x", TensorProto.INT8, [2])],
        [value("y", TensorProto.INT8, [None])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("condition, trips", [(True, 1 << 62), (False, 1 << 62), (True, None)])
def test_a_loop_without_an_end_is_told_at_once(condition: bool, trips: int | None) -> None:
    model = fusewise.compile(loop(condition, trips), cache=False)
    with pytest.raises(ResourceLimit, match=r"'round' \(Loop\) goes on for more than 200,000 rounds"):
        model.run(None, {"x": np.ones(2, np.int8)})


def test_a_loop_that_its_body_ends_may_have_any_count() -> None:
    model = fusewise.compile(loop(True, 1 << 62, "Not"), cache=False)
    assert model.run(None, {"x": np.ones(2, np.int8)})[0].tolist() == [2, 2]


def test_a_loop_that_grows_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusewise.ops.allowed._MOST_HELD_BYTES", 1 << 20)
    model = fusewise.compile(loop(True, 60, "Concat"), cache=False)
    with pytest.raises(ResourceLimit, match=r"'round' \(Loop\) holds 2,097,152 bytes; the limit is 1,048,576"):
        model.run(None, {"x": np.ones(2, np.int8)})


def test_a_scan_that_gathers_too_much_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusewise.ops.allowed._MOST_HELD_BYTES", 1 << 20)
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Expand", ["e", "wide"], ["w"])],
        "body",
        [value("e", TensorProto.INT8, [])],
        [value("w", TensorProto.INT8, [1 << 14])],
        [helper.make_tensor("wide", TensorProto.INT64, [1], [1 << 14])],
    )
    graph = helper.make_graph(
        [helper.make_node("Scan", ["x"], ["y"], body=body, num_scan_inputs=1, name="round")],
        "g",
        [value("x", TensorProto.INT8, [300])],
        [value("y", TensorProto.INT8, [300, 1 << 14])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(ResourceLimit, match=r"'round' \(Scan\) holds 4,915,200 bytes; the limit is 1,048,576"):
        fusewise.compile(made, cache=False).run(None, {"x": np.ones(300, np.int8)})
