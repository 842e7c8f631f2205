"""Attention for the reference evaluator, whose scores (`qk_matmul_output_mode` 0) have a softcap that comes after them, and which
takes one row of a mask for the first query's alone beside causality."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["attention_operators"]

_MASK, _SCORES = 3, 3
"""Which operand the mask is, and which output the scores are."""


def _for_all(mask: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """The mask with a row for every query."""
    rows = np.atleast_2d(mask)
    if rows.shape[-2] != 1:
        return rows
    return np.broadcast_to(rows, (*rows.shape[:-2], queries.shape[-2], rows.shape[-1]))


def attention_operators() -> tuple[type[Any], ...]:
    """Classes for the argument `new_ops` of `ReferenceEvaluator`."""
    from onnx.reference.ops import op_attention

    reference: Any = op_attention.Attention

    class Attention(reference):  # type: ignore[misc]
        """The scores as they are before anything is done to them."""

        op_domain = ""

        def _run(self, *operands: Any, **settings: Any) -> tuple[Any, ...]:
            if len(operands) > _MASK and operands[_MASK] is not None:
                operands = (*operands[:_MASK], _for_all(operands[_MASK], operands[0]), *operands[_MASK + 1 :])
            found: tuple[Any, ...] = tuple(super()._run(*operands, **settings))
            if len(found) > _SCORES and settings.get("softcap") and not settings.get("qk_matmul_output_mode"):
                plain = super()._run(*operands, **{**settings, "softcap": 0.0})
                found = (*found[:_SCORES], plain[_SCORES])
            return found

    return (Attention,)
