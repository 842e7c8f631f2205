"""Bring images to ONNX's own layout, channels before space, by moving transpositions to where they cancel.

Other frameworks keep channels last; their exporters put a Transpose before and behind every convolution. A Transpose moves
behind operators that treat all elements alike, until it meets the one that undoes it. Numeric class reassociating: a mean is
taken over other axes in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.ops.table import spec_of
from fusewise.passes.edit import Change, Edit, LocalRule, looking_for, sweep
from fusewise.passes.simplify_movement import RULES as MOVEMENT
from fusewise.rewrite.match import Occurrence
from fusewise.trace import Trace

__all__ = ["convert_layout"]

_NOT_ALIKE = ("CastLike", "SwiGLU")
_REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")


def convert_layout(graph: Graph, trace: Trace) -> Graph:
    """A Transpose goes behind elementwise operators, Concat, Pad, Split and reductions; two that meet become one or none.

    y = Relu(Transpose(x))                          ->   y = Transpose(Relu(x))
    y = Add(Transpose(a, [0,2,3,1]), Transpose(b, [0,2,3,1]))   ->   y = Transpose(Add(a, b), [0,2,3,1])

    Refused: a computed operand is not transposed alike; someone else reads what a reduction or Pad reads; or as many
    transpositions would be left in the end.
    """
    before, trial = _transpositions(graph), Trace()
    if not before or _transpositions(moved := sweep(graph, trial, _RULES)) >= before:
        return graph
    if trace.refuses:
        return sweep(graph, trace, _RULES)
    trace.adopt(trial)
    return moved


def _transpositions(graph: Graph) -> int:
    return sum(node.op == "Transpose" for node in graph.nodes)


def _elementwise(edit: Edit, node: Node) -> Change | None:
    spec = spec_of(node.op, node.domain)
    if spec is None or spec.scalar is None or len(node.outputs) != 1 or node.op in _NOT_ALIKE:
        return None
    found = _turned_operands(edit, node)
    if found is None:
        return None
    operands, turns, perm = found
    return _behind(edit, node, turns, node.with_inputs(operands), perm)


def _turned_operands(edit: Edit, node: Node) -> tuple[list[str], list[Node], tuple[int, ...]] | None:
    """Operands as they are before the one permutation of all computed ones; constants permuted back."""
    turns = [turn for value in node.inputs if (turn := edit.made_by(value, "Transpose")) is not None]
    perms = {_perm(turn) for turn in turns}
    if len(perms) != 1 or None in perms:
        return None
    perm = perms.pop()
    assert perm is not None
    operands: list[str] = []
    for value in node.inputs:
        turn = edit.made_by(value, "Transpose")
        kind = edit.static(value) if value else None
        if not value or (kind is not None and kind.size == 1 and kind.rank <= len(perm) and value in edit.constants):
            operands.append(value)
        elif turn is not None:
            operands.append(turn.inputs[0])
        else:
            array = edit.array(value)
            if array is None or array.ndim > len(perm):
                return None
            full = array.reshape((1,) * (len(perm) - array.ndim) + array.shape)
            operands.append(edit.constant(np.ascontiguousarray(full.transpose(np.argsort(perm))), f"{value}_turned"))
    return operands, turns, perm


def _perm(turn: Node) -> tuple[int, ...] | None:
    given = turn.attribute("perm")
    return None if given is None else tuple(given)


def _behind(edit: Edit, node: Node, turns: Sequence[Node], earlier: Node, perm: tuple[int, ...]) -> Change | None:
    """`earlier` computes what `node` did before it was permuted by `perm`."""
    kind = edit.static(node.outputs[0])
    if kind is None or kind.rank != len(perm):
        return None
    dims = tuple(kind.dims[place] for place in np.argsort(perm))
    value = edit.value(f"{node.outputs[0]}_before", TensorType(kind.dtype, dims))
    first = Node(earlier.op, earlier.inputs, (value,), earlier.attributes, name=node.name, origin=node.origin)
    name = f"{node.name}_transposed" if node.name else ""
    turn = Node("Transpose", (value,), node.outputs, (("perm", perm),), name=name)
    return Change((*turns, node), "the permutation moves on", (first, turn))


def _concat(edit: Edit, node: Node) -> Change | None:
    turns = [edit.made_by(value, "Transpose") for value in node.inputs]
    perms = {None if turn is None else _perm(turn) for turn in turns}
    known = [turn for turn in turns if turn is not None]
    if len(perms) != 1 or None in perms:
        return None
    perm = perms.pop()
    assert perm is not None
    axis = perm[node.attribute("axis") % len(perm)]
    earlier = node.with_inputs(turn.inputs[0] for turn in known).with_attributes(axis=axis)
    return _behind(edit, node, known, earlier, perm)


def _padded(g: Any) -> Any:
    return g.Pad(g.Transpose(..., like="turn"), ..., like="pad")


def _pad(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    turn, pads = found.like["turn"], edit.operand(node, 1)
    perm = _perm(turn)
    if perm is None or pads is None or (len(node.inputs) > 3 and node.inputs[3]):
        return None
    before = pads.reshape(2, -1)[:, np.argsort(perm)]
    amounts = edit.constant(np.ascontiguousarray(before.reshape(-1)), f"{node.inputs[1]}_turned")
    earlier = node.with_inputs((turn.inputs[0], amounts, *node.inputs[2:]))
    return _behind(edit, node, (turn,), earlier, perm)


def _reduced(g: Any) -> Any:
    return g.one_of(_REDUCTIONS, g.Transpose(..., like="turn"), ..., like="reduction")


def _reduction(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    turn, axes = found.like["turn"], edit.operand(node, 1)
    perm = _perm(turn)
    if perm is None or axes is None or not axes.size:
        return None
    places = {int(axis) % len(perm) for axis in axes.reshape(-1)}
    before = edit.constant(np.array(sorted(perm[k] for k in places), np.int64), f"{node.inputs[1]}_turned")
    earlier = node.with_inputs((turn.inputs[0], before))
    if node.attribute("keepdims", 1):
        return _behind(edit, node, (turn,), earlier, perm)
    left = [perm[k] for k in range(len(perm)) if k not in places]
    order = tuple(sorted(left).index(axis) for axis in left)
    if order == tuple(range(len(order))):
        return Change((turn, node), "the axes left are in order", (earlier,))
    return _behind(edit, node, (turn,), earlier, order)


_RULES: tuple[LocalRule, ...] = (
    *(rule for rule in MOVEMENT if rule.name == "merge-transposes"),
    LocalRule("transpose-behind-concat", ("Concat",), _concat),
    looking_for("transpose-behind-pad", _padded, _pad),
    looking_for("transpose-behind-reduction", _reduced, _reduction),
    LocalRule("transpose-behind-elementwise", (), _elementwise),
)
