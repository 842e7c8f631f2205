"""Output types of If, Loop, Scan and SequenceMap: those of their bodies, made general enough for every run.

A value that a body carries from one run to the next may change its shape; its type is widened until the body maps the
type to itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from fusewise.errors import InvalidModel
from fusewise.frontend.bodies import bodies_of
from fusewise.ir.dtypes import BOOL, INT64
from fusewise.ir.graph import Node, Subgraph
from fusewise.ir.size import Size, greatest
from fusewise.ir.types import Dim, OptionalType, SequenceType, TensorType, ValueType

__all__ = ["CONTROL_FLOW", "Walk", "body_inputs", "control_outputs", "known_branch", "widen"]

CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""The operators whose types are those of their bodies."""

Kinds = tuple[ValueType | None, ...]
_ROUNDS = 8  # of widening; each loses a dimension or a rank, so few are ever needed


class Walk(Protocol):
    """What these rules ask of the walk over the graph that the node lies in."""

    def type_of(self, name: str) -> ValueType | None:
        """The type of a value; None when unknown."""

    def value_of(self, name: str) -> np.ndarray | None:
        """The contents of a value, when small and known."""

    def input_count(self, body: Subgraph) -> int:
        """How many inputs a body has."""

    def goes_on(self, body: Subgraph) -> bool:
        """Can only the count end a Loop with this body?"""

    def body_outputs(self, body: Subgraph, captured: tuple[str, ...], inputs: Kinds) -> Kinds:
        """The type of each output of a body whose inputs have the given types."""


def control_outputs(node: Node, walk: Walk) -> Kinds:
    """The type of each output of a node with bodies."""
    if node.op == "If":
        return _if_outputs(node, walk)
    if len(bodies_of(node)) == 1:
        return _repeated_outputs(node, walk)
    raise InvalidModel(f"node {node.label!r} ({node.op}) needs exactly one body")


def known_branch(node: Node, walk: Walk) -> str:
    """The attribute with the only branch that an If can ever take; empty for one that can take both, and other nodes."""
    condition = walk.value_of(node.inputs[0]) if node.op == "If" and not node.domain and node.inputs else None
    if condition is None or condition.dtype != bool or condition.size != 1:
        return ""
    return "then_branch" if condition.item() else "else_branch"


def _if_outputs(node: Node, walk: Walk) -> Kinds:
    branches = {name: (body, captured) for name, body, captured in bodies_of(node)}
    if set(branches) != {"then_branch", "else_branch"}:
        raise InvalidModel(f"node {node.label!r} (If) needs a then_branch and an else_branch")
    if any(walk.input_count(body) for body, _ in branches.values()):
        raise InvalidModel(f"node {node.label!r} (If) has a branch with inputs, which nothing would give it")
    known = known_branch(node, walk)
    chosen = [branches[known]] if known else [branches["then_branch"], branches["else_branch"]]
    found = [walk.body_outputs(body, captured, ()) for body, captured in chosen]
    _check_count(node, found[0])
    _check_count(node, found[-1])
    return tuple(widen(a, b) for a, b in zip(found[0], found[-1], strict=True))


def _repeated_outputs(node: Node, walk: Walk) -> Kinds:
    _, body, captured = bodies_of(node)[0]
    count = walk.input_count(body)
    given = body_inputs(node, count, walk.type_of)
    if len(given) != count:
        raise InvalidModel(
            f"node {node.label!r} ({node.op}) gives its body {len(given)} inputs, but the body takes {count}"
        )
    first = 2 if node.op == "Loop" else 0
    skipped = 1 if node.op == "Loop" else 0  # the body's condition is not an output of the node
    carried = {"Loop": len(node.inputs) - 2, "Scan": len(given) - node.attribute("num_scan_inputs", 0)}.get(node.op, 0)
    carried = max(carried, 0)
    for _ in range(_ROUNDS):
        produced = walk.body_outputs(body, captured, given)[skipped:]
        _check_count(node, produced)
        wider = tuple(widen(a, b) for a, b in zip(given[first : first + carried], produced, strict=False))
        if wider == given[first : first + carried]:
            break
        given = given[:first] + wider + given[first + carried :]
    scanned = produced[carried:]
    if node.op == "SequenceMap":
        return tuple(None if kind is None else SequenceType(kind) for kind in scanned)
    length = _scan_length(node, walk) if node.op == "Scan" else _rounds(node, body, walk)
    axes = node.attribute("scan_output_axes", ()) or (0,) * len(scanned)
    return given[first : first + carried] + tuple(
        _stacked(kind, axis, length) for kind, axis in zip(scanned, axes, strict=True)
    )


def body_inputs(node: Node, count: int, type_of: Callable[[str], ValueType | None]) -> Kinds:
    """The type of each of the `count` inputs of the body of a Loop, Scan or SequenceMap on its first run."""
    if node.op == "If":
        return ()
    outer = tuple(type_of(name) if name else None for name in node.inputs)
    if node.op == "Loop":
        return (TensorType(INT64, ()), TensorType(BOOL, ()), *outer[2:])
    if node.op == "SequenceMap":
        return tuple(kind.element if isinstance(kind, SequenceType) else kind for kind in outer)
    states = max(count - node.attribute("num_scan_inputs", 0), 0)
    axes = node.attribute("scan_input_axes", ()) or (0,) * max(len(outer) - states, 0)
    scanned = (_element(kind, axis) for kind, axis in zip(outer[states:], axes, strict=False))
    return outer[:states] + tuple(scanned)


def _element(kind: ValueType | None, axis: int) -> ValueType | None:
    """The type of one slice along `axis`."""
    if not isinstance(kind, TensorType) or kind.shape is None or not -len(kind.shape) <= axis < len(kind.shape):
        return TensorType(kind.dtype, None) if isinstance(kind, TensorType) else kind
    at = axis % len(kind.shape)
    return TensorType(kind.dtype, kind.shape[:at] + kind.shape[at + 1 :])


def _stacked(kind: ValueType | None, axis: int, length: Dim) -> ValueType | None:
    """The type of the slices of one output, stacked along `axis`."""
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    at = axis % (len(kind.shape) + 1)
    return TensorType(kind.dtype, (*kind.shape[:at], length, *kind.shape[at:]))


def _scan_length(node: Node, walk: Walk) -> Dim:
    count = node.attribute("num_scan_inputs", 0)
    axes = node.attribute("scan_input_axes", ()) or (0,) * count
    for name, axis in zip(node.inputs[len(node.inputs) - count :], axes, strict=False):
        kind = walk.type_of(name)
        if isinstance(kind, TensorType) and kind.shape:
            dim: Dim = kind.shape[axis % len(kind.shape)]
            if isinstance(dim, int | Size):
                return dim
    return None


def _rounds(node: Node, body: Subgraph, walk: Walk) -> Dim:
    """How many rounds a Loop goes through, where nothing but a known count ends it."""
    count = walk.value_of(node.inputs[0]) if node.inputs and node.inputs[0] else None
    if count is None or count.size != 1 or not walk.goes_on(body):
        return None
    if len(node.inputs) > 1 and node.inputs[1]:
        begins = walk.value_of(node.inputs[1])
        if begins is None or begins.dtype == object or begins.size != 1 or not begins.item():
            return None
    found = count.item()
    if isinstance(found, Size):
        rounds: int = greatest(0, found)
        return rounds
    return max(0, int(found)) if isinstance(found, int | float) else None


def _check_count(node: Node, kinds: Kinds) -> None:
    if len(kinds) != len(node.outputs):
        raise InvalidModel(
            f"node {node.label!r} ({node.op}) has {len(node.outputs)} outputs, but its body gives {len(kinds)}"
        )


def widen(a: ValueType | None, b: ValueType | None) -> ValueType | None:
    """The narrowest type that covers both; the first one's kind where they cannot be reconciled."""
    if a is None or b is None or a == b:
        return b if a is None else a
    if isinstance(a, OptionalType) or isinstance(b, OptionalType):
        inner = widen(a.element if isinstance(a, OptionalType) else a, b.element if isinstance(b, OptionalType) else b)
        return None if inner is None else OptionalType(inner)
    if isinstance(a, SequenceType) and isinstance(b, SequenceType):
        inner = widen(a.element, b.element)
        return None if inner is None else SequenceType(inner)
    if not isinstance(a, TensorType) or not isinstance(b, TensorType):
        return a
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return TensorType(a.dtype, None)
    return TensorType(a.dtype, tuple(x if x == y else None for x, y in zip(a.shape, b.shape, strict=True)))
