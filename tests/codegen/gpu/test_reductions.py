"""Long reductions in parts as kernels for GPUs, in Triton's interpreter, against NumPy's reading of the same expressions."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.codegen.gpu.test_nests import DEVICE, at, dense, run, task_of
from tests.codegen.gpu.test_rows import softmax
from tests.runtime.gpu.kernels import needs_triton

from fusewise.codegen.gpu import reductions
from fusewise.codegen.gpu.kernel import NoKernel
from fusewise.codegen.gpu.reductions import reduction
from fusewise.ir.dtypes import FLOAT16, FLOAT32, INT32, DType
from fusewise.lower.task import Task
from fusewise.ops.expr import index, load, reduce, unary


def totals(shape: tuple[int, ...], over: tuple[int, ...], kind: str = "sum", dtype: DType = FLOAT32) -> Task:
    """Over some axes, with a square before and a product behind."""
    read = load("in0", dtype, tuple(index(f"r{k}" if k in over else f"i{k}") for k in range(len(shape))))
    total = reduce(kind, tuple((f"r{k}", shape[k]) for k in over), read * read if kind == "sum" else read)
    out = tuple(1 if k in over else n for k, n in enumerate(shape))
    behind = load("in1", dtype, at(*(f"i{k}" for k in range(len(shape)))))
    return task_of(unary("tanh", total) + behind, out, dense("in0", dtype, shape), dense("in1", dtype, out))


@needs_triton
@settings(max_examples=12, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(st.data())
def test_any_long_reduction(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from([(1000,), (3, 777), (777, 3), (2, 30, 41), (5, 64, 2)]))
    over = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1).map(lambda axes: tuple(sorted(axes))))
    kind, dtype = data.draw(st.sampled_from(["sum", "max", "min"])), data.draw(st.sampled_from([FLOAT32, FLOAT16]))
    task = totals(shape, over, kind, dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reductions, "_LEAST_STEPS", 32)
        patch.setattr(reductions, "_PART_STEPS", data.draw(st.sampled_from([8, 16, 100])))
        try:
            reduction(task, DEVICE)
        except NoKernel:
            return
        run(task, special=kind != "sum", times=4, family=reduction)


def test_all_multiprocessors_have_a_part() -> None:
    kernel = reduction(totals((10_000_000,), (0,)), DEVICE)
    assert kernel.grid == (514,)
    assert kernel.scratch_bytes == 4 * 514
    assert [one.grid for one in kernel.then] == [(1,)]
    assert "in1" not in kernel.source


def test_what_is_not_long_is_refused() -> None:
    for task, reason in (
        (totals((10_000,), (0,)), "short"),
        (totals((4000, 20_000), (1,)), "enough"),
        (totals((20_000,), (0,), "max", INT32), "max of int32"),
        (softmax(2, 20_000), "2 reductions"),
    ):
        with pytest.raises(NoKernel, match=reason):
            reduction(task, DEVICE)


def test_rows_that_lie_beside_each_other_are_read_so() -> None:
    kernel = reduction(totals((512, 512, 64), (0, 1)), DEVICE)
    assert "32 to a block" in kernel.way
