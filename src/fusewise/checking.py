"""Does a graph that is written to a file give the answers of the model it was made from? Both are run by a reference."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fusewise.benchmarking.accuracy import relative_error, tolerance_of
from fusewise.benchmarking.describe import description
from fusewise.benchmarking.inputs import random_feeds
from fusewise.benchmarking.reference import answer
from fusewise.errors import ResourceLimit, UnsupportedModel, UsageError
from fusewise.frontend.given import sized_at
from fusewise.frontend.onnx_export import as_file
from fusewise.ir.at_sizes import at_sizes
from fusewise.ir.deciding import hint, hinted_bytes
from fusewise.ir.graph import Graph
from fusewise.ir.size import size_of
from fusewise.runtime.host import check_memory

__all__ = ["AnswerCheck", "answers_checked"]

_DRAWS = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
_SLOW_MACS = 2_000_000_000
"""More multiply-accumulates than ONNX's own evaluator does in a time that one waits for."""


@dataclass(frozen=True)
class AnswerCheck:
    """What comes of comparing the answers of two models.

    `output` is the one that is furthest from what it may differ by, `error` its largest difference in shares of its largest value,
    `tolerance` what that may be. `sizes` are those of free dimensions. `own` is how far the answers of the model itself move when
    inputs move by their last bits, found only where `error` is too large. `unchecked` says why nothing was compared.
    """

    reference: str = ""
    output: str = ""
    error: float = 0.0
    tolerance: float = 0.0
    sizes: Mapping[str, int] | None = None
    own: float | None = None
    unchecked: str = ""

    @property
    def agrees(self) -> bool:
        """Is no difference larger than it may be, or than the model's own roundings make?"""
        return self.error <= max(self.tolerance, self.own or 0.0)

    @property
    def sentence(self) -> str:
        """What it comes to."""
        if self.unchecked:
            return f"not checked: {self.unchecked}"
        at = ", ".join(f"{name}={size}" for name, size in (self.sizes or {}).items())
        where = f", on random inputs{f' of {at}' if at else ''}"
        figures = f"{self.output!r} differs by {self.error:.1e}, at most {self.tolerance:.0e}{where}"
        if self.error <= self.tolerance:
            return f"agree in {self.reference}: {figures}"
        if self.agrees:
            own = f"the model's own differ by {self.own:.1e} where inputs move by their last bits"
            return f"agree in {self.reference} as far as roundings let them: {figures}; {own}"
        return f"differ in {self.reference}: {figures}"

    @property
    def summary(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        return {"agrees": None if self.unchecked else self.agrees, "sentence": self.sentence, **asdict(self)}


def answers_checked(source: object, before: Graph, after: Graph, write: Callable[[Path], None]) -> AnswerCheck:
    """Compare the model that a user gave as `source`, of which `before` is the graph, with the file that `write` makes of `after`.

    Where dimensions are free, at the sizes to plan for. What would not fit into memory, or draws at random, is not checked.
    """
    sizes = {symbol.name: hint(size_of(symbol)) for symbol in before.symbols}
    try:
        sized = sized_at(before, {})
        reason = _unsuited(sized, at_sizes(after, sizes) if after.symbols else after)
        if reason:
            return AnswerCheck(unchecked=reason, sizes=sizes)
        feeds = random_feeds(sized)
        with tempfile.TemporaryDirectory(prefix="fusewise-check-") as folder:
            written = Path(folder) / "written.onnx"
            write(written)
            return _compared(as_file(source, sized, Path(folder)), written, sized, feeds, sizes)
    except (UnsupportedModel, ResourceLimit, UsageError) as error:
        return AnswerCheck(unchecked=str(error), sizes=sizes)


def _unsuited(before: Graph, after: Graph) -> str:
    """Why two graphs are not run; empty where they are."""
    drawn = next((node.op for node in before.nodes if node.op in _DRAWS), "")
    if drawn:
        return f"{drawn} draws at random"
    macs = description(before)["macs"]
    if find_spec("onnxruntime") is None and (macs or 0) > _SLOW_MACS:
        return f"{macs / 1e9:.1f} G multiply-accumulates take long without ONNX Runtime (pip install onnxruntime)"
    between = max(sum(map(hinted_bytes, graph.types.values())) for graph in (before, after))
    weights = max(sum(constant.type.nbytes for constant in graph.constants.values()) for graph in (before, after))
    check_memory(between + 3 * weights, "running it twice")
    return ""


def _compared(model: Path, written: Path, graph: Graph, feeds: Mapping[str, Any], sizes: dict[str, int]) -> AnswerCheck:
    """The two files on the same inputs, and where they differ the model on inputs that are as good as the same."""
    reference, expected = answer(model, feeds)
    other, found = answer(written, feeds)
    if len(found) < len(expected):
        return AnswerCheck(reference, graph.outputs[len(found)], np.inf, 0.0, sizes)
    found = found[: len(expected)]  # passes that add outputs add them behind
    errors = [relative_error(a, b) for a, b in zip(found, expected, strict=True)]
    limits = [tolerance_of(value) for value in expected]
    if not errors:
        return AnswerCheck(reference, sizes=sizes)
    excess = [error / limit if limit else np.inf if error else 0.0 for error, limit in zip(errors, limits, strict=True)]
    worst = int(np.argmax(excess))
    own = None
    if errors[worst] > limits[worst]:
        own = relative_error(answer(model, _moved(feeds))[1][worst], expected[worst])
    told = reference if reference == other else f"{reference} and {other}"
    return AnswerCheck(told, graph.outputs[worst], errors[worst], limits[worst], sizes, own)


def _moved(feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs whose floats are moved to their neighbours, up and down in turn."""
    moved = {}
    for name, value in feeds.items():
        if isinstance(value, np.ndarray) and value.dtype in (np.float32, np.float64):
            up = np.arange(value.size).reshape(value.shape) % 2 == 0
            value = np.nextafter(value, np.where(up, np.inf, -np.inf).astype(value.dtype))
        moved[name] = value
    return moved
