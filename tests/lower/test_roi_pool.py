"""MaxRoiPool: ONNX Runtime's answers, and an image that is not there."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.whole import Case, roi_pools

import fusewise
from fusewise.errors import InvalidData


@settings(max_examples=15, deadline=None)
@given(one=roi_pools(), moved=st.integers(0, 3))
def test_boxes_as_onnx_runtime(one: Case, moved: int) -> None:
    """Corners that are halves are rounded away from zero."""
    x, boxes = (operand.astype(np.float32) for operand in one.operands if operand is not None)
    boxes = np.nan_to_num(boxes, nan=0, posinf=9, neginf=-9).clip(-50, 50) + np.float32([0, *[moved / 2] * 4])
    feeds, case = {"x0": x, "x1": boxes}, Case("MaxRoiPool", (x, boxes), one.wanted, one.attributes, opset=21)
    session = onnxruntime.InferenceSession(case.model().SerializeToString(), providers=["CPUExecutionProvider"])
    compiled = fusewise.compile(case.model(), strict=True, threads=1, cache=False)
    np.testing.assert_array_equal(compiled.run(None, feeds)[0], session.run(None, feeds)[0])


@pytest.mark.parametrize("image", [-1, 2, 1e30, np.nan])
def test_an_image_that_is_not_there(image: float) -> None:
    boxes = np.array([[1, 0, 0, 2, 2], [0, 0, 0, 1, 1]], np.float32)
    x = np.ones((2, 3, 4, 4), np.float32)
    case = Case("MaxRoiPool", (x, boxes), (np.zeros((2, 3, 2, 2), np.float32),), {"pooled_shape": [2, 2]}, opset=21)
    compiled = fusewise.compile(case.model(), strict=True, threads=1, cache=False)
    boxes[1, 0] = image
    with pytest.raises(InvalidData, match=r"MaxRoiPool\) finds -?\d+ in its operand 'x1', where only 0 to 1"):
        compiled.run(None, {"x0": x, "x1": boxes})
