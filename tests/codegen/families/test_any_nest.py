"""The generic nest against NumPy's reading of the same expressions, over layouts, dtypes and shapes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.codegen.ways import refusal, text_of, way

from fusewise.codegen.families.generic import any_nest as nest_module
from fusewise.codegen.families.generic.any_nest import ANY_NEST
from fusewise.codegen.target import TARGETS, Target
from fusewise.ir.dtypes import BOOL, FLOAT32, INT32, INT64, DType, dtype_named
from fusewise.lower.task import Anchor, Operand, Store, Task
from fusewise.ops.expr import Expr, binary, cast, compare, const, index, load, reduce, select, unary
from fusewise.ops.interpret import evaluate_expression
from fusewise.runtime.jit import compile_assembly

RELAXED = settings(max_examples=9, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def strides_of(shape: tuple[int, ...], order: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Dense strides; `order` lists axes from the slowest to the fastest."""
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(order if order is not None else range(len(shape))):
        strides[axis] = step
        step *= max(1, shape[axis])
    return tuple(strides)


def view(buffer: np.ndarray, operand: Operand) -> np.ndarray:
    """What an operand denotes, as a NumPy view of its buffer."""
    steps = tuple(s * buffer.itemsize for s in operand.strides)
    return np.lib.stride_tricks.as_strided(buffer[operand.offset :], operand.shape, steps)


def samples(rng: np.random.Generator, dtype: DType, size: int) -> np.ndarray:
    if dtype.kind == "bool":
        return rng.integers(0, 2, size).astype(np.bool_)
    if dtype.is_integer:
        return rng.integers(0 if dtype.kind == "uint" else -50, 50, size).astype(dtype.numpy)
    return rng.normal(size=size).astype(dtype.numpy)


def indices(rank: int) -> tuple[Expr, ...]:
    return tuple(index(f"i{k}") for k in range(rank))


def check(run_kernel, task: Task, arrays: dict[str, np.ndarray], workers: int = 1, rtol: float = 2e-6) -> None:
    """Run and compare every store with the interpreter; elements no store writes must stay as they were."""
    run_kernel(ANY_NEST, task, arrays, workers)
    inputs = {o.name: view(arrays[o.name], o) for o in task.operands if not o.name.startswith("out")}
    extents = {f"i{k}": extent for k, extent in enumerate(task.extents)}
    for store in task.stores:
        expected, _ = evaluate_expression(store.value, extents, inputs)
        at = tuple(evaluate_expression(i, extents, inputs)[0] for i in store.index)
        found = view(arrays[store.operand], task.operand(store.operand))[at]
        if expected.dtype.kind in "biu":
            np.testing.assert_array_equal(found, expected)
        else:
            wide = np.float64 if expected.dtype.itemsize >= 4 else np.float32
            tiny = {2: 1e-2, 4: rtol, 8: 1e-13}[expected.dtype.itemsize]
            np.testing.assert_allclose(found.astype(wide), expected.astype(wide), rtol=tiny, atol=tiny)


SHAPES = st.lists(st.integers(0, 9), min_size=0, max_size=4).map(tuple)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[int, ...]], list[tuple[bool, ...]]]:
    shape = draw(st.lists(st.sampled_from([0, 1, 2, 3, 5, 8, 17, 33]), min_size=0, max_size=4).map(tuple))
    orders = [tuple(draw(st.permutations(range(len(shape))))) for _ in range(3)]
    broadcast = [tuple(draw(st.booleans()) for _ in shape) for _ in range(2)]
    return shape, orders, broadcast


@RELAXED
@given(layout=layouts(), workers=st.sampled_from([1, 3]), seed=st.integers(0, 99))
def test_elementwise_over_layouts_and_broadcasts(run_kernel, layout, workers, seed):
    shape, orders, broadcast = layout
    rng = np.random.default_rng(seed)
    operands, arrays, loads = [], {}, []
    for k in range(2):
        strides = tuple(0 if flat else s for s, flat in zip(strides_of(shape, orders[k]), broadcast[k], strict=True))
        operands.append(Operand(f"in{k}", FLOAT32, shape, strides, offset=3 * k))
        arrays[f"in{k}"] = samples(rng, FLOAT32, max(1, math.prod(shape)) + 8)
        loads.append(load(f"in{k}", FLOAT32, indices(len(shape))))
    operands.append(Operand("out0", FLOAT32, shape, strides_of(shape, orders[2]), offset=5))
    arrays["out0"] = np.full(max(1, math.prod(shape)) + 8, 77, np.float32)
    value = loads[0] * 2.0 + binary("max", loads[1], 0.0)
    check(run_kernel, Task(shape, tuple(operands), (Store("out0", indices(len(shape)), value),)), arrays, workers)
    assert (arrays["out0"][:5] == 77).all()
    assert (arrays["out0"][5 + math.prod(shape) :] == 77).all()


NUMERIC = "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()


def run_elementwise(run_kernel, function, sources: list[np.ndarray], result: DType) -> np.ndarray:
    """Apply a function of expressions to equally long arrays."""
    from fusewise.ir.dtypes import dtype_of

    n = sources[0].size
    operands = tuple(Operand(f"in{k}", dtype_of(a), (n,), (1,)) for k, a in enumerate(sources))
    value = function(*(load(o.name, o.dtype, indices(1)) for o in operands))
    out = np.zeros(n, result.numpy)
    task = Task((n,), (*operands, Operand("out0", result, (n,), (1,))), (Store("out0", indices(1), value),))
    arrays = {f"in{k}": a for k, a in enumerate(sources)} | {"out0": out}
    check(run_kernel, task, arrays)
    return out


@pytest.mark.parametrize("source", [*NUMERIC, "bool"])
def test_casts(run_kernel, source):
    a = samples(np.random.default_rng(0), dtype_named(source), 37)
    if dtype_named(source).is_float:
        a = np.abs(a * 20).astype(a.dtype)  # a negative float has no meaning as an unsigned integer
    elif dtype_named(source).kind == "int":
        a = np.abs(a)
    for name in [*NUMERIC, "bool"]:
        to = dtype_named(name)
        run_elementwise(run_kernel, lambda x, to=to: cast(x, to), [a], to)


@pytest.mark.parametrize("name", "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())
def test_integer_arithmetic(run_kernel, name):
    dtype, rng = dtype_named(name), np.random.default_rng(1)
    a, b = samples(rng, dtype, 45), samples(rng, dtype, 45)
    b[b == 0] = 3
    for op in "add sub mul min max bitand bitor bitxor floordiv floormod mod fmod".split():
        run_elementwise(run_kernel, lambda x, y, op=op: binary(op, x, y), [a, b], dtype)
    for op in "abs sign bitnot neg".split():
        run_elementwise(run_kernel, lambda x, op=op: unary(op, x), [a], dtype)
    small = (np.abs(b) % 5).astype(dtype.numpy)
    for op in "shl shr pow".split():
        run_elementwise(run_kernel, lambda x, y, op=op: binary(op, x, y), [a, small], dtype)
    for op in "lt le eq ne gt ge".split():
        run_elementwise(run_kernel, lambda x, y, op=op: compare(op, x, y), [a, b], BOOL)


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_float_arithmetic_with_specials(run_kernel, name):
    dtype, rng = dtype_named(name), np.random.default_rng(2)
    special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 2.5, -2.5, 1e30, -3e-30, 0.5])
    a, b = (v.reshape(-1).astype(dtype.numpy) for v in np.meshgrid(special, special))
    more = samples(rng, dtype, 2 * 61) * 10
    a, b = np.concatenate([a, more[:61]]), np.concatenate([b, more[61:]])
    for op in "add sub mul div min max pow fmod".split():
        run_elementwise(run_kernel, lambda x, y, op=op: binary(op, x, y), [a, b], dtype)
    finite = np.isfinite(b) & (b != 0)
    run_elementwise(run_kernel, lambda x, y: binary("mod", x, y), [a[finite], b[finite]], dtype)
    for op in "lt le eq ne gt ge".split():
        run_elementwise(run_kernel, lambda x, y, op=op: compare(op, x, y), [a, b], BOOL)
    for op in "neg abs sqrt floor ceil round sign".split():
        run_elementwise(run_kernel, lambda x, op=op: unary(op, x), [a], dtype)
    for op in "isnan isinf".split():
        run_elementwise(run_kernel, lambda x, op=op: unary(op, x), [a], BOOL)
    for exponent in (0.0, 0.5, 1.0, 2.0, 3.0, -1.0, -2.0):
        # NumPy takes the root of -inf for exponent 0.5, IEEE 754 says +inf
        given = a[~np.isneginf(a)] if exponent == 0.5 else a
        run_elementwise(run_kernel, lambda x, e=exponent: binary("pow", x, e), [given], dtype)


def test_logic_on_bools(run_kernel):
    a, b = np.array([0, 0, 1, 1] * 5, np.bool_), np.array([0, 1, 0, 1] * 5, np.bool_)
    for op in "and or xor".split():
        run_elementwise(run_kernel, lambda x, y, op=op: binary(op, x, y), [a, b], BOOL)
    run_elementwise(run_kernel, lambda x: unary("not", x), [a], BOOL)


@RELAXED
@given(
    shape=st.tuples(st.sampled_from([1, 2, 7, 20]), st.sampled_from([0, 1, 3, 8, 37]), st.sampled_from([1, 5, 16, 40])),
    axes=st.sets(st.integers(0, 2), min_size=1),
    order=st.permutations(range(3)),
    kind=st.sampled_from(["sum", "prod", "max", "min"]),
    name=st.sampled_from(["float32", "float64", "int32", "uint8", "float16"]),
    workers=st.sampled_from([1, 2]),
)
def test_reductions(run_kernel, shape, axes, order, kind, name, workers):
    dtype = dtype_named(name)
    rng = np.random.default_rng(len(axes))
    data = samples(rng, dtype, max(1, math.prod(shape)))
    if kind == "prod":
        data = np.where(data > 0, 1, 2).astype(dtype.numpy) if dtype.is_integer else np.exp2(np.sign(data))
        some = np.arange(data.size) % max(1, data.size // 60) == 0  # few enough that no order of factors overflows
        data = np.where(some, data, 1).astype(dtype.numpy)
    if dtype.bits == 16 and kind == "prod":
        kind = "sum"
    operand = Operand("in0", dtype, shape, strides_of(shape, tuple(order)))
    kept = [k for k in range(3) if k not in axes]
    at: list[Expr] = [index("") for _ in shape]
    for position, k in enumerate(kept):
        at[k] = index(f"i{position}")
    for k in axes:
        at[k] = index(f"r{k}")
    value = reduce(kind, tuple((f"r{k}", shape[k]) for k in sorted(axes)), load("in0", dtype, tuple(at)))
    extents = tuple(shape[k] for k in kept)
    out = Operand("out0", dtype, extents, strides_of(extents))
    task = Task(extents, (operand, out), (Store("out0", indices(len(kept)), value),))
    arrays = {"in0": data, "out0": np.zeros(max(1, math.prod(extents)), dtype.numpy)}
    if dtype.bits == 16:  # the interpreter accumulates in 16 bits
        run_kernel(ANY_NEST, task, arrays, workers)
        whole = view(data, operand).astype(np.float64)
        if whole.size:
            expected = getattr(np, kind)(whole, axis=tuple(axes))
            found = view(arrays["out0"], out).astype(np.float64)
            np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
        return
    check(run_kernel, task, arrays, workers, rtol=2e-5)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(3, 5, 19), (2, 40, 8), (1, 1, 7)])
def test_softmax_by_definition(run_kernel, shape, axis):
    """Nested reductions: the maximum inside the sum's body depends on neither loop of the sum."""
    at = indices(3)

    def element(name: str) -> Expr:
        return load("in0", FLOAT32, tuple(index(name) if k == axis else at[k] for k in range(3)))

    peak = reduce("max", (("r0", shape[axis]),), element("r0"))
    total = reduce("sum", (("r1", shape[axis]),), unary("exp", element("r1") - peak))
    value = unary("exp", element(f"i{axis}") - peak) / total
    operands = (Operand("in0", FLOAT32, shape, strides_of(shape)), Operand("out0", FLOAT32, shape, strides_of(shape)))
    arrays = {"in0": samples(np.random.default_rng(0), FLOAT32, math.prod(shape))}
    arrays["out0"] = np.zeros(math.prod(shape), np.float32)
    check(run_kernel, Task(shape, operands, (Store("out0", at, value),)), arrays, workers=2)


@RELAXED
@given(
    n=st.sampled_from([1, 3, 8, 21]),
    before=st.integers(0, 4),
    after=st.integers(0, 4),
    lane_first=st.booleans(),
    name=st.sampled_from(["float32", "int64", "uint8", "bool", "float16"]),
)
def test_padding_never_reads_outside(run_kernel, n, before, after, lane_first, name):
    """A condition along the lane axis (masked or limited loads), or along the other (a branch)."""
    dtype = dtype_named(name)
    shape = (n, 4) if lane_first else (4, n)
    padded = (before + n + after, 4) if lane_first else (4, before + n + after)
    k = 0 if lane_first else 1
    at = list(indices(2))
    inside = binary("and", compare("ge", at[k], before), compare("lt", at[k], before + n))
    source = [*at]
    source[k] = at[k] - before
    value = select(inside, load("in0", dtype, tuple(source)), const(1, dtype))
    operands = (Operand("in0", dtype, shape, strides_of(shape)), Operand("out0", dtype, padded, strides_of(padded)))
    guard = 64  # elements around the operand that must not leak into the result
    data = samples(np.random.default_rng(3), dtype, math.prod(shape) + 2 * guard)
    arrays = {"in0": data[guard:-guard], "out0": np.zeros(math.prod(padded), dtype.numpy)}
    check(run_kernel, Task(padded, operands, (Store("out0", tuple(indices(2)), value),)), arrays, workers=2)


def test_gather_by_data(run_kernel):
    rows, width = 9, 21
    table = samples(np.random.default_rng(4), FLOAT32, rows * width)
    picks = np.array([3, -1, 0, 8, -9], np.int64)
    at = indices(2)
    pick = load("in1", INT64, (at[0],))
    row = select(compare("lt", pick, 0), pick + rows, pick)
    operands = (
        Operand("in0", FLOAT32, (rows, width), (width, 1)),
        Operand("in1", INT64, (5,), (1,)),
        Operand("out0", FLOAT32, (5, width), (width, 1)),
    )
    out = np.zeros(5 * width, np.float32)
    task = Task((5, width), operands, (Store("out0", at, load("in0", FLOAT32, (row, at[1]))),))
    check(run_kernel, task, {"in0": table, "in1": picks, "out0": out})
    # the same along the lane axis
    swapped = (operands[0], operands[1], Operand("out0", FLOAT32, (width, 5), (5, 1)))
    flipped = select(
        compare("lt", load("in1", INT64, (at[1],)), 0),
        load("in1", INT64, (at[1],)) + rows,
        load("in1", INT64, (at[1],)),
    )
    task = Task((width, 5), swapped, (Store("out0", at, load("in0", FLOAT32, (flipped, at[0]))),))
    check(run_kernel, task, {"in0": table, "in1": picks, "out0": out})


def test_reshape_with_quotients_and_strided_slices(run_kernel):
    at = indices(2)
    data = samples(np.random.default_rng(5), FLOAT32, 12 * 10)
    flat = at[0] * 15 + at[1]
    split = load("in0", FLOAT32, (flat // 10, flat % 10))
    strided = load("in0", FLOAT32, (at[0], binary("sub", 9, at[1] % 10)))
    operands = (Operand("in0", FLOAT32, (12, 10), (10, 1)), Operand("out0", FLOAT32, (8, 15), (15, 1)))
    task = Task((8, 15), operands, (Store("out0", at, split + strided),))
    check(run_kernel, task, {"in0": data, "out0": np.zeros(120, np.float32)}, workers=3)


def test_several_stores_of_different_dtype(run_kernel):
    at = indices(2)
    x = load("in0", FLOAT32, at)
    operands = (
        Operand("in0", FLOAT32, (6, 11), (11, 1)),
        Operand("out0", FLOAT32, (6, 11), (11, 1)),
        Operand("out1", BOOL, (11, 6), (6, 1)),
        Operand("out2", INT32, (6, 11), (11, 1)),
    )
    stores = (
        Store("out0", at, unary("exp", x)),
        Store("out1", at[::-1], compare("gt", x, 0.0)),
        Store("out2", at, cast(x * 3.0, INT32)),
    )
    arrays = {"in0": samples(np.random.default_rng(6), FLOAT32, 66), "out0": np.zeros(66, np.float32)}
    arrays |= {"out1": np.zeros(66, np.bool_), "out2": np.zeros(66, np.int32)}
    check(run_kernel, Task((6, 11), operands, stores), arrays, workers=2)


def test_refuses_an_anchor_and_foreign_dtypes(target):
    operand = Operand("in0", dtype_named("complex64"), (2,), (1,))
    assert refusal(ANY_NEST, Task((2,), (operand,), ()), target) is not None
    anchor = Anchor("MatMul", "matmul", (), (), (), None)  # type: ignore[arg-type]
    assert refusal(ANY_NEST, Task((2,), (), (), anchor), target) is not None


@pytest.mark.parametrize("pixels, scattered", [(56 * 56, True), (64 * 64, False)])
def test_stores_are_not_scattered_over_a_few_sets_of_the_cache(run_kernel, pixels, scattered):
    at = indices(2)
    value = load("in0", FLOAT32, at) + load("in1", FLOAT32, at)
    first, second = (Operand(name, FLOAT32, (64, pixels), (1, 64)) for name in ("in0", "in1"))
    task = Task(
        (64, pixels), (first, second, Operand("out0", FLOAT32, (64, pixels), (pixels, 1))), (Store("out0", at, value),)
    )
    text = text_of(way(ANY_NEST, task, TARGETS[0]), TARGETS[0].instructions, "kernel")
    assert ("store <16 x float>" not in text) == scattered
    rng = np.random.default_rng(0)
    arrays = {name: samples(rng, FLOAT32, 64 * pixels) for name in ("in0", "in1", "out0")}
    check(run_kernel, task, arrays, workers=2)


@pytest.mark.parametrize("generic", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("name", ["float32", "float64", "float16", "uint8"])
def test_every_target_gets_valid_code_without_library_calls(generic, name):
    dtype = dtype_named(name)
    at = indices(2)
    x = load("in0", dtype, at)
    wide = cast(x, FLOAT32) if dtype.bits < 32 else x
    total = reduce("sum", (("r0", 21),), cast(load("in0", dtype, (at[0], index("r0"))), wide.dtype))
    value = cast(unary("floor", unary("erf", wide) + unary("exp", wide) * total) + unary("round", wide), dtype)
    padded = select(compare("ge", at[1], 2), load("in0", dtype, (at[0], at[1] - 2)), value)
    operands = (Operand("in0", dtype, (5, 21), (21, 1)), Operand("out0", dtype, (5, 21), (21, 1)))
    task = Task((5, 21), operands, (Store("out0", at, padded),))
    text = text_of(way(ANY_NEST, task, generic), generic.instructions, "kernel")
    assembly = compile_assembly(text, generic)
    calls = [line for line in assembly.splitlines() if line.split()[:1] in (["callq"], ["bl"], ["call"])]
    assert not [line for line in calls if "kernel_body" not in line and "fusewise" not in line], calls


def over_rows(rows: int, row: int, summed: int) -> Task:
    """Elements of rows less the logarithm of a sum over another row of `summed`."""
    x = Operand("in0", FLOAT32, (rows, row), (row, 1))
    other = Operand("in1", FLOAT32, (rows, summed), (summed, 1))
    i, j = indices(2)
    total = unary("log", reduce("sum", (("k", summed),), load("in1", FLOAT32, (i, index("k")))))
    out = Operand("out0", FLOAT32, (rows, row), (row, 1))
    return Task((rows, row), (x, other, out), (Store("out0", (i, j), load("in0", FLOAT32, (i, j)) - total),))


def planned(task: Task, target: Target) -> nest_module._Nest:
    return nest_module._plan(task, target, way(ANY_NEST, task, target).schedule)


@pytest.mark.parametrize("rows, row, summed, piece", [(8, 768, 768, 768), (8, 768, 4, 48), (2, 4096, 1024, 1024)])
def test_pieces_of_a_row_are_worth_the_sum_that_each_repeats(target, rows, row, summed, piece):
    nest = planned(over_rows(rows, row, summed), target)
    assert nest.lane == ("i1", row)
    assert nest.piece == max(piece, nest.lanes) if summed > 4 else nest.piece < row


def test_a_sum_of_everything_is_computed_once_and_pieces_are_shared_out(target):
    x = Operand("in0", FLOAT32, (1 << 16,), (1,))
    total = reduce("sum", (("k", 1 << 16),), load("in0", FLOAT32, (index("k"),)))
    (i,) = indices(1)
    task = Task(
        (1 << 16,),
        (x, Operand("out0", FLOAT32, (1 << 16,), (1,))),
        (Store("out0", (i,), load("in0", FLOAT32, (i,)) / total),),
    )
    assert planned(task, target).piece < 1 << 16


def test_a_function_of_a_sum_is_computed_once_a_row(target):
    """Not for every vector of the row: there is one loop with it, and one with the row's elements."""
    task = over_rows(70, 64, 32)
    (early, log) = nest_module._early(planned(task, target))
    assert (early.op, log.op) == ("reduce", "log")


@RELAXED
@given(st.integers(1, 9), st.integers(1, 90), st.integers(1, 40), st.integers(1, 3))
def test_sums_beside_rows(run_kernel, rows, row, summed, workers):
    rng = np.random.default_rng(rows)
    arrays = {"in0": rng.normal(size=rows * row), "in1": rng.uniform(1, 2, rows * summed), "out0": np.zeros(rows * row)}
    check(run_kernel, over_rows(rows, row, summed), {k: a.astype(np.float32) for k, a in arrays.items()}, workers)
