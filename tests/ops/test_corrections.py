"""Loop, Scan and Optional on the host agree with ONNX Runtime where ONNX's own evaluator does not."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fusewise
from fusewise.ir.graph import Node
from fusewise.ops.evaluate import evaluate
from fusewise.ops.grids import grid_sample

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def loop(element: list[int], trips: bool = True, condition: bool = True) -> onnx.ModelProto:
    """Doubles x each time round and scans it: x of shape `element`, at most n times, while the sum stays below 100."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "v"], ["w"]),
            helper.make_node("Identity", ["w"], ["seen"]),
            helper.make_node("ReduceSum", ["w"], ["total"], keepdims=0),
            helper.make_node("Less", ["total", "hundred"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", INT, []),
            helper.make_tensor_value_info("c", BOOL, []),
            helper.make_tensor_value_info("v", FLOAT, element),
        ],
        [
            helper.make_tensor_value_info("on", BOOL, []),
            helper.make_tensor_value_info("w", FLOAT, element),
            helper.make_tensor_value_info("seen", FLOAT, element),
        ],
        [helper.make_tensor("hundred", FLOAT, [], [100.0])],
    )
    node = helper.make_node("Loop", ["n" if trips else "", "go" if condition else "", "x"], ["y", "scan"], body=body)
    inputs = [helper.make_tensor_value_info("x", FLOAT, element)]
    inputs += [helper.make_tensor_value_info("n", INT, [])] if trips else []
    inputs += [helper.make_tensor_value_info("go", BOOL, [])] if condition else []
    outputs = [
        helper.make_tensor_value_info("y", FLOAT, element),
        helper.make_tensor_value_info("scan", FLOAT, [None, *element]),
    ]
    graph = helper.make_graph([node], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("element", [[], [3], [2, 3], [1, 2, 2]])
@pytest.mark.parametrize("trips, condition", [(3, True), (0, True), (3, False), (50, True), (None, True), (4, None)])
def test_loops_scan_as_onnx_runtime_does(element, trips, condition):
    import onnxruntime

    model = loop(element, trips is not None, condition is not None)
    feeds = {"x": np.arange(1, 1 + int(np.prod(element)), dtype=np.float32).reshape(element)}
    feeds |= {} if trips is None else {"n": np.array(trips, np.int64)}
    feeds |= {} if condition is None else {"go": np.array(condition)}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, feeds)
    found = fusewise.compile(model, cache=False).run(None, feeds)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_array_equal(a, b)


def test_an_optional_is_its_element():
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [2]))
    kind = helper.make_optional_type_proto(sequence)
    graph = helper.make_graph(
        [helper.make_node("SequenceConstruct", ["x", "x"], ["s"]), helper.make_node("Optional", ["s"], ["o"])],
        "g",
        [helper.make_tensor_value_info("x", FLOAT, [2])],
        [helper.make_value_info("o", kind)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = np.array([1, 2], np.float32)
    (found,) = fusewise.compile(model, cache=False).run(None, {"x": x})
    assert [array.tolist() for array in found] == [[1, 2], [1, 2]]


def scan(length: int, first_opset: int = 17, **attributes: list[int]) -> onnx.ModelProto:
    """Carries a sum of products of the slices of two inputs, which are also scanned, beside the second one turned over."""
    lines = attributes.get("scan_input_axes", [0, 0])
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["a", "b"], ["ab"]),
            helper.make_node("Add", ["state", "ab"], ["next"]),
            helper.make_node("Identity", ["next"], ["seen"]),
            helper.make_node("Sub", ["b", "shift"], ["other"]),
        ],
        "body",
        [helper.make_tensor_value_info(name, FLOAT, [2]) for name in ("state", "a", "b")],
        [helper.make_tensor_value_info(name, FLOAT, [2]) for name in ("next", "seen", "other")],
    )
    node = helper.make_node("Scan", ["x", "p", "q"], ["y", "s", "t"], body=body, num_scan_inputs=2, **attributes)
    sizes = [[length, 2] if axis % 2 == 0 else [2, length] for axis in lines]
    inputs = [helper.make_tensor_value_info("x", FLOAT, [2]), helper.make_tensor_value_info("shift", FLOAT, [2])]
    inputs += [helper.make_tensor_value_info(name, FLOAT, size) for name, size in zip("pq", sizes, strict=True)]
    outputs = [helper.make_tensor_value_info(name, FLOAT, None) for name in "yst"]
    graph = helper.make_graph([node], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", first_opset)], ir_version=8)


def agrees(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = fusewise.compile(model, cache=False).run(None, feeds)
    for a, b in zip(found, session.run(None, feeds), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"scan_input_axes": [1, 0]},
        {"scan_input_axes": [-1, -2], "scan_input_directions": [1, 0]},
        {"scan_input_directions": [0, 1], "scan_output_directions": [1, 0]},
        {"scan_output_axes": [1, 0]},
        {"scan_output_axes": [-1, 1], "scan_output_directions": [0, 1], "scan_input_axes": [1, 1]},
    ],
)
def test_scans_go_along_axes_and_in_directions_as_onnx_runtime_does(length, attributes):
    model = scan(length, **attributes)
    rng = np.random.default_rng(length)
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    agrees(model, {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()})


def test_a_scan_of_nothing_keeps_its_state():
    """ONNX Runtime dies of it."""
    feeds = {name: np.ones(shape, np.float32) for name, shape in (("x", 2), ("shift", 2), ("p", (0, 2)), ("q", (0, 2)))}
    y, s, t = fusewise.compile(scan(0), cache=False).run(None, feeds)
    assert (y.tolist(), s.shape, t.shape) == ([1, 1], (0, 2), (0, 2))


@pytest.mark.parametrize("turned", [None, [1]])
def test_scans_of_opset_8_take_a_batch(turned):
    body = helper.make_graph(
        [helper.make_node("Add", ["state", "a"], ["next"]), helper.make_node("Identity", ["next"], ["seen"])],
        "body",
        [helper.make_tensor_value_info(name, FLOAT, [2]) for name in ("state", "a")],
        [helper.make_tensor_value_info(name, FLOAT, [2]) for name in ("next", "seen")],
    )
    attributes = {} if turned is None else {"directions": turned}
    node = helper.make_node("Scan", ["", "x", "p"], ["y", "s"], body=body, num_scan_inputs=1, **attributes)
    inputs = [helper.make_tensor_value_info(n, FLOAT, d) for n, d in (("x", [3, 2]), ("p", [3, 4, 2]))]
    outputs = [helper.make_tensor_value_info(n, FLOAT, d) for n, d in (("y", [3, 2]), ("s", [3, 4, 2]))]
    graph = helper.make_graph([node], "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=4)
    rng = np.random.default_rng(0)
    agrees(model, {"x": rng.normal(size=(3, 2)).astype(np.float32), "p": rng.normal(size=(3, 4, 2)).astype(np.float32)})


@pytest.mark.parametrize("shared", [False, True])
def test_a_body_is_run_for_every_element_of_a_sequence(shared):
    """The second operand is a sequence beside the first, or one tensor for all."""
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [None]))
    body = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Neg", ["a"], ["d"])],
        "body",
        [helper.make_tensor_value_info(name, FLOAT, [None]) for name in "ab"],
        [helper.make_tensor_value_info(name, FLOAT, [None]) for name in "cd"],
    )
    node = helper.make_node("SequenceMap", ["p", "q"], ["y", "z"], body=body)
    second = helper.make_tensor_value_info("q", FLOAT, [1]) if shared else helper.make_value_info("q", kind)
    outputs = [helper.make_value_info(name, kind) for name in "yz"]
    graph = helper.make_graph([node], "g", [helper.make_value_info("p", kind), second], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    p = [np.array([1, 2], np.float32), np.array([3], np.float32)]
    q = np.array([10], np.float32) if shared else [np.array([10, 20], np.float32), np.array([30], np.float32)]
    y, z = fusewise.compile(model, cache=False).run(None, {"p": p, "q": q})
    assert [element.tolist() for element in y] == ([[11, 12], [13]] if shared else [[11, 22], [33]])
    assert [element.tolist() for element in z] == [[-1, -2], [-3]]


def test_positions_that_are_no_numbers_lie_outside_the_image():
    """PyTorch's, which ONNX's text refers to, at positions that are numbers; no warning and no error at the others."""
    torch = pytest.importorskip("torch")
    image = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)
    far = np.array([np.inf, -np.inf, np.nan, 1e30, -1e20, 1.5, -1.25, 0.3], np.float32)
    grid = np.stack(np.meshgrid(far, far), -1)[None]
    for mode, padding, aligned in itertools.product(("linear", "nearest", "cubic"), ("zeros", "border"), (False, True)):
        found = grid_sample(image, grid, mode, padding, aligned)
        wanted = torch.nn.functional.grid_sample(
            torch.tensor(image),
            torch.tensor(grid),
            mode={"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode),
            padding_mode=padding,
            align_corners=aligned,
        ).numpy()
        number = np.isfinite(grid).all(axis=-1)[:, None]
        np.testing.assert_allclose(found[number], wanted[number], rtol=1e-5, atol=1e-5)
        assert padding == "border" or not found[~number].any()


def test_n_grams_are_counted_in_no_more_rounds_than_there_are_elements():
    def counts(most: int) -> np.ndarray:
        node = Node(
            "TfIdfVectorizer",
            ("x",),
            ("y",),
            tuple(
                {
                    "max_gram_length": 2,
                    "max_skip_count": most,
                    "min_gram_length": 1,
                    "mode": "TF",
                    "ngram_counts": (0, 2),
                    "ngram_indexes": (0, 1, 2),
                    "pool_int64s": (2, 3, 5, 7),
                }.items()
            ),
        )
        (found,) = evaluate(node, {"x": np.array([5, 2, 3, 7, 5, 5, 7], np.int64)}, 23)
        return found

    np.testing.assert_array_equal(counts(2**62), counts(7))
    np.testing.assert_array_equal(counts(0), [1, 1, 1])
    np.testing.assert_array_equal(counts(2), [1, 1, 3])
