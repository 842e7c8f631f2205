"""Gives symbolic dimensions of inputs their sizes, inputs contents that are known, and all values their shapes.

What nobody gives a size stays free, a symbol (`frontend.free`), or is 1 where it is a batch, as is asked for.

A dimension is known by its symbol (`batch`, `N`), which may occur in several inputs and then has one size everywhere, or
by its input and position when it has no name. Sizes come from whole shapes, from symbols, or, for a batch, from the
default of 1.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fusewise.errors import InvalidModel, UsageError
from fusewise.frontend.declared import contradicts
from fusewise.frontend.free import in_symbols, ranges_of, with_names
from fusewise.frontend.infer_types import infer_graph
from fusewise.ir.graph import Constant, Graph
from fusewise.ir.size import Symbol
from fusewise.ir.types import Dim, MapType, OptionalType, SequenceType, TensorType, ValueType

__all__ = ["Slot", "bind"]

_BATCH_NAMES = ("batch", "batch_size", "batchsize", "n", "b", "bs", "bsz", "batch_dim", "num_batch", "minibatch")

Slot = str | tuple[str, int]
"""A free dimension: its symbol, or the input and position of one without."""


def bind(
    graph: Graph,
    shapes: Mapping[str, Sequence[int]] | None = None,
    symbols: Mapping[str, int | Symbol] | None = None,
    values: Mapping[str, Any] | None = None,
    *,
    free: bool = False,
) -> Graph:
    """The graph with every dimension of its tensor inputs a number or a symbol, and all types inferred from them.

    `shapes` gives whole shapes by input, `symbols` sizes by symbol, or a `Symbol` with the range and the hint of one that stays
    free. Dimensions that neither gives stay free with `free`; without, they are 1 when they are a batch (the first dimension of
    an input, or one named like it), and there is a `UsageError` that lists every other. It also says what does not fit. Inputs
    that `values` gives contents are constants of the result, and none of its inputs.
    """
    if free:
        graph = with_names(graph)
    ranges = {name: size for name, size in (symbols or {}).items() if isinstance(size, Symbol)}
    contents = {name: _contents(graph, name, given) for name, given in (values or {}).items()}
    stated = {name: array.shape for name, array in contents.items()}
    for name in sorted(stated.keys() & (shapes or {}).keys()):
        if tuple((shapes or {})[name]) != stated[name]:
            raise UsageError(f"the shape given for input {name!r} is not that of the value given, {list(stated[name])}")
    shapes = {**(shapes or {}), **stated}
    sizes = _sizes(graph, shapes, symbols or {}, free or frozenset(ranges))
    if contents:
        graph = _with_contents(graph, contents)
        shapes = {name: shape for name, shape in shapes.items() if name not in contents}
    open_dims: list[str] = []
    inputs: dict[str, TensorType] = {}
    for name in graph.inputs:
        kind = graph.types[name]
        if isinstance(kind, TensorType):
            shape = kind.shape if name not in shapes else tuple(shapes[name])
            if shape is None:
                open_dims.append(f"the whole shape of {name!r}")
                continue
            bound = tuple(_bound(name, i, dim, sizes) for i, dim in enumerate(shape))
            named = ranges if not free else {dim: dim for dim in bound}
            open_dims += [
                _describe(name, i, dim) for i, dim in enumerate(bound) if not isinstance(dim, int) and dim not in named
            ]
            inputs[name] = TensorType(kind.dtype, bound)
    if open_dims:
        raise UsageError(f"give a size to {'; '.join(open_dims)}; for example {_example(graph, sizes)}")
    known = {slot: size for slot, size in sizes.items() if not _is_doubtful(graph, shapes, slot, size)}
    declared = {name: _substituted(kind, known) for name, kind in graph.types.items()}
    try:
        if not all(kind.is_fixed for kind in inputs.values()):
            return in_symbols(graph, inputs, declared, _ranged(ranges_of(graph), ranges))
        return graph.replace(types=infer_graph(graph, inputs, declared).types)
    except InvalidModel as error:
        blamed = _blamed(graph, shapes, contents)
        if not blamed:
            raise
        raise UsageError(f"{blamed} {error}") from error


def _blamed(graph: Graph, shapes: Mapping[str, Sequence[int]], contents: Collection[str]) -> str:
    """The beginning of a sentence about what was given and does not fit; empty where all of it may."""
    for name, given in shapes.items():
        kind = graph.types[name]
        if isinstance(kind, TensorType) and contradicts(TensorType(kind.dtype, tuple(given)), kind):
            text = "x".join(map(str, given))
            return f"the shape {text} for input {name!r} does not fit: the model states {kind}, and"
    return f"the values given for {_listed(tuple(contents))} do not fit:" if contents else ""


def _ranged(stated: Mapping[str, Symbol], given: Mapping[str, Symbol]) -> dict[str, Symbol]:
    """Ranges by name: those given, and those that the model states where it is only said which size to plan for."""
    plain = Symbol("")
    own = {
        name: replace(stated[name], hint=one.hint)
        for name, one in given.items()
        if name in stated and (one.low, one.high) == (plain.low, plain.high)
    }
    return {**stated, **given, **own}


def _sizes(
    graph: Graph, shapes: Mapping[str, Sequence[int]], symbols: Mapping[str, int | Symbol], free: bool | frozenset[str]
) -> dict[Slot, int]:
    """The size of every dimension that is given or that has a default; those that are `free` have none."""
    tensors = {name: kind for name in graph.inputs if isinstance(kind := graph.types[name], TensorType)}
    known = {dim for kind in tensors.values() for dim in kind.shape or () if isinstance(dim, str)}
    for name in shapes:
        if name not in tensors:
            raise UsageError(f"a shape is given for {name!r}, but the model's inputs are {_listed(graph.inputs)}")
    for name, size in symbols.items():
        if name not in known:
            raise UsageError(
                f"a size is given for dimension {name!r}, but the model's free dimensions are {_listed(sorted(known))}"
            )
        if not isinstance(size, Symbol) and size < 0:
            raise UsageError(f"dimension {name!r} cannot have the size {size}")
    stated = {name: size for name, size in symbols.items() if not isinstance(size, Symbol)}
    sizes: dict[Slot, int] = {}
    sizes.update(stated)
    for name, shape in shapes.items():
        _take_shape(name, tuple(shape), tensors[name], sizes, stated)
    for name in symbols.keys() & sizes.keys() - stated.keys():
        raise UsageError(
            f"dimension {name!r} would be free and, by a shape that is given, {sizes[name]}; give one of them"
        )
    for name, kind in tensors.items():
        if name in shapes or free is True:
            continue
        for i, dim in enumerate(kind.shape or ()):
            slot = dim if isinstance(dim, str) else (name, i)
            if not isinstance(dim, int) and _is_batch(i, dim) and not (free and dim in free):
                sizes.setdefault(slot, 1)
    return sizes


def _contents(graph: Graph, name: str, given: Any) -> np.ndarray:
    """What is given for an input as an array of its type; `UsageError` where it is none."""
    kind = graph.types.get(name)
    if name not in graph.inputs or not isinstance(kind, TensorType):
        raise UsageError(
            f"a value is given for {name!r}, but the model's inputs that are tensors are {_listed(_tensors(graph))}"
        )
    try:
        found = np.array(given)
        with np.errstate(invalid="ignore"):
            array = found.astype(kind.dtype.numpy)
        fits = (kind.dtype.is_float and found.dtype.kind in "iuf") or bool(np.all(array == found))
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise UsageError(f"the value given for input {name!r} is not of its type, {kind}")
    return array


def _tensors(graph: Graph) -> list[str]:
    return [name for name in graph.inputs if isinstance(graph.types[name], TensorType)]


def _with_contents(graph: Graph, contents: Mapping[str, np.ndarray]) -> Graph:
    constants = {name: Constant(array) for name, array in contents.items()}
    return graph.replace(
        inputs=tuple(name for name in graph.inputs if name not in contents),
        constants={**graph.constants, **constants},
        types={**graph.types, **{name: constant.type for name, constant in constants.items()}},
    )


def _take_shape(
    name: str, given: tuple[int, ...], kind: TensorType, sizes: dict[Slot, int], stated: Mapping[str, int]
) -> None:
    """Check one given shape against the input's type and note the sizes it gives; those that are `stated` must be the same.

    A size that the model states, by number or by symbol, and that is not the one given is told of and no more.
    """
    text = "x".join(map(str, given))
    if any(size < 0 for size in given):
        raise UsageError(f"the shape {text} for input {name!r} has a negative dimension")
    if kind.shape is None:
        return
    if len(given) != len(kind.shape):
        raise UsageError(f"the shape {text} for input {name!r} has {len(given)} dimensions, but the model wants {kind}")
    for i, (size, dim) in enumerate(zip(given, kind.shape, strict=True)):
        if isinstance(dim, int):
            if dim != size:
                sentence = f"the model states {kind} of its input {name!r}; it is taken to be {text}, as given"
                warnings.warn(sentence, RuntimeWarning, stacklevel=5)
            continue
        slot = dim if isinstance(dim, str) else (name, i)
        if sizes.setdefault(slot, size) == size:
            continue
        sentence = f"dimension {dim!r} would be {sizes[slot]} and, by the shape {text} of input {name!r}, {size}"
        if dim in stated:
            raise UsageError(f"{sentence}; it must be the same everywhere")
        warnings.warn(f"{sentence}: each is taken to be as given", RuntimeWarning, stacklevel=5)


def _is_doubtful(graph: Graph, shapes: Mapping[str, Sequence[int]], slot: Slot, size: int) -> bool:
    """Has some shape that is given another size where the model states the same symbol?"""
    kinds = ((graph.types[name], shape) for name, shape in shapes.items())
    stated = (
        zip(kind.shape, shape, strict=True) for kind, shape in kinds if isinstance(kind, TensorType) and kind.shape
    )
    return any(dim == slot and given != size for pairs in stated for dim, given in pairs)


def _is_batch(position: int, dim: Dim) -> bool:
    return position == 0 or (isinstance(dim, str) and dim.lower() in _BATCH_NAMES)


def _bound(name: str, position: int, dim: Dim, sizes: Mapping[Slot, int]) -> Dim:
    if isinstance(dim, int):
        return dim
    return sizes.get(dim if isinstance(dim, str) else (name, position), dim)


def _describe(name: str, position: int, dim: Dim) -> str:
    return f"dimension {position} of input {name!r}" + (f" ({dim})" if isinstance(dim, str) else "")


def _example(graph: Graph, sizes: Mapping[Slot, int]) -> str:
    """Options that would do, with every free dimension as 128."""
    options = []
    for name in graph.inputs:
        kind = graph.types[name]
        if not isinstance(kind, TensorType) or kind.is_static:
            continue
        if kind.shape is None:
            options.append(f"--shape {name}=1x3x224x224")
            continue
        dims = [_bound(name, i, dim, sizes) for i, dim in enumerate(kind.shape)]
        options.append(f"--shape {name}={'x'.join(str(dim if isinstance(dim, int) else 128) for dim in dims)}")
    return " ".join(options)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def _substituted(kind: ValueType, sizes: Mapping[Slot, int]) -> ValueType:
    """A type with the symbols that have a size replaced by it."""
    if isinstance(kind, SequenceType):
        return SequenceType(_substituted(kind.element, sizes))
    if isinstance(kind, OptionalType):
        return OptionalType(_substituted(kind.element, sizes))
    if isinstance(kind, MapType) or kind.shape is None:
        return kind
    return TensorType(kind.dtype, tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in kind.shape))
