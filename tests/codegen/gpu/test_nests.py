"""Any nest as a kernel, in Triton's interpreter, against NumPy's reading of the same expressions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.codegen.gpu.interpreting import check, launch
from tests.runtime.gpu.kernels import needs_triton

from fusewise.codegen.gpu.device import DEVICES, Device, device_named
from fusewise.codegen.gpu.kernel import GpuKernel, NoKernel
from fusewise.codegen.gpu.nests import nest
from fusewise.ir.dtypes import BOOL, FLOAT16, FLOAT32, INT8, INT32, INT64, DType, dtype_named
from fusewise.ir.types import TensorType
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.ops.expr import Expr, binary, cast, compare, const, index, load, reduce, select, unary

DEVICE = device_named("sm_90")
RELAXED = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
KINDS = ("sum", "prod", "max", "min")


def dense(name: str, dtype: DType, shape: tuple[int, ...], offset: int = 0) -> Operand:
    strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
    return Operand(name, dtype, shape, strides, offset)


def at(*names: str) -> tuple[Expr, ...]:
    return tuple(index(name) for name in names)


def task_of(value: Expr, shape: tuple[int, ...], *operands: Operand) -> Task:
    """One that stores a value to a dense output."""
    names = tuple(f"i{k}" for k in range(len(shape)))
    return Task(shape, (*operands, dense("out0", value.dtype, shape)), (Store("out0", at(*names), value),))


def contents_of(operand: Operand, seed: int = 0, special: bool = False) -> np.ndarray:
    rng, size = np.random.default_rng(seed), math.prod(operand.shape)
    if operand.dtype == BOOL:
        return rng.integers(0, 2, size).astype(bool)
    if operand.dtype.is_integer:
        return rng.integers(-9 if operand.dtype.kind == "int" else 0, 10, size).astype(operand.dtype.numpy)
    found = rng.normal(size=size).astype(operand.dtype.numpy)
    if special and size:
        found[rng.integers(0, size, 2)] = rng.choice([np.nan, np.inf, -np.inf], 2)
    return found


def run(
    task: Task, special: bool = False, times: float = 1.0, family: Callable[[Task, Device], GpuKernel] = nest
) -> None:
    """A family's kernel computes what the task says of drawn contents, some of which are NaN or infinite where `special`."""
    outputs = {store.operand for store in task.stores}
    given = {o.name: contents_of(o, k, special) for k, o in enumerate(task.operands) if o.name not in outputs}
    check(family(task, DEVICE), task, given, times)


@st.composite
def views(draw: st.DrawFn, name: str, dtype: DType, shape: tuple[int, ...], spread: bool) -> Operand:
    """Elements in any order of axes, backwards, apart, from some offset on; where `spread`, some axes are one element."""
    step, strides, low = draw(st.integers(1, 3)), [0] * len(shape), 0
    for axis in draw(st.permutations(range(len(shape)))):
        if spread and draw(st.integers(0, 4)) == 0:
            continue
        strides[axis] = -step if draw(st.booleans()) else step
        low += min(0, strides[axis] * (max(1, shape[axis]) - 1))
        step *= max(1, shape[axis]) + draw(st.integers(0, 1))
    return Operand(name, dtype, shape, tuple(strides), draw(st.integers(0, 5)) - low)


SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 5, 8, 17]), min_size=0, max_size=4).map(tuple)


@needs_triton
@RELAXED
@given(st.data())
def test_any_layout(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    dtype = dtype_named(data.draw(st.sampled_from(["float32", "int8", "float16", "bool", "int64"])))
    reads = [data.draw(views(f"in{k}", dtype, shape, True)) for k in range(2)]
    outs = [data.draw(views(f"out{k}", dtype, shape, False)) for k in range(2)]
    names = tuple(f"i{k}" for k in range(len(shape)))
    a, b = (load(o.name, dtype, at(*names)) for o in reads)
    values = binary("or" if dtype == BOOL else "add", a, b), select(compare("lt", a, b), a, b)
    run(
        Task(shape, (*reads, *outs), tuple(Store(o.name, at(*names), v) for o, v in zip(outs, values, strict=True))),
        True,
    )


@needs_triton
@RELAXED
@given(st.data())
def test_any_reduction(data: st.DataObject) -> None:
    """Over any axes, by rows or by each lane, of values that are NaN or infinite now and then."""
    dims = data.draw(st.lists(st.sampled_from([1, 2, 3, 5, 8, 33, 40]), min_size=1, max_size=3).map(tuple))
    dtype = dtype_named(data.draw(st.sampled_from(["float32", "float32", "int8", "float16", "int64", "bool"])))
    over = data.draw(st.sets(st.integers(0, len(dims) - 1), min_size=1))
    kind = data.draw(st.sampled_from(KINDS if dtype != BOOL else ("and", "or")))
    source = data.draw(views("in0", dtype, dims, True))
    axes = tuple((f"r{k}", dims[k]) for k in sorted(over))
    body = load("in0", dtype, tuple(index(f"r{k}" if k in over else f"i{k}") for k in range(len(dims))))
    if kind == "prod" and dtype.is_float:
        body = unary("sigmoid", body)
    value = reduce(kind, axes, body)
    kept = data.draw(st.booleans())  # one result for each element that was read, or one for all
    shape = dims if kept else tuple(1 if k in over else n for k, n in enumerate(dims))
    if kept and dtype != BOOL:
        value = binary("sub", load("in0", dtype, tuple(index(f"i{k}") for k in range(len(dims)))), value)
    run(task_of(value, shape, source), special=kind in ("max", "min"), times=8)


@needs_triton
@pytest.mark.parametrize(
    "shape, axis", [((70, 33), 0), ((5, 50, 12), 1), ((2, 500), 1), ((1100,), 0), ((40, 3), 0)], ids=str
)
@pytest.mark.parametrize("kind", ["sum", "max", "prod"])
def test_long_reductions(shape, axis, kind) -> None:
    names = [f"i{k}" for k in range(len(shape))]
    names[axis] = "r0"
    body = load("in0", FLOAT32, at(*names))
    body = unary("sigmoid", body) if kind == "prod" else body
    outer = tuple(1 if k == axis else n for k, n in enumerate(shape))
    run(
        task_of(reduce(kind, (("r0", shape[axis]),), body), outer, dense("in0", FLOAT32, shape)), kind == "max", times=8
    )


@needs_triton
def test_reductions_within_reductions() -> None:
    """Attention written out: a product in a sum, of which the inner one depends on the outer one's variable."""
    q, k, v = (dense(f"in{n}", FLOAT32, shape) for n, shape in enumerate([(5, 6), (40, 6), (40, 7)]))

    def score(row: str, key: str, step: str) -> Expr:
        return reduce("sum", ((step, 6),), load("in0", FLOAT32, at(row, step)) * load("in1", FLOAT32, at(key, step)))

    top = reduce("max", (("r0", 40),), score("i0", "r0", "s0"))
    weight = unary("exp", score("i0", "r1", "s1") - top)
    total = reduce("sum", (("r2", 40),), unary("exp", score("i0", "r2", "s2") - top))
    value = reduce("sum", (("r1", 40),), weight / total * load("in2", FLOAT32, at("r1", "i1")))
    run(task_of(value, (5, 7), q, k, v), times=8)


@needs_triton
def test_the_position_of_the_largest() -> None:
    x = load("in0", FLOAT32, at("i0", "r0"))
    top = reduce("max", (("r0", 45),), x)
    found = reduce(
        "min", (("r1", 45),), select(compare("eq", load("in0", FLOAT32, at("i0", "r1")), top), index("r1"), 2**40)
    )
    run(task_of(found, (6,), dense("in0", FLOAT32, (6, 45))))


def padded() -> Task:
    """The largest of a window that begins and ends outside."""
    row, column = index("i0") - 3 + index("r0"), index("i1") - 2 + index("r1")
    inside = const(True, BOOL)
    for position, extent in ((row, 5), (column, 6)):
        inside = binary("and", inside, binary("and", compare("ge", position, 0), compare("lt", position, extent)))
    window = reduce("max", (("r0", 3), ("r1", 3)), select(inside, load("in0", FLOAT32, (row, column)), -math.inf))
    return task_of(window, (9, 11), dense("in0", FLOAT32, (5, 6), 2))


@needs_triton
def test_conditions_keep_loads_back() -> None:
    """A padded window and a concatenation read nothing of what is not there, also where a whole block is outside."""
    run(padded())
    i, j = index("i0"), index("i1")
    joined = select(compare("lt", i, 4), load("in0", FLOAT32, (i, j)), load("in1", FLOAT32, (i - 4, j)))
    run(task_of(joined, (9, 5), dense("in0", FLOAT32, (4, 5)), dense("in1", FLOAT32, (5, 5), 3)))


@needs_triton
def test_conditions_on_rows_and_in_lanes() -> None:
    """A reduction of one branch, where the condition differs between rows, or between the columns that use it."""
    for name in ("i0", "i1"):
        total = reduce("sum", (("r0", 40),), load("in0", FLOAT32, at("i0", "r0")))
        value = select(compare("lt", index(name), 2), total, load("in0", FLOAT32, at("i0", "i1")))
        run(task_of(value, (5, 40), dense("in0", FLOAT32, (5, 40))), times=8)


@needs_triton
def test_positions_from_data() -> None:
    """Those out of bounds are reported, and nothing is read for them; in a branch that is not taken nothing is wrong."""
    rows = dense("in0", FLOAT32, (4, 3))
    places = dense("in1", INT64, (6,))
    position = Expr("bounded", INT64, (load("in1", INT64, at("i0")),), (0, 3, 0))
    value = load("in0", FLOAT32, (position, index("i1")))
    task = task_of(value, (6, 3), rows, places)
    table = np.arange(12, dtype=np.float32)
    good = np.array([3, 0, 2, 1, 1, 3])
    check(nest(task, DEVICE), task, {"in0": table, "in1": good})
    found, fault = launch(nest(task, DEVICE), task, {"in0": table, "in1": np.where(good == 2, 2**40, good)})
    assert fault.tolist() == [1, 2**40]
    assert found["out0"][2].tolist() == [0, 1, 2]
    guarded_task = task_of(select(compare("lt", index("i0"), 2), value, 0.0), (6, 3), rows, places)
    _, fault = launch(nest(guarded_task, DEVICE), guarded_task, {"in0": table, "in1": np.array([0, 3, -1, 9, 9, 9])})
    assert not fault.any()


@needs_triton
def test_nothing_to_choose_from() -> None:
    position = Expr("bounded", INT64, (cast(load("in1", INT32, at("i0")), INT64),), (0, -1, 0))
    value = load("in0", FLOAT32, (position,))
    task = task_of(value, (3,), dense("in0", FLOAT32, (0,)), dense("in1", INT32, (3,)))
    found, fault = launch(
        nest(task, DEVICE), task, {"in0": np.zeros(0, np.float32), "in1": np.array([5, 5, 5], np.int32)}
    )
    assert fault.tolist() == [1, 5]
    assert not found["out0"].any()


@needs_triton
def test_empty_reductions_and_outputs() -> None:
    for dtype in (FLOAT32, INT8, FLOAT16):
        for kind in KINDS:
            body = load("in0", dtype, at("i0", "r0"))
            run(task_of(reduce(kind, (("r0", 0),), body), (3,), dense("in0", dtype, (3, 0))))
    task = task_of(load("in0", FLOAT32, at("i0")), (0,), dense("in0", FLOAT32, (0,)))
    assert nest(task, DEVICE).grid == (0,)


@needs_triton
def test_the_watch_sees() -> None:
    """A kernel without its masks touches what is no operand's, before, behind or between elements."""
    operand = Operand("in0", FLOAT32, (5, 3), (4, 1), 1)
    task = task_of(load("in0", FLOAT32, at("i0", "i1")), (5, 3), operand)
    kernel = nest(task, DEVICE)
    given = {"in0": np.zeros(15, np.float32)}
    check(kernel, task, given)
    for number, (right, wrong) in enumerate(
        [("load(in0 +", "load(in0 - 1 +"), ("load(in0 +", "load(in0 + 1 +"), (", mask=v2", "")]
    ):
        assert right in kernel.source
        source, symbol = kernel.source.replace(right, wrong).replace(", other=0", ""), f"{kernel.symbol}_{number}"
        with pytest.raises(Exception, match="which are none of its operands"):
            launch(replace(kernel, symbol=symbol, source=source.replace(kernel.symbol, symbol)), task, given)


def test_far_elements_have_wide_offsets() -> None:
    """Only where 32 bits do not hold them; nothing is run."""
    near = nest(task_of(load("in0", INT8, at("i0", "i1")), (4, 5), Operand("in0", INT8, (4, 5), (1 << 28, 1))), DEVICE)
    far = nest(task_of(load("in0", INT8, at("i0", "i1")), (4, 5), Operand("in0", INT8, (4, 5), (1 << 30, 1))), DEVICE)
    assert "int64" not in near.source
    assert "int64" in far.source
    many = nest(task_of(load("in0", INT8, at("i0")), (2**31 + 5,), Operand("in0", INT8, (2**31 + 5,), (0,))), DEVICE)
    assert "tl.program_id(0).to(tl.int64)" in many.source


@pytest.mark.parametrize("device", DEVICES, ids=[device.name for device in DEVICES])
def test_the_text_is_a_function_of_task_and_device(device) -> None:
    assert nest(padded(), device) == nest(padded(), device)


def test_what_has_no_definition_is_refused() -> None:
    kind = TensorType(FLOAT32, (4,))
    anchor = Anchor("TopK", "top_k", (), (kind,), (load("in0", FLOAT32, at("p0")),), kind)
    operands = (dense("in0", FLOAT32, (4,)), dense("out0", FLOAT32, (4,)))
    task = Task((4,), operands, (Store("out0", at("i0"), load(ACC, FLOAT32, at("i0"))),), anchor)
    with pytest.raises(NoKernel, match="the definition of TopK"):
        nest(task, DEVICE)
