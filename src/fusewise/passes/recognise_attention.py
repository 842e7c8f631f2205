"""Find scaled dot-product attention that was written out, and write it as one operator. Numeric class reassociating.

    Softmax(MatMul(q, k^T) * scale + mask) v   ->   Attention(q, k, v, mask) {scale}

Found as exporters write it: the scale a factor or a divisor, or gone into the query; a mask added, or a Where that replaces
scores by a very low number; a constant lower triangle is the causal mask. Vaswani et al., NeurIPS 2017.

A row all of whose scores are minus infinity is NaN when written out and zero for the operator, as it is for exporters that write
Where(IsNaN(w), 0, w) around the weights. Scores that a Where replaces are added to instead, so a NaN among them stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Graph, Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.passes.edit import Change, Edit, looking_for, rebuilt, sweep
from fusewise.passes.share_heads import SHARE_HEADS
from fusewise.records import record
from fusewise.rewrite.match import Occurrence
from fusewise.trace import Trace

__all__ = ["recognise_attention"]

OPSET = 23
"""The first that has the operator."""

NEVER = -1e30
"""A score below this is as good as none: adding it to any moderate number gives it back."""


def recognise_attention(graph: Graph, trace: Trace) -> Graph:
    """Attention over the last two axes becomes one node.

    s = MatMul(q, Transpose(k)); w = Softmax(Add(Div(s, root), mask)); y = MatMul(w, v)   ->   y = Attention(q, k, v, mask)

    Heads that share keys are not repeated (`passes.share_heads`).

    Refused: other element types than float32, heads that are broadcast, more than one mask, a scale after the mask, or someone
    else reads an inner value.
    """
    return sweep(graph, trace, (_RULE, SHARE_HEADS) if graph.opset >= OPSET else ())


@record(frozen=True)
class _Scores:
    """What a Softmax reads, taken apart from the outside in: nodes passed so far, and what they meant."""

    nodes: tuple[Node, ...]
    scale: float = 1.0
    mask: str = ""
    causal: bool = False
    made: tuple[Node, ...] = ()

    @property
    def is_masked(self) -> bool:
        return bool(self.mask) or self.causal


def _weighted(g: Any, scores: Any, values: Any) -> Any:
    """Weights times values; Where(IsNaN(w), 0, w) around the weights gives zeros to empty rows."""
    weights = g.Softmax(scores, like="softmax")
    return g.MatMul(g.Where(g.IsNaN(weights), 0, weights) | weights, values)


def _attention(edit: Edit, node: Node, occurrence: Occurrence) -> Change | None:
    softmax = occurrence.like["softmax"]
    kind = edit.static(softmax.inputs[0])
    if kind is None or kind.dtype != FLOAT32 or kind.rank not in (3, 4) or kind.size == 0:
        return None
    if softmax.attribute("axis", -1) not in (-1, kind.rank - 1):
        return None
    found = _Scores(edit.covered(occurrence, node))
    value = softmax.inputs[0]
    while (product := edit.sole(value, "MatMul")) is None:
        step = _step(edit, value, found, kind)
        if step is None:
            return None
        value, found = step
    queries, keys = (edit.static(v) for v in product.inputs)
    values = edit.static(node.inputs[1])
    if queries is None or keys is None or values is None or len({t.dims[:-2] for t in (queries, keys, values)}) > 1:
        return None
    if queries.rank != kind.rank or values.dtype != FLOAT32:
        return None
    return _written(edit, node, product, replace(found, nodes=(product, *found.nodes)))


def _step(edit: Edit, value: str, found: _Scores, kind: TensorType) -> tuple[str, _Scores] | None:
    """One node further in: the scores below `value`, and what it did to them."""
    node = edit.sole(value, "Add", "Where", "Div", "Mul")
    if node is None:
        return None
    found = replace(found, nodes=(node, *found.nodes))
    if node.op == "Div":
        divisor = edit.scalar(node.inputs[1])
        return (node.inputs[0], replace(found, scale=found.scale / divisor)) if divisor else None
    if node.op == "Mul":
        for scores, factor in (node.inputs, node.inputs[::-1]):
            scale = edit.scalar(factor)
            if scale is not None and edit.scalar(scores) is None:
                return scores, replace(found, scale=found.scale * scale)
        return None
    if found.is_masked or found.scale != 1.0:
        return None
    return _added(edit, node, found, kind) if node.op == "Add" else _replaced(edit, node, found, kind)


def _added(edit: Edit, node: Node, found: _Scores, kind: TensorType) -> tuple[str, _Scores] | None:
    for scores, mask in (node.inputs, node.inputs[::-1]):
        if edit.sole(scores, "MatMul", "Div", "Mul") is not None and edit.same_type(scores, node.outputs[0]):
            given = edit.static(mask)
            if given is not None and _covers(given.dims, kind.dims):
                return scores, replace(found, mask=mask)
    return None


def _replaced(edit: Edit, node: Node, found: _Scores, kind: TensorType) -> tuple[str, _Scores] | None:
    """Where(keep, scores, lowest) or Where(drop, lowest, scores)."""
    condition, first, second = node.inputs
    for scores, low, keeps in ((first, second, True), (second, first, False)):
        lowest = edit.scalar(low)
        if lowest is None or not lowest <= NEVER or not edit.same_type(scores, node.outputs[0]):
            continue
        spread = edit.made_by(condition, "Expand")
        inner = None if spread is None else edit.static(spread.inputs[0])
        if spread is not None and inner is not None and _covers(inner.dims, kind.dims):
            condition = spread.inputs[0]
        known, given = edit.array(condition), edit.static(condition)
        if given is None or not _covers(given.dims, kind.dims):
            return None
        if known is not None:
            return scores, _constant_mask(edit, node, found, known == keeps, lowest, kind)
        zero = edit.constant(np.zeros((), np.float32), f"{node.label}_kept")
        never = edit.constant(np.full((), lowest, np.float32), f"{node.label}_dropped")
        mask = edit.value(f"{node.outputs[0]}_mask", TensorType(FLOAT32, given.dims))
        parts = (condition, zero, never) if keeps else (condition, never, zero)
        made = Node("Where", parts, (mask,), name=f"{node.label}_mask")
        return scores, replace(found, mask=mask, made=(*found.made, made))
    return None


def _constant_mask(
    edit: Edit, node: Node, found: _Scores, keep: np.ndarray, lowest: float, kind: TensorType
) -> _Scores:
    """A mask known now: the causal one as an attribute, any other as what is added."""
    queries, keys = kind.dims[-2:]
    square = keep.shape[-2:] == (queries, keys) and keep.size == queries * keys and queries == keys
    if square and np.array_equal(keep.reshape(queries, keys), np.tril(np.ones((queries, keys), bool))):
        return replace(found, causal=True)
    mask = np.where(keep, np.float32(0), np.float32(lowest)).astype(np.float32)
    return replace(found, mask=edit.constant(mask, f"{node.outputs[0]}_mask"))


def _covers(mask: Sequence[int], scores: Sequence[int]) -> bool:
    """Can a mask of this shape be broadcast to the scores as the operator wants it?"""
    return len(mask) <= len(scores) and all(n in (1, m) for n, m in zip(mask[::-1], scores[::-1], strict=False))


def _written(edit: Edit, node: Node, product: Node, found: _Scores) -> Change:
    """The operator, with an axis for a batch of one where the product has three axes."""
    before: list[Node] = list(found.made)
    keys = _transposed(edit, product.inputs[1], before)
    operands = [product.inputs[0], keys, node.inputs[1]]
    flat = len(_dims(edit, operands[0])) == 3
    if flat:
        axis = edit.constant(np.zeros(1, np.int64), f"{node.label}_axis")
        operands = [_unsqueezed(edit, value, axis, before) for value in operands]
    operands += [found.mask] if found.mask else []
    causal = {"is_causal": 1} if found.causal else {}
    new = rebuilt(node, "Attention", operands, scale=found.scale, **causal)
    if not flat:
        return Change(found.nodes, "written out", (*before, new))
    inner = edit.value(f"{node.outputs[0]}_heads", TensorType(FLOAT32, (1, *_dims(edit, node.outputs[0]))))
    new = replace(new, outputs=(inner,), name=f"{node.label}_attention")
    return Change(found.nodes, "written out", (*before, new, rebuilt(node, "Squeeze", (inner, axis))))


def _dims(edit: Edit, value: str) -> tuple[int, ...]:
    kind = edit.static(value)
    assert kind is not None
    return kind.dims


def _transposed(edit: Edit, value: str, before: list[Node]) -> str:
    """`value` with its last two axes exchanged; a transpose that made it takes that on."""
    dims = _dims(edit, value)
    swapped = (*range(len(dims) - 2), len(dims) - 1, len(dims) - 2)
    maker = edit.made_by(value, "Transpose")
    order = None if maker is None else maker.attribute("perm", tuple(range(len(dims)))[::-1])
    if maker is not None and order is not None:
        swapped, value = tuple(order[d] for d in swapped), maker.inputs[0]
    if swapped == tuple(range(len(dims))):
        return value
    made = edit.value(f"{value}_keys", TensorType(FLOAT32, tuple(_dims(edit, value)[d] for d in swapped)))
    before.append(Node("Transpose", (value,), (made,), attributes_of(perm=swapped), name=f"{made}_transpose"))
    return made


def _unsqueezed(edit: Edit, value: str, axis: str, before: list[Node]) -> str:
    made = edit.value(f"{value}_heads", TensorType(FLOAT32, (1, *_dims(edit, value))))
    before.append(Node("Unsqueeze", (value, axis), (made,), name=f"{made}_unsqueeze"))
    return made


_RULE = looking_for("recognise-attention", _weighted, _attention)
