"""The losses for the reference evaluator, whose mean counts ignored targets, and which goes through elements one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["loss_operators", "negative_log_likelihood"]


def loss_operators() -> tuple[type[Any], ...]:
    """Classes for the argument `new_ops` of `ReferenceEvaluator`."""
    from onnx.reference.op_run import OpRun

    class NegativeLogLikelihoodLoss(OpRun):
        op_domain = ""

        def _run(self, scores: Any, target: Any, weight: Any = None, **settings: Any) -> tuple[Any, ...]:
            return (negative_log_likelihood(scores, target, weight, **settings),)

    class SoftmaxCrossEntropyLoss(OpRun):
        op_domain = ""

        def _run(self, scores: Any, target: Any, weight: Any = None, **settings: Any) -> tuple[Any, ...]:
            wide = scores.astype(np.promote_types(scores.dtype, np.float32))
            shifted = wide - wide.max(axis=1, keepdims=True)
            logarithms = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
            loss = negative_log_likelihood(logarithms, target, weight, **settings).astype(scores.dtype)
            return (loss, logarithms.astype(scores.dtype))[: len(self.onnx_node.output)]

    return (NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss)


def negative_log_likelihood(
    scores: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None,
    ignore_index: int | None = None,
    reduction: str | None = None,
) -> np.ndarray:
    """-weight[t] * scores[n, t, d..] for the target t of each (n, d..), summed, or divided by the sum of weights, or as it is.

    `scores` [n, classes, d..], `target` [n, d..], `weight` [classes], ones when absent; targets `ignore_index` weigh nothing.
    Raises `IndexError` for another target that is no class.
    """
    kept = np.ones(target.shape, bool) if ignore_index is None else target != ignore_index
    place = np.where(kept, target, 0).astype(np.int64)
    if place.size and not (place.min() >= 0 and place.max() < scores.shape[1]):
        raise IndexError(f"a target lies outside the {scores.shape[1]} classes")
    wide = np.promote_types(scores.dtype, np.float32)
    chosen = np.take_along_axis(scores, place[:, None], axis=1)[:, 0].astype(wide)
    share = np.where(kept, 1 if weight is None else weight[place], 0).astype(wide)
    loss = -chosen * share
    if reduction == "none":
        return np.where(kept, loss, 0).astype(scores.dtype)
    total = np.where(kept, loss, 0).sum()
    return np.asarray(total if reduction == "sum" else total / share.sum()).astype(scores.dtype)
