"""Products of matrices, with what is done to their operands and results."""

from __future__ import annotations

from fusewise.frontend.domains.row import DomainCall, DomainRow, integer, real
from fusewise.frontend.domains.writer import DomainValue, DomainWriter
from fusewise.ops.validity.rules import flag

__all__ = ["PRODUCTS"]


def _turned(g: DomainWriter, x: DomainValue, matrix: int, batch: int) -> DomainValue:
    """A matrix with its axes swapped, and with the first axis moved behind the others but the last (`batch`)."""
    order = list(range(x.rank))
    if batch and x.rank > 2:
        order = [*order[1:-1], 0, order[-1]]
    if matrix and x.rank > 1:
        order[-2:] = reversed(order[-2:])
    return g.permute(x, order)


def _fused_matmul(g: DomainWriter, call: DomainCall) -> DomainValue:
    a = _turned(g, call["A"], call.attribute("transA"), call.attribute("transBatchA"))
    b = _turned(g, call["B"], call.attribute("transB"), call.attribute("transBatchB"))
    alpha = call.attribute("alpha")
    return g.MatMul(a, b) if alpha == 1 else g.MatMul(a, b) * alpha


PRODUCTS: tuple[DomainRow, ...] = (
    DomainRow(
        "FusedMatMul",
        _fused_matmul,
        operands=("A", "B"),
        outputs=("Y",),
        attributes=(
            real("alpha", 1.0),
            integer("transA", 0),
            integer("transB", 0),
            integer("transBatchA", 0),
            integer("transBatchB", 0),
        ),
        rules=(flag("transA", "transB", "transBatchA", "transBatchB"),),
    ),
)
