"""Take the transposition of a fully connected layer's operand into its weights or its settings. Numeric class exact."""

from __future__ import annotations

from fusewise.ir.graph import Constant, Graph, LazyConstant, Node
from fusewise.passes.edit import Change, Edit, LocalRule, rebuilt, sweep
from fusewise.passes.later import transposed
from fusewise.trace import Trace

__all__ = ["simplify_fc_transpose"]


def simplify_fc_transpose(graph: Graph, trace: Trace) -> Graph:
    """Constant weights are stored as they are read; a Gemm transposes by itself.

    y = MatMul(x, Transpose(w))            ->   y = MatMul(x, w')       w' the constant w, transposed
    y = Gemm(x, w) {transB=1}              ->   y = Gemm(x, w')
    y = Gemm(Transpose(x), w)              ->   y = Gemm(x, w) {transA=1}
    """
    return sweep(graph, trace, (LocalRule("SimplifyFCTranspose", ("MatMul", "Gemm"), _simplify),))


def _simplify(edit: Edit, node: Node) -> Change | None:
    transpose = edit.made_by(node.inputs[1], "Transpose")
    weights = None if transpose is None else edit.constants.get(transpose.inputs[0])
    if transpose is not None and weights is not None and _swaps(transpose, weights.type.rank):
        stored = edit.later(_turned(weights), f"{transpose.inputs[0]}_transposed")
        return Change((transpose, node), "weights are constant", (_with(node, 1, stored),))
    if node.op != "Gemm":
        return None
    for i, setting in ((0, "transA"), (1, "transB")):
        transpose = edit.made_by(node.inputs[i], "Transpose")
        if transpose is not None and _swaps(transpose, 2):
            turned = _with(node, i, transpose.inputs[0])
            flag = None if node.attribute(setting, 0) else 1
            return Change((transpose, node), "Gemm transposes", (turned.with_attributes(**{setting: flag}),))
    weights = edit.constants.get(node.inputs[1])
    if weights is None or not node.attribute("transB", 0):
        return None
    stored = edit.later(_turned(weights), f"{node.inputs[1]}_transposed")
    attributes = {k: v for k, v in node.attributes if k != "transB"}
    return Change(
        (node,), "weights are constant", (rebuilt(node, "Gemm", _with(node, 1, stored).inputs, **attributes),)
    )


def _with(node: Node, i: int, value: str) -> Node:
    return node.with_inputs((*node.inputs[:i], value, *node.inputs[i + 1 :]))


def _swaps(transpose: Node, rank: int) -> bool:
    """Does it exchange the last two axes and nothing else?"""
    perm = tuple(transpose.attribute("perm", tuple(reversed(range(rank)))))
    return rank >= 2 and perm == (*range(rank - 2), rank - 1, rank - 2)


def _turned(weights: Constant) -> LazyConstant:
    *rest, rows, columns = range(weights.type.rank)
    return transposed(weights, (*rest, columns, rows))
