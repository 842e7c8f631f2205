"""Labels and categories by a table: one look into a dictionary for each element, which for text is the fastest there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fusewise.ir.graph import Node
from fusewise.ops.plain.classic import listed, made_once
from fusewise.ops.plain.row import Other, Plain

__all__ = ["ENCODERS"]

_DOMAIN = "ai.onnx.ml"

_DEFAULTS = {"int64s": -1, "floats": -0.0, "strings": "_Unused"}
"""What ONNX gives for a key that there is not, by the type of the values."""

_KINDS: Mapping[str, Any] = {"int64s": np.int64, "floats": np.float32, "strings": object}


def _looked_up(data: Any, table: Mapping[Any, Any], default: Any, kind: Any) -> np.ndarray:
    find = table.get
    return np.array([find(key, default) for key in data.reshape(-1).tolist()], kind).reshape(data.shape)


def _label_encoder(node: Node) -> Callable[..., Any]:
    keys, values = (
        next(
            ((kind, list(listed(node, f"{side}_{kind}") or ())) for kind in _KINDS if node.attribute(f"{side}_{kind}")),
            None,
        )
        for side in ("keys", "values")
    )

    def make() -> tuple[Mapping[Any, Any], Any, Any]:
        if keys is None or values is None or keys[0] == "floats":
            raise Other
        kind = values[0]
        default = node.attribute(f"default_{kind[:-1]}", _DEFAULTS[kind])
        return dict(zip(reversed(keys[1]), reversed(values[1]), strict=True)), default, _KINDS[kind]

    ready = made_once(make)
    return lambda data: _looked_up(data, *ready())


def _category_mapper(node: Node) -> Callable[..., Any]:
    words, numbers = list(node.attribute("cats_strings") or ()), list(node.attribute("cats_int64s") or ())

    by_word = made_once(lambda: dict(zip(words, numbers, strict=True)))
    by_number = made_once(lambda: dict(zip(numbers, words, strict=True)))
    number = node.attribute("default_int64", -1)
    word = node.attribute("default_string", "_Unused")

    def run(data: Any) -> Any:
        if data.dtype == object:
            return _looked_up(data, by_word(), number, np.int64)
        return _looked_up(data, by_number(), word, object)

    return run


def _one_hot(node: Node) -> Callable[..., Any]:
    words, numbers = list(node.attribute("cats_strings") or ()), list(node.attribute("cats_int64s") or ())
    rows = np.eye(len(words or numbers), dtype=np.float32)
    if node.attribute("zeros", 1):
        rows = np.concatenate((rows, np.zeros_like(rows[:1])))
    places = made_once(lambda: {word: place for place, word in reversed(list(enumerate(words or numbers)))})

    def run(data: Any) -> Any:
        """A category that there is not has the row behind all others; an index beyond them is the evaluator's."""
        if bool(words) is bool(numbers) or (data.dtype == object) is not bool(words):
            raise Other
        whole = data if words else data.astype(np.int64)
        return rows.take(_looked_up(whole, places(), len(words or numbers), np.int64), axis=0)

    return run


ENCODERS: tuple[Plain, ...] = (
    Plain("CategoryMapper", 1, _category_mapper, numbers=False, domain=_DOMAIN),
    Plain("LabelEncoder", 2, _label_encoder, numbers=False, domain=_DOMAIN),
    Plain("OneHotEncoder", 1, _one_hot, numbers=False, domain=_DOMAIN),
)
