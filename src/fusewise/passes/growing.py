"""A decoder's past and present become one: what a run adds to keys and values is written behind those that are there.

    past: (batch, heads, P, size)                 past: (batch, heads, P + room, size), counts: (P, room)
    present = Concat(past, new) {axis=2}    ->    filled = Slice(past, 0, P) {axis 2};  present = Concat(filled, new)

and `present` lies in the memory of `past` (`ir.graph.Growing`). What is filled stays as it is, so only `new` is written.
An Attention that takes the past itself is taken apart before. Samples are equally long, each as long as the cache is: rows that a
TensorScatter moves up to a shorter sample's own stay where the Concat has them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fusewise.errors import UsageError
from fusewise.ir.deciding import Condition
from fusewise.ir.dtypes import INT64
from fusewise.ir.graph import Check, Constant, Graph, Growing, Node, SizesConstant
from fusewise.ir.size import Size, Symbol, size_of
from fusewise.ir.types import TensorType, ValueType
from fusewise.passes.canonical_ops import written_out
from fusewise.passes.decompositions.whole_attention import WHOLE_ATTENTION
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.passes.known_branch import KNOWN_BRANCH
from fusewise.records import record
from fusewise.trace import Trace

__all__ = ["grown_in_place"]

PLANNED_ROOM = 1024
"""What is planned for."""


@record(frozen=True)
class _Pair:
    """An output that is an input and something behind it along an axis, by the node that joins them."""

    given: str
    output: str
    axis: int
    concat: Node


def grown_in_place(graph: Graph) -> Graph:
    """The graph with every output that only extends an input in that one's memory.

    Raises `UsageError` where there is none, where one that looks like it does something else, and where they are not equally long.
    """
    apart = sweep(graph, Trace(), (KNOWN_BRANCH, _WITH_PAST, _OF_ONE_LENGTH))
    pairs = _pairs(apart)
    given = {pair.given for pair in pairs}
    for output in apart.outputs:
        for value in apart.inputs:
            if (
                value not in given
                and all(output != pair.output for pair in pairs)
                and _looks_grown(apart, value, output)
            ):
                raise UsageError(
                    f"output {output!r} cannot grow in the place of input {value!r}: {_why(apart, value, output)}"
                )
    if not pairs:
        raise UsageError(
            "the model has no output that is one of its inputs and something behind it, so there is nothing to keep"
        )
    lengths = {pair.given: apart.tensor(pair.given).dims[pair.axis] for pair in pairs}
    first, length = next(iter(lengths.items()))
    for value, other in lengths.items():
        if other != length:
            raise UsageError(f"inputs {first!r} and {value!r} grow, but are not equally long: {length} and {other}")
    if not isinstance(length, Size) or length.symbol is None:
        raise UsageError(
            f"input {first!r} cannot grow: it has {length} elements along the axis, which is no free dimension"
        )
    return _with_buffers(apart, pairs, length)


# --- which outputs extend which inputs ---------------------------------------------------------------------------------------


def _take_apart(edit: Edit, node: Node) -> Change | None:
    """An Attention that joins the past with new keys itself."""
    return written_out(edit, node, WHOLE_ATTENTION[0]) if any(node.inputs[4:6]) else None


_WITH_PAST = LocalRule("attention-with-past", ("Attention",), _take_apart)


def _close_up(edit: Edit, node: Node) -> Change | None:
    """Rows that are moved up to where each sample ends, whose lengths may differ: in a cache they do not."""
    concat, cache = edit.made_by(node.inputs[0], "Concat"), edit.static(node.inputs[0])
    if concat is None or cache is None or node.inputs[1] != concat.inputs[-1]:
        return None
    if (concat.attribute("axis", 0) - node.attribute("axis", -2)) % cache.rank:
        return None
    same = {node.outputs[0]: node.inputs[0]}
    return Change((concat, node), "what is new is behind all there is", same=same)


_OF_ONE_LENGTH = LocalRule("cache-of-one-length", ("TensorScatter",), _close_up)


def _pairs(graph: Graph) -> list[_Pair]:
    found: dict[str, _Pair] = {}
    for output in graph.outputs:
        concat = _maker(graph, output)
        if (
            concat is None
            or concat.op != "Concat"
            or concat.domain
            or output in {pair.output for pair in found.values()}
        ):
            continue
        given = _origin(graph, concat.inputs[0])
        if given in graph.inputs and given not in found and given not in concat.inputs[1:]:
            axis = concat.attribute("axis", 0) % graph.tensor(output).rank
            found[given] = _Pair(given, output, axis, concat)
    return list(found.values())


def _origin(graph: Graph, value: str) -> str:
    """What a value is a copy of."""
    node = graph.producer_of(value)
    while node is not None and (node.op == "Identity" or (node.op == "Concat" and len(node.inputs) == 1)):
        value = node.inputs[0]
        node = graph.producer_of(value)
    return value


def _maker(graph: Graph, value: str) -> Node | None:
    """The node that makes a value, behind copies."""
    return graph.producer_of(_origin(graph, value))


def _looks_grown(graph: Graph, value: str, output: str) -> bool:
    """Is an output as an input is, but along an axis longer by something?"""
    before, after = graph.types[value], graph.types[output]
    if not isinstance(before, TensorType) or not isinstance(after, TensorType) or before.dtype != after.dtype:
        return False
    if not before.is_static or not after.is_static or before.rank != after.rank or before.rank < 3:
        return False
    others = [(a, b) for a, b in zip(before.dims, after.dims, strict=True) if a != b]
    return len(others) == 1 and isinstance(others[0][1] - others[0][0], Size) and isinstance(others[0][0], Size)


def _why(graph: Graph, value: str, output: str) -> str:
    node = _maker(graph, output)
    if node is None:
        return "it is not computed"
    if node.op == "If":
        return f"node {node.label!r} (If) chooses it; give what it chooses by its contents (values, {node.inputs[0]!r})"
    if node.op == "Concat":
        return f"node {node.label!r} (Concat) begins with {node.inputs[0]!r}"
    return f"node {node.label!r} ({node.op}) makes it, and not a Concat of {value!r} and what is new"


# --- the graph with buffers --------------------------------------------------------------------------------------------------


def _with_buffers(graph: Graph, pairs: list[_Pair], length: Size) -> Graph:
    taken = {symbol.name for symbol in graph.symbols}
    room = size_of(Symbol(_unlike("room", taken), hint=PLANNED_ROOM))
    types: dict[str, ValueType] = dict(graph.types)
    constants: dict[str, Constant] = dict(graph.constants)

    def named(stem: str, kind: ValueType) -> str:
        name = _unlike(stem, types)
        types[name] = kind
        return name

    def constant(stem: str, contents: Constant) -> str:
        name = named(stem, contents.type)
        constants[name] = contents
        return name

    counts = named("cache_counts", TensorType(INT64, (2,)))
    start = constant("cache_start", Constant(np.zeros(1, np.int64)))
    end = constant("cache_end", SizesConstant(np.array([length], object)))
    axes = {axis: constant(f"cache_axis_{axis}", Constant(np.array([axis]))) for axis in {pair.axis for pair in pairs}}
    filled: dict[str, str] = {}
    slices = []
    for pair in pairs:
        kind = graph.tensor(pair.given)
        filled[pair.given] = named(f"{pair.given}_filled", kind)
        types[pair.given] = TensorType(kind.dtype, _with(kind.dims, pair.axis, length + room))
        inputs = (pair.given, start, end, axes[pair.axis])
        slices.append(Node("Slice", inputs, (filled[pair.given],), name=filled[pair.given], origin=pair.concat.origin))
    nodes = [replace(node, inputs=tuple(filled.get(v, v) for v in node.inputs)) for node in graph.nodes]
    after = graph.tensor(pairs[0].output).dims[pairs[0].axis]
    full = Check(
        Condition("nonnegative", length + room - after), "the cache has no room for what is new: use a larger capacity"
    )
    return graph.replace(
        inputs=(*graph.inputs, counts),
        nodes=_in_their_own_names((*slices, *nodes), pairs),
        types=types,
        constants=constants,
        checks=(*graph.checks, full),
        contents=(*graph.contents, (counts, (length, room))),
        growth=Growing(tuple((p.given, p.output, p.axis) for p in pairs), counts, after),
    )


def _with(dims: tuple[int, ...], axis: int, dim: int) -> tuple[int, ...]:
    return (*dims[:axis], dim, *dims[axis + 1 :])


def _in_their_own_names(nodes: tuple[Node, ...], pairs: list[_Pair]) -> tuple[Node, ...]:
    """The nodes with each Concat writing the output itself, and copies of it made from that."""
    names = {pair.concat.outputs[0]: pair.output for pair in pairs if pair.concat.outputs[0] != pair.output}
    if not names:
        return nodes
    found = []
    for node in nodes:
        renamed = replace(
            node,
            inputs=tuple(names.get(v, v) for v in node.inputs),
            outputs=tuple(names.get(v, v) for v in node.outputs),
        )
        if not (node.op == "Identity" and renamed.inputs[0] == renamed.outputs[0]):
            found.append(renamed)
    return tuple(found)


def _unlike(name: str, taken: object) -> str:
    while name in taken:  # type: ignore[operator]
        name += "_"
    return name
