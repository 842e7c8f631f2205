"""Matrix products as kernels for GPUs, in Triton's interpreter, against NumPy's reading of their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.codegen.gpu.interpreting import check, compare, expected, launch
from tests.codegen.gpu.product_tasks import acc, anchored, contents, lying, run
from tests.codegen.gpu.test_nests import DEVICE, at, dense, task_of, views
from tests.runtime.gpu.kernels import needs_triton

from fusewise.codegen.gpu.kernel import NoKernel
from fusewise.codegen.gpu.product_tiles import ProductWay
from fusewise.codegen.gpu.products import product, product_by, suitable
from fusewise.codegen.llvm.plain import plain_task
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT64, DType, dtype_named
from fusewise.ops.expr import Expr, binary, cast, const, index, load, reduce, select, unary
from fusewise.ops.expr import compare as compared

pytestmark = needs_triton
RELAXED = settings(max_examples=12, deadline=None, phases=(Phase.explicit, Phase.generate))
SIDES = st.sampled_from([1, 2, 5, 16, 17, 33])
DEPTHS = st.sampled_from([8, 15, 16, 40, 65])


@RELAXED
@given(st.data())
def test_any_matmul(data: st.DataObject) -> None:
    """Of any rank, with broadcast leading axes and vectors, in any layout and type."""
    dtype = dtype_named(data.draw(st.sampled_from(["float32", "float32", "float16", "bfloat16"])))
    lead = data.draw(st.lists(st.sampled_from([1, 2, 3]), max_size=2))
    m, n, k = data.draw(SIDES), data.draw(SIDES), data.draw(DEPTHS)
    left = (*(data.draw(st.sampled_from([1, extent])) for extent in lead), m, k)
    right = (*(data.draw(st.sampled_from([1, n])) for n in lead[data.draw(st.integers(0, 2)) :]), k, n)
    if data.draw(st.integers(0, 4)) == 0:
        left = left[-1:]
    elif data.draw(st.integers(0, 4)) == 0:
        right = right[-2:-1]
    shape = np.matmul(np.zeros(left, np.float32), np.zeros(right, np.float32)).shape
    operands = [data.draw(views(f"in{k}", dtype, s, True)) for k, s in enumerate((left, right))]
    task = anchored("MatMul", operands, data.draw(views("out0", dtype, shape, False)))
    try:
        suitable(task)
    except NoKernel:
        return
    run(task, special=data.draw(st.booleans()))


@RELAXED
@given(st.data())
def test_any_gemm(data: st.DataObject) -> None:
    """Transposed, scaled, with an addend of any shape, and something behind it that reads another operand."""
    m, n, k = data.draw(SIDES), data.draw(SIDES.filter(lambda n: n > 1)), data.draw(DEPTHS)
    flags = {name: data.draw(st.integers(0, 1)) for name in ("transA", "transB")}
    factors = {name: data.draw(st.sampled_from([1.0, 0.25, -2.0])) for name in ("alpha", "beta")}
    operands = [
        data.draw(views("in0", FLOAT32, (k, m) if flags["transA"] else (m, k), False)),
        data.draw(views("in1", FLOAT32, (n, k) if flags["transB"] else (k, n), False)),
    ]
    third = data.draw(st.sampled_from([None, (), (n,), (m, 1), (m, n)]))
    if third is not None:
        operands.append(data.draw(views("in2", FLOAT32, third, True)))
    value = binary("max", acc(2) + load("in3", FLOAT32, at("i0", "i1")), 0.0)
    out, residual = (data.draw(views(name, FLOAT32, (m, n), False)) for name in ("out0", "in3"))
    run(anchored("Gemm", operands, out, flags | factors, value=value, more=[residual]), special=True)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT16, BFLOAT16], ids=lambda dtype: dtype.name)
def test_what_is_computed_in_front_does_not_leave_the_tile(dtype: DType) -> None:
    """exp(0) is 1 in lanes that read nothing, and log(0) minus infinity."""
    for word in ("exp", "log"):
        x = (
            unary("abs", load("in0", dtype, at("p0", "p1"))) + 1.0
            if word == "log"
            else load("in0", dtype, at("p0", "p1"))
        )
        scale = load("in2", dtype, at("p1"))
        task = anchored(
            "MatMul",
            [lying("in0", dtype, (33, 21)), lying("in1", dtype, (21, 18), (1, 0))],
            lying("out0", dtype, (33, 18)),
            prologue={0: cast(unary(word, x), dtype) * scale},
            more=[lying("in2", dtype, (21,))],
        )
        run(task)


def test_a_condition_on_what_is_multiplied() -> None:
    """What the condition reads is there where it does not hold; what is multiplied is 0 there."""
    x = load("in0", FLOAT32, at("r0"))
    product_ = select(compared("gt", x, 0.0), x * load("in1", FLOAT32, at("r0", "i0")), const(0.0, FLOAT32))
    operands = dense("in0", FLOAT32, (40,)), dense("in1", FLOAT32, (40, 24))
    run(task_of(reduce("sum", (("r0", 40),), product_), (24,), *operands), special=True)


def test_a_weight_of_two_products_is_rearranged_for_each() -> None:
    """As two matrices, and as the columns of one; memory that was rearranged alike is shared by the recipe."""
    weight = lying("const1", FLOAT16, (2, 64, 8), constant=True)
    found = []
    for shape in ((2, 32, 64), (1, 32, 64)):
        task = anchored("MatMul", [lying("in0", FLOAT16, shape), weight], lying("out0", FLOAT16, (2, 32, 8)))
        ((_, packing),) = product(task, DEVICE).packed
        found.append((packing.recipe, packing.pack(np.arange(2 * 64 * 8)).tobytes()))
    assert found[0][1] != found[1][1]
    assert found[0][0] != found[1][0]


def test_short_weights_are_widened() -> None:
    """A factor of 16 bits beside one of 32 is multiplied as the float32 that it is."""
    weights = cast(load("in1", FLOAT16, at("p0", "p1")), FLOAT32)
    task = anchored(
        "MatMul",
        [lying("in0", FLOAT32, (33, 40)), lying("in1", FLOAT16, (40, 20))],
        lying("out0", FLOAT32, (33, 20)),
        prologue={1: weights},
    )
    assert "tf32x3" in run(task).source


def test_casts_in_front_are_products_of_16_bits() -> None:
    reads = [cast(cast(load(f"in{k}", FLOAT32, at("p0", "p1")), BFLOAT16), FLOAT32) for k in range(2)]
    task = anchored(
        "MatMul",
        [lying("in0", FLOAT32, (33, 40)), lying("in1", FLOAT32, (40, 20))],
        lying("out0", FLOAT32, (33, 20)),
        prologue=dict(enumerate(reads)),
    )
    assert "input_precision" not in run(task).source


def test_two_results() -> None:
    """The product itself, and another of it, in another layout."""
    task = anchored(
        "MatMul", [lying("in0", FLOAT32, (20, 24)), lying("in1", FLOAT32, (24, 20))], lying("out0", FLOAT32, (20, 20))
    )
    (store,) = task.stores
    more = type(store)("out1", at("i1", "i0"), unary("tanh", acc(2)))
    run(type(task)(task.extents, (*task.operands, lying("out1", FLOAT32, (20, 20))), (store, more), task.anchor))


@pytest.mark.parametrize(
    "way", [ProductWay(16, 16, 16, 4, 2, 3), ProductWay(1, 8, 16, 4, 2, 3, True)], ids=["tile", "vector"]
)
def test_parts_of_the_depth_are_added_up_in_order(way: ProductWay) -> None:
    rows = 1 if way.vector else 16
    operands = [lying("in0", FLOAT32, (2, rows, 44)), lying("in1", FLOAT32, (2, 44, 9))]
    value = unary("tanh", acc(3)) + load("in2", FLOAT32, at("i2"))
    more = [lying("in2", FLOAT32, (9,))]
    task = anchored("MatMul", operands, lying("out0", FLOAT32, (2, rows, 9)), value=value, more=more)
    kernel = product_by(task, suitable(task), way, "float32")
    assert len(kernel.then) == 1
    assert kernel.scratch_bytes == 4 * 3 * 2 * rows * 9
    plain = plain_task(task)
    assert plain is not None
    first, second = (launch(kernel, plain, contents(task))[0]["out0"] for _ in range(2))
    assert first.tobytes() == second.tobytes()
    compare(first, expected(plain, contents(task))["out0"], 8)


def test_deep_products_with_few_results_are_parted() -> None:
    task = anchored(
        "MatMul",
        [lying("in0", FLOAT32, (64, 8192)), lying("in1", FLOAT32, (8192, 64))],
        lying("out0", FLOAT32, (64, 64)),
    )
    assert product(task, DEVICE).then
    wide = anchored(
        "MatMul",
        [lying("in0", FLOAT32, (4096, 512)), lying("in1", FLOAT32, (512, 4096))],
        lying("out0", FLOAT32, (4096, 4096)),
    )
    assert not product(wide, DEVICE).then


def test_positions_from_data() -> None:
    """An embedding in front of a product reports what is no row, and reads nothing for it."""
    position = Expr("bounded", INT64, (load("in1", INT64, at("p0")),), (0, 4, 0))
    task = anchored(
        "MatMul",
        [lying("in0", FLOAT32, (5, 24)), lying("in2", FLOAT32, (24, 18))],
        lying("out0", FLOAT32, (20, 18)),
        prologue={0: load("in0", FLOAT32, (position, index("p1")))},
        more=[lying("in1", INT64, (20,))],
        shapes={0: (20, 24)},
    )
    plain = plain_task(task)
    assert plain is not None
    given = contents(task) | {"in1": np.arange(20) % 5}
    check(product(task, DEVICE), plain, given, 8)
    given["in1"][7] = -3
    assert launch(product(task, DEVICE), plain, given)[1].tolist() == [1, -3]


def test_other_sums_are_left_to_others() -> None:
    """Sums of what is no product, of few terms, with one result each, and whose factors are sums along the depth."""
    x, y = load("in0", FLOAT32, at("i0", "k")), load("in1", FLOAT32, at("i0", "k"))
    rows = dense("in0", FLOAT32, (5, 40)), dense("in1", FLOAT32, (5, 40))
    for value, reason in (
        (reduce("sum", (("k", 40),), x), "no product"),
        (reduce("sum", (("k", 40),), x * y), "no result reads"),
        (reduce("max", (("k", 40),), x * y), "the max of float32"),
    ):
        with pytest.raises(NoKernel, match=reason):
            product(task_of(value, (5,), *rows), DEVICE)
    short = anchored(
        "MatMul", [lying("in0", FLOAT32, (30, 3)), lying("in1", FLOAT32, (3, 30))], lying("out0", FLOAT32, (30, 30))
    )
    with pytest.raises(NoKernel, match="a sum of 3 products"):
        product(short, DEVICE)
