"""MaxRoiPool in Triton's interpreter, on boxes near, far and of none, against NumPy's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from tests.codegen.gpu.interpreting import launch
from tests.runtime.gpu.kernels import needs_triton
from tests.whole import Case, roi_pools, task_and_arrays

from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.kernel import NoKernel
from fusewise.codegen.gpu.roi_pools import roi_pool

pytestmark = needs_triton

SM_90 = device_named("sm_90")


@settings(max_examples=6, deadline=None)
@given(one=roi_pools())
def test_any_boxes(one: Case) -> None:
    assume(0 < one.wanted[0].size <= 2000)
    task, arrays = task_and_arrays(one)
    found, fault = launch(roi_pool(task, SM_90, "float32"), task, arrays)
    assert not fault.any()
    np.testing.assert_array_equal(found["out0"], one.wanted[0])


@pytest.mark.parametrize("image", [-1, 2, 1e30, np.nan])
def test_an_image_that_is_not_there(image: float) -> None:
    boxes = np.array([[1, 0, 0, 2, 2], [image, 0, 0, 1, 1]], np.float32)
    x = np.where(np.arange(96).reshape(2, 3, 4, 4) == 50, np.nan, 1).astype(np.float32)
    wanted = np.zeros((2, 3, 2, 2), np.float32)
    task, arrays = task_and_arrays(Case("MaxRoiPool", (x, boxes), (wanted,), {"pooled_shape": [2, 2]}, opset=21))
    found, fault = launch(roi_pool(task, SM_90, "float32"), task, arrays)
    assert fault[0] == 1
    assert np.isnan(found["out0"][0]).any()
    assert not np.isnan(found["out0"][0]).all()


def test_numbers_of_lanes_have_32_bits() -> None:
    """Those of the last block, too, which would be negative and so within the bounds."""
    x, boxes = np.zeros((1, 1, 1, 1), np.float32), np.zeros((1, 5), np.float32)
    task, _ = task_and_arrays(Case("MaxRoiPool", (x, boxes), (x,), {"pooled_shape": [1, 1]}, opset=21))
    for count in (2**31 - 1, 2**31 - 64):
        with pytest.raises(NoKernel, match=f"MaxRoiPool to {count} elements"):
            roi_pool(replace(task, extents=(count, 1, 1, 1)), SM_90, "float32")
