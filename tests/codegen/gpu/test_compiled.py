"""What the interpreter runs, Triton compiles: it accepts names that the compiler does not. No GPU is needed."""

from __future__ import annotations

import pytest
from benchmarks.gpu.checked import faults_of
from tests.codegen.gpu.product_tasks import anchored, last, lying
from tests.codegen.gpu.test_integer_products import integer_task
from tests.codegen.gpu.test_nests import at, dense, padded, task_of
from tests.codegen.gpu.test_rows import channel_softmax, layer_norm, softmax
from tests.codegen.gpu.test_words import of_one_operand, of_two_operands, storing
from tests.runtime.gpu.kernels import needs_triton

from fusewise.codegen.gpu.device import Device, device_named
from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.codegen.gpu.nests import nest
from fusewise.codegen.gpu.products import product
from fusewise.codegen.gpu.rows import rows
from fusewise.ir.dtypes import FLOAT16, FLOAT32, INT8, INT32, INT64, dtype_named
from fusewise.lower.task import Task
from fusewise.ops.expr import Expr, index, load, reduce, select
from fusewise.runtime.gpu.compile import TritonCompiler

pytestmark = [needs_triton, pytest.mark.slow]


def gathered() -> Task:
    """Rows at positions from data, one of them only under a condition, and the sum of each."""
    position = Expr("bounded", INT64, (load("in1", INT64, at("i0")),), (0, 3, 0))
    total = reduce("sum", (("r0", 90),), load("in0", FLOAT32, (position, index("r0"))))
    value = select(load("in2", dtype_named("bool"), at("i0")), total, load("in0", FLOAT32, (position, index("i1"))))
    operands = dense("in0", FLOAT32, (4, 90)), dense("in1", INT64, (6,)), dense("in2", dtype_named("bool"), (6,))
    return task_of(value, (6, 90), *operands)


def column_sums() -> Task:
    return task_of(
        reduce("sum", (("r0", 700),), load("in0", INT8, at("r0", "i0"))), (33,), dense("in0", INT8, (700, 33))
    )


def words_of(kind: str) -> list[Task]:
    """Everything that is computed of one and of two operands of a type."""
    dtype = dtype_named(kind)
    return [storing([dtype], of_one_operand(dtype)), storing([dtype, dtype], of_two_operands(dtype))]


def kernels_of(device: Device) -> list[GpuKernel]:
    """Of sm_90 all; of sm_80, which has to write more out in bfloat16, that alone. The zoo's are compiled for both."""
    if device.name == "sm_80":
        return [nest(task, device) for task in words_of("bfloat16")]
    tasks = (softmax(7, 100), softmax(900, 4000), layer_norm(64, 768), channel_softmax(2, 21, 500))
    nests = [softmax(7, 100), softmax(3, 3000, FLOAT16), padded(), gathered(), column_sums()]
    nests += [task for kind in ("float32", "bfloat16", "int64", "uint8") for task in words_of(kind)]
    return [rows(task, device) for task in tasks] + [nest(task, device) for task in nests]


@pytest.mark.parametrize("name", ["sm_80", "sm_90"])
def test_kernels_compile_without_spills(name: str) -> None:
    device = device_named(name)
    kernels = kernels_of(device)
    with TritonCompiler() as compiler:
        cubins = compiler.compile(kernels, device)
    for kernel, cubin in zip(kernels, cubins, strict=True):
        assert cubin.threads == 32 * kernel.warps
        assert cubin.parameters == len(kernel.arguments)
        assert not [*faults_of(kernel, cubin, device)], f"{kernel.way} of {kernel.symbol}"


def products() -> list[tuple[Task, str]]:
    """Tasks with the precision that they are multiplied in: one of each type, of several shapes, some in parts."""
    found = []
    for dtype, (m, k, n) in ((FLOAT16, (256, 512, 256)), (FLOAT32, (40, 4096, 48)), (FLOAT32, (1, 768, 768))):
        operands = [lying("in0", dtype, (m, k)), lying("in1", dtype, (k, n))]
        found.append((anchored("MatMul", operands, lying("out0", dtype, (m, n))), "float32"))
    for channels, kernel, how in ((3, 7, "float32"), (64, 3, "tf32"), (64, 1, "exact")):
        operands = [
            lying("in0", FLOAT32, (1, channels, 28, 28), last(4)),
            lying("const0", FLOAT32, (64, channels, kernel, kernel), constant=True),
        ]
        out = lying("out0", FLOAT32, (1, 64, 28, 28), last(4))
        found.append((anchored("Conv", operands, out, {"pads": (kernel // 2,) * 4}), how))
    left, right = lying("in0", INT8, (64, 128)), lying("const0", INT8, (128, 64), constant=True)
    for zero in ((), (lying("in1", INT8, ()),)):
        found.append((integer_task("MatMulInteger", [left, right, *zero], lying("out0", INT32, (64, 64))), "float32"))
    return found


@pytest.mark.parametrize("name", ["sm_80", "sm_90"])
def test_products_are_multiplied_by_tensor_cores(name: str) -> None:
    """Those of sm_80 are written alike, so few are compiled for it."""
    device = device_named(name)
    with TritonCompiler() as compiler:
        for task, precision in products()[:: 1 if name == "sm_90" else 3]:
            kernel = product(task, device, precision)
            launched = [kernel, *kernel.then]
            cubins = compiler.compile(launched, device, contracted=precision != "exact")
            for one, cubin in zip(launched, cubins, strict=True):
                assert not [*faults_of(one, cubin, device)], f"{one.way} of {one.symbol}"
