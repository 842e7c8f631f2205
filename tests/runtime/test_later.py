"""Sizes that are known only while running: random graphs around operators whose results are as large as data say, against ONNX
Runtime at many sizes, with what is compiled counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import fusewise
from fusewise.errors import UsageError
from fusewise.runtime import nested

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
WIDTH = 4


class Later:
    """A model under construction: `x` is [rows, WIDTH], and `count` how many of its rows begin with a number above 0."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        first = self.add("Gather", "x", self.constant(np.array(0)), axis=1)
        self.chosen = self.add("Greater", first, self.constant(np.array(0, np.float32)))
        numbers = self.add("Cast", self.chosen, to=INT64)
        self.count = self.add("ReduceSum", numbers, self.constant(np.array([0])), keepdims=0)

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        made = [f"v{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), made, **attributes))
        return made[0] if outputs == 1 else made

    def model(self, *results: str) -> onnx.ModelProto:
        outputs = [helper.make_tensor_value_info(name, FLOAT, None) for name in results]
        kept = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        inputs = [helper.make_tensor_value_info("x", FLOAT, ["rows", WIDTH])]
        graph = helper.make_graph(self.nodes, "later", inputs, outputs, kept)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)

    # --- what data decide the size of: the name of a value of [count, WIDTH] ------------------------------------------

    def by_nonzero(self) -> str:
        places = self.add("Squeeze", self.add("NonZero", self.chosen), self.constant(np.array([0])))
        return str(self.add("Gather", "x", places, axis=0))

    def by_compress(self) -> str:
        return str(self.add("Compress", "x", self.chosen, axis=0))

    def by_range(self) -> str:
        numbers = self.add("Range", self.constant(np.array(0)), self.count, self.constant(np.array(1)))
        column = self.add("Unsqueeze", self.add("Cast", numbers, to=FLOAT), self.constant(np.array([1])))
        return str(self.add("Mul", column, self.constant(self.rng.random((1, WIDTH), np.float32))))

    def by_top(self) -> str:
        k = self.add("Unsqueeze", self.count, self.constant(np.array([0])))
        values, _ = self.add("TopK", "x", k, outputs=2, axis=0)
        return str(values)

    def by_slice(self) -> str:
        end = self.add("Unsqueeze", self.count, self.constant(np.array([0])))
        return str(self.add("Slice", "x", self.constant(np.array([0])), end, self.constant(np.array([0]))))

    def by_expand(self) -> str:
        rows = self.add("Unsqueeze", self.count, self.constant(np.array([0])))
        shape = self.add("Concat", rows, self.constant(np.array([WIDTH])), axis=0)
        return str(self.add("Expand", self.constant(self.rng.random((1, WIDTH), np.float32)), shape))

    def by_loop(self) -> str:
        """What is carried grows by a row in every round."""
        body = helper.make_graph(
            [
                helper.make_node("Cast", ["i"], ["f"], to=FLOAT),
                helper.make_node("Add", ["row", "f"], ["next"]),
                helper.make_node("Tanh", ["before"], ["kept"]),
                helper.make_node("Concat", ["kept", "next"], ["after"], axis=0),
                helper.make_node("Identity", ["c"], ["going"]),
            ],
            "body",
            [
                helper.make_tensor_value_info("i", INT64, []),
                helper.make_tensor_value_info("c", BOOL, []),
                helper.make_tensor_value_info("before", FLOAT, None),
            ],
            [
                helper.make_tensor_value_info("going", BOOL, []),
                helper.make_tensor_value_info("after", FLOAT, None),
            ],
            [numpy_helper.from_array(self.rng.random((1, WIDTH), np.float32), "row")],
        )
        none = self.constant(np.zeros((0, WIDTH), np.float32))
        return str(self.add("Loop", self.count, "", none, body=body))

    # --- what follows, of a value of [any, WIDTH] -----------------------------------------------------------------------

    def product(self, value: str) -> str:
        return str(self.add("MatMul", value, self.constant(self.rng.random((WIDTH, WIDTH), np.float32))))

    def scores(self, value: str) -> str:
        """Softmax(v v') v."""
        between = self.add("MatMul", value, self.add("Transpose", value, perm=[1, 0]))
        return str(self.add("MatMul", self.add("Softmax", between, axis=-1), value))

    def moved(self, value: str) -> str:
        return str(self.add("Sigmoid", self.add("Add", value, self.constant(self.rng.random(WIDTH, np.float32)))))

    def doubled(self, value: str) -> str:
        return str(self.add("Concat", value, self.add("Neg", value), axis=0))

    def reshaped(self, value: str) -> str:
        flat = self.add("Reshape", value, self.constant(np.array([-1])))
        return str(self.add("Reshape", self.add("Mul", flat, flat), self.constant(np.array([-1, WIDTH]))))

    def centred(self, value: str) -> str:
        mean = self.add("ReduceMean", value, self.constant(np.array([1])), keepdims=1)
        return str(self.add("Sub", value, mean))

    def every_second(self, value: str) -> str:
        bounds = [self.constant(np.array([n])) for n in (0, 2**62, 0, 2)]
        return str(self.add("Slice", value, *bounds))

    def few(self, value: str) -> str:
        """A second choice by data."""
        first = self.add("Gather", value, self.constant(np.array(1)), axis=1)
        some = self.add("Greater", first, self.constant(np.array(0.2, np.float32)))
        return str(self.add("Compress", value, some, axis=0))

    def scattered(self, value: str) -> str:
        """Some elements, wherever they are, are put back changed."""
        some = self.add("Greater", value, self.constant(np.array(0.2, np.float32)))
        places = self.add("Transpose", self.add("NonZero", some), perm=[1, 0])
        picked = self.add("Exp", self.add("GatherND", value, places))
        return str(self.add("ScatterND", value, places, self.add("Neg", picked)))


BEGINNINGS = ("nonzero", "compress", "range", "top", "slice", "expand", "loop")
NEXT: tuple[Callable[[Later, str], str], ...] = (
    Later.product,
    Later.scores,
    Later.moved,
    Later.doubled,
    Later.reshaped,
    Later.centred,
    Later.every_second,
    Later.few,
    Later.scattered,
)


def rows_with(count: int, rng: np.random.Generator) -> np.ndarray:
    """`x` with so many rows that count, and three others."""
    x = rng.uniform(-1, 1, (count + 3, WIDTH)).astype(np.float32)
    x[:, 0] = -np.abs(x[:, 0]) - 0.1
    x[rng.permutation(count + 3)[:count], 0] *= -1
    return x


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Everything is worth compiling; lists what was compiled while running."""
    found: list[str] = []
    monkeypatch.setattr(nested, "_WORTH_SECONDS", 0.0)
    monkeypatch.setattr(nested, "_TRIAL", 0)

    def traced(name: str, make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*given: Any) -> Any:
            result = make(*given)
            found.append(f"{name}: {'nothing' if result is None else 'code'}")
            return result

        return made

    for name in ("compiled", "compiled_free"):
        monkeypatch.setattr(nested, name, traced(name, getattr(nested, name)))
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_any_size_agrees_and_is_compiled_once(beginning: str, seed: int, counted: list[str]) -> None:
    graph = Later(100 * seed + BEGINNINGS.index(beginning))
    value = getattr(graph, f"by_{beginning}")()
    for k in (*graph.rng.permutation(len(NEXT) - 1)[:3], *[len(NEXT) - 1] * (seed == 2)):
        value = NEXT[k](graph, value)
    model = graph.model(value)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    ours = fusewise.compile(model, cache=False, threads=1)

    def compare(count: int) -> None:
        feeds = {"x": rows_with(count, graph.rng)}
        (right,), (found,) = session.run(None, feeds), ours.run(None, feeds)
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5, strict=True)

    for count in (5, 1, 0, 2, 1, 3):
        compare(count)
    before = list(counted)
    for count in (7, 13, 4, 6, 0, 1, 29, 11):
        compare(count)
    assert counted == before


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("count", [3, 40])
def test_the_best_of_lines_of_any_length(count: int, largest: int) -> None:
    graph = Later(0)
    values, places = graph.add("TopK", "x", graph.constant(np.array([count])), outputs=2, axis=0, largest=largest)
    result = graph.add("Add", graph.add("Cast", places, to=FLOAT), values)
    model = graph.model(result)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    ours = fusewise.compile(model, cache=False, threads=1)
    assert not ours.executable.contents.program.host_nodes
    for rows in (count, count + 1, 64, 130, 4099):
        feeds = {"x": graph.rng.integers(-20, 20, (rows, WIDTH)).astype(np.float32)}
        np.testing.assert_array_equal(ours.run(None, feeds)[0], session.run(None, feeds)[0])
    with pytest.raises(UsageError, match=f"must be at least {count}"):
        ours.run(None, {"x": np.zeros((count - 1, WIDTH), np.float32)})


@pytest.mark.parametrize("place", [0, -1, 2])
def test_one_element_of_any_size(place: int) -> None:
    """There must be that many."""
    graph = Later(0)
    model = graph.model(graph.add("Gather", "x", graph.constant(np.array(place)), axis=0))
    ours = fusewise.compile(model, cache=False, threads=1)
    assert not ours.executable.contents.program.host_nodes
    for rows in (3, 7, 64):
        x = graph.rng.random((rows, WIDTH), np.float32)
        np.testing.assert_array_equal(ours.run(None, {"x": x})[0], x[place])
    with pytest.raises(UsageError, match=str(place + 1 if place >= 0 else -place)):
        ours.run(None, {"x": np.zeros((0, WIDTH), np.float32)})


def test_elements_taken_of_as_many_lines_or_more() -> None:
    """Indices may have fewer lines than the data, and no more."""
    nodes = [
        helper.make_node("GatherElements", ["x", "at"], ["taken"], axis=1),
        helper.make_node("Exp", ["taken"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", FLOAT, ["rows", "columns"]),
        helper.make_tensor_value_info("at", INT64, ["lines", "some"]),
    ]
    graph = helper.make_graph(nodes, "taken", inputs, [helper.make_tensor_value_info("y", FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    ours, rng = fusewise.compile(model, cache=False, threads=1), np.random.default_rng(0)
    assert not ours.executable.contents.program.host_nodes
    for rows, columns, lines, some in ((4, 5, 4, 5), (7, 3, 2, 11), (1, 1, 1, 1), (64, 9, 63, 0)):
        x, at = rng.random((rows, columns), np.float32), rng.integers(-columns, columns, (lines, some))
        np.testing.assert_allclose(
            ours.run(None, {"x": x, "at": at})[0], np.exp(np.take_along_axis(x[:lines], at, 1)), rtol=1e-6
        )
    with pytest.raises(UsageError, match="must be at least lines"):
        ours.run(None, {"x": np.zeros((2, 3), np.float32), "at": np.zeros((3, 1), np.int64)})


def test_targets_of_reshape_that_are_data(counted: list[str]) -> None:
    """0 and -1 are no sizes, whatever was compiled before."""
    nodes = [helper.make_node("Reshape", ["x", "target"], ["shaped"]), helper.make_node("Exp", ["shaped"], ["y"])]
    inputs = [
        helper.make_tensor_value_info("x", FLOAT, ["rows", "columns"]),
        helper.make_tensor_value_info("target", INT64, [2]),
    ]
    graph = helper.make_graph(nodes, "shaped", inputs, [helper.make_tensor_value_info("y", FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    ours, rng = fusewise.compile(model, cache=False, threads=1), np.random.default_rng(0)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for rows, columns, target in (
        (4, 6, (3, -1)),
        (4, 6, (0, -1)),
        (3, 8, (0, -1)),
        (3, 8, (6, 4)),
        (3, 8, (0, 0)),
        (5, 4, (2, -1)),
        (5, 4, (-1, 10)),
        (5, 4, (-1, 0)),
        (0, 4, (0, 7)),
    ):
        feeds = {"x": rng.random((rows, columns), np.float32), "target": np.array(target)}
        np.testing.assert_allclose(ours.run(None, feeds)[0], session.run(None, feeds)[0], rtol=1e-6, strict=True)
    before = list(counted)
    for rows, columns, target in ((7, 6, (14, -1)), (9, 8, (0, -1)), (9, 8, (12, 6))):
        feeds = {"x": rng.random((rows, columns), np.float32), "target": np.array(target)}
        np.testing.assert_allclose(ours.run(None, feeds)[0], session.run(None, feeds)[0], rtol=1e-6, strict=True)
    assert counted == before
