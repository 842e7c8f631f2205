"""What a machine with a matrix unit gets for products, read: the kernel, loads for each product, and nothing spilled."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from tests.codegen.families.test_convolution import convolution
from tests.codegen.ways import text_of, way

from fusewise.codegen.assemble import generate
from fusewise.codegen.families.convolution.tiled import tile_convolution
from fusewise.codegen.families.convolution.windows import windows_shared
from fusewise.codegen.instructions.table import AMX_BF16, AMX_PARTS
from fusewise.codegen.legalize import legalized
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


_BYTES = np.random.default_rng(1)


def _some(dtype: DType, *shape: int) -> np.ndarray:
    return _BYTES.integers(0, 100, shape).astype(dtype.numpy)


@pytest.mark.parametrize(
    "op, left, right, zero, kernel",
    [
        ("MatMulInteger", UINT8, INT8, (), "byte-tiles"),
        ("MatMulInteger", INT8, UINT8, (), "byte-tiles"),
        ("MatMulInteger", UINT8, UINT8, (256,), "byte-tiles"),
        ("MatMulInteger at run time", UINT8, INT8, (), "byte-tiles"),
        ("MatMulInteger at run time", INT8, UINT8, (256,), "byte-tiles"),
        ("QLinearMatMul", UINT8, INT8, (), "byte-tiles"),
        ("QLinearMatMul", UINT8, UINT8, (), "byte-tiles"),
        ("ConvInteger", UINT8, UINT8, (), "byte-tiles-convolution"),
        ("ConvInteger", INT8, INT8, (), "byte-tiles-convolution"),
        ("QLinearConv", UINT8, INT8, (), "byte-tiles-convolution"),
        ("QLinearConv", UINT8, UINT8, (), "byte-tiles-convolution"),
    ],
)
def test_every_form_of_products_of_bytes(
    op: str, left: DType, right: DType, zero: tuple[int, ...], kernel: str
) -> None:
    """Weights around any zero point, or known only while running, are multiplied by the unit."""
    b, trace, name = GraphBuilder("bytes"), Trace(), op.split()[0]
    convolves = "Conv" in name
    x = b.input("x", (1, 64, 20, 20) if convolves else (256, 512), left)
    weights = _some(right, *((256, 64, 3, 3) if convolves else (512, 256)))
    w = b.input("w", weights.shape, right) if "run time" in op else b.constant(weights)
    zeros = b.constant(_some(left)), b.constant(_some(right, *zero))
    scale = b.constant(np.float32(0.5))
    if name.startswith("QLinear"):
        y = b.op(name, x, scale, zeros[0], w, scale, zeros[1], scale, zeros[0])
    else:
        y = b.op(name, x, w, *zeros)
    program = generate(partition(legalized(b.finish(y), MATRIX_TARGET, trace), trace), MATRIX_TARGET, trace)
    assert kernel in {event.what for event in trace if event.kind == "kernel" and event.applied}
    assert any("tdpb" in compile_assembly(one.build(), MATRIX_TARGET) for one in program.kernels)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    "dtype, kernel, counts", [(FLOAT32, "float32-in-parts", (12, 8)), (BFLOAT16, "bfloat16-tiles-convolution", (4, 4))]
)
def test_windows_that_share_what_is_copied(stride: int, dtype: DType, kernel: str, counts: tuple[int, int]) -> None:
    """Taps are loops around the steps of a product, whose tiles load no more than others, and nothing is spilled."""
    one = tile_convolution(kernel, AMX_PARTS if dtype == FLOAT32 else AMX_BF16, (windows_shared,))
    attributes = {"strides": (stride,) * 2, "dilations": (1, 1), "pads": (1,) * 4, "group": 1}
    side = -(-56 // stride)
    task = convolution("Conv", (1, 64, 56, 56), (64, 64, 3, 3), (1, 64, side, side), attributes, dtype=dtype)
    found = way(one, task, MATRIX_TARGET)
    assert (found.schedule.product.tile.rows, found.schedule.product.tile.vectors) == (32, 2)
    text = compile_assembly(text_of(found, MATRIX_TARGET.instructions, "kernel"), MATRIX_TARGET, found.level)
    words = Counter(line.split()[0] for line in text.splitlines() if line.strip())
    told = [words[word] for word in ("tdpbf16ps", "tileloadd", "tilezero", "tilestored", "ldtilecfg", "tilerelease")]
    assert told == [counts[0], counts[1] + 4, 0, 4, 1, 1], "sums begin with the bias"
    assert "Spill" not in text
