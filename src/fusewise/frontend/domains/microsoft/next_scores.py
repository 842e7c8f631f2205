"""Scores of the next token, changed by penalties and masks in ONNX Runtime's order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from fusewise.errors import InvalidModel
from fusewise.frontend.domains.microsoft.protos import Protos
from fusewise.frontend.domains.row import MICROSOFT
from fusewise.records import record

__all__ = ["LOWEST", "Penalties", "changed", "last_logits", "mask_of", "token_of"]

LOWEST = np.finfo(np.float32).min
_FLOAT = onnx.TensorProto.FLOAT


@record(frozen=True)
class Penalties:
    """A node's attributes, and its operands by name, empty where absent.

    `rows`: for each row the sample that it belongs to; empty where rows are samples.
    """

    given: Mapping[str, Any]
    operands: Mapping[str, str]
    rows: str = ""


def token_of(g: Protos, given: Mapping[str, Any], name: str) -> np.int32:
    """An attribute that is a token, or -1 for none. Raises `InvalidModel` for another number."""
    value = given.get(name, -1)
    if not -1 <= value < 2**31:
        raise InvalidModel(f"{g.where}: its attribute {name} is {value}, which is no token")
    return np.int32(value)


def mask_of(g: Protos, ids: str, pad: np.int32) -> str:
    """1 from the first token on that does not pad."""
    kept = g.Cast(g.Not(g.Equal(ids, pad)), to=onnx.TensorProto.INT32)
    return g.Cast(g.Greater(g.CumSum(kept, np.int64(1)), np.int32(0)), to=onnx.TensorProto.INT32)


def last_logits(g: Protos, given: Mapping[str, Any], logits: str) -> str:
    """Those of the last token [rows, vocabulary]; what pads the vocabulary (the attribute `vocab_size`) is left out."""
    last = g.Cast(g.Gather(logits, np.int64(-1), axis=1), to=_FLOAT)
    size = given.get("vocab_size", -1)
    return g.Slice(last, np.array([0]), np.array([size]), np.array([1])) if size > 0 else last


def changed(g: Protos, penalties: Penalties, scores: str, sequences: str, first: str | bool) -> str:
    """Scores [rows, vocabulary] after penalties and masks; `first`: is it the first round?"""
    given, operands = penalties.given, penalties.operands
    before = g.Cast(sequences, to=onnx.TensorProto.INT64)
    if operands.get("repetition_penalty"):
        penalty = g.number(operands["repetition_penalty"], _FLOAT)
        old = g.GatherElements(scores, before, axis=1)
        new = g.Where(g.Less(old, np.float32(0)), g.Mul(old, penalty), g.Div(old, penalty))
        scores = g.ScatterElements(scores, before, new, axis=1)
    size = given.get("no_repeat_ngram_size", 0)
    if size > 0:
        free = g.NGramRepeatBlock(before, scores, domain=MICROSOFT, ngram_size=size)
        scores = g.Where(g.Equal(free, scores), scores, LOWEST)
    if operands.get("vocab_mask"):
        scores = g.Where(g.Equal(operands["vocab_mask"], np.int32(0)), LOWEST, scores)
    if operands.get("prefix_vocab_mask") and first is not False:
        masked = g.Equal(operands["prefix_vocab_mask"], np.int32(0))
        masked = g.Gather(masked, penalties.rows, axis=0) if penalties.rows else masked
        scores = g.Where(masked if first is True else g.And(masked, first), LOWEST, scores)
    if operands.get("min_length"):
        is_short = g.Less(g.length(sequences), g.number(operands["min_length"]))
        is_end = g.Equal(g.Range(np.int64(0), g.length(scores), np.int64(1)), np.int64(given["eos_token_id"]))
        scores = g.Where(g.And(is_short, is_end), LOWEST, scores)
    return scores
