"""Halves of products whose number of rows is not known, at many numbers, against PyTorch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.codegen.families.test_convolution_free import SYMBOLS, check, free_convolution
from tests.codegen.free import versions_of
from tests.machines import runnable

from fusewise.codegen.families.convolution.direct import DIRECT
from fusewise.codegen.families.strassen import plan as strassen_plan
from fusewise.codegen.families.strassen.kernel import STRASSEN_CONV
from fusewise.codegen.families.strassen.plan import strassen_space
from fusewise.codegen.machine.figures import MeasuredFigures
from fusewise.codegen.target import Target

SIZES = (
    (1, 7, 7),
    (2, 8, 5),
    (1, 1, 64),
    (3, 5, 3),
    (1, 31, 16),
    (1, 4, 4),
    (2, 13, 2),
    (1, 64, 64),
    (1, 17, 41),
    (5, 3, 1),
)
"""Batch, height and width to try."""

CASES = {
    "plain": {"channels": (64, 64), "kernel": (1, 1)},
    "apart": {"channels": (32, 64), "kernel": (1, 1), "strides": (2, 2), "epilogue": "residual"},
    "computed": {"channels": (32, 64), "kernel": (1, 1), "prologue": "relu", "epilogue": "swish"},
}


@pytest.fixture(scope="session", params=runnable(), ids=lambda target: target.name)
def target(request: pytest.FixtureRequest) -> Target:
    """A machine whose code runs here, if it added with units of their own."""
    return replace(request.param, adds_apart=True)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every product that can be halved is."""
    strassen_space.cache_clear()
    for name, value in {"worth": -math.inf, "few_worth": -math.inf, "shortest": 0}.items():
        monkeypatch.setattr(MeasuredFigures().strassen, name, value)
    monkeypatch.setattr(strassen_plan, "LEAST_SUMS", 1)
    yield
    strassen_space.cache_clear()


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_halves_for_every_size(target: Target, name: str, workers: int) -> None:
    case = CASES[name]
    task = free_convolution(case)
    versions = versions_of((STRASSEN_CONV, DIRECT), task, SYMBOLS, replace(target, workers=workers), workers)
    halved = 0
    for sizes in SIZES:
        names = check(versions, case, sizes)
        assert names, f"no version is for {sizes}"
        halved += STRASSEN_CONV.name in names
    assert halved > 2
