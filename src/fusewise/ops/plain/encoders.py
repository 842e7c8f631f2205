"""Labels and categories by a table: one look into a dictionary for each element, which for text is the fastest there is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from fusewise.errors import InvalidData
from fusewise.ir.graph import Node
from fusewise.ops.plain.classic import listed, made_once
from fusewise.ops.plain.row import Other, Plain

__all__ = ["ENCODERS"]

_DOMAIN = "ai.onnx.ml"

_DEFAULTS = {"int64s": -1, "floats": -0.0, "strings": "_Unused"}
"""What ONNX gives for a key that there is not, by the type of the values."""

_KINDS: Mapping[str, Any] = {"int64s": np.int64, "floats": np.float32, "strings": object}


class _Table(dict[Any, Any]):
    """Values by key, and one for all other keys: asked by `map`, it runs no line of Python for a key that is there."""

    __slots__ = ("_other",)

    def __init__(self, pairs: Iterable[tuple[Any, Any]], other: Any) -> None:
        super().__init__(pairs)
        self._other = other

    def __missing__(self, key: Any) -> Any:
        return self._other


def _looked_up(data: Any, table: _Table, kind: Any) -> np.ndarray:
    found = map(table.__getitem__, data.reshape(-1).tolist())
    flat = np.array(list(found), object) if kind is object else np.fromiter(found, kind, data.size)
    return flat.reshape(data.shape)


def _label_encoder(node: Node) -> Callable[..., Any]:
    keys, values = (
        next(
            ((kind, list(listed(node, f"{side}_{kind}") or ())) for kind in _KINDS if node.attribute(f"{side}_{kind}")),
            None,
        )
        for side in ("keys", "values")
    )

    def make() -> tuple[_Table, Any]:
        if keys is None or values is None or keys[0] == "floats":
            raise Other
        kind = values[0]
        default = node.attribute(f"default_{kind[:-1]}", _DEFAULTS[kind])
        return _Table(zip(reversed(keys[1]), reversed(values[1]), strict=True), default), _KINDS[kind]

    ready = made_once(make)
    return lambda data: _looked_up(data, *ready())


def _category_mapper(node: Node) -> Callable[..., Any]:
    words, numbers = list(node.attribute("cats_strings") or ()), list(node.attribute("cats_int64s") or ())

    number = node.attribute("default_int64", -1)
    word = node.attribute("default_string", "_Unused")
    by_word = made_once(lambda: _Table(zip(words, numbers, strict=True), number))
    by_number = made_once(lambda: _Table(zip(numbers, words, strict=True), word))

    def run(data: Any) -> Any:
        if data.dtype == object:
            return _looked_up(data, by_word(), np.int64)
        return _looked_up(data, by_number(), object)

    return run


def _one_hot(node: Node) -> Callable[..., Any]:
    words, numbers = list(node.attribute("cats_strings") or ()), list(node.attribute("cats_int64s") or ())
    known = words or numbers
    rows = np.eye(len(known), dtype=np.float32)
    if node.attribute("zeros", 1):
        rows = np.concatenate((rows, np.zeros_like(rows[:1])))
    places = made_once(lambda: _Table(((word, place) for place, word in reversed([*enumerate(known)])), len(known)))

    def run(data: Any) -> Any:
        """A category that there is not has the row behind all others, or is an error."""
        if bool(words) is bool(numbers) or (data.dtype == object) is not bool(words):
            raise Other
        whole = data if words else data.astype(np.int64)
        found = _looked_up(whole, places(), np.int64)
        try:
            return rows.take(found, axis=0)
        except IndexError:
            unknown = whole[found == len(known)].tolist()[0]
            raise InvalidData(
                f"node {node.label!r} (OneHotEncoder) finds {unknown!r} in its operand {node.inputs[0]!r}, which is none of its "
                f"{len(known)} categories, and has no row for others (zeros is 0): check the data"
            ) from None

    return run


ENCODERS: tuple[Plain, ...] = (
    Plain("CategoryMapper", 1, _category_mapper, numbers=False, domain=_DOMAIN),
    Plain("LabelEncoder", 2, _label_encoder, numbers=False, domain=_DOMAIN),
    Plain("OneHotEncoder", 1, _one_hot, numbers=False, domain=_DOMAIN),
)
