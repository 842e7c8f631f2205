"""Products of bytes: weights split so that no sum of two leaves 16 bits, and the instructions that are reached."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fusewise.codegen.instructions.byte_products import (
    HEADER,
    bytes_of,
    split,
    stream,
)
from fusewise.codegen.instructions.table import MADDUBS, VPDPBUSD, for_bytes
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.build import Module
from fusewise.codegen.target import TARGETS, Target
from fusewise.runtime.jit import compile_assembly

AVX2, AVX512 = (next(target for target in TARGETS if target.name == name) for name in ("avx2", "avx512"))
EXTREMES = st.sampled_from((-128, -127, -64, -1, 0, 1, 64, 127)) | st.integers(-128, 127)


def weights(steps: int, lanes: int) -> st.SearchStrategy[np.ndarray]:
    return arrays.arrays(np.int8, (steps, lanes, 4), elements=EXTREMES)


@settings(max_examples=60, deadline=None)
@given(weights(5, 3), arrays.arrays(np.uint8, (5, 4), elements=st.sampled_from((0, 1, 128, 254, 255))))
def test_nothing_is_lost_and_nothing_saturates(given_weights: np.ndarray, data: np.ndarray) -> None:
    found = split(given_weights)
    masked = data[:, None, :] ^ found.mask.view(np.uint8)
    total = 255 * found.taken
    for bytes_, part in ((masked, found.main), (np.broadcast_to(data[:, None, :], masked.shape), found.rest)):
        pairs = (bytes_.astype(int) * part).reshape(5, 3, 2, 2).sum(-1)
        assert pairs.min() >= -(2**15) and pairs.max() < 2**15
        total = total + pairs.sum((0, 2))
    np.testing.assert_array_equal(total, (data[:, None, :].astype(int) * given_weights).sum((0, 2)))


def test_one_mask_for_all_lanes_where_that_is_enough() -> None:
    alike = np.array([[100, 90, 1, 2], [-100, -90, 3, 4], [5, -6, 7, 8]], np.int8)[None]
    assert np.array_equal(split(alike).mask, np.broadcast_to(np.array([0, -1, 0, 0], np.int8), alike.shape))
    mixed = np.concatenate([alike, np.array([[[100, -90, 0, 0]]], np.int8)], 1)
    assert split(mixed).mask.any(-1).tolist() == [[True, True, False, False]]


@settings(max_examples=30, deadline=None)
@given(weights(9, 8), st.sampled_from((1, 8, 1000)), st.booleans())
def test_what_a_kernel_reads(given_weights: np.ndarray, products: int, whole: bool) -> None:
    """The stream, read as the kernel reads it, gives the products with the weights."""
    steps, lanes = 9, 4
    panels = np.ascontiguousarray(given_weights).view(np.int32)[..., 0].reshape(1, steps, 8)
    data = np.random.default_rng(5).integers(0, 256, (40, 4)).astype(np.uint8)
    places = np.arange(0, 4 * steps, 4, dtype=np.int32)
    found = stream(panels, places, lanes, products, whole)
    front, at, *ends = found[:HEADER]
    total, taken, where = found[front : front + 8], found[front + 8 : front + 16], found[front + 16 :]
    sums = taken.astype(int)
    for kind, (low, high) in enumerate(zip((0, *ends[:-1]), ends, strict=True)):
        assert not (whole and kind and low < high)
        for k in range(low, high):
            width = (0, lanes, 8)[kind]
            masks, row = found[at : at + width], found[at + width : at + width + 8]
            at += width + 8
            mask = np.zeros(8, np.int32) if not kind else np.resize(masks, 8)
            quad = data[where[k]] ^ np.ascontiguousarray(mask).view(np.uint8).reshape(8, 4)
            sums += (quad.astype(int) * np.ascontiguousarray(row).view(np.int8).reshape(8, 4)).sum(-1)
    assert at == len(found)
    np.testing.assert_array_equal(total, given_weights.sum((0, 2), dtype=int))
    np.testing.assert_array_equal(sums, (data[places][:, None, :].astype(int) * given_weights).sum((0, 2)))


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (AVX2, "vpmaddubsw"),
        (AVX512, "vpmaddubsw"),
        (replace(AVX2, features="+avxvnni"), "vpdpbusd"),
        (replace(AVX512, features="+avx512vnni"), "vpdpbusd"),
    ],
    ids=["avx2", "avx512", "avx-vnni", "avx512-vnni"],
)
def test_the_instruction(target: Target, name: str) -> None:
    module, kind = Module(), f"<{target.lanes} x i32>"
    f = module.function("f", ("ptr", "ptr"))
    a, w = (f.load(kind, pointer) for pointer in f.arguments)
    row = for_bytes(target)
    assert row is not None
    f.store(row.add(f, target, a, w, a), f.arguments[0])
    f.give_back()
    code = compile_assembly(llvm_text(module), target)
    assert name in code and (row == VPDPBUSD) == ("vpmaddubsw" not in code)


def test_machines_without() -> None:
    assert [target.name for target in TARGETS if MADDUBS.is_native(target)] == ["avx512", "avx2"]
    assert not any(VPDPBUSD.is_native(target) for target in TARGETS)


@given(st.lists(st.integers(-256, 255), min_size=1))
def test_numbers_of_nine_bits_are_sums_of_bytes(numbers: list[int]) -> None:
    parts = bytes_of(np.array(numbers, np.int16))
    assert all(part.dtype == np.int8 for part in parts)
    assert np.sum(parts, 0, dtype=int).tolist() == numbers
    assert len(parts) == (1 if all(-128 <= n < 128 for n in numbers) else 3 if max(numbers) == 255 else 2)


def test_steps_without_weights_are_left_out() -> None:
    panels = np.zeros((1, 5, 8), np.int32)
    panels[0, 3] = 0x01010101
    for whole in (False, True):
        found = stream(panels, np.arange(5, dtype=np.int32) * 4, 4, 8, whole)
        assert found[HEADER - 1] == 1 and found[found[0] + 16] == 12
