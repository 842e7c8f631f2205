"""Attention of sizes that are not known: the same kernels at many numbers of queries and keys, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.codegen.families.test_attention import attention, reference
from tests.codegen.free import Version, run_at, versions_of

from fusewise.codegen.families.attention.packed import ATTENTION
from fusewise.codegen.target import Target
from fusewise.ir.dtypes import BOOL, FLOAT16, FLOAT32
from fusewise.ir.size import Symbol, size_of

TOLERANCE = 1e-5

SIZES = (
    (1, 1, 1),
    (2, 1, 7),
    (1, 1, 64),
    (1, 5, 5),
    (2, 13, 13),
    (1, 2, 16),
    (3, 31, 48),
    (1, 64, 64),
    (1, 67, 101),
    (2, 4, 0),
    (1, 3, 2500),
)
"""Batch, queries and keys to try."""

BATCH, QUERIES, KEYS = (size_of(Symbol(name, 0, 2**31 - 1)) for name in ("batch", "queries", "keys"))

SYMBOLS = tuple(size.symbol for size in (BATCH, QUERIES, KEYS))  # type: ignore[attr-defined]

Case = dict[str, Any]


def free_attention(heads: int, sharing: int, size: int, width: int, case: Case) -> Any:
    groups = heads // sharing
    shapes = [(BATCH, heads, QUERIES, size), (BATCH, groups, KEYS, size), (BATCH, groups, KEYS, width)]
    kinds = {
        "keys": ((BATCH, 1, 1, KEYS), FLOAT32),
        "full": ((heads, QUERIES, KEYS), FLOAT32),
        "bool": ((QUERIES, KEYS), BOOL),
    }
    attributes = {"scale": 0.3, "is_causal": int(case.get("causal", False)), "softcap": case.get("softcap", 0.0)}
    mask = kinds.get(case.get("masked", "none"))
    out = (BATCH, heads, QUERIES, width)
    return attention(shapes, out, attributes, mask, case.get("interleaved", False), stored=case.get("stored"))


def check(
    versions: list[Version], sizes: tuple[int, int, int], shape: tuple[int, int, int, int], case: Case
) -> list[str]:
    (batch, queries, keys), (heads, sharing, size, width) = sizes, shape
    rng = np.random.default_rng(5)
    q, k, v = (
        rng.standard_normal(dims).astype(np.float32)
        for dims in (
            (batch, heads, queries, size),
            (batch, heads // sharing, keys, size),
            (batch, heads // sharing, keys, width),
        )
    )
    if stored := case.get("stored"):
        k, v = k.astype(stored.numpy), v.astype(stored.numpy)
    mask: np.ndarray | None = None
    if case.get("masked") == "keys":
        mask = np.where(rng.random((batch, 1, 1, keys)) < 0.3, np.float32(-3.4e38), np.float32(0))
    elif case.get("masked") == "full":
        mask = rng.standard_normal((heads, queries, keys)).astype(np.float32)
    elif case.get("masked") == "bool":
        mask = rng.random((queries, keys)) < 0.6
    interleaved = case.get("interleaved", False)
    arrays = {
        f"x{n}": np.ascontiguousarray(a.transpose(0, 2, 1, 3) if interleaved else a) for n, a in enumerate((q, k, v))
    }
    if mask is not None:
        arrays["x3"] = np.ascontiguousarray(mask)
    out = (batch, queries, heads, width) if interleaved else (batch, heads, queries, width)
    expected = (
        reference(q, k, v, mask, 0.3, case.get("causal", False), case.get("softcap", 0.0))
        if keys
        else np.zeros((batch, heads, queries, width))
    )
    names = []
    for version in versions:
        arrays["y"] = np.full(out, np.nan, np.float32)
        ran = run_at([version], {"batch": batch, "queries": queries, "keys": keys}, arrays)
        if not ran:
            continue
        names += ran
        found = arrays["y"].transpose(0, 2, 1, 3) if interleaved else arrays["y"]
        assert np.abs(found - expected).max() <= TOLERANCE * max(1.0, np.abs(expected).max()), (sizes, ran)
    return names


@pytest.mark.parametrize(
    "case",
    [
        {"masked": "keys", "interleaved": True},
        {"masked": "full", "softcap": 1.5},
        {"masked": "bool", "interleaved": True},
        {"causal": True},
        {"interleaved": True},
        {"stored": FLOAT16, "masked": "keys"},
    ],
    ids="-".join,
)
@pytest.mark.parametrize("shape", [(2, 1, 64, 64), (4, 2, 16, 48), (2, 2, 20, 35)], ids=str)
def test_one_kernel_for_every_size(target: Target, shape: tuple[int, int, int, int], case: Case) -> None:
    versions = versions_of(ATTENTION, free_attention(*shape, case), SYMBOLS, target, workers=2)
    for sizes in SIZES:
        assert check(versions, sizes, shape, case), f"no version is for {sizes}"


def test_one_query_has_a_kernel_of_its_own(target: Target) -> None:
    shape = (4, 2, 64, 64)
    versions = versions_of(ATTENTION, free_attention(*shape, {}), SYMBOLS, target)
    assert check(versions, (1, 1, 40), shape, {})[0] == "attention-few"
    assert "attention-few" not in check(versions, (1, 2, 40), shape, {})
