"""Shapes of products, of attention, and of recurrences."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fusewise.ops.shapes.operands import Operands, Row, Shape, Unknown, share

__all__ = ["CONTRACT"]


def _product(case: Operands) -> tuple[Shape, ...]:
    return (_product_of(case, case.shape(0), case.shape(1)),)


def _quantized_product(case: Operands) -> tuple[Shape, ...]:
    return (_product_of(case, case.shape(0), case.shape(3)),)


def _product_of(case: Operands, a: Shape, b: Shape) -> Shape:
    if not a or not b:
        raise Unknown
    left, right = a if len(a) > 1 else (1, *a), b if len(b) > 1 else (*b, 1)
    case.equal(left[-1], right[-2], "the sizes that are summed over")
    rows, columns = (left[-2],) if len(a) > 1 else (), (right[-1],) if len(b) > 1 else ()
    return (*case.broadcast(left[:-2], right[:-2]), *rows, *columns)


def _gemm(case: Operands) -> tuple[Shape, ...]:
    a, b = case.shape(0), case.shape(1)
    (rows, depth), (other, columns) = (
        a[:: -1 if case.attribute("transA", 0) else 1],
        b[:: -1 if case.attribute("transB", 0) else 1],
    )
    case.equal(depth, other, "the sizes that are summed over")
    return ((rows, columns),)


def _einsum(case: Operands) -> tuple[Shape, ...]:
    """Letters by operand; an ellipsis stands for leading axes that are broadcast."""
    equation = case.attribute("equation").replace(" ", "")
    terms, arrow, result = equation.partition("->")
    sizes: dict[str, int] = {}
    dots: list[Shape] = []
    for i, term in enumerate(terms.split(",")):
        shape = case.shape(i)
        before, ellipsis, after = term.partition("...")
        middle = len(shape) - len(before) - len(after)
        if middle < 0 or (middle and not ellipsis):
            raise Unknown
        if ellipsis:
            dots.append(shape[len(before) : len(before) + middle])
        named = (*shape[: len(before)], *shape[len(before) + middle :])
        for letter, size in zip(before + after, named, strict=True):
            found = sizes.get(letter)
            sizes[letter] = size if found is None else case.broadcast((found,), (size,))[0]
    wide = case.broadcast(*dots)
    if not arrow:
        letters = terms.replace(",", "").replace("...", "")
        result = ("..." if dots else "") + "".join(sorted(one for one in set(letters) if letters.count(one) == 1))
    before, ellipsis, after = result.partition("...")
    return ((*map(sizes.__getitem__, before), *(wide if ellipsis else ()), *map(sizes.__getitem__, after)),)


def _determinant(case: Operands) -> tuple[Shape, ...]:
    data = case.shape()
    case.equal(data[-1], data[-2], "the sizes of a square matrix")
    return (data[:-2],)


def _attention(case: Operands) -> tuple[Shape, ...]:
    """Y, the present keys and values, and the scores (ONNX, Attention)."""
    q, k, v = case.shape(0), case.shape(1), case.shape(2)
    case.equal(q[0], k[0], "the batch sizes of queries and keys")
    case.equal(k[0], v[0], "the batch sizes of keys and values")
    if len(q) == 4:
        heads, shared, key, value = q[1], k[1], k[3], v[3]
    else:
        heads, shared = case.attribute("q_num_heads"), case.attribute("kv_num_heads")
        key, value = share(case, (k[2],), (shared,)), share(case, (v[2],), (shared,))
    case.equal(k[-2], v[-2], "the lengths of keys and values")
    past = 0
    if case.has(4):
        before = case.shape(4)
        case.equal(q[0], before[0], "the batch sizes of queries and of the past")
        past = before[2]
    total = past + k[-2]
    result = (*q[:3], value) if len(q) == 4 else (*q[:2], heads * value)
    return (result, (q[0], shared, total, key), (q[0], shared, total, value), (q[0], heads, q[-2], total))


def _flexible_attention(case: Operands) -> tuple[Shape, ...]:
    q, v = case.shape(0), case.shape(2)
    return ((*q[:3], v[3]),)


def _linear_attention(case: Operands) -> tuple[Shape, ...]:
    q, k, v = case.shape(0), case.shape(1), case.shape(2)
    heads, shared = case.attribute("q_num_heads"), case.attribute("kv_num_heads")
    key, value = share(case, (k[2],), (shared,)), share(case, (v[2],), (shared,))
    return ((*q[:2], heads * value), (q[0], shared, key, value))


def _causal_convolution(case: Operands) -> tuple[Shape, ...]:
    data, weights = case.shape(), case.shape(1)
    return (data, (*data[:2], weights[2] - 1))


def _recurrence(case: Operands) -> tuple[Shape, ...]:
    """Y, Y_h and, of an LSTM, Y_c."""
    data, weights = case.shape(), case.shape(2)
    (steps, batch), directions, hidden = data[:2], weights[0], weights[2]
    if case.attribute("layout", 0):
        batch, steps = steps, batch
        return ((batch, steps, directions, hidden), *((batch, directions, hidden),) * 2)
    return ((steps, directions, batch, hidden), *((directions, batch, hidden),) * 2)


CONTRACT: Mapping[str, Row] = MappingProxyType(
    {
        **dict.fromkeys(("MatMul", "MatMulInteger"), _product),
        **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrence),
        "Attention": _attention,
        "CausalConvWithState": _causal_convolution,
        "Det": _determinant,
        "Einsum": _einsum,
        "Gemm": _gemm,
        "LinearAttention": _linear_attention,
        "QLinearMatMul": _quantized_product,
        "ai.onnx.preview.FlexAttention": _flexible_attention,
    }
)
"""Rows by operator."""
