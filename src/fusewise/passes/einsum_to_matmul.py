"""Write an Einsum of two operands as the matrix product that it is. Numeric class reassociating: sums may run in another order.

Every label of such an equation is one of four kinds: in both operands and the result (batch), in one operand and the result
(rows, or columns), or in both operands alone (summed). Transposed so that each operand has its kinds next to each other, and with
several labels of a kind merged to one, that is a MatMul. Kernels and recognisers then need not know Einsum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fusewise.ir.deciding import known_equal
from fusewise.ir.graph import Graph, Node, attributes_of, integer_array
from fusewise.ir.types import TensorType
from fusewise.ops.contract import EinsumEquation, equation_of
from fusewise.ops.spec import Call, NotDefined
from fusewise.passes.edit import Change, Edit, LocalRule, may_be_empty, rebuilt, sweep
from fusewise.records import record
from fusewise.trace import Trace

__all__ = ["einsum_to_matmul"]

_Labels = tuple[str, ...]


def einsum_to_matmul(graph: Graph, trace: Trace) -> Graph:
    """An Einsum that multiplies matrices becomes transpositions, where its labels ask for them, and a MatMul.

    y = Einsum(a, b) {equation="bhld,bhtd->bhlt"}   ->   y = MatMul(a, Transpose(b) {perm=[0, 1, 3, 2]})

    Refused: other than two operands; a label twice in one operand, or in one operand alone; no label to sum over, or
    none but that and a batch; sizes that are broadcast, unknown or zero; numbers that MatMul does not take.
    """
    return sweep(graph, trace, (LocalRule("einsum_to_matmul", ("Einsum",), _product),))


@record(frozen=True)
class _Kinds:
    """Labels by kind, each in the order it has where it is found first."""

    batch: _Labels
    rows: _Labels
    columns: _Labels
    summed: _Labels

    @property
    def left(self) -> _Labels:
        return (*self.batch, *self.rows, *self.summed)

    @property
    def right(self) -> _Labels:
        return (*self.batch, *self.summed, *self.columns)

    @property
    def result(self) -> _Labels:
        return (*self.batch, *self.rows, *self.columns)


def _product(edit: Edit, node: Node) -> Change | None:
    kinds, made = [edit.static(value) for value in node.inputs], edit.static(node.outputs[0])
    if len(kinds) != 2 or made is None or any(kind is None or not _multiplies(kind) for kind in kinds):
        return None
    try:
        equation = equation_of(Call(node, tuple(kinds), (made,)))
    except NotDefined:
        return None
    if not _is_plain(equation, [kind.dims for kind in kinds if kind is not None]):
        return None
    operands = min(((0, 1), (1, 0)), key=lambda order: _turns(equation, order))
    left, right = (equation.operands[k] for k in operands)
    by_kind = _kinds(equation.output, left, right)
    if not by_kind.summed or not (by_kind.rows or by_kind.columns):
        return None
    if {*left} != {*by_kind.left} or {*right} != {*by_kind.right}:
        return None
    return Change((node,), "multiplies matrices", _written(edit, node, equation, operands, by_kind))


def _multiplies(kind: TensorType) -> bool:
    return kind.dtype.is_float or kind.dtype.name in ("int32", "int64", "uint32", "uint64")


def _is_plain(equation: EinsumEquation, shapes: Sequence[Sequence[int]]) -> bool:
    """Is every label in a term once, and of one size that is not zero?"""
    terms = (*equation.operands, equation.output)
    sizes = all(
        known_equal(size, equation.extents[label]) and not known_equal(size, 0)
        for labels, shape in zip(equation.operands, shapes, strict=True)
        for label, size in zip(labels, shape, strict=True)
    )
    return sizes and all(len(set(labels)) == len(labels) for labels in terms)


def _kinds(output: _Labels, left: _Labels, right: _Labels) -> _Kinds:
    return _Kinds(
        tuple(c for c in output if c in left and c in right),
        tuple(c for c in output if c in left and c not in right),
        tuple(c for c in output if c in right and c not in left),
        tuple(c for c in left if c in right and c not in output),
    )


def _turns(equation: EinsumEquation, order: tuple[int, int]) -> int:
    """How many transpositions it takes with the operands in this order."""
    left, right = (equation.operands[k] for k in order)
    kinds = _kinds(equation.output, left, right)
    return (kinds.left != left) + (kinds.right != right) + (kinds.result != equation.output)


def _written(
    edit: Edit, node: Node, equation: EinsumEquation, operands: tuple[int, int], kinds: _Kinds
) -> tuple[Node, ...]:
    """Operands transposed, labels of one kind merged, multiplied, and all that taken back."""
    nodes: list[Node] = []
    extents, batch = equation.extents, [equation.extents[c] for c in kinds.batch]

    def step(op: str, inputs: Sequence[str], stem: str, shape: Sequence[int], **attributes: Any) -> str:
        value = edit.value(f"{node.label}_{stem}", TensorType(dtype, tuple(shape)))
        nodes.append(Node(op, tuple(inputs), (value,), attributes_of(**attributes)))
        return value

    def turned(value: str, have: _Labels, want: _Labels, stem: str) -> str:
        if have == want:
            return value
        order = [have.index(c) for c in want]
        return step("Transpose", (value,), f"{stem}_turned", [extents[c] for c in want], perm=order)

    def shaped(value: str, have: Sequence[int], want: Sequence[int], stem: str) -> str:
        if list(have) == list(want):
            return value
        shape = edit.constant(integer_array(want), f"{node.label}_{stem}_shape")
        return step("Reshape", (value, shape), f"{stem}_merged", want, **may_be_empty(want))

    def size(labels: _Labels) -> int:
        return math.prod(extents[c] for c in labels)

    kind = edit.static(node.outputs[0])
    assert kind is not None
    dtype = kind.dtype
    # without a batch, a MatMul takes any number of axes for rows
    rows = [extents[c] for c in kinds.rows] if not kinds.batch and kinds.rows else [size(kinds.rows)]
    columns, summed = size(kinds.columns), size(kinds.summed)
    names = [node.inputs[k] for k in operands]
    have = [equation.operands[k] for k in operands]
    left, right = (
        shaped(turned(name, labels, want, stem), [extents[c] for c in want], [*batch, *shape], stem)
        for name, labels, want, shape, stem in zip(
            names, have, (kinds.left, kinds.right), ([*rows, summed], [summed, columns]), ("left", "right"), strict=True
        )
    )
    product = step("MatMul", (left, right), "product", [*batch, *rows, columns])
    apart = shaped(product, [*batch, *rows, columns], [extents[c] for c in kinds.result], "result")
    turned(apart, kinds.result, equation.output, "result")
    last = nodes.pop()
    return (*nodes, rebuilt(node, last.op, last.inputs, **dict(last.attributes)))
