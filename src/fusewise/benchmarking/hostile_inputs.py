"""Inputs that models meet in the field and random ones never have: zeros, extremes, infinities, NaN, empty and odd sizes.

Each set changes one thing, so that what differs is known by its name. What a model takes as an index, an axis or a size keeps
to what it means: the formal names of ONNX's schemas tell where those are.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle

import numpy as np
import onnx

from fusewise.benchmarking.inputs import MOVES, index_bounds, random_feeds
from fusewise.frontend.bind import Slot
from fusewise.ir.deciding import hint
from fusewise.ir.dtypes import DType
from fusewise.ir.graph import Graph, Node
from fusewise.ir.size import Symbol, size_of
from fusewise.ir.types import TensorType, ValueType

__all__ = ["EMPTY", "ODD", "ORDINARY", "free_shapes", "free_sizes", "hostile_feeds"]

ORDINARY, EMPTY, ODD = "random", "empty", "odd sizes"
_ODD = (3, 5, 7, 9, 11)
_PRIMES = (2, 37, 41, 53, 61)

_STRUCTURE = frozenset(
    "shape sizes scales roi k K axes axis starts ends steps pads repeats split depth M start limit delta position"
    " position_ids output_shape image_shape block_shape indices I batch_indices target labels sequence_lens"
    " nonpad_kv_seqlen write_indices dft_length frame_step frame_length max_output_boxes_per_class num_mel_bins"
    " sample_rate size".split()
)
"""Formal names of operands whose values decide a shape, a place or how long something takes."""

_PARTIAL = frozenset({"Div", "Mod", "BitShift", "Pow"})
"""Operators that do not take every integer: a division by zero ends a process of some runtimes."""

_BODIES = frozenset({"Loop", "Scan", "SequenceMap"})

_SPECIAL = 16  # elements of a tensor that are made special at most
_SHARE = 50  # one of so many elements is special


def hostile_feeds(graph: Graph, seed: int = 0) -> dict[str, dict[str, object]]:
    """Sets of inputs by name, the ordinary one first; sets that would change nothing are left out."""
    ordinary = random_feeds(graph, seed)
    bounds = index_bounds(graph)
    sets = {ORDINARY: ordinary}
    for name, change in _CHANGES.items():
        feeds = {value: _changed(graph, value, array, change, bounds[value], seed) for value, array in ordinary.items()}
        if any(feeds[value] is not ordinary[value] for value in feeds):
            sets[name] = feeds
    return sets


def free_shapes(
    graph: Graph, shapes: Mapping[str, Sequence[int]], symbols: Mapping[str, int]
) -> dict[str, dict[str, tuple[int, ...]]]:
    """The shapes of inputs for `EMPTY` and `ODD`, where dimensions are free that neither `shapes` nor `symbols` gives a size.

    Each free dimension is 0 in the first; in the second each symbol has an odd size of its own.
    """
    found = {}
    for name, sizes in ((EMPTY, cycle((0,))), (ODD, cycle(_ODD))):
        given: dict[Slot, int] = dict(symbols.items())
        chosen: dict[str, tuple[int, ...]] = {value: tuple(shape) for value, shape in shapes.items()}
        for value in chosen:
            given.update(zip(_slots(value, graph.types.get(value)), chosen[value], strict=False))
        before = len(given)
        for value in graph.inputs:
            kind = graph.types[value]
            if value in chosen or not isinstance(kind, TensorType) or kind.shape is None or kind.is_static:
                continue
            slots = _slots(value, kind)
            chosen[value] = tuple(
                dim if isinstance(dim, int) else given[slot] if slot in given else given.setdefault(slot, next(sizes))
                for slot, dim in zip(slots, kind.shape, strict=True)
            )
        if len(given) > before:
            found[name] = chosen
    return found


def free_sizes(symbols: Sequence[Symbol]) -> dict[str, dict[str, int]]:
    """Values of free dimensions, by the names of these sets: those to plan for, `ODD` ones, all of them one, and none."""
    found = {ORDINARY: {symbol.name: hint(size_of(symbol)) for symbol in symbols}}
    sets = ((ODD, cycle(_ODD)), ("sizes of one", cycle((1,))), ("large primes", cycle(_PRIMES)), (EMPTY, cycle((0,))))
    for name, sizes in sets:
        chosen = {one.name: min(max(size, one.low), one.high) for one, size in zip(symbols, sizes, strict=False)}
        if chosen not in found.values():
            found[name] = chosen
    return found


def _slots(value: str, kind: ValueType | None) -> list[Slot]:
    shape = kind.shape if isinstance(kind, TensorType) else None
    return [dim if isinstance(dim, str) else (value, i) for i, dim in enumerate(shape or ())]


Change = Callable[[np.ndarray, DType, int | None, np.random.Generator], np.ndarray]


def _changed(graph: Graph, value: str, given: object, change: Change, bound: int | None, seed: int) -> object:
    kind = graph.types[value]
    if not isinstance(kind, TensorType) or not isinstance(given, np.ndarray) or not given.size:
        return given
    if kind.dtype.kind not in ("float", "int", "uint", "bool") or (bound is None and _is_structure(graph, value)):
        return given
    rng = np.random.default_rng([seed, zlib.crc32(value.encode()), 1])
    found = change(given, kind.dtype, bound, rng)
    return given if found is given else found.reshape(given.shape)


def _zeros(array: np.ndarray, dtype: DType, bound: int | None, rng: np.random.Generator) -> np.ndarray:
    return np.zeros_like(array)


def _smallest(array: np.ndarray, dtype: DType, bound: int | None, rng: np.random.Generator) -> np.ndarray:
    """Zeros of both signs, numbers below the smallest normal one and the smallest normal one, among ordinary ones."""
    if not dtype.is_float:
        return array
    import ml_dtypes

    limits = ml_dtypes.finfo(dtype.numpy)
    tiny, least = float(limits.smallest_normal), float(limits.smallest_subnormal)
    return _placed(array, (0.0, -0.0, least, -least, tiny / 2, tiny, -tiny), rng, array.size)


def _extremes(array: np.ndarray, dtype: DType, bound: int | None, rng: np.random.Generator) -> np.ndarray:
    """The ends of the type; of an index, those of what it looks up."""
    if dtype.kind not in ("int", "uint"):
        return array
    if bound is not None:
        return _placed(array, (0, max(0, bound - 1)), rng, array.size)
    least = -(2 ** (dtype.bits - 1)) if dtype.kind == "int" else 0
    most = 2 ** (dtype.bits - 1) - 1 if dtype.kind == "int" else 2**dtype.bits - 1
    return _placed(array, (least, most, 0, 1), rng, array.size)


def _infinities(array: np.ndarray, dtype: DType, bound: int | None, rng: np.random.Generator) -> np.ndarray:
    return _placed(array, (np.inf, -np.inf), rng) if dtype.is_float and _has_infinity(dtype) else array


def _not_numbers(array: np.ndarray, dtype: DType, bound: int | None, rng: np.random.Generator) -> np.ndarray:
    return _placed(array, (np.nan,), rng) if dtype.is_float and _has_infinity(dtype) else array


_CHANGES: Mapping[str, Change] = {
    "zeros": _zeros,
    "signed zeros and denormals": _smallest,
    "integer extremes": _extremes,
    "infinities": _infinities,
    "NaN": _not_numbers,
}


def _placed(array: np.ndarray, values: Sequence[float], rng: np.random.Generator, most: int = _SPECIAL) -> np.ndarray:
    """A copy with some elements replaced by `values` in turn: all of a small tensor's that `most` allows, a share of others'."""
    count = min(most, max(1, array.size // _SHARE) if most == _SPECIAL else max(1, array.size // 2))
    found = array.reshape(-1).copy()
    where = rng.permutation(found.size)[:count]
    with np.errstate(all="ignore"):
        found[where] = np.array([value for _, value in zip(where, cycle(values), strict=False)]).astype(array.dtype)
    return found


def _has_infinity(dtype: DType) -> bool:
    """Floats of 8 bits and fewer are left alone: most have no infinity."""
    return dtype.bits >= 16


def _is_structure(graph: Graph, value: str) -> bool:
    """Does a shape, a place or a division hang on the input? Integers are followed through integers, floats while they move."""
    return any(_by_value(graph, node, name) for node, name in _uses(graph, value))


def _uses(graph: Graph, value: str) -> Iterator[tuple[Node, str]]:
    whole = graph.tensor(value).dtype.kind in ("int", "uint")
    waiting, seen = [value], {value}
    while waiting:
        name = waiting.pop()
        for node in (graph.nodes[k] for k in graph.users[name]):
            yield node, name
            if not whole and node.op not in MOVES:
                continue
            for made in node.writes:
                kind = graph.types.get(made)
                kept = isinstance(kind, TensorType) and (not whole or kind.dtype.kind in ("int", "uint"))
                if kept and made not in seen:
                    seen.add(made)
                    waiting.append(made)


def _by_value(graph: Graph, node: Node, name: str) -> bool:
    if (
        name in node.captured
        or node.op in _BODIES
        or node.domain
        or not onnx.defs.has(node.op, max_inclusive_version=graph.opset)
    ):
        return graph.tensor(name).dtype.kind in ("int", "uint")  # nothing is known of what it means there
    if node.op in _PARTIAL and graph.tensor(name).dtype.kind in ("int", "uint"):
        return True
    formals = onnx.defs.get_schema(node.op, graph.opset).inputs
    names = (formals[min(k, len(formals) - 1)].name for k, operand in enumerate(node.inputs) if operand == name)
    return any(formal in _STRUCTURE for formal in names)
