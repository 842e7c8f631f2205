"""Random numbers, by NumPy's PCG64 (O'Neill, 2014), a generator for each node.

The attribute `seed` is its seed, as the float32 that it is: every run then begins at the same place, so that a run gives what its
inputs and the model say. Without one a generator is seeded by the system when the model is compiled or opened, and goes on from
run to run. ONNX names no generator: other runtimes give other numbers of the same distributions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fusewise.ir.dtypes import dtype_of_onnx
from fusewise.ir.graph import Node
from fusewise.ops.plain.row import Given, Plain, of_any

__all__ = ["CHANCE"]

Draw = Callable[[Node, np.random.Generator, tuple[int, ...], type[Any]], np.ndarray]
"""Numbers of a shape, float32 or float64."""


def _generator(node: Node) -> Callable[[], np.random.Generator]:
    seed = node.attribute("seed")
    kind = np.random.PCG64(None if seed is None else int(np.float32(seed).view(np.uint32)))
    found, first = np.random.Generator(kind), kind.state

    def start() -> np.random.Generator:
        if seed is not None:
            kind.state = first
        return found

    return start


def _numbers(draw: Draw) -> Given:
    """Of the attribute `shape`, or as many as there are elements in an operand; in the type that is asked for, or the operand's."""

    def make(node: Node) -> Callable[..., Any]:
        start, shape, code = _generator(node), node.attribute("shape"), node.attribute("dtype")

        def run(like: Any = None) -> Any:
            wanted = dtype_of_onnx(code).numpy if code else np.dtype(np.float32) if like is None else like.dtype
            wide: type[Any] = np.float64 if wanted == np.float64 else np.float32
            found = draw(node, start(), tuple(shape) if like is None else like.shape, wide)
            return found.astype(wanted, copy=False)

        return run

    return make


def _normal(node: Node, random: np.random.Generator, shape: tuple[int, ...], kind: type[Any]) -> np.ndarray:
    found = random.standard_normal(shape, kind)
    found *= kind(node.attribute("scale", 1.0))
    found += kind(node.attribute("mean", 0.0))
    return found


def _uniform(node: Node, random: np.random.Generator, shape: tuple[int, ...], kind: type[Any]) -> np.ndarray:
    low, high = node.attribute("low", 0.0), node.attribute("high", 1.0)
    found = random.random(shape, kind)
    found *= kind(high - low)
    found += kind(low)
    return found


def _bernoulli(node: Node) -> Callable[..., Any]:
    start, code = _generator(node), node.attribute("dtype")

    def run(chance: Any) -> Any:
        wide = np.promote_types(chance.dtype, np.float32)
        drawn = start().random(chance.shape, wide.type) < chance.astype(wide)
        return drawn.astype(dtype_of_onnx(code).numpy if code else chance.dtype)

    return run


def _multinomial(node: Node) -> Callable[..., Any]:
    """A row's outcomes are found in the sums of its probabilities, which begin at the row's number: one search for all."""
    start, count, code = _generator(node), node.attribute("sample_size", 1), node.attribute("dtype", 6)

    def run(logarithms: Any) -> Any:
        rows, outcomes = logarithms.shape
        chances = logarithms.astype(np.float64)
        chances -= np.maximum.reduce(chances, axis=1, keepdims=True, initial=-np.inf)
        np.exp(chances, out=chances)
        drawn = start().random((rows, count))
        if rows == 1 and outcomes:  # mostly, and then nothing tells rows apart
            sums = np.add.accumulate(chances[0])
            drawn *= sums[-1]
            found = sums.searchsorted(drawn, side="right")
        else:
            sums, first = np.add.accumulate(chances, axis=1), np.arange(rows)[:, None]
            sums /= sums[:, -1:]
            sums += first
            drawn += first
            found = sums.reshape(-1).searchsorted(drawn, side="right")
            found -= first * outcomes
        return np.minimum(found, outcomes - 1, out=found).astype(dtype_of_onnx(code).numpy)

    return run


CHANCE: tuple[Plain, ...] = (
    *(of_any(f"RandomNormal{like}", 1, _numbers(_normal)) for like in ("", "Like")),
    *(of_any(f"RandomUniform{like}", 1, _numbers(_uniform)) for like in ("", "Like")),
    of_any("Bernoulli", 15, _bernoulli),
    of_any("Multinomial", 7, _multinomial),
)
