"""A graph of PyTorch in parts that run one after another: what can be compiled, and what PyTorch does between.

The graph is pure, as AOTAutograd makes it, so order matters only to what draws random numbers or has other effects: what is left to
PyTorch keeps its order. A value is a tensor, a size, or, between two parts of PyTorch's, anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from fusewise.dynamo.captured import Capture, attribute_of, captured, is_handed_over, why_not
from fusewise.errors import UnsupportedModel
from fusewise.frontend.torch_export import line_of, refusal_of
from fusewise.records import record

__all__ = ["Divided", "Part", "PartsInTurn", "in_parts"]

_LEAST_NODES = 4
"""A part of fewer nodes is not worth a program of its own."""

_MOST_PARTS = 16
"""In more parts than this a graph is not compiled: it is left to PyTorch whole."""

_MOST_OPERATORS = 8
"""So many operators are asked for one by one, each at the cost of an attempt to export."""

Run = Callable[[list[Any]], Sequence[Any]]


@record(frozen=True)
class Part:
    """Nodes of the graph as a graph `module` of their own, which reads and writes values by number; what is to be compiled of it,
    or None for what PyTorch does."""

    module: Any
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    capture: Capture | None


@record(frozen=True)
class Divided:
    """A graph in `parts`; values that are `known` by number, and its outputs: numbers, or what they are for good. `reasons` say
    what is left to PyTorch."""

    parts: tuple[Part, ...]
    known: Mapping[int, Any]
    outputs: tuple[tuple[int | None, Any], ...]
    reasons: tuple[str, ...]


class PartsInTurn:
    """Called with one list of arguments, which it empties, as AOTAutograd has it. Values go when nobody reads them any more."""

    _boxed_call = True

    def __init__(self, graph: Divided, runs: Sequence[Run]) -> None:
        self._graph = graph
        lasting = {number for number, _ in graph.outputs}
        last: dict[int, int] = {}
        for step, part in enumerate(graph.parts):
            last.update(dict.fromkeys((*part.reads, *part.writes), step))
        self._steps = [
            (part, run, tuple(value for value, step in last.items() if step == k and value not in lasting))
            for k, (part, run) in enumerate(zip(graph.parts, runs, strict=True))
        ]

    def __call__(self, arguments: list[Any]) -> list[Any]:
        values = {**dict(enumerate(arguments)), **self._graph.known}
        arguments.clear()
        for part, run, gone in self._steps:
            given = [values[number] for number in part.reads]
            found = run(given)
            values.update(zip(part.writes, found, strict=True))
            for number in gone:
                del values[number]
        return [known if number is None else values[number] for number, known in self._graph.outputs]


def in_parts(module: Any, fixed: Collection[int], error: UnsupportedModel) -> Divided | None:
    """The graph that AOTAutograd made in parts, after it was refused as a whole with an `error`; arguments that are `fixed` are
    parameters and buffers. None where it is to be left to PyTorch whole: where no operator is to blame, or too little is left.

    Called while PyTorch compiles, as `captured` is.
    """
    operators: dict[str, str] = {}
    foreign = {node: reason for node in module.graph.nodes if (reason := why_not(node))}
    if not _is_to_blame(module, error, operators) and not foreign:
        return None
    for _ in range(_MOST_OPERATORS):
        left = {node for node in module.graph.nodes if node in foreign or str(node.target) in operators}
        try:
            parts = _parts(module, fixed, left)
        except UnsupportedModel as another:
            if not _is_to_blame(module, another, operators):
                return None
            continue
        except Exception:  # sizes that follow from data, say: whatever it is, PyTorch can do this graph
            return None
        if parts is None:
            return None
        reasons = tuple(dict.fromkeys((*foreign.values(), *operators.values())))
        return _divided(module, parts, reasons)
    return None


def _operator_of(error: UnsupportedModel) -> str:
    """The operator that the exporter does not know; empty where it is something else."""
    return "" if error.__cause__ is None else refusal_of(error.__cause__).operator


def _is_to_blame(module: Any, error: UnsupportedModel, operators: dict[str, str]) -> bool:
    """Is an operator to blame for an error that nodes of the graph are of, and that was not known to be? It is put among those that
    are left to PyTorch, with the reason."""
    operator = _operator_of(error)
    node = next((one for one in module.graph.nodes if operator and str(one.target) == operator), None)
    if node is None or operator in operators:
        return False
    line = line_of(node.meta.get("stack_trace") or "")
    operators[operator] = f"the operator {operator} has no ONNX form{f' (at {line})' if line else ''}"
    return True


def _is_work(node: Any) -> bool:
    return node.op not in ("placeholder", "get_attr", "output")


def _levels(nodes: Sequence[Any], left: Collection[Any]) -> dict[Any, int]:
    """When each node is done: at even levels in parts that are compiled, at odd ones by PyTorch, in the order of the graph."""
    levels: dict[Any, int] = {}
    latest = 1
    for node in nodes:
        reads = node.all_input_nodes
        before = max((levels[one] for one in reads if one in levels), default=0)
        apart = any(levels.get(one, 1) % 2 and not is_handed_over(one) for one in reads if one.op != "get_attr")
        if node in left or apart:
            latest = levels[node] = max(before | 1, latest)
        else:
            levels[node] = before + before % 2
    return levels


def _parts(module: Any, fixed: Collection[int], left: Collection[Any]) -> list[tuple[Any, ...]] | None:
    """The parts in their order, as modules, the nodes that they read and write, and captures; None for too many or none."""
    nodes = [node for node in module.graph.nodes if _is_work(node)]
    levels = _levels(nodes, left)
    of_level = {level: [node for node in nodes if levels[node] == level] for level in sorted(set(levels.values()))}
    worth = {level for level, found in of_level.items() if not level % 2 and len(found) >= _LEAST_NODES}
    if not worth or len(worth) > _MOST_PARTS:
        return None
    places = {node: place for place, node in enumerate(module.graph.find_nodes(op="placeholder"))}
    parts = []
    for level, found in of_level.items():
        own, reads, writes = _module_of(module, found)
        held = frozenset(number for number, node in enumerate(reads) if places.get(node) in fixed)
        parts.append((own, reads, writes, captured(own, held) if level in worth else None))
    return parts


def _module_of(module: Any, nodes: Sequence[Any]) -> tuple[Any, list[Any], list[Any]]:
    """Some nodes of a graph as a graph of their own, which takes the values that it reads and gives a list of those that are read
    elsewhere; these, as nodes of the whole."""
    import torch

    graph, copies, inside = torch.fx.Graph(), {}, set(nodes)
    outside = dict.fromkeys(one for node in nodes for one in node.all_input_nodes if one not in inside)
    reads = [one for one in outside if one.op != "get_attr"]
    for one in reads:
        copies[one] = graph.placeholder(one.name)
        copies[one].meta = dict(one.meta)
    for one in outside:
        if one.op == "get_attr":
            copies[one] = graph.node_copy(one)
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    writes = [node for node in nodes if any(user not in inside for user in node.users)]
    graph.output([copies[node] for node in writes])
    return torch.fx.GraphModule(module, graph), reads, writes


def _divided(module: Any, parts: Sequence[tuple[Any, ...]], reasons: tuple[str, ...]) -> Divided:
    """The graph with its values by number, those that it is called with first."""
    import torch

    numbers = {node: number for number, node in enumerate(module.graph.find_nodes(op="placeholder"))}
    for _, _, writes, _ in parts:
        for node in writes:
            numbers[node] = len(numbers)
    known: dict[int, Any] = {}
    outputs: list[tuple[int | None, Any]] = []
    for one in next(iter(module.graph.find_nodes(op="output"))).args[0]:
        if not isinstance(one, torch.fx.Node):
            outputs.append((None, one))
            continue
        if one.op == "get_attr" and one not in numbers:
            numbers[one] = len(numbers)
            known[numbers[one]] = attribute_of(module, one.target)
        outputs.append((numbers[one], None))
    made = tuple(
        Part(own, tuple(numbers[node] for node in reads), tuple(numbers[node] for node in writes), capture)
        for own, reads, writes, capture in parts
    )
    return Divided(made, known, tuple(outputs), reasons)
