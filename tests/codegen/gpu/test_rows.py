"""Softmax and normalisations as kernels for GPUs, by whole rows and by the nest, in Triton's interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.codegen.gpu.interpreting import check
from tests.codegen.gpu.test_nests import at, dense, run, task_of
from tests.runtime.gpu.kernels import needs_triton

from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.kernel import NoKernel
from fusewise.codegen.gpu.nests import nest
from fusewise.codegen.gpu.rows import rows
from fusewise.ir.dtypes import FLOAT16, FLOAT32, DType
from fusewise.lower.task import Operand, Task
from fusewise.ops.expr import Expr, binary, compare, index, load, reduce, select, unary

DEVICE = device_named("sm_90")
RELAXED = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SHAPES = [(7, 100), (3, 64), (1, 1500), (30, 5), (2, 3000), (1, 7)]

by_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


def softmax(lines: int, columns: int, dtype: DType = FLOAT32) -> Task:
    """exp(x - max) / sum, each written out."""
    top = reduce("max", (("r0", columns),), load("in0", dtype, at("i0", "r0")))
    total = reduce("sum", (("r1", columns),), unary("exp", load("in0", dtype, at("i0", "r1")) - top))
    value = unary("exp", load("in0", dtype, at("i0", "i1")) - top) / total
    return task_of(value, (lines, columns), dense("in0", dtype, (lines, columns)))


def layer_norm(lines: int, columns: int) -> Task:
    """(x - mean) / deviation * scale."""

    def x(name: str) -> Expr:
        return load("in0", FLOAT32, at("i0", name))

    mean = reduce("sum", (("r0", columns),), x("r0")) / float(columns)
    variance = reduce("sum", (("r1", columns),), (x("r1") - mean) * (x("r1") - mean)) / float(columns)
    value = (x("i1") - mean) / unary("sqrt", variance + 1e-5) * load("in1", FLOAT32, at("i1"))
    return task_of(value, (lines, columns), dense("in0", FLOAT32, (lines, columns)), dense("in1", FLOAT32, (columns,)))


def channel_softmax(samples: int, channels: int, places: int) -> Task:
    """Along an axis whose elements lie apart."""
    shape = (samples, channels, places)
    top = reduce("max", (("r0", channels),), load("in0", FLOAT32, at("i0", "r0", "i2")))
    total = reduce("sum", (("r1", channels),), unary("exp", load("in0", FLOAT32, at("i0", "r1", "i2")) - top))
    return task_of(
        unary("exp", load("in0", FLOAT32, at("i0", "i1", "i2")) - top) / total, shape, dense("in0", FLOAT32, shape)
    )


@needs_triton
@pytest.mark.parametrize("family", [rows, nest])
@pytest.mark.parametrize("make", [softmax, layer_norm])
@by_shape
def test_rows(make, shape, family) -> None:
    run(make(*shape), times=4, family=family)


@needs_triton
@pytest.mark.parametrize("family", [rows, nest])
def test_rows_of_other_kinds(family) -> None:
    run(softmax(5, 33, FLOAT16), family=family)
    run(channel_softmax(2, 21, 50), times=4, family=family)
    run(channel_softmax(3, 40, 3), times=4, family=family)


@pytest.mark.parametrize("make", [softmax, layer_norm])
@by_shape
def test_rows_are_read_once(make, shape) -> None:
    assert rows(make(*shape), DEVICE).source.count("tl.load(in0") == 1
    assert nest(make(*shape), DEVICE).source.count("tl.load(in0") == 3


@needs_triton
@RELAXED
@given(st.data())
def test_any_rows(data: st.DataObject) -> None:
    """With offsets, backwards, of NaN and infinity, and with a condition on the row or on the column."""
    lines, columns = data.draw(st.integers(1, 9)), data.draw(st.integers(4, 70))
    step, between = data.draw(st.sampled_from([1, -1, 2])), data.draw(st.integers(0, 3))
    apart = columns * abs(step) + between
    source = Operand(
        "in0", FLOAT32, (lines, columns), (apart, step), data.draw(st.integers(0, 3)) + (columns if step < 0 else 0)
    )
    kind = data.draw(st.sampled_from(["max", "min", "sum"]))
    total = reduce(kind, (("r0", columns),), load("in0", FLOAT32, at("i0", "r0")))
    own = load("in0", FLOAT32, at("i0", "i1"))
    value = select(compare("lt", index(data.draw(st.sampled_from(["i0", "i1"]))), 2), own, binary("sub", own, total))
    run(
        task_of(value, (lines, columns), source),
        special=kind != "sum",
        times=16,
        family=data.draw(st.sampled_from([rows_or_nest, nest])),
    )


def rows_or_nest(task: Task, device):
    try:
        return rows(task, device)
    except NoKernel:
        return nest(task, device)


@needs_triton
@pytest.mark.parametrize("family", [rows, nest])
def test_rows_of_nothing_but_infinity(family) -> None:
    """Softmax of a row that is masked as a whole is NaN, of others it is not."""
    task = softmax(3, 40)
    given = {"in0": np.where(np.arange(120) < 40, -np.inf, np.arange(120) % 7).astype(np.float32)}
    check(family(task, DEVICE), task, given)


def test_what_has_no_rows_is_refused() -> None:
    wide = 9000
    lone = task_of(
        reduce("sum", (("r0", 50),), load("in0", FLOAT32, at("i0", "r0"))), (4,), dense("in0", FLOAT32, (4, 50))
    )
    plain = task_of(load("in0", FLOAT32, at("i0")), (4,), dense("in0", FLOAT32, (4,)))
    for task, reason in ((softmax(2, wide), "more than 8192"), (lone, "no reductions"), (plain, "no reductions")):
        with pytest.raises(NoKernel, match=reason):
            rows(task, DEVICE)
