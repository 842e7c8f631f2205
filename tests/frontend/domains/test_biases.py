"""Biases of distances, which ONNX Runtime has on graphics processors alone, against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.frontend.domains.one_node import Case

import fusewise

RNG = np.random.default_rng(0)


def bucket(ahead: int, buckets: int, furthest: int, both: bool) -> int:
    """T5's, as its authors write it."""
    first = 0
    if both:
        buckets //= 2
        first, ahead = (buckets if ahead > 0 else 0), abs(ahead)
    else:
        ahead = max(0, -ahead)
    exact = buckets // 2
    if ahead < exact:
        return first + ahead
    wide = exact + int(math.log(ahead / exact) / math.log(furthest / exact) * (buckets - exact))
    return first + min(wide, buckets - 1)


@pytest.mark.parametrize("both", [False, True])
def test_relative_position_bias(both: bool) -> None:
    buckets, heads, queries, keys = 16, 3, 5, 37
    by_heads = RNG.standard_normal((heads, buckets)).astype(np.float32)
    operands = (by_heads.reshape(buckets, heads), np.array([queries]), np.array([keys]))
    case = Case(
        "RelativePositionBias", operands, {"max_distance": 20, "is_bidirectional": int(both)}, constant=(0, 1, 2)
    )
    found = fusewise.compile(case.model(), cache=False).run(None, case.feeds)[0]
    wanted = [[by_heads[:, bucket(j - i, buckets, 20, both)] for j in range(keys)] for i in range(queries)]
    np.testing.assert_array_equal(found, np.transpose(wanted, (2, 0, 1))[None])


def test_gated_relative_position_bias() -> None:
    x, b, rel = (RNG.standard_normal(shape).astype(np.float32) for shape in ((2, 5, 24), (24,), (1, 3, 5, 5)))
    w, c, a = (RNG.standard_normal(shape).astype(np.float32) for shape in ((8, 6), (6,), (1, 3, 1, 1)))
    case = Case("GatedRelativePositionBias", (x, b, rel, w, c, a), {"num_heads": 3}, constant=(1, 3, 4, 5))
    found = fusewise.compile(case.model(), cache=False).run(None, case.feeds)[0]
    query = (x + b).reshape(2, 5, 3, 8).transpose(0, 2, 1, 3)
    gates = 1 / (1 + np.exp(-(query @ w + c).reshape(2, 3, 5, 2, 3).sum(-1)))
    update, reset = gates[..., :1], gates[..., 1:]
    np.testing.assert_allclose(found, (update * (reset * a - 1) + 2) * rel, rtol=1e-5, atol=1e-5)
