"""Convolutions as products for GPUs, in Triton's interpreter, against NumPy's reading of their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.codegen.gpu.product_tasks import acc, anchored, last, lying, run
from tests.codegen.gpu.test_nests import DEVICE, at, task_of
from tests.runtime.gpu.kernels import needs_triton

from fusewise.codegen.gpu.depth import walked
from fusewise.codegen.gpu.kernel import NoKernel
from fusewise.codegen.gpu.products import product, suitable
from fusewise.ir.dtypes import FLOAT16, FLOAT32, DType
from fusewise.lower.task import Task
from fusewise.ops.expr import binary, compare, const, index, load, reduce, select, unary

pytestmark = needs_triton
RELAXED = settings(max_examples=6, deadline=None, phases=(Phase.explicit, Phase.generate))
ZERO = const(0, index("p0").dtype)


@RELAXED
@given(st.data())
def test_any_convolution(data: st.DataObject) -> None:
    """Of one to three axes, with strides, dilations, uneven pads and groups, channels first or last, and a residual."""
    rank = data.draw(st.sampled_from([1, 2, 2, 2, 3]))
    each = st.integers(1, 3)
    kernel, strides, dilations = (tuple(data.draw(each) for _ in range(rank)) for _ in range(3))
    pads = tuple(data.draw(st.integers(0, 2)) for _ in range(2 * rank))
    extents = tuple(data.draw(st.integers(5, 8)) for _ in range(rank))
    group, channels, filters = data.draw(st.sampled_from([(1, 3, 10), (1, 16, 17), (1, 20, 5), (2, 16, 9), (2, 8, 8)]))
    batch = data.draw(st.integers(1, 2))
    places = zip(extents, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True)
    out = tuple((n + low + high - (k - 1) * d - 1) // s + 1 for n, k, s, d, low, high in places)
    if min(out) < 1:
        return
    dtype = data.draw(st.sampled_from([FLOAT32, FLOAT32, FLOAT16]))
    orders = st.sampled_from([None, last(rank + 2)])
    operands = [
        lying("in0", dtype, (batch, channels * group, *extents), data.draw(orders)),
        lying("const0", dtype, (filters * group, channels, *kernel), constant=data.draw(st.booleans())),
        lying("const1", dtype, (filters * group,), constant=True),
    ]
    shape = (batch, filters * group, *out)
    places = at(*(f"i{k}" for k in range(rank + 2)))
    value = binary("max", acc(rank + 2, dtype), load("in1", dtype, places))
    attributes = {"strides": strides, "dilations": dilations, "pads": pads, "group": group}
    residual, result = (lying(name, dtype, shape, data.draw(orders)) for name in ("in1", "out0"))
    task = anchored("Conv", operands, result, attributes, value=value, more=[residual])
    try:
        suitable(task)
    except NoKernel:
        return
    run(task, special=data.draw(st.booleans()))


def image(
    channels: int, filters: int, kernel: tuple[int, int] = (3, 3), dtype: DType = FLOAT32, **more: object
) -> Task:
    """A padded convolution of an image of 6 by 5, channels last."""
    return anchored(
        "Conv",
        [
            lying("in0", dtype, (1, channels, 6, 5), last(4)),
            lying("const0", dtype, (filters, channels, *kernel), constant=True),
        ],
        lying("out0", dtype, (1, filters, 6, 5), last(4)),
        {"pads": tuple(k // 2 for k in (*kernel, *kernel))},
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT16], ids=lambda dtype: dtype.name)
def test_padding_is_zero_whatever_is_computed_in_front(dtype: DType) -> None:
    """The prologue of a place outside would be 1; a gate that does not depend on the place is read for none."""
    x = load("in0", dtype, at("p0", "p1", "p2", "p3"))
    gate = load("in1", dtype, (index("p0"), index("p1"), ZERO, ZERO))
    run(image(16, 17, dtype=dtype, prologue={0: unary("exp", x) * gate}, more=[lying("in1", dtype, (1, 16, 1, 1))]))


def test_one_tap_outside_the_image() -> None:
    """What depends on the place alone is read under its condition, too."""
    x, by = load("in0", FLOAT32, at("p0", "p1", "p2", "p3")), load("in1", FLOAT32, at("p2", "p3"))
    task = anchored(
        "Conv",
        [lying("in0", FLOAT32, (1, 9, 4, 3), last(4)), lying("const0", FLOAT32, (17, 9, 1, 1), constant=True)],
        lying("out0", FLOAT32, (1, 17, 8, 5), last(4)),
        {"pads": (1, 2, 3, 0)},
        prologue={0: x * by},
        more=[lying("in1", FLOAT32, (4, 3))],
    )
    run(task)


def test_channels_that_fill_blocks_leave_one_tap_to_a_step() -> None:
    wide, first = suitable(image(32, 16)), suitable(image(3, 16, (7, 7)))
    assert walked(wide, 32).count == 9
    assert [extent for _, extent in walked(wide, 32).steps] == [3, 3]
    assert walked(first, 32).count == 5
    assert not walked(first, 32).steps


def test_weights_are_repacked_once() -> None:
    """As the steps go, filled up with zeros; those of one tap lie well as they are, and what is read twice stays."""
    kernel = product(image(3, 16), DEVICE)
    ((name, packing),) = kernel.packed
    assert name == "const0"
    weights = np.random.default_rng(0).normal(size=(16, 3, 3, 3)).astype(np.float32)
    packed = packing.pack(weights)
    assert packed.shape == (1, 16, 32)
    np.testing.assert_array_equal(np.sort(packed[0, 5, :27]), np.sort(weights[5].reshape(-1)))
    assert not packed[0, :, 27:].any()
    assert not product(image(32, 16, (1, 1)), DEVICE).packed
    weight = load("const0", FLOAT32, (index("i1"), ZERO, ZERO, ZERO))
    assert not product(image(16, 16, value=acc(4) + weight), DEVICE).packed


@pytest.mark.parametrize(
    ("strides", "kernel", "pads", "out", "matrices"),
    [
        ((1, 1), (3, 3), (0, 0, 0, 0), (6, 5), 1),
        ((2, 2), (2, 2), (0, 0, 0, 0), (8, 6), 1),  # all phases are columns
        ((2, 2), (4, 4), (1, 1, 1, 1), (8, 6), 4),
        ((2, 3), (3, 5), (0, 1, 1, 1), (8, 9), 3),  # some phases have less taps, and rows of the same data
        ((2, 1), (3, 3), (0, 0, 0, 0), (9, 5), 1),  # an odd extent has no phases
    ],
)
def test_transposed_convolutions(strides, kernel, pads, out, matrices) -> None:
    """A product for each phase, of the taps that it has."""
    task = anchored(
        "ConvTranspose",
        [lying("in0", FLOAT32, (1, 16, 4, 3), last(4)), lying("const0", FLOAT32, (16, 9, *kernel), constant=True)],
        lying("out0", FLOAT32, (1, 9, *out), last(4)),
        {"strides": strides, "pads": pads},
    )
    assert suitable(task).sizes[3] == matrices
    run(task)


def test_what_is_there_under_a_condition_is_read_under_it() -> None:
    """By both factors, or else there is no such kernel: 0 times an infinity of the other would be NaN."""
    i, j, k = (index(name) for name in ("i0", "i1", "k"))
    x, y = lying("in0", FLOAT32, (17, 40)), lying("in1", FLOAT32, (30, 18))
    for condition, is_accepted in ((compare("lt", k, 30), True), (compare("lt", k + i, 30), False)):
        product_ = load("in0", FLOAT32, (i, k)) * load("in1", FLOAT32, (k, j))
        total = reduce("sum", (("k", 40),), select(condition, product_, 0.0))
        task = task_of(total, (17, 18), x, y)
        if is_accepted:
            run(task, special=True)
        else:
            with pytest.raises(NoKernel, match="the other is not under"):
                product(task, DEVICE)


def test_depthwise_convolutions_are_left_to_others() -> None:
    task = anchored(
        "Conv",
        [lying("in0", FLOAT32, (1, 16, 6, 5), last(4)), lying("const0", FLOAT32, (16, 1, 3, 3), constant=True)],
        lying("out0", FLOAT32, (1, 16, 6, 5), last(4)),
        {"pads": (1, 1, 1, 1), "group": 16},
    )
    with pytest.raises(NoKernel, match="many sums of few products"):
        product(task, DEVICE)
