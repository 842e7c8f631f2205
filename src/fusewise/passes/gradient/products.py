"""Gradients of products of matrices and of sums of products over letters."""

from __future__ import annotations

import math

from fusewise.passes.gradient.row import Gradient, Reverse, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["PRODUCTS"]


def _turned(g: Notation, x: TensorValue) -> TensorValue:
    """The last two axes the other way round."""
    return g.permute(x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


def _matmul(g: Notation, at: Reverse) -> list[TensorValue | None]:
    """d @ b' and a' @ d; vectors are matrices of one row or column for as long."""
    a, b = at.operand(0), at.operand(1)
    rows = g.reshape(a, [1, *a.dims]) if a.rank == 1 else a
    columns = g.reshape(b, [*b.dims, 1]) if b.rank == 1 else b
    lead = at.first.dims[: at.first.rank - (a.rank > 1) - (b.rank > 1)]
    d = g.reshape(at.first, [*lead, rows.dims[-2], columns.dims[-1]])
    first = g.MatMul(d, _turned(g, columns)) if at.wanted[0] else None
    if first is not None and a.rank == 1:
        first = g.reshape(first, [*lead, *a.dims])
    second = _by_columns(g, rows, d, columns.rank) if at.wanted[1] else None
    if second is not None and b.rank == 1:
        second = g.reshape(second, second.dims[:-1])
    return [first, second]


def _by_columns(g: Notation, rows: TensorValue, d: TensorValue, rank: int) -> TensorValue:
    """a' @ d. Where one matrix is multiplied with many, their rows are those of one, so that nothing is left to add up."""
    if rank == 2 and rows.rank > 2:
        rows, d = (g.reshape(x, [math.prod(x.dims[:-1]), x.dims[-1]]) for x in (rows, d))
    return g.MatMul(_turned(g, rows), d)


def _einsum(g: Notation, at: Reverse) -> list[TensorValue | None] | None:
    """For each operand the sum over the letters that it has not, of `d` and the other operands."""
    equation = at.call.attribute("equation").replace(" ", "")
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if not arrow:
        result = "".join(sorted(letter for letter in set(left) - {","} if left.count(letter) == 1))
    if "." in equation or any(len(set(term)) < len(term) for term in terms):
        return None
    found: list[TensorValue | None] = []
    for i, term in enumerate(terms):
        others = [(other, at.operand(k)) for k, other in enumerate(terms) if k != i]
        there = set(result).union(*(other for other, _ in others))
        kept = "".join(letter for letter in term if letter in there)
        names = ",".join([result, *(other for other, _ in others)])
        part = g.Einsum(at.first, *(x for _, x in others), equation=f"{names}->{kept}") if at.wanted[i] else None
        if (
            part is not None and kept != term
        ):  # a letter that only this operand has is summed over: every element gets the same
            x = at.operand(i)
            part = g.reshape(part, [size if letter in kept else 1 for letter, size in zip(term, x.dims, strict=True)])
            part = g.expand(part, x.dims)
        found.append(part)
    return found


PRODUCTS: tuple[Gradient, ...] = (row("MatMul", _matmul), row("Einsum", _einsum))
