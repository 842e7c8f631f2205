"""Products of bytes as kernels for GPUs, in Triton's interpreter, against NumPy's reading of them: not a bit may differ."""

from __future__ import annotations

import numpy as np
import pytest
from tests.codegen.gpu.interpreting import check
from tests.codegen.gpu.product_tasks import last, lying
from tests.codegen.gpu.test_nests import DEVICE, at, task_of
from tests.runtime.gpu.kernels import needs_triton

from fusewise.codegen.gpu.kernel import NoKernel
from fusewise.codegen.gpu.product_tiles import ProductWay
from fusewise.codegen.gpu.products import product, product_by, suitable
from fusewise.codegen.llvm.plain import plain_task
from fusewise.ir.dtypes import INT8, INT32, UINT8, DType
from fusewise.ir.types import TensorType
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.ops.expr import cast, load, reduce

pytestmark = needs_triton


def integer_task(op: str, operands: list[Operand | None], out: Operand, **attributes: object) -> Task:
    """A product or convolution of bytes; operands that are None are not there."""
    elements = [o and load(o.name, o.dtype, at(*(f"p{k}" for k in range(len(o.shape))))) for o in operands]
    kinds = tuple(o and TensorType(o.dtype, o.shape) for o in operands)
    family = {"MatMulInteger": "matmul_integer", "ConvInteger": "conv_integer"}[op]
    anchor = Anchor(op, family, tuple(attributes.items()), kinds, tuple(elements), TensorType(INT32, out.shape))
    places = at(*(f"i{k}" for k in range(len(out.shape))))
    there = tuple(o for o in operands if o is not None)
    return Task(out.shape, (*there, out), (Store(out.name, places, load(ACC, INT32, places)),), anchor)


def bytes_of(operand: Operand, seed: int) -> np.ndarray:
    """All that a byte may be, the ends often."""
    ends = np.iinfo(operand.dtype.numpy)
    rng, size = np.random.default_rng(seed), int(np.prod(operand.shape))
    drawn = rng.integers(ends.min, ends.max + 1, size)
    return np.where(rng.random(size) < 0.5, rng.choice([ends.min, ends.max], size), drawn).astype(operand.dtype.numpy)


def exactly(task: Task, way: ProductWay | None = None) -> str:
    kernel = product(task, DEVICE) if way is None else product_by(task, suitable(task), way, "float32")
    plain = plain_task(task)
    assert plain is not None
    given = {o.name: bytes_of(o, k) for k, o in enumerate(task.operands) if o.name != "out0"}
    check(kernel, plain, given)
    return kernel.source


@pytest.mark.parametrize(("left", "right"), [(INT8, INT8), (UINT8, INT8), (UINT8, UINT8)], ids=str)
@pytest.mark.parametrize("zeros", [(None, None), ((), None), (None, ()), ((), (18,))], ids=str)
def test_products_of_bytes(left: DType, right: DType, zeros: tuple) -> None:
    operands: list[Operand | None] = [lying("in0", left, (17, 70)), lying("const0", right, (70, 18), constant=True)]
    operands += [None if z is None else lying(f"in{k + 1}", (left, right)[k], z) for k, z in enumerate(zeros)]
    source = exactly(integer_task("MatMulInteger", operands, lying("out0", INT32, (17, 18))))
    assert ("out_dtype=tl.int32" in source) == (left == right == INT8 and zeros == (None, None))


def test_deep_sums_of_the_largest_bytes() -> None:
    """Float32 would not hold the whole sum: 255 * 255 * 1000 is 2^26."""
    task = integer_task(
        "MatMulInteger",
        [lying("in0", UINT8, (16, 1000)), lying("in1", UINT8, (1000, 16)), lying("in2", UINT8, ())],
        lying("out0", INT32, (16, 16)),
    )
    plain = plain_task(task)
    assert plain is not None
    full = {"in0": np.full(16000, 255, np.uint8), "in1": np.full(16000, 255, np.uint8), "in2": np.zeros(1, np.uint8)}
    check(product_by(task, suitable(task), ProductWay(16, 16, 128, 4, 2, 2), "float32"), plain, full)


def test_differences_of_bytes_of_two_types_are_no_bytes() -> None:
    """They go down to -383, and float32 would not hold the sum of a step: 383 * 383 * 128 is above 2^24."""
    row, column = at("i0", "r0"), at("r0", "i1")
    far = cast(load("in0", INT8, row), INT32) - cast(load("in1", UINT8, row), INT32)
    body = far * cast(load("in2", INT8, column), INT32)
    shapes = (INT8, (17, 70)), (UINT8, (17, 70)), (INT8, (70, 18))
    operands = [lying(f"in{k}", dtype, shape) for k, (dtype, shape) in enumerate(shapes)]
    with pytest.raises(NoKernel, match="no bytes"):
        suitable(task_of(reduce("sum", (("r0", 70),), body), (17, 18), *operands))


def test_vectors_of_bytes() -> None:
    task = integer_task(
        "MatMulInteger",
        [lying("in0", UINT8, (1, 70)), lying("in1", INT8, (70, 18)), lying("in2", UINT8, ())],
        lying("out0", INT32, (1, 18)),
    )
    assert "tl.dot" not in exactly(task)


def test_padding_is_the_zero_point() -> None:
    task = integer_task(
        "ConvInteger",
        [
            lying("in0", UINT8, (1, 16, 5, 4), last(4)),
            lying("const0", INT8, (9, 16, 3, 3), constant=True),
            lying("in1", UINT8, ()),
        ],
        lying("out0", INT32, (1, 9, 5, 4), last(4)),
        pads=(1, 1, 1, 1),
    )
    exactly(task)


def test_wider_integers_are_left_to_the_nest() -> None:
    task = integer_task(
        "MatMulInteger", [lying("in0", INT32, (17, 40)), lying("in1", INT32, (40, 18))], lying("out0", INT32, (17, 18))
    )
    with pytest.raises(NoKernel, match="no bytes"):
        product(task, DEVICE)
