"""What a machine with a matrix unit gets for products, read: the kernel, loads for each product, and nothing spilled."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fusewise.codegen.assemble import generate
from fusewise.codegen.target import MATRIX_TARGET
from fusewise.fusion.plan import partition
from fusewise.ir.dtypes import BFLOAT16, FLOAT32, INT8, UINT8, DType
from fusewise.ops.build import GraphBuilder
from fusewise.runtime.jit import compile_assembly
from fusewise.trace import Trace

WEIGHTS = np.random.default_rng(0).integers(-127, 128, (512, 256))


@pytest.mark.parametrize(
    "op, left, right, kernel, instruction, counts",
    [
        ("MatMul", FLOAT32, FLOAT32, "float32-in-parts", "tdpbf16ps", (12, 8)),
        ("MatMul", BFLOAT16, BFLOAT16, "bfloat16-tiles", "tdpbf16ps", (4, 4)),
        ("MatMulInteger", UINT8, INT8, "byte-tiles", "tdpbusd", (4, 4)),
    ],
)
def test_a_large_product(
    op: str, left: DType, right: DType, kernel: str, instruction: str, counts: tuple[int, int]
) -> None:
    """Two by two tiles: in a step each part of an operand is loaded once, sums begin at zero, and are stored at the end."""
    b, trace = GraphBuilder("product"), Trace()
    graph = b.finish(b.op(op, b.input("x", (256, 512), left), b.constant(WEIGHTS.astype(right.numpy))))
    (one,) = generate(partition(graph, trace), MATRIX_TARGET, trace).kernels
    assert [event.what for event in trace if event.kind == "kernel" and event.applied] == [kernel]
    text = compile_assembly(one.build(), MATRIX_TARGET)
    words = Counter(line.split()[0] for line in text.splitlines() if line.strip())
    found = [words[word] for word in (instruction, "tileloadd", "tilezero", "tilestored", "ldtilecfg", "tilerelease")]
    assert found == [*counts, 4, 4, 1, 1]
    assert "Spill" not in text
