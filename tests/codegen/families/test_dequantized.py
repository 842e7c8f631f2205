"""Products with quantised weights of every width, layout and size of blocks against NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.codegen.ways import refusal, way, ways

from fusewise.codegen.candidates import PRODUCTS
from fusewise.codegen.families.product.dequantized import DEQUANTIZED, IN_PANELS, IN_REGISTERS
from fusewise.codegen.target import Target
from fusewise.ir.dtypes import FLOAT16, FLOAT32, DType, dtype_named
from fusewise.ir.types import TensorType
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.ops.expr import Expr, cast, index, load
from fusewise.passes.packed_weights import PACKED_TYPES
from fusewise.records import record

FEW = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@record
class Product:
    """x[rows, depth] by weights[depth, columns], which lie the other way round when `turned`, in blocks of the depth."""

    rows: int = 3
    depth: int = 70
    columns: int = 40
    block: int = 32
    dtype: str = "uint4"
    zeros: bool = True
    turned: bool = False
    gemm: bool = False
    scale: DType = FLOAT32

    def arrays(self) -> dict[str, np.ndarray]:
        some, kind = np.random.default_rng(7), dtype_named(self.dtype)
        low, high = (-(1 << kind.bits - 1), 1 << kind.bits - 1) if kind.kind == "int" else (0, 1 << kind.bits)
        blocks = -(-self.depth // self.block)
        found = {
            "x": some.standard_normal((self.rows, self.depth)).astype(self.scale.numpy),
            "w": some.integers(low, high, (self.depth, self.columns)).astype(kind.numpy),
            "s": some.uniform(0.01, 0.1, (blocks, self.columns)).astype(self.scale.numpy),
            "b": some.standard_normal(self.columns).astype(self.scale.numpy),
        }
        if self.zeros:
            found["z"] = some.integers(low, high, (blocks, self.columns)).astype(kind.numpy)
        return found

    def expected(self) -> np.ndarray:
        a = {name: array.astype(np.float64) for name, array in self.arrays().items()}
        wide = {name: np.repeat(a[name], self.block, 0)[: self.depth] for name in ("s", "z") if name in a}
        product = a["x"] @ ((a["w"] - wide.get("z", 0.0)) * wide["s"])
        return product + a["b"] if self.gemm else product

    def magnitude(self) -> float:
        """The largest sum of magnitudes, which rounding is in proportion to."""
        a = {name: np.abs(array.astype(np.float64)) for name, array in self.arrays().items()}
        wide = {name: np.repeat(a[name], self.block, 0)[: self.depth] for name in ("s", "z") if name in a}
        return float((a["x"] @ ((a["w"] + wide.get("z", 0.0)) * wide["s"]) + a["b"]).max())

    def stored(self) -> dict[str, np.ndarray]:
        """Arrays as they lie in memory."""
        turned = ("w", "s", "z") if self.turned else ()
        return {k: np.ascontiguousarray(a.T) if k in turned else a for k, a in self.arrays().items()}

    def task(self) -> Task:
        arrays, out = self.stored(), (self.rows, self.columns)
        used = [name for name in arrays if name != "b" or self.gemm]
        operands = [
            Operand(name, dtype_of(arrays[name]), arrays[name].shape, _dense(arrays[name]), constant=name != "x")
            for name in used
        ]
        p0, p1 = index("p0"), index("p1")
        deep, column = (p1, p0) if self.gemm else (p0, p1)

        def read(name: str, depth: Expr) -> Expr:
            at = (column, depth) if self.turned else (depth, column)
            return cast(load(name, dtype_of(arrays[name]), at), FLOAT32)

        number = read("w", deep)
        if self.zeros:
            number = number - read("z", deep // self.block)
        weights = cast(number * read("s", deep // self.block), self.scale)
        kinds = [TensorType(self.scale, arrays["x"].shape), _matrix(self), TensorType(self.scale, (self.columns,))]
        bias = load("b", self.scale, (p0,))
        prologue = (load("x", self.scale, (p0, p1)), weights, bias)
        given = 3 if self.gemm else 2
        anchor = Anchor(
            "Gemm" if self.gemm else "MatMul",
            "gemm" if self.gemm else "matmul",
            (("transB", 1),) if self.gemm else (),
            tuple(kinds[:given]),
            prologue[:given],
            TensorType(self.scale, out),
        )
        operands.append(Operand("y", self.scale, out, (self.columns, 1)))
        at = (index("i0"), index("i1"))
        return Task(out, tuple(operands), (Store("y", at, load(ACC, self.scale, at)),), anchor)


def dtype_of(array: np.ndarray) -> DType:
    return dtype_named(array.dtype.name)


def _dense(array: np.ndarray) -> tuple[int, ...]:
    return tuple(step // array.itemsize for step in array.strides)


def _matrix(of: Product) -> TensorType:
    shape = (of.columns, of.depth) if of.gemm else (of.depth, of.columns)
    return TensorType(of.scale, shape)


def check(run_kernel: Any, target: Target, of: Product, workers: int = 2, schedule: Any = None) -> None:
    task, buffers, expected = of.task(), of.stored(), of.expected()
    one = way(DEQUANTIZED, task, target)
    one = one if schedule is None else replace(one, schedule=schedule)
    buffers = {name: buffers[name] for name in buffers if name != "b" or of.gemm}
    buffers["y"] = np.full(expected.shape, np.nan, of.scale.numpy)
    for argument in one.arguments:
        if argument.packing is not None:
            buffers[argument.name] = argument.packing.pack(buffers[argument.name])
    run_kernel(DEQUANTIZED, task, buffers, workers=workers, schedule=one.schedule)
    error = np.abs(buffers["y"].astype(np.float64) - expected).max() / of.magnitude()
    assert error <= (1e-3 if of.scale == FLOAT16 else 1e-6), (one.schedule, error)


@FEW
@given(
    rows=st.sampled_from((1, 2, 5, 9, 20)),
    depth=st.sampled_from((1, 16, 70, 99, 160)),
    columns=st.sampled_from((1, 7, 16, 33, 70, 100)),
    block=st.sampled_from((16, 32, 256)),
    dtype=st.sampled_from([kind.name for kind in PACKED_TYPES]),
    zeros=st.booleans(),
    turned=st.booleans(),
    gemm=st.booleans(),
    workers=st.integers(1, 3),
)
def test_weights_are_what_numpy_makes_of_them(run_kernel: Any, target: Target, workers: int, **given: Any) -> None:
    check(run_kernel, target, Product(**given), workers)


def test_scales_and_rows_of_float16_are_computed_in_float32(run_kernel: Any, target: Target) -> None:
    check(run_kernel, target, Product(scale=FLOAT16, turned=True))


def test_long_blocks_are_added_up_piece_by_piece(run_kernel: Any, target: Target) -> None:
    check(run_kernel, target, Product(rows=1, depth=1100, columns=20, block=1100, dtype="int8"))
    check(run_kernel, target, Product(rows=1, depth=1100, columns=20, block=512, dtype="int4"))


def test_every_way_reads_weights_packed_alike(run_kernel: Any, target: Target) -> None:
    of = Product(rows=9, depth=64, columns=130)
    task = of.task()
    understood = way(DEQUANTIZED, task, target).understood
    every = list(DEQUANTIZED.every(understood, task, target))
    assert {one.right for one in every} == {IN_REGISTERS, IN_PANELS}
    recipes = {
        tuple(a.packing.recipe for a in DEQUANTIZED.arguments(understood, task, one) if a.packing is not None)
        for one in every
    }
    assert len(recipes) == 1
    check(run_kernel, target, of, schedule=every[-1])


def test_weights_take_no_more_memory_than_they_are_stored_in(target: Target) -> None:
    task, arrays = Product(rows=1, depth=256, columns=128).task(), Product(depth=256, columns=128).arrays()
    one = ways(DEQUANTIZED, task, target, 1)[0]
    packed = sum(a.packing.pack(arrays[a.name]).nbytes for a in one.arguments if a.packing is not None)
    assert packed == 256 * 128 // 2 + 8 * 128 * (4 + 1)


@pytest.mark.parametrize("block", [8, 24])
def test_blocks_that_words_straddle_are_refused(target: Target, block: int) -> None:
    assert all(refusal(kernel, Product(block=block).task(), target) is not None for kernel in PRODUCTS)
