"""Weights of 2, 4 and 8 bits in Microsoft's domain, against ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.frontend.domains.one_node import Case, agree

import fusewise
from fusewise.errors import FusewiseError, InvalidModel, UnsupportedModel
from fusewise.ir.dtypes import dtype_named

RNG = np.random.default_rng(5)


def product(
    bits: int = 4,
    n: int = 24,
    k: int = 80,
    block: int = 32,
    zeros: str = "none",
    rows: tuple[int, ...] = (2, 3),
    dtype: type[np.generic] = np.float32,
    order: np.ndarray | None = None,
    bias: bool = False,
    **attributes: Any,
) -> Case:
    blocks = -(-k // block)
    packed = RNG.integers(0, 256, (n, blocks, block * bits // 8), dtype=np.uint8)
    z: np.ndarray | None = None
    if zeros == "packed":
        z = RNG.integers(0, 256, (n, -(-blocks * bits // 8)), dtype=np.uint8)
    if zeros == "float":
        z = RNG.uniform(0, 1 << bits, (n, blocks)).astype(dtype)
    operands = (
        RNG.standard_normal((*rows, k)).astype(dtype),
        packed,
        RNG.uniform(0.01, 0.1, (n, blocks)).astype(dtype),
        z,
        order,
        RNG.standard_normal(n).astype(dtype) if bias else None,
    )
    given = {"bits": bits, "N": n, "K": k, "block_size": block, **attributes}
    return Case("MatMulNBits", operands, given, constant=(1, 2, 3, 4, 5))


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["none", "packed"])
def test_products_of_every_width(bits: int, zeros: str) -> None:
    agree(product(bits, zeros=zeros, bias=zeros == "packed"), tolerance=1e-5)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rows_are_rounded_to_8_bits_where_a_file_allows_it(bits: int) -> None:
    agree(product(bits, k=72, zeros="packed", accuracy_level=4), tolerance=1e-5)
    agree(product(bits, block=16, rows=(1,), accuracy_level=4), tolerance=1e-5)


def test_zero_points_may_be_floats() -> None:
    agree(product(zeros="float"), tolerance=1e-5)


def test_blocks_may_be_spread_over_the_depth() -> None:
    order = RNG.permutation(np.arange(96, dtype=np.int32) // 32)
    agree(product(k=96, order=order), tolerance=1e-5)


def test_float16_and_free_dimensions() -> None:
    agree(product(dtype=np.float16, zeros="packed"), tolerance=5e-3)
    agree(product(n=264, k=512, dtype=np.float16, zeros="packed"), tolerance=5e-3)
    one = product(n=400, rows=(1, 3), zeros="packed")
    longer = RNG.standard_normal((2, 17, 80)).astype(np.float32)
    more = replace(one, operands=(longer, *one.operands[1:]))
    agree(one, more, free={0: {0: "batch", 1: "length"}}, tolerance=1e-5)


@pytest.mark.parametrize(
    "wrong, kind, text",
    [
        ({"block": 24}, InvalidModel, "block_size is 24; it must be a power of two"),
        ({"K": 200}, InvalidModel, "input 'B' has the shape"),
        ({"bits": 4, "weight_prepacked": 1}, UnsupportedModel, "weight_prepacked"),
    ],
)
def test_what_does_not_fit_is_one_sentence(wrong: dict[str, Any], kind: type[FusewiseError], text: str) -> None:
    with pytest.raises(kind, match=text):
        fusewise.compile(product(**wrong).model(), cache=False)


@pytest.mark.parametrize("bits, dtype", [(4, "uint8"), (8, "uint8"), (4, "int4"), (4, "uint4")])
@pytest.mark.parametrize("zeros", [False, True])
def test_rows_that_are_gathered(bits: int, dtype: str, zeros: bool) -> None:
    rows, width, block = 50, 64, 32
    is_packed, kind = dtype == "uint8" and bits < 8, dtype_named(dtype)
    low, high = (-8, 8) if dtype == "int4" else (0, 256 if dtype == "uint8" else 16)

    def codes(*shape: int) -> np.ndarray:
        stored = (*shape[:-1], shape[-1] * bits // 8) if is_packed else shape
        return RNG.integers(low, high, stored).astype(kind.numpy)

    operands = (
        codes(rows, width),
        RNG.integers(-rows, rows, (2, 5)),
        RNG.uniform(0.1, 1, (rows, width // block)).astype(np.float32),
        codes(rows, width // block) if zeros else None,
    )
    given = {"bits": bits, "block_size": block, "quantize_axis": 1, "gather_axis": 0}
    agree(Case("GatherBlockQuantized", operands, given, constant=(0, 2, 3)))
