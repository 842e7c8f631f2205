"""From a model as users name it, a path, `zoo:NAME` or an object in memory, to its graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fusewise.compiled import SUFFIX
from fusewise.errors import UsageError, within_memory

if TYPE_CHECKING:
    import onnx

    from fusewise.frontend.given import Given
    from fusewise.ir.graph import Graph
    from fusewise.options import Options

    Source = str | Path | bytes | onnx.ModelProto | Graph

__all__ = ["ZOO", "graph_for", "load", "made_here", "name_of", "read"]

ZOO = "zoo:"
"""How names of models begin that are made here."""

_Model = TypeVar("_Model")


def made_here(model: _Model) -> _Model | Graph:
    """A model of the zoo, by name, as its graph; everything else as it is."""
    if isinstance(model, str) and model.startswith(ZOO):
        from fusewise.zoo import catalogue

        return catalogue.build(model.removeprefix(ZOO))
    return model


def name_of(model: object, graph: Graph) -> str:
    """What people call a model: as it was given, or as its graph is called."""
    return str(model) if isinstance(model, str | Path) else graph.name


@within_memory("the model is read")
def load(
    model: Source,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    symbols: Mapping[str, Given] | None = None,
    values: Mapping[str, Any] | None = None,
    free: bool = False,
) -> Graph:
    """The graph of a model with every dimension that can be known made a number, and inputs of given `values` constants.

    With `free`, dimensions that nobody gives a size are symbols, and all others are in terms of them. Raises `InvalidModel`,
    `UnsupportedModel`, `ResourceLimit`, or `UsageError` for a name that does not exist.
    """
    from fusewise.frontend.bind import bind
    from fusewise.frontend.given import given_shapes, given_symbols, resized

    graph, shapes, given = read(model), given_shapes(shapes), given_symbols(symbols)
    if graph.symbols and not values:
        return resized(graph, shapes, given, free)
    return bind(graph, shapes, given, values, free=free)


@within_memory("the model is read")
def read(model: Source) -> Graph:
    """The graph of a model as it was written: free dimensions stay symbols. Raises what `load` raises."""
    from fusewise.frontend import onnx_import
    from fusewise.ir.graph import Graph

    source = made_here(model)
    if isinstance(source, str | Path) and Path(source).suffix == SUFFIX:
        raise UsageError(f"{source} can only be run (`open_compiled`): it is compiled; give the model it comes from")
    return source if isinstance(source, Graph) else onnx_import.load(source)


def graph_for(model: Source, options: Options) -> Graph:
    """The graph of a model with the sizes and values that the options give, and free dimensions or caches that grow as they say."""
    free, shapes, symbols = not options.is_sized, options.shapes, options.symbols
    graph = load(made_here(model), shapes=shapes, symbols=symbols, values=options.values, free=free)
    if not options.grow:
        return graph
    from fusewise.passes.growing import grown_in_place

    return grown_in_place(graph)
