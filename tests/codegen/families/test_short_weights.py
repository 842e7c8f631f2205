"""Products of float32 with constant matrices of 16 bits against NumPy, and where they are what other kernels take."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.codegen.ways import refusal, scheduled, way, ways

from fusewise.codegen.candidates import PRODUCTS
from fusewise.codegen.families.product.short_weights import SHORT_PRODUCTS
from fusewise.codegen.families.strassen import plan as strassen_plan
from fusewise.codegen.families.strassen.kernel import SHORT_STRASSEN
from fusewise.codegen.families.strassen.plan import strassen_space
from fusewise.codegen.machine.figures import MeasuredFigures
from fusewise.codegen.target import Target
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from fusewise.ir.types import TensorType
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.ops.expr import cast, index, load
from fusewise.records import record

TYPES = (FLOAT16, BFLOAT16)

FEW = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@record
class ShortProduct:
    """x[rows, depth] by weights[depth, columns] of a type, which lie the other way round when `turned`, of a Gemm with a bias."""

    rows: int = 3
    depth: int = 70
    columns: int = 40
    dtype: DType = FLOAT16
    turned: bool = False
    gemm: bool = False
    alpha: float = 1.0
    lead: int = 1

    def arrays(self) -> dict[str, np.ndarray]:
        some = np.random.default_rng(7)
        weights = some.standard_normal((self.depth, self.columns)).astype(self.dtype.numpy)
        weights[0, 0] = 2.0**-20  # subnormal as a float16
        found = {
            "x": some.standard_normal((self.lead * self.rows, self.depth)).astype(np.float32),
            "w": np.ascontiguousarray(weights.T) if self.turned else weights,
            "b": some.standard_normal(self.columns).astype(np.float32),
        }
        return found if self.gemm else {k: found[k] for k in "xw"}

    def expected(self) -> tuple[np.ndarray, np.ndarray]:
        """The product in float64, and the sums of magnitudes that rounding is in proportion to."""
        a = {name: array.astype(np.float64) for name, array in self.arrays().items()}
        weights, bias = a["w"].T if self.turned else a["w"], a.get("b", np.zeros(1))
        return a["x"] @ weights + bias, np.abs(a["x"]) @ np.abs(weights) + np.abs(bias)

    def task(self) -> Task:
        arrays, shape = self.arrays(), (self.rows, self.depth)
        outer, out = (self.lead,) * (self.lead > 1), (self.rows, self.columns)
        p0, p1, kinds = index("p0"), index("p1"), [TensorType(FLOAT32, (*outer, *shape))]
        operands = [Operand("x", FLOAT32, (*outer, *shape), (self.rows * self.depth, self.depth, 1)[1 - len(outer) :])]
        stored = arrays["w"].shape
        operands.append(Operand("w", self.dtype, stored, (stored[1], 1), constant=True))
        matrix = (self.columns, self.depth) if self.gemm else (self.depth, self.columns)
        at = (p0, p1) if self.turned == self.gemm else (p1, p0)
        prologue = [
            load("x", FLOAT32, tuple(index(f"p{k}") for k in range(2 + len(outer)))),
            cast(load("w", self.dtype, at), FLOAT32),
        ]
        kinds.append(TensorType(FLOAT32, matrix))
        if self.gemm:
            operands.append(Operand("b", FLOAT32, (self.columns,), (1,), constant=True))
            prologue.append(load("b", FLOAT32, (p0,)))
            kinds.append(TensorType(FLOAT32, (self.columns,)))
        attributes = (("transB", 1), ("alpha", self.alpha)) if self.gemm else ()
        op = "Gemm" if self.gemm else "MatMul"
        anchor = Anchor(op, op.lower(), attributes, tuple(kinds), tuple(prologue), TensorType(FLOAT32, (*outer, *out)))
        operands.append(
            Operand("y", FLOAT32, (*outer, *out), (self.rows * self.columns, self.columns, 1)[1 - len(outer) :])
        )
        place = tuple(index(f"i{k}") for k in range(2 + len(outer)))
        return Task((*outer, *out), tuple(operands), (Store("y", place, load(ACC, FLOAT32, place)),), anchor)


def kernel_for(dtype: DType, of: Any = SHORT_PRODUCTS) -> Any:
    return of[TYPES.index(dtype)]


def check(
    run_kernel: Any, kernel: Any, target: Target, of: ShortProduct, workers: int = 1, schedule: Any = None
) -> None:
    """Run a product by its favourite schedule, or another, and compare."""
    task, buffers = of.task(), of.arrays()
    one = way(kernel, task, target) if schedule is None else scheduled(kernel, task, target, schedule)
    for argument in one.arguments:
        if argument.packing is not None:
            buffers[argument.name] = argument.packing.pack(buffers[argument.name])
    buffers["y"] = np.full((of.lead * of.rows, of.columns), np.nan, np.float32)
    run_kernel(kernel, task, buffers, workers=workers, schedule=one.schedule, machine=target)
    expected, magnitude = of.expected()
    assert np.all(np.abs(buffers["y"] - expected) <= 4e-6 * magnitude.max())


@FEW
@given(
    rows=st.sampled_from((1, 2, 5, 9, 64, 130)),
    depth=st.sampled_from((1, 16, 70, 99, 600)),
    columns=st.sampled_from((1, 7, 16, 33, 70, 130)),
    dtype=st.sampled_from(TYPES),
    turned=st.booleans(),
    gemm=st.booleans(),
    workers=st.integers(1, 3),
)
def test_products_are_those_of_the_numbers_that_weights_stand_for(
    run_kernel: Any, target: Target, workers: int, **case: Any
) -> None:
    of = ShortProduct(**case)
    check(run_kernel, kernel_for(of.dtype), target, of, workers)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_rows_of_several_matrices_are_those_of_one(run_kernel: Any, target: Target, dtype: DType) -> None:
    check(run_kernel, kernel_for(dtype), target, ShortProduct(7, 70, 48, dtype, lead=3), workers=2)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_way_reads_weights_packed_alike(run_kernel: Any, target: Target, dtype: DType) -> None:
    """In registers or by panels; what is packed takes no more memory than the weights do."""
    of, kernel = ShortProduct(130, 64, 4 * target.lanes, dtype), kernel_for(dtype)
    task = of.task()
    every = list(kernel.every(way(kernel, task, target).understood, task, target))
    assert {one.right for one in every} == {"packed", "widened"}
    for right in ("packed", "widened"):
        schedule = next(one for one in every if one.right == right)
        check(run_kernel, kernel, target, of, 2, schedule)
        found = scheduled(kernel, task, target, schedule).arguments
        (packed,) = [a.packing.pack(of.arrays()["w"]) for a in found if a.packing is not None]
        assert packed.nbytes == of.arrays()["w"].nbytes


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every product that can be halved is."""
    strassen_space.cache_clear()
    for name, value in {"worth": -math.inf, "few_worth": -math.inf, "shortest": 0}.items():
        monkeypatch.setattr(MeasuredFigures().strassen, name, value)
    monkeypatch.setattr(strassen_plan, "LEAST_SUMS", 1)
    yield
    strassen_space.cache_clear()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("rows", "depth", "panels"), [(33, 6, 2), (131, 128, 6), (64, 256, 4)])
def test_halves_widen_what_they_multiply(
    run_kernel: Any, target: Target, always: None, dtype: DType, rows: int, depth: int, panels: int
) -> None:
    machine = replace(target, adds_apart=True)
    of, kernel = (
        ShortProduct(rows, depth * 2 * target.lanes, panels * target.lanes, dtype),
        kernel_for(dtype, SHORT_STRASSEN),
    )
    for one in ways(kernel, of.task(), machine, 2):
        check(run_kernel, kernel, machine, of, 3, one.schedule)


def test_what_is_scaled_or_of_another_type_is_refused(target: Target) -> None:
    scaled = ShortProduct(gemm=True, turned=True, alpha=2.0).task()
    assert all(refusal(kernel, scaled, target) is not None for kernel in PRODUCTS)
    assert refusal(kernel_for(BFLOAT16), ShortProduct(dtype=FLOAT16).task(), target) is not None
