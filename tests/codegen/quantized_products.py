"""Products with quantised weights as tasks, and what they come to: rows of floats, or of bytes with a scale for each block."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tests.codegen.ways import way

from fusewise.codegen.kernel import Kernel
from fusewise.codegen.target import Target
from fusewise.ir.dtypes import FLOAT16, FLOAT32, INT8, INT32, INT64, DType, dtype_named
from fusewise.ir.types import TensorType
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.ops.build import GraphBuilder
from fusewise.ops.expr import Expr, cast, index, load
from fusewise.records import record

__all__ = ["Product", "check", "quantised_products"]


def quantised_products(b: GraphBuilder, rows: int, depth: int, columns: int) -> tuple[str, str]:
    """Write products with one matrix of weights in blocks of 16 steps, of floats and of bytes; give both results."""
    some, block = np.random.default_rng(7), 16
    blocks = -(-depth // block)
    stored = b.constant(some.integers(0, 16, (depth, columns)).astype(dtype_named("uint4").numpy))
    scales = b.constant(some.uniform(0.01, 0.1, (blocks, columns)).astype(np.float32))
    zeros = b.constant(some.integers(0, 16, (blocks, columns)).astype(dtype_named("uint4").numpy))
    weights = [b.op("DequantizeLinear", stored, scales, zeros, axis=0, block_size=block) for _ in range(2)]
    codes, factors = b.input("codes", (rows, depth), INT8), b.input("factors", (rows, blocks))
    bytes_of_rows = b.op("DequantizeLinear", codes, factors, axis=1, block_size=block)
    floats = b.input("floats", (rows, depth))
    return b.op("MatMul", floats, weights[0]), b.op("MatMul", bytes_of_rows, weights[1])


@record
class Product:
    """x[rows, depth] by weights[depth, columns], which lie the other way round when `turned`, in blocks of the depth; with `table`
    weights of four bits are places in one."""

    rows: int = 3
    depth: int = 70
    columns: int = 40
    block: int = 32
    dtype: str = "uint4"
    zeros: bool = True
    turned: bool = False
    gemm: bool = False
    scale: DType = FLOAT32
    bytes: bool = False
    table: bool = False

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
        if self.bytes:
            found["x"] = some.integers(-127, 128, (self.rows, self.depth)).astype(np.int8)
            found["f"] = some.uniform(0.01, 0.1, (self.rows, blocks)).astype(np.float32)
        if self.table:
            found["t"] = some.integers(-(1 << 30), 1 << 30, 16).astype(np.int32)
            found["s"] = (found["s"] / (1 << 27)).astype(self.scale.numpy)
        if self.zeros:
            found["z"] = some.integers(low, high, (blocks, self.columns)).astype(kind.numpy)
        return found

    def expected(self) -> np.ndarray:
        a = self._numbers()
        wide = self._wide(a)
        product = (a["x"] * wide["f"]) @ ((a["w"] - wide.get("z", 0.0)) * wide["s"])
        return product + a["b"] if self.gemm else product

    def _numbers(self) -> dict[str, np.ndarray]:
        arrays = self.arrays()
        found = {name: array.astype(np.float64) for name, array in arrays.items()}
        return {**found, "w": found["t"][arrays["w"].astype(np.int64)]} if self.table else found

    def _wide(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What belongs to blocks, for every step; 1 for factors of rows that have none."""
        axes = {"s": 0, "z": 0, "f": 1}
        found = {k: np.repeat(arrays[k], self.block, axes[k]) for k in axes if k in arrays}
        cut = {k: a[:, : self.depth] if axes[k] else a[: self.depth] for k, a in found.items()}
        return {"f": np.ones(1), **cut}

    def magnitude(self) -> float:
        """The largest sum of magnitudes, which rounding is in proportion to."""
        a = {name: np.abs(array) for name, array in self._numbers().items()}
        wide = self._wide(a)
        return float(((a["x"] * wide["f"]) @ ((a["w"] + wide.get("z", 0.0)) * wide["s"]) + a["b"]).max())

    def stored(self) -> dict[str, np.ndarray]:
        """Arrays as they lie in memory."""
        turned = ("w", "s", "z") if self.turned else ()
        return {k: np.ascontiguousarray(a.T) if k in turned else a for k, a in self.arrays().items()}

    def task(self) -> Task:
        arrays, out = self.stored(), (self.rows, self.columns)
        used = [name for name in arrays if name != "b" or self.gemm]
        operands = [
            Operand(name, dtype_of(arrays[name]), arrays[name].shape, _dense(arrays[name]), constant=name not in "xf")
            for name in used
        ]
        p0, p1 = index("p0"), index("p1")
        deep, column = (p1, p0) if self.gemm else (p0, p1)

        def read(name: str, depth: Expr) -> Expr:
            at = (column, depth) if self.turned else (depth, column)
            return cast(load(name, dtype_of(arrays[name]), at), FLOAT32)

        number = read("w", deep)
        if self.table:
            number = cast(load("t", INT32, (cast(cast(number.args[0], INT32), INT64),)), FLOAT32)
        if self.zeros:
            number = number - read("z", deep // self.block)
        weights = cast(number * read("s", deep // self.block), self.scale)
        kinds = [TensorType(self.scale, arrays["x"].shape), _matrix(self), TensorType(self.scale, (self.columns,))]
        bias = load("b", self.scale, (p0,))
        row = load("x", dtype_of(arrays["x"]), (p0, p1))
        if self.bytes:
            row = cast(row, FLOAT32) * load("f", FLOAT32, (p0, p1 // self.block))
        prologue = (row, weights, bias)
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


def check(
    run_kernel: Any, kernel: Kernel[Any, Any], target: Target, of: Product, workers: int = 2, schedule: Any = None
) -> None:
    """Run a product by its favourite schedule, or another, and compare."""
    task, buffers, expected = of.task(), of.stored(), of.expected()
    one = way(kernel, task, target)
    one = one if schedule is None else replace(one, schedule=schedule)
    buffers = {name: buffers[name] for name in buffers if name != "b" or of.gemm}
    buffers["y"] = np.full(expected.shape, np.nan, of.scale.numpy)
    for argument in one.arguments:
        if argument.packing is not None:
            buffers[argument.name] = argument.packing.pack(buffers[argument.name])
    run_kernel(kernel, task, buffers, workers=workers, schedule=one.schedule)
    error = np.abs(buffers["y"].astype(np.float64) - expected).max() / of.magnitude()
    assert error <= (1e-3 if of.scale == FLOAT16 else 1e-6), (one.schedule, error)
