"""Operators on text for the reference evaluator: StringNormalizer, StringSplit and the weights of TfIdfVectorizer.

Its StringNormalizer compares stop words as they are written even where case does not matter, and sets the process's locale;
its StringSplit gives one part of an empty string; its TfIdfVectorizer fails without weights, and goes on for as many
rounds as may be skipped, however short its rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

__all__ = ["distinct", "normalized", "split_strings", "text_operators"]


def text_operators() -> tuple[type[Any], ...]:
    """Classes for the argument `new_ops` of `ReferenceEvaluator`."""
    from onnx.reference.op_run import OpRun
    from onnx.reference.ops import op_tfidf_vectorizer

    slow: Any = op_tfidf_vectorizer.TfIdfVectorizer

    class StringNormalizer(OpRun):
        op_domain = ""

        def _run(self, words: Any, **settings: Any) -> tuple[Any, ...]:
            sensitive, stops = bool(settings["is_case_sensitive"]), tuple(settings["stopwords"] or ())
            return (normalized(words, settings["case_change_action"] or "NONE", stops, sensitive),)

    class StringSplit(OpRun):
        op_domain = ""

        def _run(self, words: Any, delimiter: Any = None, maxsplit: Any = None) -> tuple[Any, ...]:
            return split_strings(words, delimiter or None, -1 if maxsplit is None else maxsplit)

    class TfIdfVectorizer(slow):  # type: ignore[misc]
        """Weights of one where there are none, and no more rounds than elements."""

        op_domain = ""
        weights_: Any

        def __init__(self, onnx_node: Any, run_params: Any) -> None:
            super().__init__(onnx_node, run_params)
            self.weights_ = self.weights_ or []

        def compute_impl(
            self, x: np.ndarray, row: int, size: int, frequencies: list[int], *, max_skip_count: int, **options: Any
        ) -> None:
            skips = min(max_skip_count, size)  # who skips a whole row finds nothing
            super().compute_impl(x, row, size, frequencies, max_skip_count=skips, **options)

    return (StringNormalizer, StringSplit, TfIdfVectorizer)


_CASES: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {"NONE": lambda word: word, "LOWER": str.lower, "UPPER": str.upper}
)


def normalized(words: np.ndarray, action: str, stops: tuple[str, ...], sensitive: bool) -> np.ndarray:
    """`words` [n] or [1, n] without the stop words, each in the case asked for; one empty string if none is left."""
    if words.ndim not in (1, 2) or (words.ndim == 2 and words.shape[0] != 1):
        raise ValueError(f"StringNormalizer takes [n] or [1, n], not {list(words.shape)}")
    key = _CASES["NONE" if sensitive else "LOWER"]
    unwanted = {key(word) for word in stops}
    kept = [word for word in (str(w) for w in words.reshape(-1)) if key(word) not in unwanted]
    found = np.array([_CASES[action](word) for word in kept] or [""], object)
    return found[None] if words.ndim == 2 else found


def split_strings(words: np.ndarray, delimiter: str | None, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Parts of each string, filled up with empty ones [.., parts], and how many each has [..]; an empty string has none.

    At `delimiter`, at most `most` times (-1: as often as it occurs); at white space where there is none.
    """
    texts, places = distinct(words)
    rows = [text.split(delimiter, most) if text else [] for text in texts]
    lengths = [len(row) for row in rows]
    extent = max(lengths, default=0)
    blanks = [""] * extent
    table = np.empty((len(rows), extent), object)
    table.reshape(-1)[:] = [part for row in rows for part in (row + blanks)[:extent]]
    counts = np.array(lengths, np.int64)
    if places is not None:
        return table.take(places, axis=0), counts.take(places)
    return (table, counts) if words.ndim == 1 else (table.reshape(*words.shape, extent), counts.reshape(words.shape))


def distinct(words: np.ndarray) -> tuple[list[str], np.ndarray | None]:
    """The strings in C order, and None; or, where many come back, each that there is once, and by element [..] which it is."""
    texts: list[Any] = (words if words.ndim == 1 else words.reshape(-1)).tolist()
    if set(map(type, texts)) != {str}:
        texts = [str(text) for text in texts]
    known = dict.fromkeys(texts[:_LOOKED_AT])
    if 2 * len(known) > min(len(texts), _LOOKED_AT):
        return texts, None
    if len(texts) > _LOOKED_AT:
        known = dict.fromkeys(texts)
    numbers = {text: k for k, text in enumerate(known)}
    return list(numbers), np.fromiter(map(numbers.__getitem__, texts), np.intp, len(texts)).reshape(words.shape)


_LOOKED_AT = 256
"""Strings by which it is judged whether many come back."""
