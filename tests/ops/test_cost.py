"""Declared operation counts against operations counted while interpreting the definition."""

from __future__ import annotations

import numpy as np
import pytest

from fusewise.ops.definition import definition, flops_of
from fusewise.ops.expr import index
from fusewise.ops.interpret import evaluate_expression
from fusewise.ops.sampling import call_of_sample
from fusewise.ops.spec import OpSpec, Sample
from fusewise.ops.table import OPERATORS, spec_of


def counted(spec: OpSpec, sample: Sample) -> tuple[int, int]:
    call, arrays = call_of_sample(spec, sample, np.random.default_rng(0))
    names = tuple(f"i{k}" for k in range(call.output().rank))
    body = definition(spec, call, 0, tuple(index(n) for n in names))
    extents = dict(zip(names, call.output().dims, strict=True))
    loads = {f"#{i}": a for i, a in enumerate(arrays) if a is not None}
    return flops_of(spec, call), evaluate_expression(body, extents, loads)[1]


def row(name: str) -> OpSpec:
    found = spec_of(name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "sample"),
    [
        ("MatMul", row("MatMul").samples[0]),
        ("MatMul", row("MatMul").samples[1]),
        ("MatMul", row("MatMul").samples[3]),
        ("Gemm", row("Gemm").samples[0]),
        ("Gemm", row("Gemm").samples[1]),
        ("Conv", row("Conv").samples[0]),
        ("Conv", row("Conv").samples[1]),
        ("Einsum", row("Einsum").samples[0]),
        ("ReduceSum", row("ReduceSum").samples[0]),
        ("ReduceSumSquare", row("ReduceSumSquare").samples[1]),
        ("MaxPool", row("MaxPool").samples[0]),
        ("GlobalAveragePool", row("GlobalAveragePool").samples[0]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_flops_equal_counted_operations(name: str, sample: Sample) -> None:
    declared, found = counted(row(name), sample)
    assert declared == found > 0


def one_shape(sample: Sample) -> bool:
    return (
        len(
            {given.shape if isinstance(given, np.ndarray) else given[1] for given in sample.inputs if given is not None}
        )
        == 1
    )


@pytest.mark.parametrize(
    "spec",
    [r for r in OPERATORS if r.scalar is not None and one_shape(r.samples[0])],
    ids=lambda r: r.name,
)
def test_elementwise_flops_are_operations_of_the_body(spec: OpSpec) -> None:
    declared, found = counted(spec, spec.samples[0])
    assert declared == found


def test_copies_are_free() -> None:
    for name in ("Reshape", "Transpose", "Concat", "Gather", "Expand", "Identity", "Cast"):
        call, _ = call_of_sample(row(name), row(name).samples[0], np.random.default_rng(0))
        assert flops_of(row(name), call) == 0


def test_published_count_of_a_convolution() -> None:
    """The first layer of ResNet-50: 118.0 million multiply-accumulates."""
    sample = Sample(
        (("float32", (1, 3, 224, 224)), ("float32", (64, 3, 7, 7))), {"strides": (2, 2), "pads": (3, 3, 3, 3)}
    )
    call, _ = call_of_sample(row("Conv"), sample, np.random.default_rng(0))
    assert flops_of(row("Conv"), call) == 2 * 64 * 112 * 112 * 3 * 49
