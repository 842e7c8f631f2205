"""Points used by hand, as anchored kernels use them: an accumulator from outside, partial vectors, known leaves."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from tests.guarded import within

from fusewise.codegen.llvm.elements import Elements
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.build import Module
from fusewise.codegen.nest.types import memory_type, register_type
from fusewise.codegen.target import Target
from fusewise.ir.dtypes import FLOAT32, dtype_named
from fusewise.lower.task import ACC, Operand, Store, Task
from fusewise.ops.expr import cast, compare, index, load, select, unary
from fusewise.runtime.jit import compile_object
from fusewise.runtime.jit import load as link

AT = (index("i0"), index("i1"))


def call(text: str, target: Target, *arrays: np.ndarray) -> None:
    library = link([compile_object(text, target)], ["kernel"])
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays))(library.addresses["kernel"])
    operands = {f"operand {number}": array for number, array in enumerate(arrays)}
    with within(operands, "behind", operands) as placed:
        function(*(one.address for one in placed.values()))


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16", "uint8", "int64"])
@pytest.mark.parametrize("lane", ["i0", "i1"])
@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("known", [True, False], ids=["static", "dynamic"])
def test_partial_vector_with_accumulator(target, name, lane, count, known):
    """A point of eight lanes of which `count` exist, along a contiguous and along a strided axis."""
    dtype = dtype_named(name)
    rows, columns = (count, 2) if lane == "i0" else (2, count)
    operands = (
        Operand("in0", dtype, (rows, columns), (columns, 1)),
        Operand("out0", dtype, (rows, columns), (columns, 1)),
    )
    acc = load(ACC, dtype, AT)
    task = Task((rows, columns), operands, (Store("out0", AT, acc + load("in0", dtype, AT)),))
    module = Module()
    f = module.function("kernel", ("ptr noalias", "ptr noalias", "ptr noalias", "ptr noalias"))
    source, out, given, number = f.arguments
    elements = Elements(f, task, target, {"in0": source, "out0": out})
    kind = f"<8 x {register_type(dtype)}>"
    start = {"i0": 0, "i1": 1} if lane == "i0" else {"i0": 1, "i1": 0}
    limit = (count if count < 8 else None) if known else f.load("i64", number)
    elements.at(start, lane, 8, acc=f.load(kind, given), count=limit).store(task.stores[0])
    f.give_back()
    rng = np.random.default_rng(0)
    data = rng.integers(0, 9, (rows, columns)).astype(dtype.numpy)
    result = np.full((rows + 8, columns), 7, dtype.numpy)
    added = rng.integers(0, 9, 8).astype(dtype.numpy)
    call(llvm_text(module), target, data, result, added, np.array([count], np.int64))
    expected = np.full_like(result, 7)
    if lane == "i0":
        expected[:count, 1] = data[:, 1] + added[:count]
    else:
        expected[1, :] = data[1, :] + added[:count]
    np.testing.assert_array_equal(result.astype(np.float64), expected.astype(np.float64))


def test_a_wide_accumulator_is_rounded_to_its_type(target):
    half = dtype_named("float16")
    task = Task((1, 8), (Operand("out0", half, (1, 8), (8, 1)),), (Store("out0", AT, load(ACC, half, AT)),))
    module = Module()
    f = module.function("kernel", ("ptr noalias", "ptr noalias"))
    out, given = f.arguments
    point = Elements(f, task, target, {"out0": out}).at({"i0": 0, "i1": 0}, "i1", 8, acc=f.load("<8 x float>", given))
    point.store(task.stores[0])
    f.give_back()
    x = np.array([0.1, 65519, 65520, -1e9, 6e-8, np.nan, 2049, -0.0], np.float32)
    result = np.zeros(8, np.float16)
    call(llvm_text(module), target, result, x)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(result, x.astype(np.float16))


def test_leaves_stand_for_expressions_and_each_is_computed_once(target):
    x = load("in0", FLOAT32, AT)
    heavy = unary("exp", x)
    value = select(compare("gt", x, 0.0), heavy, heavy + heavy)
    operands = (Operand("in0", FLOAT32, (1, 8), (8, 1)), Operand("out0", FLOAT32, (1, 8), (8, 1)))
    task = Task((1, 8), operands, (Store("out0", AT, value),))
    module = Module()
    f = module.function("kernel", ("ptr noalias", "ptr noalias"))
    elements = Elements(f, task, target, {"in0": f.arguments[0], "out0": f.arguments[1]})
    known = f.constant(5.0, "<8 x float>")
    elements.at({"i0": 0, "i1": 0}, "i1", 8, leaves={heavy: known}).store(task.stores[0])
    f.give_back()
    text = llvm_text(module)
    assert "exp" not in text
    assert text.count("load <8 x float>") == 1
    a, result = np.array([1, -1] * 4, np.float32), np.zeros(8, np.float32)
    call(text, target, a, result)
    np.testing.assert_array_equal(result, np.where(a > 0, 5, 10))


def test_what_does_not_vary_along_the_lane_stays_scalar(target):
    row = load("in0", FLOAT32, (index("i0"),))
    operands = (Operand("in0", FLOAT32, (4,), (1,)), Operand("out0", FLOAT32, (4, 8), (8, 1)))
    task = Task((4, 8), operands, (Store("out0", AT, unary("sqrt", row) + cast(AT[1], FLOAT32)),))
    module = Module()
    f = module.function("kernel", ("ptr noalias", "ptr noalias"))
    elements = Elements(f, task, target, {"in0": f.arguments[0], "out0": f.arguments[1]})
    elements.at({"i0": 2, "i1": 0}, "i1", 8).store(task.stores[0])
    f.give_back()
    assert "@llvm.sqrt.f32" in llvm_text(module)
    assert memory_type(FLOAT32) == "float"
    a, result = np.array([1, 4, 9, 16], np.float32), np.zeros((4, 8), np.float32)
    call(llvm_text(module), target, a, result)
    np.testing.assert_array_equal(result[2], 3 + np.arange(8))


@pytest.mark.parametrize(("own", "exact", "gated"), [(True, False, True), (True, True, False), (False, False, False)])
def test_a_product_with_its_own_sigmoid_is_one_division(target, own, exact, gated):
    """Not with the sigmoid of something else, which may be the same for many elements, and not where roundings must stay."""
    operands = tuple(Operand(name, FLOAT32, (8,), (1,)) for name in ("in0", "in1", "out0"))
    x, y = (load(name, FLOAT32, (index("i0"),)) for name in ("in0", "in1"))
    value = x * unary("sigmoid", (x if own else y) * 1.5)
    task = Task((8,), operands, (Store("out0", (index("i0"),), value),), exact=exact)
    module = Module()
    f = module.function("kernel", ("ptr noalias",) * 3)
    pointers = dict(zip(("in0", "in1", "out0"), f.arguments, strict=True))
    Elements(f, task, target, pointers).at({"i0": 0}, "i0", 8).store(task.stores[0])
    f.give_back()
    assert ("fusewise.gated" in llvm_text(module)) == gated
    data = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32) * 4
    result = np.zeros(8, np.float32)
    call(llvm_text(module), target, data[0], data[1], result)
    gate = data[0 if own else 1].astype(np.float64) * 1.5
    np.testing.assert_allclose(result, data[0] / (1 + np.exp(-gate)), rtol=1e-6)


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "uint8", "int64"])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_elements_some_apart(target, name, lanes, step):
    """Loads touch nothing before the first element and behind the last, as `call` sees to."""
    dtype = dtype_named(name)
    reach = (lanes - 1) * step + 1
    operands = (Operand("in0", dtype, (lanes,), (step,)), Operand("out0", dtype, (lanes,), (1,)))
    task = Task((lanes,), operands, (Store("out0", AT[:1], load("in0", dtype, AT[:1])),))
    module = Module()
    f = module.function("kernel", ("ptr noalias", "ptr noalias"))
    source, out = f.arguments
    Elements(f, task, target, {"in0": source, "out0": out}).at({"i0": 0}, "i0", lanes).store(task.stores[0])
    f.give_back()
    data = np.arange(reach).astype(dtype.numpy)
    result = np.zeros(lanes, dtype.numpy)
    call(llvm_text(module), target, data, result)
    np.testing.assert_array_equal(result, data[::step])
