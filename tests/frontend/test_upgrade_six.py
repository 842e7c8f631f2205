"""Opset 6: every operator that opset 7 changed is rewritten, and broadcasting by axis means what it did."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from fusewise.errors import UnsupportedModel
from fusewise.frontend.onnx_export import to_model
from fusewise.frontend.onnx_import import load
from fusewise.frontend.upgrade_six import SIX


def model_of(op: str, shapes: list[tuple[int, ...]], opset: int = 6, **attributes: object) -> onnx.ModelProto:
    node = onnx.helper.make_node(op, [f"x{i}" for i in range(len(shapes))], ["y"], **attributes)
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [onnx.helper.make_tensor_value_info(f"x{i}", 1, shape) for i, shape in enumerate(shapes)],
        [onnx.helper.make_tensor_value_info("y", 1, None)],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=3)


def answer(model: onnx.ModelProto, *arrays: np.ndarray) -> np.ndarray:
    graph = to_model(load(model))
    (found,) = ReferenceEvaluator(graph).run(None, {f"x{i}": array for i, array in enumerate(arrays)})
    return np.asarray(found)


def test_every_operator_that_opset_seven_changed_is_in_the_table() -> None:
    changed = set()
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.since_version == 7 and not schema.domain:
            try:
                onnx.defs.get_schema(schema.name, 6, "")
            except onnx.defs.SchemaError:
                continue
            changed.add(schema.name)
    assert changed == set(SIX)


@pytest.mark.parametrize(
    "small, axis, seen",
    [
        ((4,), None, (4,)),
        ((3,), 1, (3, 1)),
        ((3, 4), 1, (3, 4)),
        ((2,), 0, (2, 1, 1)),
        ((2, 3), -3, (2, 3, 1)),
        ((), 0, ()),
    ],
)
def test_the_second_operand_starts_at_its_axis(small: tuple[int, ...], axis: int | None, seen: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, b = rng.random((2, 3, 4), dtype=np.float32), rng.random(small, dtype=np.float32)
    attributes = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
    found = answer(model_of("Sub", [x.shape, small], **attributes), x, b)
    assert np.array_equal(found, x - b.reshape(seen))


def test_a_slope_for_each_channel_lies_along_dimension_one() -> None:
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    slope = np.array([1, 2, 3], np.float32)
    found = answer(model_of("PRelu", [x.shape, slope.shape]), x, slope)
    assert np.array_equal(found, np.where(x < 0, x * slope[:, None], x))
    one = np.array([5], np.float32)
    assert np.array_equal(answer(model_of("PRelu", [x.shape, (1,)]), x, one), np.where(x < 0, x * 5, x))


def test_a_product_with_a_broadcast_bias() -> None:
    a, b, c = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32), np.arange(4, dtype=np.float32)
    found = answer(model_of("Gemm", [a.shape, b.shape, c.shape], broadcast=1), a, b, c)
    assert np.array_equal(found, a @ b + c)


def test_upsampling_by_height_and_width() -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    found = answer(model_of("Upsample", [x.shape], height_scale=2.0, width_scale=3.0, mode="nearest"), x)
    assert np.array_equal(found, x.repeat(2, axis=2).repeat(3, axis=3))


def test_batch_normalization_tells_inference_from_training() -> None:
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 3, 2)
    scale, bias, mean, variance = (np.full(3, v, np.float32) for v in (2, 1, 0.5, 4))
    shapes = [x.shape, (3,), (3,), (3,), (3,)]
    found = answer(model_of("BatchNormalization", shapes, is_test=1, epsilon=0.0), x, scale, bias, mean, variance)
    np.testing.assert_allclose(found, (x - 0.5) / 2 * 2 + 1, rtol=1e-6)
    with pytest.raises(UnsupportedModel, match="training"):
        load(model_of("BatchNormalization", shapes))


def test_older_than_six_is_refused_where_the_operator_differs() -> None:
    with pytest.raises(UnsupportedModel, match="Add"):
        load(model_of("Add", [(2,), (2,)], opset=5))
