"""One try of one model: read, compile, run, with everything checked, and what came of it in a word."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
from tests.fusion.graphs import feeds_for, model_of, random_graph
from tests.fuzz.mutate import FLOATS, INTEGERS, mutant
from tests.fuzz.seeds import seed_models

import fusewise
from fusewise.errors import FusewiseError
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.types import OptionalType, SequenceType, TensorType, ValueType

__all__ = ["ENDINGS", "attempt_graph", "attempt_model", "attempt_mutant"]

ENDINGS = ("ran", "refused", "wrong")
"""Ways a try may end. `wrong` is a fault: an error that is not ours to the user, status 1, or other answers."""

_MOST_ELEMENTS = 1 << 20
"""Elements of inputs that are made up; a model that asks for more is only compiled."""
_TOLERANCE = 1e-5
"""Of the largest value or of 1, what inputs are made of: sums of a random graph may cancel."""

Ending = tuple[str, str]


def attempt_mutant(number: int) -> Ending:
    """Mutant `number`: it runs, or is refused in one sentence."""
    return attempt_model(mutant(seed_models(), number), number)


def attempt_model(data: bytes, number: int) -> Ending:
    """Load, compile and run a model, and clean its graph; its inputs are odd."""
    try:
        graph = fusewise.load(data)
        if number % 8 == 0:
            fusewise.to_onnx(fusewise.optimize(data))
        model = fusewise.compile(data, cache=False, threads=2, sanitize=True, warn=lambda _: None)
        kinds = {name: graph.types[name] for name in graph.inputs}
        feeds = _odd_feeds(kinds, Random(number))
        if feeds is None:
            return "ran", "inputs too large to make up"
        model.run(None, feeds)
    except FusewiseError as error:
        return _judged(error)
    except Exception as error:
        return "wrong", f"{type(error).__name__}: {error}"
    return "ran", ""


def attempt_graph(number: int) -> Ending:
    """A random graph: answers must be those of the same graph unfused and uncleaned."""
    graph = random_graph(Random(number), FLOAT32, nodes=4 + number % 24)
    feeds = feeds_for(graph, number)
    model = model_of(graph)
    try:
        found = fusewise.compile(model, cache=False, threads=2, sanitize=True).run(None, feeds)
        plain = _answers(model.SerializeToString(), feeds)
    except FusewiseError as error:
        return "wrong", f"{type(error).__name__}: {error}"
    for name, ours, theirs in zip(graph.outputs, found, plain, strict=True):
        bound = _TOLERANCE * max(1.0, float(np.abs(theirs).max(initial=0)))
        if ours.shape != theirs.shape or not np.allclose(ours, theirs, rtol=0, atol=bound, equal_nan=True):
            return "wrong", f"output {name!r} differs from ONNX Runtime's by more than {bound:.1e}"
    return "ran", ""


def _answers(data: bytes, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """ONNX Runtime's, with its optimisations off."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return list(onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, dict(feeds)))


def _judged(error: FusewiseError) -> Ending:
    """A refusal is one sentence on one line, and never says that the fault is ours."""
    text = str(error)
    fine = error.exit_status in (2, 3, 5) and text.strip() and "\n" not in text
    return ("refused" if fine else "wrong"), f"{type(error).__name__}: {text}"


def _odd_feeds(kinds: Mapping[str, ValueType], source: Random) -> dict[str, Any] | None:
    """A value for each input, a free dimension being 1; None when they would be large."""
    feeds: dict[str, Any] = {}
    for name, kind in kinds.items():
        value = _odd_value(kind, source)
        if value is None:
            return None
        feeds[name] = value
    return feeds


def _odd_value(kind: ValueType, source: Random) -> Any:
    if isinstance(kind, SequenceType):
        items = [_odd_value(kind.element, source) for _ in range(source.randrange(3))]
        return None if any(item is None for item in items) else items
    if isinstance(kind, OptionalType):
        return _odd_value(kind.element, source)
    assert isinstance(kind, TensorType)
    shape = tuple(dim if isinstance(dim, int) else 1 for dim in kind.shape or ())
    if math.prod(max(1, dim) for dim in shape) > _MOST_ELEMENTS:
        return None
    rng = np.random.default_rng(source.randrange(2**32))
    if kind.dtype.kind == "string":
        return np.array(rng.choice(["", "alpha", "ünï", "0"], shape), object)
    if kind.dtype.kind == "bool":
        return rng.integers(0, 2, shape).astype(bool).reshape(shape)
    odd = source.random() < 0.3
    if kind.dtype.is_integer:
        small = rng.integers(-3, 9, shape)
        extreme = np.array(INTEGERS, np.int64)[rng.integers(0, len(INTEGERS), shape)]
        chosen = np.where(rng.random(shape) < 0.2, extreme, small) if odd else np.abs(small) % 3
        with np.errstate(all="ignore"):
            return np.asarray(chosen).astype(kind.dtype.numpy).reshape(shape)
    numbers = rng.standard_normal(shape)
    special = np.array(FLOATS)[rng.integers(0, len(FLOATS), shape)]
    with np.errstate(all="ignore"):
        return (
            np.asarray(np.where(rng.random(shape) < 0.2, special, numbers) if odd else numbers)
            .astype(kind.dtype.numpy)
            .reshape(shape)
        )
