"""Products with a bias, or with factors and transpositions of their own, as the bare product and what stands around it."""

from __future__ import annotations

from fusewise.ops.spec import Call
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["PRODUCTS"]


def _gemm(g: Notation, call: Call, a: TensorValue, b: TensorValue, c: TensorValue | None = None) -> TensorValue:
    first = g.permute(a, (1, 0)) if call.attribute("transA", 0) else a
    second = g.permute(b, (1, 0)) if call.attribute("transB", 0) else b
    alpha, beta = call.attribute("alpha", 1.0), call.attribute("beta", 1.0)
    product = g.MatMul(first, second)
    product = product if alpha == 1 else product * alpha
    if c is None:
        return product
    return product + (c if beta == 1 else c * beta)


def _bare(
    g: Notation, call: Call, x: TensorValue, w: TensorValue, bias: TensorValue | None = None
) -> TensorValue | None:
    """The convolution without its bias, and a sum per channel."""
    if bias is None:
        return None
    bare: TensorValue = getattr(g, call.node.op)(x, w, **dict(call.node.attributes))
    return bare + g.reshape(bias, [bias.dims[0], *[1] * (x.rank - 2)])


PRODUCTS: tuple[Decomposition, ...] = (row("Gemm", _gemm), row("Conv", _bare), row("ConvTranspose", _bare))
