"""Every definition equals ONNX's reference evaluator on the row's samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusewise.ops.evaluate import evaluator
from fusewise.ops.interpret import interpret
from fusewise.ops.sampling import call_of_sample, opset_of
from fusewise.ops.spec import Call, NotDefined, OpSpec, Sample
from fusewise.ops.table import OPERATORS

# relative and absolute, by output dtype; anything not listed must be equal
TOLERANCES = {
    "float64": (1e-12, 1e-13),
    "float32": (2e-6, 1e-6),
    "float16": (4e-3, 2e-3),
    "bfloat16": (2e-2, 1e-2),
}

# samples a definition refuses, by row and position, with what its refusal must say
REFUSED: dict[tuple[str, int], str] = {}


def reference(spec: OpSpec, call: Call, arrays: tuple[np.ndarray | None, ...]) -> list[Any]:
    present = [a for a in arrays if a is not None]
    if spec.name == "GlobalLpPool":  # the one operator ONNX has no evaluator for
        x, p = present[0].astype(np.float64), call.attribute("p", 2)
        total = (np.abs(x) ** p).sum(axis=tuple(range(2, x.ndim)), keepdims=True)
        return [(total ** (1 / p)).astype(present[0].dtype)]
    return evaluator(call.node, opset_of(spec))(*present)


def described(spec: OpSpec, k: int, sample: Sample) -> str:
    return f"{spec.domain}{spec.name}-{k}"


CASES = [
    pytest.param(spec, k, sample, id=described(spec, k, sample))
    for spec in OPERATORS
    if spec.scalar is not None or spec.define is not None
    for k, sample in enumerate(spec.samples)
]


def assert_equal(found: np.ndarray, expected: np.ndarray) -> None:
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if expected.dtype.name in TOLERANCES:
        relative, absolute = TOLERANCES[expected.dtype.name]
        np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=relative, atol=absolute)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("spec", "k", "sample"), CASES)
def test_definition_equals_reference(spec: OpSpec, k: int, sample: Sample) -> None:
    call, arrays = call_of_sample(spec, sample, np.random.default_rng(k))
    if (spec.name, k) in REFUSED:
        with pytest.raises(NotDefined, match=REFUSED[spec.name, k]):
            interpret(spec, call, arrays)
        return
    expected = reference(spec, call, arrays)
    for output in range(sample.outputs):
        assert_equal(interpret(spec, call, arrays, output), expected[output])


def test_every_defined_row_has_samples() -> None:
    missing = [spec.name for spec in OPERATORS if (spec.scalar or spec.define) and not spec.samples]
    assert not missing
