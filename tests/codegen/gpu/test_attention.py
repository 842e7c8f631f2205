"""Attention as kernels for GPUs in Triton's interpreter, against the operator's definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.codegen.gpu.interpreting import compare, expected, launch
from tests.codegen.gpu.test_nests import at, contents_of, dense, views
from tests.runtime.gpu.kernels import needs_triton

from fusewise.codegen.gpu import attention_plan
from fusewise.codegen.gpu.attention import attention
from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.kernel import NoKernel
from fusewise.codegen.llvm.plain import plain_task
from fusewise.ir.dtypes import BOOL, FLOAT16, FLOAT32, DType, dtype_named
from fusewise.ir.types import TensorType
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.ops.expr import Expr, cast, load, unary
from fusewise.runtime.gpu.compile import TritonCompiler

DEVICE = device_named("sm_90")
RELAXED = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))

Shape = tuple[int, ...]


def attention_task(
    operands: Sequence[Operand],
    out: Operand,
    dtype: DType = FLOAT32,
    prologue: Sequence[Expr] | None = None,
    epilogue: Expr | None = None,
    more: Sequence[Operand] = (),
    **attributes: Any,
) -> Task:
    """Attention of operands, the fourth of which is a mask, with an element of each and what is stored of the result."""
    reads = prologue or [load(o.name, o.dtype, at(*(f"p{k}" for k in range(len(o.shape))))) for o in operands]
    inputs = tuple(TensorType(read.dtype, o.shape) for read, o in zip(reads, operands, strict=True))
    anchor = Anchor(
        "Attention", "attention", tuple(attributes.items()), inputs, tuple(reads), TensorType(dtype, out.shape)
    )
    place = at(*(f"i{k}" for k in range(len(out.shape))))
    value = load(ACC, dtype, place) if epilogue is None else epilogue
    return Task(out.shape, (*operands, *more, out), (Store(out.name, place, value),), anchor)


def simple(
    batch: int, heads: int, queries: int, keys: int, size: int, dtype: DType = FLOAT32, **attributes: Any
) -> Task:
    """Four axes, all dense."""
    query, key = (batch, heads, queries, size), (batch, heads, keys, size)
    operands = [dense(f"in{k}", dtype, shape) for k, shape in enumerate((query, key, key))]
    return attention_task(operands, dense("out0", dtype, query), dtype, **attributes)


def contents(task: Task, special: bool = False) -> dict[str, np.ndarray]:
    outputs = {store.operand for store in task.stores}
    return {o.name: contents_of(o, k, special) for k, o in enumerate(task.operands) if o.name not in outputs}


def run(
    task: Task, special: bool = False, times: float = 4.0, precision: str = "float32", device: str = "sm_90"
) -> None:
    plain = plain_task(task)
    assert plain is not None
    given = contents(task, special)
    kernel = attention(task, device_named(device), precision)
    found, _ = launch(kernel, task, given)
    for name, wanted in expected(plain, given).items():
        compare(found[name], wanted, times)


@needs_triton
@pytest.mark.parametrize("precision", ["float32", "exact"])
@pytest.mark.parametrize("shape", [(1, 2, 5, 7, 4), (2, 3, 1, 40, 20), (1, 1, 33, 70, 80), (1, 1, 17, 9, 16)], ids=str)
def test_shapes(shape: Shape, precision: str) -> None:
    run(simple(*shape), precision=precision)
    run(simple(*shape, is_causal=1, scale=0.7), precision=precision)


@st.composite
def problems(draw: st.DrawFn) -> Task:
    """Any layout of operands; heads that share keys; a mask of any kind; something fused before and behind."""
    batch, shared, sharing = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.sampled_from([1, 1, 2, 3]))
    queries, keys = draw(st.sampled_from([1, 2, 5, 18, 33])), draw(st.sampled_from([1, 4, 33, 50, 70]))
    size, width = draw(st.sampled_from([1, 3, 16, 20, 40])), draw(st.sampled_from([1, 5, 16, 24]))
    heads, flat = shared * sharing, draw(st.booleans())
    dtype = dtype_named(draw(st.sampled_from(["float32", "float32", "float16", "bfloat16"])))
    shapes: list[Shape]
    if flat:
        shapes = [(batch, queries, heads * size), (batch, keys, shared * size), (batch, keys, shared * width)]
        out = batch, queries, heads * width
    else:
        shapes = [(batch, heads, queries, size), (batch, shared, keys, size), (batch, shared, keys, width)]
        out = batch, heads, queries, width
    stored = [draw(st.sampled_from([dtype, dtype, FLOAT16])) for _ in shapes]
    operands = [draw(views(f"in{k}", stored[k], shape, False)) for k, shape in enumerate(shapes)]
    mask = draw(st.sampled_from([None, "bool", "float32", dtype.name]))
    if mask is not None:
        full = [n if draw(st.booleans()) else 1 for n in (batch, heads, queries, keys)]
        full[3] = keys
        operands.append(draw(views("in3", dtype_named(mask), tuple(full[draw(st.integers(0, 3)) :]), False)))
    reads = [load(o.name, o.dtype, at(*(f"p{k}" for k in range(len(o.shape))))) for o in operands]
    for k in range(3):
        reads[k] = reads[k] if reads[k].dtype == dtype else cast(reads[k], dtype)
    fused = draw(st.integers(0, 3))
    if fused < 3:
        reads[fused] = unary("exp", reads[fused])
    place = at(*(f"i{k}" for k in range(len(out))))
    result = load(ACC, dtype, place)
    behind = draw(views("in4", dtype, out, True))
    value = result + load("in4", dtype, place) if draw(st.booleans()) else result
    attributes: dict[str, Any] = {"is_causal": int(draw(st.booleans()))}
    attributes |= draw(st.sampled_from([{}, {"scale": 0.3}, {"softcap": 2.0}]))
    if flat:
        attributes |= {"q_num_heads": heads, "kv_num_heads": shared}
    target = draw(views("out0", dtype, out, False))
    return attention_task(operands, target, dtype, reads, value, [behind], **attributes)


@needs_triton
@RELAXED
@given(problems(), st.sampled_from(["float32", "exact", "tf32"]), st.booleans())
def test_any_attention(task: Task, precision: str, splits: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if splits:
            patch.setattr(attention_plan, "_WORTH_BYTES", 0)
            patch.setattr(attention_plan, "_PART_KEYS", 16)
        run(task, precision=precision)


@needs_triton
@pytest.mark.parametrize("queries", [1, 20])
def test_wide_heads(queries: int) -> None:
    """Longer than registers hold: by pieces of a query, and blocks have parts of the values."""
    run(simple(1, 1, queries, 18, 300))


def masked(batch: int, heads: int, queries: int, keys: int, size: int, dtype: DType = FLOAT32, **more: Any) -> Task:
    """With a mask for the keys of each sample, as encoders have it."""
    plain = simple(batch, heads, queries, keys, size, dtype)
    mask = dense("in3", more.pop("kind", FLOAT32), more.pop("shape", (batch, 1, 1, keys)))
    return attention_task([*plain.operands[:3], mask], plain.operands[3], dtype, **more)


@needs_triton
@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("kind", [BOOL, FLOAT32], ids=str)
def test_rows_without_keys_are_zeros(kind: DType, queries: int) -> None:
    """Also where the lowest number stands for never, or a score is infinite or NaN."""
    task = masked(3, 1, queries, 40, 8, kind=kind)
    given = contents(task)
    given["in3"][:] = kind == BOOL
    given["in3"][:40] = False if kind == BOOL else -np.inf
    given["in3"][40:79] = False if kind == BOOL else np.finfo(np.float32).min
    given["in2"][:] = 1
    if kind == FLOAT32:
        given["in3"][100] = np.nan
    found, _ = launch(attention(task, DEVICE, "float32"), task, given)
    result = found["out0"].reshape(3, -1)
    assert np.all(result[0] == 0)
    np.testing.assert_allclose(result[1], 1, rtol=1e-6)
    assert np.all(np.isnan(result[2])) if kind == FLOAT32 else np.all(result[2] > 0)


def test_few_rows_share_keys_out() -> None:
    kernel = attention(masked(1, 12, 1, 1024, 64), DEVICE, "float32")
    assert kernel.grid == (96,)
    assert kernel.scratch_bytes == 4 * 8 * 12 * (64 + 2)
    assert [one.grid for one in kernel.then] == [(3,)]
    assert not attention(masked(8, 12, 512, 512, 64), DEVICE, "float32").then


def test_heads_that_share_keys_share_a_tile() -> None:
    shapes = [(1, 32, 1, 64), (1, 8, 64, 64), (1, 8, 64, 64)]
    operands = [dense(f"in{k}", FLOAT16, shape) for k, shape in enumerate(shapes)]
    task = attention_task(operands, dense("out0", FLOAT16, shapes[0]), FLOAT16)
    assert attention(task, DEVICE, "float32").grid == (8,)


def test_what_is_no_attention_is_refused() -> None:
    task = simple(1, 1, 3, 4, 5, FLOAT32, qk_matmul_output_mode=1)
    for one, reason in (
        (replace(task, anchor=None), "no attention"),
        (task, "does not cover"),
        (simple(1, 1, 3, 0, 5), "of nothing"),
    ):
        with pytest.raises(NoKernel, match=reason):
            attention(one, DEVICE, "float32")


@needs_triton
@pytest.mark.slow
def test_attention_compiles_without_spills() -> None:
    """Each for one architecture; `python -m benchmarks.gpu.kernels` compiles the zoo's for both."""
    tasks = {
        "sm_80": [masked(1, 12, 128, 128, 64), simple(1, 2, 10, 100, 64)],
        "sm_90": [
            masked(1, 12, 1, 1024, 64),
            simple(8, 12, 512, 512, 128, is_causal=1),
            simple(8, 12, 512, 512, 64, FLOAT16, is_causal=1),
        ],
    }
    with TritonCompiler() as compiler:
        for name, device in ((name, device_named(name)) for name in tasks):
            kernels = [attention(task, device, "float32") for task in tasks[name]]
            kernels = [one for kernel in kernels for one in (kernel, *kernel.then)]
            for kernel, cubin in zip(kernels, compiler.compile(kernels, device), strict=True):
                assert cubin.stack_bytes == 0, f"{kernel.way} spills on {name}"
                assert ("tl.dot" in kernel.source) == (cubin.tensor_instructions > 0)
