"""One use of an operator, and how the sweep over options writes many of them: products of attribute values over operands."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fusewise.ir.dtypes import dtype_named
from fusewise.ops.sampling import random_array

OPSET = 23

Operand = np.ndarray | list[np.ndarray] | None
"""A tensor, a sequence of tensors, or nothing."""


@dataclass(frozen=True)
class Case:
    """An operator with its operands (None: absent), attributes and number of outputs; `known` operands are constants."""

    op: str
    inputs: tuple[Operand, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    known: frozenset[int] = frozenset()
    opset: int = OPSET

    @property
    def label(self) -> str:
        """The case in a line."""
        operands = (_named(x) for x in self.inputs)
        contents = (
            f"{k}={self.inputs[k]}" for k in sorted(self.known) if k < len(self.inputs) and self.inputs[k] is not None
        )
        return f"{self.op}({', '.join(operands)}; {self.attributes}; {' '.join(contents)}) -> {self.outputs}".replace(
            "\n", ""
        )


def x(*shape: int, dtype: str = "float32", low: float = -2.0, high: float = 2.0, seed: int = 0) -> np.ndarray:
    """Random elements; the same arguments give the same ones."""
    key = zlib.crc32(repr((shape, dtype, low, high, seed)).encode())
    return random_array(dtype_named(dtype), shape, np.random.default_rng(key), low, high)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def scalar(value: Any, dtype: str = "float32") -> np.ndarray:
    return np.array(value, dtype_named(dtype).numpy)


def cases(
    op: str,
    operands: Sequence[Sequence[Operand]],
    *,
    outputs: int = 1,
    known: Sequence[int] = (),
    opset: int = OPSET,
    **choices: Sequence[Any],
) -> Iterator[Case]:
    """Every combination of `operands` with one value of each attribute; a value of None leaves the attribute out."""
    for given in operands:
        for values in itertools.product(*choices.values()):
            attributes = {name: value for name, value in zip(choices, values, strict=True) if value is not None}
            yield Case(op, tuple(given), attributes, outputs, frozenset(known), opset)


def _named(x: Operand) -> str:
    if isinstance(x, list):
        return f"[{', '.join(map(_named, x))}]"
    return "-" if x is None else f"{x.dtype}{list(x.shape)}"
