"""Gradients as a user asks for them: a model in, its graph with the slopes of outputs out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fusewise.errors import within_memory

if TYPE_CHECKING:
    from fusewise.ir.graph import Graph
    from fusewise.sources import Source

__all__ = ["gradient"]


@within_memory("the gradient is written")
def gradient(
    model: Source,
    *,
    of: Sequence[str] | None = None,
    by: Sequence[str] | None = None,
    weights: bool = False,
    shapes: Mapping[str, Sequence[int]] | None = None,
    symbols: Mapping[str, int] | None = None,
) -> Graph:
    """The graph of a model with outputs `gradient_of_O_by_V` behind its own: the slope of the sum of O by every element of V.

    `of` are floating outputs (None: all), `by` floating inputs, weights or values in between (None: all inputs); with `weights`
    every floating constant of more than one element, too.

    Raises what `load` raises, `UsageError` for a name that is no such value, and `UnsupportedModel` that names an operator without
    a rule.
    """
    from fusewise import api
    from fusewise.passes.gradient.first_order import floating_inputs, weights_of, with_gradients

    graph = api.load(model, shapes=shapes, symbols=symbols)
    if weights:
        by = [*(floating_inputs(graph) if by is None else by), *weights_of(graph)]
    return with_gradients(graph, of, by)
