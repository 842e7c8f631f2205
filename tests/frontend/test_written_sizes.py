"""Constants in terms of sizes, written as ONNX has them: nodes that read the shapes of inputs."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.errors import UnsupportedModel
from fusewise.frontend.bind import bind
from fusewise.frontend.onnx_export import to_model
from fusewise.frontend.onnx_import import load
from fusewise.ir.dtypes import FLOAT32, INT32, INT64
from fusewise.ir.graph import Graph, Node, SizesConstant
from fusewise.ir.size import Symbol, evaluate, greatest, least, size_of
from fusewise.ir.types import TensorType

H, W = size_of(Symbol("h")), size_of(Symbol("w"))

SIZES = (
    H * W + 3,
    2 * H - 5 * W,
    (H + 3) // 4 * 4,
    (H - 7) // 3,
    -(-(H * W) // 5) + 1,
    (H * 3) % 7,
    least(H, 2 * W, 9),
    greatest(H - W, 0),
    (W + 1) // (H + 1),
    (H * H) % (W + 2),
)


def _graph(array: np.ndarray, dtype=INT64) -> Graph:
    constant = SizesConstant(array, dtype)
    return Graph(
        inputs=("x",),
        outputs=("y",),
        nodes=(Node("Identity", ("c",), ("y",)),),
        types={"x": TensorType(FLOAT32, (H, 3, W)), "c": constant.type, "y": constant.type},
        constants={"c": constant},
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 20), st.integers(0, 20), st.sampled_from([(len(SIZES),), (2, len(SIZES) // 2)]))
def test_what_is_written_is_what_sizes_are(h: int, w: int, shape: tuple[int, ...]) -> None:
    array = np.empty(len(SIZES), dtype=object)
    array[:] = SIZES
    session = onnxruntime.InferenceSession(to_model(_graph(array.reshape(shape))).SerializeToString())
    (found,) = session.run(None, {"x": np.zeros((h, 3, w), np.float32)})
    assert found.shape == shape
    assert found.reshape(-1).tolist() == [evaluate(size, {"h": h, "w": w}) for size in SIZES]


def test_a_scalar_keeps_its_type() -> None:
    array = np.empty((), dtype=object)
    array[()] = H + 1
    model = to_model(_graph(array, INT32))
    (found,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": np.zeros((4, 3, 2), np.float32)})
    assert found.shape == () and found.dtype == np.int32 and found == 5


def test_what_is_written_binds_to_the_same_types() -> None:
    array = np.empty(3, dtype=object)
    array[:] = (H, 4, W * 2)
    graph = _graph(array)
    graph = graph.replace(
        nodes=(Node("ConstantOfShape", ("c",), ("y",)),), types={**graph.types, "y": TensorType(FLOAT32, (H, 4, W * 2))}
    )
    again = bind(load(to_model(graph)), free=True)
    assert str(again.types["y"]) == "float32[h,4,2*w]" and len(again.nodes) == 1


def test_a_symbol_that_is_no_dimension_by_itself_is_refused() -> None:
    array = np.empty(1, dtype=object)
    array[:] = (H,)
    graph = _graph(array)
    graph = graph.replace(types={**graph.types, "x": TensorType(FLOAT32, (2 * H, 3, W))})
    with pytest.raises(UnsupportedModel, match="dimension 'h' is by itself the size of no input"):
        to_model(graph)
