"""Attention for the reference evaluator, whose scores (`qk_matmul_output_mode` 0) have a softcap that comes after them."""

from __future__ import annotations

from typing import Any

__all__ = ["attention_operators"]

_SCORES = 3
"""Which output the scores are."""


def attention_operators() -> tuple[type[Any], ...]:
    """Classes for the argument `new_ops` of `ReferenceEvaluator`."""
    from onnx.reference.ops import op_attention

    reference: Any = op_attention.Attention

    class Attention(reference):  # type: ignore[misc]
        """The scores as they are before anything is done to them."""

        op_domain = ""

        def _run(self, *operands: Any, **settings: Any) -> tuple[Any, ...]:
            found: tuple[Any, ...] = tuple(super()._run(*operands, **settings))
            if len(found) > _SCORES and settings.get("softcap") and not settings.get("qk_matmul_output_mode"):
                plain = super()._run(*operands, **{**settings, "softcap": 0.0})
                found = (*found[:_SCORES], plain[_SCORES])
            return found

    return (Attention,)
