"""The definition of every operator as a kernel for a GPU, in Triton's interpreter, against NumPy's reading of it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from tests.codegen.gpu.interpreting import TOLERANCES, launch
from tests.runtime.gpu.kernels import needs_triton

from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.kernel import GpuKernel, NoKernel
from fusewise.codegen.gpu.nests import nest
from fusewise.codegen.gpu.windows import window
from fusewise.ir.types import TensorType
from fusewise.lower.task import Operand, Store, Task
from fusewise.ops.definition import definition
from fusewise.ops.expr import Expr, index, load, substitute
from fusewise.ops.interpret import interpret
from fusewise.ops.sampling import call_of_sample
from fusewise.ops.spec import NotDefined, OpSpec, Sample
from fusewise.ops.table import OPERATORS

pytestmark = [needs_triton, pytest.mark.slow]

SAMPLES = [
    pytest.param(spec, sample, id=f"{spec.name}-{k}")
    for spec in OPERATORS
    if spec.scalar is not None or spec.define is not None
    for k, sample in enumerate(spec.samples)
]


def operand(name: str, kind: TensorType) -> Operand:
    return Operand(name, kind.dtype, kind.dims, tuple(math.prod(kind.dims[k + 1 :]) for k in range(kind.rank)))


def named(node: Expr) -> Expr | None:
    if node.op == "bounded":  # one place for all positions that are read
        return Expr("bounded", node.dtype, node.args, (*node.value[:2], 0))
    if node.op == "load" and str(node.value).startswith("#"):
        return load(f"in{node.value[1:]}", node.dtype, node.args)
    return None


def tasks_of(spec: OpSpec, sample: Sample) -> list[tuple[Task, dict[str, np.ndarray], np.ndarray]]:
    """A task for each output that has a definition, the contents of its operands and what is expected."""
    call, arrays = call_of_sample(spec, sample, np.random.default_rng(0))
    found = []
    for position in range(sample.outputs):
        out = call.outputs[position]
        if out is None:
            continue
        try:
            value = definition(spec, call, position, tuple(index(f"i{d}") for d in range(out.rank)))
        except NotDefined:
            continue
        reads = [k for k, a in enumerate(arrays) if a is not None and call.input(k).dtype.kind != "string"]
        operands = (*(operand(f"in{k}", call.input(k)) for k in reads), operand("out0", out))
        store = Store("out0", tuple(index(f"i{d}") for d in range(out.rank)), substitute(value, named))
        given = {f"in{k}": np.ascontiguousarray(arrays[k]) for k in reads}
        found.append((Task(out.dims, operands, (store,)), given, interpret(spec, call, tuple(arrays), position)))
    return found


@pytest.mark.parametrize(("spec", "sample"), SAMPLES)
def test_definition_of_every_operator(spec: OpSpec, sample: Sample) -> None:
    for task, given, wanted in tasks_of(spec, sample):
        for kernel in kernels_of(task):
            results, fault = launch(kernel, task, given)
            assert not fault.any()
            found = results["out0"]
            if wanted.dtype.kind in "biu" or wanted.dtype.itemsize == 1:
                assert found.tobytes() == wanted.tobytes() or (found == wanted).all()
                continue
            tolerance = 4 * TOLERANCES[wanted.dtype.itemsize]
            np.testing.assert_allclose(
                found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance
            )


def kernels_of(task: Task) -> Iterator[GpuKernel]:
    """By the nest, and by windows where it has any."""
    device = device_named("sm_90")
    yield nest(task, device)
    try:
        yield window(task, device)
    except NoKernel:
        return
