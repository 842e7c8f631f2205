"""Instance and group normalisation of images of any size, against ONNX's reference evaluator in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.codegen.families.test_pixels import difference, normalisation
from tests.codegen.free import run_at, versions_of

from fusewise.codegen.families.normalization.pixels import CHANNEL_NORM
from fusewise.codegen.target import Target
from fusewise.ir.size import Symbol, size_of

SIZES = (
    (1, 1, 1),
    (2, 7, 7),
    (1, 8, 5),
    (3, 1, 64),
    (1, 31, 16),
    (2, 4, 4),
    (1, 13, 2),
    (1, 17, 40),
    (5, 3, 1),
    (1, 2, 101),
)
"""Samples, height and width to try."""

SYMBOLS = tuple(Symbol(name, 1, 2**31 - 1) for name in ("samples", "height", "width"))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("channels, groups", [(16, None), (32, 4), (64, 32), (96, 1)])
def test_one_kernel_for_every_size(target: Target, channels: int, groups: int | None, fused: bool) -> None:
    samples, height, width = map(size_of, SYMBOLS)
    task = normalisation((samples, channels, height, width), groups, fused=fused)
    versions = versions_of((CHANNEL_NORM,), task, SYMBOLS, target, workers=3)
    assert len(versions) == 1
    assert not versions[0].conditions
    for sizes in SIZES:
        values = dict(zip(("samples", "height", "width"), sizes, strict=True))

        def run(kernel: Any, task: Any, arrays: Any, *_: Any, values: dict[str, int] = values) -> None:
            assert run_at(versions, values, arrays) == [CHANNEL_NORM.name]

        shape = (sizes[0], channels, *sizes[1:])
        x = np.random.default_rng(0).normal(1, 2, shape).astype(np.float32)
        assert difference(run, normalisation(shape, groups, fused=fused), x, 3) <= 1e-5, sizes
