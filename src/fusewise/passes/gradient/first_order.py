"""Add gradients: behind the outputs come the slopes of the sum of each floating one by each floating input. Numeric class exact.

The outputs that there were are computed as before. What their slopes need of them is not computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusewise.errors import InvalidModel, UnsupportedModel, UsageError
from fusewise.ir.graph import Graph, Node
from fusewise.ir.size import SizeNeeded, Undecided
from fusewise.ir.types import TensorType
from fusewise.passes.canonical_ops import LOWEST_OPSET
from fusewise.passes.edit import Edit
from fusewise.passes.gradient.reverse import Sweep
from fusewise.passes.hints import hint, with_hint
from fusewise.passes.notation import Notation, TensorValue
from fusewise.trace import Trace
from fusewise.words import nearest

__all__ = ["GRADIENT", "first_order_gradient", "floating_inputs", "weights_of", "with_gradients"]

GRADIENT = "fusewise.gradient"
"""The key of the metadata that says, of a graph with gradients, how many outputs came first."""


def first_order_gradient(graph: Graph, trace: Trace) -> Graph:
    """Gradients of the sum of every floating output by every floating input, behind the outputs.

    y = Sin(x)   ->   y = Sin(x); gradient_of_y_by_x = Cos(x)

    Nothing to do where there are none: no floating input, no floating output, or a graph that has its gradients.
    """
    of, by = _floats(graph, graph.outputs), floating_inputs(graph)
    if not of or not by or hint(graph, GRADIENT):
        return graph
    if not trace.allows("gradient", "FirstOrderGradient", of, f"by {', '.join(by)}"):
        return graph
    return with_gradients(graph, of, by)


def floating_inputs(graph: Graph) -> tuple[str, ...]:
    """The inputs that there is a slope by."""
    return _floats(graph, graph.inputs)


def weights_of(graph: Graph) -> tuple[str, ...]:
    """The floating constants of more than one element that some node reads."""
    return tuple(
        value
        for value in _floats(graph, graph.constants)
        if graph.users[value] and graph.constants[value].type.size > 1
    )


def with_gradients(graph: Graph, of: Sequence[str] | None = None, by: Sequence[str] | None = None) -> Graph:
    """The graph with an output `gradient_of_O_by_V` for every O of `of` and V of `by`: the slope of the sum of O by V, shaped as V.

    `of` are floating outputs (None: all), `by` floating values: inputs, constants or results of nodes (None: all inputs). Where O
    does not depend on V the slope is zeros. Raises `UsageError` for a name that is no such value, and `UnsupportedModel` for an
    operator on the way that has no rule, or a value whose shape is not known, or not as a number where the rule wants one.
    """
    try:
        return _with_gradients(graph, of, by)
    except (SizeNeeded, Undecided, InvalidModel) as error:
        free = ", ".join(symbol.name for symbol in graph.symbols)
        if not free:
            raise
        raise UnsupportedModel(f"these gradients depend on numbers for sizes: give some to {free}") from error


def _with_gradients(graph: Graph, of: Sequence[str] | None, by: Sequence[str] | None) -> Graph:
    if graph.opset < LOWEST_OPSET:
        raise UnsupportedModel(f"gradients are written in opset {LOWEST_OPSET}, and the graph is in {graph.opset}")
    chosen_of = _checked(graph, of, _floats(graph, graph.outputs), "output")
    usual = floating_inputs(graph)
    if by is None and not usual:
        raise UsageError("the model has no floating input: say by which values the gradient is to be taken")
    chosen_by = _checked(graph, usual if by is None else by, _floats(graph, graph.types), "value")
    edit = Edit(graph)
    g = Notation(edit, "gradient")
    sweep = Sweep(edit, g, graph.nodes, chosen_by)
    results: list[str] = []
    for output in chosen_of:
        for value, slope in zip(chosen_by, sweep.slopes(output, chosen_by), strict=True):
            results.append(_named(g, f"gradient_of_{output}_by_{value}", slope, g.value(value)))
    nodes = (*graph.nodes, *_needed(g.nodes, results))
    kept = with_hint(graph, GRADIENT, str(len(graph.outputs)))
    return kept.replace(
        nodes=nodes, outputs=(*graph.outputs, *results), types=edit.types, constants=edit.constants
    ).pruned()


def _floats(graph: Graph, values: Iterable[str]) -> tuple[str, ...]:
    kinds = ((value, graph.types[value]) for value in dict.fromkeys(values))
    return tuple(value for value, kind in kinds if isinstance(kind, TensorType) and kind.dtype.is_float)


def _checked(graph: Graph, names: Sequence[str] | None, known: Sequence[str], what: str) -> Sequence[str]:
    """The names, each once, or all that are known; `UsageError` for one that is not."""
    for name in () if names is None else names:
        if name not in known:
            some = ", ".join([*known[:4], *(["..."] if len(known) > 4 else [])]) or "none"
            hint = nearest(name, known, f"there are: {some}", most=2)
            about = f"it is {graph.types[name]}" if name in graph.types else hint
            raise UsageError(f"there is no floating {what} {name!r}; {about}")
    return tuple(dict.fromkeys(known if names is None else names))


def _named(g: Notation, name: str, slope: TensorValue | None, like: TensorValue) -> str:
    """The slope under its name; zeros where there is none."""
    found = g.fill(0, like.dims, like.dtype) if slope is None else slope
    result = g.edit.value(name, found.kind)
    g.nodes.append(Node("Identity", (found.name,), (result,), name=result))
    return result


def _needed(nodes: Sequence[Node], results: Iterable[str]) -> list[Node]:
    """Those of the new nodes that the results need."""
    needed, kept = set(results), list[Node]()
    for node in reversed(nodes):
        if not needed.isdisjoint(node.writes):
            needed.update(node.reads)
            kept.append(node)
    return kept[::-1]
