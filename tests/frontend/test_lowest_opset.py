"""The lowest opset of a graph: where operators changed in element types only, and where they did not exist."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, load

from fusewise import api
from fusewise.cli.main import run
from fusewise.frontend.lowest_opset import LOWEST_OPSET, at_lowest_opset
from fusewise.frontend.onnx_export import as_file, save
from fusewise.ir.dtypes import BFLOAT16, FLOAT32, INT64
from fusewise.ir.verify import verify
from fusewise.ops.build import GraphBuilder


def regions(opset):
    build = GraphBuilder("regions", opset)
    x = build.input("x", (1, 2, 8, 8))
    boxes = build.input("boxes", (3, 4))
    which = build.input("which", (3,), INT64)
    return build.finish(build.op("RoiAlign", x, boxes, which, output_height=2, output_width=2, sampling_ratio=2))


def test_regions_go_down_to_where_onnx_runtime_has_them(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    graph = regions(23)
    lower = at_lowest_opset(graph)
    verify(lower)
    assert lower.opset == LOWEST_OPSET
    assert lower.nodes == graph.nodes
    save(lower, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    boxes = np.array([[0, 0, 4, 4], [1, 2, 5, 7], [2, 2, 3, 3]], np.float32)
    x = rng.standard_normal((1, 2, 8, 8)).astype(np.float32)
    (found,) = session.run(None, {"x": x, "boxes": boxes, "which": np.zeros(3, np.int64)})
    assert found.shape == (3, 2, 2, 2)
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    "op, shape, attributes, opset",
    [
        ("RandomUniformLike", (2, 3), {}, 20),
        ("GlobalLpPool", (1, 2, 4, 4), {}, 21),
        ("GlobalAveragePool", (1, 2, 4), {}, 16),
    ],
)
def test_what_is_optimised_is_given_out_low(op, shape, attributes, opset, tmp_path):
    """By every way out: in memory, as a file, by the command; ONNX Runtime takes each."""
    onnxruntime = pytest.importorskip("onnxruntime")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    node = helper.make_node(op, ["x"], ["y"], **attributes)
    graph = helper.make_graph([node], "g", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    given = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    (tmp_path / "given.onnx").write_bytes(given.SerializeToString())
    better = api.optimize(given)
    assert better.opset > LOWEST_OPSET
    (tmp_path / "memory.onnx").write_bytes(api.to_onnx(better).SerializeToString())
    api.save(better, tmp_path / "file.onnx")
    assert run(["optimize", str(tmp_path / "given.onnx"), "-o", str(tmp_path / "command.onnx")]) == 0
    (tmp_path / "other").mkdir()
    as_file(better, better, tmp_path / "other")
    for way in ("memory", "file", "command", "other/model"):
        model = load(tmp_path / f"{way}.onnx")
        assert model.opset_import[0].version == LOWEST_OPSET
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        assert session.run(None, {"x": np.ones(shape, np.float32)})[0].shape


@pytest.mark.parametrize("op, opset, lowest", [("Relu", 23, 21), ("RMSNormalization", 23, 23), ("Swish", 24, 24)])
def test_operators_that_are_new_keep_their_opset(op, opset, lowest):
    build = GraphBuilder("one", opset)
    x = build.input("x", (2, 4))
    more = (build.constant(np.ones(4, np.float32)),) if op == "RMSNormalization" else ()
    assert at_lowest_opset(build.finish(build.op(op, x, *more))).opset == lowest


def test_new_element_types_keep_their_opset():
    for dtype, lowest in ((FLOAT32, 21), (BFLOAT16, 23)):
        build = GraphBuilder("one", 23)
        assert at_lowest_opset(build.finish(build.op("Neg", build.input("x", (2,), dtype)))).opset == lowest


def test_sequences_are_no_new_element_types():
    build = GraphBuilder("parts", 23)
    parts = build.op("SplitToSequence", build.input("x", (4, 2)), axis=0)
    assert at_lowest_opset(build.finish(build.op("ConcatFromSequence", parts, axis=0))).opset == LOWEST_OPSET


def test_bodies_count(tmp_path):
    """An If whose branch has an operator of the newest opset stays; the graph around it alone would go down."""
    for op, lowest in (("Relu", 21), ("RMSNormalization", 23)):
        reads = ["x", "scale"] if op == "RMSNormalization" else ["x"]
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])
        branches = [
            helper.make_graph([helper.make_node(name, inputs, ["y"])], name, [], [y])
            for name, inputs in ((op, reads), ("Identity", ["x"]))
        ]
        choice = helper.make_node("If", ["c"], ["z"], then_branch=branches[0], else_branch=branches[1])
        given = [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4]),
            helper.make_tensor_value_info("scale", TensorProto.FLOAT, [4]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ]
        made = helper.make_graph([choice], "g", given, [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 4])])
        model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
        path = tmp_path / f"{op}.onnx"
        path.write_bytes(model.SerializeToString())
        assert at_lowest_opset(api.load(path)).opset == lowest
