"""The attention kernel on odd shapes, every kind of mask, both layouts and more workers than cores, against NumPy in float64."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.codegen.ways import refusal, text_of, way

from fusewise.codegen.families.attention.few import FewSchedule
from fusewise.codegen.families.attention.packed import ATTENTION
from fusewise.codegen.kernel import Kernel
from fusewise.codegen.target import TARGETS, Target
from fusewise.ir.dtypes import BFLOAT16, BOOL, FLOAT16, FLOAT32, DType
from fusewise.ir.types import TensorType
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.ops.expr import Expr, cast, index, load
from fusewise.runtime.jit import compile_assembly

FEW, PACKED = ATTENTION

TOLERANCE = 1e-5

SETTINGS = settings(
    max_examples=9, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))


def side_by_side(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of (batch, heads, tokens, size) stored as (batch, tokens, heads, size)."""
    _, heads, tokens, size = shape
    return (heads * tokens * size, size, heads * size, 1)


def attention(
    shapes: list[tuple[int, ...]],
    out: tuple[int, ...],
    attributes: dict[str, Any],
    mask: tuple[tuple[int, ...], DType] | None = None,
    interleaved: bool = False,
    dtype: DType = FLOAT32,
    stored: DType | None = None,
) -> Task:
    """A task with Attention at its anchor: operands x0, x1, x2 and the result y of a type, the mask x3. Keys and values may be
    `stored` in another, and are cast."""
    strides = side_by_side if interleaved else dense
    types = (dtype, stored or dtype, stored or dtype)
    operands = [Operand(f"x{k}", types[k], shape, strides(shape)) for k, shape in enumerate(shapes)]
    if mask is not None:
        operands.append(Operand("x3", mask[1], mask[0], dense(mask[0])))
    anchor = Anchor(
        "Attention",
        "attention",
        tuple(attributes.items()),
        tuple(TensorType(dtype if o.dtype == stored else o.dtype, o.shape) for o in operands),
        tuple(_read(o, dtype if o.dtype == stored else o.dtype) for o in operands),
        TensorType(dtype, out),
    )
    at = tuple(index(f"i{k}") for k in range(len(out)))
    result = Operand("y", dtype, out, strides(out))
    return Task(out, (*operands, result), (Store("y", at, load(ACC, dtype, at)),), anchor)


def _read(o: Operand, dtype: DType) -> Expr:
    read = load(o.name, o.dtype, tuple(index(f"p{k}") for k in range(len(o.shape))))
    return read if dtype == o.dtype else cast(read, dtype)


def reference(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None, scale: float, causal: bool, softcap: float
) -> np.ndarray:
    sharing = q.shape[1] // k.shape[1]
    k, v = (np.repeat(a.astype(np.float64), sharing, axis=1) for a in (k, v))
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2) * scale
    scores = softcap * np.tanh(scores / softcap) if softcap else scores
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    peak = scores.max(axis=-1, keepdims=True)
    peak = np.where(np.isinf(peak), 0, peak)
    power = np.exp(scores - peak)
    total = power.sum(axis=-1, keepdims=True)
    return np.asarray(power / np.where(total == 0, 1, total) @ v)


def check(
    run_kernel: Any,
    sizes: tuple[int, int, int, int, int, int, int],
    *,
    masked: str = "none",
    causal: bool = False,
    interleaved: bool = False,
    softcap: float = 0.0,
    workers: int = 1,
    kernel: Kernel = PACKED,
    schedule: Any = None,
    stored: DType | None = None,
) -> None:
    batch, groups, sharing, queries, keys, size, width = sizes
    rng = np.random.default_rng(5)
    heads = groups * sharing
    shapes = [(batch, heads, queries, size), (batch, groups, keys, size), (batch, groups, keys, width)]
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    k, v = (a if stored is None else a.astype(stored.numpy) for a in (k, v))
    mask: np.ndarray | None = None
    if masked == "keys":
        mask = np.where(rng.random((batch, 1, 1, keys)) < 0.3, np.float32(-3.4e38), np.float32(0))
    elif masked == "full":
        mask = rng.standard_normal((heads, queries, keys)).astype(np.float32)
    elif masked == "column":
        mask = rng.standard_normal((queries, 1)).astype(np.float32)
    elif masked == "bool":
        mask = rng.random((queries, keys)) < 0.6
        mask[0] = False  # no key takes part
    out = (batch, heads, queries, width)
    given_mask = None if mask is None else (mask.shape, BOOL if mask.dtype == bool else FLOAT32)
    task = attention(
        shapes,
        out,
        {"scale": 0.3, "is_causal": int(causal), "softcap": softcap},
        given_mask,
        interleaved,
        stored=stored,
    )
    buffers = {
        f"x{n}": np.ascontiguousarray(a.transpose(0, 2, 1, 3) if interleaved else a) for n, a in enumerate((q, k, v))
    }
    if mask is not None:
        buffers["x3"] = np.ascontiguousarray(mask)
    result = np.full((batch, queries, heads, width) if interleaved else out, np.nan, np.float32)
    run_kernel(kernel, task, {**buffers, "y": result}, workers=workers, schedule=schedule)
    found = result.transpose(0, 2, 1, 3) if interleaved else result
    expected = reference(q, k, v, mask, 0.3, causal, softcap)
    assert np.abs(found - expected).max() <= TOLERANCE * max(1.0, np.abs(expected).max())


TOKENS = st.sampled_from((1, 2, 5, 7, 8, 13, 16, 31, 33, 48, 67, 80))


@SETTINGS
@given(
    sizes=st.tuples(
        st.integers(1, 2),
        st.integers(1, 2),
        st.integers(1, 2),
        TOKENS,
        TOKENS,
        st.sampled_from((1, 3, 8, 20, 33)),
        st.sampled_from((1, 5, 8, 24, 35)),
    ),
    masked=st.sampled_from(("none", "keys", "full", "column", "bool")),
    causal=st.booleans(),
    softcap=st.sampled_from((0.0, 0.0, 1.5)),
    interleaved=st.booleans(),
    workers=st.integers(1, 8),
)
def test_every_shape_and_mask(run_kernel: Any, **case: Any) -> None:
    check(run_kernel, case.pop("sizes"), **case)


@SETTINGS
@given(
    sizes=st.tuples(
        st.integers(1, 2),
        st.integers(1, 3),
        st.integers(1, 4),
        st.integers(1, 2),
        st.sampled_from((16, 17, 31, 33, 48, 100)),
        st.sampled_from((16, 64, 80, 192)),
        st.sampled_from((16, 48, 64, 128)),
    ),
    masked=st.sampled_from(("none", "keys", "full", "column", "bool")),
    causal=st.booleans(),
    softcap=st.sampled_from((0.0, 0.0, 1.5)),
    interleaved=st.booleans(),
    workers=st.integers(1, 4),
    parts=st.integers(1, 4),
)
def test_few_queries(run_kernel: Any, **case: Any) -> None:
    sizes, parts = case.pop("sizes"), case.pop("parts")
    check(run_kernel, sizes, **case, kernel=FEW, schedule=FewSchedule(math.gcd(parts, sizes[2])))


@pytest.mark.parametrize("stored", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize("interleaved", [False, True], ids=["", "interleaved"])
def test_keys_and_values_of_16_bits_are_widened_as_they_are_read(
    run_kernel: Any, stored: DType, interleaved: bool
) -> None:
    check(run_kernel, (2, 2, 2, 1, 33, 32, 48), kernel=FEW, stored=stored, masked="keys", interleaved=interleaved)
    check(run_kernel, (1, 2, 2, 7, 33, 20, 35), stored=stored, causal=True, interleaved=interleaved)
    check(run_kernel, (1, 1, 2, 16, 64, 32, 32), stored=stored, interleaved=interleaved, workers=2)


def test_heads_that_share_keys_are_dealt_out_where_there_are_few(target: Target) -> None:
    def parts(shared: int, sharing: int, workers: int) -> int:
        shapes = [(1, shared * sharing, 1, 64), (1, shared, 40, 64), (1, shared, 40, 64)]
        task = attention(shapes, shapes[0], {})
        return way(FEW, task, replace(target, workers=workers)).schedule.parts

    assert [parts(1, 8, workers) for workers in (1, 2, 3, 8)] == [1, 2, 4, 8]
    assert [parts(2, 4, workers) for workers in (1, 2, 3, 64)] == [1, 1, 2, 4]
    assert [parts(2, sharing, 1) for sharing in (8, 12, 16, 17)] == [1, 2, 2, 17], "at most eight queries at a time"


def test_few_queries_are_few_and_lie_side_by_side(target: Target) -> None:
    def refused(queries: int, keys: int, size: int, sharing: int = 1) -> str:
        shapes = [(1, 4 * sharing, queries, size), (1, 4, keys, size), (1, 4, keys, size)]
        return str(refusal(FEW, attention(shapes, shapes[0], {}), target) or "")

    assert refused(1, 64, 64, 4) == ""
    assert refused(3, 64, 64, 4).startswith("many queries")
    assert refused(1, 64, 63).startswith("no whole vectors")
    assert refused(1, 3, 64).startswith("no whole vectors")


@pytest.mark.parametrize("tokens, masked, causal", [(128, "keys", False), (197, "none", False), (128, "none", True)])
def test_shapes_of_well_known_models(run_kernel: Any, tokens: int, masked: str, causal: bool) -> None:
    for workers in (1, 3, 8):
        sizes = (1, 3, 1, tokens, tokens, 64, 64)
        check(run_kernel, sizes, masked=masked, causal=causal, interleaved=True, workers=workers)


def test_long_rows_go_by_strips(run_kernel: Any, target: Target) -> None:
    sizes = (1, 1, 1, 150, 3000, 16, 16)
    check(run_kernel, sizes, workers=2)
    task = attention([(1, 1, 9000, 16)] * 3, (1, 1, 9000, 16), {})
    scratch = way(PACKED, task, target).arguments[-1]
    assert scratch.nbytes < 9000 * 9000, "scratch is far smaller than queries times keys"


def test_not_a_number_passes_through(run_kernel: Any) -> None:
    shape = (1, 1, 16, 8)
    task = attention([shape] * 3, shape, {})
    arrays = {f"x{n}": np.random.default_rng(n).standard_normal(shape).astype(np.float32) for n in range(3)}
    arrays["x0"][0, 0, 3, 2] = np.nan
    result = np.zeros(shape, np.float32)
    run_kernel(PACKED, task, {**arrays, "y": result})
    assert np.isnan(result[0, 0, 3]).all()
    assert np.isfinite(np.delete(result, 3, axis=2)).all()


@pytest.mark.parametrize("exact", [False, True])
def test_a_value_that_causality_masks_is_read_by_exact_code_only(run_kernel: Any, target: Target, exact: bool) -> None:
    """What docs/accuracy.md says: values behind the last query of a strip, which a run of keys that has it may have, too."""
    shape = (1, 1, 320, 8)
    task = replace(attention([shape] * 3, shape, {"is_causal": 1}), exact=exact)
    arrays = {f"x{n}": np.random.default_rng(n).standard_normal(shape).astype(np.float32) for n in range(3)}
    without, result = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    run_kernel(PACKED, task, {**arrays, "y": without})
    arrays["x2"][0, 0, 310, 3] = np.nan
    run_kernel(PACKED, task, {**arrays, "y": result})
    strip = way(PACKED, task, target).schedule.strip
    assert strip <= 160
    is_bad = np.isnan(result[0, 0, :, 3])
    assert is_bad[310:].all()
    assert is_bad.all() if exact else not is_bad[:strip].any()
    result[0, 0, is_bad, 3] = without[0, 0, is_bad, 3]
    np.testing.assert_array_equal(result, without)


@pytest.mark.parametrize("other", TARGETS, ids=lambda t: t.name)
def test_code_for_every_machine(other: Target) -> None:
    shape = (1, 2, 40, 24)
    task = attention([shape] * 3, shape, {"is_causal": 1})
    text = text_of(way(PACKED, task, other), other.instructions, "kernel")
    assert "kernel" in compile_assembly(text, other)
    few = attention([(1, 8, 1, 64), (1, 8, 40, 64), (1, 8, 40, 64)], (1, 8, 1, 64), {})
    if refusal(FEW, few, other) is None:
        assert "kernel" in compile_assembly(text_of(way(FEW, few, other), other.instructions, "kernel"), other)


def test_what_is_left_out_is_refused(target: Target) -> None:
    shape = (1, 2, 4, 8)
    reason = refusal(PACKED, attention([shape] * 3, shape, {"left_window_size": 2}), target)
    assert str(reason) == "a case that the attention kernel leaves out (left_window_size)"
    partial = attention([shape] * 3, shape, {}, ((4, 3), FLOAT32))
    assert str(refusal(PACKED, partial, target)) == "the mask covers a part of the keys only"
