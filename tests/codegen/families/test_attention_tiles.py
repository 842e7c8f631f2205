"""Attention by a matrix unit, which is emulated: odd shapes, masks, layouts, workers, and what parts make of every number."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.codegen.families.test_attention import TOKENS, attention, reference
from tests.codegen.families.test_matrix_unit import FEW, PARTS, WHOLE
from tests.codegen.ways import refusal, text_of

from fusewise.codegen.assemble import generate
from fusewise.codegen.choose import alternatives
from fusewise.codegen.families.attention.packed import PACKED
from fusewise.codegen.families.attention.tiles import TILE_ATTENTION, tile_attention
from fusewise.codegen.instructions.table import AMX_BF16, AMX_FP16, AMX_PARTS, DPBF16
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.target import MATRIX_TARGET, TARGETS, Target
from fusewise.fusion.plan import partition
from fusewise.ir.dtypes import BFLOAT16, BOOL, FLOAT16, FLOAT32, DType
from fusewise.ops.build import GraphBuilder
from fusewise.runtime.jit import compile_assembly
from fusewise.trace import Trace

TOLERANCES = {FLOAT32: 2e-5, FLOAT16: 2e-3, BFLOAT16: 1.6e-2}
"""Against the largest result, of numbers that are rounded before."""


def by(instruction: Instruction) -> Any:
    """The kernel whatever it costs."""
    return replace(tile_attention(f"by {instruction!r}", instruction), declines=lambda s, task, target: None)


def numbers(seed: int, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype.numpy)


def check(
    run_kernel: Any,
    kernel: Any,
    dtype: DType,
    sizes: tuple[int, int, int, int, int, int, int],
    *,
    masked: str = "none",
    causal: bool = False,
    interleaved: bool = False,
    softcap: float = 0.0,
    workers: int = 1,
) -> None:
    batch, groups, sharing, queries, keys, size, width = sizes
    heads, rng = groups * sharing, np.random.default_rng(5)
    shapes = [(batch, heads, queries, size), (batch, groups, keys, size), (batch, groups, keys, width)]
    arrays = [numbers(k, shape, dtype) for k, shape in enumerate(shapes)]
    mask: np.ndarray | None = None
    if masked == "keys":
        mask = np.where(rng.random((batch, 1, 1, keys)) < 0.3, np.float32(-3.4e38), np.float32(0))
    elif masked == "full":
        mask = numbers(7, (heads, queries, keys), dtype)
    elif masked == "bool":
        mask = rng.random((queries, keys)) < 0.6
        mask[0] = False  # no key takes part
    out = (batch, heads, queries, width)
    kinds = {"keys": FLOAT32, "full": dtype, "bool": BOOL}
    of_mask = None if mask is None else (mask.shape, kinds[masked])
    attributes = {"scale": 0.3, "is_causal": int(causal), "softcap": softcap}
    task = attention(shapes, out, attributes, of_mask, interleaved, dtype)
    buffers = {
        f"x{n}": np.ascontiguousarray(a.transpose(0, 2, 1, 3) if interleaved else a) for n, a in enumerate(arrays)
    }
    if mask is not None:
        buffers["x3"] = np.ascontiguousarray(mask)
    result = np.full((batch, queries, heads, width) if interleaved else out, np.nan, dtype.numpy)
    run_kernel(kernel, task, {**buffers, "y": result}, workers=workers)
    found = (result.transpose(0, 2, 1, 3) if interleaved else result).astype(np.float64)
    wide = None if mask is None else mask if masked == "bool" else mask.astype(np.float64)
    expected = reference(*(a.astype(np.float64) for a in arrays), wide, 0.3, causal, softcap)
    assert np.abs(found - expected).max() <= TOLERANCES[dtype] * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("instruction", [WHOLE, PARTS, DPBF16], ids=repr)
@FEW
@given(
    sizes=st.tuples(
        st.integers(1, 2),
        st.integers(1, 2),
        st.integers(1, 2),
        st.sampled_from((4, 5, 8, 13, 33, 67)),
        TOKENS,
        st.sampled_from((1, 3, 8, 20, 33, 80)),
        st.sampled_from((1, 5, 8, 24, 35)),
    ),
    masked=st.sampled_from(("none", "keys", "full", "bool")),
    causal=st.booleans(),
    softcap=st.sampled_from((0.0, 0.0, 1.5)),
    interleaved=st.booleans(),
    workers=st.integers(1, 8),
)
def test_every_shape_and_mask(run_kernel: Any, instruction: Instruction, **case: Any) -> None:
    check(run_kernel, by(instruction), instruction.left, case.pop("sizes"), **case)


@pytest.mark.parametrize("instruction", [AMX_BF16, AMX_FP16, AMX_PARTS], ids=repr)
def test_by_the_instructions_of_the_unit(run_kernel: Any, instruction: Instruction) -> None:
    sizes = (1, 2, 1, 37, 41, 40, 24)
    check(run_kernel, by(instruction), instruction.left, sizes, masked="keys", causal=True, interleaved=True, workers=3)


@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT16], ids=str)
@pytest.mark.parametrize("masked", ["none", "full"])
def test_short_floats_where_they_are_not_multiplied(run_kernel: Any, dtype: DType, masked: str) -> None:
    check(run_kernel, PACKED, dtype, (1, 2, 2, 21, 19, 20, 24), masked=masked, interleaved=True, workers=2)


ODD = {
    "a query that is not a number": (0, (3, 2), np.nan),
    "an infinite query": (0, (3, 2), np.inf),
    "a huge query": (0, (3, 2), 2.0**70),
    "a key that is not a number": (1, (5, 1), np.nan),
    "an infinite key": (1, (5, 1), -np.inf),
    "an infinite value": (2, (7, 4), np.inf),
    "a huge value": (2, (7, 4), -(2.0**90)),
    "a tiny value": (2, (7, 4), 2.0**-140),
}
"""Which operand has it, where, and what it is."""


@pytest.mark.parametrize("name", ODD)
def test_odd_numbers_give_what_they_give_in_floats(run_kernel: Any, name: str) -> None:
    """Of the queries that meet them, others as ever."""
    operand, place, number = ODD[name]
    shape = (1, 1, 16, 8)
    task = attention([shape] * 3, shape, {"is_causal": 1})
    arrays = {f"x{k}": numbers(k, shape, FLOAT32) for k in range(3)}
    arrays[f"x{operand}"][0, 0][place] = number
    found, expected = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    run_kernel(by(PARTS), task, {**arrays, "y": found}, workers=2)
    run_kernel(PACKED, task, {**arrays, "y": expected})
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    size = np.abs(expected[np.isfinite(expected)]).max()
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * min(size, 4.0))


def test_small_operands_are_not_lost(run_kernel: Any) -> None:
    """Keys and values that an instruction would take for zeros."""
    shape = (1, 1, 16, 8)
    task = attention([shape] * 3, shape, {})
    arrays = {f"x{k}": numbers(k, shape, FLOAT32) for k in range(3)}
    for name, factor in (("x0", 2.0**60), ("x1", 2.0**-60), ("x2", 2.0**-110)):
        arrays[name] *= np.float32(factor)
    found = np.zeros(shape, np.float32)
    run_kernel(by(PARTS), task, {**arrays, "y": found})
    expected = reference(*(arrays[f"x{k}"].astype(np.float64) for k in range(3)), None, 8**-0.5, False, 0.0)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("queries", "keys", "dtype", "first"),
    [
        (128, 128, FLOAT32, "float32-in-parts"),
        (197, 197, FLOAT32, "float32-in-parts"),
        (128, 128, BFLOAT16, "bfloat16-tiles-attention"),
        (1, 128, FLOAT32, "attention-few"),
        (15, 128, FLOAT32, "attention"),
        (16, 16, FLOAT32, "attention"),
    ],
    ids=str,
)
def test_the_unit_is_chosen_where_it_is_faster(queries: int, keys: int, dtype: DType, first: str) -> None:
    """By what is counted: not for few queries, nor where copies take longer than they save."""
    shapes = [(1, 12, rows, 64) for rows in (queries, keys, keys)]
    task = attention(shapes, shapes[0], {}, interleaved=True, dtype=dtype)
    assert next(iter(alternatives(task, MATRIX_TARGET))).kernel.name == first
    if dtype == FLOAT32:
        assert "parts" not in next(iter(alternatives(replace(task, exact=True), MATRIX_TARGET))).kernel.name


@pytest.mark.parametrize(("queries", "first"), [(128, "bfloat16-attention"), (2, "attention")])
def test_pairs_are_multiplied_where_an_instruction_does(queries: int, first: str) -> None:
    shapes = [(1, 12, rows, 64) for rows in (queries, 128, 128)]
    task = attention(shapes, shapes[0], {}, interleaved=True, dtype=BFLOAT16)
    machine = replace(TARGETS[0], features="+avx512bf16")
    assert next(iter(alternatives(task, machine))).kernel.name == first


def test_where_there_is_no_unit_others_do_it(target: Target) -> None:
    shape = (1, 12, 128, 64)
    for kernel, dtype in zip(TILE_ATTENTION[:3], (BFLOAT16, FLOAT16, FLOAT32), strict=True):
        task = attention([shape] * 3, shape, {}, dtype=dtype)
        assert str(refusal(kernel, task, target)).startswith("the machine has no ")


@pytest.mark.parametrize(("dtype", "products"), [(FLOAT32, 3), (BFLOAT16, 1)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_what_a_unit_is_told(dtype: DType, products: int, causal: bool) -> None:
    """In a step of either product, of two by two sums, each part of an operand is loaded once; nothing is spilled."""
    shape = (1, 12, 128, 64)
    task = attention([shape] * 3, shape, {"is_causal": int(causal)}, interleaved=True, dtype=dtype)
    one = next(iter(alternatives(task, MATRIX_TARGET)))
    text = compile_assembly(text_of(one, MATRIX_TARGET.instructions, "kernel"), MATRIX_TARGET, one.level)
    told = Counter(line.split()[0] for line in text.splitlines() if line.strip())
    parts = one.schedule.scores.instruction.steps // 16
    assert (told["tdpbf16ps"], told["tileloadd"]) == (2 * 4 * products, 2 * 4 * parts)
    assert told["tilezero"] == told["tilestored"] == 2 * 4
    assert told["ldtilecfg"] == told["tilerelease"] == 1
    assert "Spill" not in text


@pytest.mark.parametrize(("disabled", "kernel"), [((), "float32-in-parts"), (("float32-in-parts",), "attention")])
def test_parts_can_be_switched_off(disabled: tuple[str, ...], kernel: str) -> None:
    b, trace = GraphBuilder("attention"), Trace(disabled=frozenset(disabled))
    graph = b.finish(b.op("Attention", *(b.input(name, (1, 4, 128, 64)) for name in "qkv")))
    generate(partition(graph, trace), MATRIX_TARGET, trace)
    assert [event.what for event in trace if event.kind == "kernel" and event.applied] == [kernel]
