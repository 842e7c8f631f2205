"""Text: strings joined, split, matched and normalised, and words counted without a loop over them."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from fusewise.ir.graph import Node
from fusewise.ops.corrected_text import distinct, normalized, split_strings
from fusewise.ops.plain.row import Other, Plain, PlainFunction, of_any
from fusewise.records import record

__all__ = ["TEXT"]


def _concatenated(a: Any, b: Any) -> Any:
    return np.asarray(np.add(a, b, dtype=object))


def _normalizer(node: Node) -> PlainFunction:
    action = node.attribute("case_change_action", "NONE")
    stops = tuple(node.attribute("stopwords") or ())
    sensitive = bool(node.attribute("is_case_sensitive", 0))
    return lambda words: normalized(words, action, stops, sensitive)


def _splitter(node: Node) -> PlainFunction:
    delimiter, most = node.attribute("delimiter", ""), node.attribute("maxsplit")
    return lambda words: split_strings(words, delimiter or None, -1 if most is None else most)


def _matcher(node: Node) -> PlainFunction:
    match = re.compile(node.attribute("pattern")).fullmatch

    def run(words: Any) -> Any:
        texts, places = distinct(words)
        found = np.array([match(text) is not None for text in texts], bool)
        return found.reshape(words.shape) if places is None else found.take(places)

    return run


@record(frozen=True, slots=True)
class _Grams:
    """The n-grams of one length: `codes` sorted, of the numbers that words have, and where in the output each is counted."""

    length: int
    codes: np.ndarray
    places: np.ndarray


def _grams(node: Node) -> tuple[np.ndarray, list[_Grams]]:
    """The distinct words of the pool, sorted, and the n-grams of every length that is asked for."""
    words = node.attribute("pool_strings")
    pool = np.array(words) if words else np.array(node.attribute("pool_int64s"), np.int64)
    known, numbers = np.unique(pool, return_inverse=True)
    starts, places = list(node.attribute("ngram_counts")), np.array(node.attribute("ngram_indexes"), np.int64)
    found, before = [], 0
    for length, start in enumerate(starts, start=1):
        end = starts[length] if length < len(starts) else len(pool)
        count = (end - start) // length
        if (len(known) + 1) ** length >= 1 << 62:
            raise Other
        codes = _coded(numbers[start : start + count * length].reshape(count, length) + 1, len(known))
        order = np.argsort(codes, kind="stable")
        if np.any(np.diff(codes[order]) == 0):
            raise Other
        if node.attribute("min_gram_length") <= length <= node.attribute("max_gram_length"):
            found.append(_Grams(length, codes[order], places[before : before + count][order]))
        before += count
    return known, found


def _coded(numbers: np.ndarray, most: int) -> np.ndarray:
    """One number for each row of numbers from 0 to `most`."""
    codes = np.zeros(numbers.shape[:-1], np.int64)
    for k in range(numbers.shape[-1]):
        codes = codes * (most + 1) + numbers[..., k]
    return codes


def _counted(numbers: np.ndarray, grams: _Grams, skips: int, most: int, found: np.ndarray) -> None:
    """Add to `found` [rows, places] how often each n-gram stands in a row of `numbers`, up to `skips` words left out between."""
    extent = numbers.shape[1]
    rows = np.arange(len(numbers))[:, None]
    for skip in range(skips + 1 if grams.length > 1 else 1):
        reach = (grams.length - 1) * (skip + 1)
        if reach >= extent or not grams.codes.size:
            break
        places = np.arange(extent - reach)[:, None] + np.arange(grams.length) * (skip + 1)
        codes = _coded(numbers[:, places], most)
        at = np.minimum(np.searchsorted(grams.codes, codes), len(grams.codes) - 1)
        hit = grams.codes[at] == codes
        np.add.at(found, (np.broadcast_to(rows, hit.shape)[hit], grams.places[at[hit]]), 1)


def _vectorizer(node: Node) -> PlainFunction:
    """Counts of n-grams, or whether they are there at all, times weights; a word that is in none has the number 0."""
    mode, skips = node.attribute("mode"), node.attribute("max_skip_count")
    size = max(node.attribute("ngram_indexes"), default=-1) + 1
    weights = node.attribute("weights")
    ready: list[tuple[np.ndarray, list[_Grams]]] = []

    def run(data: Any) -> Any:
        if not ready:
            ready.append(_grams(node))
        known, lengths = ready[0]
        if (
            data.ndim not in (1, 2)
            or not known.size
            or (weights and len(weights) != len(node.attribute("ngram_indexes")))
        ):
            raise Other
        lines = data.reshape(-1, data.shape[-1]) if data.size else data.reshape(math.prod(data.shape[:-1]), 0)
        lines = lines.astype(known.dtype if known.dtype.kind == "i" else np.str_)
        at = np.minimum(np.searchsorted(known, lines), len(known) - 1)
        numbers = np.where(known[at] == lines, at + 1, 0)
        found = np.zeros((len(lines), size), np.float32)
        for grams in lengths:
            _counted(numbers, grams, skips, len(known), found)
        scale = np.ones(size, np.float32)
        if weights:
            scale[np.array(node.attribute("ngram_indexes"))] = np.array(weights, np.float32)
        if mode == "IDF":
            found = (found > 0) * scale
        elif mode == "TFIDF":
            found = found * scale
        return found.reshape(*data.shape[:-1], size)

    return run


TEXT: tuple[Plain, ...] = (
    of_any("RegexFullMatch", 20, _matcher),
    of_any("StringConcat", 20, lambda node: _concatenated),
    of_any("StringNormalizer", 10, _normalizer),
    of_any("StringSplit", 20, _splitter),
    of_any("TfIdfVectorizer", 9, _vectorizer),
)
