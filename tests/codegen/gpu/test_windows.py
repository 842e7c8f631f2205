"""Depthwise convolutions and pooling as kernels for GPUs, in Triton's interpreter, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.codegen.gpu.product_tasks import acc, anchored, last, lying, run
from tests.codegen.gpu.test_nests import DEVICE, at, dense, task_of
from tests.runtime.gpu.kernels import needs_triton

from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.kernel import NoKernel
from fusewise.codegen.gpu.windows import window
from fusewise.ir.dtypes import FLOAT16, FLOAT32, DType
from fusewise.lower.task import Task
from fusewise.ops.expr import binary, load, reduce
from fusewise.runtime.gpu.compile import TritonCompiler

RELAXED = settings(max_examples=12, deadline=None, phases=(Phase.explicit, Phase.generate))


def depthwise(
    channels: int, extent: int, kernel: int, dtype: DType = FLOAT32, stride: int = 1, constant: bool = True
) -> Task:
    """Square, channels last, of one sample, padded to keep its extent; with an activation."""
    shape, low = (1, channels, extent, extent), kernel // 2
    out = (1, channels, *((extent - 1) // stride + 1,) * 2)
    operands = [
        lying("in0", dtype, shape, last(4)),
        lying("const0", dtype, (channels, 1, kernel, kernel), constant=constant),
    ]
    attributes = {"group": channels, "pads": (low,) * 4, "strides": (stride, stride)}
    value = binary("max", acc(4, dtype), load("in1", dtype, at("i0", "i1", "i2", "i3")))
    more = [lying("in1", dtype, out, last(4))]
    return anchored("Conv", operands, lying("out0", dtype, out, last(4)), attributes, value=value, more=more)


def run_if_accepted(task: Task, special: bool) -> None:
    """Windows of one step are none, and filters that share a channel are another matter."""
    try:
        kernel = window(task, DEVICE)
    except NoKernel:
        return
    run(task, special, kernel=kernel)


@needs_triton
@RELAXED
@given(st.data())
def test_any_depthwise_convolution(data: st.DataObject) -> None:
    """With several filters to a channel, strides, dilations and uneven pads, channels first or last."""
    rank = data.draw(st.sampled_from([1, 2, 2]))
    each = st.integers(1, 3)
    kernel, strides, dilations = (tuple(data.draw(each) for _ in range(rank)) for _ in range(3))
    pads = tuple(data.draw(st.integers(0, 2)) for _ in range(2 * rank))
    extents = tuple(data.draw(st.integers(5, 9)) for _ in range(rank))
    channels, filters, batch = data.draw(st.sampled_from([3, 7, 16])), data.draw(each), data.draw(st.integers(1, 2))
    places = zip(extents, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True)
    out = tuple((n + low + high - (k - 1) * d - 1) // s + 1 for n, k, s, d, low, high in places)
    if min(out) < 1:
        return
    dtype, orders = data.draw(st.sampled_from([FLOAT32, FLOAT16])), st.sampled_from([None, last(rank + 2)])
    operands = [
        lying("in0", dtype, (batch, channels, *extents), data.draw(orders)),
        lying("const0", dtype, (channels * filters, 1, *kernel), constant=data.draw(st.booleans())),
        lying("const1", dtype, (channels * filters,), constant=True),
    ]
    attributes = {"strides": strides, "dilations": dilations, "pads": pads, "group": channels}
    result = lying("out0", dtype, (batch, channels * filters, *out), data.draw(orders))
    task = anchored("Conv", operands, result, attributes)
    run_if_accepted(task, data.draw(st.booleans()))


@needs_triton
@RELAXED
@given(st.data())
def test_any_pooling(data: st.DataObject) -> None:
    op = data.draw(st.sampled_from(["MaxPool", "AveragePool", "LpPool"]))
    kernel, strides, dilations = (tuple(data.draw(st.integers(1, 3)) for _ in range(2)) for _ in range(3))
    pads = tuple(data.draw(st.integers(0, k - 1)) for k in (*kernel, *kernel))
    shape = (data.draw(st.integers(1, 2)), data.draw(st.sampled_from([1, 3, 8])), 9, 7)
    ceil = data.draw(st.integers(0, 1))
    attributes = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads, "ceil_mode": ceil}
    if op == "AveragePool":
        attributes["count_include_pad"] = data.draw(st.integers(0, 1))
    extents = []
    for n, k, s, d, low, high in zip(shape[2:], kernel, strides, dilations, pads[:2], pads[2:], strict=True):
        room = n + low + high - (k - 1) * d - 1
        if room < 0:
            return
        count = -(-room // s) + 1 if ceil else room // s + 1
        extents.append(count - (ceil and (count - 1) * s >= n + low))
    orders = st.sampled_from([None, last(4)])
    dtype = data.draw(st.sampled_from([FLOAT32, FLOAT32, FLOAT16]))
    task = anchored(
        op,
        [lying("in0", dtype, shape, data.draw(orders))],
        lying("out0", dtype, (*shape[:2], *extents), data.draw(orders)),
        attributes,
    )
    run_if_accepted(task, special=op == "MaxPool" and data.draw(st.booleans()))


def test_steps_are_written_out_and_weights_lie_beside_each_other() -> None:
    kernel = window(depthwise(32, 14, 3), DEVICE)
    assert "for " not in kernel.source
    ((name, packing),) = kernel.packed
    weights = np.arange(32 * 9, dtype=np.float32).reshape(32, 1, 3, 3)
    assert name == "const0"
    np.testing.assert_array_equal(packing.pack(weights).reshape(9, 32), weights.reshape(32, 9).T)
    assert not window(depthwise(32, 14, 3, constant=False), DEVICE).packed


def test_what_has_no_windows_is_refused() -> None:
    def sums(steps: int, rows: int, beside: bool) -> Task:
        shape, place = ((rows, steps), at("i0", "r0")) if not beside else ((steps, rows), at("r0", "i0"))
        value = reduce("sum", (("r0", steps),), load("in0", FLOAT32, place))
        return task_of(value, (rows,), dense("in0", FLOAT32, shape))

    shared = reduce(
        "sum",
        (("r0", 4),),
        load("in0", FLOAT32, at("i0", "r0")) * load("in1", FLOAT32, at("r0", "i1")),
    )
    product = task_of(shared, (5, 6), dense("in0", FLOAT32, (5, 4)), dense("in1", FLOAT32, (4, 6)))
    for task, reason in (
        (sums(65, 100_000, True), "65 steps"),
        (sums(49, 100_000, False), "lie apart"),
        (sums(49, 1000, True), "few and long"),
        (product, "share"),
        (task_of(load("in0", FLOAT32, at("i0")), (4,), dense("in0", FLOAT32, (4,))), "no windows"),
    ):
        with pytest.raises(NoKernel, match=reason):
            window(task, DEVICE)
    assert window(sums(49, 100_000, True), DEVICE)


@needs_triton
@pytest.mark.slow
def test_windows_compile_without_spills() -> None:
    device = device_named("sm_90")
    kernels = [window(depthwise(144, 56, 3, stride=2), device), window(depthwise(96, 56, 7, FLOAT16), device)]
    with TritonCompiler() as compiler:
        for cubin in compiler.compile(kernels, device):
            assert cubin.stack_bytes == 0
