"""One constant as several operands of a group: every reader sees what it is, however a kernel has it packed for another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from tests.codegen.subjects import UNIT_KERNELS, groups_of, tasks_of
from tests.machines import compiled

from fusewise.codegen.candidates import KERNELS, candidates
from fusewise.codegen.families.strassen import kernel as strassen
from fusewise.codegen.families.strassen import plan as strassen_plan
from fusewise.codegen.families.winograd import kernel as winograd
from fusewise.codegen.llvm.stores import reads
from fusewise.codegen.machine.figures import MeasuredFigures
from fusewise.codegen.target import MATRIX_TARGET, Target
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT8, INT32, UINT8, DType
from fusewise.ir.graph import Graph
from fusewise.lower.program import NativeStep
from fusewise.lower.task import RefusalReason, Task
from fusewise.ops.build import GraphBuilder
from fusewise.ops.expr import walk
from fusewise.trace import Trace

SQUARE = (48, 48)


@dataclass(frozen=True)
class Case:
    """A node whose weights of some shape its own group reads again, so that both shapes fit: op, input, weights, attributes.

    `again` is where: as another input of the node, `bias`; as its `left` operand; or in an `epilogue` that adds them.
    """

    kernel: str
    op: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    again: str = "epilogue"
    attributes: Mapping[str, Any] = field(default_factory=dict)
    dtype: DType = FLOAT32

    @property
    def of_integers(self) -> bool:
        return self.op in ("ConvInteger", "MatMulInteger")

    @property
    def of_blocks(self) -> bool:
        return self.kernel.startswith("quantised-")

    @property
    def of_short(self) -> bool:
        return self.kernel.endswith("-weights-product")

    def dequantised(self, b: GraphBuilder, weights: str) -> str:
        """With a scale for every 16 steps."""
        scales = np.random.default_rng(8).uniform(0.01, 0.1, (self.w[0] // 16, self.w[1])).astype(np.float32)
        return str(b.op("DequantizeLinear", weights, b.constant(scales), axis=0, block_size=16))

    def rounded(self, b: GraphBuilder, x: str) -> str:
        """Rows of bytes, with a scale for every 16."""
        scales = b.op("Gather", x, b.constant(np.arange(self.x[1] // 16)), axis=1)
        return str(b.op("DequantizeLinear", b.op("Cast", x, to=INT8.onnx), scales, axis=1, block_size=16))

    def graph(self, shared: bool) -> Graph:
        """With the weights as one value, or as two that are equal."""
        b, rng = GraphBuilder(self.kernel), np.random.default_rng(5)
        x = b.input("x", self.x)
        if self.of_blocks:
            array, data = rng.integers(-9, 9, self.w).astype(np.int8), self.rounded(b, x) if self.dtype == INT8 else x
        elif self.of_integers:
            array, data = rng.integers(-9, 9, self.w).astype(np.int8), b.op("Cast", x, to=UINT8.onnx)
        else:
            array = (rng.standard_normal(self.w) / math.sqrt(self.w[0])).astype(self.dtype.numpy)
            data = x if self.dtype == FLOAT32 or self.of_short else b.op("Cast", x, to=self.dtype.onnx)
        if len(self.x) == 4:  # what another node writes lies with its channels side by side
            data = b.op("MaxPool", data, kernel_shape=[1, 1])
        weights = b.constant(array)
        other = weights if shared else b.constant(array.copy())
        first = other if self.again == "left" else data
        if self.of_blocks or self.of_short:
            weights = self.dequantised(b, weights) if self.of_blocks else b.op("Cast", weights, to=FLOAT32.onnx)
        operands = (first, weights, other) if self.again == "bias" else (first, weights)
        y = b.op(self.op, *operands, **self.attributes)
        if self.again != "bias":
            wide = INT32 if self.of_integers else FLOAT32 if self.of_blocks or self.of_short else None
            y = b.op("Add", y, other if wide is None else b.op("Cast", other, to=wide.onnx))
        if self.again == "left":
            y = b.op("Add", y, data)
        return b.finish(y if self.dtype in (FLOAT32, INT8) or self.of_short else b.op("Cast", y, to=FLOAT32.onnx))


CASES = (
    Case("product", "Gemm", SQUARE, SQUARE, "bias", {"alpha": 0.5}),
    Case("product", "Gemm", SQUARE, SQUARE, "bias", {"transB": 1, "beta": -2.0}),
    Case("product", "MatMul", SQUARE, SQUARE),
    Case("product", "MatMul", SQUARE, SQUARE, "left"),
    Case("bfloat16-product", "MatMul", SQUARE, SQUARE, dtype=BFLOAT16),
    Case("strassen-product", "MatMul", (128, 128), (128, 128)),
    *(Case(f"{dtype.name}-weights-product", "MatMul", SQUARE, SQUARE, dtype=dtype) for dtype in (FLOAT16, BFLOAT16)),
    *(
        Case(f"strassen-{dtype.name}-weights-product", "MatMul", (128, 128), (128, 128), dtype=dtype)
        for dtype in (FLOAT16, BFLOAT16)
    ),
    Case("strassen-convolution", "Conv", (64, 64, 4, 4), (64, 64, 1, 1)),
    Case("direct-convolution", "Conv", (8, 8, 5, 5), (8, 8, 3, 3)),
    Case("bfloat16-convolution", "Conv", (8, 8, 5, 5), (8, 8, 3, 3), dtype=BFLOAT16),
    Case("winograd-convolution", "Conv", (32, 32, 5, 5), (32, 32, 3, 3)),
    Case("depthwise-convolution", "Conv", (32, 32, 5, 5), (32, 1, 3, 3), attributes={"group": 32}),
    Case("transposed-convolution", "ConvTranspose", (16, 16, 1, 1), (16, 16, 3, 3)),
    Case("bfloat16-transposed-convolution", "ConvTranspose", (16, 16, 1, 1), (16, 16, 3, 3), dtype=BFLOAT16),
    Case("integer-convolution", "ConvInteger", (8, 8, 5, 5), (8, 8, 3, 3)),
    Case("byte-convolution", "ConvInteger", (8, 8, 5, 5), (8, 8, 3, 3)),
    Case("integer-product", "MatMulInteger", SQUARE, SQUARE),
    Case("byte-product", "MatMulInteger", SQUARE, SQUARE),
    Case("quantised-product", "MatMul", SQUARE, SQUARE),
    Case("quantised-rows-product", "MatMul", SQUARE, SQUARE, dtype=INT8),
)


@pytest.fixture
def worth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products are halved and small convolutions transformed, too."""
    for name, value in {"worth": -math.inf, "few_worth": -math.inf, "shortest": 0}.items():
        monkeypatch.setattr(MeasuredFigures().strassen, name, value)
    monkeypatch.setattr(strassen_plan, "LEAST_SUMS", 1)
    for module in (strassen, strassen_plan):
        monkeypatch.setattr(module, "strassen_space", strassen_plan.strassen_space.__wrapped__)
    monkeypatch.setattr(winograd, "direct_cycles", lambda *given: math.inf)


def answers(case: Case, target: Target, shared: bool) -> np.ndarray:
    """What the one kernel of a graph gives; all other kernels of its family are refused, or the group would need none."""
    others = {kernel.name for family in KERNELS.values() for kernel in family} - {case.kernel, "pool"}
    trace, graph = Trace(disabled=frozenset(others)), case.graph(shared)
    program, model = compiled(graph, target, 2, trace)
    ways = [step.way for step in program.steps if isinstance(step, NativeStep)]
    assert any(way.split()[0] == case.kernel for way in ways), ways
    x = np.random.default_rng(6).uniform(0, 9, case.x).astype(np.float32)
    (found,) = model.run(None, {"x": x})
    return np.asarray(found)


def has_kernel(case: Case, target: Target) -> bool:
    return not case.kernel.startswith("byte-") or target.name != "sse2"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kernel} {case.again}")
def test_equal_constants_may_be_one(case: Case, target: Target, worth: None) -> None:
    if not has_kernel(case, target):
        pytest.skip("no such instructions")
    machine = replace(target, adds_apart=True)
    one, two = (answers(case, machine, shared) for shared in (True, False))
    assert np.isfinite(two).all() and np.ptp(two) > 0
    np.testing.assert_array_equal(one, two)


def test_every_kernel_that_packs_is_here() -> None:
    """By their names; weights scaled at run time are of one sample, whose result has not their shape."""
    anchored = {kernel.name for name, family in KERNELS.items() if "conv" in name for kernel in family}
    anchored |= {kernel.name for name in ("gemm", "matmul", "matmul_integer") for kernel in KERNELS[name]}
    units = {kernel.name for kernel in UNIT_KERNELS}
    assert anchored - {"scaled-convolution"} - units == {case.kernel for case in CASES}


def packed_for_a_unit(case: Case, shared: bool) -> Iterator[tuple[Task, str]]:
    """Tasks that a kernel of a matrix unit takes, and the names of the operands that it has packed."""
    for task in tasks_of(groups_of(case.graph(shared))).values():
        for kernel in set(candidates(task)).intersection(UNIT_KERNELS):
            understood = kernel.understand(task, MATRIX_TARGET.instructions)
            if not isinstance(understood, RefusalReason):
                schedule = next(iter(kernel.schedules(understood, task, MATRIX_TARGET)))
                given = kernel.arguments(understood, task, schedule)
                yield from ((task, one.name) for one in given if one.packing is not None)


@pytest.mark.parametrize("case", [case for case in CASES if case.kernel in ("product", "byte-product")])
def test_what_a_matrix_unit_has_packed_is_not_read_otherwise(case: Case) -> None:
    """Of products; convolutions are understood as the direct ones are."""
    assert case.again == "left" or list(packed_for_a_unit(case, shared=False))
    for task, name in packed_for_a_unit(case, shared=True):
        others = [element for k, element in enumerate(task.anchored.prologue) if k != 1 and element is not None]
        read = {one.value for element in others for one in walk(element) if one.op == "load"}
        assert not reads(task, name)
        assert name not in read
