"""Nests, run on arrays: every kernel gives what its machine code does, and accesses outside memory are found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.codegen import conftest
from tests.codegen.subjects import UNIT_KERNELS, groups_of, tasks_of, ways_of_all_kernels

from fusewise.codegen.candidates import KERNELS, PLAIN_KERNELS, candidates
from fusewise.codegen.families.product.short_weights import SHORT_PRODUCTS
from fusewise.codegen.families.strassen.kernel import SHORT_STRASSEN
from fusewise.codegen.kernel import Implementation
from fusewise.codegen.nest.build import Module
from fusewise.codegen.nest.interpret import TooLong, interpret
from fusewise.codegen.nest.memory import OutOfBounds
from fusewise.codegen.target import TARGETS, Target
from fusewise.ir.dtypes import BFLOAT16, FLOAT32, INT8, INT64, UINT8, DType
from fusewise.lower.task import RefusalReason, Task
from fusewise.ops.build import GraphBuilder

MOST = 1_000_000
"""Operations that are enough for each of these models."""

Write = Callable[[GraphBuilder, int, int], str]
"""Writes a model of two small extents; gives its result."""


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def whole(dtype: type, *shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, 100, shape).astype(dtype)


def chain(b: GraphBuilder, value: str, channels: int, kernel: int, op: str = "Conv", dtype: DType = FLOAT32) -> str:
    """Convolutions one behind the other, between which channels come last."""
    weights = numbers(channels, channels, kernel, kernel).astype(dtype.numpy)
    for _ in range(3):
        value = b.op(op, value, b.constant(weights), pads=[kernel // 2] * 4)
    return value


MODELS: dict[str, Write] = {
    "attention": lambda b, m, n: b.op(
        "Attention", *(b.input(name, (1, 2, rows, 8)) for name, rows in (("q", 8 + m), ("k", 16 + n), ("v", 16 + n)))
    ),
    "attention-few": lambda b, m, n: b.op(
        "Attention", *(b.input(name, (1, 2, rows, 8)) for name, rows in (("q", 1), ("k", 15 + n), ("v", 15 + n)))
    ),
    "bfloat16-product": lambda b, m, n: b.op(
        "MatMul", b.input("x", (m, 6, 2 * n), BFLOAT16), b.constant(numbers(2 * n, 19).astype(BFLOAT16.numpy))
    ),
    "bfloat16-transposed": lambda b, m, n: chain(
        b, b.input("x", (1, 4, m, n), BFLOAT16), 4, 1, "ConvTranspose", BFLOAT16
    ),
    "blend-rows": lambda b, m, n: b.op(
        "Resize", b.input("x", (1, m, n + 2, 9)), "", b.constant([1.0, 1.0, 1.7, 2.3]), mode="linear"
    ),
    "byte-convolution": lambda b, m, n: b.op(
        "ConvInteger", b.input("x", (1, 4, m + 2, n + 2), UINT8), b.constant(whole(np.int8, 17, 4, 3, 3))
    ),
    "byte-product": lambda b, m, n: b.op(
        "MatMulInteger", b.input("x", (m + 5, 4 * n), UINT8), b.constant(whole(np.int8, 4 * n, 17))
    ),
    "convolutions": lambda b, m, n: chain(b, b.input("x", (1, 8, m + 3, n + 3)), 8, 3),
    "depthwise": lambda b, m, n: b.op(
        "Conv", b.input("x", (1, 9, m + 2, n + 2)), b.constant(numbers(9, 1, 3, 3)), group=9, pads=[1] * 4
    ),
    "integer-product": lambda b, m, n: b.op(
        "MatMulInteger", b.input("x", (m + 5, 4 * n), INT8), b.constant(whole(np.uint8, 4 * n, 17))
    ),
    "pool": lambda b, m, n: b.op("MaxPool", b.input("x", (1, m, n + 2, 9)), kernel_shape=[3, 3], strides=[2, 1]),
    "product": lambda b, m, n: b.op("MatMul", b.input("x", (m, n + 2, 7)), b.constant(numbers(7, 21))),
    "recurrence": lambda b, m, n: b.op(
        "GRU", b.input("x", (m, 1, 3)), *(b.constant(numbers(1, 12, k)) for k in (3, 4)), hidden_size=4
    ),
    "rows": lambda b, m, n: b.op(
        "LayerNormalization", b.input("x", (m, n + 9)), b.constant(np.ones(n + 9, np.float32))
    ),
    "sampled": lambda b, m, n: b.op("GridSample", b.input("x", (1, 5, m + 2, n + 2)), b.input("grid", (1, m, n, 2))),
    "scan": lambda b, m, n: b.op("CumSum", b.input("x", (m, n + 9)), b.constant(np.array(1))),
    "scatter": lambda b, m, n: b.op(
        "ScatterElements", b.input("x", (m + 1, n)), b.input("where", (2, n), INT64), b.input("updates", (2, n))
    ),
    "softmax-rows": lambda b, m, n: b.op("Softmax", b.input("x", (m, n + 9))),
    "top_k": lambda b, m, n: b.op("TopK", b.input("x", (m, n + 9)), b.constant(np.array([2])), outputs=2)[0],
    "transposed-convolution": lambda b, m, n: b.op(
        "ConvTranspose", b.input("x", (1, 3, m, n)), b.constant(numbers(3, 5, 2, 2)), strides=[2, 2]
    ),
    "turned-copy": lambda b, m, n: b.op("Transpose", b.input("x", (m + 16, n + 16)), perm=[1, 0]),
}
"""By what they are there for: the kernels of a family take what comes of them."""

ROWS_OF = ("attention-few", "bfloat16-convolution", "channel-norm", "forest", "linear-attention", "roi-pool")
"""Kernels whose tasks among the operators that are measured are small."""

ELSEWHERE = {
    *("depthwise-convolution", "scaled-convolution", "winograd-convolution"),
    *("strassen-convolution", "strassen-product"),
    *("quantised-product", "quantised-rows-product"),
    *(kernel.name for kernel in (*SHORT_PRODUCTS, *SHORT_STRASSEN)),
    *(kernel.name for kernel in UNIT_KERNELS),
}
"""Kernels that do not take these tasks: tests of their families interpret them, where they run short ones."""

NOWHERE = {"recurrence-by-steps"}
"""What is called once for each step by all workers in turn is no nest by itself; `tests/lower/test_recurrence` runs it natively."""


def arrays_of(way: Implementation) -> dict[str, np.ndarray]:
    """Something for each operand; integers are positions that every axis has, floats boxes within the first image."""
    found, rng = {}, np.random.default_rng(0)
    packings = {argument.name: argument.packing for argument in way.arguments}
    for operand in way.task.operands:
        dtype = operand.dtype.numpy
        if operand.dtype.is_float:
            array = rng.random(operand.shape).astype(dtype)
        else:
            high = 100 if operand.dtype.bits == 8 else 2
            array = rng.integers(0, high, operand.shape).astype(dtype)
        packing = packings.get(operand.name)
        found[operand.name] = array if packing is None else packing.pack(array)
    return found


def ways_of(task: Task, target: Target) -> Iterator[Implementation]:
    """The first schedule of every kernel that understands a task, also where it leaves that to another."""
    for kernel in candidates(task):
        understood = kernel.understand(task, target.instructions)
        if kernel.name not in NOWHERE and not isinstance(understood, RefusalReason):
            for schedule in islice(kernel.schedules(understood, task, target), 1):
                yield Implementation(kernel, task, understood, schedule)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(m=st.integers(1, 7), n=st.integers(1, 7))
def test_nests_agree_with_machine_code(target: Target, name: str, m: int, n: int) -> None:
    b = GraphBuilder(name)
    for task in tasks_of(groups_of(b.finish(MODELS[name](b, m, n)))).values():
        for way in ways_of(task, target):
            conftest.run(way, target, arrays_of(way), workers=2, most=MOST)


def test_every_kernel_is_interpreted() -> None:
    """Somewhere in these tests, to the end."""
    target, found = TARGETS[0], ELSEWHERE | NOWHERE
    for name, write in MODELS.items():
        b = GraphBuilder(name)
        for task in tasks_of(groups_of(b.finish(write(b, 5, 3)))).values():
            found |= {way.kernel.name for way in ways_of(task, target)}
    known = {kernel.name for row in (*KERNELS.values(), PLAIN_KERNELS) for kernel in row}
    assert found | set(ROWS_OF) == known


@pytest.mark.parametrize("name", ROWS_OF)
def test_nests_of_measured_operators_agree_with_machine_code(target: Target, name: str) -> None:
    ways = [way for way in ways_of_all_kernels(target, 2, 3, 1) if way.kernel.name == name]
    smallest = min(ways, key=lambda way: np.prod(way.task.extents))
    conftest.run(smallest, target, arrays_of(smallest), workers=2, most=MOST)


def summing(count: int) -> Module:
    """A module that adds up so many floats."""
    module = Module()
    f = module.function("total", ("ptr",), "float")
    (total,) = f.loop(
        0,
        count,
        1,
        lambda k, sums: [f.fadd(sums[0], f.load("float", f.at(f.arguments[0], k)))],
        [f.constant(0.0, "float")],
    )
    f.give_back(total)
    return module


def test_accesses_outside_memory_are_found() -> None:
    data = np.arange(5, dtype=np.float32)
    assert interpret(summing(5), "total", [data]) == 10
    with pytest.raises(OutOfBounds, match="bytes 20 to 24 of 20 of 'argument 0'"):
        interpret(summing(6), "total", [data])


def test_long_nests_are_given_up() -> None:
    data = np.zeros(1000, np.float32)
    with pytest.raises(TooLong):
        interpret(summing(1000), "total", [data], 500)
