"""Every operator row through generated code, against the reference evaluator; normalisations and pooling by their own kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.codegen.ways import refusal, text_of, way

from fusewise.codegen.families.generic.any_nest import ANY_NEST
from fusewise.codegen.families.normalization.rows import ROWS, SOFTMAX
from fusewise.codegen.families.pool import POOL as POOL_KERNEL
from fusewise.codegen.families.pool import boxes
from fusewise.codegen.target import TARGETS
from fusewise.errors import UnsupportedModel
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.types import TensorType
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.ops.definition import definition
from fusewise.ops.evaluate import evaluate
from fusewise.ops.expr import Expr, binary, index, load, substitute
from fusewise.ops.interpret import interpret
from fusewise.ops.norm import NORM
from fusewise.ops.pool import POOL
from fusewise.ops.sampling import call_of_sample, opset_of
from fusewise.ops.spec import Call, NotDefined, OpSpec, Sample
from fusewise.ops.table import OPERATORS
from fusewise.ops.window import Window
from fusewise.runtime.jit import compile_assembly

TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-5, "float64": 1e-11}


def last(rank: int) -> tuple[int, ...]:
    """Axes from slowest to fastest with axis 1, the channels, fastest."""
    return (0, *range(2, rank), 1) if rank > 2 else tuple(range(rank))


def strides_of(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(1, shape[axis])
    return tuple(strides)


def stored(array: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """The elements in memory order."""
    return np.ascontiguousarray(array.transpose(order)).reshape(-1) if array.ndim else array.reshape(-1).copy()


def reference(spec: OpSpec, call: Call, arrays: Sequence[np.ndarray | None]) -> tuple[np.ndarray, ...]:
    """ONNX's own evaluator; the interpreter where it lacks the operator."""
    feeds = {f"x{k}": array for k, array in enumerate(arrays) if array is not None}
    try:
        return evaluate(call.node, feeds, opset_of(spec))
    except UnsupportedModel:
        return tuple(interpret(spec, call, tuple(arrays), k) for k in range(len(call.outputs)))


def operand(name: str, kind: TensorType, order: tuple[int, ...]) -> Operand:
    return Operand(name, kind.dtype, kind.dims, strides_of(kind.dims, order))


def anchored(spec: OpSpec, call: Call, channels_last: bool, prologue: bool, epilogue: bool) -> Task:
    """A task with the call as its anchor, optionally with something fused before and after it."""
    kinds = tuple(call.input(i) if call.has(i) else None for i in range(len(call.inputs)))
    operands, reads = [], []
    for k, kind in enumerate(kinds):
        if kind is None:
            reads.append(None)
            continue
        order = last(kind.rank) if channels_last else tuple(range(kind.rank))
        operands.append(operand(f"in{k}", kind, order))
        element = load(f"in{k}", kind.dtype, tuple(index(f"p{d}") for d in range(kind.rank)))
        if prologue and k == 0:
            element = binary("add", element, element)
        reads.append(element)
    out = call.output(0)
    operands.append(operand("out0", out, last(out.rank) if channels_last else tuple(range(out.rank))))
    at = tuple(index(f"i{d}") for d in range(out.rank))
    acc = load(ACC, out.dtype, at)
    value = binary("max", acc, 0) if epilogue else acc
    anchor = Anchor(spec.name, spec.family, call.node.attributes, kinds, tuple(reads), out)
    return Task(out.dims, tuple(operands), (Store("out0", at, value),), anchor)


def compare(found: np.ndarray, expected: np.ndarray, reductions: float = 1.0) -> None:
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
        return
    wide = np.float64
    if expected.dtype.itemsize == 1:  # floats of a byte and less, integers of less: the same numbers
        np.testing.assert_array_equal(found.astype(wide), expected.astype(wide))
        return
    tolerance = TOLERANCE[expected.dtype.name] * reductions
    np.testing.assert_allclose(found.astype(wide), expected.astype(wide), rtol=tolerance, atol=tolerance)


ANCHORED = [
    pytest.param(spec, sample, id=f"{spec.name}-{k}")
    for spec in (*NORM, *POOL)
    if spec.family not in ("batch_norm", "col2im")
    for k, sample in enumerate(spec.samples)
    if sample.outputs == 1
]


def run_anchored(run_kernel, target, spec, sample, channels_last, fused, workers) -> None:
    call, arrays = call_of_sample(spec, sample, np.random.default_rng(0))
    task = anchored(spec, call, channels_last, prologue=fused, epilogue=fused)
    kernels = (POOL_KERNEL,) if spec in POOL else (SOFTMAX, ROWS)
    chosen = [kernel for kernel in kernels if refusal(kernel, task, target) is None]
    assert chosen, "no kernel accepts the task"
    given = list(arrays)
    if fused:
        given[0] = given[0] + given[0]
    expected = reference(spec, call, given)[0]
    expected = np.maximum(expected, 0).astype(expected.dtype) if fused else expected
    out = task.operand("out0")
    for kernel in chosen:
        buffers = {
            f"in{k}": stored(a, last(a.ndim) if channels_last else tuple(range(a.ndim)))
            for k, a in enumerate(arrays)
            if a is not None
        }
        buffers["out0"] = np.zeros(math.prod(out.shape), out.dtype.numpy)
        run_kernel(kernel, task, buffers, workers)
        order = last(len(out.shape)) if channels_last else tuple(range(len(out.shape)))
        compare(buffers["out0"], stored(expected, order))


@pytest.mark.parametrize(("spec", "sample"), ANCHORED)
@pytest.mark.parametrize("channels_last", [False, True], ids=["dense", "channels-last"])
def test_normalisation_and_pooling(run_kernel, target, spec, sample, channels_last):
    run_anchored(run_kernel, target, spec, sample, channels_last, fused=False, workers=1)


def _samples_fused() -> list[tuple[OpSpec, Sample]]:
    by_name = {spec.name: spec for spec in (*NORM, *POOL)}
    f32 = "float32"
    wanted = [
        ("Softmax", Sample(((f32, (3, 4, 37)),), low=-9, high=9)),
        ("Softmax", Sample(((f32, (5, 8)),), {"axis": 1})),
        ("Softmax", Sample(((f32, (2, 19, 6)),), {"axis": 1})),
        ("Softmax", Sample((("float64", (2, 11)),))),
        ("Softmax", Sample((("float16", (2, 40)),))),
        ("LayerNormalization", Sample(((f32, (4, 768)), (f32, (768,)), (f32, (768,))))),
        ("GroupNormalization", Sample(((f32, (2, 8, 5, 5)), (f32, (8,)), (f32, (8,))), {"num_groups": 4})),
        ("MaxPool", Sample(((f32, (1, 19, 9, 8)),), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1,) * 4})),
        ("MaxPool", Sample(((f32, (1, 2, 4, 4)),), {"kernel_shape": (5, 5), "pads": (2,) * 4})),
        ("AveragePool", Sample(((f32, (2, 5, 7, 7)),), {"kernel_shape": (3, 3), "auto_pad": "SAME_LOWER"})),
        ("GlobalAveragePool", Sample(((f32, (2, 33, 7, 7)),))),
    ]
    return [(by_name[name], sample) for name, sample in wanted]


@pytest.mark.parametrize("case", range(len(_samples_fused())))
@pytest.mark.parametrize("channels_last", [False, True], ids=["dense", "channels-last"])
def test_fused_before_and_after_with_several_workers(run_kernel, target, case, channels_last):
    spec, sample = _samples_fused()[case]
    run_anchored(run_kernel, target, spec, sample, channels_last, fused=True, workers=3)


def test_softmax_of_large_and_equal_and_infinite_rows(run_kernel):
    rows = np.stack([np.full(19, 1e30), np.full(19, -np.inf), np.linspace(-200, 200, 19), np.zeros(19)]).astype("f")
    rows[1, 3] = 2.0
    spec = next(s for s in NORM if s.name == "Softmax")
    call, _ = call_of_sample(spec, Sample((("float32", (4, 19)),)), np.random.default_rng(0))
    out = np.zeros(4 * 19, np.float32)
    run_kernel(SOFTMAX, anchored(spec, call, False, False, False), {"in0": rows.reshape(-1), "out0": out})
    with np.errstate(under="ignore"):
        shifted = np.exp(rows.astype(np.float64) - rows.max(1, keepdims=True))
    np.testing.assert_allclose(out.reshape(4, 19), shifted / shifted.sum(1, keepdims=True), rtol=1e-5, atol=1e-35)


def test_boxes_cover_the_output_once():
    for kernel, stride, begin, extent, out in [(3, 2, 1, 9, 5), (5, 1, 2, 4, 4), (2, 2, 0, 8, 4), (3, 1, 0, 3, 1)]:
        window = Window((kernel,) * 2, (stride,) * 2, (1, 1), (begin,) * 2, (begin,) * 2, (extent,) * 2)
        count = np.zeros((2, 3, out, out), int)
        for box in boxes(count.shape, window):
            count[tuple(slice(a, b) for a, b in box)] += 1
        assert (count == 1).all()


ROWS_TO_SWEEP = [
    pytest.param(spec, sample, id=f"{spec.name}-{k}")
    for spec in OPERATORS
    if spec.scalar is not None or spec.define is not None
    for k, sample in enumerate(spec.samples)
]


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "sample"), ROWS_TO_SWEEP)
def test_definition_of_every_operator(run_kernel, target, spec, sample):
    """The row's definition through the generic nest."""
    call, arrays = call_of_sample(spec, sample, np.random.default_rng(0))
    expected = reference(spec, call, arrays)
    for position in range(sample.outputs):
        out = call.outputs[position]
        if out is None:
            continue
        at = tuple(index(f"i{d}") for d in range(out.rank))
        try:
            value = definition(spec, call, position, at)
        except NotDefined:
            continue
        named = substitute(value, _named)
        operands = [
            operand(f"in{k}", call.input(k), tuple(range(call.input(k).rank)))
            for k, a in enumerate(arrays)
            if a is not None and call.input(k).dtype.kind != "string"
        ]
        task = Task(out.dims, (*operands, operand("out0", out, tuple(range(out.rank)))), (Store("out0", at, named),))
        buffers = {f"in{k}": np.ascontiguousarray(a).reshape(-1) for k, a in enumerate(arrays) if a is not None}
        buffers["out0"] = np.zeros(max(1, math.prod(out.dims)), out.dtype.numpy)
        run_kernel(ANY_NEST, task, buffers, 2)
        compare(buffers["out0"][: math.prod(out.dims)], np.asarray(expected[position]).reshape(-1))


def _named(node: Expr) -> Expr | None:
    if node.op == "bounded":  # one place for all positions that are read
        low, high, _ = node.value
        return Expr("bounded", node.dtype, node.args, (low, high, 0))
    if node.op == "load" and str(node.value).startswith("#"):
        return load(f"in{node.value[1:]}", node.dtype, node.args)
    return None


@pytest.mark.parametrize("generic", TARGETS, ids=lambda t: t.name)
def test_every_target_gets_valid_code(generic):
    for name, shape in (("Softmax", (3, 33)), ("MaxPool", (1, 20, 6, 6))):
        spec = next(s for s in (*NORM, *POOL) if s.name == name)
        attributes = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)} if name == "MaxPool" else {}
        call, _ = call_of_sample(spec, Sample((("float32", shape),), attributes), np.random.default_rng(0))
        task = anchored(spec, call, True, False, True)
        kernel = SOFTMAX if name == "Softmax" else POOL_KERNEL
        text = text_of(way(kernel, task, generic), generic.instructions, "kernel")
        assert "kernel" in compile_assembly(text, generic)


def test_refuses_what_is_not_theirs(target):
    plain = Task((4,), (Operand("out0", FLOAT32, (4,), (1,)),), ())
    for kernel in (SOFTMAX, ROWS, POOL_KERNEL):
        assert refusal(kernel, plain, target) is not None
    spec = next(s for s in NORM if s.name == "Softmax")
    call, _ = call_of_sample(spec, Sample((("float32", (40, 3)),), {"axis": 0}), np.random.default_rng(0))
    assert refusal(SOFTMAX, anchored(spec, call, False, False, False), target) is not None
    foreign = replace(plain, anchor=Anchor("MatMul", "matmul", (), (), (), TensorType(FLOAT32, (4,))))
    assert refusal(ROWS, foreign, target) is not None
