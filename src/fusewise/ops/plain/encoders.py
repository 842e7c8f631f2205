"""Labels and categories by a table: one look into a dictionary for each element, which for text is the fastest there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fusewise.ir.graph import Node
from fusewise.ops.plain.classic import listed
from fusewise.ops.plain.row import Other, Plain

__all__ = ["ENCODERS"]

_DOMAIN = "ai.onnx.ml"

_DEFAULTS = {"int64s": -1, "floats": -0.0, "strings": "_Unused"}
"""What ONNX gives for a key that there is not, by the type of the values."""

_KINDS: Mapping[str, Any] = {"int64s": np.int64, "floats": np.float32, "strings": object}


def _texts(values: Any) -> list[Any]:
    return [value.decode() if isinstance(value, bytes) else value for value in values]


def _looked_up(data: Any, table: Mapping[Any, Any], default: Any, kind: Any) -> np.ndarray:
    find = table.get
    return np.array([find(key, default) for key in data.reshape(-1).tolist()], kind).reshape(data.shape)


def _label_encoder(node: Node) -> Callable[..., Any]:
    keys, values = (
        next(
            (
                (kind, _texts(listed(node, f"{side}_{kind}") or ()))
                for kind in _KINDS
                if node.attribute(f"{side}_{kind}")
            ),
            None,
        )
        for side in ("keys", "values")
    )

    def run(data: Any) -> Any:
        if keys is None or values is None or keys[0] == "floats":
            raise Other
        kind = values[0]
        (default,) = _texts([node.attribute(f"default_{kind[:-1]}", _DEFAULTS[kind])])
        table = dict(zip(reversed(keys[1]), reversed(values[1]), strict=True))
        return _looked_up(data, table, default, _KINDS[kind])

    return run


def _category_mapper(node: Node) -> Callable[..., Any]:
    words, numbers = _texts(node.attribute("cats_strings") or ()), list(node.attribute("cats_int64s") or ())

    def run(data: Any) -> Any:
        if data.dtype == object:
            return _looked_up(
                data, dict(zip(words, numbers, strict=True)), node.attribute("default_int64", -1), np.int64
            )
        (default,) = _texts([node.attribute("default_string", "_Unused")])
        return _looked_up(data, dict(zip(numbers, words, strict=True)), default, object)

    return run


ENCODERS: tuple[Plain, ...] = (
    Plain("CategoryMapper", 1, _category_mapper, numbers=False, domain=_DOMAIN),
    Plain("LabelEncoder", 2, _label_encoder, numbers=False, domain=_DOMAIN),
)
