"""NaN and infinities in keys and values that a mask excludes: what docs/accuracy.md says of ONNX, ONNX Runtime and code here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fusewise
from fusewise.frontend.onnx_export import to_model
from fusewise.ir.dtypes import BOOL, FLOAT32
from fusewise.ops.build import GraphBuilder

SHAPE = (1, 1, 4, 8)
LAST = (0, 0, 3, 2)
"""An element of the last key or value, which only the last query may see."""


def model_of(mask: str) -> Any:
    """The last key is excluded for all queries but the last: by a mask of this type, or by causality."""
    b = GraphBuilder("attention")
    operands = [b.input(name, SHAPE, FLOAT32) for name in "qkv"]
    if mask:
        operands.append(b.input("mask", SHAPE[2:3] * 2, BOOL if mask == "bool" else FLOAT32))
    return to_model(b.finish(b.op("Attention", *operands, is_causal=int(not mask))))


def answers(mask: str, operand: str, value: float) -> dict[str, np.ndarray]:
    """By ONNX's evaluator, ONNX Runtime and exact code here."""
    from onnx.reference import ReferenceEvaluator
    from onnxruntime import InferenceSession

    model = model_of(mask)
    rng = np.random.default_rng(0)
    feeds: dict[str, np.ndarray] = {name: rng.standard_normal(SHAPE).astype(np.float32) for name in "qkv"}
    feeds["q"][..., LAST[3]] = np.abs(feeds["q"][..., LAST[3]])  # so that an infinite key has one sign for all queries
    feeds[operand][LAST] = value
    if mask:
        seen = np.tri(*SHAPE[2:3] * 2, dtype=bool)
        feeds["mask"] = seen if mask == "bool" else np.where(seen, 0, -np.inf).astype(np.float32)
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with np.errstate(all="ignore"), fusewise.compile(model, exact=True, cache=False) as ours:
        found = {"onnx": ReferenceEvaluator(model), "onnxruntime": session, "ours": ours}
        return {name: runs.run(None, feeds)[0][0, 0] for name, runs in found.items()}


@pytest.mark.parametrize("mask", ["", "bool", "float32"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_key_that_is_excluded(mask: str, value: float) -> None:
    """Masks are added there, so that rows that may not see the key are NaN, too; here booleans and causality leave it out."""
    found = answers(mask, "k", value)
    for name, result in found.items():
        spreads = name != "ours" or mask == "float32"
        assert np.isnan(result[3]).all()
        assert np.isnan(result[:3]).all() if spreads else np.isfinite(result[:3]).all()


@pytest.mark.parametrize("mask", ["", "bool", "float32"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_excluded(mask: str, value: float) -> None:
    """It is multiplied by nothing, which makes NaN of its element in every row."""
    for result in answers(mask, "v", value).values():
        assert np.isnan(result[:3, LAST[3]]).all()
        np.testing.assert_equal(result[3, LAST[3]], np.float32(value))
        assert np.isfinite(np.delete(result, LAST[3], axis=1)).all()
